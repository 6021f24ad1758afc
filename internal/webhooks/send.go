package webhooks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/safehttp"
	"turnpike/webhook"
)

const (
	readBody  = 64 << 10 // bytes read of a response, so that its connection can be reused
	keepBody  = 16 << 10 // bytes of the body that the attempt records
	keepHead  = 16 << 10 // bytes of the headers that the attempt records
	idleConns = 90 * time.Second
)

// Message is a signed delivery.
type Message struct {
	DeliveryID string
	Attempt    int64
	URL        string
	Header     http.Header
	Body       []byte
	Timeout    time.Duration // for the status line and headers
}

// Outcome is the result of sending a message.
type Outcome struct {
	Status  int // 0 if there was no response
	Header  http.Header
	Body    []byte
	Timings safehttp.Timings
	// Class and Error are why there was no response; see safehttp.Class.
	Class string
	Error string
	// NotConnected means that no tunnel client is connected. It isn't counted as
	// an attempt.
	NotConnected bool
	// LocalErr is an error of this server, which isn't counted as an attempt either.
	LocalErr error
}

// Sender sends messages to one kind of endpoint.
type Sender interface {
	Send(ctx context.Context, e *Endpoint, m *Message) Outcome
}

// attempt signs and sends a delivery. It returns nil if no tunnel client is connected.
func (s *Service) attempt(ctx context.Context, t *target, j *job) (*result, error) {
	body := []byte(j.body)
	if len(body) == 0 {
		if err := db.Scan(s.DB.QueryRow(ctx, "SELECT body FROM events WHERE id = $1", j.eventID), &body); err != nil {
			return nil, err
		}
	}
	body, err := s.linked(t, j, body)
	if err != nil {
		return nil, err
	}
	started := s.Now()
	h := make(http.Header, 8+len(t.headers))
	if err := webhook.Sign(h, j.id, started, body, t.secrets(started)...); err != nil {
		return nil, err
	}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", s.agent)
	recorded := h
	if len(t.headers) > 0 {
		recorded = h.Clone()
		for name, value := range t.headers { // none of them is one of Turnpike's
			h.Set(name, value)
			recorded.Set(name, hiddenValue)
		}
	}
	begun := time.Now() // s.Now may be adjusted meanwhile
	out := s.senders[t.Kind].Send(ctx, t.Endpoint, &Message{DeliveryID: j.id, Attempt: j.attempts + 1, URL: t.URL, Header: h, Body: body, Timeout: s.Timeout})
	if out.LocalErr != nil || out.NotConnected {
		return nil, out.LocalErr
	}
	return s.resultOf(&exchange{t, j, recorded, out, started, time.Since(begun)}), nil
}

// linkLife is how long a link in a delivery is valid.
const linkLife = 48 * time.Hour

// linked returns the body with links to its files. The server's address in them and the time from
// which their validity counts are stored, so that every attempt of every node sends the same bytes.
func (s *Service) linked(t *target, j *job, body []byte) ([]byte, error) {
	if s.Link == nil || !j.typ.HasFiles() {
		return body, nil
	}
	expires, base := time.UnixMicro(j.linksAt).Add(linkLife), cmp.Or(j.base, s.LinkBase)
	return events.Link(j.typ, body, func(sha256, name string) (string, int64) {
		return s.Link(base, t.Tenant, sha256, name, expires), expires.Unix()
	})
}

// exchange is a request to an endpoint and its outcome.
type exchange struct {
	target  *target
	job     *job
	sent    http.Header
	out     Outcome
	started time.Time
	took    time.Duration
}

// resultOf returns the attempt's record and the delivery's next state.
func (s *Service) resultOf(x *exchange) *result {
	e, j, out := x.target.Endpoint, x.job, &x.out
	a := &Attempt{ID: ids.New(ids.Attempt), DeliveryID: j.id, Number: j.attempts + 1, StartedAt: x.started, Duration: x.took,
		DNS: out.Timings.DNS, Connect: out.Timings.Connect, TLS: out.Timings.TLS, FirstByte: out.Timings.FirstByte, Address: out.Timings.Address,
		URL: e.URL, RequestHeaders: headerJSON(x.sent), ErrorClass: out.Class, Error: x.target.hidden(out.Error)}
	if out.Status != 0 {
		a.Status = int64(out.Status)
		a.ResponseHeaders = headerJSON(x.target.hideIn(out.Header))
		body := x.target.hidden(db.Storable(string(out.Body)))
		a.ResponseBody = strings.ToValidUTF8(body[:min(len(body), keepBody)], "")
		switch {
		case out.Status >= 300 && out.Status < 400:
			a.ErrorClass, a.Error = "redirect", "the endpoint returned a redirect, which is not followed; set its url to the target"
		case out.Status < 200 || out.Status > 299:
			a.ErrorClass, a.Error = "status", fmt.Sprintf("the endpoint returned %s instead of a 2xx status", strings.TrimSpace(fmt.Sprintf("%03d %s", out.Status, http.StatusText(out.Status))))
		}
	}
	r := &result{attempt: a, job: j, endpoint: e, slow: slowClass(a.ErrorClass) || x.took > s.Timeout/2}
	r.plan(*s.schedule.Load(), x.started.Add(x.took))
	return r
}

// slowClass reports whether a failure slows down its lane to one delivery at a
// time: timeouts, and endpoints that can't be reached.
func slowClass(class string) bool {
	switch class {
	case "", "status", "redirect", "refused_address":
		return false
	}
	return true
}

// headerJSON returns a header as JSON. Fields past keepHead bytes are left out.
func headerJSON(h http.Header) json.RawMessage {
	out := append(make([]byte, 0, 640), '{')
	names := slices.AppendSeq(make([]string, 0, 16), maps.Keys(h))
	slices.Sort(names)
	for _, name := range names {
		if len(h[name]) == 0 {
			continue
		}
		value := db.Storable(h[name][0])
		if len(h[name]) > 1 {
			value = db.Storable(strings.Join(h[name], ", "))
		}
		if len(out)+len(name)+len(value) > keepHead {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, db.Storable(name)) // valid UTF-8 always can be
		out = append(out, ':')
		out, _ = jsontext.AppendQuote(out, value)
	}
	return append(out, '}')
}

// httpSender posts to the endpoint's URL. It uses the guarded client's transport:
// http.Client would add redirects and cookies.
type httpSender struct{ transport http.RoundTripper }

func newHTTPSender(g *safehttp.Guard, perEndpoint int) *httpSender {
	return &httpSender{g.Client(safehttp.ClientOptions{MaxIdlePerHost: perEndpoint, IdleTimeout: idleConns, MaxResponseHeaderBytes: readBody}).Transport}
}

func (s *httpSender) Send(ctx context.Context, _ *Endpoint, m *Message) (out Outcome) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	ctx, trace := safehttp.WithTrace(ctx)
	defer func() { out.Timings = trace.Timings() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return Outcome{Class: "other", Error: "the url is invalid"}
	}
	req.Header = m.Header
	// This header isn't sent. It lets the transport retry if a kept connection was
	// closed; receivers recognize a delivery by its ID.
	req.Header["X-Idempotency-Key"] = nil
	resp, err := s.transport.RoundTrip(req)
	if safehttp.Exhausted(err) {
		return Outcome{LocalErr: fmt.Errorf("out of file descriptors, %s: %w", safehttp.MoreDescriptors, err)}
	}
	if err != nil {
		return Outcome{Class: safehttp.Class(err), Error: safehttp.Explain(err)}
	}
	// Closing an unread body closes the connection.
	defer resp.Body.Close()
	out = Outcome{Status: resp.StatusCode, Header: resp.Header}
	// The status is known; the body is only for the record, and may fail.
	out.Body, err = io.ReadAll(io.LimitReader(resp.Body, keepBody))
	if err == nil && len(out.Body) == keepBody {
		_, _ = io.CopyN(io.Discard, resp.Body, readBody-keepBody)
	}
	return out
}
