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
	// idleLocal is shorter than the five seconds after which Node.js closes an
	// idle connection: a request that meets the closing would fail.
	idleLocal   = 2 * time.Second
	readBody    = 64 << 10 // so that the connection can be used again
	maxPatience = time.Minute
)

// ParseTarget reads the local address that deliveries go to: a URL, or
// host:port/path, or a port alone.
func ParseTarget(s string) (*url.URL, error) {
	bad := fmt.Errorf("%q is no address to forward to; give one such as localhost:3000/hooks or https://localhost:3000/hooks", s)
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

// newLocalTransport calls the local address. It adds no header of its own, so
// that a delivery looks as it does in production.
func newLocalTransport(skipVerify bool) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: skipVerify}, // asked for by name, for a local certificate
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxInFlight,
		IdleConnTimeout:        idleLocal,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// forward makes the local call. The connection to the server may be lost
// meanwhile: what the local service answers counts.
func (c *Client) forward(d *delivery) *result {
	r := &result{ID: d.ID, Attempt: d.Attempt}
	patience := time.Duration(d.TimeoutMS) * time.Millisecond
	if patience <= 0 || patience > maxPatience {
		patience = maxPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, trace := safehttp.WithTrace(ctx)
	defer func() { r.Timings = timingsOf(trace.Timings()) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.o.Target.String(), bytes.NewReader(d.Body))
	if err != nil {
		r.Class, r.Error = "other", "the local address cannot be called"
		return r
	}
	req.Header = headerOf(d.Header)
	if req.Header.Get("User-Agent") == "" {
		req.Header["User-Agent"] = []string{""} // or net/http would name itself
	}
	// Not sent, this lets the transport send again when a connection that it
	// kept turns out to be closed, as after a restart of the local service.
	req.Header["X-Idempotency-Key"] = nil
	res, err := safehttp.WithoutUpgrades(c.local).RoundTrip(req)
	if err != nil {
		r.Class, r.Error = safehttp.Class(err), explain(err, c.o.Target, patience)
		return r
	}
	defer res.Body.Close()
	r.Status, r.Header = res.StatusCode, linesOf(res.Header, keepHeader)
	// The answer is known; its body is for the record and may fail.
	r.Body, err = io.ReadAll(io.LimitReader(res.Body, keepBody))
	if err == nil && len(r.Body) == keepBody {
		_, _ = io.CopyN(io.Discard, res.Body, readBody-keepBody)
	}
	return r
}

// explain says why the local call failed, and what to do about it.
func explain(err error, to *url.URL, patience time.Duration) string {
	why := safehttp.Explain(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("connection refused: is your server running on %s?", to.Host)
	case safehttp.Class(err) == "timeout":
		return fmt.Sprintf("no answer from %s within %g s", to.Host, patience.Seconds())
	case safehttp.Class(err) == "tls" && to.Scheme == "https":
		return why + "; --skip-verify accepts a local certificate"
	}
	return why
}

// eventType reads the type out of a delivery's body.
func eventType(body []byte) string {
	var event struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &event) != nil {
		return ""
	}
	return event.Type
}
