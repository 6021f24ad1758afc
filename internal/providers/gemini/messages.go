package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers/wire"
)

// extraContent is where Google's own OpenAI-compatible API has the signature of
// a thought. Its clients send it back.
type extraContent struct {
	Google struct {
		ThoughtSignature string `json:"thought_signature"`
	} `json:"google"`
}

// dummySignature replaces the signature of a call that another model made or
// whose client dropped it. Google publishes it for this purpose.
const dummySignature = "skip_thought_signature_validator"

func (b *builder) setContents() error {
	if err := b.in.CheckMessages(); err != nil {
		return err
	}
	trailing := openai.TrailingInstructions(b.in.Messages)
	for i := range b.in.Messages {
		if err := b.addMessage(&b.in.Messages[i], fmt.Sprintf("messages[%d]", i), i >= trailing); err != nil {
			return err
		}
	}
	contents := b.out.Contents
	if len(contents) == 0 && len(b.instruction) == 0 {
		return fault.Invalid("messages", "messages must have some content.")
	}
	if n := len(contents); n > 0 && contents[n-1].Role == "model" && !b.model.prefill() {
		return fault.Invalid(b.lastModelAt, "%s must be from the user or a tool. This model cannot continue a message of the assistant.", b.lastModelAt)
	}
	// Gemini requires a content: an instruction alone becomes the user's.
	if len(b.instruction) > 0 && (len(contents) == 0 || b.model.noInstructions) {
		b.out.Contents = slices.Insert(contents, 0, content{Role: "user", Parts: b.instruction})
		b.instruction = nil
	}
	return nil
}

func (b *builder) instruct(text string) {
	b.instruction = b.appendText(b.instruction, text)
}

// addMessage adds a message. Trailing instructions follow the assistant's last
// message. The model shall respond to them, so they become the user's.
func (b *builder) addMessage(m *openai.Message, at string, trailing bool) error {
	switch m.Role {
	case "assistant":
		return b.addAssistant(m, at)
	case "tool":
		name, ok := b.callNames[m.ToolCallID]
		if !ok {
			return fault.Invalid(at+".tool_call_id", "%s.tool_call_id %.80q does not match a call of an assistant message before it.", at, m.ToolCallID)
		}
		return b.addResult(m, at, name)
	case "function": // the predecessor of tool
		return b.addResult(m, at, m.Name)
	}
	parts, err := b.contentParts(m, at+".content")
	if m.IsInstruction() && !trailing {
		b.instruction = append(b.instruction, parts...)
	} else {
		b.add("user", parts)
	}
	return err
}

// add appends a content. Gemini rejects empty ones, so they are dropped. Consecutive messages of
// the model become one, because a function call must follow the user or a function response.
func (b *builder) add(role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	b.inResults = false
	if n := len(b.out.Contents); n > 0 && role == "model" && b.out.Contents[n-1].Role == role {
		b.out.Contents[n-1].Parts = append(b.out.Contents[n-1].Parts, parts...)
		return
	}
	b.out.Contents = append(b.out.Contents, content{Role: role, Parts: parts})
}

func (b *builder) addAssistant(m *openai.Message, at string) (err error) {
	var parts []part
	if !m.Content.IsNull() {
		if parts, err = b.contentParts(m, at+".content"); err != nil {
			return err
		}
	}
	parts = b.appendText(parts, m.Refusal)
	calls := slices.Clip(m.ToolCalls)
	if m.FunctionCall != nil {
		calls = append(calls, openai.ToolCall{Function: m.FunctionCall})
	}
	for i := range calls {
		here := fmt.Sprintf("%s.tool_calls[%d]", at, i)
		if i == len(m.ToolCalls) {
			here = at + ".function_call"
		}
		p, err := b.functionCall(&calls[i], here)
		if err != nil {
			return err
		}
		if i == 0 && p.ThoughtSignature == "" && b.model.requiresSignatures() {
			p.ThoughtSignature = dummySignature // only the first call of a step needs one
		}
		parts = append(parts, p)
	}
	if len(parts) > 0 {
		b.lastModelAt = at
	}
	b.add("model", parts)
	return nil
}

func (b *builder) functionCall(c *openai.ToolCall, at string) (part, error) {
	if err := c.Check(at); err != nil {
		return part{}, err
	}
	args, err := c.Function.Object(at + ".function")
	if err != nil {
		return part{}, err
	}
	if c.ID != "" {
		b.callNames[c.ID] = c.Function.Name
	}
	b.textBytes += len(args)
	var extra extraContent
	if len(c.Extra) > 0 {
		_ = json.Unmarshal(c.Extra, &extra) // ignore what other providers have there
	}
	return part{
		FunctionCall:     &functionCall{ID: c.ID, Name: c.Function.Name, Args: args},
		ThoughtSignature: extra.Google.ThoughtSignature,
	}, nil
}

// addResult adds the result of a function. Results of one step belong in one content.
func (b *builder) addResult(m *openai.Message, at, name string) error {
	parts, err := b.contentParts(m, at+".content")
	if err != nil {
		return err
	}
	var text string
	for _, p := range parts {
		text += p.Text
	}
	result := part{FunctionResponse: &functionResponse{ID: m.ToolCallID, Name: name, Response: resultObject(text)}}
	if b.inResults {
		last := &b.out.Contents[len(b.out.Contents)-1]
		last.Parts = append(last.Parts, result)
		return nil
	}
	b.add("user", []part{result})
	b.inResults = true
	return nil
}

// maxResultDepth is the limit of a request body, which can't see into strings.
const maxResultDepth = 128

// resultObject returns a result as a JSON object: as it is, or in the member
// that Gemini reads as the output.
func resultObject(text string) jsontext.Value {
	v := jsontext.Value(text)
	if jsonbody.CheckDepth(v, maxResultDepth) != nil || !v.IsValid() || !hasExactNumbers(v) {
		v, _ = jsontext.AppendQuote(nil, text)
	} else if v.Kind() == jsontext.KindBeginObject {
		return v
	}
	return append(append(jsontext.Value(`{"output":`), v...), '}')
}

// hasExactNumbers reports whether all numbers survive as a float64, as which
// Gemini reads them: an ID of 19 digits would change, and 1.10 become 1.1.
func hasExactNumbers(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v), wire.Lenient)
	for {
		t, err := d.ReadToken()
		if err != nil {
			return true // the end: the value is valid
		}
		if t.Kind() == jsontext.KindNumber {
			if f, err := t.Float(); err != nil || strconv.FormatFloat(f, 'f', -1, 64) != t.String() {
				return false
			}
		}
	}
}
