package simulator

import (
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers/simulator/o200k"
)

// What OpenAI publishes for counting a chat's tokens.
const (
	tokensPerMessage = 3
	tokensPerName    = 1
	tokensOfPriming  = 3  // every answer begins with them
	tokensPerTool    = 7  // beside its text
	tokensOfTools    = 12 // once, if there are any
)

// Parts that are not text are not looked into; they count as typical ones.
const (
	tokensPerImage    = 765 // 1024 × 1024 pixels in high detail: 85 + 4 tiles of 170
	tokensPerLowImage = 85  // in low detail, of any size
	tokensPerAudio    = 300 // half a minute at ten tokens per second
	tokensPerFile     = 1000
)

// promptTokens counts the request.
func (r *request) promptTokens() int {
	n := tokensOfPriming
	for i := range r.Messages {
		m := &r.Messages[i]
		n += tokensPerMessage + o200k.Count(m.Role) + m.Content.tokens() + o200k.Count(m.Refusal)
		if m.Name != "" {
			n += tokensPerName + o200k.Count(m.Name)
		}
		for _, c := range m.ToolCalls {
			n += tokensPerCall + o200k.Count(c.Function.Name) + o200k.Count(c.Function.Arguments)
		}
		if f := m.Function; f != nil {
			n += tokensPerCall + o200k.Count(f.Name) + o200k.Count(f.Arguments)
		}
	}
	for _, t := range r.Tools {
		n += tokensPerTool + o200k.Count(t.Function.Name) + o200k.Count(t.Function.Description) + jsonTokens(t.Function.Parameters)
	}
	if len(r.Tools) > 0 {
		n += tokensOfTools
	}
	if f := r.ResponseFormat; f != nil && f.JSONSchema != nil {
		n += o200k.Count(f.JSONSchema.Name) + jsonTokens(f.JSONSchema.Schema)
	}
	return n
}

func (c *content) tokens() int {
	n := o200k.Count(c.text)
	for _, p := range c.parts {
		switch {
		case p.Text != nil:
			n += o200k.Count(*p.Text)
		case p.Refusal != nil:
			n += o200k.Count(*p.Refusal)
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

// jsonTokens counts a document without its white space, so that indentation
// costs nothing.
func jsonTokens(v jsontext.Value) int {
	if len(v) == 0 {
		return 0
	}
	v = v.Clone()
	if v.Compact() != nil {
		return 0 // cannot be: it was part of a valid body
	}
	return o200k.Count(string(v))
}
