package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"turnpike/internal/providers"
)

const (
	// maxEvent bounds an event, and so each of its lines: images come whole.
	maxEvent = 10 << 20
	// firstBuffer holds several events of the usual length.
	firstBuffer = 4 << 10
	// drainPatience is for the last bytes of a body whose answer is complete:
	// they are under way with it, or they do not come.
	drainPatience = 50 * time.Millisecond
	drainLimit    = 64 << 10

	bom = "\uFEFF"
)

// Events reads server-sent events. It is not safe for concurrent use.
type Events struct {
	from io.ReadCloser

	// buf[start:end] is what was read and not yet returned. An event is kept
	// in it from its beginning, so that its data needs no copy. All positions
	// but these two are counted from start, as the buffer's content may move.
	buf        []byte
	start, end int
	line       int // where the line begins that is looked at
	seen       int // up to where it was searched for its end
	afterCR    bool
	begun      bool // a first line was seen, which may begin with a BOM
	err        error

	name    string // the last one; with hasName, this event's
	hasName bool
	data    span // with hasData
	hasData bool
}

// NewEvents reads the events of a response's body.
func NewEvents(resp *http.Response) *Events {
	return &Events{from: resp.Body, buf: make([]byte, firstBuffer)}
}

// Next returns the next event that has data; its name is empty if it has none.
// The data is valid until the next call. At a proper end of the body the error
// is io.EOF. A body that ends inside an event is a failure of KindCut, with
// what came of the event beside it.
func (e *Events) Next() (name string, data []byte, err error) {
	e.discard()
	for {
		line, err := e.readLine()
		switch {
		case err == io.EOF:
			return e.last(line)
		case err != nil:
			return "", nil, cut(err)
		case line.from < line.to:
			e.field(line)
		case e.hasData:
			return e.eventName(), e.bytes(e.data), nil
		default:
			e.discard() // a name alone is no event
		}
	}
}

// Drain reads what is left of a body that has said all it had to say, so that
// its connection can be used again. It waits for a moment only.
func (e *Events) Drain() {
	if b, ok := e.from.(*body); ok && e.err == nil {
		_, _ = b.readFor(drainPatience, drainLimit)
	}
}

// Close ends the call.
func (e *Events) Close() error { return e.from.Close() }

// last is the end of the body, and of a line that has none.
func (e *Events) last(line span) (string, []byte, error) {
	if line.from < line.to {
		e.field(line)
	} else if !e.hasData && !e.hasName {
		return "", nil, io.EOF
	}
	e.err = &providers.Failure{Kind: providers.KindCut, Err: fmt.Errorf("inside an event: %w", io.ErrUnexpectedEOF)}
	return e.eventName(), e.bytes(e.data), e.err
}

func (e *Events) eventName() string {
	if e.hasName {
		return e.name
	}
	return ""
}

func (e *Events) bytes(s span) []byte {
	return e.buf[e.start+s.from : e.start+s.to : e.start+s.to]
}

// discard forgets the event up to the line that is next.
func (e *Events) discard() {
	e.start += e.line
	e.seen -= e.line
	e.line = 0
	e.hasData, e.hasName, e.data = false, false, span{}
}

// readLine finds the next line, without its end: a CR, an LF or both. With an
// error it returns what is left.
func (e *Events) readLine() (span, error) {
	for {
		// A CR ends its line at once, or the event would wait for the byte
		// after it; an LF that follows belongs to it.
		if e.afterCR && e.start+e.line < e.end {
			e.afterCR = false
			if e.buf[e.start+e.line] == '\n' {
				e.line++
				e.seen = e.line
			}
		}
		fresh := e.buf[e.start+e.seen : e.end]
		if i := lineEnd(fresh); i >= 0 {
			line := span{e.line, e.seen + i}
			e.line = line.to + 1
			e.seen = e.line
			e.afterCR = fresh[i] == '\r'
			if !e.begun && bytes.HasPrefix(e.bytes(line), []byte(bom)) {
				line.from += len(bom)
			}
			e.begun = true
			return line, nil
		}
		e.seen = e.end - e.start
		if err := e.fill(); err != nil {
			return span{e.line, e.seen}, err
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

// fill reads more, and makes room for it first.
func (e *Events) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.end == len(e.buf) {
		held := e.end - e.start
		if held >= maxEvent {
			e.err = &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf("an event has more than %d bytes", maxEvent)}
			return e.err
		}
		to := e.buf
		if held > len(e.buf)/2 && len(e.buf) < maxEvent {
			to = make([]byte, min(2*len(e.buf), maxEvent))
		}
		copy(to, e.buf[e.start:e.end])
		e.buf, e.start, e.end = to, 0, held
	}
	n, err := e.from.Read(e.buf[e.end:])
	e.end += n
	e.err = err
	if n > 0 {
		return nil
	}
	return err
}

// field takes a line of an event. What is not known is ignored, as the
// standard wants it.
func (e *Events) field(line span) {
	name, value, _ := bytes.Cut(e.bytes(line), []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "":
		if !e.hasData && !e.hasName {
			e.discard() // comments keep a connection alive for hours
		}
	case "event":
		e.hasName = len(value) > 0
		if string(value) != e.name { // most events have the name of the last one
			e.name = string(value)
		}
	case "data":
		e.appendData(span{line.to - len(value), line.to})
	}
}

// appendData joins the lines of the data by moving each to the one before it:
// there is room, as what stands between them is longer than a line feed.
func (e *Events) appendData(value span) {
	if !e.hasData {
		e.hasData, e.data = true, value
		return
	}
	at := e.start + e.data.to
	e.buf[at] = '\n'
	e.data.to += 1 + copy(e.buf[at+1:], e.bytes(value))
}

// span is a part of the buffer, counted from the event's beginning.
type span struct{ from, to int }
