package simulator

import (
	"context"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"turnpike/internal/providers"
)

// stream sends every choice's deltas in turn, then the usage.
type stream struct {
	ctx    context.Context // of the call: a stream ends with it
	answer *answer
	deltas []delta // of one choice
	next   int     // chunk, counted over all choices
	sent   int     // content chunks
	tokens int64   // in them

	chunkDelay time.Duration
	cut        int // content chunks before it fails; -1 is never
	err        error

	head []byte // what every chunk begins with
	tail string // what every chunk but the last ends with
	room []byte // memory for the chunks to come
}

// delta is what one chunk adds: some tokens of the text or of a call's
// arguments, or one of the steps around them.
type delta struct {
	kind     deltaKind
	call     int
	from, to int // tokens
}

type deltaKind int

const (
	roleDelta deltaKind = iota
	textDelta
	callDelta      // a call's id and name
	argumentsDelta // of the call
	finishDelta
)

func newStream(ctx context.Context, a *answer, m *magic, includeUsage bool) *stream {
	s := &stream{
		ctx:        ctx,
		answer:     a,
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
	s.head = append(s.head, tail...)
	s.head = append(s.head, `,"choices":[`...)
	return s
}

// deltas splits the reply into chunks of one token, or of as many as make
// whole characters.
func (a *answer) deltas() []delta {
	list := make([]delta, 0, len(a.ends)+2)
	list = append(list, delta{kind: roleDelta})
	list = appendPieces(list, delta{kind: textDelta}, a.text, a.ends)
	for i, c := range a.calls {
		list = append(list, delta{kind: callDelta, call: i})
		list = appendPieces(list, delta{kind: argumentsDelta, call: i}, c.arguments, c.ends)
	}
	return append(list, delta{kind: finishDelta})
}

func appendPieces(list []delta, d delta, text string, ends []int) []delta {
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

// Next returns the next chunk. The stream has failed for good after an error.
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
	case choice < s.answer.choices:
		return s.chunk(choice, s.deltas[i])
	case choice == s.answer.choices && i == 0:
		return s.usageChunk(), nil
	}
	s.err = io.EOF
	return providers.Chunk{}, io.EOF
}

// SoFar counts the prompt and the tokens that were sent.
func (s *stream) SoFar() providers.Usage {
	return providers.Usage{InputTokens: s.answer.usage.InputTokens, OutputTokens: s.tokens}
}

// Close has nothing to release.
func (s *stream) Close() error { return nil }

func (s *stream) chunk(choice int, d delta) (providers.Chunk, error) {
	if d.kind != roleDelta {
		if s.cut >= 0 && (s.sent >= s.cut || d.kind == finishDelta) {
			s.err = cutShort()
			return providers.Chunk{}, s.err
		}
		s.sent++
		s.tokens += int64(d.to - d.from)
	}
	b := s.begin()
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	b = append(b, `,"delta":`...)
	b = s.answer.appendDelta(b, choice, d)
	if d.kind == textDelta {
		b = s.answer.appendLogprobs(b, d.from, d.to)
	} else {
		b = append(b, `,"logprobs":null`...)
	}
	b = append(b, `,"finish_reason":`...)
	if d.kind == finishDelta {
		b = append(b, '"')
		b = append(b, s.answer.finish...)
		b = append(b, `"}]`...)
	} else {
		b = append(b, `null}]`...)
	}
	return providers.Chunk{Data: s.end(append(b, s.tail...))}, nil
}

func (a *answer) appendDelta(b []byte, choice int, d delta) []byte {
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
	b = appendUsage(b, s.answer.usage)
	usage := s.answer.usage
	return providers.Chunk{Data: s.end(append(b, '}')), Usage: &usage}
}

// begin starts a chunk in memory that is shared by many but overlaps with
// none: a chunk stays valid for as long as its reader keeps it.
func (s *stream) begin() []byte {
	const typical = 160 // bytes after the head
	if cap(s.room)-len(s.room) < len(s.head)+typical {
		left := max(1, s.answer.choices*len(s.deltas)+2-s.next)
		s.room = make([]byte, 0, min(left, 24)*(len(s.head)+typical))
	}
	start := len(s.room)
	return append(s.room[start:start:cap(s.room)], s.head...)
}

// end takes a finished chunk's bytes out of the shared memory. A chunk that
// outgrew it has memory of its own already.
func (s *stream) end(b []byte) []byte {
	if used := len(s.room) + len(b); used <= cap(s.room) {
		s.room = s.room[:used]
	}
	return b[:len(b):len(b)]
}
