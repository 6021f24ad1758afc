package gateway

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// request is what the gateway reads of a request. The body is forwarded unchanged.
type request struct {
	operation    string // its name in telemetry
	body         []byte
	models       []string // in the order of preference
	stream       bool
	includeUsage bool
	choices      int64
	maxOutput    int64 // output tokens per choice that the client allows; 0 if unset
	needs        needs
	priorityTier bool                            // it asks for a tier with another price
	maxInput     int64                           // upper bound of the input tokens
	maxUnits     catalog.Units                   // upper bound of generated media
	store        func(ctx context.Context) error // stores the output before it is charged; may be nil
}

// needs are the capabilities that a request requires.
type needs struct{ tools, vision, audio, schema bool }

const (
	maxModels = 16 // in a fallback list
	// maxModelName applies where a provider accepts any name: it ends up in the log and in a header.
	maxModelName = 256
)

// chatFields are the fields of a chat request that the gateway reads.
type chatFields struct {
	Model         *string  `json:"model"`
	Models        []string `json:"models"`
	Stream        *bool    `json:"stream"`
	StreamOptions *struct {
		IncludeUsage *bool `json:"include_usage"`
	} `json:"stream_options"`
	N              *int64         `json:"n"`
	MaxTokens      *int64         `json:"max_tokens"`
	MaxCompletion  *int64         `json:"max_completion_tokens"`
	Tools          jsontext.Value `json:"tools"`
	Functions      jsontext.Value `json:"functions"`
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	Tier jsontext.Value `json:"service_tier"`
}

// CheckMessages rejects other spellings of the fields of chat messages, which must be valid
// JSON. path is where the messages are in the client's body.
func CheckMessages(path string, messages []byte) error {
	return jsonbody.CheckNames(path, messages, providers.ChatNames["messages"])
}

func readChat(body []byte) (*request, error) {
	var in chatFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.ChatNames); err != nil {
		return nil, err
	}
	r := &request{operation: "chat", body: body, choices: 1, stream: in.Stream != nil && *in.Stream}
	var err error
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, err
	}
	r.includeUsage = in.StreamOptions != nil && in.StreamOptions.IncludeUsage != nil && *in.StreamOptions.IncludeUsage
	if in.N != nil {
		if *in.N < 1 || *in.N > 128 {
			return nil, fault.Invalid("n", "n must be from 1 to 128.")
		}
		r.choices = *in.N
	}
	for _, limit := range []struct {
		name  string
		value *int64
	}{{"max_tokens", in.MaxTokens}, {"max_completion_tokens", in.MaxCompletion}} {
		if limit.value == nil {
			continue
		}
		if *limit.value < 1 {
			return nil, fault.Invalid(limit.name, "%s must be at least 1.", limit.name)
		}
		r.maxOutput = min(*limit.value, maxTokenCount)
	}
	for _, list := range []struct {
		name  string
		value jsontext.Value
	}{{"tools", in.Tools}, {"functions", in.Functions}} {
		switch list.value.Kind() {
		case '[':
			r.needs.tools = r.needs.tools || len(bytes.TrimSpace(list.value[1:len(list.value)-1])) > 0
		case jsontext.KindInvalid, jsontext.KindNull: // absent
		default:
			return nil, fault.Invalid(list.name, "%s must be an array.", list.name)
		}
	}
	tier, _ := jsontext.AppendUnquote(nil, in.Tier) // the provider rejects other types
	r.priorityTier = strings.EqualFold(string(tier), "priority")
	r.needs.schema = in.ResponseFormat != nil && in.ResponseFormat.Type == "json_schema"
	r.maxInput = maxTextTokens(body, r.needs) + mediaTokens(body, &r.needs)
	return r, nil
}

// withEstimatedInput adds the input tokens if the provider didn't count them.
func (r *request) withEstimatedInput(u providers.Usage) providers.Usage {
	if u.InputTokens == 0 {
		u.InputTokens = estimateTokens(r.maxInput)
	}
	return u
}

// modelList returns the model and its fallbacks without duplicates.
func modelList(model *string, models []string) ([]string, error) {
	if len(models) > maxModels {
		return nil, fault.Invalid("models", "models must have at most %d entries.", maxModels)
	}
	list := make([]string, 0, 1+len(models))
	if model != nil && *model != "" {
		if !isName(*model) {
			return nil, fault.Invalid("model", "model must have at most %d bytes and no control characters.", maxModelName)
		}
		list = append(list, *model)
	}
	for _, m := range models {
		if m == "" || !isName(m) {
			return nil, fault.Invalid("models", "models must contain names of models, each with at most %d bytes and no control characters.", maxModelName)
		}
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fault.Missing("model", "model must be the name of a model. List the available models with GET /v1/models.")
	}
	return list, nil
}

func isName(s string) bool {
	return len(s) <= maxModelName && !strings.ContainsFunc(s, unicode.IsControl)
}

const (
	// Providers add their own text around the conversation and around tools.
	frameTokens = 64
	toolTokens  = 1024
)

// maxTextTokens returns an upper bound of a body's tokens: no tokenizer produces more tokens
// than there are bytes of text.
func maxTextTokens(body []byte, n needs) int64 {
	tokens := int64(len(body)) + frameTokens
	if n.tools {
		tokens += toolTokens
	}
	return tokens
}
