package bedrock

import (
	"bufio"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type stream struct {
	wire.ChunkQueue
	provider *Provider
	call     *call

	body    io.Closer
	events  *bufio.Reader
	decoder *eventstream.Decoder
	payload []byte // reused

	started    bool
	blocks     map[int64]*openBlock
	calls      int // tool calls that have started
	answers    int // calls of the answer tool
	stopReason string
	count      counter
}

type blockKind int

const (
	textKind blockKind = iota // also reasoning, which has no start
	callKind
	answerKind // a call of the answer tool
	droppedKind
)

type openBlock struct {
	kind     blockKind
	call     int // index of a tool call
	hasInput bool
}

// event has the fields of all events.
type event struct {
	Index int64 `json:"contentBlockIndex"`
	Start struct {
		ToolUse *toolUse `json:"toolUse"`
	} `json:"start"`
	Delta struct {
		Text    string `json:"text"`
		ToolUse struct {
			Input string `json:"input"`
		} `json:"toolUse"`
		Reasoning struct {
			Text string `json:"text"`
		} `json:"reasoningContent"`
	} `json:"delta"`
	StopReason string `json:"stopReason"`
	Usage      *usage `json:"usage"`
}

func newStream(body io.ReadCloser, s stream) *stream {
	s.body, s.events, s.decoder = body, bufio.NewReaderSize(body, 16<<10), eventstream.NewDecoder()
	s.blocks, s.count.prompt = map[int64]*openBlock{}, len(s.call.body)
	return &s
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
func (s *stream) Next() (providers.Chunk, error) { return s.ChunkQueue.Next(s.read) }

// SoFar returns an estimate until Bedrock counts at the end.
func (s *stream) SoFar() providers.Usage { return s.count.usage() }

// Close ends the request.
func (s *stream) Close() error { return s.body.Close() }

// read handles one message, whose checksums the library checks. Unknown events are of a later version.
func (s *stream) read() error {
	m, err := s.decoder.Decode(s.events, s.payload[:0])
	if err == io.EOF {
		return s.end()
	}
	if err != nil {
		if known, ok := errors.AsType[*providers.Failure](err); ok {
			return known
		}
		return wire.ProtocolFailure("the event stream is damaged: %w", err)
	}
	s.payload = m.Payload
	switch headerOf(m, ":message-type") {
	case "event":
	case "exception":
		return exceptionFailure(headerOf(m, ":exception-type"), m.Payload, s.provider.client.Secrets())
	default: // error
		return exceptionFailure(headerOf(m, ":error-code"), nil, nil)
	}
	var e event
	if err := json.Unmarshal(m.Payload, &e, wire.Lenient); err != nil {
		return wire.ProtocolFailure("an event of the stream isn't JSON")
	}
	kind := headerOf(m, ":event-type")
	if kind == "messageStart" {
		s.started = true
		s.Send(0, openai.FirstDelta(), "")
		return nil
	}
	if !s.started {
		return wire.ProtocolFailure("%.40q before messageStart", kind)
	}
	switch kind {
	case "contentBlockStart":
		s.startBlock(&e)
	case "contentBlockDelta":
		s.continueBlock(&e)
	case "contentBlockStop":
		if b := s.blocks[e.Index]; b != nil && !b.hasInput { // a call without parameters streams no input
			s.write(b, "{}")
		}
		delete(s.blocks, e.Index)
	case "messageStop":
		s.stopReason = e.StopReason
	case "metadata":
		s.count.counted = e.Usage
	}
	return nil
}

func headerOf(m eventstream.Message, name string) string {
	if v, ok := m.Headers.Get(name).(eventstream.StringValue); ok {
		return string(v)
	}
	return ""
}

func (s *stream) startBlock(e *event) {
	use := e.Start.ToolUse
	if use == nil {
		return
	}
	b := &openBlock{kind: droppedKind}
	s.blocks[e.Index] = b
	s.count.output += len(use.Name)
	switch {
	case s.call.answerTool != "" && use.Name == s.call.answerTool:
		if s.answers++; s.answers == 1 {
			b.kind = answerKind
		}
	case s.calls == 0 || !s.call.oneCall:
		b.kind, b.call = callKind, s.calls
		s.calls++
		c := openai.FunctionToolCall(s.provider.newID("call_"), use.Name, "")
		c.Index = &b.call
		s.Send(0, openai.Delta{ToolCalls: []openai.ToolCall{c}}, "")
	}
}

func (s *stream) continueBlock(e *event) {
	b := s.blocks[e.Index]
	if b == nil { // text and reasoning have no start
		b = &openBlock{kind: textKind, hasInput: true}
		s.blocks[e.Index] = b
	}
	if text := e.Delta.Reasoning.Text; text != "" {
		s.count.output += len(text)
		s.Send(0, openai.Delta{ReasoningContent: text}, "")
	}
	text := e.Delta.Text
	if b.kind != textKind {
		text = e.Delta.ToolUse.Input
	}
	if text != "" {
		s.count.output += len(text)
		s.write(b, text)
	}
}

func (s *stream) write(b *openBlock, text string) {
	b.hasInput = true
	switch {
	case b.kind == answerKind, b.kind == textKind && s.call.answerTool == "":
		s.Send(0, openai.Delta{Content: &text}, "")
	case b.kind == callKind:
		c := openai.ToolCall{Index: &b.call, Function: &openai.FunctionCall{Arguments: text}}
		s.Send(0, openai.Delta{ToolCalls: []openai.ToolCall{c}}, "")
	}
}

func (s *stream) end() error {
	if s.stopReason == "" {
		return &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before messageStop")}
	}
	s.Send(0, openai.Delta{}, finishReason(s.stopReason, s.calls > 0))
	s.SendUsage(s.count.usage(), 0)
	return io.EOF
}

// exceptionKinds are the kinds of failures by Bedrock's exceptions. Others are KindServer.
var exceptionKinds = map[string]providers.Kind{"throttlingException": providers.KindRateLimited, "validationException": providers.KindInvalid,
	"serviceUnavailableException": providers.KindOverloaded, "modelTimeoutException": providers.KindTimeout}

// exceptionFailure is the failure of an exception in a stream.
func exceptionFailure(kind string, payload jsontext.Value, secrets []string) *providers.Failure {
	f := &providers.Failure{Kind: providers.KindServer}
	if known, ok := exceptionKinds[kind]; ok {
		f.Kind = known
	}
	f.Err = errors.New(wire.Loggable(kind+": "+explain(f, payload), secrets...))
	return f
}
