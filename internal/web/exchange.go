// Package web holds what the API and the dashboard share when they serve an
// HTTP request: the request ID, the client's address, error classification, the
// access log, panic recovery, storage timeouts and static assets.
package web

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

	"turnpike/internal/clientip"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

// Exchange is one HTTP request and its response.
type Exchange struct {
	W     http.ResponseWriter
	R     *http.Request
	ID    string
	IP    netip.Addr // of the client, behind trusted proxies
	Start time.Time

	Started     bool // the response has started
	Status      int
	Code        string // of the error, or empty
	Cause       error  // for the access log
	CauseLogged bool   // the cause has its own log line, which isn't repeated for each request
}

// NewExchange gives a request its ID and finds the client's address.
func NewExchange(w http.ResponseWriter, r *http.Request, trusted []netip.Prefix, now time.Time) Exchange {
	id := ids.New(ids.Request)
	w.Header().Set("X-Request-Id", id)
	return Exchange{W: w, R: r, ID: id, IP: clientip.Of(r, trusted), Start: now}
}

// Context returns the request's context, which ends when the client disconnects.
func (e *Exchange) Context() context.Context { return e.R.Context() }

// WriteHeader starts the response.
func (e *Exchange) WriteHeader(status int) {
	e.Started, e.Status = true, status
	e.W.WriteHeader(status)
}

const (
	// StorageTimeout is how long an API request waits for the database, which
	// normally takes milliseconds, before it fails with storage_unavailable.
	StorageTimeout = 4 * time.Second
	// pageTimeout is longer, because a page runs several queries.
	pageTimeout = 2 * StorageTimeout
)

// WithStorageTimeout limits how long a handler waits for the database.
func WithStorageTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, StorageTimeout)
}

// WithPageTimeout limits how long a dashboard page waits for the database.
func WithPageTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, pageTimeout)
}

// Fault returns the error to show for err, by its own code or by its class, and
// keeps err for the access log.
func (e *Exchange) Fault(err error) *fault.Error {
	e.Cause = err
	if f, ok := fault.As(err); ok {
		return f
	}
	if errors.Is(err, db.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return StorageFault(err)
	}
	if errors.Is(err, context.Canceled) {
		if f, ok := fault.As(context.Cause(e.Context())); ok { // the server canceled it
			return f
		}
		return fault.New(fault.RequestTimeout, "The client disconnected before the response.").Because(err)
	}
	return internalFault(err)
}

// StorageFault returns the error for a database that can't be reached.
func StorageFault(err error) *fault.Error {
	return fault.New(fault.StorageUnavailable, "The server cannot reach its storage. Retry shortly.").Because(err)
}

func internalFault(err error) *fault.Error {
	return fault.New(fault.Internal, "Something went wrong on the server. Quote the request ID when you report it.").Because(err)
}

// SetRetryAfter sets the Retry-After header, in whole seconds.
func SetRetryAfter(h http.Header, wait time.Duration) {
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// HandlePanic handles the value that a deferred function got from recover: it
// logs the stack and calls fail. If the response has started, it then drops the
// connection, because the client must not mistake it for a complete response.
func (e *Exchange) HandlePanic(value any, fail func(error)) {
	if value == nil {
		return
	}
	if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(value)
	}
	e.LogPanic(value)
	started := e.Started
	fail(internalFault(nil))
	if started {
		panic(http.ErrAbortHandler)
	}
}

// LogPanic logs a panic with its stack.
func (e *Exchange) LogPanic(value any) {
	slog.Error("panic", "request_id", e.ID, "method", e.method(), "path", e.path(), "panic", value, "stack", string(debug.Stack()))
}

// Log writes the access log line. Successful requests are logged at debug level,
// because the request log in the database is the record.
func (e *Exchange) Log(message string, now time.Time, extra ...slog.Attr) {
	level := slog.LevelDebug
	switch {
	case e.CauseLogged:
	case e.Status == http.StatusInternalServerError:
		level = slog.LevelError
	case e.Status > http.StatusInternalServerError: // the database or a provider failed
		level = slog.LevelWarn
	}
	if !slog.Default().Enabled(e.Context(), level) {
		return
	}
	attrs := append([]slog.Attr{slog.String("request_id", e.ID), slog.String("method", e.method()), slog.String("path", e.path()),
		slog.Int("status", e.Status), slog.Int64("latency_ms", now.Sub(e.Start).Milliseconds()), slog.String("ip", e.IP.String())}, extra...)
	if e.Code != "" {
		attrs = append(attrs, slog.String("code", e.Code))
	}
	if e.Cause != nil && e.Status >= http.StatusInternalServerError {
		attrs = append(attrs, slog.String("error", Sanitize(e.Cause.Error(), 4*MaxLoggedText)))
	}
	slog.LogAttrs(e.Context(), level, message, attrs...)
}

func (e *Exchange) method() string { return Sanitize(e.R.Method, MaxLoggedText) }
func (e *Exchange) path() string   { return Sanitize(e.R.URL.Path, MaxLoggedText) }

// MaxLoggedText is how many bytes of a client's text are logged.
const MaxLoggedText = 512

// Sanitize makes a client's text safe to store and show: it masks secrets,
// replaces invalid UTF-8 and NUL, which PostgreSQL rejects, and cuts the text at
// limit bytes.
func Sanitize(s string, limit int) string {
	s = keyring.Mask(s)
	s = s[:min(len(s), limit)]
	if !ValidText(s) {
		s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	}
	return s
}

// ValidText reports whether both databases can store the text.
func ValidText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Map returns the result of fn for each element.
func Map[T, U any](list []T, fn func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = fn(v)
	}
	return out
}

// GroupThousands puts commas between the thousands of a number.
func GroupThousands(number string) string {
	whole, decimals, found := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		whole += "." + decimals
	}
	return whole
}

// ShowPrefix formats a range of addresses. A single address has no /32 or /128.
func ShowPrefix(n netip.Prefix) string {
	if n.IsSingleIP() {
		return n.Addr().String()
	}
	return n.String()
}

// PathID is the format of the {id} in a route's path.
type PathID struct {
	Prefix string // empty for any format
	Kind   string // of the resource, for the error
}

// Check rejects an ID of another format, which can't exist.
func (p PathID) Check(r *http.Request) error {
	if id := r.PathValue("id"); p.Prefix != "" && id != "" && !ids.Valid(p.Prefix, id) {
		return fault.NoSuch(p.Kind, Sanitize(id, 64))
	}
	return nil
}
