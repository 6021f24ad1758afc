package messages

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"input_schema"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	DisableParallel bool   `json:"disable_parallel_tool_use"`
}

func (r *Request) addTools(in *request) error {
	for i := range in.Tools {
		t, at := &in.Tools[i], "tools["+strconv.Itoa(i)+"]"
		if t.Type != "" && t.Type != "custom" {
			return fault.Invalid(at+".type", "%s.type must be custom. Only models of Anthropic's providers support %.60q.", at, t.Type)
		}
		if t.Name == "" {
			return fault.Missing(at+".name", "%s.name is required.", at)
		}
		if t.InputSchema == nil {
			return fault.Missing(at+".input_schema", "%s.input_schema is required: a JSON Schema of an object.", at)
		}
		schema, ok := openai.ObjectSchema(t.InputSchema)
		if !ok {
			return fault.Invalid(at+".input_schema", "%s.input_schema must be a JSON Schema of an object.", at)
		}
		r.chat.Tools = append(r.chat.Tools, openai.Tool{Type: "function", Function: &openai.Function{Name: t.Name, Description: t.Description, Parameters: schema}})
	}
	return r.setToolChoice(in)
}

func (r *Request) setToolChoice(in *request) error {
	c := in.ToolChoice
	if c == nil {
		return nil
	}
	out := &r.chat.ToolChoice
	mode := map[string]string{"auto": "auto", "any": "required", "none": "none"}[c.Type]
	switch {
	case len(in.Tools) == 0:
		return fault.Invalid("tool_choice", "tool_choice requires tools.")
	case mode != "":
		*out = openai.StringOr[openai.ChoiceObject]{Kind: jsontext.KindString, Text: mode}
	case c.Type != "tool":
		return fault.Invalid("tool_choice.type", "tool_choice.type must be auto, any, tool or none.")
	case r.chat.ToolIndex(c.Name) < 0:
		return fault.Invalid("tool_choice.name", "tool_choice.name %.80q is not one of the tools.", c.Name)
	default:
		*out = openai.StringOr[openai.ChoiceObject]{Kind: jsontext.KindBeginObject, Value: openai.ChoiceObject{Type: "function", Function: &openai.Function{Name: c.Name}}}
	}
	if c.DisableParallel {
		r.chat.ParallelToolCalls = new(false)
	}
	return nil
}

// pendingUses are the tool uses that still need their tool_result.
type pendingUses []string

func (p pendingUses) check(at string) error {
	if len(p) == 0 {
		return nil
	}
	return fault.Invalid(at, "%s must have a tool_result for the tool_use %.80q. Every tool_use needs one in the next message.", at, p[0])
}

func (r *Request) addAssistant(m *message, at string) (pending pendingUses, err error) {
	out, from := openai.Message{Role: "assistant"}, origin{at: at}
	var text strings.Builder
	err = eachBlock(&m.Content, at+".content", func(b *block, at string) error {
		switch b.Type {
		case "text":
			part, err := b.text(at)
			text.WriteString(part)
			return err
		case "thinking", "redacted_thinking": // only the model that wrote it can read it
			return nil
		case "tool_use":
			call, err := b.toolCall(at)
			out.ToolCalls = append(out.ToolCalls, call)
			from.calls = append(from.calls, at)
			pending = append(pending, b.ID)
			return err
		}
		return unsupportedBlock(b.Type, at, "text, thinking or tool_use")
	})
	if err != nil {
		return nil, err
	}
	if text.Len() > 0 || len(out.ToolCalls) == 0 {
		out.Content = openai.TextContent(text.String())
	}
	r.add(out, from)
	return pending, nil
}

func (b *block) toolCall(at string) (openai.ToolCall, error) {
	switch {
	case b.ID == "":
		return openai.ToolCall{}, fault.Missing(at+".id", "%s.id is required.", at)
	case b.Name == "":
		return openai.ToolCall{}, fault.Missing(at+".name", "%s.name is required.", at)
	case b.Input.Kind() != jsontext.KindBeginObject:
		return openai.ToolCall{}, fault.Invalid(at+".input", "%s.input must be an object.", at)
	}
	return openai.FunctionToolCall(b.ID, b.Name, openai.Compact(b.Input)), nil
}

// addToolResult adds the message of a tool. Tools return text in chat completions, so images and
// documents go into the user's message that follows.
func (r *Request) addToolResult(b *block, at string, pending *pendingUses, own *parts) error {
	i := slices.Index(*pending, b.ToolUseID)
	switch {
	case b.ToolUseID == "":
		return fault.Missing(at+".tool_use_id", "%s.tool_use_id is required.", at)
	case i < 0:
		return fault.Invalid(at+".tool_use_id", "%s.tool_use_id %.80q does not match a tool_use of the assistant message before it.", at, b.ToolUseID)
	}
	*pending = slices.Delete(*pending, i, i+1)
	var text strings.Builder
	if b.IsError {
		text.WriteString("Error: ")
	}
	if !b.Content.IsNull() {
		err := eachBlock(&b.Content, at+".content", func(inner *block, at string) error {
			switch inner.Type {
			case "text":
				part, err := inner.text(at)
				text.WriteString(part)
				return err
			case "image", "document":
				text.WriteString("[The " + inner.Type + " is in the next message.]")
				return own.addBlock(inner, at)
			}
			return unsupportedBlock(inner.Type, at, "text, image or document")
		})
		if err != nil {
			return err
		}
	}
	r.add(openai.Message{Role: "tool", ToolCallID: b.ToolUseID, Content: openai.TextContent(text.String())}, origin{at: at})
	return nil
}

// toolUseID returns an ID that Anthropic's API accepts, for one of another provider.
func toolUseID(id string) string {
	if id != "" && !strings.ContainsFunc(id, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	}) {
		return id
	}
	return "toolu_" + digest(id)[:24]
}
