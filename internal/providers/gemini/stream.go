package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// chunk is OpenAI's chat.completion.chunk.
type chunk struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []chunkChoice  `json:"choices"`
	Usage   jsontext.Value `json:"usage,omitzero"`
}

type chunkChoice struct {
	Index        int       `json:"index"`
	Delta        delta     `json:"delta"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type delta struct {
	Role             string     `json:"role,omitempty"`
	Content          *string    `json:"content,omitzero"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []toolCall `json:"tool_calls,omitempty"`
}

// events are wire.Events, or a test's.
type events interface {
	Next() (name string, data []byte, err error)
	Close() error
}

// stream translates events as they come.
type stream struct {
	head
	events  events
	key     string
	call    *call
	count   counter
	choices []*streamChoice
	blocked bool // the prompt was
	queue   []providers.Chunk
	err     error // what follows the queue
}

// streamChoice is what is known of a choice so far.
type streamChoice struct {
	index   int
	begun   bool // its role was sent
	calls   int
	hasText bool
	reason  string // Gemini's; empty until it has ended
}

func newStream(e events, h head, c *call, key string) *stream {
	return &stream{head: h, events: e, key: key, call: c, count: counter{prompt: c.promptTokens}}
}

// Next returns the next chunk. The stream has ended for good after an error.
func (s *stream) Next() (providers.Chunk, error) {
	for len(s.queue) == 0 {
		if s.err != nil {
			return providers.Chunk{}, s.err
		}
		s.err = s.advance()
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	return next, nil
}

// SoFar is by Gemini's own count, which comes with every event; what it leaves
// out is guessed.
func (s *stream) SoFar() providers.Usage { return s.count.usage() }

// Close ends the upstream call.
func (s *stream) Close() error { return s.events.Close() }

// advance queues the chunks of one event.
func (s *stream) advance() error {
	_, data, err := s.events.Next()
	if err == io.EOF {
		return s.end()
	}
	if err != nil && !jsontext.Value(data).IsValid(fromGoogle) {
		return err
	}
	r, parseErr := parseResponse(data, s.key)
	if parseErr != nil {
		return parseErr
	}
	if r.UsageMetadata != nil {
		s.count.metadata = r.UsageMetadata
	}
	s.blocked = s.blocked || r.PromptFeedback.BlockReason != ""
	for i := range r.Candidates {
		if err := s.candidate(&r.Candidates[i]); err != nil {
			return err
		}
	}
	if err != nil { // the body ended after the event, but before its empty line
		return s.end()
	}
	return nil
}

func (s *stream) candidate(c *candidate) error {
	choice := s.choice(c.Index)
	for i := range c.Content.Parts {
		p := &c.Content.Parts[i]
		s.count.add(p)
		switch {
		case s.call.isAnswer(p):
			if !choice.hasText {
				choice.hasText = true
				s.push(choice, delta{Content: new(p.arguments())}, "")
			}
		case p.FunctionCall != nil:
			if !s.call.takes(choice.calls) {
				continue
			}
			call := s.toolCall(p)
			call.Index = new(choice.calls)
			choice.calls++
			s.push(choice, delta{ToolCalls: []toolCall{call}}, "")
		case p.Text == "": // a signature alone
		case p.Thought:
			s.push(choice, delta{ReasoningContent: p.Text}, "")
		case s.call.answerTool == "":
			choice.hasText = true
			s.push(choice, delta{Content: &p.Text}, "")
		}
	}
	if c.FinishReason == "" {
		return nil
	}
	// The end itself is kept until the stream's: a part may yet follow.
	choice.reason = c.FinishReason
	_, err := choice.finish()
	return err
}

// choice finds a choice, or makes it.
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

// end queues how the choices ended, and the usage.
func (s *stream) end() error {
	if len(s.choices) == 0 && s.blocked {
		s.choice(0).reason = "SAFETY"
	}
	if len(s.choices) == 0 {
		return cut("without an answer")
	}
	slices.SortFunc(s.choices, func(a, b *streamChoice) int { return cmp.Compare(a.index, b.index) })
	for _, c := range s.choices {
		if c.reason == "" {
			return cut("before the end of the answer")
		}
		finish, err := c.finish()
		if err != nil {
			return err
		}
		s.push(c, delta{}, finish)
	}
	usage, err := json.Marshal(s.count.wire())
	if err != nil {
		return fmt.Errorf("gemini: encode usage: %w", err)
	}
	last := s.chunk()
	last.Choices, last.Usage = []chunkChoice{}, usage
	used := s.count.usage()
	s.queue = append(s.queue, providers.Chunk{Data: encode(last), Usage: &used})
	return io.EOF
}

func cut(how string) error {
	return &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended " + how)}
}

// push queues a chunk of a choice, whose first one is its role. That waits for
// something to say: an answer that fails before it has not begun.
func (s *stream) push(choice *streamChoice, d delta, finish string) {
	if !choice.begun {
		choice.begun = true
		s.push(choice, delta{Role: "assistant", Content: new("")}, "")
	}
	c := s.chunk()
	c.Choices = []chunkChoice{{Index: choice.index, Delta: d}}
	if finish != "" {
		c.Choices[0].FinishReason = &finish
	}
	if s.call.includeUsage {
		c.Usage = jsontext.Value("null")
	}
	s.queue = append(s.queue, providers.Chunk{Data: encode(c)})
}

func (s *stream) chunk() chunk {
	return chunk{ID: s.id, Object: "chat.completion.chunk", Created: s.created, Model: s.model}
}

// encode cannot fail: a chunk has only strings, numbers and JSON of ours.
func encode(c chunk) []byte {
	b, _ := json.Marshal(c, jsontext.AllowInvalidUTF8(true))
	return b
}

var _ events = (*wire.Events)(nil)
