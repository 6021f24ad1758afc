package simulator

import (
	"context"
	"fmt"
	"io"
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

	head string // begins every chunk
	tail string // ends every chunk but the last
}

// delta is the content of a chunk: some tokens of the text or of a call's
// arguments, or one of the events around them.
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
	s.head = string(a.appendHead(nil, "chat.completion.chunk")) + commonFields + `,"choices":[`
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
	b := fmt.Appendf(s.newChunk(), `{"index":%d,"delta":`, choice)
	b = s.response.appendDelta(b, choice, d)
	if d.kind == textDelta {
		b = s.response.appendLogprobs(b, d.from, d.to)
	} else {
		b = append(b, `,"logprobs":null`...)
	}
	finish := "null"
	if d.kind == finishDelta {
		finish = `"` + s.response.finish + `"`
	}
	return providers.Chunk{Data: append(b, `,"finish_reason":`+finish+"}]"+s.tail...)}, nil
}

func (a *response) appendDelta(b []byte, choice int, d delta) []byte {
	switch d.kind {
	case roleDelta:
		if a.refusal || len(a.calls) > 0 {
			return append(b, `{"role":"assistant","content":null,"refusal":null}`...)
		}
		return append(b, `{"role":"assistant","content":"","refusal":null}`...)
	case textDelta:
		field := `{"content":`
		if a.refusal {
			field = `{"refusal":`
		}
		b = appendString(append(b, field...), a.text[startOf(a.ends, d.from):a.ends[d.to-1]])
		return append(b, '}')
	case finishDelta:
		return append(b, `{}`...)
	}
	c := &a.calls[d.call]
	b = fmt.Appendf(b, `{"tool_calls":[{"index":%d,`, d.call)
	if d.kind == callDelta {
		return fmt.Appendf(b, `"id":"%s","type":"function","function":{"name":%s,"arguments":""}}]}`, a.callID(choice, d.call), quoteJSON(c.name))
	}
	b = appendString(append(b, `"function":{"arguments":`...), c.arguments[startOf(c.ends, d.from):c.ends[d.to-1]])
	return append(b, `}}]}`...)
}

func (s *stream) usageChunk() providers.Chunk {
	usage := s.response.usage
	b := appendUsage(append(s.newChunk(), `],"usage":`...), usage)
	return providers.Chunk{Data: append(b, '}'), Usage: &usage}
}

func (s *stream) newChunk() []byte {
	const typical = 160 // bytes after the head
	return append(make([]byte, 0, len(s.head)+typical), s.head...)
}
