// Package wire contains the common parts of HTTP providers: requests, response
// bodies, server-sent events, and kinds of failures.
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
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

// Timeouts of upstream requests; 0 means none. The configuration has the
// defaults.
type Timeouts struct {
	Connect   time.Duration // for the connection and for the TLS handshake, each
	FirstByte time.Duration // until the headers of the response
	Idle      time.Duration // between two reads of a stream or a body
}

const (
	// maxIdlePerHost is how many concurrent requests to a provider can reuse their
	// connections: an HTTP/1 connection carries one at a time.
	maxIdlePerHost = 512
	// idleConnTimeout is shorter than that of common servers and load balancers,
	// most of which close after 60 s or more.
	idleConnTimeout = 50 * time.Second
	// pingInterval finds dead HTTP/2 connections. One connection serves all
	// requests to a host, so all of them would time out.
	pingInterval = 15 * time.Second
	// maxRedirects is enough for a server that adds or drops a slash.
	maxRedirects = 3
	// maxResends limits how often a body is sent again: for redirects, and when
	// net/http repeats an unprocessed request, which it does without a limit.
	maxResends = 2 * maxRedirects
	// maxHeaders limits the headers of a response; real ones have a few kilobytes.
	maxHeaders = 1 << 20
	// connBuffer holds the headers and the body of a short request or response. Thousands of streams may be open.
	connBuffer = 2 << 10
	// errorTimeout limits the wait for the body of an error whose status is known.
	errorTimeout = 5 * time.Second
	// maxErrorBody limits that body; real ones are below a kilobyte.
	maxErrorBody = 64 << 10
)

// Client sends requests to providers. One client serves all of them.
type Client struct {
	http      *http.Client
	firstByte *timeoutError
	idle      *timeoutError

	credential providers.Credential // may be nil
}

// NewClient returns a client with its own pool of connections. The operator
// chooses the providers, so private addresses and a proxy are allowed.
func NewClient(t Timeouts) *Client {
	return &Client{
		firstByte: &timeoutError{"no response", t.FirstByte},
		idle:      idleError(t.Idle),
		http: &http.Client{ //budget:own the body of each response is read with its budget
			CheckRedirect: stayOnHost,
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DialContext:            dial(&net.Dialer{Timeout: t.Connect}),
				TLSHandshakeTimeout:    t.Connect,
				ForceAttemptHTTP2:      true, // a DialContext turns it off otherwise
				HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: pingInterval},
				MaxIdleConnsPerHost:    maxIdlePerHost,
				IdleConnTimeout:        idleConnTimeout,
				MaxResponseHeaderBytes: maxHeaders,
				WriteBufferSize:        connBuffer,
				ReadBufferSize:         connBuffer,
				DisableCompression:     true, // it would hold back a stream's events
			},
		},
	}
}

// WithCredential returns a client with the same connections that authenticates its requests with the
// credential, or doesn't authenticate them if it is nil.
func (c *Client) WithCredential(credential providers.Credential) *Client {
	authenticated := *c
	authenticated.credential = credential
	return &authenticated
}

// Secrets returns those of the credential.
func (c *Client) Secrets() []string {
	if c.credential == nil {
		return nil
	}
	return c.credential.Secrets()
}

// stayOnHost follows redirects that repeat the request at the same server.
// Others would lose the body or send the key to another server.
func stayOnHost(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Explain decodes the body of an error and returns its message. It sets the failure's Param, and
// its Kind and RetryAfter if the body is more precise than the status, and its Message if the client's differs from
// the log's. The caller removes secrets.
type Explain func(f *providers.Failure, body []byte) (message string)

// Call is a request to a provider.
type Call struct {
	Method  string
	URL     string
	Header  http.Header
	Body    []byte
	Explain Explain // may be nil

	redact []string // more secrets that the response may repeat
}

// Post sends JSON and returns the response if its status is 2xx. The caller closes its body. Other
// errors are a *providers.Failure, or context.Canceled if ctx was canceled. explain may be nil.
func (c *Client) Post(ctx context.Context, url string, header http.Header, body []byte, explain Explain) (*http.Response, error) {
	return c.Do(ctx, Call{Method: http.MethodPost, URL: url, Header: header, Body: body, Explain: explain})
}

// Do sends a request and returns the same as Post. The body is JSON unless the
// header says otherwise.
func (c *Client) Do(ctx context.Context, call Call) (*http.Response, error) {
	resp, err := c.send(ctx, call)
	if err != nil {
		return nil, err
	}
	return call.checkStatus(resp)
}

func (call Call) checkStatus(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	b := resp.Body.(*body)
	defer b.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the raw connection, and a context doesn't end a read of
		// it.
		return nil, &providers.Failure{Kind: providers.KindProtocol, Status: resp.StatusCode, Err: safehttp.ErrUpgraded}
	}
	return nil, call.statusFailure(resp, b)
}

// maxRenewals limits how often a request is sent again with another key or token.
const maxRenewals = 3

// send sends a request and returns the response with any status. Its body is a *body. If the provider
// rejects the credential and there is another one, the request is sent again.
func (c *Client) send(ctx context.Context, call Call) (*http.Response, error) {
	renewer, _ := c.credential.(providers.Renewer)
	for renewals := 0; ; renewals++ {
		resp, err := c.sendOnce(ctx, call)
		if err != nil || renewer == nil || renewals == maxRenewals || providers.TransportOf(ctx) != nil {
			return resp, err
		}
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		default:
			return resp, nil
		}
		b := resp.Body.(*body)
		if !renewer.Renew(b.request, resp.StatusCode) {
			return resp, nil
		}
		_, _ = b.readWithin(errorTimeout, maxErrorBody) // so that the connection can be reused
		_ = b.Close()
	}
}

func (c *Client) sendOnce(ctx context.Context, call Call) (*http.Response, error) {
	b := &body{ctx: ctx, idle: c.idle}
	b.callCtx, b.cancel = context.WithCancelCause(ctx)
	sent := &payload{data: call.Body}
	req, err := call.request(httptrace.WithClientTrace(b.callCtx, &httptrace.ClientTrace{GotConn: b.gotConn, PutIdleConn: b.putIdleConn, WroteRequest: sent.wrote}), sent)
	if err != nil {
		b.cancel(nil)
		// The error quotes the URL, which may contain a password.
		return nil, &providers.Failure{Kind: providers.KindConnect, Err: errors.New("the provider's URL is invalid")}
	}
	b.startTimer(c.firstByte)
	if err := c.authenticate(req, call.Body); err != nil {
		b.stopTimer()
		defer b.cancel(nil)
		return nil, failure(ctx, b.callCtx, providers.KindAuth, err)
	}
	b.request = req
	resp, err := c.clientFor(ctx).Do(req)
	b.stopTimer()
	if err != nil {
		defer b.cancel(nil)
		return nil, callFailure(ctx, b.callCtx, err)
	}
	if resp.ProtoMajor != 1 || resp.Body == http.NoBody { // other requests read from it
		b.conn = nil
	}
	b.source, resp.Body = resp.Body, b
	if resp.StatusCode/100 == 2 { // otherwise it may be sent again
		sent.release()
	}
	return resp, nil
}

// authenticate adds the credential, unless the request isn't sent: its batch is authenticated instead.
func (c *Client) authenticate(req *http.Request, body []byte) error {
	if c.credential == nil || providers.TransportOf(req.Context()) != nil {
		return nil
	}
	return c.credential.Authenticate(req, body)
}

// clientFor returns the HTTP client, or one with the transport of the context.
func (c *Client) clientFor(ctx context.Context) *http.Client {
	if t := providers.TransportOf(ctx); t != nil {
		return &http.Client{CheckRedirect: stayOnHost, Transport: t} //budget:own it sends nothing
	}
	return c.http
}

func (call Call) request(ctx context.Context, sent *payload) (*http.Request, error) {
	var body io.Reader
	if call.Body != nil {
		sent.reader.Reset(call.Body)
		body = &sent.reader
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, call.URL, body)
	if err != nil {
		return nil, err
	}
	if len(call.Body) > 0 {
		req.GetBody = sent.again
	}
	if call.Header != nil {
		req.Header = call.Header.Clone()
	}
	if call.Body != nil {
		setDefault(req.Header, "Content-Type", "application/json")
	}
	setDefault(req.Header, "User-Agent", "Turnpike")
	return req, nil
}

// payload is the body of a request. net/http keeps the request until the response is read, and a
// stream may take long.
type payload struct {
	data    []byte
	reader  bytes.Reader // of the first attempt
	resent  int
	written atomic.Bool
}

// again returns the body for another attempt.
func (p *payload) again() (io.ReadCloser, error) {
	if p.resent == maxResends {
		return nil, errResent
	}
	p.resent++
	return io.NopCloser(bytes.NewReader(p.data)), nil
}

// wrote is called when nothing reads the body of an attempt any more.
func (p *payload) wrote(httptrace.WroteRequestInfo) { p.written.Store(true) }

// release frees the bytes if they were sent. A provider may respond before it has read all of them,
// and with several attempts it isn't known which one was written.
func (p *payload) release() {
	if p.written.Load() && p.resent == 0 {
		p.data = nil
		p.reader.Reset(nil)
	}
}

var errResent = fmt.Errorf("the provider returned the request unprocessed more than %d times", maxResends)

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" {
		h.Set(name, value)
	}
}

func (call Call) statusFailure(resp *http.Response, b *body) error {
	text, err := b.readWithin(errorTimeout, maxErrorBody)
	if errors.Is(err, context.Canceled) {
		return err
	}
	f := &providers.Failure{Kind: KindOf(resp.StatusCode), Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, time.Now())}
	message := ""
	if call.Explain != nil {
		message = call.Explain(f, text)
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		message = "redirects to " + to.Host
	}
	redact := slices.Concat(secrets(b.request.Header), secrets(call.Header), call.redact)
	f.Param = Loggable(f.Param, redact...)
	f.Message = clientMessage(f, cmp.Or(f.Message, message), redact)
	f.Err = errors.New(Loggable(cmp.Or(message, string(text), "no message"), redact...))
	return f
}

func callFailure(ctx, callCtx context.Context, err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) { // drop the URL, which may contain a password
		err = withURL.Err
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

// notHTTP reports whether the response is invalid. The provider was reached, and
// may have processed the request. net/http has no types for these errors, and
// HTTP/2 has PROTOCOL_ERROR for all of them.
func notHTTP(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"malformed", "response headers exceeded", "Content-Length", "transfer encoding", "trailer key", "PROTOCOL_ERROR"},
		func(phrase string) bool { return strings.Contains(text, phrase) })
}

// failure returns a failure of a kind, unless ctx was canceled or a timeout expired.
func failure(ctx, callCtx context.Context, kind providers.Kind, err error) error {
	var timeout *timeoutError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return &providers.Failure{Kind: providers.KindTimeout, Err: ctx.Err()}
	case errors.As(context.Cause(callCtx), &timeout):
		return &providers.Failure{Kind: providers.KindTimeout, Err: timeout}
	}
	var known *providers.Failure
	if errors.As(err, &known) {
		return known
	}
	return &providers.Failure{Kind: kind, Err: err}
}

// timeoutError is the cause of a context that a timeout canceled.
type timeoutError struct {
	what  string
	after time.Duration
}

func idleError(after time.Duration) *timeoutError {
	return &timeoutError{"no more data of the response", after}
}

func (e *timeoutError) Error() string { return fmt.Sprintf("%s within %s", e.what, e.after) }

// Download fetches a file and returns the same as Post. It follows redirects to other servers,
// where providers store files, but doesn't send them the header, which contains the key.
func (c *Client) Download(ctx context.Context, address string, header http.Header, explain Explain) (*http.Response, error) {
	at, err := url.Parse(address)
	if err != nil || !isWeb(at) {
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the file's address isn't an http or https URL")}
	}
	call := Call{Method: http.MethodGet, Header: header, Explain: explain, redact: c.Secrets()}
	sent := header
	for hops := 0; ; hops++ {
		resp, err := c.send(ctx, Call{Method: http.MethodGet, URL: at.String(), Header: sent})
		if err != nil {
			return nil, err
		}
		to, err := resp.Location()
		if resp.StatusCode/100 != 3 || err != nil || hops == maxRedirects || !isWeb(to) || at.Scheme == "https" && to.Scheme != "https" {
			return call.checkStatus(resp)
		}
		_ = resp.Body.Close()
		if to.Scheme != at.Scheme || to.Host != at.Host {
			sent, c = nil, c.WithCredential(nil)
		}
		at = to
	}
}

func isWeb(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
