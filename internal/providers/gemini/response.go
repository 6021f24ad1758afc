package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// generateResponse is Gemini's GenerateContentResponse: a whole response or an event of a stream.
type generateResponse struct {
	Candidates     []candidate    `json:"candidates"`
	PromptFeedback promptFeedback `json:"promptFeedback"`
	UsageMetadata  *usageMetadata `json:"usageMetadata"`
	Error          *apiError      `json:"error"`
}

type candidate struct {
	Index        int     `json:"index"`
	Content      content `json:"content"`
	FinishReason string  `json:"finishReason"`
}

type promptFeedback struct {
	BlockReason string `json:"blockReason"`
}

// head starts a response and makes the IDs of its tool calls.
type head struct {
	openai.Head
	newID func(prefix string) string
}

// parseResponse decodes a response or an event. If it has an error object, it
// returns that as a failure.
func parseResponse(body []byte, secrets []string) (*generateResponse, error) {
	r := new(generateResponse)
	if err := json.Unmarshal(body, r, wire.Lenient); err != nil {
		// The decoder's message quotes field names at most.
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New(wire.Loggable(err.Error(), secrets...))}
	}
	if r.Error != nil {
		return nil, r.Error.failure(secrets)
	}
	return r, nil
}

func (h head) completion(body []byte, call *call, secrets []string) (*providers.Response, error) {
	r, err := parseResponse(body, secrets)
	if err != nil {
		return nil, err
	}
	var choices []openai.Choice
	count := counter{prompt: call.promptTokens, metadata: r.UsageMetadata}
	switch {
	case len(r.Candidates) > 0:
		for i := range r.Candidates {
			choice, err := h.choice(&r.Candidates[i], &count, call)
			if err != nil {
				return nil, err
			}
			choices = append(choices, choice)
		}
		slices.SortStableFunc(choices, func(a, b openai.Choice) int { return cmp.Compare(a.Index, b.Index) })
	case r.PromptFeedback.BlockReason != "":
		choices = []openai.Choice{{Message: openai.AssistantMessage{Role: "assistant", Content: new("")}, FinishReason: "content_filter"}}
	default:
		return nil, wire.ProtocolFailure("a response without candidates")
	}
	return &providers.Response{Body: openai.Encode(h.Completion(choices, wire.ChatUsage(count.usage(), count.reasoning()))), Usage: count.usage(), Ignored: call.ignored}, nil
}

// choice collects the parts of a candidate. If the arguments of a function are
// the response, text is dropped: it would break the client's parser.
func (h head) choice(c *candidate, count *counter, call *call) (openai.Choice, error) {
	var text, thoughts strings.Builder
	message := openai.AssistantMessage{Role: "assistant"}
	for i := range c.Content.Parts {
		p := &c.Content.Parts[i]
		count.add(p)
		switch {
		case call.isAnswer(p):
			if text.Len() == 0 {
				text.WriteString(p.arguments())
			}
		case p.FunctionCall != nil:
			if call.acceptsCall(len(message.ToolCalls)) {
				message.ToolCalls = append(message.ToolCalls, h.toolCall(p))
			}
		case p.Thought:
			thoughts.WriteString(p.Text)
		case call.answerTool == "":
			text.WriteString(p.Text)
		}
	}
	message.ReasoningContent = thoughts.String()
	if text.Len() > 0 || len(message.ToolCalls) == 0 {
		message.Content = new(text.String())
	}
	finish, err := finishReason(c.FinishReason, len(message.ToolCalls) > 0, text.Len() > 0)
	return openai.Choice{Index: c.Index, Message: message, FinishReason: finish}, err
}

func (c *call) isAnswer(p *part) bool {
	return c.answerTool != "" && p.FunctionCall != nil && p.FunctionCall.Name == c.answerTool
}

// acceptsCall reports whether the client accepts a tool call after others. Gemini can't be kept
// from making several together. It makes the dropped ones again once it has the result of the first.
func (c *call) acceptsCall(others int) bool { return others == 0 || !c.oneCall }

func (p *part) arguments() string {
	if p.FunctionCall.Args.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	return openai.Compact(p.FunctionCall.Args)
}

// toolCall translates a function call. It gets a new ID: Gemini has none, or one
// that is unique only in its response.
func (h head) toolCall(p *part) openai.ToolCall {
	c := openai.FunctionToolCall(h.newID("call_"), p.FunctionCall.Name, p.arguments())
	if p.ThoughtSignature != "" {
		var extra extraContent
		extra.Google.ThoughtSignature = p.ThoughtSignature
		c.Extra, _ = json.Marshal(extra, jsontext.AllowInvalidUTF8(true)) // a string can be encoded
	}
	return c
}

// finishReason translates why a candidate ended. A candidate that
// is empty because of a model error, or for no given reason, is a failure, which
// is retried. A client would take it for the model's response.
func finishReason(reason string, hasCalls, hasText bool) (string, error) {
	switch reason {
	case "MAX_TOKENS":
		return "length", nil
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return "content_filter", nil
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "OTHER":
		if !hasCalls && !hasText {
			return "", &providers.Failure{Kind: providers.KindServer, Err: fmt.Errorf("an empty response that ended with %s", reason)}
		}
	}
	if hasCalls {
		return "tool_calls", nil
	}
	return "stop", nil
}

// usageMetadata counts tokens. In a stream it counts all events so far.
type usageMetadata struct {
	Prompt        int64 `json:"promptTokenCount"`
	Cached        int64 `json:"cachedContentTokenCount"` // part of the prompt
	ToolUsePrompt int64 `json:"toolUsePromptTokenCount"`
	Candidates    int64 `json:"candidatesTokenCount"`
	Thoughts      int64 `json:"thoughtsTokenCount"`
}

// counter counts the tokens of a request: by Gemini's count, or by an estimate if there is none.
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
		output = wire.EstimateTokens(c.outputBytes)
	}
	if thoughts == 0 {
		thoughts = wire.EstimateTokens(c.thoughtBytes)
	}
	return input, cached, output, thoughts
}

// clamp keeps sums from becoming negative or overflowing.
func clamp(tokens int64) int64 { return min(max(0, tokens), 1<<40) }

func (c *counter) reasoning() int64 {
	_, _, _, thoughts := c.counts()
	return thoughts
}
