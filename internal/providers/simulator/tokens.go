package simulator

import (
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
)

// OpenAI's published formula for the tokens of a chat request.
const (
	tokensPerMessage = 3
	tokensPerName    = 1
	tokensOfPriming  = 3  // begin every response
	tokensPerTool    = 7  // besides its text
	tokensOfTools    = 12 // once, if there are any
)

// Parts other than text have a typical number of tokens, whatever they contain.
const (
	tokensPerImage    = 765 // 1024 × 1024 pixels in high detail: 85 + 4 tiles of 170
	tokensPerLowImage = 85  // in low detail, of any size
	tokensPerAudio    = 300 // half a minute at ten tokens per second
	tokensPerFile     = 1000
)

// promptTokens counts the tokens of the request.
func (r *request) promptTokens(c *counter) int {
	n := tokensOfPriming
	for i := range r.Messages {
		m := &r.Messages[i]
		n += tokensPerMessage + c.count(m.Role) + c.countContent(&m.Content) + c.count(m.Refusal)
		if m.Name != "" {
			n += tokensPerName + c.count(m.Name)
		}
		for _, call := range m.ToolCalls {
			n += tokensPerCall + c.count(call.Function.Name) + c.count(call.Function.Arguments)
		}
		if f := m.FunctionCall; f != nil {
			n += tokensPerCall + c.count(f.Name) + c.count(f.Arguments)
		}
	}
	for _, t := range r.Tools {
		n += tokensPerTool + c.count(t.Function.Name) + c.count(t.Function.Description) + c.countJSON(t.Function.Parameters)
	}
	if len(r.Tools) > 0 {
		n += tokensOfTools
	}
	if f := r.ResponseFormat; f != nil && f.JSONSchema != nil {
		n += c.count(f.JSONSchema.Name) + c.countJSON(f.JSONSchema.Schema)
	}
	return n
}

func (c *counter) countContent(in *openai.Content) int {
	n := c.count(in.Text)
	for _, p := range in.Value {
		switch {
		case p.Text != nil:
			n += c.count(*p.Text)
		case p.Refusal != nil:
			n += c.count(*p.Refusal)
		case p.ImageURL != nil && p.ImageURL.Detail == "low":
			n += tokensPerLowImage
		case p.ImageURL != nil:
			n += tokensPerImage
		case p.InputAudio != nil:
			n += tokensPerAudio
		case p.File != nil:
			n += tokensPerFile
		}
	}
	return n
}

// countJSON counts a document without white space, so that indentation is free.
func (c *counter) countJSON(v jsontext.Value) int {
	if len(v) == 0 {
		return 0
	}
	v = v.Clone()
	if v.Compact() != nil {
		return 0 // impossible: it was part of a valid body
	}
	return c.count(string(v))
}
