package gemini

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// fromGoogle are the options for reading what Google sends: it is not ours to
// refuse over a doubled name or a broken character.
var fromGoogle = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// apiError is Google's error object.
type apiError struct {
	Code    int           `json:"code"`
	Message string        `json:"message"`
	Status  string        `json:"status"`
	Details []errorDetail `json:"details"`
}

// errorDetail is one of several messages that only @type tells apart; their
// fields have different names.
type errorDetail struct {
	Reason          string           `json:"reason"`     // ErrorInfo
	RetryDelay      string           `json:"retryDelay"` // RetryInfo
	FieldViolations []fieldViolation `json:"fieldViolations"`
}

type fieldViolation struct {
	Field string `json:"field"`
}

// readError reads an error body; one that is none leaves everything empty.
// A stream's error may come in an array.
func readError(body []byte) apiError {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		var list []struct {
			Error apiError `json:"error"`
		}
		if json.Unmarshal(body, &list, fromGoogle) == nil && len(list) > 0 {
			return list[0].Error
		}
		return apiError{}
	}
	var one struct {
		Error apiError `json:"error"`
	}
	if json.Unmarshal(body, &one, fromGoogle) != nil {
		return apiError{}
	}
	return one.Error
}

// failure is for an error that came inside an answer.
func (e *apiError) failure(key string) *providers.Failure {
	f := &providers.Failure{
		Kind:   providers.KindServer,
		Status: e.Code,
		Param:  e.param(),
		Err:    errors.New(wire.Loggable(e.Status+": "+e.Message, key)),
	}
	if e.Code != 0 {
		f.Kind = wire.KindOf(e.Code)
	}
	e.refine(f)
	return f
}

// refine says what the HTTP status alone could not.
func (e *apiError) refine(f *providers.Failure) {
	if kind := e.kind(); kind != "" {
		f.Kind = kind
	}
	for _, d := range e.Details {
		if delay, err := time.ParseDuration(d.RetryDelay); err == nil && delay > f.RetryAfter {
			f.RetryAfter = min(delay, 24*time.Hour)
		}
	}
	if f.Kind != providers.KindInvalid {
		f.Param = ""
	}
}

// kind follows google.rpc.Code; empty is for a status that says no more than
// HTTP's.
func (e *apiError) kind() providers.Kind {
	switch e.Status {
	case "INVALID_ARGUMENT", "OUT_OF_RANGE":
		if e.aboutKey() {
			return providers.KindAuth
		}
		return providers.KindInvalid
	case "FAILED_PRECONDITION":
		// Mostly it is the operator's account: no billing, or a country that
		// the free tier does not serve. Then another provider can help.
		if text := strings.ToLower(e.Message); strings.Contains(text, "billing") || strings.Contains(text, "location") {
			return providers.KindAuth
		}
		return providers.KindInvalid
	case "UNAUTHENTICATED", "PERMISSION_DENIED":
		return providers.KindAuth
	case "NOT_FOUND":
		return providers.KindNoModel
	case "RESOURCE_EXHAUSTED":
		return providers.KindRateLimited
	case "UNAVAILABLE":
		return providers.KindOverloaded
	case "DEADLINE_EXCEEDED":
		return providers.KindTimeout
	case "INTERNAL", "UNKNOWN", "DATA_LOSS", "ABORTED", "CANCELLED":
		return providers.KindServer
	}
	return ""
}

// aboutKey finds a key that is not accepted, which Google calls an invalid
// argument.
func (e *apiError) aboutKey() bool {
	for _, d := range e.Details {
		if strings.HasPrefix(d.Reason, "API_KEY_") {
			return true
		}
	}
	return strings.Contains(e.Message, "API key not valid") || strings.Contains(e.Message, "API key expired")
}

// fields are the places in a Gemini request, longest first, and what the
// caller knows them as.
var fields = []struct{ gemini, ours string }{
	{"generation_config.response_json_schema", "response_format.json_schema.schema"},
	{"generation_config.response_mime_type", "response_format"},
	{"generation_config.max_output_tokens", "max_completion_tokens"},
	{"generation_config.candidate_count", "n"},
	{"generation_config.stop_sequences", "stop"},
	{"generation_config.temperature", "temperature"},
	{"generation_config.top_p", "top_p"},
	{"generation_config.seed", "seed"},
	{"generation_config.presence_penalty", "presence_penalty"},
	{"generation_config.frequency_penalty", "frequency_penalty"},
	{"generation_config.thinking_config", "reasoning_effort"},
	{"tool_config", "tool_choice"},
	{"tools", "tools"},
	{"contents", "messages"},
	{"system_instruction", "messages"},
	{"output_dimensionality", "dimensions"},
}

// placed finds the field in Google's messages: "… at 'tools[0].…'", or
// "* GenerateContentRequest.contents[0]…: …".
var placed = regexp.MustCompile(`at '([^']+)'|GenerateContentRequest\.(\S+)`)

var declaration = regexp.MustCompile(`function_declarations\[([0-9]+)\]`)

// param is the caller's field that the error is about, or nothing.
func (e *apiError) param() string {
	place := strings.Join(placed.FindStringSubmatch(e.Message), " ")
	for _, d := range e.Details {
		if len(d.FieldViolations) > 0 {
			place = d.FieldViolations[0].Field
		}
	}
	if m := declaration.FindStringSubmatch(place); m != nil {
		return "tools[" + m[1] + "].function"
	}
	for _, f := range fields {
		if strings.Contains(place, f.gemini) {
			return f.ours
		}
	}
	if strings.Contains(e.Message, "input token count") {
		return "messages"
	}
	return ""
}
