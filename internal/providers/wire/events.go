package wire

import (
	"bufio"
	"bytes"
	"errors"
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
)

// Events reads server-sent events. It is not safe for concurrent use.
type Events struct {
	source     io.ReadCloser
	beforeRead func() // may be nil
	lines      *bufio.Scanner
	data       []byte
	err        error
}

// NewEvents reads the events of a response's body. beforeRead, if set, is called before each read.
func NewEvents(resp *http.Response, beforeRead func()) *Events {
	e := &Events{source: resp.Body, beforeRead: beforeRead, data: []byte{}}
	e.lines = bufio.NewScanner(eventReader{e})
	e.lines.Buffer(nil, maxEvent)
	return e
}

// eventReader is the source of an Events' lines.
type eventReader struct{ *Events }

func (r eventReader) Read(p []byte) (int, error) {
	if r.beforeRead != nil {
		r.beforeRead()
	}
	return r.source.Read(p)
}

// Next returns the next event with data; the name may be empty. The data is valid until the next
// call. At the end of the body the error is io.EOF. If the body ends inside an event, Next returns
// the part that arrived and a failure of KindCut.
func (e *Events) Next() (name string, data []byte, err error) {
	if e.err != nil {
		return "", nil, e.err
	}
	e.data = e.data[:0]
	hasData := false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if hasData {
				return name, e.data, nil
			}
			name = "" // a name alone isn't an event
			continue
		}
		// Comments and unknown fields are ignored, as in the standard.
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			e.data, hasData = append(e.data, value...), true
		}
		if len(e.data) > maxEvent {
			e.err = errLongEvent
			return "", nil, e.err
		}
	}
	switch err := e.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		e.err = errLongEvent
	case err != nil:
		e.err = cut(err)
	case hasData || name != "":
		e.err = &providers.Failure{Kind: providers.KindCut, Err: fmt.Errorf("inside an event: %w", io.ErrUnexpectedEOF)}
		return name, e.data, e.err
	default:
		e.err = io.EOF
	}
	return "", nil, e.err
}

var errLongEvent = ProtocolFailure("an event has more than %d bytes", maxEvent)

// Drain reads the rest of a body whose response is complete, so that its
// connection can be reused. It waits only briefly.
func (e *Events) Drain() {
	if b, ok := e.source.(*body); ok && e.err == nil {
		_, _ = b.readWithin(drainTimeout, drainLimit)
	}
}

// Close ends the request.
func (e *Events) Close() error { return e.source.Close() }
