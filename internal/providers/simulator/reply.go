package simulator

import (
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator/jsonsample"
)

// reply is what one choice of the answer says; all choices say the same.
type reply struct {
	text    string
	refusal bool // text is a refusal
	calls   []call
	ends    []int // of the text's tokens
	tokens  int
	finish  string
}

const refusalText = "This is a simulated refusal: I can't help with that."

// reply makes up the answer, which is not counted yet.
func (r *request) reply(t turn, m *magic) (*reply, error) {
	calls, err := r.calls(t, m)
	if err != nil {
		return nil, err
	}
	reply := &reply{finish: "stop", calls: calls}
	if len(calls) > 0 {
		reply.finish = "tool_calls"
	} else {
		reply.refusal = m.refusal
		if reply.text, err = r.text(t, m); err != nil {
			return nil, err
		}
		reply.text = beforeStop(reply.text, r.stops)
	}
	return reply, nil
}

// size is how many bytes there are to count.
func (reply *reply) size() int {
	n := len(reply.text)
	for _, c := range reply.calls {
		n += len(c.name) + len(c.arguments)
	}
	return n
}

// count counts the tokens and cuts the reply at the limit.
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

// calls are the tool calls of the answer.
func (r *request) calls(t turn, m *magic) (calls []call, err error) {
	if len(m.calls) > 0 && r.choice.Mode != "none" {
		return r.scriptedCalls(m.calls)
	}
	names, err := r.toolsToCall(t, m)
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

// toolsToCall names the tools that the answer calls.
func (r *request) toolsToCall(t turn, m *magic) ([]string, error) {
	for _, name := range m.tools {
		if r.ToolIndex(name) < 0 {
			return nil, fault.Invalid("messages", "[[sim:tool=%s]] names no tool in tools", name)
		}
	}
	switch {
	case r.choice.Mode == "none" || len(t.results) > 0:
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

// text is the answer's text before it is cut.
func (r *request) text(t turn, m *magic) (string, error) {
	switch {
	case m.refusal:
		return refusalText, nil
	case m.hasText:
		return m.text, nil
	case m.length > 0:
		return filler(m.length), nil
	case r.ResponseFormat == nil:
		return t.sentence(), nil
	}
	switch r.ResponseFormat.Type {
	case "json_object":
		b := append([]byte(nil), `{"simulated":true,"answer":`...)
		b, _ = jsontext.AppendQuote(b, t.sentence())
		return string(append(b, '}')), nil
	case "json_schema":
		document, err := jsonsample.Value(r.ResponseFormat.JSONSchema.Schema)
		if err != nil {
			const param = "response_format.json_schema.schema"
			return "", fault.Invalid(param, "Cannot simulate %s: %v.", param, err)
		}
		return string(document), nil
	}
	return t.sentence(), nil
}

// fillerWords are single tokens, alone and after a space.
var fillerWords = strings.Fields("the quick brown fox jumps over the lazy dog and then runs back to the small river by the old house on the green hill")

// filler is a text of exactly so many tokens.
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

// limit is the highest number of tokens a choice may have; -1 is none.
func (r *request) limit() int {
	limit := int64(-1)
	for _, n := range []*int64{r.MaxTokens, r.MaxCompletionTokens} {
		if n != nil && (limit < 0 || *n < limit) {
			limit = *n
		}
	}
	return int(limit)
}

// beforeStop is the text before the first of the stop sequences in it.
func beforeStop(text string, stops []string) string {
	for _, stop := range stops {
		if i := strings.Index(text, stop); i >= 0 {
			text = text[:i]
		}
	}
	return text
}

// countText counts the text's tokens and cuts it at the limit.
func (reply *reply) countText(c *counter, limit int) {
	var cut bool
	reply.text, reply.ends, cut = c.tokenize(reply.text, limit)
	reply.tokens = len(reply.ends)
	if cut {
		reply.finish = "length"
	}
}

// tokensPerCall is what a tool call costs beside its name and arguments.
const tokensPerCall = 3

// countCalls counts the calls' tokens and cuts them at the limit.
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

// tokenize returns where the text's tokens end; with a limit of 0 or more it
// stops there and cuts the text. A character that the cut splits is dropped:
// its tokens are counted and say nothing.
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
	for end > 0 && !utf8.RuneStart(text[end]) { // text goes on after a cut
		end--
	}
	for i := len(ends) - 1; i >= 0 && ends[i] > end; i-- {
		ends[i] = end
	}
	return text[:end], ends, true
}
