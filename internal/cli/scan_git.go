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
	"sync"
)

// maxBlamed bounds how many findings are looked up in the history, which takes
// git a walk each.
const maxBlamed = 100

// repository scans what git has: each version of each file once, the messages
// of commits and tags, and the names of files. Nothing is written to the disk.
//
// One git lists the objects, another hands out their content, and both work
// while we read.
func (s *scan) repository(ctx context.Context, repo, since string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args := []string{"rev-list", "--objects", "--all"}
	if since != "" {
		args = append(args, "^"+since)
	}
	list := git(ctx, repo, args...)
	names, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	show := git(ctx, repo, "cat-file", "--batch", "--buffer")
	wanted, err := show.StdinPipe()
	if err != nil {
		return err
	}
	content, err := show.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return gitFailure(list, err)
	}
	if err := show.Start(); err != nil {
		stop()
		_ = list.Wait()
		return gitFailure(show, err)
	}
	paths := newPathQueue()
	var handing sync.WaitGroup
	handing.Go(func() {
		defer wanted.Close()
		defer paths.close()
		handOver(names, wanted, paths)
	})
	bar := newProgress(s.err, "Scanning objects", objectCount(ctx, repo, since))
	defer bar.Done()
	err = s.objects(bufio.NewReaderSize(content, scanBuffer), paths, bar)
	if err != nil {
		stop() // neither git need finish
	}
	handing.Wait()
	err = errors.Join(err, gitFailure(list, list.Wait()), gitFailure(show, show.Wait()))
	bar.Done()
	s.blame(ctx, repo)
	return err
}

// git is a command in a repository. What it says goes into its failure.
func git(ctx context.Context, repo string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repo}, args...)...)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

func gitFailure(cmd *exec.Cmd, err error) error {
	if err == nil {
		return nil
	}
	if said, ok := cmd.Stderr.(*bytes.Buffer); ok && said.Len() > 0 {
		return fmt.Errorf("git: %s", visible(strings.TrimSpace(said.String())))
	}
	return fmt.Errorf("git: %w", err)
}

// handOver asks for the content of each object that is listed, and keeps its
// path for when the content comes.
func handOver(names io.Reader, wanted io.Writer, paths *pathQueue) {
	out := bufio.NewWriter(wanted)
	lines := bufio.NewScanner(names)
	lines.Buffer(nil, 1<<20) // the longest path
	for lines.Scan() {
		id, path, _ := strings.Cut(lines.Text(), " ")
		paths.put(path)
		if _, err := out.WriteString(id + "\n"); err != nil {
			break // the other git is gone, and says why
		}
	}
	_ = out.Flush()
	_, _ = io.Copy(io.Discard, names)
}

// pathQueue keeps the paths of objects that were asked for and have not come
// yet. It has no bound: each of the two gits waits only for us.
type pathQueue struct {
	mu     sync.Mutex
	more   sync.Cond
	list   []string
	closed bool
}

func newPathQueue() *pathQueue {
	q := &pathQueue{}
	q.more.L = &q.mu
	return q
}

func (q *pathQueue) put(path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, path)
	q.more.Signal()
}

func (q *pathQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Signal()
}

func (q *pathQueue) get() (path string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.more.Wait()
	}
	if len(q.list) > 0 {
		path, q.list = q.list[0], q.list[1:]
	}
	return path
}

// objects reads what cat-file hands out: a line with id, type and size, the
// content, and a line's end.
func (s *scan) objects(content *bufio.Reader, paths *pathQueue, bar *progress) error {
	buf := make([]byte, scanBuffer)
	for n := int64(1); ; n++ {
		head, err := content.ReadString('\n')
		if errors.Is(err, io.EOF) && head == "" {
			return nil
		}
		if err != nil {
			return err
		}
		path := paths.get()
		fields := strings.Fields(head)
		if len(fields) != 3 { // "… missing", in a clone that is not whole
			continue
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return fmt.Errorf("git said something that cannot be read: %q", head)
		}
		at := sighting{Path: path, object: fields[0]}
		switch fields[1] {
		case "commit", "tag":
			at.Path = "(message)"
		case "tree":
			at.Path = "(names in " + path + "/)"
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

// objectCount is about how many there are, for the bar; 0 if it is not known.
func objectCount(ctx context.Context, repo, since string) int64 {
	if since != "" {
		return 0
	}
	out, err := git(ctx, repo, "count-objects", "-v").Output()
	if err != nil {
		return 0
	}
	var total int64
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && (name == "count" || name == "in-pack") {
			total += n
		}
	}
	return total
}

// blame finds the commit that brought each sighting.
func (s *scan) blame(ctx context.Context, repo string) {
	known := map[string]string{}
	for i := range s.found {
		f := &s.found[i]
		commit, ok := known[f.object]
		if !ok && len(known) < maxBlamed {
			commit = f.object // a commit is its own
			if f.Path != "(message)" {
				out, _ := git(ctx, repo, "log", "--all", "--reverse", "--format=%H", "--find-object="+f.object).Output()
				commit, _, _ = strings.Cut(string(out), "\n")
			}
			known[f.object] = commit
		}
		f.Commit = commit[:min(len(commit), 12)]
	}
}
