package simulator

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator/jsonsample"
)

type reply struct {
	text    string
	refusal bool // text is a refusal
	calls   []call
	ends    []int // offsets at which the tokens of the text end
	tokens  int
	finish  string
}

const refusalText = "This is a simulated refusal: I can't help with that."

func (r *request) reply(p prompt, m *magic) (*reply, error) {
	calls, err := r.calls(p, m)
	if err != nil {
		return nil, err
	}
	reply := &reply{finish: "stop", calls: calls}
	if len(calls) > 0 {
		reply.finish = "tool_calls"
	} else {
		reply.refusal = m.refusal
		if reply.text, err = r.text(p, m); err != nil {
			return nil, err
		}
		reply.text = truncateAtStop(reply.text, r.stops)
	}
	return reply, nil
}

func (reply *reply) size() int {
	n := len(reply.text)
	for _, c := range reply.calls {
		n += len(c.name) + len(c.arguments)
	}
	return n
}

func (reply *reply) count(c *counter, limit int, m *magic) {
	if len(reply.calls) > 0 {
		reply.countCalls(c, limit)
	} else {
		reply.countText(c, limit)
	}
	if m.finish != "" {
		reply.finish = m.finish
	}
}

func (r *request) calls(p prompt, m *magic) (calls []call, err error) {
	if len(m.calls) > 0 && r.choice.Mode != "none" {
		return r.scriptedCalls(m.calls)
	}
	names, err := r.toolsToCall(p, m)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		c, err := r.newCall(name)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func (r *request) toolsToCall(p prompt, m *magic) ([]string, error) {
	for _, name := range m.tools {
		if r.ToolIndex(name) < 0 {
			return nil, fault.Invalid("messages", "[[sim:tool=%s]] does not name one of the tools.", name)
		}
	}
	switch {
	case r.choice.Mode == "none" || len(p.results) > 0:
		return nil, nil
	case len(m.tools) > 0:
		if r.OneCallAtATime() {
			return m.tools[:1], nil
		}
		return m.tools, nil
	case r.choice.Mode != "required":
		return nil, nil
	case r.choice.Function != "":
		return []string{r.choice.Function}, nil
	case len(r.choice.Allowed) > 0:
		return r.choice.Allowed[:1], nil
	}
	return []string{r.Tools[0].Function.Name}, nil
}

func (r *request) text(p prompt, m *magic) (string, error) {
	switch {
	case m.refusal:
		return refusalText, nil
	case m.hasText:
		return m.text, nil
	case m.length > 0:
		return filler(m.length), nil
	case r.ResponseFormat == nil:
		return p.sentence(), nil
	}
	switch r.ResponseFormat.Type {
	case "json_object":
		b := append([]byte(nil), `{"simulated":true,"answer":`...)
		b, _ = jsontext.AppendQuote(b, p.sentence())
		return string(append(b, '}')), nil
	case "json_schema":
		document, err := jsonsample.Value(r.ResponseFormat.JSONSchema.Schema)
		if err != nil {
			const param = "response_format.json_schema.schema"
			return "", fault.Invalid(param, "Cannot simulate %s: %v.", param, err)
		}
		return string(document), nil
	}
	return p.sentence(), nil
}

// fillerWords are one token each, also after a space.
var fillerWords = strings.Fields("the quick brown fox jumps over the lazy dog and then runs back to the small river by the old house on the green hill")

// filler returns a text with exactly this many tokens.
func filler(tokens int) string {
	var b strings.Builder
	b.Grow(6 * tokens)
	for i := range tokens {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(fillerWords[i%len(fillerWords)])
	}
	return b.String()
}

// limit returns the maximum number of tokens of a choice, or -1.
func (r *request) limit() int {
	limit := int64(-1)
	for _, n := range []*int64{r.MaxTokens, r.MaxCompletionTokens} {
		if n != nil && (limit < 0 || *n < limit) {
			limit = *n
		}
	}
	return int(limit)
}

// truncateAtStop returns the text before the first stop sequence in it.
func truncateAtStop(text string, stops []string) string {
	for _, stop := range stops {
		if i := strings.Index(text, stop); i >= 0 {
			text = text[:i]
		}
	}
	return text
}

func (reply *reply) countText(c *counter, limit int) {
	var cut bool
	reply.text, reply.ends, cut = c.tokenize(reply.text, limit)
	reply.tokens = len(reply.ends)
	if cut {
		reply.finish = "length"
	}
}

// tokensPerCall are the tokens of a tool call besides its name and arguments.
const tokensPerCall = 3

func (reply *reply) countCalls(c *counter, limit int) {
	for i := range reply.calls {
		call := &reply.calls[i]
		head := tokensPerCall + c.count(call.name)
		if limit >= 0 && reply.tokens+head > limit {
			reply.calls = reply.calls[:i]
			reply.tokens, reply.finish = limit, "length"
			return
		}
		reply.tokens += head
		room := -1
		if limit >= 0 {
			room = limit - reply.tokens
		}
		var cut bool
		call.arguments, call.ends, cut = c.tokenize(call.arguments, room)
		reply.tokens += len(call.ends)
		if cut {
			reply.calls = reply.calls[:i+1]
			reply.finish = "length"
			return
		}
	}
}

// tokenize returns the offsets at which the tokens end. If limit is not negative, it truncates the
// text after that many tokens. A character that this splits is dropped, but its tokens count.
func (c *counter) tokenize(text string, limit int) (kept string, ends []int, cut bool) {
	ends = make([]int, 0, min(len(text)/4+8, 1024))
	for end := range c.tokenEnds(text) {
		if len(ends) == limit {
			cut = true
			break
		}
		ends = append(ends, end)
	}
	if !cut {
		return text, ends, false
	}
	if len(ends) == 0 {
		return "", ends, true
	}
	end := ends[len(ends)-1]
	for end > 0 && !utf8.RuneStart(text[end]) { // the text continues after end
		end--
	}
	for i := len(ends) - 1; i >= 0 && ends[i] > end; i-- {
		ends[i] = end
	}
	return text[:end], ends, true
}

type call struct {
	name      string
	arguments string
	ends      []int // of the arguments' tokens
}

func (r *request) newCall(name string) (call, error) {
	i := r.ToolIndex(name)
	c := call{name: name, arguments: "{}"}
	if p := r.Tools[i].Function.Parameters; p.Kind() == jsontext.KindBeginObject {
		arguments, err := jsonsample.Object(p)
		if err != nil {
			param := fmt.Sprintf("tools[%d].function.parameters", i)
			return c, fault.Invalid(param, "Cannot simulate %s: %v.", param, err)
		}
		c.arguments = string(arguments)
	}
	return c, nil
}
