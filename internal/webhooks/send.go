package webhooks

import (
	"bytes"
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

	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/safehttp"
	"turnpike/webhook"
)

const (
	readBody  = 64 << 10 // of an answer, so that its connection can be used again
	keepBody  = 16 << 10 // of it in the attempt's record
	keepHead  = 16 << 10 // of the answer's headers there
	idleConns = 90 * time.Second
)

// Message is a signed delivery.
type Message struct {
	DeliveryID string
	Attempt    int64
	URL        string
	Header     http.Header
	Body       []byte
	Timeout    time.Duration // within which the status line and headers must be there
}

// Outcome is what came of sending a message.
type Outcome struct {
	Status  int // 0 for no answer
	Header  http.Header
	Body    []byte
	Timings safehttp.Timings
	// Class and Error say why there was no answer; see safehttp.Class.
	Class string
	Error string
	// Unsent means that nobody was there to send it to: that is no attempt.
	Unsent bool
	// Ours is why this server could not send it, which is none either.
	Ours error
}

// Sender carries messages to one kind of endpoint.
type Sender interface {
	Send(ctx context.Context, e *Endpoint, m *Message) Outcome
}

// attempt signs and sends a delivery. It returns nil when nothing was sent.
func (s *Service) attempt(ctx context.Context, t *target, j *job) (*result, error) {
	body := []byte(j.body)
	if len(body) == 0 {
		var text string
		if err := s.db.QueryRow(ctx, "SELECT body FROM events WHERE id = $1", j.eventID).Scan(&text); err != nil {
			return nil, err
		}
		body = []byte(text)
	}
	body, err := s.linked(t, j, body)
	if err != nil {
		return nil, err
	}
	started := s.now()
	h := make(http.Header, 8)
	if err := webhook.Sign(h, j.id, started, body, t.secrets(started)...); err != nil {
		return nil, err
	}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", s.agent)
	begun := time.Now()
	out := s.senders[t.Kind].Send(ctx, t.Endpoint, &Message{DeliveryID: j.id, Attempt: j.attempts + 1, URL: t.URL, Header: h, Body: body, Timeout: s.timeout})
	if out.Ours != nil {
		return nil, out.Ours
	}
	if out.Unsent {
		return nil, nil
	}
	took := time.Since(begun)
	return s.judge(t.Endpoint, j, h, out, started, took), nil
}

// linkLife is how long a link in a delivery can be used.
const linkLife = 48 * time.Hour

// linked is the body with the links to its files. They count from a moment
// that is stored, so that every attempt sends the same bytes.
func (s *Service) linked(t *target, j *job, body []byte) ([]byte, error) {
	if s.link == nil || !j.typ.HasFiles() {
		return body, nil
	}
	expires := time.UnixMicro(j.linksAt).Add(linkLife)
	return events.Link(j.typ, body, func(sha256, name string) (string, int64) {
		return s.link(t.WorkspaceID, string(t.Environment), sha256, name, expires), expires.Unix()
	})
}

// judge turns an outcome into an attempt and the delivery's next state.
func (s *Service) judge(e *Endpoint, j *job, sent http.Header, out Outcome, started time.Time, took time.Duration) *result {
	a := &Attempt{ID: ids.New(ids.Attempt), DeliveryID: j.id, Number: j.attempts + 1, StartedAt: started, Duration: took,
		DNS: out.Timings.DNS, Connect: out.Timings.Connect, TLS: out.Timings.TLS, FirstByte: out.Timings.FirstByte, Address: out.Timings.Address,
		URL: e.URL, RequestHeaders: headerJSON(sent), ErrorClass: out.Class, Error: out.Error}
	if out.Status != 0 {
		a.Status = int64(out.Status)
		a.ResponseHeaders = headerJSON(out.Header)
		a.ResponseBody = cut(text(string(out.Body)), keepBody)
		switch {
		case out.Status >= 300 && out.Status < 400:
			a.ErrorClass, a.Error = "redirect", "the endpoint answered with a redirect, which is not followed; set its url to where it leads"
		case out.Status < 200 || out.Status > 299:
			a.ErrorClass, a.Error = "status", "the endpoint answered with "+statusText(out.Status)+" instead of a 2xx status"
		}
	}
	r := &result{attempt: a, job: j, endpoint: e, slow: slowClass(a.ErrorClass) || took > s.timeout/2}
	r.plan(s.schedule, started.Add(took))
	return r
}

// slowClass are the failures that take time or find nobody: a lane with one
// of them works one delivery at a time.
func slowClass(class string) bool {
	switch class {
	case "", "status", "redirect", "refused_address":
		return false
	}
	return true
}

func statusText(code int) string {
	digits := []byte{byte('0' + code/100%10), byte('0' + code/10%10), byte('0' + code%10)}
	if name := http.StatusText(code); name != "" {
		return string(digits) + " " + name
	}
	return string(digits)
}

// headerJSON is a header as records show it, bounded: a field that does not
// fit any more is left out.
func headerJSON(h http.Header) json.RawMessage {
	out := append(make([]byte, 0, 640), '{')
	names := slices.AppendSeq(make([]string, 0, 16), maps.Keys(h))
	slices.Sort(names)
	for _, name := range names {
		if len(h[name]) == 0 {
			continue
		}
		value := text(h[name][0])
		if len(h[name]) > 1 {
			value = text(strings.Join(h[name], ", "))
		}
		if len(out)+len(name)+len(value) > keepHead {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, text(name)) // valid UTF-8 always can be
		out = append(out, ':')
		out, _ = jsontext.AppendQuote(out, value)
	}
	return append(out, '}')
}

// text makes what strangers sent fit to be stored: both databases take valid
// UTF-8 without NUL.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// cut shortens a text to at most n bytes: replaced, what was no text is longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// httpSender posts to the endpoint's url by the guarded client's transport: what
// http.Client adds is for redirects, which are not followed, and cookies.
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
		return Outcome{Class: "other", Error: "the url cannot be used any more"}
	}
	req.Header = m.Header
	// Not sent, this lets the client send again when a connection that it kept
	// turns out to have been closed: receivers know a delivery by its id.
	req.Header["X-Idempotency-Key"] = nil
	resp, err := s.transport.RoundTrip(req)
	if safehttp.Exhausted(err) {
		return Outcome{Ours: fmt.Errorf("this server is out of file descriptors, %s: %w", safehttp.MoreDescriptors, err)}
	}
	if err != nil {
		return Outcome{Class: safehttp.Class(err), Error: safehttp.Explain(err)}
	}
	// Closed before its end, the body takes the connection with it.
	defer resp.Body.Close()
	out = Outcome{Status: resp.StatusCode, Header: resp.Header}
	// The answer is known; its body is read for the record and may fail.
	out.Body, err = io.ReadAll(io.LimitReader(resp.Body, keepBody))
	if err == nil && len(out.Body) == keepBody {
		_, _ = io.CopyN(io.Discard, resp.Body, readBody-keepBody)
	}
	return out
}
