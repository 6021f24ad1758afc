// Package tunnel sends deliveries to a developer's machine. The client holds a
// WebSocket to the server. The server signs and sends each delivery over it, and the
// client forwards it to a local address and reports the response.
//
//	hub.go     the connections of a node; a webhooks.Sender
//	conn.go    one connection, on the server
//	client.go  the client, for the command line
//	forward.go the request to the local address
//	replies.go responses that the client remembers, so that it forwards nothing twice
//	frame.go   the wire format
//
// A delivery without a reported response was not attempted, and is sent again over
// the next connection. The client then reports the response that it remembers.
package tunnel

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/db"
	"turnpike/internal/safehttp"
	"turnpike/internal/webhooks"
)

const (
	// maxDelivery is the size of a frame with a body of 1 MiB in base64 and headers.
	maxDelivery = 2 << 20
	// maxResult is the size of a frame with keepBody in base64 and keepHeader, whose
	// bytes may each take six in JSON.
	maxResult  = 256 << 10
	keepBody   = 16 << 10 // bytes of a response that an attempt records
	keepHeader = 16 << 10
	keepError  = 500

	// maxInFlight limits the concurrent deliveries of a connection.
	maxInFlight = 32

	// A dead peer is detected within the sum of both, before the server stops
	// waiting for a result (resultSlack).
	pingInterval = 5 * time.Second
	pingTimeout  = 8 * time.Second

	writeTimeout = 30 * time.Second
	helloTimeout = 15 * time.Second
)

// Close codes after which the client doesn't reconnect.
const (
	closeReplaced websocket.StatusCode = 4000 // another client has the tunnel now
	closeRefused  websocket.StatusCode = 4001 // the key lost its permission
)

// frame is a JSON text message. Type names the field that is set. Unknown types are
// ignored, so that versions can differ.
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

// Hello is the first frame from the server.
type Hello struct {
	Endpoint string   `json:"endpoint"`
	Events   []string `json:"events"`
	// Secret is that of a new tunnel; empty for a resumed one and for a mirror, which
	// uses the secret of its origin.
	Secret  string `json:"secret,omitempty"`
	Mirrors string `json:"mirrors,omitempty"`
}

// delivery is sent to the client. The body is in base64, so that its bytes arrive as
// they were signed.
type delivery struct {
	ID        string       `json:"id"`
	Attempt   int64        `json:"attempt"`
	Header    []headerLine `json:"header"`
	Body      []byte       `json:"body"`
	TimeoutMS int64        `json:"timeout_ms"`
}

// headerLine is a name and a value.
type headerLine [2]string

// result is sent back: a response, or why there was none.
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

// linesOf lists header fields by name, up to limit bytes.
func linesOf(h http.Header, limit int) []headerLine {
	lines := make([]headerLine, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			if limit -= len(name) + len(value); limit < 0 {
				return lines
			}
			lines = append(lines, headerLine{name, value})
		}
	}
	return lines
}

// headerOf is the inverse of linesOf.
func headerOf(lines []headerLine) http.Header {
	h := make(http.Header, len(lines))
	for _, l := range lines {
		h[l[0]] = append(h[l[0]], l[1])
	}
	return h
}

func send(ctx context.Context, ws *websocket.Conn, f frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("tunnel frame: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, b)
}

func receive(ctx context.Context, ws *websocket.Conn) (f frame, err error) {
	kind, b, err := ws.Read(ctx)
	if err != nil {
		return f, err
	}
	if kind != websocket.MessageText {
		return f, fmt.Errorf("tunnel frame: not a text message")
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("tunnel frame: %w", err)
	}
	return f, nil
}

// keepAlive pings the peer, and returns when it doesn't respond or ctx ends. Another
// goroutine must read from the connection.
func keepAlive(ctx context.Context, ws *websocket.Conn) error {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err := ws.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

// classes are the error classes of attempts.
var classes = []string{"dns", "connect", "tls", "timeout", "reset", "protocol", "cancelled", "other"}

// outcome converts a result, which comes from a program that isn't trusted, into
// values that an attempt can record.
func (r *result) outcome() webhooks.Outcome {
	if r.Status >= 100 && r.Status <= 999 {
		return webhooks.Outcome{Status: r.Status, Header: headerOf(r.Header), Body: r.Body[:min(len(r.Body), keepBody)], Timings: r.Timings.durations()}
	}
	out := webhooks.Outcome{Class: r.Class, Error: plain(r.Error, keepError), Timings: r.Timings.durations()}
	if !slices.Contains(classes, out.Class) {
		out.Class = "other"
	}
	if out.Error == "" {
		out.Error = "the tunnel client failed to forward it and gave no reason"
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

// plain returns at most limit bytes of a string, as UTF-8 without NUL for both databases.
func plain(s string, limit int) string {
	return db.Storable(s[:min(len(s), limit)])
}
