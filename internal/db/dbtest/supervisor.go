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

// supervisorVariable turns any program that links this package into the
// supervisor of a PostgreSQL server. startCluster sets it to the server's mode.
const supervisorVariable = "TURNPIKE_DBTEST_SUPERVISOR"

const (
	quick   = "quick"
	durable = "durable"
	// replicated is quick with a log that standbys can follow.
	replicated = "replicated"
	// standbyOf precedes the URL of the primary.
	standbyOf = "standby of "
)

const (
	orderRestart = "restart"
	orderKill    = "kill"
)

// supervisorReply is the response to the start and to every command.
type supervisorReply struct {
	URL   string `json:"url,omitempty"`
	Error string `json:"error,omitempty"`
}

// Running this program again needs no second binary. It happens in init,
// because nothing else in a test binary runs before the tests.
func init() {
	if os.Getenv(supervisorVariable) == "" {
		return
	}
	// The kernel ties a child's death signal to the thread that forked it. Stay on
	// the main thread, which lives as long as the process.
	runtime.LockOSThread()
	if err := supervise(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest: PostgreSQL supervisor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervise starts a server and runs until orders closes, which happens when
// the parent process ends.
func supervise(orders io.Reader, replies io.Writer) error {
	// Notify, not Ignore: the server must not inherit ignored signals. A broken
	// pipe must not end the supervisor before it has stopped the server.
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
		// If no one reads the reply, orders closes soon as well.
		_ = json.NewEncoder(replies).Encode(r)
	}

	if err := adoptOrphans(); err != nil {
		answer("", err)
		return nil
	}
	srv, err := createServer(os.Getenv(supervisorVariable))
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
