package anthropic

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// response is a message of the model, or the start of a streamed one.
type response struct {
	Type       string          `json:"type"`
	Model      string          `json:"model"`
	Content    []responseBlock `json:"content"`
	StopReason string          `json:"stop_reason"`
	Usage      *usage          `json:"usage"`
}

type responseBlock struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	Thinking string         `json:"thinking"`
	Name     string         `json:"name"`
	Input    jsontext.Value `json:"input"`
}

type usage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	Details       struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
	Creation struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	ServerTools struct {
		WebSearches int64 `json:"web_search_requests"`
	} `json:"server_tool_use"`
	// Iterations are the model calls of the request. Those that compact the conversation are charged
	// in addition to the totals.
	Iterations []struct {
		Type          string `json:"type"`
		Input         int64  `json:"input_tokens"`
		Output        int64  `json:"output_tokens"`
		CacheCreation int64  `json:"cache_creation_input_tokens"`
		CacheRead     int64  `json:"cache_read_input_tokens"`
	} `json:"iterations"`

	estimated bool
}

// maxTokens is beyond any context window, and sums of it don't overflow.
const maxTokens = 1 << 40

// merge adds a later report of the same request. Counts are totals, and 0 if
// they are left out, so the larger one is right.
func (u *usage) merge(later *usage) {
	raise := func(count *int64, to int64) { *count = max(*count, min(to, maxTokens)) }
	raise(&u.Input, later.Input)
	raise(&u.Output, later.Output)
	raise(&u.CacheCreation, later.CacheCreation)
	raise(&u.CacheRead, later.CacheRead)
	raise(&u.Details.Thinking, later.Details.Thinking)
	raise(&u.Creation.Hour, later.Creation.Hour)
	raise(&u.ServerTools.WebSearches, later.ServerTools.WebSearches)
	if len(later.Iterations) > 0 {
		u.Iterations = later.Iterations
	}
}

// total counts like OpenAI: tokens read from or written to the cache are part of the input.
func (u *usage) total() providers.Usage {
	t := providers.Usage{
		InputTokens:  u.Input + u.CacheCreation + u.CacheRead,
		OutputTokens: u.Output,
		CachedInput:  u.CacheRead,
		CacheWrite:   u.CacheCreation,
		HourWrite:    u.Creation.Hour,
		Estimated:    u.estimated,
	}
	t.ToolCalls[catalog.WebSearch] = u.ServerTools.WebSearches
	for _, i := range u.Iterations {
		if i.Type != "compaction" {
			continue
		}
		count := func(n int64) int64 { return min(max(0, n), maxTokens) }
		t.InputTokens += count(i.Input) + count(i.CacheCreation) + count(i.CacheRead)
		t.OutputTokens += count(i.Output)
		t.CachedInput += count(i.CacheRead)
		t.CacheWrite += count(i.CacheCreation)
	}
	return t
}

func (u *usage) estimateInput(info requestInfo) {
	if u.total().InputTokens == 0 {
		u.Input, u.estimated = wire.EstimateTokens(info.bytes), true
	}
}

// estimateOutput is for servers that don't count, or not yet.
func (u *usage) estimateOutput(bytes int) {
	if n := wire.EstimateTokens(bytes); n > u.Output {
		u.Output, u.estimated = n, true
	}
}

func (p *Provider) completion(body []byte, info requestInfo, head openai.Head) (*providers.Response, error) {
	var r response
	if err := json.Unmarshal(body, &r, wire.Lenient); err != nil {
		return nil, p.protocolFailure("not a message: %w", err)
	}
	switch r.Type {
	case "message":
	case "error":
		return nil, p.failureIn(body)
	default:
		return nil, p.protocolFailure("a %.40q instead of a message", r.Type)
	}
	if r.Model != "" {
		head.Model = r.Model
	}
	choice, bytes := r.choice(info, p.newID)
	var counted usage
	if r.Usage != nil {
		counted.merge(r.Usage)
	}
	if counted.Output == 0 {
		counted.estimateOutput(bytes)
	}
	counted.estimateInput(info)
	completion := head.Completion([]openai.Choice{choice}, wire.ChatUsage(counted.total(), counted.Details.Thinking))
	return &providers.Response{Body: openai.Encode(completion), Usage: counted.total(), Ignored: info.ignored}, nil
}

// choice collects the blocks of a response and counts their bytes. If the input
// of a tool is the response, text is dropped: it would break the client's parser.
func (r *response) choice(info requestInfo, newID func(prefix string) string) (c openai.Choice, bytes int) {
	var text, reasoning strings.Builder
	m := openai.AssistantMessage{Role: "assistant"}
	answered := false
	for i := range r.Content {
		switch b := &r.Content[i]; {
		case b.Type == "text" && info.answerTool == "":
			text.WriteString(b.Text)
		case b.Type == "thinking":
			reasoning.WriteString(b.Thinking)
		case b.Type == "tool_use" && b.Name == info.answerTool:
			if !answered {
				text.WriteString(b.arguments())
			}
			answered = true
		case b.Type == "tool_use":
			m.ToolCalls = append(m.ToolCalls, openai.FunctionToolCall(newID("call_"), b.Name, b.arguments()))
			bytes += len(b.Name) + len(b.arguments())
		}
	}
	if text.Len() > 0 || len(m.ToolCalls) == 0 {
		m.Content = new(text.String())
	}
	m.ReasoningContent = reasoning.String()
	return openai.Choice{Message: m, FinishReason: finishReason(r.StopReason, len(m.ToolCalls) > 0)}, bytes + text.Len() + reasoning.Len()
}

func (b *responseBlock) arguments() string {
	if b.Input.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	return openai.Compact(b.Input)
}

// finishReason translates a stop reason. pause_turn comes only with tools that
// run at Anthropic, which Turnpike never offers.
func finishReason(stop string, hasCalls bool) string {
	switch {
	case stop == "max_tokens" || stop == "model_context_window_exceeded":
		return "length"
	case stop == "refusal":
		return "content_filter"
	case stop == "tool_use" && hasCalls:
		return "tool_calls"
	}
	return "stop"
}
