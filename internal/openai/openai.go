// Package openai holds the wire format of OpenAI's chat completions: the types
// of requests and responses, their decoding, and the checks of their shape.
//
// Translators to other providers and the simulator decode a whole ChatRequest.
// The gateway reads only Routing and forwards the body unchanged.
//
// Errors are *fault.Error and name the field as the client wrote it.
package openai

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// ChatRequest is the body of POST /v1/chat/completions.
type ChatRequest struct {
	Model               string                 `json:"model,omitzero"`
	Messages            []Message              `json:"messages"`
	Tools               []Tool                 `json:"tools,omitzero"`
	ToolChoice          StringOr[ChoiceObject] `json:"tool_choice,omitzero"` // read it with ReadToolChoice
	ParallelToolCalls   *bool                  `json:"parallel_tool_calls,omitzero"`
	N                   *int64                 `json:"n,omitzero"`
	MaxTokens           *int64                 `json:"max_tokens,omitzero"`
	MaxCompletionTokens *int64                 `json:"max_completion_tokens,omitzero"`
	Temperature         *float64               `json:"temperature,omitzero"`
	TopP                *float64               `json:"top_p,omitzero"`
	PresencePenalty     *float64               `json:"presence_penalty,omitzero"`
	FrequencyPenalty    *float64               `json:"frequency_penalty,omitzero"`
	Seed                *int64                 `json:"seed,omitzero"`
	Stop                StringOr[[]string]     `json:"stop,omitzero"` // read it with ReadStop
	Logprobs            bool                   `json:"logprobs,omitzero"`
	TopLogprobs         *int64                 `json:"top_logprobs,omitzero"`
	ResponseFormat      *ResponseFormat        `json:"response_format,omitzero"`
	Verbosity           string                 `json:"verbosity,omitzero"`
	ReasoningEffort     string                 `json:"reasoning_effort,omitzero"`
	User                string                 `json:"user,omitzero"`
	SafetyIdentifier    string                 `json:"safety_identifier,omitzero"`
	PromptCacheKey      string                 `json:"prompt_cache_key,omitzero"`
	ServiceTier         string                 `json:"service_tier,omitzero"`
	Modalities          []string               `json:"modalities,omitzero"`
	Functions           jsontext.Value         `json:"functions,omitzero"` // the predecessor of tools
	WebSearchOptions    jsontext.Value         `json:"web_search_options,omitzero"`
	Stream              bool                   `json:"stream,omitzero"`
	StreamOptions       *StreamOptions         `json:"stream_options,omitzero"`
	Extra               jsontext.Value         `json:",embed"` // all other fields
}

// StreamOptions are the options of a streamed response.
type StreamOptions struct {
	IncludeUsage       bool  `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation,omitzero"`
}

// Decode reads a chat request. It checks types, not values.
func Decode(body []byte) (*ChatRequest, error) {
	r := new(ChatRequest)
	if err := jsonbody.DecodeLenient(body, r); err != nil {
		return nil, err
	}
	return r, nil
}

// IncludeUsage reports whether every chunk of a stream shall have a usage field.
func (r *ChatRequest) IncludeUsage() bool {
	return r.StreamOptions != nil && r.StreamOptions.IncludeUsage
}

// OneCallAtATime reports whether the client accepts at most one tool call per response.
func (r *ChatRequest) OneCallAtATime() bool {
	return r.ParallelToolCalls != nil && !*r.ParallelToolCalls
}

// MaxOutput returns the client's limit on the tokens of a choice, at most
// limit; 0 stands for no limit.
func (r *ChatRequest) MaxOutput(limit int64) (int64, error) {
	requested, err := maxOutput(r.MaxTokens, r.MaxCompletionTokens)
	if requested == 0 || limit > 0 && limit < requested {
		return limit, err
	}
	return requested, err
}

// maxOutput prefers max_completion_tokens, which replaces max_tokens.
func maxOutput(maxTokens, maxCompletionTokens *int64) (limit int64, err error) {
	for _, field := range []struct {
		name  string
		value *int64
	}{{"max_tokens", maxTokens}, {"max_completion_tokens", maxCompletionTokens}} {
		if field.value == nil {
			continue
		}
		if *field.value < 1 {
			return 0, fault.Invalid(field.name, "%s must be at least 1.", field.name)
		}
		limit = *field.value
	}
	return limit, nil
}

// CheckSampling checks the ranges of temperature, top_p and the penalties.
func (r *ChatRequest) CheckSampling() error {
	for _, field := range []struct {
		name     string
		value    *float64
		min, max float64
	}{
		{"temperature", r.Temperature, 0, 2},
		{"top_p", r.TopP, 0, 1},
		{"presence_penalty", r.PresencePenalty, -2, 2},
		{"frequency_penalty", r.FrequencyPenalty, -2, 2},
	} {
		if field.value != nil && (*field.value < field.min || *field.value > field.max) {
			return fault.Invalid(field.name, "%s must be from %g to %g.", field.name, field.min, field.max)
		}
	}
	return nil
}

// ReadStop returns the stop sequences.
func (r *ChatRequest) ReadStop() ([]string, error) {
	sequences := r.Stop.Value
	if r.Stop.Kind == jsontext.KindString {
		sequences = []string{r.Stop.Text}
	}
	if !r.Stop.valid() || slices.Contains(sequences, "") {
		return nil, fault.Invalid("stop", "stop must be a string or an array of strings, none of them empty.")
	}
	return sequences, nil
}

// CheckTranslatable rejects fields that change the response in a way that only
// OpenAI's own format can express. Translators ignore other unknown fields.
func (r *ChatRequest) CheckTranslatable() error {
	const unsupported = "is not supported by this model's provider"
	if r.Logprobs {
		return fault.Invalid("logprobs", "logprobs %s.", unsupported)
	}
	for i, modality := range r.Modalities {
		if modality != "text" {
			param := fmt.Sprintf("modalities[%d]", i)
			return fault.Invalid(param, "%s must be \"text\". Other output %s.", param, unsupported)
		}
	}
	if isSet(r.Functions) {
		return fault.Invalid("functions", "functions %s. Use tools.", unsupported)
	}
	if isSet(r.WebSearchOptions) {
		return fault.Invalid("web_search_options", "web_search_options %s. Offer a tool that searches.", unsupported)
	}
	return nil
}

func isSet(v jsontext.Value) bool {
	return len(v) > 0 && v.Kind() != jsontext.KindNull
}

// ChatNames are the fields of a chat request that the gateway or a provider
// reads, sets or drops. The gateway rejects other spellings of them: a provider
// that ignores case would otherwise read "Model" where Turnpike has priced "model".
var ChatNames = chatNames()

func chatNames() jsonbody.Names {
	names := jsonbody.NamesOf[ChatRequest]()
	names["models"] = nil    // Turnpike's fallbacks
	names["n_predict"] = nil // llama.cpp's max_tokens
	names["store"] = nil
	names["messages"]["content"]["image"] = nil
	names["messages"]["tool_calls"]["extra_content"] = jsonbody.Names{"google": jsonbody.NewNames("thought_signature", nil)}
	return names
}
