// Package messages translates Anthropic's Messages API to chat completions, and plain or streamed
// completions back to messages. Providers that have the API get the client's own bytes instead.
package messages

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
)

type request struct {
	Model         string                   `json:"model"`
	MaxTokens     *int64                   `json:"max_tokens"`
	System        openai.StringOr[[]block] `json:"system"`
	Messages      []message                `json:"messages"`
	Tools         []tool                   `json:"tools"`
	ToolChoice    *toolChoice              `json:"tool_choice"`
	Temperature   *float64                 `json:"temperature"`
	TopP          *float64                 `json:"top_p"`
	TopK          jsontext.Value           `json:"top_k"`
	StopSequences []string                 `json:"stop_sequences"`
	Thinking      *thinking                `json:"thinking"`
	OutputConfig  *outputConfig            `json:"output_config"`
	OutputFormat  *outputFormat            `json:"output_format"` // of the beta before output_config
	Metadata      *metadata                `json:"metadata"`
	Stream        bool                     `json:"stream"`
	Extra         jsontext.Value           `json:",embed"` // all other fields
}

// Names returns the fields that a translation reads.
func Names() jsonbody.Names {
	names := jsonbody.NamesOf[request]()
	names["models"] = nil // Turnpike's fallbacks
	return names
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens *int64 `json:"budget_tokens"`
}

type outputConfig struct {
	Effort string        `json:"effort"`
	Format *outputFormat `json:"format"`
}

type outputFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema"`
}

type metadata struct {
	UserID *string `json:"user_id"`
}

// Versions are the versions of the API that Turnpike serves. They differ in what they reject.
var Versions = []string{"2023-06-01", withoutSampling}

// withoutSampling is the version that has no sampling parameters.
const withoutSampling = "2026-10-21"

// Request is a translated request.
type Request struct {
	version string
	chat    openai.ChatRequest
	thinks  bool // the client asked for thinking, so it can read it
	ignored []string
	origins []origin
}

// Decode reads a request and translates it to a chat completion. It rejects what Anthropic
// rejects, and what only Anthropic's models can do.
func Decode(body []byte, version string) (*Request, error) { return decode(body, version, true) }

// DecodeForCount is Decode for a request whose tokens are counted: max_tokens may be missing.
func DecodeForCount(body []byte, version string) (*Request, error) {
	return decode(body, version, false)
}

func decode(body []byte, version string, needsLimit bool) (*Request, error) {
	var in request
	if err := jsonbody.DecodeLenient(body, &in); err != nil {
		return nil, err
	}
	if needsLimit {
		if err := CheckMaxTokens(in.MaxTokens); err != nil {
			return nil, err
		}
	}
	r := &Request{version: version, chat: openai.ChatRequest{Model: in.Model, MaxTokens: in.MaxTokens, Stream: in.Stream}}
	for _, step := range []func(*request) error{r.addSystem, r.addMessages, r.addTools, r.setSampling, r.setThinking, r.setFormat} {
		if err := step(&in); err != nil {
			return nil, err
		}
	}
	if m := in.Metadata; m != nil && m.UserID != nil {
		r.chat.User = shortUser(*m.UserID)
	}
	if isSet(in.TopK) {
		r.ignored = append(r.ignored, "top_k")
	}
	r.ignored = append(r.ignored, openai.UnknownFields(in.Extra)...)
	return r, nil
}

func isSet(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != jsontext.KindNull }

// Ignored returns the fields of the request that had no effect: those that aren't translated, and
// those that the provider of the chat completion ignored.
func (r *Request) Ignored(chat []string) []string {
	out := slices.Clone(r.ignored)
	for _, name := range chat {
		out = append(out, r.FieldName(name))
	}
	return out
}

// CheckMaxTokens checks the limit of the output, which the API requires.
func CheckMaxTokens(n *int64) error {
	switch {
	case n == nil:
		return fault.Missing("max_tokens", "max_tokens is required: the maximum number of output tokens.")
	case *n < 1:
		return fault.Invalid("max_tokens", "max_tokens must be at least 1.")
	}
	return nil
}

// Chat returns the body of the chat completion. A model without reasoning would reject the effort.
func (r *Request) Chat(reasoning bool) ([]byte, error) {
	chat := r.chat
	if !reasoning {
		chat.ReasoningEffort = ""
	}
	body, err := json.Marshal(&chat, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	return body, nil
}

func (r *Request) setSampling(in *request) error {
	for _, field := range []struct {
		name  string
		value *float64
		set   bool
	}{{"temperature", in.Temperature, in.Temperature != nil}, {"top_p", in.TopP, in.TopP != nil}, {"top_k", nil, isSet(in.TopK)}} {
		if field.set && r.version == withoutSampling {
			return fault.Invalid(field.name, "%s does not exist in the version %s of the API. Omit it, or send anthropic-version: %s.", field.name, r.version, Versions[0])
		}
		if field.value != nil && (*field.value < 0 || *field.value > 1) {
			return fault.Invalid(field.name, "%s must be from 0 to 1.", field.name)
		}
	}
	if i := slices.Index(in.StopSequences, ""); i >= 0 {
		at := "stop_sequences[" + strconv.Itoa(i) + "]"
		return fault.Invalid(at, "%s must not be empty.", at)
	}
	r.chat.Temperature, r.chat.TopP = in.Temperature, in.TopP
	if len(in.StopSequences) > 0 {
		r.chat.Stop = openai.StringOr[[]string]{Kind: jsontext.KindBeginArray, Value: in.StopSequences}
	}
	return nil
}

const (
	minThinkingBudget = 1024
	lowBudget         = 4096
	mediumBudget      = 16384
)

// setThinking translates the thinking to a reasoning effort, which other providers have instead.
func (r *Request) setThinking(in *request) error {
	effort := ""
	if in.OutputConfig != nil {
		effort = in.OutputConfig.Effort
	}
	switch effort {
	case "", "low", "medium", "high":
	case "xhigh", "max":
		effort = "high"
	default:
		return fault.Invalid("output_config.effort", "output_config.effort must be low, medium, high, xhigh or max.")
	}
	t := in.Thinking
	if t == nil {
		r.chat.ReasoningEffort = effort
		return nil
	}
	switch t.Type {
	case "disabled":
		return nil
	case "adaptive":
		effort = cmp.Or(effort, "medium")
	case "enabled":
		switch n := t.BudgetTokens; {
		case n == nil:
			return fault.Missing("thinking.budget_tokens", "thinking.budget_tokens is required if thinking.type is enabled.")
		case *n < minThinkingBudget:
			return fault.Invalid("thinking.budget_tokens", "thinking.budget_tokens must be at least %d.", minThinkingBudget)
		case in.MaxTokens != nil && *n >= *in.MaxTokens:
			return fault.Invalid("thinking.budget_tokens", "thinking.budget_tokens must be less than max_tokens.")
		case *n <= lowBudget:
			effort = cmp.Or(effort, "low")
		case *n <= mediumBudget:
			effort = cmp.Or(effort, "medium")
		default:
			effort = cmp.Or(effort, "high")
		}
	default:
		return fault.Invalid("thinking.type", "thinking.type must be enabled, adaptive or disabled.")
	}
	r.chat.ReasoningEffort, r.thinks = effort, true
	return nil
}

// setFormat translates structured output. OpenAI requires a name for the schema.
func (r *Request) setFormat(in *request) error {
	f, at := in.OutputFormat, "output_format"
	if in.OutputConfig != nil && in.OutputConfig.Format != nil {
		f, at = in.OutputConfig.Format, "output_config.format"
	}
	switch {
	case f == nil:
		return nil
	case f.Type != "json_schema":
		return fault.Invalid(at+".type", "%s.type must be json_schema.", at)
	case f.Schema.Kind() != jsontext.KindBeginObject:
		return fault.Invalid(at+".schema", "%s.schema must be an object: a JSON Schema.", at)
	}
	r.chat.ResponseFormat = &openai.ResponseFormat{Type: "json_schema", JSONSchema: &openai.JSONSchema{Name: "output", Schema: f.Schema}}
	return nil
}

// maxUser is OpenAI's limit. Claude Code sends more.
const maxUser = 64

func shortUser(id string) string {
	if len(id) <= maxUser {
		return id
	}
	return digest(id)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
