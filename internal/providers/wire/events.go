package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"turnpike/internal/providers"
)

const (
	// maxEvent limits an event; images come whole.
	maxEvent = 10 << 20
	// drainTimeout is for the last bytes of a body whose response is complete: they
	// arrive together with it, or not at all.
	drainTimeout = 50 * time.Millisecond
	drainLimit   = 64 << 10

	bom = "\uFEFF"
)

// Events reads server-sent events. It is not safe for concurrent use.
type Events struct {
	source  io.ReadCloser
	reader  *bufio.Reader
	line    []byte
	size    int // bytes of the event so far
	afterCR bool
	started bool // the first line, which may start with a BOM, was read
	err     error

	name    string // the previous event's name unless hasName
	hasName bool
	data    []byte
	hasData bool
}

// NewEvents reads the events of a response's body.
func NewEvents(resp *http.Response) *Events {
	return &Events{source: resp.Body, reader: bufio.NewReader(resp.Body), data: []byte{}}
}

// Next returns the next event with data; the name may be empty. The data is valid until the next
// call. At the end of the body the error is io.EOF. If the body ends inside an event, Next returns
// the part that arrived and a failure of KindCut.
func (e *Events) Next() (name string, data []byte, err error) {
	if e.err != nil {
		return "", nil, e.err
	}
	e.reset()
	for {
		err := e.readLine()
		switch {
		case err == io.EOF:
			return e.last()
		case err != nil:
			e.err = cut(err)
			return "", nil, e.err
		case len(e.line) > 0:
			e.field()
		case e.hasData:
			return e.eventName(), e.data, nil
		default:
			e.reset() // a name alone isn't an event
		}
	}
}

// Drain reads the rest of a body whose response is complete, so that its
// connection can be reused. It waits only briefly.
func (e *Events) Drain() {
	if b, ok := e.source.(*body); ok && e.err == nil {
		_, _ = b.readWithin(drainTimeout, drainLimit)
	}
}

// Close ends the request.
func (e *Events) Close() error { return e.source.Close() }

// last handles the end of the body, and of a line without an end.
func (e *Events) last() (string, []byte, error) {
	if len(e.line) > 0 {
		e.field()
	} else if !e.hasData && !e.hasName {
		e.err = io.EOF
		return "", nil, io.EOF
	}
	e.err = &providers.Failure{Kind: providers.KindCut, Err: fmt.Errorf("inside an event: %w", io.ErrUnexpectedEOF)}
	return e.eventName(), e.data, e.err
}

func (e *Events) eventName() string {
	if e.hasName {
		return e.name
	}
	return ""
}

func (e *Events) reset() { e.data, e.size, e.hasData, e.hasName = e.data[:0], 0, false, false }

// readLine reads the next line without its end: CR, LF or both. With an error the
// line has the rest.
func (e *Events) readLine() error {
	e.line = e.line[:0]
	for {
		if _, err := e.reader.Peek(1); err != nil {
			return err
		}
		buffered, _ := e.reader.Peek(e.reader.Buffered())
		// A CR ends its line immediately: waiting for an LF would delay the event.
		// An LF that follows belongs to it.
		if e.afterCR {
			e.afterCR = false
			if buffered[0] == '\n' {
				_, _ = e.reader.Discard(1)
				continue
			}
		}
		end := lineEnd(buffered)
		part := buffered
		if end >= 0 {
			part = buffered[:end]
			e.afterCR = buffered[end] == '\r'
		}
		e.line = append(e.line, part...)
		_, _ = e.reader.Discard(min(len(part)+1, len(buffered)))
		if e.size += len(part) + 1; e.size > maxEvent {
			return ProtocolFailure("an event has more than %d bytes", maxEvent)
		}
		if end >= 0 {
			if !e.started {
				e.line = bytes.TrimPrefix(e.line, []byte(bom))
			}
			e.started = true
			return nil
		}
	}
}

func lineEnd(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i >= 0 {
		b = b[:i]
	}
	if j := bytes.IndexByte(b, '\r'); j >= 0 {
		return j
	}
	return i
}

// field handles a line of an event. Unknown fields are ignored, as in the standard.
func (e *Events) field() {
	name, value, _ := bytes.Cut(e.line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "":
		if !e.hasData && !e.hasName {
			e.size = 0 // comments may keep a connection alive for hours
		}
	case "event":
		e.hasName = len(value) > 0
		if string(value) != e.name { // most events have the same name
			e.name = string(value)
		}
	case "data":
		if e.hasData {
			e.data = append(e.data, '\n')
		}
		e.data, e.hasData = append(e.data, value...), true
	}
}
