package simulator

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// maxToolCalls bounds the calls of one message; OpenAI's limit is 128 tools.
const maxToolCalls = 128

func (r *request) validateMessages() error {
	if r.Messages == nil {
		return fault.Missing("messages", "messages is required: an array of messages")
	}
	if len(r.Messages) == 0 {
		return fault.Invalid("messages", "messages must have at least one message")
	}
	var open []toolCall // calls that still need their tool message
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role == "tool" {
			if err := m.answers(i, &open); err != nil {
				return err
			}
		} else if len(open) > 0 {
			return unanswered(i, open[0])
		}
		if err := m.validate(i); err != nil {
			return err
		}
		if len(m.ToolCalls) > 0 {
			open = slices.Clone(m.ToolCalls)
		}
	}
	if len(open) > 0 {
		return unanswered(len(r.Messages), open[0])
	}
	return nil
}

func unanswered(i int, call toolCall) error {
	param := fmt.Sprintf("messages[%d]", i)
	return fault.Invalid(param, "%s must be the tool message for the call %.80q: every tool call needs one, right after the assistant's message", param, call.ID)
}

// answers takes the call that a tool message answers off the open ones.
func (m *message) answers(i int, open *[]toolCall) error {
	param := fmt.Sprintf("messages[%d].tool_call_id", i)
	if m.ToolCallID == "" {
		return fault.Missing(param, "%s is required in a tool message", param)
	}
	at := slices.IndexFunc(*open, func(c toolCall) bool { return c.ID == m.ToolCallID })
	if at < 0 {
		return fault.Invalid(param, "%s %.80q is not an open call of the assistant's message before it", param, m.ToolCallID)
	}
	*open = slices.Delete(*open, at, at+1)
	return nil
}

func (m *message) validate(i int) error {
	param := func(field string) string { return fmt.Sprintf("messages[%d].%s", i, field) }
	switch m.Role {
	case "user", "assistant", "system", "developer", "tool":
	case "function": // the form before tools
		if m.Name == "" {
			return fault.Missing(param("name"), "%s is required in a function message", param("name"))
		}
	case "":
		return fault.Missing(param("role"), "%s is required: system, developer, user, assistant or tool", param("role"))
	default:
		return fault.Invalid(param("role"), "%s must be system, developer, user, assistant or tool", param("role"))
	}
	if len(m.ToolCalls) > 0 {
		if err := m.validateCalls(param("tool_calls")); err != nil {
			return err
		}
	}
	if m.Content.kind == jsontext.KindString { // the commonest, and always right
		return nil
	}
	return m.validateContent(param("content"))
}

func (m *message) validateCalls(param string) error {
	if m.Role != "assistant" {
		return fault.Invalid(param, "%s is only allowed in an assistant message", param)
	}
	if len(m.ToolCalls) > maxToolCalls {
		return fault.Invalid(param, "%s must have at most %d calls", param, maxToolCalls)
	}
	for i, call := range m.ToolCalls {
		at := func(field string) string { return fmt.Sprintf("%s[%d].%s", param, i, field) }
		switch {
		case call.ID == "":
			return fault.Missing(at("id"), "%s is required", at("id"))
		case call.Type != "" && call.Type != "function":
			return fault.Invalid(at("type"), "%s must be \"function\"", at("type"))
		case call.Function == nil:
			return fault.Missing(at("function"), "%s is required: an object with name and arguments", at("function"))
		case call.Function.Name == "":
			return fault.Missing(at("function.name"), "%s is required", at("function.name"))
		}
	}
	return nil
}

func (m *message) validateContent(param string) error {
	switch m.Content.kind {
	case jsontext.KindInvalid, jsontext.KindNull:
		// What the assistant did may stand in for what it said.
		if m.Role == "assistant" && (len(m.ToolCalls) > 0 || m.Function != nil || m.Refusal != "" || m.Audio.Kind() == jsontext.KindBeginObject) {
			return nil
		}
		return fault.Missing(param, "%s is required: a string or an array of parts; null is for an assistant message with tool_calls", param)
	case jsontext.KindBeginArray:
		if len(m.Content.parts) == 0 {
			return fault.Invalid(param, "%s must have at least one part", param)
		}
		for i := range m.Content.parts {
			if err := m.Content.parts[i].validate(fmt.Sprintf("%s[%d]", param, i), m.Role); err != nil {
				return err
			}
		}
		return nil
	}
	return fault.Invalid(param, "%s must be a string or an array of parts", param)
}

func (p *part) validate(param, role string) error {
	missing := func(field, what string) error {
		return fault.Missing(param+"."+field, "%s.%s is required: %s", param, field, what)
	}
	switch {
	case p.Type == "":
		return missing("type", "text, image_url, input_audio or file")
	case p.Type == "text":
		if p.Text == nil {
			return missing("text", "a string")
		}
		return nil
	case p.Type == "refusal" && role == "assistant":
		if p.Refusal == nil {
			return missing("refusal", "a string")
		}
		return nil
	case role != "user":
		return fault.Invalid(param+".type", "%s.type must be text: other parts belong in a user message", param)
	}
	switch p.Type {
	case "image_url":
		switch {
		case p.ImageURL == nil:
			return missing("image_url", "an object with url")
		case p.ImageURL.URL == "":
			return missing("image_url.url", "an https or data URL")
		case !slices.Contains([]string{"", "auto", "low", "high"}, p.ImageURL.Detail):
			return fault.Invalid(param+".image_url.detail", "%s.image_url.detail must be auto, low or high", param)
		}
	case "input_audio":
		switch {
		case p.InputAudio == nil:
			return missing("input_audio", "an object with data and format")
		case p.InputAudio.Data == "":
			return missing("input_audio.data", "base64 audio")
		case p.InputAudio.Format != "wav" && p.InputAudio.Format != "mp3":
			return fault.Invalid(param+".input_audio.format", "%s.input_audio.format must be wav or mp3", param)
		}
	case "file":
		if p.File == nil || p.File.ID == "" && p.File.Data == "" {
			return missing("file", "an object with file_id or file_data")
		}
	default:
		return fault.Invalid(param+".type", "%s.type must be text, image_url, input_audio or file", param)
	}
	return nil
}
