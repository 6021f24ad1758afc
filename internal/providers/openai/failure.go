package openai

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type apiError struct{ message, kind, param, code string }

// maxParam is longer than any path of a field that a client would recognize.
const maxParam = 128

// explain reads the body of an error response.
func explain(f *providers.Failure, body []byte) string {
	var o object
	if o.parse(body) != nil {
		return ""
	}
	e, ok := findError(&o)
	if !ok {
		// FastAPI's, which many Python servers use, and others.
		return cmp.Or(text(o.get("message")), text(o.get("detail")))
	}
	f.Param, f.Message = e.param, e.message
	if f.Status == http.StatusTooManyRequests && e.failureKind() == providers.KindAuth {
		f.Kind = providers.KindAuth // the account has no credit left
	}
	return e.String()
}

// explainMedia is explain, and recognizes content filters.
func explainMedia(f *providers.Failure, body []byte) string {
	var o object
	if o.parse(body) == nil {
		f.Kind = cmp.Or(filterKind(o.get("error")), f.Kind)
	}
	return explain(f, body)
}

// findError finds an error in an object, in the forms that servers use.
func findError(o *object) (apiError, bool) {
	if e, ok := errorIn(o.get("error")); ok {
		return e, true
	}
	if string(o.get("object")) == `"error"` { // Mistral's and older vLLM's: the object itself
		return readError(o), true
	}
	return apiError{}, false
}

// errorIn reads the value of "error".
func errorIn(value jsontext.Value) (apiError, bool) {
	switch value.Kind() {
	case '{':
		var e object
		if err := e.parse(value); err != nil {
			return apiError{}, false
		}
		return readError(&e), len(e.members) > 0
	case '"': // Ollama's
		return apiError{message: text(value)}, text(value) != ""
	}
	return apiError{}, false
}

func readError(o *object) apiError {
	e := apiError{message: text(o.get("message")), kind: text(o.get("type")), param: text(o.get("param")), code: text(o.get("code"))}
	if len(e.param) > maxParam {
		e.param = ""
	}
	return e
}

func text(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		s, _ := jsontext.AppendUnquote(nil, v)
		return string(s)
	case 'n':
		return ""
	}
	return string(v)
}

func (e apiError) String() string {
	words := strings.TrimSpace(e.kind + " " + e.code)
	if words == "" || e.message == "" {
		return cmp.Or(e.message, words)
	}
	return words + ": " + e.message
}

// failure is for an error in a successful response, or in a stream, where the status is 0.
func (e apiError) failure(status int, secrets []string) *providers.Failure {
	return &providers.Failure{
		Kind: e.failureKind(), Status: status, Param: wire.Loggable(e.param, secrets...),
		Err: errors.New(wire.Loggable(cmp.Or(e.String(), "an error without a message"), secrets...)),
	}
}

// mediaFailure returns the failure for an error object in a response, or nil if
// the value isn't one.
func (p *Provider) mediaFailure(status int, value jsontext.Value) error {
	e, failed := errorIn(value)
	if !failed {
		return nil
	}
	f := e.failure(status, p.secrets())
	f.Kind = cmp.Or(filterKind(value), f.Kind)
	return f
}

// kinds maps words in codes and types to kinds of failures.
var kinds = []struct {
	word string
	kind providers.Kind
}{
	{"insufficient_quota", providers.KindAuth}, // the account has no credit left
	{"billing", providers.KindAuth},
	{"rate_limit", providers.KindRateLimited},
	{"ratelimit", providers.KindRateLimited},
	{"quota", providers.KindRateLimited},
	{"overloaded", providers.KindOverloaded},
	{"unavailable", providers.KindOverloaded},
	{"timeout", providers.KindTimeout},
	{"api_key", providers.KindAuth},
	{"authentication", providers.KindAuth},
	{"permission", providers.KindAuth},
	{"not_found", providers.KindNoModel},
	{"notfound", providers.KindNoModel},
	{"context_length", providers.KindInvalid},
	{"content_filter", providers.KindInvalid},
	{"content_policy", providers.KindInvalid},
	{"invalid", providers.KindInvalid},
	{"badrequest", providers.KindInvalid},
	{"server", providers.KindServer},
	{"internal", providers.KindServer},
}

// failureKind prefers the code, which may be an HTTP status, to the type.
func (e apiError) failureKind() providers.Kind {
	if status, err := strconv.Atoi(e.code); err == nil && status >= 400 && status <= 599 {
		return wire.KindOf(status)
	}
	for _, name := range []string{e.code, e.kind} {
		for _, k := range kinds {
			if strings.Contains(strings.ToLower(name), k.word) {
				return k.kind
			}
		}
	}
	return providers.KindProtocol
}

// filterCodes are the error codes of content filters: OpenAI's and Azure's.
var filterCodes = []string{"moderation_blocked", "content_policy_violation", "content_filter", "contentfilter", "responsibleaipolicyviolation"}

// filterKind returns the kind of failure if the error object says that a content
// filter blocked the input or the output, and "" otherwise.
func filterKind(value jsontext.Value) providers.Kind {
	var e object
	if value.Kind() != '{' || e.parse(value) != nil {
		return ""
	}
	isFilterCode := func(code jsontext.Value) bool { return slices.Contains(filterCodes, strings.ToLower(text(code))) }
	if !isFilterCode(e.get("code")) && !isFilterCode(e.nested("inner_error", "code")) && !isFilterCode(e.nested("innererror", "code")) {
		return ""
	}
	message := strings.ToLower(text(e.get("message")))
	switch stage := text(e.nested("moderation_details", "moderation_stage")); {
	case stage == "output":
		return providers.KindBlockedOutput
	case stage != "": // input
	case strings.Contains(message, "generated image"), strings.Contains(message, "generated video"), strings.Contains(message, "output"):
		return providers.KindBlockedOutput
	}
	return providers.KindBlockedInput
}

func (o *object) nested(outer, inner string) jsontext.Value {
	var in object
	if value := o.get(outer); value.Kind() != '{' || in.parse(value) != nil {
		return nil
	}
	return in.get(inner)
}
