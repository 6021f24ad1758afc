// Package tunnel takes deliveries to a developer's machine: the client holds a
// WebSocket to the server, the server signs and sends each delivery over it,
// and the client forwards it to a local address and reports the answer.
//
//	hub.go     the node's connections; a webhooks.Sender
//	conn.go    one of them
//	client.go  the other end, for the command line
//	forward.go the call to the local address
//	memory.go  what was answered, so that nothing is forwarded twice
//	frame.go   what goes over the wire
//
// Nothing is lost when a connection is: a delivery without a reported answer
// was not attempted, and is sent again over the next connection. The client
// remembers what it answered and says it again instead of calling twice.
package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/safehttp"
	"turnpike/internal/webhooks"
)

const (
	// maxDelivery is a body of 1 MiB in base64, and its headers.
	maxDelivery = 2 << 20
	// maxResult is keepBody in base64 and keepHeader, whose bytes may each
	// become six in JSON.
	maxResult  = 256 << 10
	keepBody   = 16 << 10 // of an answer: so much is in an attempt's record
	keepHeader = 16 << 10
	keepError  = 500

	// maxInFlight is how many deliveries a connection has under way at once.
	maxInFlight = 32

	// A peer that is gone is noticed within the two together, which is before
	// the server gives up on an answer (answerSlack).
	pingEvery    = 5 * time.Second
	pingPatience = 8 * time.Second

	writePatience = 30 * time.Second
	helloPatience = 15 * time.Second
)

// Why the server closes a connection. After any other code, or none, the
// client comes back.
const (
	closeReplaced websocket.StatusCode = 4000 // another client has the tunnel now
	closeRefused  websocket.StatusCode = 4001 // the key may not listen any more
)

// frame is a JSON text message. Type says which of the others it has; a type
// that nobody knows is left alone, so that versions can differ.
type frame struct {
	Type     string    `json:"type"`
	Hello    *Hello    `json:"hello,omitempty"`
	Delivery *delivery `json:"delivery,omitempty"`
	Result   *result   `json:"result,omitempty"`
}

const (
	typeHello    = "hello"
	typeDelivery = "delivery"
	typeResult   = "result"
)

// Hello is the first thing that a server says.
type Hello struct {
	Endpoint string   `json:"endpoint"`
	Events   []string `json:"events"`
	// Secret of a tunnel that was just made; empty for one that was resumed
	// and for a mirror, which has the secret of its origin.
	Secret  string `json:"secret,omitempty"`
	Mirrors string `json:"mirrors,omitempty"`
}

// delivery goes from the server to the client. The body is base64 on the wire,
// so that its bytes arrive as they were signed.
type delivery struct {
	ID        string       `json:"id"`
	Attempt   int64        `json:"attempt"`
	Header    []headerLine `json:"header"`
	Body      []byte       `json:"body"`
	TimeoutMS int64        `json:"timeout_ms"`
}

// headerLine is a name and a value.
type headerLine [2]string

// result goes back: an answer, or why there was none.
type result struct {
	ID      string       `json:"id"`
	Attempt int64        `json:"attempt"`
	Status  int          `json:"status,omitempty"`
	Header  []headerLine `json:"header,omitempty"`
	Body    []byte       `json:"body,omitempty"`
	Class   string       `json:"class,omitempty"` // see safehttp.Class
	Error   string       `json:"error,omitempty"`
	Timings timings      `json:"timings"`
}

type timings struct {
	DNS       int64  `json:"dns_us,omitempty"`
	Connect   int64  `json:"connect_us,omitempty"`
	TLS       int64  `json:"tls_us,omitempty"`
	FirstByte int64  `json:"first_byte_us,omitempty"`
	Address   string `json:"address,omitempty"`
}

// linesOf lists a header by name, as HTTP/1.1 puts it on the wire.
func linesOf(h http.Header, limit int) []headerLine {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	lines := make([]headerLine, 0, len(names))
	for _, name := range names {
		for _, value := range h[name] {
			if limit -= len(name) + len(value); limit < 0 {
				return lines
			}
			lines = append(lines, headerLine{name, value})
		}
	}
	return lines
}

// headerOf is the way back.
func headerOf(lines []headerLine) http.Header {
	h := make(http.Header, len(lines))
	for _, l := range lines {
		h[l[0]] = append(h[l[0]], l[1])
	}
	return h
}

// send writes a frame.
func send(ctx context.Context, ws *websocket.Conn, f frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("tunnel frame: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, b)
}

// receive reads a frame.
func receive(ctx context.Context, ws *websocket.Conn) (f frame, err error) {
	kind, b, err := ws.Read(ctx)
	if err != nil {
		return f, err
	}
	if kind != websocket.MessageText {
		return f, fmt.Errorf("tunnel frame: not text")
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("tunnel frame: %w", err)
	}
	return f, nil
}

// keepAlive returns when the peer does not answer any more, or ctx ends. It
// needs somebody to read from the connection.
func keepAlive(ctx context.Context, ws *websocket.Conn) error {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		ping, cancel := context.WithTimeout(ctx, pingPatience)
		err := ws.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

// classes are the words that an attempt's record has for failures.
var classes = []string{"dns", "connect", "tls", "timeout", "reset", "protocol", "cancelled", "other"}

// outcome is what the server makes of a result. It comes from a stranger's
// program, so whatever it says becomes something that the record can hold.
func (r *result) outcome() webhooks.Outcome {
	if r.Status >= 100 && r.Status <= 999 {
		return webhooks.Outcome{Status: r.Status, Header: headerOf(r.Header), Body: r.Body[:min(len(r.Body), keepBody)], Timings: r.Timings.durations()}
	}
	out := webhooks.Outcome{Class: r.Class, Error: plain(r.Error, keepError), Timings: r.Timings.durations()}
	if !slices.Contains(classes, out.Class) {
		out.Class = "other"
	}
	if out.Error == "" {
		out.Error = "the tunnel's client could not forward it and did not say why"
	}
	return out
}

func (t timings) durations() safehttp.Timings {
	us := func(n int64) time.Duration {
		return time.Duration(min(max(n, 0), time.Hour.Microseconds())) * time.Microsecond
	}
	return safehttp.Timings{DNS: us(t.DNS), Connect: us(t.Connect), TLS: us(t.TLS), FirstByte: us(t.FirstByte), Address: plain(t.Address, 100)}
}

func timingsOf(t safehttp.Timings) timings {
	return timings{t.DNS.Microseconds(), t.Connect.Microseconds(), t.TLS.Microseconds(), t.FirstByte.Microseconds(), t.Address}
}

// plain is text that both databases take, and no more than limit bytes of it.
func plain(s string, limit int) string {
	s = s[:min(len(s), limit)]
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
