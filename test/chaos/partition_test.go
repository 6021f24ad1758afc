package chaos

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// network is a proxy between a server and its database. While it is cut, it drops all
// data without closing connections, as an unplugged cable or a firewall does.
type network struct {
	to string
	ln net.Listener

	mu    sync.Mutex
	flows sync.Cond // signaled when whole changes
	whole bool
	ended bool
	conns []net.Conn
}

// newNetwork starts a proxy to the database and returns its address.
func newNetwork(t *testing.T, database string) (*network, string) {
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
		go n.proxy(near)
	}
}

// proxy copies bytes in both directions while the network isn't cut.
func (n *network) proxy(near net.Conn) {
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

// pass waits while the network is cut. It returns false once the network is closed.
func (n *network) pass() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.whole && !n.ended {
		n.flows.Wait()
	}
	return !n.ended
}

// keep registers a connection to close at the end.
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

func (n *network) cut() error     { return n.set(false) }
func (n *network) restore() error { return n.set(true) }

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
