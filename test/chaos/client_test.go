package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// request is a call to make. The mark is sent as User-Agent, which the log
// keeps, so that a call can be found there even when its answer was lost on
// the way, and counted when it is there twice.
type request struct {
	mark     string
	method   string
	path     string
	key      string
	body     string
	streamed bool
	expect   bool // send the body only when the server asks for it, which shows that it works on the call
}

// outcome is what the client saw of a call.
type outcome struct {
	request
	begun, ended time.Time
	seen         int // bytes of the answer
	status       int // 0 when the status line did not arrive
	id           string
	body         []byte
	whole        bool // the answer arrived to its end
	err          error
}

func (o *outcome) String() string {
	return fmt.Sprintf("%s %s (%s): %d bytes, status %d, id %q, %v, %v", o.method, o.path, o.mark, o.seen, o.status, o.id, o.ended.Sub(o.begun), o.err)
}

// code is the answer's error code, or empty.
func (o *outcome) code() string {
	var v struct{ Error struct{ Code string } }
	_ = json.Unmarshal(o.body, &v) // what is no error has no code
	return v.Error.Code
}

// callTimeout ends a call that hangs; every test asks for far less.
const callTimeout = 20 * time.Second

// client is one keep-alive connection. It is not the standard library's client,
// because that sends some requests again by itself, and does not tell how much
// of an answer it saw before the connection broke.
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

// do makes the call and reads the answer as far as it comes. Every piece that
// arrives is shown to watch, if there is one; the wish for the body is an empty
// piece.
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
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	c.seen = 0
	defer func() { o.seen = c.seen }()
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", o.method, o.path, c.address, o.mark)
	if o.key != "" {
		fmt.Fprintf(&head, "Authorization: Bearer %s\r\n", o.key)
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

// call makes one call on a connection of its own.
func call(url string, r request) *outcome {
	c := newClient(url)
	defer c.close()
	return c.do(r, nil)
}

// get asks for a path that needs no key.
func get(url, path string) *outcome {
	return call(url, request{mark: "probe", method: "GET", path: path})
}

// chat is a chat completion, streamed or not.
func chat(mark, key, content string, stream bool) request {
	body := fmt.Sprintf(`{"model":"gpt-4o-mini","stream":%t,"messages":[{"role":"user","content":%q}]}`, stream, content)
	return request{mark: mark, method: "POST", path: "/v1/chat/completions", key: key, body: body, streamed: stream}
}

// serves fails the test unless the server answers a model call.
func serves(t *testing.T, url, key string) {
	t.Helper()
	if o := call(url, chat("serves", key, "Are you there?", false)); o.status != http.StatusOK {
		t.Fatalf("the server does not serve: %v\n%s", o, o.body)
	}
}
