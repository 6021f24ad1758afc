package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/budget"
	"turnpike/internal/providers"
)

const (
	// maxEvent limits an event; images in chats come whole.
	maxEvent = 10 << 20
	// firstBuffer holds an event of most streams: thousands may be open.
	firstBuffer = 512
	// fullBuffer holds what arrives together of most streams.
	fullBuffer = 4 << 10
	// drainTimeout is for the last bytes of a body whose response is complete: they
	// arrive together with it, or not at all.
	drainTimeout = 50 * time.Millisecond
	drainLimit   = 64 << 10
)

// Events reads server-sent events. It is not safe for concurrent use.
type Events struct {
	source  io.ReadCloser
	first   [firstBuffer]byte
	full    *[fullBuffer]byte // from fullBuffers, or nil
	buf     []byte            // read from the source; in first, full or larger
	parsed  int               // bytes of buf
	readErr error
	name    string // of the last event that had one
	data    []byte // of an event with several lines
	err     error
	limit   int // bytes of an event

	budget   *budget.Budget
	reserved int64 // of the budget, for a large event
	decoded  int64 // of the budget, for the values of the last event
}

var fullBuffers = sync.Pool{New: func() any { return new([fullBuffer]byte) }}

// NewEvents reads the events of a response's body. beforeWait may be nil: see BeforeWait.
func NewEvents(resp *http.Response, beforeWait func() error) *Events {
	e := &Events{source: resp.Body, data: []byte{}, limit: maxEvent, budget: budgetOf(resp.Body)}
	e.buf = e.first[:0]
	BeforeWait(resp, beforeWait)
	return e
}

// Limit sets how many bytes an event may have, instead of 10 MiB.
func (e *Events) Limit(size int) { e.limit = size }

// nextLine returns the next line, valid until the next call. The last line may lack its end.
func (e *Events) nextLine() (line []byte, ok bool) {
	for searched := 0; ; {
		rest := e.buf[e.parsed:]
		if end := bytes.IndexByte(rest[searched:], '\n'); end >= 0 {
			line = rest[:searched+end]
			e.parsed += len(line) + 1
			return bytes.TrimSuffix(line, []byte("\r")), true
		}
		if e.readErr != nil {
			e.parsed = len(e.buf)
			return bytes.TrimSuffix(rest, []byte("\r")), len(rest) > 0
		}
		searched = len(rest)
		if e.read(); e.readErr == errLongEvent {
			return nil, false
		}
	}
}

// read reads more into the buffer. The buffer grows if a line doesn't fit, or if there may be more
// to read than fits.
func (e *Events) read() {
	full := len(e.buf) == cap(e.buf)
	if e.parsed > 0 {
		e.buf = e.buf[:copy(e.buf, e.buf[e.parsed:])]
		e.parsed = 0
	}
	if len(e.buf) == 0 && !full {
		e.releaseFull() // the stream may wait for long
	}
	switch {
	case len(e.buf) > e.limit:
		e.buf, e.readErr = nil, errLongEvent
		return
	case len(e.buf) == cap(e.buf):
		if e.readErr = e.grow(min(len(e.buf)+max(len(e.buf), fullBuffer), e.limit+1)); e.readErr != nil {
			return
		}
	case full && cap(e.buf) < fullBuffer:
		_ = e.grow(fullBuffer) // which is free
	}
	n, err := io.ReadAtLeast(e.source, e.buf[len(e.buf):cap(e.buf)], 1)
	e.buf, e.readErr = e.buf[:len(e.buf)+n], err
}

// grow replaces the buffer by one for at least size bytes.
func (e *Events) grow(size int) error {
	if e.full == nil && len(e.buf) < fullBuffer && e.limit >= fullBuffer {
		e.full = fullBuffers.Get().(*[fullBuffer]byte)
		e.buf = append(e.full[:0], e.buf...)
		return nil
	}
	if err := e.reserve(size - len(e.buf)); err != nil {
		return err
	}
	e.buf = append(make([]byte, 0, size), e.buf...)
	return nil
}

func (e *Events) reserve(bytes int) error {
	err := e.budget.Reserve(int64(bytes))
	if err == nil {
		e.reserved += int64(bytes)
	}
	return err
}

// Next returns the next event with data; the name may be empty. The data is valid until the next
// call. At the end of the body the error is io.EOF. If the body ends inside an event, Next returns
// the part that arrived and a failure of KindCut.
func (e *Events) Next() (name string, data []byte, err error) {
	if e.err != nil {
		return "", nil, e.err
	}
	if e.decoded > 0 {
		e.budget.Return(e.decoded)
		e.decoded = 0
	}
	e.data = e.data[:0]
	hasData := false
	for line, ok := e.nextLine(); ok; line, ok = e.nextLine() {
		if len(line) == 0 {
			if hasData {
				return e.admit(name, e.data)
			}
			name = "" // a name alone isn't an event
			continue
		}
		// Comments and unknown fields are ignored, as in the standard.
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			if e.name != string(value) {
				e.name = string(value)
			}
			name = e.name
		case "data":
			if !hasData && value != nil && len(value) <= e.limit && e.skipEmptyLine() {
				return e.admit(name, value)
			}
			if hasData {
				e.data = append(e.data, '\n')
			}
			if err := e.reserve(len(value)); err != nil {
				e.err = err
				return "", nil, err
			}
			e.data, hasData = append(e.data, value...), true
		}
		if len(e.data) > e.limit {
			e.err = errLongEvent
			return "", nil, e.err
		}
	}
	switch {
	case e.readErr != io.EOF:
		e.err = cut(e.readErr)
	case hasData || name != "":
		e.err = &providers.Failure{Kind: providers.KindCut, Err: fmt.Errorf("inside an event: %w", io.ErrUnexpectedEOF)}
		return name, e.data, e.err
	default:
		e.err = io.EOF
	}
	return "", nil, e.err
}

// admit returns an event that the caller decodes, if there is memory for its values.
func (e *Events) admit(name string, data []byte) (string, []byte, error) {
	if e.decoded = budget.Decoded(data); e.decoded > 0 {
		if e.err = e.budget.Reserve(e.decoded); e.err != nil {
			e.decoded = 0
			return "", nil, e.err
		}
	}
	return name, data, nil
}

// skipEmptyLine skips an empty line if it has been read.
func (e *Events) skipEmptyLine() bool {
	rest := bytes.TrimPrefix(e.buf[e.parsed:], []byte("\r"))
	if len(rest) == 0 || rest[0] != '\n' {
		return false
	}
	e.parsed = len(e.buf) - len(rest) + 1
	return true
}

var errLongEvent = ProtocolFailure("an event is too long")

// Drain reads the rest of a body whose response is complete, so that its
// connection can be reused. It waits only briefly.
func (e *Events) Drain() {
	if b, ok := e.source.(*body); ok && e.err == nil {
		b.waiting = nil // what is left to send is sent with the end
		_, _ = b.readWithin(drainTimeout, drainLimit)
	}
}

// Close ends the request. The data of the last event is no longer valid.
func (e *Events) Close() error {
	e.releaseFull()
	e.budget.Return(e.reserved + e.decoded)
	e.reserved, e.decoded = 0, 0
	return e.source.Close()
}

// releaseFull returns to the first buffer. The bytes in the other one are dropped.
func (e *Events) releaseFull() {
	if e.full != nil {
		fullBuffers.Put(e.full)
		e.full, e.buf, e.parsed = nil, e.first[:0], 0
	}
}
