package wire

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// direct makes calls over plain HTTP/1.1 on the goroutine that asks.
//
// net/http has two goroutines for each connection, and hands every call over to
// them and back. Each time a thread has to be woken: a seventh of what this
// server adds to a call. Here nobody is woken. The protocol stays net/http's:
// it writes the requests and reads the answers.
//
// A call is made directly if it needs no goroutine beside its own: unencrypted,
// as to models on the same machine or network, by no proxy, and with a body
// that the receiver's window holds, so that it is sent whole even to a server
// that answers without reading it. All others go to net/http as they are.
type direct struct {
	others *http.Transport
	idle   idlePool
}

const (
	// maxDirectBody is half of the window that common systems grant to a new
	// connection.
	maxDirectBody = 32 << 10
	// maxHeaders bounds the headers of an answer; real ones have a few kilobytes.
	maxHeaders = 1 << 20
)

var errHeaders = fmt.Errorf("malformed answer: its headers have more than %d bytes", maxHeaders)

// RoundTrip makes one call.
func (t *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.takes(req) {
		return t.others.RoundTrip(req)
	}
	ctx := req.Context()
	if ctx.Err() != nil { // nobody asks any more
		closeBody(req)
		return nil, ctx.Err()
	}
	c := t.idle.take(req.URL.Host)
	used := c != nil
	if !used {
		var err error
		if c, err = t.connect(ctx, req.URL); err != nil {
			closeBody(req)
			return nil, err
		}
	}
	body := &directBody{conn: c, host: req.URL.Host, pool: &t.idle}
	body.stop = context.AfterFunc(ctx, c.hangUp)
	resp, err := c.exchange(req)
	if err != nil {
		body.end(false)
		if again := repeated(req); used && !c.heard && again != nil {
			return t.others.RoundTrip(again)
		}
		return nil, err
	}
	body.from, body.last = resp.Body, resp.Close || resp.StatusCode == http.StatusSwitchingProtocols
	if resp.Body == http.NoBody {
		body.end(true)
	}
	resp.Body = body
	return resp, nil
}

// takes leaves to net/http, too, what it refuses or knows better: it has the
// words for it.
func (t *direct) takes(req *http.Request) bool {
	if !canTellClosed || req.URL.Scheme != "http" || !httpguts.ValidHostHeader(req.URL.Host) || req.URL.Host == "" {
		return false
	}
	if req.ContentLength < 0 || req.ContentLength > maxDirectBody || req.ContentLength == 0 && req.Body != nil {
		return false
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				return false
			}
		}
	}
	via, err := t.others.Proxy(req)
	return via == nil && err == nil
}

// repeated is the request once more, or nil if it must not be made twice. A
// server may close a connection in the moment in which we use it again.
func repeated(req *http.Request) *http.Request {
	if req.Method != http.MethodGet && req.Header.Get("Idempotency-Key") == "" {
		return nil
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		var err error
		if again.Body, err = req.GetBody(); err != nil {
			return nil
		}
	}
	return again
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

func (t *direct) connect(ctx context.Context, to *url.URL) (*directConn, error) {
	conn, err := t.others.DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), "80")))
	if err != nil {
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			<-ctx.Done() // the dialler may notice a moment earlier whose time is over
		}
		return nil, err
	}
	c := &directConn{Conn: conn, out: bufio.NewWriter(conn)}
	c.in = bufio.NewReader(c)
	return c, nil
}

// directConn is a connection that one call at a time is made on.
type directConn struct {
	net.Conn
	in        *bufio.Reader
	out       *bufio.Writer
	heard     bool // something of the answer has come
	bounded   bool // while headers are read
	room      int  // for what is left of them
	idleSince time.Time
}

func (c *directConn) hangUp() { _ = c.Close() }

// exchange sends a request and reads the answer up to its body.
func (c *directConn) exchange(req *http.Request) (*http.Response, error) {
	c.heard, c.bounded, c.room = false, true, maxHeaders
	unsent := c.send(req)
	// Who did not take the whole request may have said why. Bodies are in
	// memory: if one was not sent, the connection is over, and so is the wait.
	resp, err := c.answer(req)
	if err != nil {
		return nil, cmp.Or(unsent, err)
	}
	resp.Close = resp.Close || unsent != nil
	c.bounded = false
	return resp, nil
}

func (c *directConn) send(req *http.Request) error {
	if err := req.Write(c.out); err != nil {
		return err
	}
	return c.out.Flush()
}

// answer is the last one: others, such as early hints and signs of life, may
// come before it. All of their headers have the same bound.
func (c *directConn) answer(req *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(c.in, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode/100 != 1 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
	}
}

// Read is what the buffer is filled by.
func (c *directConn) Read(p []byte) (int, error) {
	if c.bounded && c.room <= 0 {
		return 0, errHeaders
	}
	n, err := c.Conn.Read(p)
	c.room -= n
	c.heard = c.heard || n > 0
	return n, err
}

// directBody is an answer's body. Its end makes the connection free for the
// next call.
type directBody struct {
	from  io.Reader
	conn  *directConn
	host  string
	pool  *idlePool
	stop  func() bool // the watch for whoever gives the call up
	last  bool        // the connection ends with this answer
	ended atomic.Bool
}

func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// Close of a body that was not read to its end hangs up: that is how a provider
// hears that nobody wants the rest.
func (b *directBody) Close() error {
	b.end(false)
	return nil
}

// end keeps the connection for another call only if this one has left nothing
// behind: neither a byte nor a watch that may still close it.
func (b *directBody) end(whole bool) {
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	watched := b.stop()
	if !watched || !whole || b.last || b.conn.in.Buffered() > 0 {
		b.conn.hangUp()
		return
	}
	b.pool.put(b.host, b.conn)
}
