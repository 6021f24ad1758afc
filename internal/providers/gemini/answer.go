package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// generateResponse is Gemini's GenerateContentResponse, whole or one event of
// a stream.
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

// completion is OpenAI's answer to a plain call.
type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   completionUsage    `json:"usage"`
}

type completionChoice struct {
	Index        int               `json:"index"`
	Message      completionMessage `json:"message"`
	Logprobs     *struct{}         `json:"logprobs"`
	FinishReason string            `json:"finish_reason"`
}

type completionMessage struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	Refusal          *string    `json:"refusal"`
	ToolCalls        []toolCall `json:"tool_calls,omitempty"`
	Annotations      []struct{} `json:"annotations"`
}

type toolCall struct {
	Index    *int             `json:"index,omitzero"` // in a stream only
	ID       string           `json:"id"`
	Type     string           `json:"type"`
	Function chatFunctionCall `json:"function"`
	Extra    *extra           `json:"extra_content,omitzero"`
}

// head is what begins an answer and each of its chunks.
type head struct {
	id      string
	created int64
	model   string
	newID   func(prefix string) string // for tool calls
}

// parseResponse reads an answer or an event. An error object inside is a
// failure.
func parseResponse(body []byte, key string) (*generateResponse, error) {
	r := new(generateResponse)
	if err := json.Unmarshal(body, r, fromGoogle); err != nil {
		// The decoder's message has no more than a field's name in it.
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New(wire.Loggable(err.Error(), key))}
	}
	if r.Error != nil {
		return nil, r.Error.failure(key)
	}
	return r, nil
}

// answer translates the body of a plain answer.
func (h head) answer(body []byte, call *call, key string) (*providers.Answer, error) {
	r, err := parseResponse(body, key)
	if err != nil {
		return nil, err
	}
	out := completion{ID: h.id, Object: "chat.completion", Created: h.created, Model: h.model}
	count := counter{prompt: call.promptTokens, metadata: r.UsageMetadata}
	switch {
	case len(r.Candidates) > 0:
		for i := range r.Candidates {
			choice, err := h.choice(&r.Candidates[i], &count, call)
			if err != nil {
				return nil, err
			}
			out.Choices = append(out.Choices, choice)
		}
		slices.SortStableFunc(out.Choices, func(a, b completionChoice) int { return cmp.Compare(a.Index, b.Index) })
	case r.PromptFeedback.BlockReason != "":
		out.Choices = []completionChoice{{Message: completionMessage{Role: "assistant", Content: new("")}, FinishReason: "content_filter"}}
	default:
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("an answer without candidates")}
	}
	out.Usage = count.wire()
	answer := &providers.Answer{Usage: count.usage()}
	if answer.Body, err = json.Marshal(out, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("gemini: encode answer: %w", err)
	}
	return answer, nil
}

// choice collects a candidate's parts. Where a function's arguments are the
// answer, no text is: a word beside it would break the caller's parser.
func (h head) choice(c *candidate, count *counter, call *call) (completionChoice, error) {
	var text, thoughts strings.Builder
	message := completionMessage{Role: "assistant"}
	for i := range c.Content.Parts {
		p := &c.Content.Parts[i]
		count.add(p)
		switch {
		case call.isAnswer(p):
			if text.Len() == 0 {
				text.WriteString(p.arguments())
			}
		case p.FunctionCall != nil:
			if call.takes(len(message.ToolCalls)) {
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
	return completionChoice{Index: c.Index, Message: message, FinishReason: finish}, err
}

// isAnswer: the part calls the function whose arguments are the answer.
func (c *call) isAnswer(p *part) bool {
	return c.answerTool != "" && p.FunctionCall != nil && p.FunctionCall.Name == c.answerTool
}

// takes says whether the caller takes one more function call. Gemini cannot be
// kept from making several at once; what the others are for, it sees again when
// the first one has its result.
func (c *call) takes(already int) bool { return already == 0 || !c.oneCall }

// arguments are those of a function call, as text.
func (p *part) arguments() string {
	if p.FunctionCall.Args.Kind() != jsontext.KindBeginObject {
		return "{}"
	}
	args := p.FunctionCall.Args.Clone()
	_ = args.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // it was read as JSON
	return string(args)
}

// toolCall translates a function call. Its id is ours: Gemini has none, or one
// that means nothing outside its answer.
func (h head) toolCall(p *part) toolCall {
	c := toolCall{
		ID:       h.newID("call_"),
		Type:     "function",
		Function: chatFunctionCall{Name: p.FunctionCall.Name, Arguments: p.arguments()},
	}
	if p.ThoughtSignature != "" {
		c.Extra = new(extra)
		c.Extra.Google.ThoughtSignature = p.ThoughtSignature
	}
	return c
}

// finishReason translates why a candidate ended. One that ended over the
// model's own mistake, or for no reason given, with nothing to show is a
// failure, which may be tried again; a caller would take it for the model's
// last word.
func finishReason(reason string, hasCalls, hasText bool) (string, error) {
	switch reason {
	case "MAX_TOKENS":
		return "length", nil
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return "content_filter", nil
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE", "OTHER":
		if !hasCalls && !hasText {
			return "", &providers.Failure{Kind: providers.KindServer, Err: fmt.Errorf("an empty answer that ended with %s", reason)}
		}
	}
	if hasCalls {
		return "tool_calls", nil
	}
	return "stop", nil
}
