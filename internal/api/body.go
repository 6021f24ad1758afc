package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"turnpike/internal/connlimit"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// These are the lowest rates at which a body may arrive, in bytes per second, in
// addition to Limits.BodyTimeout: a slow connection can send a large body, but a
// trickle can't hold a connection and its memory.
const (
	bodyRate  = 8 << 10  // of the first firstMiB
	largeRate = 64 << 10 // of the rest
	firstMiB  = 1 << 20
)

const (
	// freeBodyBytes is the memory that a body gets before any of it has arrived.
	freeBodyBytes = 64 << 10
	// immediateBody is how long a body that was sent with its headers takes at most.
	immediateBody = 5 * time.Millisecond
)

// readJSON reads a JSON body of at most limit bytes. It returns an empty object
// for a request without a body.
func (c *Call) readJSON(limit int64) ([]byte, error) {
	return c.readValues(limit, c.Limits.JSONValues)
}

// readValues is readJSON with another limit on the number of values.
func (c *Call) readValues(limit int64, values int) ([]byte, error) {
	body, err := c.readBody(limit)
	if err != nil {
		return nil, err
	}
	c.content.SetRequest(body)
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	if err := checkJSONType(c.R.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	if coding := c.R.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Encoding", "Compressed bodies are not supported. Send the JSON uncompressed.")
	}
	if err := jsonbody.CheckShape(body, c.Limits.JSONDepth, values); err != nil {
		return nil, err
	}
	return c.withDeployment(body), nil
}

// readModelBody reads the JSON body of a model request.
func (c *Call) readModelBody() ([]byte, error) { return c.readJSON(c.Limits.ModelBody) }

func checkJSONType(header string) error {
	if header == "" || header == jsonType {
		return nil
	}
	typ, params, err := mime.ParseMediaType(header)
	if err == nil && (typ == jsonType || strings.HasPrefix(typ, "application/") && strings.HasSuffix(typ, "+json")) {
		if charset := params["charset"]; charset == "" || strings.EqualFold(charset, "utf-8") {
			return nil
		}
	}
	return fault.Param(fault.UnsupportedMediaType, "Content-Type", "The body must be JSON. Send Content-Type: application/json.")
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, "The body is larger than the limit of %d bytes.", limit)
}

// maxBodyTime returns how long the first bytes of a body may take.
func maxBodyTime(bytes int) time.Duration {
	first := min(bytes, firstMiB)
	return time.Duration(first)*time.Second/bodyRate + time.Duration(bytes-first)*time.Second/largeRate
}

// readBody reads the body, and then checks the key again if that took long.
func (c *Call) readBody(limit int64) ([]byte, error) {
	if c.R.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	control := http.NewResponseController(c.W)
	from := http.MaxBytesReader(c.W, c.R.Body, limit)
	start := time.Now()
	// The buffer grows with what arrives, not with what was announced.
	size := int64(512)
	if c.R.ContentLength > 0 {
		size = c.R.ContentLength + 1
	}
	body := make([]byte, 0, min(size, freeBodyBytes))
	for {
		_ = control.SetReadDeadline(start.Add(c.Limits.BodyTimeout + maxBodyTime(len(body)))) // not every transport has one
		if len(body) == cap(body) {
			grown := min(int64(2*cap(body)), limit+1)
			if c.R.ContentLength > 0 {
				grown = min(grown, c.R.ContentLength+1)
			}
			if err := c.reserveBody(grown); err != nil {
				c.W.Header().Set("Connection", "close")
				return nil, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
		n, err := from.Read(body[len(body):min(cap(body), len(body)+64<<10)])
		body = body[:len(body)+n]
		if err == nil {
			continue
		}
		if err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			c.body = body
			return body, c.bodyArrived(start)
		}
		return nil, c.bodyFault(err, limit)
	}
}

// bodyArrived is called when the whole body was read. If that took long, it checks the key again.
func (c *Call) bodyArrived(start time.Time) error {
	if c.Principal == nil {
		return nil
	}
	connlimit.Authenticated(c.Context())
	if time.Since(start) < immediateBody {
		return nil
	}
	if err := c.reauthenticate(); err != nil {
		return err
	}
	return c.useProject()
}

// bodyFault returns the error for a body that can't be read. The response doesn't wait for the
// rest of it.
func (c *Call) bodyFault(err error, limit int64) error {
	c.W.Header().Set("Connection", "close")
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.RequestTimeout, "The body did not arrive in time.")
	}
	return fault.New(fault.InvalidJSON, "The body is incomplete.").Because(err)
}

// bodyMemory limits the memory of all large bodies in progress, from their first
// bytes to the end of their requests. Rate limits count requests only after their
// bodies are read, so without it a few slow senders could use all memory.
type bodyMemory struct {
	mu    sync.Mutex
	limit int64
	used  int64
	usage map[string]int64 // by workspace; empty for requests without a key
}

func newBodyMemory(limit int64) *bodyMemory {
	return &bodyMemory{limit: limit, usage: map[string]int64{}}
}

func (m *bodyMemory) setLimit(limit int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = limit
}

// reserve reserves memory for a body. A workspace may have half of what the
// others leave, so there is always some left. Requests without a key, which send
// nothing larger than reports of leaks, share a sixteenth of all.
func (m *bodyMemory) reserve(workspace string, bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	share := (m.limit - m.used + m.usage[workspace]) / 2
	if workspace == "" {
		share = m.limit / 16
	}
	if m.used+bytes > m.limit || m.usage[workspace]+bytes > share {
		return false
	}
	m.used += bytes
	m.usage[workspace] += bytes
	return true
}

func (m *bodyMemory) release(workspace string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
	if m.usage[workspace] -= bytes; m.usage[workspace] == 0 {
		delete(m.usage, workspace)
	}
}

// reserveBody reserves memory for a body of size bytes, beyond the freeBodyBytes
// that every body gets.
func (c *Call) reserveBody(size int64) error {
	more := size - freeBodyBytes - c.bodyMemory
	if more <= 0 {
		return nil
	}
	if !c.s.bodies.reserve(c.workspace(), more) {
		f := fault.New(fault.Overloaded, "Too many large request bodies are in progress. Retry shortly.")
		f.RetryAfter = time.Second
		return f
	}
	c.bodyMemory += more
	return nil
}

func (c *Call) releaseBody() {
	if c.bodyMemory > 0 {
		c.s.bodies.release(c.workspace(), c.bodyMemory)
	}
}

// workspace returns the workspace of the key, or an empty string without one.
func (c *Call) workspace() string {
	if c.Principal == nil {
		return ""
	}
	return c.Principal.WorkspaceID
}
