package responses

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// The values of status.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	failed     = "failed"
)

// response is the response object. Half of it repeats the request.
type response struct {
	settings
	ID                 string             `json:"id"`
	Object             string             `json:"object"`
	CreatedAt          int64              `json:"created_at"`
	CompletedAt        *int64             `json:"completed_at"`
	Status             string             `json:"status"`
	Background         bool               `json:"background"`
	Error              *responseError     `json:"error"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Model              string             `json:"model"`
	Output             []outputItem       `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	Conversation       *conversationEcho  `json:"conversation"`
	Reasoning          reasoningEcho      `json:"reasoning"`
	Store              bool               `json:"store"`
	Text               textSettings       `json:"text"`
	Tools              []any              `json:"tools"` // a toolEcho, or a tool as in the request
	TopLogprobs        int64              `json:"top_logprobs"`
	Truncation         string             `json:"truncation"`
	FrequencyPenalty   float64            `json:"frequency_penalty"`
	PresencePenalty    float64            `json:"presence_penalty"`
	Usage              *usage             `json:"usage"`
}

type conversationEcho struct {
	ID string `json:"id"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type reasoningEcho struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"` // chat completions have none
}

type toolEcho struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      bool           `json:"strict"`
}

type outputItem struct {
	ID               string         `json:"id"`
	Type             string         `json:"type"`
	Status           string         `json:"status,omitzero"`
	Role             string         `json:"role,omitzero"`
	Content          []outputPart   `json:"content,omitzero"`
	CallID           string         `json:"call_id,omitzero"`
	Namespace        string         `json:"namespace,omitzero"`
	Name             *string        `json:"name,omitzero"`
	Arguments        jsontext.Value `json:"arguments,omitzero"`
	EncryptedContent *string        `json:"encrypted_content,omitzero"`
	Input            *string        `json:"input,omitzero"`
	Execution        string         `json:"execution,omitzero"`
}

type outputPart struct {
	Type        string           `json:"type"`
	Annotations []struct{}       `json:"annotations,omitzero"` // always empty
	Logprobs    []openai.Logprob `json:"logprobs,omitzero"`
	Text        *string          `json:"text,omitzero"`
	Refusal     *string          `json:"refusal,omitzero"`
}

func messageItem(id, status string, parts []outputPart) outputItem {
	if parts == nil {
		parts = []outputPart{}
	}
	return outputItem{ID: id, Type: "message", Status: status, Role: "assistant", Content: parts}
}

// callItem returns the item for the call of a tool. The arguments are those of its function.
func callItem(id, status, callID string, ref toolRef, arguments string) outputItem {
	out := outputItem{ID: id, Type: string(ref.kind), Status: status, CallID: callID, Namespace: ref.namespace}
	switch ref.kind {
	case customCall:
		out.Name, out.Input = &ref.name, &arguments
	case toolSearchCall:
		out.Execution = "client"
		if out.Arguments = jsontext.Value(arguments); !out.Arguments.IsValid(lenient...) {
			out.Arguments = jsontext.Value("{}")
		}
	default:
		out.Name = &ref.name
		out.Arguments, _ = jsontext.AppendQuote(nil, arguments)
	}
	return out
}

func textOutput(text string, logprobs []openai.Logprob) outputPart {
	return outputPart{Type: "output_text", Annotations: []struct{}{}, Logprobs: notNil(logprobs), Text: &text}
}

func refusalOutput(text string) outputPart {
	return outputPart{Type: "refusal", Refusal: &text}
}

type usage struct {
	InputTokens        int64 `json:"input_tokens"`
	InputTokensDetails struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int64 `json:"output_tokens"`
	OutputTokensDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	TotalTokens int64          `json:"total_tokens"`
	Credits     jsontext.Value `json:"credits,omitzero"`
}

// response returns nil if the completion has no usage.
func (u *chatUsage) response() *usage {
	if !u.set {
		return nil
	}
	out := &usage{InputTokens: int64(u.Prompt), OutputTokens: int64(u.Output), TotalTokens: int64(u.Total)}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	out.InputTokensDetails.CachedTokens = int64(u.Details.Cached)
	out.InputTokensDetails.CacheWriteTokens = int64(u.Details.Written)
	out.OutputTokensDetails.ReasoningTokens = int64(u.OutputDetails.Reasoning)
	if u.Credits.Kind() == jsontext.KindNumber {
		out.Credits = u.Credits
	}
	return out
}

func (r *Request) newResponse(of *completion) *response {
	in := r.in
	out := &response{
		settings:          in.settings,
		ID:                "resp_" + r.suffix(string(of.ID)),
		Object:            "response",
		CreatedAt:         int64(of.Created),
		Background:        in.Background,
		Status:            inProgress,
		Model:             cmp.Or(string(of.Model), r.Model),
		ParallelToolCalls: in.ParallelToolCalls == nil || *in.ParallelToolCalls,
		Text:              textSettings{Format: &textFormat{Type: "text"}},
		Truncation:        "disabled",
	}
	if in.Background {
		out.CreatedAt = r.CreatedAt.Unix()
	}
	if out.Temperature == nil {
		out.Temperature = new(1.0)
	}
	if out.TopP == nil {
		out.TopP = new(1.0)
	}
	if value(out.ServiceTier) == "" {
		out.ServiceTier = new("default")
	}
	out.Store, out.PreviousResponseID = r.Stored, in.PreviousResponseID
	if id := r.ConversationID(); id != "" {
		out.Conversation = &conversationEcho{id}
	}
	if out.ToolChoice.IsNull() {
		out.ToolChoice = toolChoice{Kind: jsontext.KindString, Text: "auto"}
	}
	if in.Reasoning != nil {
		out.Reasoning.Effort = in.Reasoning.Effort
	}
	if in.Text != nil {
		out.Text.Verbosity = in.Text.Verbosity
		if in.Text.Format != nil {
			out.Text.Format = in.Text.Format
		}
	}
	if in.TopLogprobs != nil {
		out.TopLogprobs = *in.TopLogprobs
	}
	if !isSet(in.Metadata) {
		out.Metadata = jsontext.Value("{}")
	}
	out.Tools = r.toolEchoes()
	out.setServiceTier(of)
	return out
}

func (r *Request) toolEchoes() []any {
	out := make([]any, 0, len(r.in.Tools))
	var given struct {
		Tools []jsontext.Value `json:"tools"`
	}
	for i, t := range r.in.Tools {
		if t.Type == "function" {
			out = append(out, toolEcho{
				Type: t.Type, Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict != nil && *t.Strict,
			})
			continue
		}
		if given.Tools == nil {
			_ = json.Unmarshal(r.body, &given, lenient...) // it was decoded before
		}
		out = append(out, given.Tools[i])
	}
	return out
}

// setServiceTier sets the tier that served the call, which may differ from the requested one.
func (r *response) setServiceTier(of *completion) {
	if of.ServiceTier != "" {
		tier := string(of.ServiceTier)
		r.ServiceTier = &tier
	}
}

// finish sets the status by the finish reason. If the output was cut, the last item is incomplete.
func (r *response) finish(reason text) {
	r.Status = completed
	switch reason {
	case "length":
		r.IncompleteDetails = &incompleteDetails{Reason: "max_output_tokens"}
	case "content_filter":
		r.IncompleteDetails = &incompleteDetails{Reason: "content_filter"}
	default:
		return
	}
	r.Status = incomplete
	if n := len(r.Output); n > 0 && r.Output[n-1].Status != "" {
		r.Output[n-1].Status = incomplete
	}
}

func (r *Request) completedAt() *int64 {
	if r.Now == nil {
		return nil
	}
	return new(r.Now().Unix())
}

func (r *Request) suffix(chatID string) string {
	if r.ID == "" {
		sum := sha256.Sum256([]byte(chatID))
		return hex.EncodeToString(sum[:16])
	}
	if _, rest, ok := strings.Cut(r.ID, "_"); ok && rest != "" {
		return rest
	}
	return r.ID
}

func itemID(kind, responseID string, index int) string {
	return kind + strings.TrimPrefix(responseID, "resp") + "_" + strconv.Itoa(index)
}

// ToResponse translates a plain chat completion.
func (r *Request) ToResponse(completion []byte) ([]byte, error) {
	c, err := readCompletion(completion)
	if err != nil {
		return nil, err
	}
	choice := c.firstChoice()
	if choice == nil {
		return nil, fault.New(fault.Upstream, "The model provider's response has no choices.")
	}
	out := r.newResponse(c)
	out.addOutput(choice, r)
	out.finish(choice.FinishReason)
	out.CompletedAt = r.completedAt()
	out.Usage = c.Usage.response()
	text, err := json.Marshal(out, lenient...)
	if err != nil {
		return nil, fault.New(fault.Internal, "The response could not be encoded.").Because(err)
	}
	return text, nil
}

func (r *response) addOutput(c *choice, of *Request) {
	if of.compacting {
		r.Output = append(r.Output, compactionOutput(itemID("cmp", r.ID, 0), string(c.Message.Content)))
		return
	}
	tools := &of.tools
	var parts []outputPart
	if c.Message.Content != "" {
		parts = append(parts, textOutput(string(c.Message.Content), c.Logprobs.Content))
	}
	if c.Message.Refusal != "" {
		parts = append(parts, refusalOutput(string(c.Message.Refusal)))
	}
	if parts != nil {
		r.Output = append(r.Output, messageItem(itemID("msg", r.ID, 0), completed, parts))
	}
	for _, call := range c.Message.ToolCalls {
		n := len(r.Output)
		callID := cmp.Or(string(call.ID), itemID("call", r.ID, n))
		ref, arguments := tools.ref(string(call.Function.Name)), string(call.Function.Arguments)
		if ref.kind == customCall {
			arguments = customInput(arguments)
		}
		r.Output = append(r.Output, callItem(itemID(ref.kind.idPrefix(), r.ID, n), completed, callID, ref, arguments))
	}
}
