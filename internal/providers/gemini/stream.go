package gemini

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// events are implemented by wire.Events and by tests.
type events interface {
	Next() (name string, data []byte, err error)
	Close() error
}

type stream struct {
	wire.ChunkQueue
	head
	events  events
	secrets []string
	call    *call
	count   counter
	choices []*streamChoice
	blocked bool // a filter blocked the prompt
}

type streamChoice struct {
	index   int
	started bool // its first chunk was sent
	calls   int
	hasText bool
	reason  string // Gemini's finish reason; empty until it has ended
}

func newStream(e events, h head, c *call, secrets []string) *stream {
	queue := wire.ChunkQueue{Head: h.Head, IncludeUsage: c.includeUsage}
	return &stream{ChunkQueue: queue, head: h, events: e, secrets: secrets, call: c, count: counter{prompt: c.promptTokens}}
}

// Next returns the next chunk. After an error it returns that error again.
func (s *stream) Next() (providers.Chunk, error) { return s.ChunkQueue.Next(s.read) }

// SoFar returns Gemini's count, which comes with every event. Missing counts are estimated.
func (s *stream) SoFar() providers.Usage { return s.count.usage() }

// Close ends the request.
func (s *stream) Close() error { return s.events.Close() }

func (s *stream) read() error {
	_, data, err := s.events.Next()
	if err == io.EOF {
		return s.end()
	}
	if err != nil && !jsontext.Value(data).IsValid(wire.Lenient) {
		return err
	}
	r, parseErr := parseResponse(data, s.secrets)
	if parseErr != nil {
		return parseErr
	}
	if r.UsageMetadata != nil {
		s.count.metadata = r.UsageMetadata
	}
	s.blocked = s.blocked || r.PromptFeedback.BlockReason != ""
	for i := range r.Candidates {
		if err := s.addCandidate(&r.Candidates[i]); err != nil {
			return err
		}
	}
	if err != nil { // the empty line after the last event is missing
		return s.end()
	}
	return nil
}

func (s *stream) addCandidate(c *candidate) error {
	choice := s.choice(c.Index)
	for i := range c.Content.Parts {
		p := &c.Content.Parts[i]
		s.count.add(p)
		switch {
		case s.call.isAnswer(p):
			if !choice.hasText {
				choice.hasText = true
				s.send(choice, openai.Delta{Content: new(p.arguments())}, "")
			}
		case p.FunctionCall != nil:
			if !s.call.acceptsCall(choice.calls) {
				continue
			}
			call := s.toolCall(p)
			call.Index = new(choice.calls)
			choice.calls++
			s.send(choice, openai.Delta{ToolCalls: []openai.ToolCall{call}}, "")
		case p.Text == "": // a signature alone
		case p.Thought:
			s.send(choice, openai.Delta{ReasoningContent: p.Text}, "")
		case s.call.answerTool == "":
			choice.hasText = true
			s.send(choice, openai.Delta{Content: &p.Text}, "")
		}
	}
	if c.FinishReason == "" {
		return nil
	}
	// The finish reason is sent at the end of the stream: more parts may follow.
	choice.reason = c.FinishReason
	_, err := choice.finish()
	return err
}

func (s *stream) choice(index int) *streamChoice {
	for _, c := range s.choices {
		if c.index == index {
			return c
		}
	}
	c := &streamChoice{index: index}
	s.choices = append(s.choices, c)
	return c
}

func (c *streamChoice) finish() (string, error) {
	return finishReason(c.reason, c.calls > 0, c.hasText)
}

func (s *stream) end() error {
	if len(s.choices) == 0 && s.blocked {
		s.choice(0).reason = "SAFETY"
	}
	if len(s.choices) == 0 {
		return cut("without a response")
	}
	slices.SortFunc(s.choices, func(a, b *streamChoice) int { return cmp.Compare(a.index, b.index) })
	for _, c := range s.choices {
		if c.reason == "" {
			return cut("before the end of the response")
		}
		finish, err := c.finish()
		if err != nil {
			return err
		}
		s.send(c, openai.Delta{}, finish)
	}
	s.SendUsage(s.count.usage(), s.count.reasoning())
	return io.EOF
}

func cut(how string) error {
	return &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended " + how)}
}

// send queues a chunk of a choice, after the chunk that starts it. That one
// waits for content, so that a failure before it isn't one of a started stream.
func (s *stream) send(choice *streamChoice, delta openai.Delta, finish string) {
	if !choice.started {
		choice.started = true
		s.Send(choice.index, openai.FirstDelta(), "")
	}
	s.Send(choice.index, delta, finish)
}

var _ events = (*wire.Events)(nil)
