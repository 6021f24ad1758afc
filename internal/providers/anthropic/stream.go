package anthropic

import (
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// stream turns the Messages API's events into chunks.
type stream struct {
	events   *wire.Events
	provider *Provider
	asked    asked
	head     head

	first   []byte // what every chunk begins with; nil until the message has
	blocks  map[int64]*openBlock
	calls   int // tool calls that have begun
	stop    string
	counted replyUsage
	final   bool // counted has the output's total
	sent    int  // bytes of output, for an estimate until then
	answers int  // calls of the answer tool

	ready []providers.Chunk
	err   error // once ready is empty
}

// openBlock is a block that has not ended.
type openBlock struct {
	kind      blockKind
	call      int    // of a tool call, its index
	input     string // that came with the block's start
	written   bool   // some input has been sent
	thought   int    // bytes of thinking
	signature int    // bytes of its signature
}

type blockKind int

const (
	ignoredBlock blockKind = iota
	textKind
	thinkingKind
	callKind
	answerKind // a call whose input is the answer
)

// event is any of the stream's events.
type event struct {
	Type    string      `json:"type"`
	Index   int64       `json:"index"`
	Message *reply      `json:"message"`
	Block   *replyBlock `json:"content_block"`
	Delta   struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *replyUsage `json:"usage"`
}

// begin reads up to the message's start.
func (s *stream) begin() error {
	for s.first == nil && s.err == nil {
		s.err = s.read()
	}
	return s.err
}

// Next returns the next chunk. After an error the stream is at its end.
func (s *stream) Next() (providers.Chunk, error) {
	for len(s.ready) == 0 && s.err == nil {
		s.err = s.read()
	}
	if len(s.ready) > 0 {
		chunk := s.ready[0]
		s.ready = s.ready[1:]
		return chunk, nil
	}
	if s.err == io.EOF {
		s.events.Drain()
	}
	return providers.Chunk{}, s.err
}

// SoFar is the input as the provider has counted it and, until it counts the
// output at the end, an estimate of what has come of that.
func (s *stream) SoFar() providers.Usage {
	return s.total().usage()
}

func (s *stream) total() *replyUsage {
	u := s.counted
	if !s.final || u.Output == 0 { // a total of nothing, where something was sent, is none
		u.fillOutput(s.sent)
	}
	u.fillInput(s.asked)
	return &u
}

// Close ends the call.
func (s *stream) Close() error { return s.events.Close() }

// read takes one event. Kinds that are not known are ignored, as Anthropic
// asks for: there may be new ones at any time.
func (s *stream) read() error {
	name, data, err := s.events.Next()
	if err == io.EOF {
		return &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before message_stop")}
	}
	if err != nil {
		return err
	}
	var e event
	if err := json.Unmarshal(data, &e, lenient); err != nil {
		return s.provider.garbled("event %.40q: %w", name, loggable(err))
	}
	if e.Type == "" {
		e.Type = name
	}
	switch e.Type {
	case "error":
		return s.provider.failed(data)
	case "message_start":
		return s.start(&e)
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		if s.first == nil {
			return s.provider.garbled("%s before message_start", e.Type)
		}
	}
	switch e.Type {
	case "content_block_start":
		s.startBlock(&e)
	case "content_block_delta":
		s.delta(&e)
	case "content_block_stop":
		s.stopBlock(&e)
	case "message_delta":
		s.messageDelta(&e)
	case "message_stop":
		s.finish()
		return io.EOF
	}
	return nil
}

func (s *stream) start(e *event) error {
	if e.Message == nil || s.first != nil {
		return s.provider.garbled("message_start without a message, or a second one")
	}
	if e.Message.Model != "" {
		s.head.model = e.Message.Model
	}
	if e.Message.Usage != nil {
		s.counted.merge(e.Message.Usage)
	}
	s.first = s.head.append(make([]byte, 0, 256), "chat.completion.chunk")
	s.first = append(s.first, `"choices":[`...)
	s.blocks = map[int64]*openBlock{}
	s.chunk([]byte(`{"role":"assistant","content":"","refusal":null}`))
	return nil
}

func (s *stream) startBlock(e *event) {
	if e.Block == nil {
		return
	}
	b := new(openBlock)
	s.blocks[e.Index] = b
	switch {
	case e.Block.Type == "text" && s.asked.answerTool == "":
		b.kind = textKind
		s.write(b, e.Block.Text)
	case e.Block.Type == "thinking":
		b.kind = thinkingKind
		s.write(b, e.Block.Thinking)
	case e.Block.Type == "tool_use" && e.Block.Name == s.asked.answerTool:
		if s.answers++; s.answers == 1 {
			b.kind = answerKind
			b.input = e.Block.arguments()
		}
	case e.Block.Type == "tool_use":
		b.kind = callKind
		b.call = s.calls
		b.input = e.Block.arguments()
		s.calls++
		d := s.appendCall(nil, b.call)
		d = append(d, `,"id":`...)
		d = appendString(d, s.provider.newID("call_"))
		d = append(d, `,"type":"function","function":{"name":`...)
		d = appendString(d, e.Block.Name)
		s.chunk(append(d, `,"arguments":""}}]}`...))
		s.sent += len(e.Block.Name)
	}
}

func (s *stream) delta(e *event) {
	b := s.blocks[e.Index]
	if b == nil {
		return
	}
	switch d := &e.Delta; {
	case d.Type == "text_delta" && b.kind == textKind:
		s.write(b, d.Text)
	case d.Type == "thinking_delta" && b.kind == thinkingKind:
		s.write(b, d.Thinking)
	case d.Type == "signature_delta" && b.kind == thinkingKind:
		b.signature += len(d.Signature)
	case d.Type == "input_json_delta" && (b.kind == callKind || b.kind == answerKind):
		s.write(b, d.PartialJSON)
	}
}

// write sends a piece of a block.
func (s *stream) write(b *openBlock, text string) {
	if text == "" {
		return
	}
	b.written = true
	s.sent += len(text)
	var d []byte
	switch b.kind {
	case textKind, answerKind:
		d = append(appendString([]byte(`{"content":`), text), '}')
	case thinkingKind:
		b.thought += len(text)
		d = append(appendString([]byte(`{"reasoning_content":`), text), '}')
	case callKind:
		d = append(s.appendCall(nil, b.call), `,"function":{"arguments":`...)
		d = append(appendString(d, text), `}}]}`...)
	}
	s.chunk(d)
}

func (s *stream) appendCall(d []byte, index int) []byte {
	d = append(d, `{"tool_calls":[{"index":`...)
	return strconv.AppendInt(d, int64(index), 10)
}

func (s *stream) stopBlock(e *event) {
	b := s.blocks[e.Index]
	if b == nil {
		return
	}
	delete(s.blocks, e.Index)
	switch b.kind {
	case callKind, answerKind:
		// A call without parameters streams none, and its text would be empty.
		if !b.written {
			s.write(b, b.input)
		}
	case thinkingKind:
		// What is shown of thinking is a summary or nothing at all. The
		// signature holds the whole, in base64, and all of it is paid for.
		s.sent += max(0, b.signature*3/4-b.thought)
	}
}

func (s *stream) messageDelta(e *event) {
	if e.Delta.StopReason != "" {
		s.stop = e.Delta.StopReason
	}
	if e.Usage != nil {
		s.counted.merge(e.Usage)
		s.final = true
	}
}

// finish sends the reason for the end, then the usage.
func (s *stream) finish() {
	s.send(append([]byte(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"`), finishReason(s.stop, s.calls > 0)+`"}`...))
	b := append(append([]byte(nil), s.first...), `],"usage":`...)
	total := s.total()
	b = append(appendUsage(b, total), '}')
	usage := total.usage()
	s.ready = append(s.ready, providers.Chunk{Data: b, Usage: &usage})
}

// chunk sends a delta of the only choice.
func (s *stream) chunk(delta []byte) {
	c := append([]byte(`{"index":0,"delta":`), delta...)
	s.send(append(c, `,"logprobs":null,"finish_reason":null}`...))
}

func (s *stream) send(choice []byte) {
	b := make([]byte, 0, len(s.first)+len(choice)+len(`],"usage":null}`))
	b = append(append(b, s.first...), choice...)
	if s.asked.includeUsage {
		b = append(b, `],"usage":null}`...)
	} else {
		b = append(b, `]}`...)
	}
	s.ready = append(s.ready, providers.Chunk{Data: b})
}
