package responses

import (
	"strconv"
	"strings"

	"turnpike/internal/fault"
)

// origin is where a message of the chat comes from in the request.
type origin struct {
	at      string   // such as input[3]
	content string   // the field of its content, "" if that is the value itself
	calls   []string // where each of its calls comes from
}

// Fault says in the words of the caller's request what is wrong with the chat
// that was made of it. Any other error is returned as it is.
func (r *Request) Fault(err error) error {
	f, ok := fault.As(err)
	if !ok || f.Param == "" {
		return err
	}
	name := r.name(f.Param)
	if name == f.Param {
		return err
	}
	renamed := *f
	renamed.Param = name
	renamed.Message = strings.ReplaceAll(f.Message, f.Param, name)
	return &renamed
}

// prefixes of names in a chat request, and what they are here. The first that
// fits is taken.
var prefixes = []struct{ chat, here string }{
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

// name translates the name of a chat request's field.
func (r *Request) name(chat string) string {
	if i, rest, ok := index(chat, "messages"); ok {
		if i >= len(r.origins) {
			return "input"
		}
		return r.origins[i].name(rest)
	}
	if i, rest, ok := index(chat, "tools"); ok {
		return "tools[" + strconv.Itoa(i) + "]" + strings.TrimPrefix(rest, ".function")
	}
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(chat, p.chat); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return p.here + strings.ReplaceAll(rest, ".function.", ".")
		}
	}
	return chat
}

// name translates the rest of the name of a message's field.
func (o *origin) name(rest string) string {
	if i, rest, ok := index(rest, ".tool_calls"); ok && i < len(o.calls) {
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

// index splits list[3].rest.
func index(name, list string) (i int, rest string, ok bool) {
	inner, ok := strings.CutPrefix(name, list+"[")
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(inner, "]")
	i, err := strconv.Atoi(number)
	return i, rest, ok && err == nil && i >= 0
}
