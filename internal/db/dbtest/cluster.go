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

// Cluster is a temporary PostgreSQL server on the loopback interface. It is
// deleted when the process that started it ends, for any reason.
//
// The server is a child of a supervisor, which is this program started again
// (see supervisor.go). The supervisor runs until its standard input closes, and
// the kernel closes that pipe even on SIGKILL.
type Cluster struct {
	url string

	mu         sync.Mutex // serializes commands; guards the fields below
	supervisor *exec.Cmd
	orders     io.WriteCloser
	replies    *json.Decoder
	stopped    bool
}

// StartCluster starts a server on a free port and returns when it accepts
// connections. If the binaries are missing, the error says how to install them.
func StartCluster() (*Cluster, error) { return startCluster(quick) }

// StartDurableCluster is StartCluster with PostgreSQL's default settings, for
// benchmarks: without fsync the results would be too good.
func StartDurableCluster() (*Cluster, error) { return startCluster(durable) }

func startCluster(mode string) (*Cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), supervisorVariable+"="+mode)
	cmd.Dir = os.TempDir()
	// Inherited, so that panics are visible. It also makes go test wait until the
	// server has stopped.
	cmd.Stderr = os.Stderr
	// A separate session: a signal to the tests' process group must not stop the
	// supervisor before it has cleaned up.
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

// URL returns the server's address: a superuser without a password, in an empty
// database. Restart doesn't change it.
func (c *Cluster) URL() string { return c.url }

// Restart shuts the server down, or recovers it after Kill, and starts it on
// the same port. Sessions are closed and commits are kept. It returns when the
// server accepts connections.
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

// Stop stops the server immediately and deletes its data. Repeated calls do
// nothing.
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
