package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"turnpike/internal/connlimit"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// These are the slowest that a body may arrive, in bytes per second, after the
// time that Limits.BodyPatience gives every one: a slow line can send a large
// body, a drip cannot hold a connection and its memory.
const (
	bodyRate  = 8 << 10  // of the first firstMiB
	largeRate = 64 << 10 // of the rest
	firstMiB  = 1 << 20
)

const (
	// firstPiece is the memory that a body gets before any of it is there.
	firstPiece = 64 << 10
	// bodyAtOnce tells a body that came with its headers from one that was
	// waited for.
	bodyAtOnce = 5 * time.Millisecond
)

// readJSON reads a JSON body of at most limit bytes. No body at all is an
// empty object.
func (c *Call) readJSON(limit int64) ([]byte, error) {
	return c.readValues(limit, c.s.Limits.JSONValues)
}

// readValues is readJSON with another bound for the number of values.
func (c *Call) readValues(limit int64, values int) ([]byte, error) {
	body, err := c.readBody(limit)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return []byte("{}"), nil
	}
	if err := checkJSONType(c.r.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fault.Param(fault.UnsupportedMediaType, "Content-Encoding", "compressed bodies are not accepted; send the JSON as it is")
	}
	return body, jsonbody.CheckShape(body, c.s.Limits.JSONDepth, values)
}

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
	return fault.Param(fault.UnsupportedMediaType, "Content-Type", "the body must be JSON: send Content-Type: application/json")
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, "the body is larger than %d bytes, which is the most that is accepted here", limit)
}

// slowest is how long a body may have taken for its first bytes.
func slowest(bytes int) time.Duration {
	first := min(bytes, firstMiB)
	return time.Duration(first)*time.Second/bodyRate + time.Duration(bytes-first)*time.Second/largeRate
}

func (c *Call) readBody(limit int64) ([]byte, error) {
	if c.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	control := http.NewResponseController(c.w)
	from := http.MaxBytesReader(c.w, c.r.Body, limit)
	begun := time.Now()
	defer func() { c.bodyTook = time.Since(begun) }()
	// It grows with what arrives, not with what was announced.
	room := int64(512)
	if c.r.ContentLength > 0 {
		room = c.r.ContentLength + 1
	}
	body := make([]byte, 0, min(room, firstPiece))
	for {
		_ = control.SetReadDeadline(begun.Add(c.s.Limits.BodyPatience + slowest(len(body)))) // not every transport has one
		if len(body) == cap(body) {
			grown := min(int64(2*cap(body)), limit+1)
			if c.r.ContentLength > 0 {
				grown = min(grown, c.r.ContentLength+1)
			}
			if err := c.roomFor(grown); err != nil {
				c.w.Header().Set("Connection", "close")
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
			if c.Principal != nil {
				connlimit.Authenticated(c.Context())
			}
			return body, nil
		}
		// What is left of the body is not waited for: the answer goes out and
		// the connection is closed.
		c.w.Header().Set("Connection", "close")
		var big *http.MaxBytesError
		switch {
		case errors.As(err, &big):
			return nil, tooLarge(limit)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fault.New(fault.RequestTimeout, "the body did not arrive in time")
		}
		return nil, fault.New(fault.InvalidJSON, "the body could not be read to its end").Because(err)
	}
}
