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

// request is what the gateway itself reads of a call. All the rest belongs to
// the provider and is passed on as it is.
type request struct {
	operation    string // as telemetry calls it
	body         []byte
	models       []string // in the order in which they are tried
	stream       bool
	includeUsage bool
	choices      int64
	maxOutput    int64 // tokens of one choice, as the caller said; 0 if not
	needs        needs
	dearer       bool                            // than the model's price: it asks for a tier with another
	inputBound   int64                           // tokens that the input can come to at most
	media        catalog.Units                   // that can come of it at most
	keep         func(ctx context.Context) error // stores what was made before it is charged; nil for nothing
}

// needs are what a model must be able to do for a call.
type needs struct{ tools, vision, audio, schema bool }

const (
	// maxModels bounds a fallback list, and maxModelName what a provider that
	// takes any name can be asked for: it stands in the log and in a header.
	maxModels    = 16
	maxModelName = 256
	// mostOutput keeps a caller's limit within what can be multiplied.
	mostOutput = 1 << 40
)

// chatFields are the members of a chat request that the gateway reads.
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

// CheckMessages refuses other spellings of the fields of chat messages. at is
// the place of the messages, which must be valid JSON, in the caller's body.
func CheckMessages(at string, messages []byte) error {
	return jsonbody.CheckNames(at, messages, providers.ChatNames["messages"])
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
			return nil, fault.Invalid("n", "n must be from 1 to 128")
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
			return nil, fault.Invalid(limit.name, "%s must be at least 1", limit.name)
		}
		r.maxOutput = min(*limit.value, mostOutput)
	}
	for _, list := range []struct {
		name  string
		value jsontext.Value
	}{{"tools", in.Tools}, {"functions", in.Functions}} {
		switch list.value.Kind() {
		case '[':
			r.needs.tools = r.needs.tools || len(bytes.TrimSpace(list.value[1:len(list.value)-1])) > 0
		case jsontext.KindInvalid, jsontext.KindNull: // not there
		default:
			return nil, fault.Invalid(list.name, "%s must be an array", list.name)
		}
	}
	tier, _ := jsontext.AppendUnquote(nil, in.Tier) // what is no text is for the provider to judge
	r.dearer = strings.EqualFold(string(tier), "priority")
	r.needs.schema = in.ResponseFormat != nil && in.ResponseFormat.Type == "json_schema"
	r.inputBound = bound(body, &r.needs) + mediaTokens(body, &r.needs)
	return r, nil
}

// completed fills in the input of a call whose provider has not counted it.
func (r *request) completed(u providers.Usage) providers.Usage {
	if u.InputTokens == 0 {
		u.InputTokens = aboutTokens(r.inputBound)
	}
	return u
}

// modelList is the call's model and what to fall back to, each once.
func modelList(model *string, models []string) ([]string, error) {
	if len(models) > maxModels {
		return nil, fault.Invalid("models", "models must have at most %d entries", maxModels)
	}
	list := make([]string, 0, 1+len(models))
	if model != nil && *model != "" {
		if !isName(*model) {
			return nil, fault.Invalid("model", "model must have at most %d bytes and no control characters", maxModelName)
		}
		list = append(list, *model)
	}
	for _, m := range models {
		if m == "" || !isName(m) {
			return nil, fault.Invalid("models", "models must name models, each in at most %d bytes without control characters", maxModelName)
		}
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return nil, fault.Missing("model", "model must name a model; GET /v1/models lists those there are")
	}
	return list, nil
}

func isName(s string) bool {
	return len(s) <= maxModelName && !strings.ContainsFunc(s, unicode.IsControl)
}

const (
	// Providers wrap the conversation, and describe tools, in words of their own.
	frameTokens = 64
	toolTokens  = 1024
)

// bound is how many tokens the body can come to: no tokenizer makes more
// tokens than there are bytes, of what is text.
func bound(body []byte, n *needs) int64 {
	tokens := int64(len(body)) + frameTokens
	if n.tools {
		tokens += toolTokens
	}
	return tokens
}
