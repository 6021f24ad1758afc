package chaos

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// network is the wire between a server and its database. When it is cut,
// nothing arrives any more and nobody is told, as when a cable is pulled or a
// firewall swallows packets.
type network struct {
	to string
	ln net.Listener

	mu    sync.Mutex
	flows sync.Cond // signalled when whole changes
	whole bool
	ended bool
	conns []net.Conn
}

// wire puts a network in front of the database and returns the address that
// leads through it.
func wire(t *testing.T, database string) (*network, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{to: u.Host, ln: ln, whole: true}
	n.flows.L = &n.mu
	go n.accept()
	t.Cleanup(n.close)
	u.Host = ln.Addr().String()
	return n, u.String()
}

func (n *network) accept() {
	for {
		near, err := n.ln.Accept()
		if err != nil {
			return
		}
		go n.join(near)
	}
}

// join carries bytes both ways, when they flow.
func (n *network) join(near net.Conn) {
	if !n.keep(near) || !n.pass() {
		return
	}
	far, err := net.Dial("tcp", n.to)
	if err != nil {
		near.Close()
		return
	}
	if !n.keep(far) {
		return
	}
	carry := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			size, err := from.Read(buf)
			if !n.pass() {
				return
			}
			if _, werr := to.Write(buf[:size]); err != nil || werr != nil {
				return
			}
		}
	}
	go carry(near, far)
	carry(far, near)
}

// pass waits while the wire is cut, and reports whether it still exists.
func (n *network) pass() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.whole && !n.ended {
		n.flows.Wait()
	}
	return !n.ended
}

// keep notes a connection, to close it in the end.
func (n *network) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		c.Close()
		return false
	}
	n.conns = append(n.conns, c)
	return true
}

func (n *network) set(whole bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.whole = whole
	n.flows.Broadcast()
	return nil
}

func (n *network) cut() error  { return n.set(false) }
func (n *network) mend() error { return n.set(true) }

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.flows.Broadcast()
	n.ln.Close()
	for _, c := range n.conns {
		c.Close()
	}
}
