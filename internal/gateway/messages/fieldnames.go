package messages

import (
	"strconv"
	"strings"

	"turnpike/internal/openai"
)

// origin is where a chat message comes from.
type origin struct {
	at    string   // such as messages[3]
	parts []string // the paths of its parts
	calls []string // the paths of its tool calls
}

func (r *Request) add(m openai.Message, from origin) {
	r.chat.Messages = append(r.chat.Messages, m)
	r.origins = append(r.origins, from)
}

// TranslateFault replaces the name of a chat field by the name in the client's request. Other
// errors are returned unchanged.
func (r *Request) TranslateFault(err error) error { return openai.RenameField(err, r.FieldName) }

// fieldPrefixes translate prefixes of chat field names. The first match counts.
var fieldPrefixes = []struct{ chat, messages string }{
	{"response_format", "output_config.format"},
	{"reasoning_effort", "thinking"},
	{"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
	{"tool_choice.function", "tool_choice"},
	{"max_completion_tokens", "max_tokens"},
	{"stop", "stop_sequences"},
	{"user", "metadata.user_id"},
}

// FieldName returns the name in the client's request for the name of a chat field.
func (r *Request) FieldName(chat string) string {
	if i, rest, ok := openai.SplitIndex(chat, "messages"); ok {
		if i >= len(r.origins) {
			return "messages"
		}
		return r.origins[i].fieldName(rest)
	}
	if i, rest, ok := openai.SplitIndex(chat, "tools"); ok {
		rest = strings.TrimPrefix(rest, ".function")
		return "tools[" + strconv.Itoa(i) + "]" + strings.Replace(rest, ".parameters", ".input_schema", 1)
	}
	for _, p := range fieldPrefixes {
		if rest, ok := strings.CutPrefix(chat, p.chat); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return p.messages + strings.TrimPrefix(rest, ".json_schema")
		}
	}
	return chat
}

func (o *origin) fieldName(rest string) string {
	if i, _, ok := openai.SplitIndex(rest, ".tool_calls"); ok && i < len(o.calls) {
		return o.calls[i]
	}
	if i, _, ok := openai.SplitIndex(rest, ".content"); ok && i < len(o.parts) {
		return o.parts[i]
	}
	switch {
	case o.at == "system":
		return o.at
	case rest == ".role":
		return o.at + rest
	case strings.HasPrefix(rest, ".content"):
		return o.at + ".content"
	}
	return o.at
}
