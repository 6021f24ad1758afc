package openai

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Completion is the response to a chat request that isn't streamed.
type Completion struct {
	Head
	Choices []Choice `json:"choices"`
	Usage   Usage    `json:"usage"`
}

// Choice is one of the responses that a Completion has.
type Choice struct {
	Index        int              `json:"index"`
	Message      AssistantMessage `json:"message"`
	Logprobs     *Logprobs        `json:"logprobs"`
	FinishReason string           `json:"finish_reason"`
}

// AssistantMessage is the message of a Choice. Content is nil if the model only called tools.
type AssistantMessage struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"`
	Refusal          *string    `json:"refusal"`
	Annotations      []struct{} `json:"annotations"` // always empty
	ReasoningContent string     `json:"reasoning_content,omitzero"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
}

// Chunk is an event of a streamed response.
type Chunk struct {
	Head
	Choices []ChunkChoice `json:"choices"`
	// Usage is the encoded Usage, or null in other chunks than the last of a
	// stream that was asked for the usage.
	Usage jsontext.Value `json:"usage,omitzero"`
}

// ChunkChoice is the part of a choice that a Chunk adds.
type ChunkChoice struct {
	Index        int       `json:"index"`
	Delta        Delta     `json:"delta"`
	Logprobs     *Logprobs `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

// Logprobs are the log probabilities of the tokens of a choice: of its content or its refusal.
type Logprobs struct {
	Content *[]Logprob `json:"content"`
	Refusal *[]Logprob `json:"refusal"`
}

// Logprob is the log probability of a token. The top ones have none of their own.
type Logprob struct {
	Token       string    `json:"token"`
	Logprob     float64   `json:"logprob"`
	Bytes       []int64   `json:"bytes"`
	TopLogprobs []Logprob `json:"top_logprobs,omitzero"`
}

// Delta is what a chunk adds to the message of a choice.
type Delta struct {
	Role             string         `json:"role,omitzero"`
	Content          *string        `json:"content,omitzero"`
	Refusal          jsontext.Value `json:"refusal,omitzero"`
	ReasoningContent string         `json:"reasoning_content,omitzero"`
	ToolCalls        []ToolCall     `json:"tool_calls,omitempty"`
}

// FirstDelta returns the delta that starts a choice.
func FirstDelta() Delta {
	return Delta{Role: "assistant", Content: new(""), Refusal: jsontext.Value("null")}
}

// Usage counts the tokens of a request. Cached and written tokens are part of
// the prompt, and reasoning tokens are part of the completion.
type Usage struct {
	PromptTokens      int64             `json:"prompt_tokens"`
	CompletionTokens  int64             `json:"completion_tokens"`
	TotalTokens       int64             `json:"total_tokens"`
	PromptDetails     PromptDetails     `json:"prompt_tokens_details"`
	CompletionDetails CompletionDetails `json:"completion_tokens_details"`
}

// PromptDetails are the prompt tokens by kind.
type PromptDetails struct {
	CachedTokens     int64 `json:"cached_tokens"`
	CacheWriteTokens int64 `json:"cache_write_tokens"`
	AudioTokens      int64 `json:"audio_tokens"`
}

// CompletionDetails are the completion tokens by kind.
type CompletionDetails struct {
	ReasoningTokens          int64 `json:"reasoning_tokens"`
	AudioTokens              int64 `json:"audio_tokens"`
	AcceptedPredictionTokens int64 `json:"accepted_prediction_tokens"`
	RejectedPredictionTokens int64 `json:"rejected_prediction_tokens"`
}

// Encode encodes a completion or a chunk. It can't fail: both have only
// strings, numbers and valid JSON, and invalid UTF-8 is replaced.
func Encode[T Completion | Chunk | Usage](v T) []byte {
	b, _ := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
	return b
}

// FunctionToolCall returns a tool call for a response.
func FunctionToolCall(id, name, arguments string) ToolCall {
	return ToolCall{ID: id, Type: "function", Function: &FunctionCall{Name: name, Arguments: arguments}}
}

// Head begins a response and each of its chunks.
type Head struct {
	ID                string `json:"id"`
	Object            string `json:"object"`
	Created           int64  `json:"created"`
	Model             string `json:"model"`
	ServiceTier       string `json:"service_tier,omitzero"`
	SystemFingerprint string `json:"system_fingerprint,omitzero"`
}

// Completion returns a completion with the given choices.
func (h Head) Completion(choices []Choice, usage Usage) Completion {
	h.Object = "chat.completion"
	return Completion{Head: h, Choices: choices, Usage: usage}
}

// Chunk returns a chunk with the given choices, which may be none.
func (h Head) Chunk(choices ...ChunkChoice) Chunk {
	h.Object = "chat.completion.chunk"
	return Chunk{Head: h, Choices: choices}
}
