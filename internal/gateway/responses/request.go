package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// request is the body of POST /v1/responses.
type request struct {
	Model             *string        `json:"model"`
	Input             input          `json:"input"`
	Instructions      *string        `json:"instructions"`
	Tools             []tool         `json:"tools"`
	ToolChoice        toolChoice     `json:"tool_choice"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls"`
	Temperature       *float64       `json:"temperature"`
	TopP              *float64       `json:"top_p"`
	TopLogprobs       *int64         `json:"top_logprobs"`
	MaxOutputTokens   *int64         `json:"max_output_tokens"`
	MaxToolCalls      *int64         `json:"max_tool_calls"` // limits hosted tools, which are not supported
	Text              *textSettings  `json:"text"`
	Reasoning         *reasoning     `json:"reasoning"`
	Metadata          jsontext.Value `json:"metadata"`
	User              *string        `json:"user"`
	SafetyIdentifier  *string        `json:"safety_identifier"`
	PromptCacheKey    *string        `json:"prompt_cache_key"`
	ServiceTier       *string        `json:"service_tier"`
	Store             *bool          `json:"store"`
	Truncation        *string        `json:"truncation"`
	Include           []string       `json:"include"`
	Stream            bool           `json:"stream"`
	StreamOptions     *streamOptions `json:"stream_options"`
	Background        bool           `json:"background"`
	N                 *int64         `json:"n"`

	// ClientMetadata is sent by Codex. Chat completions have no such field, and OpenAI rejects
	// unknown ones.
	ClientMetadata jsontext.Value `json:"client_metadata"`

	// These refer to state that a server would have to store.
	PreviousResponseID jsontext.Value `json:"previous_response_id"`
	Conversation       jsontext.Value `json:"conversation"`
	Prompt             jsontext.Value `json:"prompt"`
	ContextManagement  jsontext.Value `json:"context_management"`

	// These are fields of chat completions with another name in the Responses API.
	Messages            jsontext.Value `json:"messages"`
	ResponseFormat      jsontext.Value `json:"response_format"`
	ReasoningEffort     jsontext.Value `json:"reasoning_effort"`
	Verbosity           jsontext.Value `json:"verbosity"`
	MaxTokens           jsontext.Value `json:"max_tokens"`
	MaxCompletionTokens jsontext.Value `json:"max_completion_tokens"`
	Logprobs            jsontext.Value `json:"logprobs"`
	Functions           jsontext.Value `json:"functions"`
	FunctionCall        jsontext.Value `json:"function_call"`
	Audio               jsontext.Value `json:"audio"`

	// Extra holds all other fields, which are forwarded unchanged.
	Extra jsontext.Value `json:",embed"`
}

type reasoning struct {
	Effort *string `json:"effort"`
}

type streamOptions struct {
	IncludeUsage       bool  `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation,omitzero"`
}

// chat is the body of a chat completion request.
type chat struct {
	Model               *string         `json:"model,omitzero"`
	Messages            []message       `json:"messages"`
	Tools               []chatTool      `json:"tools,omitzero"`
	ToolChoice          *chatChoice     `json:"tool_choice,omitzero"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls,omitzero"`
	Temperature         *float64        `json:"temperature,omitzero"`
	TopP                *float64        `json:"top_p,omitzero"`
	Logprobs            bool            `json:"logprobs,omitzero"`
	TopLogprobs         *int64          `json:"top_logprobs,omitzero"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens,omitzero"`
	ResponseFormat      *responseFormat `json:"response_format,omitzero"`
	Verbosity           *string         `json:"verbosity,omitzero"`
	ReasoningEffort     *string         `json:"reasoning_effort,omitzero"`
	User                *string         `json:"user,omitzero"`
	SafetyIdentifier    *string         `json:"safety_identifier,omitzero"`
	PromptCacheKey      *string         `json:"prompt_cache_key,omitzero"`
	ServiceTier         *string         `json:"service_tier,omitzero"`
	Stream              bool            `json:"stream,omitzero"`
	StreamOptions       *streamOptions  `json:"stream_options,omitzero"`
	Extra               jsontext.Value  `json:",embed"`
}

// isSet reports whether a field is present and not null.
func isSet(v jsontext.Value) bool {
	return len(v) > 0 && v.Kind() != jsontext.KindNull
}

// rejectUnsupported returns an error for the first unsupported field.
func (in *request) rejectUnsupported() error {
	if in.Background {
		return fault.Invalid("background", "background true is not supported: responses are not stored. Omit it, and read or stream the response.")
	}
	if in.N != nil && *in.N != 1 {
		return fault.Invalid("n", "n must be 1 or absent. For another response, repeat the request.")
	}
	for _, f := range []struct {
		name  string
		value jsontext.Value
		hint  string
	}{
		{"previous_response_id", in.PreviousResponseID, "responses are not stored. Send the whole conversation in input."},
		{"conversation", in.Conversation, "conversations are not stored. Send the whole conversation in input."},
		{"prompt", in.Prompt, "prompts are not stored. Send its text in instructions or input."},
		{"context_management", in.ContextManagement, "the input is forwarded unchanged. Shorten it yourself."},
		{"audio", in.Audio, "responses are text. For audio, use POST /v1/chat/completions."},
	} {
		if isSet(f.value) {
			return fault.Invalid(f.name, "%s is not supported: %s", f.name, f.hint)
		}
	}
	for _, f := range []struct {
		name        string
		value       jsontext.Value
		replacement string
	}{
		{"messages", in.Messages, "input"},
		{"response_format", in.ResponseFormat, "text.format"},
		{"reasoning_effort", in.ReasoningEffort, "reasoning.effort"},
		{"verbosity", in.Verbosity, "text.verbosity"},
		{"max_tokens", in.MaxTokens, "max_output_tokens"},
		{"max_completion_tokens", in.MaxCompletionTokens, "max_output_tokens"},
		{"logprobs", in.Logprobs, `include: ["message.output_text.logprobs"]`},
		{"functions", in.Functions, "tools"},
		{"function_call", in.FunctionCall, "tool_choice"},
	} {
		if isSet(f.value) {
			return fault.Param(fault.UnknownParameter, f.name, "%s belongs to chat completions. Use %s instead.", f.name, f.replacement)
		}
	}
	return nil
}

// copySettings copies the fields that mean the same in both APIs. It drops store and metadata:
// nothing is stored, and OpenAI rejects metadata without store.
func (in *request) copySettings(out *chat) error {
	if in.MaxOutputTokens != nil && *in.MaxOutputTokens < 1 {
		return fault.Invalid("max_output_tokens", "max_output_tokens must be at least 1.")
	}
	if isSet(in.Metadata) && in.Metadata.Kind() != jsontext.KindBeginObject {
		return fault.Invalid("metadata", "metadata must be an object.")
	}
	// Chat completions never truncate, so the response says "disabled" even for "auto".
	if t := in.Truncation; t != nil && *t != "disabled" && *t != "auto" {
		return fault.Invalid("truncation", "truncation must be disabled or auto. The input is never truncated.")
	}
	if err := in.applyInclude(out); err != nil {
		return err
	}
	out.Temperature, out.TopP = in.Temperature, in.TopP
	out.MaxCompletionTokens = in.MaxOutputTokens
	out.User, out.SafetyIdentifier = in.User, in.SafetyIdentifier
	out.PromptCacheKey, out.ServiceTier = in.PromptCacheKey, in.ServiceTier
	if in.Reasoning != nil {
		out.ReasoningEffort = in.Reasoning.Effort
	}
	if in.Stream {
		out.Stream = true
		out.StreamOptions = &streamOptions{IncludeUsage: true} // the last event of a response contains it
		if in.StreamOptions != nil {
			out.StreamOptions.IncludeObfuscation = in.StreamOptions.IncludeObfuscation
		}
	}
	return nil
}

const includeLogprobs = "message.output_text.logprobs"

// includeValues are the valid values of "include". Only log probabilities have an effect: the
// others belong to unsupported tools, or to reasoning, which chat completions don't return.
var includeValues = []string{
	includeLogprobs,
	"reasoning.encrypted_content",
	"message.input_image.image_url",
	"computer_call_output.output.image_url",
	"code_interpreter_call.outputs",
	"file_search_call.results",
	"web_search_call.results",
	"web_search_call.action.sources",
}

func (in *request) applyInclude(out *chat) error {
	for i, name := range in.Include {
		if !slices.Contains(includeValues, name) {
			at := "include[" + strconv.Itoa(i) + "]"
			return fault.Invalid(at, "%s %.80q is unknown. Use %s or reasoning.encrypted_content.", at, name, includeLogprobs)
		}
	}
	if t := in.TopLogprobs; t != nil && (*t < 0 || *t > 20) {
		return fault.Invalid("top_logprobs", "top_logprobs must be from 0 to 20.")
	}
	requested := in.TopLogprobs != nil && *in.TopLogprobs > 0
	if requested || slices.Contains(in.Include, includeLogprobs) {
		out.Logprobs, out.TopLogprobs = true, in.TopLogprobs
	}
	return nil
}
