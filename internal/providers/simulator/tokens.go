package simulator

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
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

// Parts other than text have a typical number of tokens, regardless of their
// content.
const (
	tokensPerImage    = 765 // 1024 × 1024 pixels in high detail: 85 + 4 tiles of 170
	tokensPerLowImage = 85  // in low detail, of any size
	tokensPerAudio    = 300 // half a minute at ten tokens per second
	tokensPerFile     = 1000
)

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
func (c *counter) countJSON(v jsontext.Value) int { return c.count(openai.Compact(v)) }

const (
	// maxCounted is the number of bytes of a request and its response that are counted exactly.
	// Adversarial text takes 1 s of CPU time per MiB, and test keys pay nothing.
	maxCounted = 256 << 10
	// estimatedBytes of the remaining bytes count as a token, as in the
	// gateway.
	estimatedBytes = 4
	// smallRequest is counted immediately, because that takes less than a millisecond.
	smallRequest = 1 << 10
)

// tokenizer splits texts into tokens.
type tokenizer struct {
	ends func(text string) iter.Seq[int]
}

// counter counts the tokens of one request.
type counter struct {
	*tokenizer
	left int // bytes to count exactly
}

// counting runs work that counts tokens, as Decode unless the number of bytes is small.
func (t *tokenizer) counting(ctx context.Context, bytes int, work func(c *counter) error) error {
	c := &counter{tokenizer: t, left: maxCounted}
	if bytes <= smallRequest {
		return work(c)
	}
	return budget.Of(ctx).Decode(ctx, 0, func() error { return work(c) })
}

// count returns the number of tokens in a text. Beyond maxCounted, it estimates.
func (c *counter) count(text string) (tokens int) {
	exact := c.take(text)
	for range c.ends(text[:exact]) {
		tokens++
	}
	return tokens + (len(text)-exact+estimatedBytes-1)/estimatedBytes
}

func (c *counter) take(text string) int {
	exact := min(len(text), c.left)
	c.left -= exact
	return exact
}

// tokenEnds yields the offsets at which the tokens end. Beyond maxCounted, each
// token has estimatedBytes.
func (c *counter) tokenEnds(text string) iter.Seq[int] {
	exact := c.take(text)
	return func(yield func(int) bool) {
		for end := range c.ends(text[:exact]) {
			if !yield(end) {
				return
			}
		}
		for end := exact; end < len(text); {
			end = min(end+estimatedBytes, len(text))
			if !yield(end) {
				return
			}
		}
	}
}
