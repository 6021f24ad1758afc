package api

import (
	"bytes"
	"mime"
	"net/http"
	"strings"
	"sync"

	"turnpike/internal/fault"
)

// mcpWriter is the http.ResponseWriter of the SDK. It holds the response back until the request is in the
// log.
type mcpWriter struct {
	c *Call

	mu        sync.Mutex // the SDK writes from other goroutines
	status    int
	buf       bytes.Buffer
	streaming bool
	err       error // of the log or the client
}

// Header returns the header of the response.
func (w *mcpWriter) Header() http.Header { return w.c.W.Header() }

// WriteHeader remembers the status.
func (w *mcpWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.status = status
	}
}

// Write writes to the client if the response is streamed, and otherwise keeps the text.
func (w *mcpWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(p)
}

func (w *mcpWriter) write(p []byte) (int, error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case !w.streaming:
		return w.buf.Write(p)
	}
	if err := w.c.writeChunks(p); err != nil {
		w.err = errClientGone
		return 0, w.err
	}
	return len(p), nil
}

// FlushError sends what was streamed.
func (w *mcpWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *mcpWriter) flush() error {
	if !w.streaming || w.err != nil {
		return w.err
	}
	if err := http.NewResponseController(w.c.W).Flush(); err != nil {
		w.err = errClientGone
	}
	w.c.clearWriteDeadline()
	return w.err
}

// stream sends everything immediately from now on. The request must be in the log first.
func (w *mcpWriter) stream() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streaming || w.err != nil {
		return
	}
	if w.err = w.c.waitUntilLogged(); w.err != nil {
		return
	}
	w.streaming = true
	h := w.Header()
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer events
	h.Del("Content-Length")
	w.c.WriteHeader(http.StatusOK)
	_, _ = w.write(w.buf.Bytes())
	w.buf.Reset()
	_ = w.flush()
}

// comment sends a comment, which keeps the connection open.
func (w *mcpWriter) comment(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streaming {
		_, _ = w.write([]byte(": " + text + "\n\n"))
		_ = w.flush()
	}
}

// finish settles the log entry and sends the rest of the response.
func (w *mcpWriter) finish(f *fault.Error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.err = errClientGone }() // the response is complete
	c := w.c
	if w.err != nil && !c.Started {
		return w.err // the log can't be written
	}
	if w.streaming {
		c.settle(http.StatusOK, f)
		return nil
	}
	if err := c.Context().Err(); err != nil && w.status == 0 && w.buf.Len() == 0 {
		return err // the client left
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if w.status >= http.StatusBadRequest && media != jsonType {
		return sdkFault(w.status, w.buf.String())
	}
	c.settle(w.status, f)
	if media == "" {
		media = jsonType
	}
	c.sendLogged(w.status, media, w.buf.Bytes())
	return nil
}

// sdkFault converts an error that the SDK reports as text.
func sdkFault(status int, text string) error {
	code := fault.Internal
	switch status {
	case http.StatusBadRequest:
		code = fault.InvalidParameter
	case http.StatusUnsupportedMediaType:
		code = fault.UnsupportedMediaType
	}
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "Bad Request: "))
	if text == "" {
		text = http.StatusText(status)
	}
	return fault.New(code, "%s.", strings.ToUpper(text[:1])+strings.TrimSuffix(text[1:], "."))
}
