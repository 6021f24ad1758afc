package dbtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Cluster is a throw-away PostgreSQL server: started from the installed
// binaries, reachable from this machine only, gone with its data when the
// process that started it ends, however it ends.
//
// The server is not a child of this process but of a supervisor, which is this
// same program started a second time (see supervisor.go). The supervisor lives
// as long as the pipe that is its standard input, and the kernel closes that
// pipe for us even on SIGKILL.
type Cluster struct {
	url string

	mu         sync.Mutex // one order at a time; guards what follows
	supervisor *exec.Cmd
	orders     io.WriteCloser
	replies    *json.Decoder
	stopped    bool
}

// StartCluster starts a server on a free port of the loopback interface and
// returns when it accepts connections. Without installed server binaries the
// error says how to get them.
func StartCluster() (*Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), supervisorVariable+"=1")
	cmd.Dir = os.TempDir()
	// Inherited, so that a panic is seen, and so that whoever waits for our
	// standard error to close (go test does) also waits until the server is gone.
	cmd.Stderr = os.Stderr
	// Its own session: a signal meant for the tests' process group must not take
	// the supervisor along before it has cleaned up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	replies, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting PostgreSQL's supervisor: %w", err)
	}

	c := &Cluster{supervisor: cmd, orders: orders, replies: json.NewDecoder(replies)}
	first, err := c.reply()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", errors.Join(err, c.Stop()))
	}
	c.url = first.URL
	return c, nil
}

// URL is the address of the server: a superuser without a password, in an empty
// database. It stays the same across Restart.
func (c *Cluster) URL() string { return c.url }

// Restart shuts the server down as an administrator would (sessions are cut,
// what was committed is kept), or picks it up after Kill, and starts it again
// on the same port. It returns when connections are accepted.
func (c *Cluster) Restart() error {
	if err := c.order(orderRestart); err != nil {
		return fmt.Errorf("restarting PostgreSQL: %w", err)
	}
	return nil
}

// Kill crashes the server with SIGKILL. It stays down until Restart.
func (c *Cluster) Kill() error {
	if err := c.order(orderKill); err != nil {
		return fmt.Errorf("killing PostgreSQL: %w", err)
	}
	return nil
}

// Stop ends the server at once and removes its data. Stopping twice is fine.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	c.orders.Close()
	if err := c.supervisor.Wait(); err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w", err)
	}
	return nil
}

func (c *Cluster) order(order string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("the cluster was stopped")
	}
	if _, err := io.WriteString(c.orders, order+"\n"); err != nil {
		return fmt.Errorf("the supervisor is gone: %w", err)
	}
	_, err := c.reply()
	return err
}

func (c *Cluster) reply() (supervisorReply, error) {
	var r supervisorReply
	if err := c.replies.Decode(&r); err != nil {
		return r, fmt.Errorf("the supervisor did not answer: %w", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}
