package scan

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

const (
	// messagePath stands for the message of a commit or a tag.
	messagePath = "(message)"
	shortHash   = 12
)

// History is the history of a repository: each version of each file, the names of
// files, and the messages of commits and tags, oldest first. It writes nothing to the
// disk. One git process lists commits with the files that they change, and another
// one prints them. So memory doesn't depend on the size of the files.
type History struct {
	Dir     string
	Exclude []string // revisions whose history is skipped
	// KeepGoing ignores revisions in Exclude that don't exist anymore.
	KeepGoing bool
	// Commit is called after each commit, with its hash and those of its parents.
	Commit func(hash string, parents []string) error
	Reader *Reader
}

// Scan reads the history.
func (h *History) Scan(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args := []string{"-c", "log.showRoot=true", "-c", "log.showSignature=false", "log", "--all", "--reverse", "--topo-order", "--raw",
		"--no-abbrev", "--no-renames", "-c", "-z", "--format=commit %H %P"}
	if h.KeepGoing {
		args = append(args, "--ignore-missing")
	}
	list := Git(ctx, h.Dir, append(args, "--stdin")...)
	list.Stdin = strings.NewReader(excluding(h.Exclude))
	show := Git(ctx, h.Dir, "cat-file", "--buffer", "--batch=%(objectname) %(objecttype) %(objectsize) %(rest)")
	changes, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	into, err := show.StdinPipe()
	if err != nil {
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
	requested := make(chan error, 1)
	go func() { requested <- h.request(ctx, changes, into) }()
	if err = h.objects(bufio.NewReaderSize(content, BufferSize)); err != nil {
		stop() // neither git has to finish
	}
	return errors.Join(err, <-requested, gitError(list, list.Wait()), gitError(show, show.Wait()))
}

func excluding(revisions []string) string {
	var b strings.Builder
	for _, r := range revisions {
		b.WriteString("^" + r + "\n")
	}
	return b.String()
}

// request asks for each commit with its parents, for the files that it changes with
// their paths, and for the tags.
func (h *History) request(ctx context.Context, changes io.Reader, into io.WriteCloser) error {
	out := bufio.NewWriter(into)
	err := requestChanges(bufio.NewReader(changes), out)
	if err == nil {
		err = h.requestTags(ctx, out)
	}
	return errors.Join(err, out.Flush(), into.Close())
}

// requestChanges reads the output of git log -z --raw.
func requestChanges(r *bufio.Reader, out *bufio.Writer) error {
	for {
		item, err := r.ReadString(0)
		if errors.Is(err, io.EOF) && item == "" {
			return nil
		}
		if err != nil {
			return err
		}
		item = strings.Trim(item, "\n\x00")
		if commit, ok := strings.CutPrefix(item, "commit "); ok {
			fmt.Fprintln(out, commit)
			continue
		}
		fields := strings.Fields(item)
		if !strings.HasPrefix(item, ":") || len(fields) < 5 {
			continue
		}
		path, err := r.ReadString(0)
		if err != nil {
			return err
		}
		// The new version comes before the status. A deleted file has none, and of a
		// submodule, git says that it is missing.
		if object := fields[len(fields)-2]; strings.Trim(object, "0") != "" {
			fmt.Fprintln(out, object, strings.ReplaceAll(strings.TrimSuffix(path, "\x00"), "\n", " "))
		}
	}
}

func (h *History) requestTags(ctx context.Context, out *bufio.Writer) error {
	list := Git(ctx, h.Dir, "for-each-ref", "--format=%(objecttype) %(objectname)", "refs/tags")
	tags, err := list.Output()
	for line := range strings.Lines(string(tags)) {
		if tag, ok := strings.CutPrefix(strings.TrimSpace(line), "tag "); ok {
			fmt.Fprintln(out, tag)
		}
	}
	return gitError(list, err)
}

// objects reads the output of cat-file: a line with ID, type, size and what was
// requested with it, the content, and a newline for each object.
func (h *History) objects(content *bufio.Reader) error {
	commit, parents := "", ""
	finish := func() error {
		if commit == "" || h.Commit == nil {
			return nil
		}
		return h.Commit(commit, strings.Fields(parents))
	}
	for {
		head, err := content.ReadString('\n')
		if errors.Is(err, io.EOF) && head == "" {
			return finish()
		}
		if err != nil {
			return err
		}
		fields := strings.SplitN(strings.TrimSuffix(head, "\n"), " ", 4)
		if len(fields) != 4 { // "… missing"
			continue
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return fmt.Errorf("unexpected output of git: %q", head)
		}
		at := Finding{Path: fields[3], Commit: commit[:min(len(commit), shortHash)], object: fields[0]}
		switch fields[1] {
		case "commit":
			if err := finish(); err != nil {
				return err
			}
			commit, parents = fields[0], fields[3]
			at.Path, at.Commit = messagePath, commit[:shortHash]
		case "tag":
			at.Path, at.Commit = messagePath, fields[0][:shortHash]
		default:
			h.Reader.name(at)
		}
		if err := h.Reader.content(content, size, at); err != nil {
			return err
		}
		if _, err := content.Discard(1); err != nil {
			return err
		}
	}
}

// Git returns a git command that asks no one for a password.
func Git(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Stderr = new(bytes.Buffer)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	return cmd
}

// gitError returns what git wrote.
func gitError(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	if text, ok := cmd.Stderr.(*bytes.Buffer); ok && text.Len() > 0 {
		return fmt.Errorf("git: %s", strings.TrimSpace(text.String()))
	}
	return fmt.Errorf("git: %w", err)
}
