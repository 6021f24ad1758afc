package simulator

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

const (
	maxChoices   = 8
	maxStops     = 4
	maxTools     = 128 // OpenAI's limit
	maxToolCalls = 128 // of one message
)

// request is a chat request with the fields read that have several forms.
// Fields that the simulator doesn't read have no effect.
type request struct {
	*openai.ChatRequest
	stops  []string
	choice openai.ToolChoice
}

// parseRequest decodes a request and rejects everything that a provider would
// reject.
func parseRequest(body []byte, stream bool) (*request, error) {
	decoded, err := openai.Decode(body)
	if err != nil {
		return nil, err
	}
	r := &request{ChatRequest: decoded}
	if err := r.checkNumbers(); err != nil {
		return nil, err
	}
	if r.StreamOptions != nil && !stream {
		return nil, fault.Invalid("stream_options", "stream_options is only allowed if stream is true.")
	}
	for i, m := range r.Modalities {
		if m != "text" {
			param := fmt.Sprintf("modalities[%d]", i)
			return nil, fault.Invalid(param, "%s must be \"text\". Other output is not simulated.", param)
		}
	}
	if r.stops, err = r.ReadStop(); err != nil {
		return nil, err
	}
	if len(r.stops) > maxStops {
		return nil, fault.Invalid("stop", "stop must have at most %d strings.", maxStops)
	}
	if err := r.checkTools(); err != nil {
		return nil, err
	}
	if f := r.ResponseFormat; f != nil {
		if err := f.Check(); err != nil {
			return nil, err
		}
		if f.Type == "json_schema" {
			if err := f.JSONSchema.CheckName(); err != nil {
				return nil, err
			}
		}
	}
	return r, r.checkConversation()
}

func (r *request) checkNumbers() error {
	if r.N != nil && (*r.N < 1 || *r.N > maxChoices) {
		return fault.Invalid("n", "n must be from 1 to %d.", maxChoices)
	}
	if r.TopLogprobs != nil && (*r.TopLogprobs < 0 || *r.TopLogprobs > 20) {
		return fault.Invalid("top_logprobs", "top_logprobs must be from 0 to 20.")
	}
	if r.TopLogprobs != nil && !r.Logprobs {
		return fault.Invalid("top_logprobs", "top_logprobs requires logprobs to be true.")
	}
	if _, err := r.MaxOutput(0); err != nil {
		return err
	}
	return r.CheckSampling()
}

func (r *request) checkTools() (err error) {
	if len(r.Tools) > maxTools {
		return fault.Invalid("tools", "tools must have at most %d tools.", maxTools)
	}
	for i := range r.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if err := r.Tools[i].Check(at); err != nil {
			return err
		}
		f := r.Tools[i].Function
		switch {
		case !openai.ValidName(f.Name):
			return fault.Invalid(at+".function.name", "%s.function.name must be %s.", at, openai.NameRule)
		case r.ToolIndex(f.Name) < i:
			return fault.Invalid(at+".function.name", "%s.function.name %q is the name of another tool.", at, f.Name)
		case !slices.Contains([]jsontext.Kind{jsontext.KindInvalid, jsontext.KindNull, jsontext.KindBeginObject}, f.Parameters.Kind()):
			return fault.Invalid(at+".function.parameters", "%s.function.parameters must be an object: a JSON Schema.", at)
		}
	}
	if r.choice, err = r.ReadToolChoice(); err != nil {
		return err
	}
	for i, name := range r.choice.Allowed {
		if r.ToolIndex(name) < 0 {
			param := fmt.Sprintf("tool_choice.allowed_tools.tools[%d].function.name", i)
			return fault.Invalid(param, "%s %.80q is not one of the tools.", param, name)
		}
	}
	return nil
}

// checkConversation checks the messages, and that every tool call has its tool message.
func (r *request) checkConversation() error {
	if err := r.CheckMessages(); err != nil {
		return err
	}
	var pending openai.PendingCalls
	for i := range r.Messages {
		m, at := &r.Messages[i], fmt.Sprintf("messages[%d]", i)
		if m.Role == "tool" {
			if _, err := pending.Answer(m, at); err != nil {
				return err
			}
		} else if err := pending.Check(i); err != nil {
			return err
		}
		if err := checkToolCalls(m, at+".tool_calls"); err != nil {
			return err
		}
		if err := checkContent(m, at+".content"); err != nil {
			return err
		}
		for _, call := range m.ToolCalls {
			pending = append(pending, call.ID)
		}
	}
	return pending.Check(len(r.Messages))
}

func checkToolCalls(m *openai.Message, at string) error {
	switch {
	case len(m.ToolCalls) > 0 && m.Role != "assistant":
		return fault.Invalid(at, "%s is only allowed in an assistant message.", at)
	case len(m.ToolCalls) > maxToolCalls:
		return fault.Invalid(at, "%s must have at most %d calls.", at, maxToolCalls)
	}
	for i := range m.ToolCalls {
		at := fmt.Sprintf("%s[%d]", at, i)
		if m.ToolCalls[i].ID == "" {
			return fault.Missing(at+".id", "%s.id is required.", at)
		}
		if err := m.ToolCalls[i].Check(at); err != nil {
			return err
		}
	}
	return nil
}

func checkContent(m *openai.Message, at string) error {
	c := &m.Content
	if c.IsNull() && m.Role == "assistant" && (len(m.ToolCalls) > 0 || m.FunctionCall != nil || m.Refusal != "" || m.Audio.Kind() == jsontext.KindBeginObject) {
		return nil // an action or a refusal replaces the content
	}
	if c.Kind == jsontext.KindBeginArray && len(c.Value) == 0 {
		return fault.Invalid(at, "%s must have at least one part.", at)
	}
	return m.EachPart(at, []string{"text", "image_url", "input_audio", "file"}, checkPart)
}

func checkPart(p *openai.Part, at string) error {
	switch {
	case p.Type == "image_url" && !slices.Contains([]string{"", "auto", "low", "high"}, p.ImageURL.Detail):
		return fault.Invalid(at+".image_url.detail", "%s.image_url.detail must be auto, low or high.", at)
	case p.Type == "input_audio" && p.InputAudio.Format != "wav" && p.InputAudio.Format != "mp3":
		return fault.Invalid(at+".input_audio.format", "%s.input_audio.format must be wav or mp3.", at)
	case p.Type == "file" && p.File.ID == "" && p.File.Data == "":
		return fault.Missing(at+".file", "%s.file is required: an object with file_id or file_data.", at)
	}
	return nil
}

func textsOf(m *openai.Message) []string {
	if m.Content.Kind == jsontext.KindString {
		return []string{m.Content.Text}
	}
	var texts []string
	for _, p := range m.Content.Value {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return texts
}
