package agents

import (
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/agents/tools"
	"turnpike/internal/jsonbody"
)

// maxArgumentsDepth limits the nesting of arguments that are sent to a provider.
const maxArgumentsDepth = 100

// normalized returns the call in a form that every provider accepts, and whether
// that changed it. Models invent invalid names and arguments that are not JSON, and
// many providers reject a conversation that contains them.
func (t toolRequest) normalized(original json.RawMessage) (function json.RawMessage, changed bool) {
	var had struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(original, &had) != nil || json.Unmarshal(original, &fields) != nil {
		return original, false // not reached: answer.read has parsed it
	}
	name, arguments := tools.ValidName(t.name), normalizedArguments(t.arguments)
	if name == had.Name && arguments == had.Arguments {
		return original, false
	}
	fields["name"], fields["arguments"] = quoted(name), quoted(arguments)
	text, err := json.Marshal(fields)
	return text, err == nil
}

func quoted(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil { // not reached: every string can be encoded
		return json.RawMessage(`""`)
	}
	return out
}

// normalizedArguments returns arguments that are a JSON object.
func normalizedArguments(arguments string) string {
	v := jsontext.Value(arguments)
	if v.Kind() == jsontext.KindBeginObject && jsonbody.CheckDepth(v, maxArgumentsDepth) == nil &&
		v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return arguments
	}
	return `{"not_an_object":` + string(quoted(arguments)) + `}`
}
