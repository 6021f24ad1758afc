package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/safehttp"
)

// sessionBytes is what an MCP server may send us in one session, all answers
// together. The SDK reads answers whole.
const sessionBytes = 8 << 20

// rejected is the SDK's code for requests that its transport did not bring
// through. It looks like a server's error and is none.
const rejected = -32005

var errTooMuch = errors.New("the server sends too much")

// connect opens a session. The wire tells what went over it, also when it failed.
func (x *Executor) connect(ctx context.Context, spec Spec, headers map[string]string) (*mcp.ClientSession, *wire, error) {
	w := &wire{base: x.pooled, headers: headers, agent: x.agent}
	w.left.Store(sessionBytes)
	client := mcp.NewClient(&mcp.Implementation{Name: "turnpike", Version: x.version}, &mcp.ClientOptions{
		// Nothing of ours is offered to servers: no roots, no sampling, no
		// questions. One that asks back gets no second call.
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: spec.ServerURL,
		// The wire returns redirects as they are, and so must the client.
		HTTPClient:           &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		MaxRetries:           2,
		MaxEventSize:         sessionBytes,
		DisableStandaloneSSE: true,
	}, nil)
	return session, w, err
}

// leave ends a session. The server may take its time to hear of it, five
// seconds at most, but nobody waits for that.
func (x *Executor) leave(session *mcp.ClientSession) {
	requests := x.requests.hold() // leaving sends one, too
	go func() {
		defer requests.Release()
		_ = session.Close()
	}()
}

// wire is the transport of one session: it adds the headers, bounds what comes
// back, and remembers how the last request went.
type wire struct {
	base    http.RoundTripper
	headers map[string]string
	agent   string
	left    atomic.Int64 // bytes that may still come
	calling atomic.Bool  // the tool is about to be called
	sent    atomic.Bool  // the request for that may have left
	said    said         // what came since

	mu     sync.Mutex
	failed error // of the last message, if it was not answered
	status int   // of its answer, otherwise
	media  string
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	message := req.Method == http.MethodPost
	if message && w.calling.Load() {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { w.sent.Store(true) }})
	}
	req = req.Clone(ctx)
	for name, value := range w.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", w.agent)
	resp, err := w.base.RoundTrip(req)
	if message {
		w.note(resp, err)
	}
	if err != nil {
		return nil, err
	}
	body := &bounded{ReadCloser: resp.Body, wire: w}
	if w.calling.Load() {
		body.copy = w.said.body()
	}
	resp.Body = body
	return resp, nil
}

func (w *wire) note(resp *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed, w.status, w.media = err, 0, ""
	if err == nil {
		w.status = resp.StatusCode
		w.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	}
}

// overflowed reports that the server sent more than it may.
func (w *wire) overflowed() bool { return w.left.Load() < 0 }

// answered says in words what is wrong with an answer that did come. It is
// empty when nothing came, or nothing is wrong with it.
func (w *wire) answered(err error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var said *jsonrpc.Error
	switch {
	case w.overflowed():
		return fmt.Sprintf("it sent more than %d MiB", sessionBytes>>20)
	case w.failed != nil || w.status == 0:
		return ""
	case errors.As(err, &said) && said.Code != rejected:
		return fmt.Sprintf("it reported error %d: %s", said.Code, brief(said.Message, w.headers, maxPage))
	case w.status >= 300 && w.status < 400:
		return "it answered with " + statusText(w.status) + ", a redirect, which is not followed"
	case w.status == http.StatusUnauthorized || w.status == http.StatusForbidden:
		return "it answered with " + statusText(w.status) + "; check the headers"
	case w.status < 200 || w.status > 299:
		return "it answered with " + statusText(w.status)
	case w.media != "application/json" && w.media != "text/event-stream" && w.status != http.StatusAccepted:
		return fmt.Sprintf("it answered with %s, which is not MCP; check the URL", cmp.Or(brief(w.media, w.headers, 100), "no content type"))
	}
	return ""
}

// lasting reports whether the answer would be the same another time: what is
// wrong is with the URL, the headers or the server's list.
func (w *wire) lasting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.overflowed():
		return true
	case w.failed != nil:
		return false
	case w.status == http.StatusRequestTimeout || w.status == http.StatusTooEarly || w.status == http.StatusTooManyRequests:
		return false
	}
	return w.status >= 300 && w.status < 500
}

// explain says in words why there is no session or no list. The SDK's own
// words are left out: they can hold the URL and whatever the server sent.
func (w *wire) explain(ctx context.Context, err error) string {
	if said := w.answered(err); said != "" {
		return said
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "it gave no answer in time"
	case ctx.Err() != nil:
		return "the request was cancelled"
	case w.failed != nil:
		return safehttp.Explain(w.failed)
	}
	return "its answer is not valid MCP, or broke off"
}

// bounded is an answer's body within what is left of the session.
type bounded struct {
	io.ReadCloser
	wire *wire
	copy *bytes.Buffer // nil for none
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.wire.overflowed() {
		return 0, errTooMuch
	}
	n, err := b.ReadCloser.Read(p)
	if b.wire.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	if b.copy != nil {
		b.wire.said.add(b.copy, p[:n])
	}
	return n, err
}
