package gemini

import (
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// usageMetadata counts tokens. In a stream it counts all events so far.
type usageMetadata struct {
	Prompt        int64 `json:"promptTokenCount"`
	Cached        int64 `json:"cachedContentTokenCount"` // part of the prompt
	ToolUsePrompt int64 `json:"toolUsePromptTokenCount"`
	Candidates    int64 `json:"candidatesTokenCount"`
	Thoughts      int64 `json:"thoughtsTokenCount"`
}

// counter counts the tokens of a request: by Gemini's count, or by an estimate if
// there is none.
type counter struct {
	prompt       int64 // estimate
	metadata     *usageMetadata
	outputBytes  int // text and calls
	thoughtBytes int
}

func (c *counter) add(p *part) {
	switch {
	case p.FunctionCall != nil:
		c.outputBytes += len(p.FunctionCall.Name) + len(p.FunctionCall.Args)
	case p.Thought:
		c.thoughtBytes += len(p.Text)
	default:
		c.outputBytes += len(p.Text)
	}
}

func (c *counter) usage() providers.Usage {
	input, cached, output, thoughts := c.counts()
	m := c.metadata
	return providers.Usage{InputTokens: input, CachedInput: cached, OutputTokens: output + thoughts,
		Estimated: m == nil || m.Prompt <= 0 || m.Candidates <= 0 && c.outputBytes > 0 || m.Thoughts <= 0 && c.thoughtBytes > 0}
}

func (c *counter) counts() (input, cached, output, thoughts int64) {
	input = c.prompt
	if m := c.metadata; m != nil {
		if m.Prompt > 0 {
			input = clamp(m.Prompt)
		}
		input += clamp(m.ToolUsePrompt)
		cached = min(clamp(m.Cached), input)
		output, thoughts = clamp(m.Candidates), clamp(m.Thoughts)
	}
	// The first events of a stream may lack a count.
	if output == 0 {
		output = estimateTokens(c.outputBytes)
	}
	if thoughts == 0 {
		thoughts = estimateTokens(c.thoughtBytes)
	}
	return input, cached, output, thoughts
}

// clamp keeps sums from becoming negative or overflowing.
func clamp(tokens int64) int64 { return min(max(0, tokens), 1<<40) }

// openAI returns the usage in OpenAI's format.
func (c *counter) openAI() openai.Usage {
	input, cached, output, thoughts := c.counts()
	return openai.Usage{
		PromptTokens:      input,
		CompletionTokens:  output + thoughts,
		TotalTokens:       input + output + thoughts,
		PromptDetails:     openai.PromptDetails{CachedTokens: cached},
		CompletionDetails: openai.CompletionDetails{ReasoningTokens: thoughts},
	}
}
