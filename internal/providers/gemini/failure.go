package gemini

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type apiError struct {
	Code    int           `json:"code"`
	Message string        `json:"message"`
	Status  string        `json:"status"`
	Details []errorDetail `json:"details"`
}

// errorDetail is any of several messages, whose fields have different names.
type errorDetail struct {
	Reason          string `json:"reason"`     // ErrorInfo
	RetryDelay      string `json:"retryDelay"` // RetryInfo
	FieldViolations []struct {
		Field string `json:"field"`
	} `json:"fieldViolations"`
}

// readError reads the body of an error response. It returns an empty error for
// anything else. A stream's error may be in an array.
func readError(body []byte) apiError {
	type response struct {
		Error apiError `json:"error"`
	}
	list := make([]response, 1)
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		err = json.Unmarshal(body, &list, wire.Lenient)
	} else {
		err = json.Unmarshal(body, &list[0], wire.Lenient)
	}
	if err != nil || len(list) == 0 {
		return apiError{}
	}
	return list[0].Error
}

func explain(f *providers.Failure, body []byte) string {
	e := readError(body)
	f.Param = e.param()
	e.refine(f)
	return e.Message
}

// failure is for an error in a successful response.
func (e *apiError) failure(secrets []string) *providers.Failure {
	f := &providers.Failure{
		Kind:   providers.KindServer,
		Status: e.Code,
		Param:  e.param(),
		Err:    errors.New(wire.Loggable(e.Status+": "+e.Message, secrets...)),
	}
	if e.Code != 0 {
		f.Kind = wire.KindOf(e.Code)
	}
	e.refine(f)
	return f
}

// refine sets what the HTTP status alone doesn't say.
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

// kinds are the kinds of failures by google.rpc.Code.
var kinds = map[string]providers.Kind{
	"INVALID_ARGUMENT":    providers.KindInvalid,
	"OUT_OF_RANGE":        providers.KindInvalid,
	"FAILED_PRECONDITION": providers.KindInvalid,
	"UNAUTHENTICATED":     providers.KindAuth,
	"PERMISSION_DENIED":   providers.KindAuth,
	"NOT_FOUND":           providers.KindNoModel,
	"RESOURCE_EXHAUSTED":  providers.KindRateLimited,
	"UNAVAILABLE":         providers.KindOverloaded,
	"DEADLINE_EXCEEDED":   providers.KindTimeout,
	"INTERNAL":            providers.KindServer,
	"UNKNOWN":             providers.KindServer,
	"DATA_LOSS":           providers.KindServer,
	"ABORTED":             providers.KindServer,
	"CANCELLED":           providers.KindServer,
}

// accountPattern finds problems of the operator's account, with which another provider can help: no
// billing, or a country that the free tier doesn't serve.
var accountPattern = regexp.MustCompile("(?i)billing|location")

// kind returns "" for a status that says no more than HTTP's.
func (e *apiError) kind() providers.Kind {
	kind := kinds[e.Status]
	if kind == providers.KindInvalid && (e.isAboutKey() || e.Status == "FAILED_PRECONDITION" && accountPattern.MatchString(e.Message)) {
		return providers.KindAuth
	}
	return kind
}

// isAboutKey recognizes a rejected key, which Google reports as an invalid argument.
func (e *apiError) isAboutKey() bool {
	for _, d := range e.Details {
		if strings.HasPrefix(d.Reason, "API_KEY_") {
			return true
		}
	}
	return strings.Contains(e.Message, "API key not valid") || strings.Contains(e.Message, "API key expired")
}

// fields are paths in a Gemini request, longest first, and the client's fields.
var fields = []struct{ path, field string }{
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

// pathPattern finds the field in Google's messages: "… at 'tools[0].…'", or
// "* GenerateContentRequest.contents[0]…: …".
var pathPattern = regexp.MustCompile(`at '([^']+)'|GenerateContentRequest\.(\S+)`)

var declarationPattern = regexp.MustCompile(`function_declarations\[([0-9]+)\]`)

func (e *apiError) violation(fallback string) string {
	for _, d := range e.Details {
		if len(d.FieldViolations) > 0 {
			fallback = d.FieldViolations[0].Field
		}
	}
	return fallback
}

func (e *apiError) param() string {
	path := e.violation(strings.Join(pathPattern.FindStringSubmatch(e.Message), " "))
	if m := declarationPattern.FindStringSubmatch(path); m != nil {
		return "tools[" + m[1] + "].function"
	}
	for _, f := range fields {
		if strings.Contains(path, f.path) {
			return f.field
		}
	}
	if strings.Contains(e.Message, "input token count") {
		return "messages"
	}
	return ""
}
