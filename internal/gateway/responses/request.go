// Package responses reads requests of OpenAI's Responses API. For providers without that API, it
// translates them to chat completions, and plain or streamed completions back to responses.
package responses

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
)

type request struct {
	settings
	Model             *string               `json:"model"`
	Models            []string              `json:"models"` // fallbacks
	Input             input                 `json:"input"`
	Tools             []tool                `json:"tools"`
	ParallelToolCalls *bool                 `json:"parallel_tool_calls"`
	TopLogprobs       *int64                `json:"top_logprobs"`
	Text              *textSettings         `json:"text"`
	Reasoning         *reasoning            `json:"reasoning"`
	Store             *bool                 `json:"store"`
	Truncation        *string               `json:"truncation"`
	Include           []string              `json:"include"`
	Stream            bool                  `json:"stream"`
	StreamOptions     *openai.StreamOptions `json:"stream_options"`
	Background        bool                  `json:"background"`
	N                 *int64                `json:"n"`

	PreviousResponseID *string        `json:"previous_response_id"`
	Conversation       conversationID `json:"conversation"`

	// ClientMetadata is sent by Codex. Chat completions have no such field, and OpenAI rejects
	// unknown ones.
	ClientMetadata jsontext.Value `json:"client_metadata"`

	// Extra holds all other fields, which are forwarded unchanged unless they are unsupported.
	Extra map[string]jsontext.Value `json:",embed"`
}

// settings are the fields of a request that its response repeats.
type settings struct {
	Instructions     *string        `json:"instructions"`
	MaxOutputTokens  *int64         `json:"max_output_tokens"`
	MaxToolCalls     *int64         `json:"max_tool_calls"` // limits hosted tools, which are not supported
	Metadata         jsontext.Value `json:"metadata"`
	PromptCacheKey   *string        `json:"prompt_cache_key"`
	SafetyIdentifier *string        `json:"safety_identifier"`
	ServiceTier      *string        `json:"service_tier"`
	Temperature      *float64       `json:"temperature"`
	ToolChoice       toolChoice     `json:"tool_choice"`
	TopP             *float64       `json:"top_p"`
	User             *string        `json:"user"`
}

type reasoning struct {
	Effort *string `json:"effort"`
}

func isSet(v jsontext.Value) bool {
	return len(v) > 0 && v.Kind() != jsontext.KindNull
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// unsupported are fields that Turnpike has no counterpart for, and fields of chat completions that
// have another name in the Responses API.
var unsupported = []struct{ name, hint, replacement string }{
	{"prompt", "prompts are not stored. Send its text in instructions or input.", ""},
	{"audio", "responses are text. For audio, use POST /v1/chat/completions.", ""},
	{"messages", "", "input"},
	{"response_format", "", "text.format"},
	{"reasoning_effort", "", "reasoning.effort"},
	{"verbosity", "", "text.verbosity"},
	{"max_tokens", "", "max_output_tokens"},
	{"max_completion_tokens", "", "max_output_tokens"},
	{"logprobs", "", `include: ["message.output_text.logprobs"]`},
	{"functions", "", "tools"},
	{"function_call", "", "tool_choice"},
}

func (in *request) rejectUnsupported() error {
	if in.N != nil && *in.N != 1 {
		return fault.Invalid("n", "n must be 1 or absent. For another response, repeat the request.")
	}
	if in.MaxOutputTokens != nil && *in.MaxOutputTokens < 1 {
		return fault.Invalid("max_output_tokens", "max_output_tokens must be at least 1.")
	}
	if isSet(in.Metadata) && in.Metadata.Kind() != jsontext.KindBeginObject {
		return fault.Invalid("metadata", "metadata must be an object.")
	}
	for _, f := range unsupported {
		switch {
		case !isSet(in.Extra[f.name]):
			delete(in.Extra, f.name)
		case f.replacement != "":
			return fault.Param(fault.UnknownParameter, f.name, "%s belongs to chat completions. Use %s instead.", f.name, f.replacement)
		default:
			return fault.Invalid(f.name, "%s is not supported: %s", f.name, f.hint)
		}
	}
	return nil
}

// copySettings copies the fields that mean the same in both APIs. It drops store and metadata:
// nothing is stored, and OpenAI rejects metadata without store.
func (in *request) copySettings(out *openai.ChatRequest) error {
	if isSet(in.Extra["context_management"]) {
		return fault.Invalid("context_management", "context_management is not supported by this model's provider. Shorten the input yourself.")
	}
	delete(in.Extra, "context_management")
	// Chat completions never truncate, so the response says "disabled" even for "auto".
	if t := in.Truncation; t != nil && *t != "disabled" && *t != "auto" {
		return fault.Invalid("truncation", "truncation must be disabled or auto. The input is never truncated.")
	}
	if err := in.applyInclude(out); err != nil {
		return err
	}
	out.Temperature, out.TopP = in.Temperature, in.TopP
	out.MaxCompletionTokens = in.MaxOutputTokens
	out.User, out.SafetyIdentifier = value(in.User), value(in.SafetyIdentifier)
	out.PromptCacheKey, out.ServiceTier = value(in.PromptCacheKey), value(in.ServiceTier)
	if in.Reasoning != nil {
		out.ReasoningEffort = value(in.Reasoning.Effort)
	}
	if in.Stream {
		out.Stream = true
		out.StreamOptions = &openai.StreamOptions{IncludeUsage: true} // the last event of a response contains it
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

func (in *request) applyInclude(out *openai.ChatRequest) error {
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

// textSettings is "text" in a request and in its response.
type textSettings struct {
	Format    *textFormat `json:"format"`
	Verbosity *string     `json:"verbosity,omitzero"`
}

type textFormat struct {
	Type        string         `json:"type"`
	Name        string         `json:"name,omitzero"`
	Description *string        `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// translateText translates "text". The schema is one object deeper in chat completions.
func (in *request) translateText(out *openai.ChatRequest) error {
	if in.Text == nil {
		return nil
	}
	out.Verbosity = value(in.Text.Verbosity)
	f := in.Text.Format
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text": // the default, which not every server accepts by name
	case "json_object":
		out.ResponseFormat = &openai.ResponseFormat{Type: f.Type}
	case "json_schema":
		if f.Name == "" {
			return fault.Missing("text.format.name", "text.format.name is required with json_schema: a name for the schema.")
		}
		if f.Schema.Kind() != jsontext.KindBeginObject {
			return fault.Missing("text.format.schema", "text.format.schema is required with json_schema: a JSON Schema as an object.")
		}
		out.ResponseFormat = &openai.ResponseFormat{Type: f.Type, JSONSchema: &openai.JSONSchema{
			Name: f.Name, Description: value(f.Description), Schema: f.Schema, Strict: f.Strict,
		}}
	case "":
		return fault.Missing("text.format.type", "text.format.type is required: text, json_object or json_schema.")
	default:
		return fault.Invalid("text.format.type", "text.format.type must be text, json_object or json_schema.")
	}
	return nil
}

// Request is a Responses request and its translation.
type Request struct {
	Chat   []byte // the body of the chat completion request, after Translate
	Stream bool
	Model  string // as in the request, or ""
	// ID is the source of the response's IDs: req_abc gives resp_abc, msg_abc_0 and so on. If
	// empty, they derive from the completion's ID, which not every server makes unique.
	ID string
	// Now is the clock for completed_at, or nil.
	Now func() time.Time
	// Stored is set by the caller if it stores the response.
	Stored bool
	// CreatedAt is when a background response was created. Otherwise the provider's time counts.
	CreatedAt time.Time

	in           *request
	body         []byte
	withheld     []string         // types of hosted tools that are dropped, because they have no price or their model isn't allowed
	earlier      []jsontext.Value // items before the input, from stored state
	resumed      jsontext.Value   // the input with the earlier items; nil if the request needs no state
	translated   bool
	compacting   bool // the response is a summary of the conversation
	translateErr error
	tools        toolbox
	origins      []origin // of the chat messages, for TranslateFault
}

// requestNames include those of a chat request: a translation passes unknown fields on.
var requestNames = func() jsonbody.Names {
	names := maps.Clone(openai.ChatNames)
	for _, f := range unsupported {
		names[f.name] = nil
	}
	maps.Copy(names, jsonbody.NamesOf[request]())
	return names
}()

// Read reads a request. Errors name the field as in the request.
func Read(body []byte) (*Request, error) {
	in := &request{}
	if err := jsonbody.DecodeForwarded(body, in, requestNames); err != nil {
		return nil, err
	}
	if err := cmp.Or(in.rejectUnsupported(), in.checkInput(), in.checkState()); err != nil {
		return nil, err
	}
	return &Request{Stream: in.Stream, Model: value(in.Model), in: in, body: body}, nil
}

// Routing returns the fields that decide where the request goes and what it may cost.
func (r *Request) Routing() openai.Routing {
	in := r.in
	out := openai.Routing{Model: r.Model, Models: in.Models, Stream: in.Stream, IncludeUsage: true, Choices: 1, HasTools: len(in.Tools) > 0,
		PriorityService: strings.EqualFold(value(in.ServiceTier), "priority")}
	if in.MaxOutputTokens != nil {
		out.MaxOutput = *in.MaxOutputTokens
	}
	if in.Text != nil && in.Text.Format != nil {
		out.HasSchema = in.Text.Format.Type == "json_schema"
	}
	return out
}

// Body returns the client's body.
func (r *Request) Body() []byte { return r.body }

// UseDefaultTier replaces the service tier of the request.
func (r *Request) UseDefaultTier() {
	r.in.ServiceTier = new("default")
	r.body = jsonbody.ReplaceMember(r.body, "service_tier", `"default"`)
}

// Translate translates the request to a chat completion, once. Errors name the field as in the request.
func (r *Request) Translate() error {
	if !r.translated {
		r.translated, r.translateErr = true, r.translate()
	}
	return r.translateErr
}

func (r *Request) translate() error {
	in := r.in
	out := &openai.ChatRequest{Model: r.Model}
	if err := cmp.Or(in.copySettings(out), r.tools.addAll(in.Tools, "tools"), in.translateText(out)); err != nil {
		return err
	}
	out.Extra, _ = json.Marshal(in.Extra, json.Deterministic(true)) // it was JSON
	messages, err := r.messages()
	if err := cmp.Or(err, r.tools.apply(in, out)); err != nil {
		return err
	}
	if r.compacting && len(out.Tools) > 0 {
		out.ToolChoice = openai.StringOr[openai.ChoiceObject]{Kind: jsontext.KindString, Text: "none"}
	}
	for _, m := range messages {
		out.Messages = append(out.Messages, m.Message)
		r.origins = append(r.origins, m.from)
	}
	if r.Chat, err = json.Marshal(out); err != nil { // the translation nests deeper than the limit of JSON
		return fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	return nil
}
