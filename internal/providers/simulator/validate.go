package simulator

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// maxChoices is the highest "n".
const maxChoices = 8

// validate refuses what a provider would refuse and reads the fields that
// have more than one form.
func (r *request) validate(stream bool) error {
	if err := r.validateNumbers(); err != nil {
		return err
	}
	if r.StreamOptions != nil && !stream {
		return fault.Invalid("stream_options", "stream_options is only allowed when stream is true")
	}
	for i, m := range r.Modalities {
		if m != "text" {
			param := fmt.Sprintf("modalities[%d]", i)
			return fault.Invalid(param, "%s must be \"text\": other output is not simulated here", param)
		}
	}
	if err := r.readStop(); err != nil {
		return err
	}
	if err := r.validateTools(); err != nil {
		return err
	}
	if err := r.readToolChoice(); err != nil {
		return err
	}
	if err := r.validateFormat(); err != nil {
		return err
	}
	return r.validateMessages()
}

func (r *request) validateNumbers() error {
	for _, check := range []struct {
		param     string
		value     *int64
		low, high int64
	}{
		{"n", r.N, 1, maxChoices},
		{"max_tokens", r.MaxTokens, 1, math.MaxInt64},
		{"max_completion_tokens", r.MaxCompletionTokens, 1, math.MaxInt64},
		{"top_logprobs", r.TopLogprobs, 0, 20},
	} {
		if check.value == nil || check.low <= *check.value && *check.value <= check.high {
			continue
		}
		if check.high == math.MaxInt64 {
			return fault.Invalid(check.param, "%s must be at least %d", check.param, check.low)
		}
		return fault.Invalid(check.param, "%s must be from %d to %d", check.param, check.low, check.high)
	}
	for _, check := range []struct {
		param     string
		value     *float64
		low, high float64
	}{
		{"temperature", r.Temperature, 0, 2},
		{"top_p", r.TopP, 0, 1},
		{"presence_penalty", r.PresencePenalty, -2, 2},
		{"frequency_penalty", r.FrequencyPenalty, -2, 2},
	} {
		if check.value != nil && (*check.value < check.low || *check.value > check.high) {
			return fault.Invalid(check.param, "%s must be from %g to %g", check.param, check.low, check.high)
		}
	}
	if r.TopLogprobs != nil && !r.Logprobs {
		return fault.Invalid("top_logprobs", "top_logprobs needs logprobs to be true")
	}
	return nil
}

// readStop reads "stop": a string, or up to four.
func (r *request) readStop() error {
	const message = "stop must be a string or an array of up to 4 strings, none of them empty"
	switch r.Stop.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil
	case jsontext.KindString:
		r.stops = make([]string, 1)
		if json.Unmarshal(r.Stop, &r.stops[0]) != nil {
			return fault.Invalid("stop", message)
		}
	default:
		if json.Unmarshal(r.Stop, &r.stops) != nil {
			return fault.Invalid("stop", message)
		}
	}
	if len(r.stops) > 4 || slices.Contains(r.stops, "") {
		return fault.Invalid("stop", message)
	}
	return nil
}

func (r *request) validateFormat() error {
	f := r.ResponseFormat
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text", "json_object":
		return nil
	case "json_schema":
	case "":
		return fault.Missing("response_format.type", "response_format.type is required: text, json_object or json_schema")
	default:
		return fault.Invalid("response_format.type", "response_format.type must be text, json_object or json_schema")
	}
	const param = "response_format.json_schema"
	switch {
	case f.JSONSchema == nil:
		return fault.Missing(param, "%s is required when response_format.type is json_schema", param)
	case f.JSONSchema.Name == "":
		return fault.Missing(param+".name", "%s.name is required", param)
	case !isName(f.JSONSchema.Name):
		return fault.Invalid(param+".name", "%s.name must be %s", param, nameRule)
	}
	switch f.JSONSchema.Schema.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return fault.Missing(param+".schema", "%s.schema is required: a JSON Schema", param)
	case jsontext.KindBeginObject:
		return nil
	}
	return fault.Invalid(param+".schema", "%s.schema must be an object", param)
}

const nameRule = "1 to 64 letters, digits, underscores or dashes"

func isName(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
}
