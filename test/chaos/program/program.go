// Package program runs Turnpike in a separate process, for the tests that crash it and
// the benchmarks that measure it.
package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"turnpike/internal/cli"
)

// MasterKey is the master key that tests configure.
const MasterKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// startTimeout limits a start on a busy machine, including migrations.
const startTimeout = 60 * time.Second

// asProgram makes a test binary behave as the turnpike command.
const asProgram = "RUN_AS_TURNPIKE=1"

// Binary is an executable that behaves as the turnpike command.
type Binary struct {
	path string
	env  []string
}

// BuildRelease compiles the release binary into dir, as `make dist` does.
func BuildRelease(dir string) (Binary, error) { return build("", dir, "-pgo=auto") }

// BuildSource compiles the module in the source directory into dir, as `make build` does.
func BuildSource(source, dir string) (Binary, error) { return build(source, dir, "-pgo=off") }

func build(source, dir, profile string) (Binary, error) {
	path := filepath.Join(dir, "turnpike")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", profile, "-ldflags", "-s -w", "-o", path, "turnpike")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Binary{}, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return Binary{path: path}, nil
}

// Self returns the running test binary as the program, which saves a second
// compilation. Its TestMain must be Main.
func Self() (Binary, error) {
	path, err := os.Executable()
	return Binary{path: path, env: []string{asProgram}}, err
}

// Main is a TestMain for test binaries that start themselves as the program.
func Main(m interface{ Run() int }) {
	if slices.Contains(os.Environ(), asProgram) {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Place is the storage of a server: a data directory, and PostgreSQL if DatabaseURL is
// set. Servers and commands with the same Place share the data.
type Place struct {
	Dir         string
	DatabaseURL string
	Env         []string // NAME=VALUE
}

// command prepares the program with the place's settings only. It ignores the
// environment of this process.
func (b Binary) command(at Place, args ...string) *exec.Cmd {
	cmd := exec.Command(b.path, args...)
	cmd.Dir = at.Dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TURNPIKE_") && !strings.HasPrefix(v, "PG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, b.env...)
	cmd.Env = append(cmd.Env, "TURNPIKE_DATA="+at.Dir)
	if at.DatabaseURL != "" {
		cmd.Env = append(cmd.Env, "TURNPIKE_DATABASE_URL="+at.DatabaseURL, "TURNPIKE_MASTER_KEY="+MasterKey)
	}
	cmd.Env = append(cmd.Env, at.Env...)
	return cmd
}

// Run runs a command and returns its output.
func (b Binary) Run(at Place, args ...string) (stdout, stderr string, err error) {
	var out, errOut strings.Builder
	cmd := b.command(at, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// RunFor runs a command and kills it after the given time. It reports whether the
// command was still running.
func (b Binary) RunFor(at Place, limit time.Duration, args ...string) (killed bool, err error) {
	cmd := b.command(at, args...)
	EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return false, err
	}
	kill := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() }) // fails only if it has ended
	defer kill.Stop()
	err = cmd.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) && !ended.Exited() {
		return true, nil
	}
	return false, err
}

// Server is a running `turnpike serve`.
type Server struct {
	URL  string
	cmd  *exec.Cmd
	log  *tail
	done chan struct{}
	err  error // of the process, once done is closed
}

// announced matches the line that contains the server's address.
var announced = regexp.MustCompile(`listening on (http://[0-9.:]+)`)

// Serve starts a server on a free port and returns when it accepts requests.
func (b Binary) Serve(at Place, args ...string) (*Server, error) {
	cmd := b.command(at, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	s := &Server{cmd: cmd, log: &tail{}, done: make(chan struct{})}
	if err := os.MkdirAll(at.Dir, 0o700); err != nil {
		return nil, err
	}
	// Not cmd.StdoutPipe: that pipe is closed when the process ends, possibly before
	// its last lines are read.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, s.log
	EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	_ = write.Close() // the process has its own
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()

	address := make(chan string, 1)
	go func() {
		defer read.Close()
		in := bufio.NewScanner(read)
		for in.Scan() {
			if found := announced.FindStringSubmatch(in.Text()); found != nil {
				address <- found[1]
			}
		}
	}()
	select {
	case s.URL = <-address:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("the server ended while starting: %w\n%s", s.err, s.Log())
	case <-time.After(startTimeout):
		s.Kill()
		return nil, fmt.Errorf("the server did not start within %v\n%s", startTimeout, s.Log())
	}
}

// Pid returns the server's process ID.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.log.String() }

// Kill sends SIGKILL and waits until the server has ended. It is idempotent.
func (s *Server) Kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL) // fails only if the process has ended
	<-s.done
}

// Terminate sends SIGTERM.
func (s *Server) Terminate() error { return s.cmd.Process.Signal(syscall.SIGTERM) }

// Wait waits until the server has ended and returns its exit code, or -1 if it was
// killed or did not end in time.
func (s *Server) Wait(patience time.Duration) (code int, err error) {
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return -1, fmt.Errorf("the server still runs after %v", patience)
	}
}

// tail keeps the end of a log, so that a noisy server can't fill the memory.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

var _ io.Writer = (*tail)(nil)

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
