package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"turnpike/internal/safehttp"
)

const (
	// idleTimeout is shorter than the five seconds after which Node.js closes an idle
	// connection: a request at that moment would fail.
	idleTimeout = 2 * time.Second
	readBody    = 64 << 10 // so that the connection can be reused
	maxTimeout  = time.Minute
)

// ParseTarget parses the local address: a URL, host:port/path, or a port.
func ParseTarget(s string) (*url.URL, error) {
	bad := fmt.Errorf("%q is not a valid address to forward to; use one such as localhost:3000/hooks or https://localhost:3000/hooks", s)
	full := strings.TrimSpace(s)
	if !strings.Contains(full, "://") {
		host, rest, _ := strings.Cut(full, "/")
		if _, err := strconv.ParseUint(host, 10, 16); err == nil {
			host = "localhost:" + host
		}
		full = "http://" + host + "/" + rest
	}
	u, err := url.Parse(full)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, bad
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// newLocalTransport returns the transport for the local address. It adds no headers,
// so that a delivery looks as in production.
func newLocalTransport(skipVerify bool) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: skipVerify}, // --skip-verify, for a local certificate
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// forward sends a delivery to the local address. It doesn't stop if the connection to
// the server is lost: the local response counts.
func (c *Client) forward(d *delivery) *result {
	r := &result{ID: d.ID, Attempt: d.Attempt}
	timeout := time.Duration(d.TimeoutMS) * time.Millisecond
	if timeout <= 0 || timeout > maxTimeout {
		timeout = maxTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ctx, trace := safehttp.WithTrace(ctx)
	defer func() { r.Timings = timingsOf(trace.Timings()) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.Target.String(), bytes.NewReader(d.Body))
	if err != nil {
		r.Class, r.Error = "other", "the local address is invalid"
		return r
	}
	req.Header = headerOf(d.Header)
	if req.Header.Get("User-Agent") == "" {
		req.Header["User-Agent"] = []string{""} // or net/http would add its own
	}
	// This header isn't sent. It lets the transport retry if a kept connection was
	// closed, as after a restart of the local service.
	req.Header["X-Idempotency-Key"] = nil
	res, err := safehttp.Bounded(c.local).RoundTrip(req)
	if err != nil {
		r.Class, r.Error = safehttp.Class(err), explain(err, c.o.Target, timeout)
		return r
	}
	defer res.Body.Close()
	r.Status, r.Header = res.StatusCode, linesOf(res.Header, keepHeader)
	// The status is known; the body is only for the record, and may fail.
	r.Body, err = io.ReadAll(io.LimitReader(res.Body, keepBody))
	if err == nil && len(r.Body) == keepBody {
		_, _ = io.CopyN(io.Discard, res.Body, readBody-keepBody)
	}
	return r
}

// explain returns why the local request failed, and what to do about it.
func explain(err error, to *url.URL, timeout time.Duration) string {
	why := safehttp.Explain(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("connection refused: is your server running on %s?", to.Host)
	case safehttp.Class(err) == "timeout":
		return fmt.Sprintf("no response from %s within %g s", to.Host, timeout.Seconds())
	case safehttp.Class(err) == "tls" && to.Scheme == "https":
		return why + "; --skip-verify accepts a local certificate"
	}
	return why
}

// eventType returns the event type of a delivery's body.
func eventType(body []byte) string {
	var event struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &event) != nil {
		return ""
	}
	return event.Type
}
