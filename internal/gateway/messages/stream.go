package messages

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
)

// Names of events. Those of a message's start and end are also used by its thread.
const (
	MessageStart      = "message_start"
	contentBlockStart = "content_block_start"
	contentBlockDelta = "content_block_delta"
	contentBlockStop  = "content_block_stop"
	messageDelta      = "message_delta"
	MessageStop       = "message_stop"
)

// Stream translates the chunks of a chat completion to the events of a message.
type Stream struct {
	inner   providers.Stream
	request *Request
	head    response

	queue   []providers.Chunk
	err     error // returned after the queue
	started bool
	open    string // the type of the open block; "" for none
	index   int    // of the open block, or of the next one
	call    int    // the open call's index in the chat completion
	calls   int
	refused bool
	finish  string // the finish reason
	ended   bool   // the last events are sent
}

// NewStream translates a stream. model is the name for chunks that have none.
func (r *Request) NewStream(id, model string, inner providers.Stream) *Stream {
	return &Stream{inner: inner, request: r, head: response{ID: id, Type: "message", Role: "assistant", Model: model, Content: []responseBlock{}}}
}

// Next returns the next event. After an error it returns that error again.
func (s *Stream) Next() (providers.Chunk, error) {
	for len(s.queue) == 0 {
		if s.err != nil {
			return providers.Chunk{}, s.err
		}
		s.err = s.read()
	}
	next := s.queue[0]
	s.queue = s.queue[1:]
	return next, nil
}

// SoFar returns the usage of the chunks so far.
func (s *Stream) SoFar() providers.Usage { return s.inner.SoFar() }

// Close ends the request.
func (s *Stream) Close() error { return s.inner.Close() }

func (s *Stream) send(name string, event any) {
	s.queue = append(s.queue, providers.Chunk{Event: name, Data: encode(event)})
}

func (s *Stream) read() error {
	chunk, err := s.inner.Next()
	if err == io.EOF {
		if !s.ended { // the provider didn't count
			s.end(s.inner.SoFar(), nil)
		}
		return io.EOF
	}
	if err != nil {
		return err
	}
	if chunk.Usage != nil {
		s.end(*chunk.Usage, chunk.Usage)
		return nil
	}
	c, err := readCompletion(chunk.Data)
	if err != nil {
		return err
	}
	s.start(textOf(c.Model))
	first := c.firstChoice()
	if first == nil {
		return nil
	}
	if err := s.add(&first.Delta); err != nil {
		return err
	}
	if finish := textOf(first.FinishReason); finish != "" {
		s.finish = finish
		if s.closeBlock(); len(s.queue) == 0 {
			s.send("ping", event{Type: "ping"})
		}
	}
	if n := len(s.queue); n > 0 {
		s.queue[n-1].Whole = chunk.Whole
	}
	return nil
}

type event struct {
	Type    string         `json:"type"`
	Message *response      `json:"message,omitzero"`
	Index   *int           `json:"index,omitzero"`
	Block   *responseBlock `json:"content_block,omitzero"`
	Delta   any            `json:"delta,omitzero"`
	Usage   *Usage         `json:"usage,omitzero"`
}

type blockDelta struct {
	Type        string  `json:"type"`
	Text        *string `json:"text,omitzero"`
	Thinking    *string `json:"thinking,omitzero"`
	PartialJSON *string `json:"partial_json,omitzero"`
}

// stopDelta is the end of a message.
type stopDelta struct {
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

func (s *Stream) start(model string) {
	if s.started {
		return
	}
	s.started = true
	if model != "" {
		s.head.Model = model
	}
	s.head.Usage = NewUsage(s.inner.SoFar())
	s.send(MessageStart, event{Type: MessageStart, Message: &s.head})
}

func (s *Stream) add(d *choiceMessage) error {
	if text := d.thinking(); text != "" && s.request.thinks {
		s.openBlock("thinking", thinkingBlock(""))
		s.delta(blockDelta{Type: "thinking_delta", Thinking: &text})
	}
	refusal := textOf(d.Refusal)
	s.refused = s.refused || refusal != ""
	if text := textOf(d.Content) + refusal; text != "" {
		s.openBlock("text", textBlock(""))
		s.delta(blockDelta{Type: "text_delta", Text: &text})
	}
	for i := range d.ToolCalls {
		if err := s.addCall(&d.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

var errInterleaved = &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the parts of tool calls are interleaved")}

// addCall adds a part of a tool call. Servers without indexes start each call with its ID.
func (s *Stream) addCall(c *toolCall) error {
	id, index := textOf(c.ID), s.call
	switch {
	case c.Index != nil:
		index = int(*c.Index)
	case id != "" && s.calls > 0:
		index = s.call + 1
	}
	if s.open != "tool_use" || index != s.call {
		if s.calls > 0 && index <= s.call {
			return errInterleaved
		}
		s.closeBlock()
		s.call = index
		s.calls++
		s.openBlock("tool_use", responseBlock{Type: "tool_use", ID: toolUseID(id), Name: textOf(c.Function.Name), Input: toolInput("")})
	}
	if arguments := argumentsOf(c.Function.Arguments); arguments != "" {
		s.delta(blockDelta{Type: "input_json_delta", PartialJSON: &arguments})
	}
	return nil
}

// openBlock opens a block unless one of its type is open. Calls are always closed before.
func (s *Stream) openBlock(kind string, b responseBlock) {
	if s.open == kind {
		return
	}
	s.closeBlock()
	s.open = kind
	s.send(contentBlockStart, event{Type: contentBlockStart, Index: new(s.index), Block: &b})
}

func (s *Stream) closeBlock() {
	if s.open == "" {
		return
	}
	s.send(contentBlockStop, event{Type: contentBlockStop, Index: new(s.index)})
	s.open = ""
	s.index++
}

func (s *Stream) delta(d blockDelta) {
	s.send(contentBlockDelta, event{Type: contentBlockDelta, Index: new(s.index), Delta: d})
}

// end sends the last events. counted is the usage that the call is charged by, or nil if the
// provider didn't count.
func (s *Stream) end(u providers.Usage, counted *providers.Usage) {
	s.ended = true
	s.start("")
	s.closeBlock()
	s.queue = append(s.queue, Stop(stopReason(s.finish, s.calls > 0, s.refused), u)...)
	s.queue[len(s.queue)-2].Usage = counted
}

// Stop returns the two events that end a message.
func Stop(reason string, u providers.Usage) []providers.Chunk {
	usage := NewUsage(u)
	return []providers.Chunk{
		{Event: messageDelta, Data: encode(event{Type: messageDelta, Delta: stopDelta{StopReason: reason}, Usage: &usage})},
		{Event: MessageStop, Data: encode(event{Type: MessageStop})},
	}
}

// StopBlock returns the event that ends the block of a delta, or nothing if no block is open. next
// is the event that would have followed.
func StopBlock(next []byte) []providers.Chunk {
	var e struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	if err := json.Unmarshal(next, &e, lenient); err != nil || e.Type != contentBlockDelta && e.Type != contentBlockStop {
		return nil
	}
	return []providers.Chunk{{Event: contentBlockStop, Data: encode(event{Type: contentBlockStop, Index: &e.Index})}}
}
