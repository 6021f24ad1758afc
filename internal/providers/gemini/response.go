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

// generateResponse is Gemini's GenerateContentResponse: a whole response or an
// event of a stream.
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
func parseResponse(body []byte, key string) (*generateResponse, error) {
	r := new(generateResponse)
	if err := json.Unmarshal(body, r, fromGoogle); err != nil {
		// The decoder's message quotes field names at most.
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New(wire.Loggable(err.Error(), key))}
	}
	if r.Error != nil {
		return nil, r.Error.failure(key)
	}
	return r, nil
}

// completion translates a response that isn't streamed.
func (h head) completion(body []byte, call *call, key string) (*providers.Answer, error) {
	r, err := parseResponse(body, key)
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
		return nil, protocolFailure("a response without candidates")
	}
	return &providers.Answer{Body: openai.Encode(h.Completion(choices, count.openAI())), Usage: count.usage()}, nil
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

// isAnswer reports whether the part calls the answer tool.
func (c *call) isAnswer(p *part) bool {
	return c.answerTool != "" && p.FunctionCall != nil && p.FunctionCall.Name == c.answerTool
}

// acceptsCall reports whether the client accepts a tool call after others.
// Gemini can't be kept from making several at once. It makes the dropped ones
// again once it has the result of the first.
func (c *call) acceptsCall(others int) bool { return others == 0 || !c.oneCall }

// arguments returns the arguments of a function call.
func (p *part) arguments() string {
	if p.FunctionCall.Args.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	args := p.FunctionCall.Args.Clone()
	_ = args.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // it was decoded as JSON
	return string(args)
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

// finishReason translates why a candidate ended. One that is empty because of a
// mistake of the model, or for no given reason, is a failure, which is retried.
// A client would take it for the model's response.
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
