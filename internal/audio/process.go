package audio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Program starts a program and returns what it prints, as it prints it. Its
// input is read from in, which is closed with the output. The program is
// killed when the context ends or the output is closed; one that fails ends
// its output with an error instead of io.EOF.
func Program(ctx context.Context, in io.Reader, path string, args ...string) (io.ReadCloser, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("audio: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &process{out: read, in: in, cancel: cancel, ended: make(chan struct{})}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, write, &p.said
	cmd.Env = environment()
	err = cmd.Start()
	write.Close()
	if err != nil {
		cancel()
		read.Close()
		return nil, fmt.Errorf("audio: start %s: %w", filepath.Base(path), err)
	}
	// It is waited for at once, so that none stays behind as a zombie; what it
	// has printed waits in the pipe.
	go func() {
		defer close(p.ended)
		defer cancel()
		err := cmd.Wait()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			p.err = fmt.Errorf("audio: %s: %w", filepath.Base(path), context.Cause(ctx))
		default:
			p.err = fmt.Errorf("audio: %s: %w: %s", filepath.Base(path), err, p.said.text)
		}
	}()
	return p, nil
}

type process struct {
	out    *os.File
	in     io.Reader
	cancel context.CancelFunc
	said   lastWords
	ended  chan struct{}
	err    error // once it has ended
	closed sync.Once
}

func (p *process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if errors.Is(err, io.EOF) {
		<-p.ended
		if p.err != nil {
			err = p.err
		}
	}
	return n, err
}

func (p *process) Close() error {
	p.closed.Do(func() {
		p.cancel()
		// Its input first: who copies it there may be waiting for more of it.
		if c, ok := p.in.(io.Closer); ok {
			c.Close()
		}
		p.out.Close()
	})
	<-p.ended
	return nil
}

// lastWords keeps the end of what a program complains about, for the log.
type lastWords struct{ text []byte }

const maxLastWords = 500

func (l *lastWords) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	if len(l.text) > maxLastWords {
		l.text = l.text[len(l.text)-maxLastWords:]
	}
	return len(p), nil
}

// environment is what a program gets to see of ours: where things are, none
// of the secrets.
func environment() []string {
	// Without a word on that, espeak-ng looks for a sound server, though nobody
	// is to hear it, and leaves folders for one behind.
	env := []string{"LC_ALL=C.UTF-8", "PULSE_SERVER=none"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "ESPEAK_DATA_PATH", "TMPDIR", "SYSTEMROOT"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
