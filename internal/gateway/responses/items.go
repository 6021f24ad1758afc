package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// input is what the model shall answer: a text of the user's, or items.
type input struct {
	kind  jsontext.Kind // of the JSON value, 0 if there is none
	text  string
	items []item
}

func (i *input) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*i = input{kind: in.PeekKind()}
	switch i.kind {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, &i.text)
	case jsontext.KindBeginArray:
		return json.UnmarshalDecode(in, &i.items)
	}
	return in.SkipValue()
}

// item is one of a conversation: a message, a call of a function, or what it gave.
type item struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	Role      string  `json:"role"`
	Content   content `json:"content"`
	CallID    string  `json:"call_id"`
	Name      string  `json:"name"`
	Arguments *string `json:"arguments"`
	Output    content `json:"output"`
}

// message is one of a chat.
type message struct {
	Role       string      `json:"role"`
	Content    chatContent `json:"content"`
	ToolCalls  []toolCall  `json:"tool_calls,omitzero"`
	ToolCallID string      `json:"tool_call_id,omitzero"`

	from origin
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// turn is a message with what the functions it calls gave. A chat wants that
// right behind it, and items may have it anywhere later.
type turn struct {
	message
	answered []bool // for each call, whether its result has come
	results  []message
	media    chatContent // of the results
}

// conversation collects the turns.
type conversation struct {
	turns []*turn
	// open has the calls whose result has not come yet, by call_id; not every
	// provider makes those unique.
	open map[string][]openCall
}

type openCall struct {
	turn  *turn
	index int // among the turn's calls
}

// messages translates instructions and input. The instructions' role is the
// one that every server knows.
func (in *request) messages() ([]message, error) {
	c := &conversation{open: map[string][]openCall{}}
	if in.Instructions != nil && *in.Instructions != "" {
		c.add("system", chatContent{textPart(*in.Instructions)}, origin{at: "instructions"})
	}
	before := len(c.turns)
	switch in.Input.kind {
	case jsontext.KindString:
		c.add("user", chatContent{textPart(in.Input.text)}, origin{at: "input"})
	case jsontext.KindBeginArray:
		for i := range in.Input.items {
			if err := c.item(&in.Input.items[i], "input["+strconv.Itoa(i)+"]"); err != nil {
				return nil, err
			}
		}
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, fault.Missing("input", "input is required: a string or an array of items")
	default:
		return nil, fault.Invalid("input", "input must be a string or an array of items")
	}
	if len(c.turns) == before {
		return nil, fault.Invalid("input", "input must have at least one message")
	}
	return c.messages()
}

func (c *conversation) add(role string, said chatContent, from origin) *turn {
	t := &turn{message: message{Role: role, Content: said, from: from}}
	c.turns = append(c.turns, t)
	return t
}

func (c *conversation) item(i *item, at string) error {
	switch {
	case i.Type == "message" || i.Type == "" && i.Role != "":
		return c.message(i, at)
	case i.Type == "function_call":
		return c.call(i, at)
	case i.Type == "function_call_output":
		return c.result(i, at)
	case i.Type == "reasoning":
		return nil // a chat has no place for it
	case i.Type == "item_reference" || i.Type == "" && i.ID != "":
		return fault.Invalid(at, "%s is an item_reference, which is not supported: items are not stored; send the item itself, as client libraries do with store: false", at)
	case i.Type == "":
		return fault.Missing(at+".type", "%s.type is required: message, function_call or function_call_output", at)
	}
	return fault.Invalid(at+".type", "%s.type must be message, function_call, function_call_output or reasoning: %.40q is not supported here", at, i.Type)
}

func (c *conversation) message(i *item, at string) error {
	switch i.Role {
	case "user", "assistant", "system", "developer":
	case "":
		return fault.Missing(at+".role", "%s.role is required: user, assistant, system or developer", at)
	default:
		return fault.Invalid(at+".role", "%s.role must be user, assistant, system or developer", at)
	}
	said, err := i.Content.chat(at+".content", i.Role == "user")
	if err != nil {
		return err
	}
	if i.Role != "assistant" {
		for k := range said {
			if said[k].Type == "refusal" {
				here := at + ".content[" + strconv.Itoa(k) + "].type"
				return fault.Invalid(here, "%s refusal belongs in a message of the assistant", here)
			}
		}
	} else if last := c.last(); last != nil && len(last.ToolCalls) > 0 && len(last.results) == 0 {
		last.Content = append(last.Content, said...) // between a call and its result a chat takes nothing
		return nil
	}
	c.add(i.Role, said, origin{at: at, content: "content"})
	return nil
}

// last is the last turn if it is the assistant's.
func (c *conversation) last() *turn {
	if n := len(c.turns); n > 0 && c.turns[n-1].Role == "assistant" {
		return c.turns[n-1]
	}
	return nil
}

// call joins the assistant's turn before it: a chat has what was said and all
// calls at that point in one message.
func (c *conversation) call(i *item, at string) error {
	switch {
	case i.CallID == "":
		return fault.Missing(at+".call_id", "%s.call_id is required", at)
	case i.Name == "":
		return fault.Missing(at+".name", "%s.name is required: the name of the function", at)
	case i.Arguments == nil:
		return fault.Missing(at+".arguments", "%s.arguments is required: the text of a JSON object", at)
	}
	t := c.last()
	if t == nil || len(t.results) > 0 {
		t = c.add("assistant", nil, origin{at: at, content: "content"})
	}
	t.ToolCalls = append(t.ToolCalls, toolCall{ID: i.CallID, Type: "function", Function: functionCall{Name: i.Name, Arguments: *i.Arguments}})
	t.from.calls = append(t.from.calls, at)
	c.open[i.CallID] = append(c.open[i.CallID], openCall{turn: t, index: len(t.answered)})
	t.answered = append(t.answered, false)
	return nil
}

// result puts what a function gave behind its call. A tool's message in a
// chat is text alone: other parts follow in a message of the user.
func (c *conversation) result(i *item, at string) error {
	if i.CallID == "" {
		return fault.Missing(at+".call_id", "%s.call_id is required: that of the function_call", at)
	}
	calls := c.open[i.CallID]
	if len(calls) == 0 {
		return fault.Invalid(at+".call_id", "%s.call_id %.80q belongs to no function_call before it that still has no output", at, i.CallID)
	}
	given := chatContent{textPart("")} // an empty list is of a function that gives nothing
	if !i.Output.isEmptyList() {
		var err error
		if given, err = i.Output.chat(at+".output", true); err != nil {
			return err
		}
	}
	call := calls[len(calls)-1]
	c.open[i.CallID] = calls[:len(calls)-1]
	call.turn.answered[call.index] = true
	var text, media chatContent
	for k := range given {
		switch {
		case given[k].Type == "refusal":
			here := at + ".output[" + strconv.Itoa(k) + "].type"
			return fault.Invalid(here, "%s must be input_text, input_image or input_file", here)
		case given[k].isMedia():
			media = append(media, given[k])
		default:
			text = append(text, given[k])
		}
	}
	if len(text) == 0 {
		text = chatContent{textPart("The output is in the next message of the user.")}
	}
	t := call.turn
	t.results = append(t.results, message{
		Role: "tool", Content: text, ToolCallID: i.CallID, from: origin{at: at, content: "output"},
	})
	if len(media) > 0 {
		t.media = append(append(t.media, textPart("Output of the call "+i.CallID+":")), media...)
	}
	return nil
}

// messages lays the turns out as a chat has them.
func (c *conversation) messages() ([]message, error) {
	var out []message
	for _, t := range c.turns {
		if k := slices.Index(t.answered, false); k >= 0 {
			at := t.from.calls[k]
			return nil, fault.Invalid(at+".call_id", "%s.call_id %.80q has no output: every function_call needs a function_call_output with its call_id", at, t.ToolCalls[k].ID)
		}
		out = append(append(out, t.message), t.results...)
		if len(t.media) > 0 {
			out = append(out, message{Role: "user", Content: t.media, from: origin{at: "input"}})
		}
	}
	return out, nil
}
