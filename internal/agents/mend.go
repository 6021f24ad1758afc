package agents

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/agents/tools"
	"turnpike/internal/jsonbody"
)

// maxSentDepth is how deep arguments may nest that are sent to a provider.
const maxSentDepth = 100

// mended is a call in a form that every provider takes back, if it is in none.
// Models make up names that no tool can have, and arguments that are no JSON;
// they are told so, but a conversation that repeats them is refused by many.
func (w wantedCall) mended(as json.RawMessage) (function json.RawMessage, mended bool) {
	var had struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(as, &had) != nil || json.Unmarshal(as, &fields) != nil {
		return as, false // it was read before
	}
	name, arguments := tools.Callable(w.name), sendable(w.arguments)
	if name == had.Name && arguments == had.Arguments {
		return as, false
	}
	fields["name"], fields["arguments"] = quoted(name), quoted(arguments)
	text, err := json.Marshal(fields)
	return text, err == nil
}

func quoted(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil { // a text is always JSON
		return json.RawMessage(`""`)
	}
	return out
}

// sendable are arguments as the text of one object.
func sendable(arguments string) string {
	v := jsontext.Value(arguments)
	if v.Kind() == jsontext.KindBeginObject && jsonbody.CheckDepth(v, maxSentDepth) == nil &&
		v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return arguments
	}
	return `{"not_an_object":` + string(quoted(arguments)) + `}`
}
