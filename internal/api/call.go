package api

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Call is one request on its way through the edge.
type Call struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	id    string
	start time.Time
	ip    netip.Addr

	Principal *access.Principal
	Project   string

	newProject bool          // it does not exist yet
	record     *audit.Record // nil before a valid key was seen
	scope      access.Scope  // that the route needs
	success    []headerLine  // of the answer, if it does not become an error on its way
	bodyTook   time.Duration // to arrive
	body       []byte        // as it came, until it was looked through for keys
	room       int64         // that the body has of the room for large ones
	roomOf     string        // whose it is
	wrote      bool          // the answer has begun
	later      []func()      // what need not keep the answer
	status     int
	code       string
	cause      error
	// causeLogged is for a failure that is in the log already, and would be
	// there once for each request.
	causeLogged bool
}

// A Call goes through the mux as the http.ResponseWriter, so that a handler
// finds it again without a context to carry it.

// Header, Write, WriteHeader and Unwrap are those of the connection.
func (c *Call) Header() http.Header         { return c.w.Header() }
func (c *Call) Write(b []byte) (int, error) { return c.w.Write(b) }
func (c *Call) WriteHeader(status int)      { c.w.WriteHeader(status) }
func (c *Call) Unwrap() http.ResponseWriter { return c.w }
func callOf(w http.ResponseWriter) *Call    { return w.(*Call) }

// Context ends when the client leaves.
func (c *Call) Context() context.Context { return c.r.Context() }

// Caller is who manages keys, for the admin log and its bounds.
func (c *Call) Caller() access.Caller { return access.Caller{Principal: c.Principal, Actor: c.Actor()} }

// Actor is who acts, for the admin log.
func (c *Call) Actor() audit.Actor {
	return audit.Actor{Name: c.Principal.ID(), IP: c.ip.String(), RequestID: c.id}
}

// masked makes a stranger's text fit to be stored and shown: no secrets of
// ours, valid UTF-8 without NUL (PostgreSQL takes no other), bounded.
func masked(s string, limit int) string {
	s = keyring.Mask(s)
	s = s[:min(len(s), limit)]
	if !plainText(s) {
		s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	}
	return s
}

// plainText reports whether every store can hold the text.
func plainText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

const maxLoggedText = 512

func (c *Call) entry() audit.Entry {
	p := c.Principal
	e := audit.Entry{RequestID: c.id, WorkspaceID: p.WorkspaceID, Environment: string(p.Environment), Project: p.Project, KeyID: p.KeyID, KeyHint: p.KeyHint,
		IP: c.ip.String(), Method: masked(c.r.Method, maxLoggedText), Path: masked(c.r.URL.Path, maxLoggedText),
		UserAgent: masked(c.r.UserAgent(), maxLoggedText), CreatedAt: c.start}
	if p.Token != nil {
		e.TokenID, e.TokenMetadata = p.Token.ID, p.Token.Metadata
	}
	return e
}

// settle completes the log entry.
func (c *Call) settle(status int, code string) {
	c.status, c.code = status, code
	if c.record != nil {
		c.record.Settle(c.ending(status, code))
	}
}

func (c *Call) ending(status int, code string) func(*audit.Entry) {
	return func(e *audit.Entry) {
		e.Status, e.ErrorCode = status, code
		e.Latency = c.s.Now().Sub(c.start)
	}
}

// send answers. No byte leaves before the request is in the log.
func (c *Call) send(status int, contentType string, body []byte) {
	c.settle(status, "")
	c.transmit(status, contentType, body)
}

func (c *Call) transmit(status int, contentType string, body []byte) {
	if err := c.logged(); err != nil {
		c.unlogged(err)
		return
	}
	c.write(status, contentType, body)
}

// storagePatience is how long a request waits for the store, which takes
// milliseconds, before it says that the store cannot be reached.
const storagePatience = 4 * time.Second

// impatient bounds what follows by storagePatience.
func (c *Call) impatient() (done func()) {
	ctx, cancel := context.WithTimeout(c.r.Context(), storagePatience)
	whole := c.r
	c.r = c.r.WithContext(ctx)
	return func() {
		cancel()
		c.r = whole
	}
}

// logged waits until the request is in the log.
func (c *Call) logged() error {
	if c.record == nil {
		return nil
	}
	patience := storagePatience
	if c.code == string(fault.StorageUnavailable) {
		patience = storagePatience / 10 // it was waited for already
	}
	return c.record.Durable(patience)
}

// unlogged is the answer when the log cannot be written.
func (c *Call) unlogged(err error) {
	c.cause = err
	f := storageFault(err)
	c.status, c.code = fault.FamilyOf(f.Code).Status, string(f.Code)
	c.record.Refuse(c.ending(c.status, c.code)) // if it is written after all, it says what was answered
	c.write(c.status, jsonType, c.render(f))
}

const jsonType = "application/json"

func (c *Call) write(status int, contentType string, body []byte) {
	c.wrote = true
	h := c.w.Header()
	if status < http.StatusBadRequest {
		c.setSuccess(h)
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.expectPiece()
	c.w.WriteHeader(status)
	_ = c.writePieces(body) // a client that left is no fault of ours
}

// afterwards sends the answer on its way, if net/http still has it, and does
// what the caller need not wait for. By HTTP/2 an answer ends with its handler,
// so that would only be one frame more.
func (c *Call) afterwards() {
	if len(c.later) == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil { // the answer is as it should be
			c.logPanic(v)
		}
	}()
	if c.r.ProtoMajor == 1 {
		_ = http.NewResponseController(c.w).Flush()
	}
	for _, do := range c.later {
		do()
	}
}

// logPanic logs a panic with its stack.
func (c *Call) logPanic(v any) {
	slog.Error("panic", "request_id", c.id, "method", masked(c.r.Method, maxLoggedText), "path", masked(c.r.URL.Path, maxLoggedText), "panic", v, "stack", string(debug.Stack()))
}

type headerLine struct{ name, value string }

func (c *Call) setSuccess(h http.Header) {
	for _, line := range c.success {
		h.Set(line.name, line.value)
	}
}

// sendJSON answers with a resource.
func (c *Call) sendJSON(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.send(http.StatusOK, jsonType, body)
	return nil
}

// fail answers with an error.
func (c *Call) fail(err error) {
	f := c.faultOf(err)
	status := fault.FamilyOf(f.Code).Status
	c.throttled(err)
	c.settle(status, string(f.Code))
	c.transmit(status, jsonType, c.render(f))
}

// faultOf finds the answer for an error: its own, or the one for its class.
func (c *Call) faultOf(err error) *fault.Error {
	c.cause = err
	if f, ok := fault.As(err); ok {
		return f
	}
	if errors.Is(err, db.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return storageFault(err)
	}
	if errors.Is(err, context.Canceled) {
		if f, ok := fault.As(context.Cause(c.Context())); ok { // we ourselves ended it
			return f
		}
		return fault.New(fault.RequestTimeout, "the client left before the answer").Because(err)
	}
	return fault.New(fault.Internal, "something went wrong on our side; the request id helps to find out what").Because(err)
}

func storageFault(err error) *fault.Error {
	return fault.New(fault.StorageUnavailable, "the server cannot reach its storage at the moment; try again shortly").Because(err)
}

type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Code      fault.Code `json:"code"`
	Type      string     `json:"type"`
	Message   string     `json:"message"`
	Param     *string    `json:"param"`
	RequestID string     `json:"request_id"`
	Details   any        `json:"details,omitzero"`
}

// render writes the error's body and sets its headers.
func (c *Call) render(f *fault.Error) []byte {
	family := fault.FamilyOf(f.Code)
	h := c.w.Header()
	if family.Final {
		h.Set("X-Should-Retry", "false")
	}
	if f.Code == fault.Authentication {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
		h.Set("Retry-After-Ms", strconv.FormatInt((f.RetryAfter+time.Millisecond-1).Milliseconds(), 10))
	}
	return c.errorJSON(f)
}

func (c *Call) errorJSON(f *fault.Error) []byte {
	o := errorObject{Code: f.Code, Type: fault.FamilyOf(f.Code).Type, Message: keyring.Mask(f.Message), RequestID: c.id, Details: f.Details}
	if f.Param != "" {
		param := keyring.Mask(f.Param)
		o.Param = &param
	}
	body, err := json.Marshal(errorBody{o})
	if err != nil { // details that cannot be written, or text that is no UTF-8
		o.Details, o.Param, o.Message = nil, nil, "the request cannot be handled, and the reason cannot be shown"
		body, _ = json.Marshal(errorBody{o})
	}
	return body
}

// logLine writes the one line per request. The request log in the store is the
// record; this is for whoever watches the process, so what went well is quiet.
func (c *Call) logLine() {
	level := slog.LevelDebug
	switch {
	case c.causeLogged:
	case c.status == http.StatusInternalServerError:
		level = slog.LevelError // a fault of ours
	case c.status > http.StatusInternalServerError:
		level = slog.LevelWarn // somebody else's: the store's, a provider's
	}
	ctx := c.Context()
	if !slog.Default().Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", c.id), slog.String("method", masked(c.r.Method, maxLoggedText)),
		slog.String("path", masked(c.r.URL.Path, maxLoggedText)), slog.Int("status", c.status),
		slog.Int64("latency_ms", c.s.Now().Sub(c.start).Milliseconds()), slog.String("ip", c.ip.String())}
	if c.Principal != nil {
		attrs = append(attrs, slog.String("key", c.Principal.KeyID))
	}
	if c.code != "" {
		attrs = append(attrs, slog.String("code", c.code))
	}
	if c.cause != nil && c.status >= 500 {
		attrs = append(attrs, slog.String("error", masked(c.cause.Error(), 4*maxLoggedText)))
	}
	slog.LogAttrs(ctx, level, "request", attrs...)
}
