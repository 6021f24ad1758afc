package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// maxBlamed limits for how many objects git looks up the commit, which takes a
// walk through the history each.
const maxBlamed = 100

// repository scans each version of each file, the messages of commits and tags,
// and the names of files. It writes nothing to the disk. One git process lists the
// objects with their paths, and another one prints them with their contents.
func (s *scanner) repository(ctx context.Context, repo, since string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args := []string{"rev-list", "--objects", "--all"}
	if since != "" {
		args = append(args, "^"+since)
	}
	list := git(ctx, repo, args...)
	show := git(ctx, repo, "cat-file", "--buffer", "--batch=%(objectname) %(objecttype) %(objectsize) %(rest)")
	var err error
	if show.Stdin, err = list.StdoutPipe(); err != nil {
		return err
	}
	content, err := show.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return gitError(list, err)
	}
	if err := show.Start(); err != nil {
		stop()
		return gitError(show, errors.Join(err, list.Wait()))
	}
	bar := newProgress(s.err, "Scanning objects", 0)
	defer bar.Done()
	if err = s.objects(bufio.NewReaderSize(content, scanBuffer), bar); err != nil {
		stop() // neither git has to finish
	}
	err = errors.Join(err, gitError(show, show.Wait()), gitError(list, list.Wait()))
	bar.Done()
	s.blame(ctx, repo)
	return err
}

// git returns a command whose error output gitError reads.
func git(ctx context.Context, repo string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repo}, args...)...)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

func gitError(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	if text, ok := cmd.Stderr.(*bytes.Buffer); ok && text.Len() > 0 {
		return fmt.Errorf("git: %s", visible(strings.TrimSpace(text.String())))
	}
	return fmt.Errorf("git: %w", err)
}

// objects reads the output of cat-file: a line with ID, type, size and path, the
// content, and a newline for each object.
func (s *scanner) objects(content *bufio.Reader, bar *progress) error {
	buf := make([]byte, scanBuffer)
	for n := int64(1); ; n++ {
		head, err := content.ReadString('\n')
		if errors.Is(err, io.EOF) && head == "" {
			return nil
		}
		if err != nil {
			return err
		}
		fields := strings.SplitN(strings.TrimSuffix(head, "\n"), " ", 4)
		if len(fields) != 4 { // "… missing", in a partial clone
			continue
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return fmt.Errorf("unexpected output of git: %q", head)
		}
		at := foundKey{Path: fields[3], object: fields[0]}
		switch fields[1] {
		case "commit", "tag":
			at.Path = "(message)"
		case "tree":
			at.Path = "(names in " + fields[3] + "/)"
		}
		object := io.LimitReader(content, size)
		if err := s.content(object, size, buf, at); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, object); err != nil {
			return err
		}
		if _, err := content.Discard(1); err != nil {
			return err
		}
		bar.Set(n)
	}
}

// blame finds the commit that added each key.
func (s *scanner) blame(ctx context.Context, repo string) {
	known := map[string]string{}
	for i := range s.found {
		f := &s.found[i]
		commit, ok := known[f.object]
		if !ok && len(known) < maxBlamed {
			commit = f.object // if it is a commit itself
			if f.Path != "(message)" {
				out, _ := git(ctx, repo, "log", "--all", "--reverse", "--format=%H", "--find-object="+f.object).Output()
				commit, _, _ = strings.Cut(string(out), "\n")
			}
			known[f.object] = commit
		}
		f.Commit = commit[:min(len(commit), 12)]
	}
}
