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

// Program starts a program and returns its output as a stream. Its input is read from
// in, which is closed with the output. The program is killed when the context ends or
// the output is closed. If it fails, the output ends with an error.
func Program(ctx context.Context, in io.Reader, path string, args ...string) (io.ReadCloser, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("audio: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &process{out: read, in: in, cancel: cancel, ended: make(chan struct{})}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, write, &p.stderr
	cmd.Env = environment()
	err = cmd.Start()
	write.Close()
	if err != nil {
		cancel()
		read.Close()
		return nil, fmt.Errorf("audio: start %s: %w", filepath.Base(path), err)
	}
	// Wait immediately, so that no zombie is left. The output stays in the pipe.
	go func() {
		defer close(p.ended)
		defer cancel()
		err := cmd.Wait()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			p.err = fmt.Errorf("audio: %s: %w", filepath.Base(path), context.Cause(ctx))
		default:
			p.err = fmt.Errorf("audio: %s: %w: %s", filepath.Base(path), err, p.stderr.text)
		}
	}()
	return p, nil
}

type process struct {
	out    *os.File
	in     io.Reader
	cancel context.CancelFunc
	stderr stderrTail
	ended  chan struct{}
	err    error // set when it has ended
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
		// The input first, because the goroutine that copies it may wait for more.
		if c, ok := p.in.(io.Closer); ok {
			c.Close()
		}
		p.out.Close()
	})
	<-p.ended
	return nil
}

// stderrTail keeps the end of the program's error output, for the log.
type stderrTail struct{ text []byte }

const maxLastWords = 500

func (l *stderrTail) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	if len(l.text) > maxLastWords {
		l.text = l.text[len(l.text)-maxLastWords:]
	}
	return len(p), nil
}

// environment is the environment of a program: paths but no secrets.
func environment() []string {
	// Otherwise espeak-ng looks for a sound server and leaves directories behind.
	env := []string{"LC_ALL=C.UTF-8", "PULSE_SERVER=none"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "ESPEAK_DATA_PATH", "TMPDIR", "SYSTEMROOT"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
