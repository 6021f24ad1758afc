package simulator

import (
	"context"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"turnpike/internal/providers"
)

// stream sends the deltas of one choice after the other, and then the usage.
type stream struct {
	ctx      context.Context // of the request
	response *response
	deltas   []delta // of one choice
	next     int     // index of the next chunk, counted over all choices
	sent     int     // content chunks
	tokens   int64   // in them

	chunkDelay time.Duration
	cut        int // content chunks before the stream fails, or -1
	err        error

	head   []byte // begins every chunk
	tail   string // ends every chunk but the last
	buffer []byte // for the next chunks
}

// delta is what a chunk adds: some tokens of the text or of a call's arguments,
// or one of the events around them.
type delta struct {
	kind     deltaKind
	call     int
	from, to int // tokens
}

type deltaKind int

const (
	roleDelta deltaKind = iota
	textDelta
	callDelta      // the ID and name of a call
	argumentsDelta // of a call
	finishDelta
)

func newStream(ctx context.Context, a *response, m *magic, includeUsage bool) *stream {
	s := &stream{
		ctx:        ctx,
		response:   a,
		deltas:     a.deltas(),
		chunkDelay: m.chunkDelay,
		cut:        -1,
		tail:       "}",
	}
	if m.hasCut {
		s.cut = m.cut
	}
	if includeUsage {
		s.tail = `,"usage":null}`
	}
	s.head = a.appendHead(make([]byte, 0, 256), "chat.completion.chunk")
	s.head = append(s.head, commonFields...)
	s.head = append(s.head, `,"choices":[`...)
	return s
}

// deltas splits the reply into chunks of one token. Tokens that are parts of a
// character share a chunk.
func (a *response) deltas() []delta {
	list := make([]delta, 0, len(a.ends)+2)
	list = append(list, delta{kind: roleDelta})
	list = appendTokens(list, delta{kind: textDelta}, a.text, a.ends)
	for i, c := range a.calls {
		list = append(list, delta{kind: callDelta, call: i})
		list = appendTokens(list, delta{kind: argumentsDelta, call: i}, c.arguments, c.ends)
	}
	return append(list, delta{kind: finishDelta})
}

func appendTokens(list []delta, d delta, text string, ends []int) []delta {
	for i, end := range ends {
		if end == len(text) || utf8.RuneStart(text[end]) {
			d.to = i + 1
			if startOf(ends, d.from) < end {
				list = append(list, d)
			}
			d.from = d.to
		}
	}
	return list
}

// Next returns the next chunk. After an error, it always returns that error.
func (s *stream) Next() (providers.Chunk, error) {
	if s.err == nil {
		pause := s.chunkDelay
		if s.next == 0 {
			pause = 0
		}
		s.err = wait(s.ctx, pause)
	}
	if s.err != nil {
		return providers.Chunk{}, s.err
	}
	choice, i := s.next/len(s.deltas), s.next%len(s.deltas)
	s.next++
	switch {
	case choice < s.response.choices:
		return s.chunk(choice, s.deltas[i])
	case choice == s.response.choices && i == 0:
		return s.usageChunk(), nil
	}
	s.err = io.EOF
	return providers.Chunk{}, io.EOF
}

// SoFar returns the usage of the prompt and the chunks sent so far.
func (s *stream) SoFar() providers.Usage {
	return providers.Usage{InputTokens: s.response.usage.InputTokens, OutputTokens: s.tokens}
}

// Close does nothing.
func (s *stream) Close() error { return nil }

func (s *stream) chunk(choice int, d delta) (providers.Chunk, error) {
	if d.kind != roleDelta {
		if s.cut >= 0 && (s.sent >= s.cut || d.kind == finishDelta) {
			s.err = errCut()
			return providers.Chunk{}, s.err
		}
		s.sent++
		s.tokens += int64(d.to - d.from)
	}
	b := s.begin()
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	b = append(b, `,"delta":`...)
	b = s.response.appendDelta(b, choice, d)
	if d.kind == textDelta {
		b = s.response.appendLogprobs(b, d.from, d.to)
	} else {
		b = append(b, `,"logprobs":null`...)
	}
	b = append(b, `,"finish_reason":`...)
	if d.kind == finishDelta {
		b = append(b, '"')
		b = append(b, s.response.finish...)
		b = append(b, `"}]`...)
	} else {
		b = append(b, `null}]`...)
	}
	return providers.Chunk{Data: s.end(append(b, s.tail...))}, nil
}

func (a *response) appendDelta(b []byte, choice int, d delta) []byte {
	switch d.kind {
	case roleDelta:
		if a.refusal || len(a.calls) > 0 {
			return append(b, `{"role":"assistant","content":null,"refusal":null}`...)
		}
		return append(b, `{"role":"assistant","content":"","refusal":null}`...)
	case textDelta:
		if a.refusal {
			b = append(b, `{"refusal":`...)
		} else {
			b = append(b, `{"content":`...)
		}
		b = appendString(b, a.text[startOf(a.ends, d.from):a.ends[d.to-1]])
		return append(b, '}')
	case finishDelta:
		return append(b, `{}`...)
	}
	c := &a.calls[d.call]
	b = append(b, `{"tool_calls":[{"index":`...)
	b = strconv.AppendInt(b, int64(d.call), 10)
	if d.kind == callDelta {
		b = append(b, `,"id":"`...)
		b = a.appendCallID(b, choice, d.call)
		b = append(b, `","type":"function","function":{"name":`...)
		b = appendString(b, c.name)
		return append(b, `,"arguments":""}}]}`...)
	}
	b = append(b, `,"function":{"arguments":`...)
	b = appendString(b, c.arguments[startOf(c.ends, d.from):c.ends[d.to-1]])
	return append(b, `}}]}`...)
}

func (s *stream) usageChunk() providers.Chunk {
	b := append(s.begin(), `],"usage":`...)
	b = appendUsage(b, s.response.usage)
	usage := s.response.usage
	return providers.Chunk{Data: s.end(append(b, '}')), Usage: &usage}
}

// begin starts a chunk in the shared buffer. Chunks don't overlap, so that each
// stays valid.
func (s *stream) begin() []byte {
	const typical = 160 // bytes after the head
	if cap(s.buffer)-len(s.buffer) < len(s.head)+typical {
		left := max(1, s.response.choices*len(s.deltas)+2-s.next)
		s.buffer = make([]byte, 0, min(left, 24)*(len(s.head)+typical))
	}
	start := len(s.buffer)
	return append(s.buffer[start:start:cap(s.buffer)], s.head...)
}

// end removes the bytes of a finished chunk from the shared buffer. A chunk that
// outgrew the buffer has its own memory.
func (s *stream) end(b []byte) []byte {
	if used := len(s.buffer) + len(b); used <= cap(s.buffer) {
		s.buffer = s.buffer[:used]
	}
	return b[:len(b):len(b)]
}
