package openai

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// complaint is a provider's error object.
type complaint struct{ message, kind, param, code string }

// maxParam is longer than any field's path that a caller would recognise.
const maxParam = 128

// explain reads the body of an answer with an error's status.
func explain(_ int, body []byte) (param, message string) {
	var o object
	if o.parse(body) != nil {
		return "", ""
	}
	c, ok := complaintIn(&o)
	if !ok {
		// FastAPI's, which many servers in Python show, and others.
		return "", cmp.Or(text(o.get("message")), text(o.get("detail")))
	}
	return c.param, c.String()
}

// isAboutAccount: a 429 is not for coming too often, but for an account that
// has no money.
func isAboutAccount(status int, body []byte) bool {
	var o object
	if status != http.StatusTooManyRequests || o.parse(body) != nil {
		return false
	}
	c, ok := complaintIn(&o)
	return ok && c.failureKind() == providers.KindAuth
}

// complaintIn finds an error in an object, in the shapes that are in use.
func complaintIn(o *object) (complaint, bool) {
	inner := o.get("error")
	switch inner.Kind() {
	case '{':
		var e object
		if err := e.parse(inner); err != nil {
			return complaint{}, false
		}
		return readComplaint(&e), len(e.members) > 0
	case '"': // Ollama's
		return complaint{message: text(inner)}, text(inner) != ""
	}
	if text(o.get("object")) == "error" { // Mistral's and older vLLM's: the object itself
		return readComplaint(o), true
	}
	return complaint{}, false
}

func readComplaint(o *object) complaint {
	c := complaint{message: text(o.get("message")), kind: text(o.get("type")), param: text(o.get("param")), code: text(o.get("code"))}
	if len(c.param) > maxParam {
		c.param = ""
	}
	return c
}

// text is what a string says, or any other value but null as it is written.
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

func (c complaint) String() string {
	words := strings.TrimSpace(c.kind + " " + c.code)
	if words == "" || c.message == "" {
		return cmp.Or(c.message, words)
	}
	return words + ": " + c.message
}

// failure is of a complaint that came with a status of success, or inside a
// stream. The status is 0 there.
func (c complaint) failure(status int, secrets []string) error {
	return &providers.Failure{
		Kind: c.failureKind(), Status: status, Param: wire.Loggable(c.param, secrets...),
		Err: errors.New(wire.Loggable(cmp.Or(c.String(), "an error without a word"), secrets...)),
	}
}

// meanings are the words in codes and types that tell what went wrong.
var meanings = []struct {
	word string
	kind providers.Kind
}{
	{"insufficient_quota", providers.KindAuth}, // the account has no money; waiting does not help
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

// failureKind goes by the code, which may be an HTTP status, and then by the type.
func (c complaint) failureKind() providers.Kind {
	if status, err := strconv.Atoi(c.code); err == nil && status >= 400 && status <= 599 {
		return wire.KindOf(status)
	}
	for _, said := range []string{c.code, c.kind} {
		for _, m := range meanings {
			if strings.Contains(strings.ToLower(said), m.word) {
				return m.kind
			}
		}
	}
	return providers.KindProtocol
}
