package web

import (
	"io"
	"net/http"
	"time"
)

const (
	// UnreadBodyTimeout is how long the server waits for a body that no handler
	// reads. net/http reads such a body itself before it sends the response, to
	// reuse the connection.
	UnreadBodyTimeout = 5 * time.Second
	// maxUnreadBody is how much of such a body is read, as in net/http.
	maxUnreadBody = 256 << 10
)

// LimitUnreadBody limits how long the body of a request can hold its
// connection. Handlers that read a body set their own deadlines. Call done when
// the handler has returned.
func LimitUnreadBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) (done func()) {
	if r.ContentLength == 0 {
		return func() {}
	}
	control := http.NewResponseController(w)
	limit := func() { _ = control.SetReadDeadline(time.Now().Add(timeout)) }
	limit()
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		// No handler reads it. A deadline that stayed would cancel a stream.
		if _, err := io.CopyN(io.Discard, r.Body, maxUnreadBody); err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			r.Body, r.ContentLength = http.NoBody, 0
			return func() {}
		}
		w.Header().Set("Connection", "close") // or net/http would wait again before it responds
	}
	return func() {
		if r.ProtoMajor == 1 { // HTTP/2 resets the stream
			limit()
		}
	}
}
