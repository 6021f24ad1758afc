package chaos

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// request is a request to send. The mark is sent as User-Agent, which the log keeps. So
// the tests find a request there even if its response was lost, and notice duplicates.
type request struct {
	mark     string
	method   string
	path     string
	key      string
	body     string
	streamed bool
	timeout  time.Duration // of the whole exchange; default: callTimeout
	once     string        // the Idempotency-Key
	expect   bool          // send the body only after 100 Continue, which shows that the server is handling the request
}

// outcome is the client's view of a request.
type outcome struct {
	request
	begun, ended time.Time
	seen         int // bytes of the response
	status       int // 0 if no status line arrived
	id           string
	body         []byte
	whole        bool // the response arrived completely
	err          error
}

func (o *outcome) String() string {
	return fmt.Sprintf("%s %s (%s): %d bytes, status %d, id %q, %v, %v", o.method, o.path, o.mark, o.seen, o.status, o.id, o.ended.Sub(o.begun), o.err)
}

// code returns the error code of the response, or "".
func (o *outcome) code() string {
	var v struct{ Error struct{ Code string } }
	_ = json.Unmarshal(o.body, &v) // other responses have no code
	return v.Error.Code
}

// callTimeout ends a hanging request. Every test expects far less.
const callTimeout = 20 * time.Second

// client is one keep-alive connection. The standard library's client retries some
// requests automatically and doesn't report how much of a response it read before the
// connection broke.
type client struct {
	address string
	conn    net.Conn
	from    *bufio.Reader
	seen    int
}

func newClient(url string) *client { return &client{address: strings.TrimPrefix(url, "http://")} }

func (c *client) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	c.seen += n
	return n, err
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// do sends the request and reads as much of the response as arrives. It passes every
// piece to watch, if set. A 100 Continue is an empty piece.
func (c *client) do(r request, watch func(piece []byte)) *outcome {
	o := &outcome{request: r, begun: time.Now()}
	o.err = c.exchange(o, watch)
	o.ended = time.Now()
	if o.err != nil {
		c.close()
	}
	return o
}

func (c *client) exchange(o *outcome, watch func([]byte)) error {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.address, 5*time.Second)
		if err != nil {
			return err
		}
		c.conn, c.from = conn, bufio.NewReader(c)
	}
	if err := c.conn.SetDeadline(time.Now().Add(cmp.Or(o.timeout, callTimeout))); err != nil {
		return err
	}
	c.seen = 0
	defer func() { o.seen = c.seen }()
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", o.method, o.path, c.address, o.mark)
	if o.key != "" {
		fmt.Fprintf(&head, "Authorization: Bearer %s\r\n", o.key)
	}
	if o.once != "" {
		fmt.Fprintf(&head, "Idempotency-Key: %s\r\n", o.once)
	}
	if o.request.body != "" {
		fmt.Fprintf(&head, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(o.request.body))
	}
	if o.expect {
		head.WriteString("Expect: 100-continue\r\n")
	}
	head.WriteString("\r\n")
	if !o.expect {
		head.WriteString(o.request.body)
	}
	if _, err := c.conn.Write(head.Bytes()); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.from, &http.Request{Method: o.method})
	if err == nil && res.StatusCode == http.StatusContinue {
		if watch != nil {
			watch(nil)
		}
		if _, err := io.WriteString(c.conn, o.request.body); err != nil {
			return err
		}
		res, err = http.ReadResponse(c.from, &http.Request{Method: o.method})
	}
	if err != nil {
		return err
	}
	o.status, o.id = res.StatusCode, res.Header.Get("X-Request-Id")
	piece := make([]byte, 4096)
	for {
		n, err := res.Body.Read(piece)
		o.body = append(o.body, piece[:n]...)
		if n > 0 && watch != nil {
			watch(piece[:n])
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	o.whole = true
	if res.Close {
		c.close()
	}
	return nil
}

// call sends one request on a new connection.
func call(url string, r request) *outcome {
	c := newClient(url)
	defer c.close()
	return c.do(r, nil)
}

// get requests a path that needs no key.
func get(url, path string) *outcome {
	return call(url, request{mark: "probe", method: "GET", path: path})
}

func chat(mark, key, content string, stream bool) request {
	body := fmt.Sprintf(`{"model":"gpt-4o-mini","stream":%t,"messages":[{"role":"user","content":%q}]}`, stream, content)
	return request{mark: mark, method: "POST", path: "/v1/chat/completions", key: key, body: body, streamed: stream}
}

// serves fails the test unless the server responds to a model request.
func serves(t *testing.T, url, key string) {
	t.Helper()
	if o := call(url, chat("serves", key, "Are you there?", false)); o.status != http.StatusOK {
		t.Fatalf("got %v, want a model response\n%s", o, o.body)
	}
}
