package gemini

import "turnpike/internal/providers"

// usageMetadata counts tokens. In a stream it is that of all so far.
type usageMetadata struct {
	Prompt        int64 `json:"promptTokenCount"`
	Cached        int64 `json:"cachedContentTokenCount"` // part of the prompt
	ToolUsePrompt int64 `json:"toolUsePromptTokenCount"`
	Candidates    int64 `json:"candidatesTokenCount"`
	Thoughts      int64 `json:"thoughtsTokenCount"`
}

// counter knows what a call has used: by Gemini's count, or by a guess where
// there is none.
type counter struct {
	prompt   int64 // a guess
	metadata *usageMetadata
	said     int // bytes of text and calls
	thought  int // bytes of thoughts
}

func (c *counter) add(p *part) {
	switch {
	case p.FunctionCall != nil:
		c.said += len(p.FunctionCall.Name) + len(p.FunctionCall.Args)
	case p.Thought:
		c.thought += len(p.Text)
	default:
		c.said += len(p.Text)
	}
}

func (c *counter) usage() providers.Usage {
	input, cached, output, thoughts := c.counts()
	m := c.metadata
	return providers.Usage{InputTokens: input, CachedInput: cached, OutputTokens: output + thoughts,
		Estimated: m == nil || m.Prompt <= 0 || m.Candidates <= 0 && c.said > 0 || m.Thoughts <= 0 && c.thought > 0}
}

func (c *counter) counts() (input, cached, output, thoughts int64) {
	input = c.prompt
	if m := c.metadata; m != nil {
		if m.Prompt > 0 {
			input = sane(m.Prompt)
		}
		input += sane(m.ToolUsePrompt)
		cached = min(sane(m.Cached), input)
		output, thoughts = sane(m.Candidates), sane(m.Thoughts)
	}
	// A count may be left out of a stream's first events.
	if output == 0 {
		output = guessTokens(c.said)
	}
	if thoughts == 0 {
		thoughts = guessTokens(c.thought)
	}
	return input, cached, output, thoughts
}

// sane keeps nonsense from becoming a negative or overflowing sum.
func sane(tokens int64) int64 { return min(max(0, tokens), 1<<40) }

// completionUsage is OpenAI's.
type completionUsage struct {
	PromptTokens     int64             `json:"prompt_tokens"`
	CompletionTokens int64             `json:"completion_tokens"`
	TotalTokens      int64             `json:"total_tokens"`
	PromptDetails    promptDetails     `json:"prompt_tokens_details"`
	CompletionDetail completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached int64 `json:"cached_tokens"`
}

type completionDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

func (c *counter) wire() completionUsage {
	input, cached, output, thoughts := c.counts()
	return completionUsage{
		PromptTokens:     input,
		CompletionTokens: output + thoughts,
		TotalTokens:      input + output + thoughts,
		PromptDetails:    promptDetails{cached},
		CompletionDetail: completionDetails{thoughts},
	}
}
