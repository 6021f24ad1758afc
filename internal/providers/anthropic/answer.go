package anthropic

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
)

// reply is a message of the model, or the beginning of a streamed one.
type reply struct {
	Type       string       `json:"type"`
	Model      string       `json:"model"`
	Content    []replyBlock `json:"content"`
	StopReason string       `json:"stop_reason"`
	Usage      *replyUsage  `json:"usage"`
}

type replyBlock struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	Thinking string         `json:"thinking"`
	Name     string         `json:"name"`
	Input    jsontext.Value `json:"input"`
}

type replyUsage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Details       struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`

	estimated bool
}

// maxTokens is beyond any context window, and safe to add up.
const maxTokens = 1 << 40

// merge adds a later report of the same call. Its counts are totals, and one
// that is left out is 0, so the larger is the right one.
func (u *replyUsage) merge(later *replyUsage) {
	take := func(to *int64, from int64) { *to = max(*to, min(from, maxTokens)) }
	take(&u.Input, later.Input)
	take(&u.Output, later.Output)
	take(&u.CacheCreation, later.CacheCreation)
	take(&u.CacheRead, later.CacheRead)
	take(&u.Details.Thinking, later.Details.Thinking)
}

// usage counts as OpenAI does: what came from the cache or went into it is
// part of the input.
func (u *replyUsage) usage() providers.Usage {
	return providers.Usage{
		InputTokens:  u.Input + u.CacheCreation + u.CacheRead,
		OutputTokens: u.Output,
		CachedInput:  u.CacheRead,
		CacheWrite:   u.CacheCreation,
		Estimated:    u.estimated,
	}
}

// fillInput is for servers that do not count.
func (u *replyUsage) fillInput(asked asked) {
	if u.usage().InputTokens == 0 {
		u.Input, u.estimated = estimate(asked.bytes), true
	}
}

// fillOutput is for servers that do not count, or not yet.
func (u *replyUsage) fillOutput(sent int) {
	if n := estimate(sent); n > u.Output {
		u.Output, u.estimated = n, true
	}
}

// estimate is for texts that nobody has counted. Four bytes make a token of
// English; other languages have more bytes and more tokens in a word.
func estimate(bytes int) int64 { return int64(bytes+3) / 4 }

// said is what a reply says, in OpenAI's terms.
type said struct {
	text      string
	reasoning string
	calls     []functionCall
	finish    string
}

func (s *said) bytes() int {
	n := len(s.text) + len(s.reasoning)
	for _, call := range s.calls {
		n += len(call.Name) + len(call.Arguments)
	}
	return n
}

// answer translates a plain reply.
func (p *Provider) answer(text []byte, asked asked, head head) (*providers.Answer, error) {
	var r reply
	if err := json.Unmarshal(text, &r, lenient); err != nil {
		return nil, p.garbled("not a message: %w", loggable(err))
	}
	switch r.Type {
	case "message":
	case "error":
		return nil, p.failed(text)
	default:
		return nil, p.garbled("a %.40q instead of a message", r.Type)
	}
	if r.Model != "" {
		head.model = r.Model
	}
	s := r.said(asked)
	var counted replyUsage
	if r.Usage != nil {
		counted.merge(r.Usage)
	}
	if counted.Output == 0 {
		counted.fillOutput(s.bytes())
	}
	counted.fillInput(asked)
	return &providers.Answer{Body: p.body(head, s, &counted), Usage: counted.usage()}, nil
}

// said collects a reply's blocks. Where a tool's input is the answer, nothing
// else is: a word beside it would break the caller's parser.
func (r *reply) said(asked asked) said {
	var s said
	var text, reasoning strings.Builder
	answered := false
	for i := range r.Content {
		switch b := &r.Content[i]; {
		case b.Type == "text" && asked.answerTool == "":
			text.WriteString(b.Text)
		case b.Type == "thinking":
			reasoning.WriteString(b.Thinking)
		case b.Type == "tool_use" && b.Name == asked.answerTool:
			if !answered {
				text.WriteString(b.arguments())
			}
			answered = true
		case b.Type == "tool_use":
			s.calls = append(s.calls, functionCall{Name: b.Name, Arguments: b.arguments()})
		}
	}
	s.text, s.reasoning = text.String(), reasoning.String()
	s.finish = finishReason(r.StopReason, len(s.calls) > 0)
	return s
}

func (b *replyBlock) arguments() string {
	if b.Input.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	return compact(b.Input)
}

// finishReason is OpenAI's word for why the model stopped.
func finishReason(stop string, calls bool) string {
	switch stop {
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "refusal":
		return "content_filter"
	case "tool_use":
		if calls {
			return "tool_calls"
		}
	}
	// end_turn, stop_sequence, and pause_turn, which comes only with tools
	// that run at Anthropic and that we never offer.
	return "stop"
}

// head is what an answer and every chunk of it begin with.
type head struct {
	id      string
	created int64
	model   string
}

func (h *head) append(b []byte, object string) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, h.id)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, h.created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, h.model)
	return append(b, ',')
}

// body writes a chat completion. The shape is fixed, so it is written by hand.
func (p *Provider) body(head head, s said, counted *replyUsage) []byte {
	b := head.append(make([]byte, 0, 512+len(s.text)+len(s.text)/8+len(s.reasoning)), "chat.completion")
	b = append(b, `"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if s.text == "" && len(s.calls) > 0 {
		b = append(b, `null`...)
	} else {
		b = appendString(b, s.text)
	}
	b = append(b, `,"refusal":null,"annotations":[]`...)
	if s.reasoning != "" {
		b = append(b, `,"reasoning_content":`...)
		b = appendString(b, s.reasoning)
	}
	if len(s.calls) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, call := range s.calls {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"id":`...)
			b = appendString(b, p.newID("call_"))
			b = append(b, `,"type":"function","function":{"name":`...)
			b = appendString(b, call.Name)
			b = append(b, `,"arguments":`...)
			b = appendString(b, call.Arguments)
			b = append(b, `}}`...)
		}
		b = append(b, ']')
	}
	b = append(b, `},"logprobs":null,"finish_reason":"`...)
	b = append(b, s.finish...)
	b = append(b, `"}],"usage":`...)
	b = appendUsage(b, counted)
	return append(b, '}')
}

func appendUsage(b []byte, u *replyUsage) []byte {
	sum := u.usage()
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, sum.InputTokens, 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, sum.OutputTokens, 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, sum.InputTokens+sum.OutputTokens, 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, sum.CachedInput, 10)
	b = append(b, `,"cache_write_tokens":`...)
	b = strconv.AppendInt(b, sum.CacheWrite, 10)
	b = append(b, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, min(u.Details.Thinking, sum.OutputTokens), 10)
	return append(b, `,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

// appendString writes a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
