package responses

import (
	"strconv"
	"strings"

	"turnpike/internal/openai"
)

type origin struct {
	at      string   // such as input[3]
	content string   // the field with its content; "" if it is the value itself
	calls   []string // the paths of its calls
}

// TranslateFault replaces the name of a chat field by the name in the client's request. Other
// errors are returned unchanged.
func (r *Request) TranslateFault(err error) error { return openai.RenameField(err, r.fieldName) }

// fieldPrefixes translate prefixes of chat field names. The first match counts.
var fieldPrefixes = []struct{ chat, responses string }{
	{"response_format.json_schema", "text.format"},
	{"response_format", "text.format"},
	{"reasoning_effort", "reasoning.effort"},
	{"verbosity", "text.verbosity"},
	{"max_completion_tokens", "max_output_tokens"},
	{"max_tokens", "max_output_tokens"},
	{"tool_choice.allowed_tools", "tool_choice"},
	{"tool_choice.function", "tool_choice"},
	{"logprobs", "include"},
	{"messages", "input"},
}

func (r *Request) fieldName(chat string) string {
	if i, rest, ok := openai.SplitIndex(chat, "messages"); ok {
		if i >= len(r.origins) {
			return "input"
		}
		return r.origins[i].fieldName(rest)
	}
	if i, rest, ok := openai.SplitIndex(chat, "tools"); ok {
		at := "tools[" + strconv.Itoa(i) + "]"
		if i < len(r.tools.paths) {
			at = r.tools.paths[i]
		}
		return at + strings.TrimPrefix(rest, ".function")
	}
	for _, p := range fieldPrefixes {
		if rest, ok := strings.CutPrefix(chat, p.chat); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return p.responses + strings.ReplaceAll(rest, ".function.", ".")
		}
	}
	return chat
}

func (o *origin) fieldName(rest string) string {
	if i, rest, ok := openai.SplitIndex(rest, ".tool_calls"); ok && i < len(o.calls) {
		switch rest {
		case ".id":
			rest = ".call_id"
		case ".function":
			rest = ""
		}
		return o.calls[i] + strings.TrimPrefix(rest, ".function")
	}
	if rest, ok := strings.CutPrefix(rest, ".content"); ok {
		if o.content == "" {
			return o.at
		}
		rest = strings.TrimSuffix(rest, ".url")
		rest = strings.Replace(rest, ".image_url.", ".", 1)
		return o.at + "." + o.content + strings.Replace(rest, ".file.", ".", 1)
	}
	switch rest {
	case ".role":
		return o.at + rest
	case ".tool_call_id":
		return o.at + ".call_id"
	}
	return o.at
}
