package bedrock

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type converseResponse struct {
	Output struct {
		Message *message `json:"message"`
	} `json:"output"`
	StopReason string `json:"stopReason"`
	Usage      *usage `json:"usage"`
}

// usage counts tokens. The input is without what was read from the cache or written to it.
type usage struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
}

// counter counts the tokens of a request: by Bedrock's count, or by an estimate if there is none.
type counter struct {
	prompt  int // bytes
	output  int // bytes
	counted *usage
}

func (c *counter) usage() providers.Usage {
	u := c.counted
	if u == nil || u.Input+u.CacheRead+u.CacheWrite <= 0 {
		u = &usage{Input: wire.EstimateTokens(c.prompt)}
		if c.counted != nil {
			u.Output = c.counted.Output
		}
	}
	read, written := clamp(u.CacheRead), clamp(u.CacheWrite)
	out := providers.Usage{InputTokens: clamp(u.Input) + read + written, CachedInput: read, CacheWrite: written, OutputTokens: clamp(u.Output), Estimated: u != c.counted}
	if out.OutputTokens == 0 && c.output > 0 {
		out.OutputTokens, out.Estimated = wire.EstimateTokens(c.output), true
	}
	return out
}

// clamp keeps sums from becoming negative or overflowing.
func clamp(tokens int64) int64 { return min(max(0, tokens), 1<<40) }

// completion translates a response. If the input of a tool is the response, text is dropped: it would break the
// client's parser.
func (p *Provider) completion(text []byte, c *call, head openai.Head) (*providers.Response, error) {
	var r converseResponse
	if err := json.Unmarshal(text, &r, wire.Lenient); err != nil || r.Output.Message == nil {
		return nil, wire.ProtocolFailure("a response without a message")
	}
	var content, thoughts strings.Builder
	m := openai.AssistantMessage{Role: "assistant"}
	count := counter{prompt: len(c.body), counted: r.Usage}
	for _, b := range r.Output.Message.Content {
		switch {
		case b.Reasoning != nil:
			thoughts.WriteString(b.Reasoning.Text.Text)
			count.output += len(b.Reasoning.Text.Text)
		case b.ToolUse != nil:
			arguments := argumentsOf(b.ToolUse.Input)
			count.output += len(b.ToolUse.Name) + len(arguments)
			switch {
			case c.answerTool != "" && b.ToolUse.Name == c.answerTool:
				if content.Len() == 0 {
					content.WriteString(arguments)
				}
			case len(m.ToolCalls) == 0 || !c.oneCall: // Bedrock can't be kept from making several together
				m.ToolCalls = append(m.ToolCalls, openai.FunctionToolCall(p.newID("call_"), b.ToolUse.Name, arguments))
			}
		case b.Text != nil:
			if count.output += len(*b.Text); c.answerTool == "" {
				content.WriteString(*b.Text)
			}
		}
	}
	m.ReasoningContent = thoughts.String()
	if content.Len() > 0 || len(m.ToolCalls) == 0 {
		m.Content = new(content.String())
	}
	used := count.usage()
	choice := openai.Choice{Message: m, FinishReason: finishReason(r.StopReason, len(m.ToolCalls) > 0)}
	return &providers.Response{Body: openai.Encode(head.Completion([]openai.Choice{choice}, wire.ChatUsage(used, 0))), Usage: used, Ignored: c.ignored}, nil
}

func argumentsOf(input jsontext.Value) string {
	if input.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	return openai.Compact(input)
}

func finishReason(reason string, hasCalls bool) string {
	switch reason {
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "guardrail_intervened", "content_filtered":
		return "content_filter"
	}
	if hasCalls {
		return "tool_calls"
	}
	return "stop"
}
