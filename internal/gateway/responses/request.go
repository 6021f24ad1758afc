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
	MaxToolCalls      *int64         `json:"max_tool_calls"` // counts hosted tools, of which there are none
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

	// ClientMetadata is what Codex tells OpenAI's own server about itself. A chat
	// has no such field, and OpenAI refuses one that it does not know.
	ClientMetadata jsontext.Value `json:"client_metadata"`

	// They refer to what a server would have had to store.
	PreviousResponseID jsontext.Value `json:"previous_response_id"`
	Conversation       jsontext.Value `json:"conversation"`
	Prompt             jsontext.Value `json:"prompt"`
	ContextManagement  jsontext.Value `json:"context_management"`

	// They are chat's, and have another name or place here.
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

	// Extra is all the rest, which goes to the provider as it is.
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

// isSet reports whether a field is there and is not null.
func isSet(v jsontext.Value) bool {
	return len(v) > 0 && v.Kind() != jsontext.KindNull
}

// refuse names the first field that asks for what is not possible here.
func (in *request) refuse() error {
	if in.Background {
		return fault.Invalid("background", "background true is not supported: no response is stored that could be asked for later; leave it out and read the answer, or stream it")
	}
	if in.N != nil && *in.N != 1 {
		return fault.Invalid("n", "n must be 1 or absent: a response is one answer; send the request again for another")
	}
	for _, f := range []struct {
		name  string
		value jsontext.Value
		hint  string
	}{
		{"previous_response_id", in.PreviousResponseID, "responses are not stored; send the whole conversation in input"},
		{"conversation", in.Conversation, "conversations are not stored; send the whole conversation in input"},
		{"prompt", in.Prompt, "prompts are not stored; send its text in instructions or input"},
		{"context_management", in.ContextManagement, "the input reaches the model as it is; shorten it yourself"},
		{"audio", in.Audio, "answers are text; use POST /v1/chat/completions for spoken ones"},
	} {
		if isSet(f.value) {
			return fault.Invalid(f.name, "%s is not supported: %s", f.name, f.hint)
		}
	}
	for _, f := range []struct {
		name  string
		value jsontext.Value
		here  string
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
			return fault.Param(fault.UnknownParameter, f.name, "%s belongs to chat completions: use %s here", f.name, f.here)
		}
	}
	return nil
}

// settings copies what has the same meaning in both APIs. Neither store nor
// metadata goes on: nothing shall be stored, and OpenAI refuses a chat that
// has metadata and is not stored.
func (in *request) settings(out *chat) error {
	if in.MaxOutputTokens != nil && *in.MaxOutputTokens < 1 {
		return fault.Invalid("max_output_tokens", "max_output_tokens must be at least 1")
	}
	if isSet(in.Metadata) && in.Metadata.Kind() != jsontext.KindBeginObject {
		return fault.Invalid("metadata", "metadata must be an object")
	}
	// With "auto" a provider would cut the input where it is too long. None
	// does so in a chat, and the answer says "disabled".
	if t := in.Truncation; t != nil && *t != "disabled" && *t != "auto" {
		return fault.Invalid("truncation", "truncation must be disabled or auto; the input is never truncated")
	}
	if err := in.included(out); err != nil {
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
		out.StreamOptions = &streamOptions{IncludeUsage: true} // a response's last event has it
		if in.StreamOptions != nil {
			out.StreamOptions.IncludeObfuscation = in.StreamOptions.IncludeObfuscation
		}
	}
	return nil
}

const includeLogprobs = "message.output_text.logprobs"

// includable is what "include" can ask for. Only the log probabilities are a
// chat's to give: the others belong to tools that are not offered, or to
// reasoning, which a chat does not show.
var includable = []string{
	includeLogprobs,
	"reasoning.encrypted_content",
	"message.input_image.image_url",
	"computer_call_output.output.image_url",
	"code_interpreter_call.outputs",
	"file_search_call.results",
	"web_search_call.results",
	"web_search_call.action.sources",
}

func (in *request) included(out *chat) error {
	for i, name := range in.Include {
		if !slices.Contains(includable, name) {
			at := "include[" + strconv.Itoa(i) + "]"
			return fault.Invalid(at, "%s %.80q is not known; %s and reasoning.encrypted_content are", at, name, includeLogprobs)
		}
	}
	if t := in.TopLogprobs; t != nil && (*t < 0 || *t > 20) {
		return fault.Invalid("top_logprobs", "top_logprobs must be from 0 to 20")
	}
	wanted := in.TopLogprobs != nil && *in.TopLogprobs > 0
	if wanted || slices.Contains(in.Include, includeLogprobs) {
		out.Logprobs, out.TopLogprobs = true, in.TopLogprobs
	}
	return nil
}
