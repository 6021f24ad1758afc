package messages

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// response is a message of the model.
type response struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Role         string          `json:"role"`
	Model        string          `json:"model"`
	Content      []responseBlock `json:"content"`
	StopReason   *string         `json:"stop_reason"`
	StopSequence *string         `json:"stop_sequence"` // always null: chat completions don't tell which one it was
	Usage        Usage           `json:"usage"`
}

type responseBlock struct {
	Type      string         `json:"type"`
	Text      *string        `json:"text,omitzero"`
	Thinking  *string        `json:"thinking,omitzero"`
	Signature *string        `json:"signature,omitzero"`
	ID        string         `json:"id,omitzero"`
	Name      string         `json:"name,omitzero"`
	Input     jsontext.Value `json:"input,omitzero"`
}

func textBlock(text string) responseBlock { return responseBlock{Type: "text", Text: &text} }

// thinkingBlock has no signature: only Anthropic's models need one.
func thinkingBlock(text string) responseBlock {
	return responseBlock{Type: "thinking", Thinking: &text, Signature: new("")}
}

// Usage counts tokens as Anthropic does: those read from or written to the cache aren't part of the
// input.
type Usage struct {
	Input         int64 `json:"input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Output        int64 `json:"output_tokens"`
}

// NewUsage returns the usage in Anthropic's format.
func NewUsage(u providers.Usage) Usage {
	return Usage{Input: max(0, u.InputTokens-u.CachedInput-u.CacheWrite), CacheCreation: u.CacheWrite, CacheRead: u.CachedInput, Output: u.OutputTokens}
}

// completion is a chat completion or a chunk of one. They differ only in message and delta.
// Servers differ in the types of some fields.
type completion struct {
	Model   jsontext.Value `json:"model"`
	Choices []choice       `json:"choices"`
}

type choice struct {
	Index        jsontext.Value `json:"index"`
	Message      choiceMessage  `json:"message"`
	Delta        choiceMessage  `json:"delta"`
	FinishReason jsontext.Value `json:"finish_reason"`
}

type choiceMessage struct {
	Content          jsontext.Value `json:"content"`
	Refusal          jsontext.Value `json:"refusal"`
	ReasoningContent jsontext.Value `json:"reasoning_content"`
	Reasoning        jsontext.Value `json:"reasoning"` // OpenRouter's
	ToolCalls        []toolCall     `json:"tool_calls"`
}

func (m *choiceMessage) thinking() string {
	if text := textOf(m.ReasoningContent); text != "" {
		return text
	}
	return textOf(m.Reasoning)
}

type toolCall struct {
	Index    *float64       `json:"index"`
	ID       jsontext.Value `json:"id"`
	Function struct {
		Name      jsontext.Value `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

func readCompletion(data []byte) (*completion, error) {
	c := new(completion)
	if err := json.Unmarshal(data, c, lenient); err != nil {
		return nil, fault.New(fault.Upstream, "The model provider returned an invalid response.").Because(err)
	}
	return c, nil
}

// firstChoice returns the choice that the client asked for, or nil in a chunk without one.
func (c *completion) firstChoice() *choice {
	for i := range c.Choices {
		if at := c.Choices[i].Index; at.Kind() != jsontext.KindNumber || at[0] == '0' {
			return &c.Choices[i]
		}
	}
	return nil
}

// textOf returns a string. Mistral's arrays of parts are joined, and other types are empty.
func textOf(v jsontext.Value) string {
	switch v.Kind() {
	case jsontext.KindString:
		text, _ := jsontext.AppendUnquote(nil, v)
		return string(text)
	case jsontext.KindBeginArray:
		var parts []struct {
			Text string `json:"text"`
		}
		_ = json.Unmarshal(v, &parts, lenient) // what is readable counts
		var all strings.Builder
		for _, p := range parts {
			all.WriteString(p.Text)
		}
		return all.String()
	}
	return ""
}

// argumentsOf returns the arguments of a call, which some servers don't wrap in a string.
func argumentsOf(v jsontext.Value) string {
	if v.Kind() == jsontext.KindBeginObject {
		return string(v)
	}
	return textOf(v)
}

const maxInputDepth = 128

// toolInput returns arguments as an object. Arguments that aren't JSON get the key that Anthropic
// recommends for them.
func toolInput(arguments string) jsontext.Value {
	v := jsontext.Value(strings.TrimSpace(arguments))
	switch {
	case len(v) == 0:
		return jsontext.Value("{}")
	case jsonbody.CheckDepth(v, maxInputDepth) == nil && v.IsValid(jsontext.AllowDuplicateNames(true)) && v.Kind() == jsontext.KindBeginObject:
		return v
	}
	invalid := openai.OrderedString(arguments)
	return jsontext.Value(`{"INVALID_JSON":` + string(invalid.Scalar) + `}`)
}

// stopReason translates a finish reason.
func stopReason(finish string, hasCalls, refused bool) string {
	switch {
	case refused, finish == "content_filter":
		return "refusal"
	case finish == "length":
		return "max_tokens"
	case hasCalls:
		return "tool_use"
	}
	return "end_turn"
}

// Message translates a chat completion to a message with an ID. fallback is the model's name if
// the completion has none.
func (r *Request) Message(id, fallback string, body []byte, u providers.Usage) ([]byte, error) {
	c, err := readCompletion(body)
	if err != nil {
		return nil, err
	}
	out := response{ID: id, Type: "message", Role: "assistant", Model: textOf(c.Model), Content: []responseBlock{}, Usage: NewUsage(u)}
	if out.Model == "" {
		out.Model = fallback
	}
	first := c.firstChoice()
	if first == nil {
		return nil, fault.New(fault.Upstream, "The model provider returned a response without choices.")
	}
	m := &first.Message
	if text := m.thinking(); text != "" && r.thinks {
		out.Content = append(out.Content, thinkingBlock(text))
	}
	refusal := textOf(m.Refusal)
	if text := textOf(m.Content) + refusal; text != "" {
		out.Content = append(out.Content, textBlock(text))
	}
	for _, call := range m.ToolCalls {
		out.Content = append(out.Content, responseBlock{Type: "tool_use", ID: toolUseID(textOf(call.ID)), Name: textOf(call.Function.Name), Input: toolInput(argumentsOf(call.Function.Arguments))})
	}
	out.StopReason = new(stopReason(textOf(first.FinishReason), len(m.ToolCalls) > 0, refusal != ""))
	return encode(out), nil
}

// encode can't fail: there are only strings, numbers and valid JSON, and invalid UTF-8 is replaced.
func encode(v any) []byte {
	b, _ := json.Marshal(v, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	return b
}
