package anthropic

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type apiError struct {
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func readError(text []byte) (e apiError) {
	_ = json.Unmarshal(text, &e, wire.Lenient) // other bodies have no type and no message
	return e
}

func explain(f *providers.Failure, body []byte) string {
	e := readError(body)
	f.Param, f.Kind, f.Message = e.param(), cmp.Or(e.kind(), f.Kind), e.Error.Message
	return e.text()
}

func (e *apiError) text() string {
	if e.Error.Type == "" {
		return e.Error.Message
	}
	return e.Error.Type + ": " + e.Error.Message
}

// kinds are the kinds of failures by the type of the error.
var kinds = map[string]providers.Kind{
	"invalid_request_error": providers.KindInvalid,
	"request_too_large":     providers.KindInvalid,
	"authentication_error":  providers.KindAuth,
	"permission_error":      providers.KindAuth,
	"billing_error":         providers.KindAuth,
	"not_found_error":       providers.KindNoModel,
	"rate_limit_error":      providers.KindRateLimited,
	"overloaded_error":      providers.KindOverloaded,
	"timeout_error":         providers.KindTimeout,
	"api_error":             providers.KindServer,
	"conflict_error":        providers.KindServer,
}

// noCredit recognizes an account without credit, which gets the same type and
// status as an invalid request.
var noCredit = regexp.MustCompile("credit balance|usage limits|spend limit")

func (e *apiError) kind() providers.Kind {
	if e.Error.Type == "invalid_request_error" && noCredit.MatchString(e.Error.Message) {
		return providers.KindAuth
	}
	return kinds[e.Error.Type]
}

var fields = map[string]string{
	"max_tokens":     "max_tokens",
	"messages":       "messages",
	"metadata":       "user",
	"model":          "model",
	"output_config":  "response_format",
	"stop_sequences": "stop",
	"system":         "messages",
	"temperature":    "temperature",
	"thinking":       "reasoning_effort",
	"tool_choice":    "tool_choice",
	"tools":          "tools",
	"top_p":          "top_p",
}

// param returns the client's field that is invalid. Messages start with a path
// such as "messages.0.content: …", whose numbers aren't the client's.
func (e *apiError) param() string {
	path, _, _ := strings.Cut(e.Error.Message, ":")
	switch {
	case path == "prompt is too long":
		return "messages"
	case strings.HasSuffix(path, "exceed context limit"): // the input's length and max_tokens
		return "max_tokens"
	}
	name, _, _ := strings.Cut(path, ".")
	return fields[name]
}

func (p *Provider) failureIn(text []byte) error {
	e := readError(text)
	return &providers.Failure{Kind: cmp.Or(e.kind(), providers.KindServer), Param: e.param(), Err: errors.New(wire.Loggable(e.text(), p.client.Secrets()...))}
}

// protocolFailure is for a response that doesn't follow the API.
func (p *Provider) protocolFailure(format string, args ...any) error {
	return wire.ProtocolFailure("%s", wire.Loggable(fmt.Errorf(format, args...).Error(), p.client.Secrets()...))
}
