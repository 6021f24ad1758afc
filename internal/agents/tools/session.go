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

// sessionBytes limits what an MCP server sends in one session. The SDK reads responses into memory.
const sessionBytes = 8 << 20

// codeRejected is the SDK's error code for requests that its transport could not
// send. It looks like a server's error.
const codeRejected = -32005

var errTooMuch = errors.New("the server sends too much")

// connect opens a session. It returns its transport even if it fails. progress gets the server's progress
// notifications and may be nil.
func (x *Executor) connect(ctx context.Context, spec Spec, headers map[string]string, progress func(*mcp.ProgressNotificationParams)) (*mcp.ClientSession, *sessionTransport, error) {
	w := &sessionTransport{base: x.pooled, headers: headers, agent: x.agent}
	w.left.Store(sessionBytes)
	client := mcp.NewClient(&mcp.Implementation{Name: "turnpike", Version: x.version}, &mcp.ClientOptions{
		// Servers are offered nothing: no roots, no sampling, no elicitation.
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if progress != nil {
				progress(r.Params)
			}
		},
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: spec.ServerURL,
		// Redirects are not followed.
		HTTPClient:           &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, //budget:own its base is bounded
		MaxRetries:           2,
		MaxEventSize:         sessionBytes,
		DisableStandaloneSSE: true,
	}, nil)
	return session, w, err
}

// endSession closes a session in the background. That takes up to five seconds.
func (x *Executor) endSession(session *mcp.ClientSession) {
	requests := x.requests.hold() // closing sends a request, too
	go func() {
		defer requests.Release()
		_ = session.Close()
	}()
}

// sessionTransport is the transport of one session. It adds the headers, limits the
// size of responses, and remembers the result of the last request.
type sessionTransport struct {
	base    http.RoundTripper
	headers map[string]string
	agent   string
	left    atomic.Int64 // bytes that the server may still send
	calling atomic.Bool  // the tool call has started
	sent    atomic.Bool  // its request may have been sent

	responses responseLog // since the tool call began

	mu     sync.Mutex
	failed error // of the last request, if it got no response
	status int   // of its response otherwise
	media  string
}

func (w *sessionTransport) RoundTrip(req *http.Request) (*http.Response, error) {
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
		w.recordResult(resp, err)
	}
	if err != nil {
		return nil, err
	}
	body := &limitedBody{ReadCloser: resp.Body, transport: w}
	if w.calling.Load() {
		body.tee = w.responses.newBody()
	}
	resp.Body = body
	return resp, nil
}

func (w *sessionTransport) recordResult(resp *http.Response, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed, w.status, w.media = err, 0, ""
	if err == nil {
		w.status = resp.StatusCode
		w.media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	}
}

func (w *sessionTransport) overflowed() bool { return w.left.Load() < 0 }

// responseProblem describes what is wrong with the last response. It is empty if
// there was no response or nothing is wrong.
func (w *sessionTransport) responseProblem(err error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rpc *jsonrpc.Error
	switch {
	case w.overflowed():
		return fmt.Sprintf("it sent more than %d MiB", sessionBytes>>20)
	case w.failed != nil || w.status == 0:
		return ""
	case errors.As(err, &rpc) && rpc.Code != codeRejected:
		return fmt.Sprintf("it reported error %d: %s", rpc.Code, excerpt(rpc.Message, w.headers, maxPage))
	case w.status >= 300 && w.status < 400:
		return "it returned " + statusText(w.status) + ", a redirect, which is not followed"
	case w.status == http.StatusUnauthorized || w.status == http.StatusForbidden:
		return "it returned " + statusText(w.status) + "; check the headers"
	case w.status < 200 || w.status > 299:
		return "it returned " + statusText(w.status)
	case w.media != "application/json" && w.media != "text/event-stream" && w.status != http.StatusAccepted:
		return fmt.Sprintf("it returned %s, which is not MCP; check the URL", cmp.Or(excerpt(w.media, w.headers, 100), "no content type"))
	}
	return ""
}

// unauthorized reports whether the server rejected the credentials.
func (w *sessionTransport) unauthorized() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status == http.StatusUnauthorized
}

// permanent reports whether a retry would fail in the same way: the problem is the
// URL, the headers or the server's list of tools.
func (w *sessionTransport) permanent() bool {
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

// explain describes why there is no session or no list of tools. It leaves out
// the SDK's message, which can contain the URL and the server's response.
func (w *sessionTransport) explain(ctx context.Context, err error) string {
	if problem := w.responseProblem(err); problem != "" {
		return problem
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "it did not respond in time"
	case ctx.Err() != nil:
		return "the request was canceled"
	case w.failed != nil:
		return safehttp.Explain(w.failed)
	}
	return "its response is not valid MCP or was cut off"
}

// limitedBody is a response body that counts toward the session's limit.
type limitedBody struct {
	io.ReadCloser
	transport *sessionTransport
	tee       *bytes.Buffer // may be nil
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.transport.overflowed() {
		return 0, errTooMuch
	}
	n, err := b.ReadCloser.Read(p)
	if b.transport.left.Add(-int64(n)) < 0 {
		return 0, errTooMuch
	}
	if b.tee != nil {
		b.transport.responses.add(b.tee, p[:n])
	}
	return n, err
}
