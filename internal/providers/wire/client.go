// Package wire is what providers behind HTTP share: the call itself, the body
// of its answer, server-sent events, and the names of what can go wrong.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

// Timeouts of upstream calls. A zero means none: the defaults are the
// configuration's.
type Timeouts struct {
	Connect   time.Duration // for the connection and for the TLS handshake, each
	FirstByte time.Duration // until the answer's headers, which of a plain one come when it is ready
	Idle      time.Duration // between two reads of a stream or a body
}

const (
	// maxIdlePerHost is how many calls to one provider may come and go at
	// once without dialling anew: an HTTP/1 connection carries one at a time.
	maxIdlePerHost = 512
	// idleConnTimeout is shorter than what common servers and load balancers
	// grant, most of which close after 60 s or more.
	idleConnTimeout = 50 * time.Second
	// pingEvery finds HTTP/2 connections that died silently. Without it they
	// swallow call after call, as one connection serves all of a host.
	pingEvery = 15 * time.Second
	// maxRedirects is enough for a server that adds or drops a slash.
	maxRedirects = 3
	// maxRepeats is how often a body is sent again: for redirects, and when
	// net/http repeats a call that a server has not processed. By itself it
	// does so without end.
	maxRepeats = 2 * maxRedirects
	// maxHeaders bounds the headers of an answer; real ones have a few kilobytes.
	maxHeaders = 1 << 20
	// errorPatience bounds the wait for the text of an error whose status is known.
	errorPatience = 5 * time.Second
	// maxErrorBody bounds that text; real ones are below a kilobyte.
	maxErrorBody = 64 << 10
)

// Client calls providers. One client serves all of them.
type Client struct {
	http     *http.Client
	noAnswer *tooSlow
	noMore   *tooSlow
}

// NewClient makes a client with its own pool of connections. Providers are the
// operator's choice and not a customer's, so private addresses and the
// environment's proxy are allowed.
func NewClient(t Timeouts) *Client {
	return &Client{
		noAnswer: &tooSlow{"no answer", t.FirstByte},
		noMore:   noMoreWithin(t.Idle),
		http: &http.Client{
			CheckRedirect: stayOnHost,
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DialContext:            (&net.Dialer{Timeout: t.Connect}).DialContext,
				TLSHandshakeTimeout:    t.Connect,
				ForceAttemptHTTP2:      true, // a DialContext turns it off otherwise
				HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingEvery, PingTimeout: pingEvery},
				MaxIdleConnsPerHost:    maxIdlePerHost,
				IdleConnTimeout:        idleConnTimeout,
				MaxResponseHeaderBytes: maxHeaders,
				DisableCompression:     true, // it would hold back a stream's events
			},
		},
	}
}

// stayOnHost follows a redirect that repeats the call at the same server. Any
// other would lose the body or hand the key to somebody else.
func stayOnHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Explain reads the error body of a provider's format: the request's field
// that it names, and its message. What it returns is cleaned of secrets here.
type Explain func(status int, body []byte) (param, message string)

// Call is one request to a provider.
type Call struct {
	Method  string
	URL     string
	Header  http.Header
	Body    [][]byte // sent one after the other, and not copied
	Explain Explain  // may be nil
}

// Post sends JSON and returns the response if its status is 2xx; the caller
// closes its body. Anything else is a *providers.Failure, or context.Canceled
// if the caller's own context was cancelled. explain may be nil.
func (c *Client) Post(ctx context.Context, url string, header http.Header, body []byte, explain Explain) (*http.Response, error) {
	return c.Do(ctx, Call{Method: http.MethodPost, URL: url, Header: header, Body: [][]byte{body}, Explain: explain})
}

// Do makes a call, with the results of Post. A body is JSON unless the header
// says otherwise.
func (c *Client) Do(ctx context.Context, call Call) (*http.Response, error) {
	resp, err := c.send(ctx, call)
	if err != nil {
		return nil, err
	}
	return call.succeeded(resp)
}

// succeeded passes a response whose status is 2xx, and closes any other.
func (call Call) succeeded(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	b := resp.Body.(*body)
	defer b.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the bare connection: no context ends a read of that.
		return nil, &providers.Failure{Kind: providers.KindProtocol, Status: resp.StatusCode, Err: safehttp.ErrUpgraded}
	}
	return nil, statusFailure(resp, b, call.Header, call.Explain)
}

// send makes a call and returns the response whatever its status. Its body is
// a *body.
func (c *Client) send(ctx context.Context, call Call) (*http.Response, error) {
	b := &body{ctx: ctx, noMore: c.noMore}
	b.callCtx, b.cancel = context.WithCancelCause(ctx)
	req, err := call.request(b.callCtx)
	if err != nil {
		b.cancel(nil)
		// The error quotes the URL, which may have a password in it.
		return nil, &providers.Failure{Kind: providers.KindConnect, Err: errors.New("the provider's address is not a URL")}
	}
	b.wait(c.noAnswer)
	resp, err := c.http.Do(req)
	b.rest()
	if err != nil {
		defer b.cancel(nil)
		return nil, callFailure(ctx, b.callCtx, err)
	}
	b.from, resp.Body = resp.Body, b
	return resp, nil
}

func (call Call) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, call.Method, call.URL, nil)
	if err != nil {
		return nil, err
	}
	for _, piece := range call.Body {
		req.ContentLength += int64(len(piece))
	}
	if req.ContentLength > 0 {
		req.Body = io.NopCloser(readerOf(call.Body))
		req.GetBody = call.repeats()
	}
	req.Header = call.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if call.Body != nil {
		setDefault(req.Header, "Content-Type", "application/json")
	}
	setDefault(req.Header, "User-Agent", "Turnpike")
	return req, nil
}

// repeats gives the body once more, a few times: for a redirect, and for
// net/http, which makes a call again that was surely not processed.
func (call Call) repeats() func() (io.ReadCloser, error) {
	left := maxRepeats
	return func() (io.ReadCloser, error) {
		if left == 0 {
			return nil, errRepeated
		}
		left--
		return io.NopCloser(readerOf(call.Body)), nil
	}
}

var errRepeated = fmt.Errorf("the provider has given the call back more than %d times", maxRepeats)

// readerOf reads the pieces one after the other. One alone net/http knows to be
// in memory, and sends it together with the headers: a provider has the whole
// call at once. io.MultiReader would copy the others through a buffer of its
// own, a new one for each call.
func readerOf(pieces [][]byte) io.Reader {
	if len(pieces) == 1 {
		return bytes.NewReader(pieces[0])
	}
	buffers := net.Buffers(slices.Clone(pieces)) // reading takes from it
	return &buffers
}

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" {
		h.Set(name, value)
	}
}

// statusFailure reads the body of an answer that is an error.
func statusFailure(resp *http.Response, b *body, header http.Header, explain Explain) error {
	text, err := b.readFor(errorPatience, maxErrorBody)
	if errors.Is(err, context.Canceled) {
		return err
	}
	f := &providers.Failure{Kind: KindOf(resp.StatusCode), Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, time.Now())}
	param, message := "", ""
	if explain != nil {
		param, message = explain(resp.StatusCode, text)
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		message = "redirects to " + to.Host
	}
	hidden := secrets(header)
	f.Param = Loggable(param, hidden...)
	f.Err = errors.New(Loggable(cmp.Or(message, string(text), "no text"), hidden...))
	return f
}

// callFailure names why no answer came.
func callFailure(ctx, callCtx context.Context, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) { // it quotes the URL
		err = outer.Err
	}
	kind := providers.KindConnect
	switch {
	case safehttp.Exhausted(err):
		kind = providers.KindLocal
	case notHTTP(err):
		kind = providers.KindProtocol
	}
	return failure(ctx, callCtx, kind, err)
}

// notHTTP reports that an answer came and is not valid: the provider was
// reached, and may have done what was asked. net/http has no types for its own
// words; PROTOCOL_ERROR is HTTP/2's for all of it.
func notHTTP(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"malformed", "response headers exceeded", "Content-Length", "transfer encoding", "trailer key", "PROTOCOL_ERROR"},
		func(words string) bool { return strings.Contains(text, words) })
}

// failure is of the kind given, unless the caller has gone or time has run out.
func failure(ctx, callCtx context.Context, kind providers.Kind, err error) error {
	var slow *tooSlow
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return &providers.Failure{Kind: providers.KindTimeout, Err: ctx.Err()}
	case errors.As(context.Cause(callCtx), &slow):
		return &providers.Failure{Kind: providers.KindTimeout, Err: slow}
	}
	return &providers.Failure{Kind: kind, Err: err}
}

// tooSlow is why we gave a call up.
type tooSlow struct {
	what  string
	after time.Duration
}

func noMoreWithin(after time.Duration) *tooSlow { return &tooSlow{"no more of the answer", after} }

func (e *tooSlow) Error() string { return fmt.Sprintf("%s within %s", e.what, e.after) }
