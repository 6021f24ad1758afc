package simulator

import (
	"context"
	"io"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// stream sends the deltas of one choice after the other, and then the usage.
type stream struct {
	wire.ChunkQueue
	ctx        context.Context // of the request
	response   *response
	chunkDelay time.Duration
	beforeWait func() error // may be nil
	cut        int          // content chunks before the stream fails, or -1

	started bool
	choice  int     // the next one
	deltas  []delta // of the current choice that aren't sent
	sent    int     // content chunks
	tokens  int64   // in them
}

// delta is what a chunk adds to a choice, with so many tokens.
type delta struct {
	openai.ChunkChoice
	tokens int
}

func newStream(ctx context.Context, a *response, m *magic, includeUsage bool) *stream {
	s := &stream{
		ChunkQueue: wire.ChunkQueue{Head: a.head, IncludeUsage: includeUsage},
		ctx:        ctx,
		response:   a,
		chunkDelay: m.chunkDelay,
		cut:        -1,
	}
	if m.hasCut {
		s.cut = m.cut
	}
	return s
}

// deltas splits the reply into chunks of one token.
func (a *response) deltas(choice int) []delta {
	list := make([]delta, 0, len(a.ends)+2)
	add := func(c openai.ChunkChoice, tokens int) {
		c.Index = choice
		list = append(list, delta{c, tokens})
	}
	add(openai.ChunkChoice{Delta: openai.FirstDelta()}, 0)
	for from, to := range characters(a.text, a.ends) {
		text := a.text[startOf(a.ends, from):a.ends[to-1]]
		d := openai.Delta{Content: &text}
		if a.refusal {
			d = openai.Delta{}
			d.Refusal, _ = jsontext.AppendQuote(nil, text)
		}
		add(openai.ChunkChoice{Delta: d, Logprobs: a.logprobsOf(from, to)}, to-from)
	}
	for i, c := range a.calls {
		addCall := func(part openai.ToolCall, tokens int) {
			part.Index = &i
			add(openai.ChunkChoice{Delta: openai.Delta{ToolCalls: []openai.ToolCall{part}}}, tokens)
		}
		addCall(openai.FunctionToolCall(a.callID(choice, i), c.name, ""), 0)
		for from, to := range characters(c.arguments, c.ends) {
			arguments := c.arguments[startOf(c.ends, from):c.ends[to-1]]
			addCall(openai.ToolCall{Function: &openai.FunctionCall{Arguments: arguments}}, to-from)
		}
	}
	add(openai.ChunkChoice{FinishReason: &a.finish}, 0)
	return list
}

// characters yields the tokens from and to which whole characters go. Tokens that are parts of a
// character belong together.
func characters(text string, ends []int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		from := 0
		for i, end := range ends {
			if end < len(text) && !utf8.RuneStart(text[end]) {
				continue
			}
			if startOf(ends, from) < end && !yield(from, i+1) {
				return
			}
			from = i + 1
		}
	}
}

// Next returns the next chunk. After an error, it always returns that error.
func (s *stream) Next() (providers.Chunk, error) { return s.ChunkQueue.Next(s.read) }

func (s *stream) read() error {
	if s.started {
		if s.chunkDelay > 0 && s.beforeWait != nil {
			if err := s.beforeWait(); err != nil {
				return err
			}
		}
		if err := wait(s.ctx, s.chunkDelay); err != nil {
			return err
		}
	}
	s.started = true
	begins := len(s.deltas) == 0
	if begins {
		if s.choice == s.response.choices {
			s.SendUsage(s.response.usage, 0)
			return io.EOF
		}
		s.deltas = s.response.deltas(s.choice)
		s.choice++
	}
	next := s.deltas[0]
	s.deltas = s.deltas[1:]
	if !begins {
		if s.cut >= 0 && (s.sent >= s.cut || next.FinishReason != nil) {
			return errCut()
		}
		s.sent++
		s.tokens += int64(next.tokens)
	}
	s.SendChoice(next.ChunkChoice)
	return nil
}

// SoFar returns the usage of the prompt and the chunks sent so far.
func (s *stream) SoFar() providers.Usage {
	return providers.Usage{InputTokens: s.response.usage.InputTokens, OutputTokens: s.tokens}
}

// Close does nothing.
func (s *stream) Close() error { return nil }
