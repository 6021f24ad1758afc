package wire

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
)

// conn is a connection to a provider. It tells the body that is being read before the read has to wait.
type conn struct {
	*net.TCPConn
	raw    syscall.RawConn
	reader atomic.Pointer[body] // nil if none is being read
}

// dial is the DialContext of a transport.
func dial(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, err
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			_ = tcp.Close()
			return nil, err
		}
		return &conn{TCPConn: tcp, raw: raw}, nil
	}
}

// gotConn is called with the connection of the request.
func (b *body) gotConn(info httptrace.GotConnInfo) {
	c := info.Conn
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	b.conn, _ = c.(*conn)
}

// putIdleConn is called when the transport has read the body to its end, before it waits for the next response.
func (b *body) putIdleConn(error) {
	if b.conn != nil {
		b.conn.unsetReader(b)
	}
}

func (c *conn) Read(p []byte) (int, error) {
	if b := c.reader.Load(); b != nil && c.isEmpty() {
		c.unsetReader(b) // once per read
		if err := b.beforeWait(); err != nil {
			return 0, err
		}
	}
	return c.TCPConn.Read(p)
}

// unsetReader stops notifications of a body.
func (c *conn) unsetReader(b *body) { c.reader.CompareAndSwap(b, nil) }
