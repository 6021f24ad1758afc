package anthropic

import (
	"cmp"
	"errors"
	"io"

	"github.com/go-json-experiment/json"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type stream struct {
	wire.ChunkQueue
	events   *wire.Events
	provider *Provider
	info     requestInfo

	started    bool // message_start has arrived
	blocks     map[int64]*openBlock
	calls      int // tool calls that have started
	stopReason string
	counted    usage
	final      bool // counted has the total of the output
	bytes      int  // of the output, to estimate its tokens
	answers    int  // calls of the answer tool
}

type openBlock struct {
	kind           blockKind
	call           int    // index of a tool call
	input          string // input in the block's start
	hasInput       bool   // some input was sent
	thinkingBytes  int
	signatureBytes int
}

type blockKind int

const (
	ignoredBlock blockKind = iota
	textKind
	thinkingKind
	callKind
	answerKind // a call of the answer tool
)

type event struct {
	Type    string         `json:"type"`
	Index   int64          `json:"index"`
	Message *response      `json:"message"`
	Block   *responseBlock `json:"content_block"`
	Delta   struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
}

func (s *stream) start() error {
	for !s.started {
		if err := s.read(); err != nil {
			return err
		}
	}
	return nil
}

// Next returns the next chunk. After an error it returns that error again.
func (s *stream) Next() (providers.Chunk, error) {
	chunk, err := s.ChunkQueue.Next(s.read)
	if err == io.EOF {
		s.events.Drain()
	}
	return chunk, err
}

// SoFar returns the input as counted by the provider and, until it counts the
// output at the end, an estimate of that.
func (s *stream) SoFar() providers.Usage {
	u := s.usage()
	return u.total()
}

func (s *stream) usage() usage {
	u := s.counted
	if !s.final || u.Output == 0 { // a total of 0 is wrong if something was sent
		u.estimateOutput(s.bytes)
	}
	u.estimateInput(s.info)
	return u
}

// Close ends the request.
func (s *stream) Close() error { return s.events.Close() }

// read handles one event. Unknown events are ignored, as Anthropic asks: new
// ones may be added at any time.
func (s *stream) read() error {
	name, data, err := s.events.Next()
	if err == io.EOF {
		return &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before message_stop")}
	}
	if err != nil {
		return err
	}
	var e event
	if err := json.Unmarshal(data, &e, wire.Lenient); err != nil {
		return s.provider.protocolFailure("event %.40q: %w", name, err)
	}
	switch e.Type = cmp.Or(e.Type, name); e.Type {
	case "error":
		return s.provider.failureIn(data)
	case "message_start":
		return s.startMessage(&e)
	case "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop":
		if !s.started {
			return s.provider.protocolFailure("%s before message_start", e.Type)
		}
	}
	switch e.Type {
	case "content_block_start":
		s.startBlock(&e)
	case "content_block_delta":
		s.continueBlock(&e)
	case "content_block_stop":
		s.endBlock(&e)
	case "message_delta":
		if e.Delta.StopReason != "" {
			s.stopReason = e.Delta.StopReason
		}
		if e.Usage != nil {
			s.counted.merge(e.Usage)
			s.final = true
		}
	case "message_stop":
		s.finish()
		return io.EOF
	}
	return nil
}

func (s *stream) startMessage(e *event) error {
	if e.Message == nil || s.started {
		return s.provider.protocolFailure("message_start without a message, or a second one")
	}
	if e.Message.Model != "" {
		s.Head.Model = e.Message.Model
	}
	if e.Message.Usage != nil {
		s.counted.merge(e.Message.Usage)
	}
	s.started = true
	s.blocks = map[int64]*openBlock{}
	s.send(openai.FirstDelta(), "")
	return nil
}

func (s *stream) startBlock(e *event) {
	if e.Block == nil {
		return
	}
	b := new(openBlock)
	s.blocks[e.Index] = b
	switch {
	case e.Block.Type == "text" && s.info.answerTool == "":
		b.kind = textKind
		s.write(b, e.Block.Text)
	case e.Block.Type == "thinking":
		b.kind = thinkingKind
		s.write(b, e.Block.Thinking)
	case e.Block.Type == "tool_use" && e.Block.Name == s.info.answerTool:
		if s.answers++; s.answers == 1 {
			b.kind = answerKind
			b.input = e.Block.arguments()
		}
	case e.Block.Type == "tool_use":
		b.kind = callKind
		b.call = s.calls
		b.input = e.Block.arguments()
		s.calls++
		call := openai.FunctionToolCall(s.provider.newID("call_"), e.Block.Name, "")
		call.Index = &b.call
		s.send(openai.Delta{ToolCalls: []openai.ToolCall{call}}, "")
		s.bytes += len(e.Block.Name)
	}
}

func (s *stream) continueBlock(e *event) {
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
		b.signatureBytes += len(d.Signature)
	case d.Type == "input_json_delta" && (b.kind == callKind || b.kind == answerKind):
		s.write(b, d.PartialJSON)
	}
}

func (s *stream) write(b *openBlock, text string) {
	if text == "" {
		return
	}
	b.hasInput = true
	s.bytes += len(text)
	switch b.kind {
	case textKind, answerKind:
		s.send(openai.Delta{Content: &text}, "")
	case thinkingKind:
		b.thinkingBytes += len(text)
		s.send(openai.Delta{ReasoningContent: text}, "")
	case callKind:
		call := openai.ToolCall{Index: &b.call, Function: &openai.FunctionCall{Arguments: text}}
		s.send(openai.Delta{ToolCalls: []openai.ToolCall{call}}, "")
	}
}

func (s *stream) endBlock(e *event) {
	b := s.blocks[e.Index]
	if b == nil {
		return
	}
	delete(s.blocks, e.Index)
	switch b.kind {
	case callKind, answerKind:
		if !b.hasInput { // a call without parameters streams no input
			s.write(b, b.input)
		}
	case thinkingKind:
		// The thinking that is shown is a summary or nothing at all. The signature
		// has all of it in base64, and all of it is charged.
		s.bytes += max(0, b.signatureBytes*3/4-b.thinkingBytes)
	}
}

func (s *stream) finish() {
	s.send(openai.Delta{}, finishReason(s.stopReason, s.calls > 0))
	u := s.usage()
	s.SendUsage(u.total(), u.Details.Thinking)
}

func (s *stream) send(delta openai.Delta, finish string) { s.Send(0, delta, finish) }
