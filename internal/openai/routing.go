package openai

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Routing has the fields of a chat request that decide where it goes and what it may cost.
// Everything else is left to the provider, which may accept more than OpenAI does.
type Routing struct {
	Model           string
	Models          []string // fallbacks
	Stream          bool
	IncludeUsage    bool
	Choices         int64 // n, 1 by default
	MaxOutput       int64 // tokens of one choice; 0 if the client set no limit
	HasTools        bool
	HasSchema       bool
	PriorityService bool  // a service tier that costs more
	WebSearch       bool  // the provider searches the web
	Predicted       int64 // upper bound of the tokens of prediction
	User            UserNames
}

// UserNames are the names that a request gives its end user. Either may be empty.
type UserNames struct{ User, SafetyIdentifier string }

type routingFields struct {
	Model         string   `json:"model"`
	Models        []string `json:"models"`
	Stream        bool     `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N                   *int64         `json:"n"`
	MaxTokens           *int64         `json:"max_tokens"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens"`
	Tools               jsontext.Value `json:"tools"`
	Functions           jsontext.Value `json:"functions"`
	ResponseFormat      struct {
		Type string `json:"type"`
	} `json:"response_format"`
	ServiceTier      jsontext.Value `json:"service_tier"`
	WebSearchOptions jsontext.Value `json:"web_search_options"`
	Prediction       jsontext.Value `json:"prediction"`
	User             jsontext.Value `json:"user"`
	SafetyIdentifier jsontext.Value `json:"safety_identifier"`
}

const maxChoices = 128

// ReadRouting reads the routing fields of a body that is forwarded, and rejects
// other spellings of ChatNames.
func ReadRouting(body []byte) (*Routing, error) {
	var in routingFields
	if err := jsonbody.DecodeForwarded(body, &in, ChatNames); err != nil {
		return nil, err
	}
	r := &Routing{
		Model: in.Model, Models: in.Models, Stream: in.Stream, IncludeUsage: in.StreamOptions.IncludeUsage,
		Choices: 1, HasSchema: in.ResponseFormat.Type == "json_schema", WebSearch: isSet(in.WebSearchOptions),
		Predicted: int64(len(in.Prediction)),
		User:      UserNames{text(in.User), text(in.SafetyIdentifier)},
	}
	if in.N != nil {
		if *in.N < 1 || *in.N > maxChoices {
			return nil, fault.Invalid("n", "n must be from 1 to %d.", maxChoices)
		}
		r.Choices = *in.N
	}
	var err error
	if r.MaxOutput, err = maxOutput(in.MaxTokens, in.MaxCompletionTokens); err != nil {
		return nil, err
	}
	for _, array := range []struct {
		name  string
		value jsontext.Value
	}{{"tools", in.Tools}, {"functions", in.Functions}} {
		switch array.value.Kind() {
		case jsontext.KindBeginArray:
			r.HasTools = r.HasTools || len(bytes.TrimSpace(array.value[1:len(array.value)-1])) > 0
		case jsontext.KindInvalid, jsontext.KindNull:
		default:
			return nil, fault.Invalid(array.name, "%s must be an array.", array.name)
		}
	}
	r.PriorityService = strings.EqualFold(text(in.ServiceTier), "priority")
	return r, nil
}

// text returns a string. Anything else is left to the provider.
func text(v jsontext.Value) string {
	if v.Kind() != jsontext.KindString {
		return ""
	}
	s, _ := jsontext.AppendUnquote(nil, v)
	return string(s)
}
