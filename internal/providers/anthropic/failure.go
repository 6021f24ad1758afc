package anthropic

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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
	if json.Unmarshal(text, &e, wire.Lenient) != nil {
		return apiError{}
	}
	return e
}

func explain(f *providers.Failure, body []byte) string {
	e := readError(body)
	f.Param, f.Kind = e.param(), cmp.Or(e.kind(), f.Kind)
	return e.text()
}

func (e *apiError) text() string {
	if e.Error.Type == "" {
		return e.Error.Message
	}
	return e.Error.Type + ": " + e.Error.Message
}

func (e *apiError) kind() providers.Kind {
	switch e.Error.Type {
	case "invalid_request_error":
		// An account without credit gets the same type and status as an invalid
		// request. Only the message differs.
		for _, phrase := range []string{"credit balance", "usage limits", "spend limit"} {
			if strings.Contains(e.Error.Message, phrase) {
				return providers.KindAuth
			}
		}
		return providers.KindInvalid
	case "request_too_large":
		return providers.KindInvalid
	case "authentication_error", "permission_error", "billing_error":
		return providers.KindAuth
	case "not_found_error":
		return providers.KindNoModel
	case "rate_limit_error":
		return providers.KindRateLimited
	case "overloaded_error":
		return providers.KindOverloaded
	case "timeout_error":
		return providers.KindTimeout
	case "api_error", "conflict_error":
		return providers.KindServer
	}
	return ""
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
	return &providers.Failure{Kind: cmp.Or(e.kind(), providers.KindServer), Param: e.param(), Err: errors.New(wire.Loggable(e.text(), p.key))}
}

// protocolFailure is for a response that doesn't follow the API.
func (p *Provider) protocolFailure(format string, args ...any) error {
	return wire.ProtocolFailure("%s", wire.Loggable(fmt.Errorf(format, args...).Error(), p.key))
}

// loggable drops the values that a decoder quotes in its error.
func loggable(err error) error {
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return fmt.Errorf("%.80q has the wrong type", string(semantic.JSONPointer))
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return fmt.Errorf("invalid JSON at byte %d", syntactic.ByteOffset)
	}
	return errors.New("invalid JSON")
}
