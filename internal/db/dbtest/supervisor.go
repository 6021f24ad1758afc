package dbtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// supervisorVariable, when set, turns any program that links this package into
// the supervisor of one PostgreSQL server. Only StartCluster sets it.
const supervisorVariable = "TURNPIKE_DBTEST_SUPERVISOR"

const (
	orderRestart = "restart"
	orderKill    = "kill"
)

// supervisorReply answers the start and then every order.
type supervisorReply struct {
	URL   string `json:"url,omitempty"`
	Error string `json:"error,omitempty"`
}

// Re-executing ourselves needs no second program to be built or found. It
// happens in init, because a test binary has no other place that runs before
// its tests do.
func init() {
	if os.Getenv(supervisorVariable) == "" {
		return
	}
	// The kernel ties a child's death signal to the thread that forked it, not to
	// the process: stay on the main thread, which lives as long as we do.
	runtime.LockOSThread()
	if err := supervise(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest: PostgreSQL supervisor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervise starts a server and runs until orders ends, which it does when the
// process that holds the other end of the pipe ends.
func supervise(orders io.Reader, replies io.Writer) error {
	// Notify rather than Ignore: the server must not inherit ignored signals. A
	// broken pipe is no reason to die before the server is stopped, either.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(orders); s.Scan(); {
			lines <- s.Text()
		}
	}()
	answer := func(url string, err error) {
		r := supervisorReply{URL: url}
		if err != nil {
			r.Error = err.Error()
		}
		// Nobody left to read it: the closed orders end us in a moment.
		_ = json.NewEncoder(replies).Encode(r)
	}

	if err := adoptOrphans(); err != nil {
		answer("", err)
		return nil
	}
	srv, err := createServer()
	if err != nil {
		answer("", err)
		return nil
	}
	if err := srv.startOnFreePort(); err != nil {
		answer("", err)
		return srv.remove()
	}
	answer(srv.url(), nil)
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				return srv.remove()
			}
		case order, open := <-lines:
			switch {
			case !open:
				return srv.remove()
			case order == orderRestart:
				answer("", srv.restart())
			case order == orderKill:
				answer("", srv.kill())
			default:
				answer("", fmt.Errorf("unknown order %q", order))
			}
		}
	}
}
