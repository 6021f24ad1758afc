package responses

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// input is the conversation: a string, which is a user message, or items.
type input = openai.StringOr[[]item]

type item struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Role      string         `json:"role"`
	Content   content        `json:"content"`
	CallID    string         `json:"call_id"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
	Input     *string        `json:"input"` // of a custom tool
	Output    content        `json:"output"`
	Execution string         `json:"execution"` // of a tool search
	Tools     []tool         `json:"tools"`

	EncryptedContent *string `json:"encrypted_content"` // of a compaction or reasoning
}

type message struct {
	openai.Message
	from origin
}

// turn is a message with the results of its function calls. Chat completions need the results
// right after the message; items may have them anywhere later.
type turn struct {
	message
	parts     []openai.Part // content of the message
	hasResult []bool        // for each call
	results   []message
	media     []openai.Part // of the results
}

type conversation struct {
	turns []*turn
	tools *toolbox // receives tools that items add
	// compacting is set if the response is a summary of the conversation.
	compacting bool
	// open has the calls without a result by call_id, which not every provider makes unique.
	open map[string][]openCall
}

type openCall struct {
	turn  *turn
	index int // among the turn's calls
}

// messages translates instructions and input. Instructions get the role system, which every
// server knows.
func (r *Request) messages() ([]message, error) {
	in := r.in
	c := &conversation{tools: &r.tools, open: map[string][]openCall{}}
	if in.Instructions != nil && *in.Instructions != "" {
		c.add("system", []openai.Part{openai.TextPart(*in.Instructions)}, origin{at: "instructions"})
	}
	before := len(c.turns)
	switch in.Input.Kind {
	case jsontext.KindString:
		c.add("user", []openai.Part{openai.TextPart(in.Input.Text)}, origin{at: "input"})
	case jsontext.KindBeginArray:
		for i := range in.Input.Value {
			if err := c.addItem(&in.Input.Value[i], r.itemPath(i)); err != nil {
				return nil, err
			}
		}
	}
	if len(c.turns) == before {
		return nil, fault.Invalid("input", "input must have at least one message.")
	}
	r.compacting = c.compacting
	return c.messages()
}

func (c *conversation) add(role string, parts []openai.Part, from origin) *turn {
	t := &turn{message: message{openai.Message{Role: role}, from}, parts: parts}
	c.turns = append(c.turns, t)
	return t
}

func (c *conversation) addItem(i *item, at string) error {
	switch {
	case i.Type == "message" || i.Type == "" && i.Role != "":
		return c.addMessage(i, at)
	case i.Type == "function_call", i.Type == "custom_tool_call", i.Type == "tool_search_call":
		return c.addCall(i, at)
	case i.Type == "function_call_output", i.Type == "custom_tool_call_output":
		return c.addResult(i, at)
	case i.Type == "tool_search_output":
		return c.addFoundTools(i, at)
	case i.Type == compactionItem:
		return c.addCompaction(i, at)
	case i.Type == compactionTrigger:
		return c.addTrigger(at)
	case i.Type == "additional_tools":
		return c.tools.addAll(i.Tools, at+".tools")
	case slices.Contains(ignoredItems, i.Type):
		return nil
	case i.Type == "item_reference" || i.Type == "" && i.ID != "":
		return fault.Invalid(at, "%s is an item_reference. Send the item itself, as client libraries do with store: false.", at)
	case i.Type == "":
		return fault.Missing(at+".type", "%s.type is required: message, function_call or function_call_output.", at)
	}
	return fault.Invalid(at+".type", "%s.type %.40q needs a model of a provider with the Responses API. For this model, send messages and calls of function or custom tools.", at, i.Type)
}

// ignoredItems are items that chat completions can't express. The conversation is complete without
// them: the assistant's messages have the results.
var ignoredItems = []string{"reasoning", "web_search_call", "image_generation_call"}

func (c *conversation) addMessage(i *item, at string) error {
	switch i.Role {
	case "user", "assistant", "system", "developer":
	case "":
		return fault.Missing(at+".role", "%s.role is required: user, assistant, system or developer.", at)
	default:
		return fault.Invalid(at+".role", "%s.role must be user, assistant, system or developer.", at)
	}
	parts, err := chatParts(&i.Content, at+".content", i.Role)
	if err != nil {
		return err
	}
	if last := c.lastAssistant(); i.Role == "assistant" && last != nil && len(last.ToolCalls) > 0 && len(last.results) == 0 {
		last.parts = append(last.parts, parts...) // nothing may come between a call and its result
		return nil
	}
	c.add(i.Role, parts, origin{at: at, content: "content"})
	return nil
}

// lastAssistant returns the last turn if it is the assistant's.
func (c *conversation) lastAssistant() *turn {
	if n := len(c.turns); n > 0 && c.turns[n-1].Role == "assistant" {
		return c.turns[n-1]
	}
	return nil
}

// addCall adds the call to the assistant's previous turn: chat completions have the text and all
// its calls in one message.
func (c *conversation) addCall(i *item, at string) error {
	name, arguments, err := i.function(at)
	if err != nil || i.isServerSearch() {
		return err
	}
	if i.CallID == "" {
		return fault.Missing(at+".call_id", "%s.call_id is required.", at)
	}
	t := c.lastAssistant()
	if t == nil || len(t.results) > 0 {
		t = c.add("assistant", nil, origin{at: at, content: "content"})
	}
	t.ToolCalls = append(t.ToolCalls, openai.FunctionToolCall(i.CallID, name, arguments))
	t.from.calls = append(t.from.calls, at)
	c.open[i.CallID] = append(c.open[i.CallID], openCall{turn: t, index: len(t.hasResult)})
	t.hasResult = append(t.hasResult, false)
	return nil
}

// function returns the name and the arguments of a call's function.
func (i *item) function(at string) (name, arguments string, err error) {
	switch {
	case i.Type == string(toolSearchCall):
		return toolSearch, cmp.Or(i.argumentsText(), "{}"), nil
	case i.Name == "":
		return "", "", fault.Missing(at+".name", "%s.name is required: the name of the function or tool.", at)
	case i.Type == string(customCall) && i.Input == nil:
		return "", "", fault.Missing(at+".input", "%s.input is required: a string.", at)
	case i.Type == string(customCall):
		arguments = customArguments(*i.Input)
	case !isSet(i.Arguments):
		return "", "", fault.Missing(at+".arguments", "%s.arguments is required: a JSON object as a string.", at)
	case i.Arguments.Kind() != jsontext.KindString:
		return "", "", fault.Invalid(at+".arguments", "%s.arguments must be a string: a JSON object as a string.", at)
	default:
		arguments = i.argumentsText()
	}
	return chatName(i.Namespace, i.Name), arguments, nil
}

// argumentsText returns the arguments, which a tool search has as an object and a function as a string.
func (i *item) argumentsText() string {
	switch i.Arguments.Kind() {
	case jsontext.KindString:
		text, _ := jsontext.AppendUnquote(nil, i.Arguments)
		return string(text)
	case jsontext.KindBeginObject:
		return string(i.Arguments)
	}
	return ""
}

// isServerSearch reports whether the item is part of a tool search by a provider.
func (i *item) isServerSearch() bool {
	return (i.Type == string(toolSearchCall) || i.Type == "tool_search_output") && i.Execution != "client"
}

// addFoundTools adds the tools that a tool search has found.
func (c *conversation) addFoundTools(i *item, at string) error {
	if err := c.tools.addAll(i.Tools, at+".tools"); err != nil || i.isServerSearch() {
		return err
	}
	names := make([]string, 0, len(i.Tools))
	for _, t := range i.Tools {
		names = append(names, t.Name)
	}
	found := "No tools found."
	if len(names) > 0 {
		found = "These tools are available now: " + strings.Join(names, ", ")
	}
	i.Output = content{Kind: jsontext.KindString, Text: found}
	return c.addResult(i, at)
}

// addResult adds a function's output to its call. Tool messages are text only, so media follow
// in a user message.
func (c *conversation) addResult(i *item, at string) error {
	if i.CallID == "" {
		return fault.Missing(at+".call_id", "%s.call_id is required: the call_id of the function_call.", at)
	}
	calls := c.open[i.CallID]
	if len(calls) == 0 {
		return fault.Invalid(at+".call_id", "%s.call_id %.80q matches no function_call before it without an output.", at, i.CallID)
	}
	output := []openai.Part{openai.TextPart("")} // an empty array is the output of a function without a result
	if !isEmptyArray(&i.Output) {
		var err error
		if output, err = chatParts(&i.Output, at+".output", "tool"); err != nil {
			return err
		}
	}
	call := calls[len(calls)-1]
	c.open[i.CallID] = calls[:len(calls)-1]
	call.turn.hasResult[call.index] = true
	var text, media []openai.Part
	for k := range output {
		if isMedia(&output[k]) {
			media = append(media, output[k])
		} else {
			text = append(text, output[k])
		}
	}
	if len(text) == 0 {
		text = []openai.Part{openai.TextPart("The output is in the next message of the user.")}
	}
	t := call.turn
	t.results = append(t.results, message{
		openai.Message{Role: "tool", Content: chatContent(text), ToolCallID: i.CallID}, origin{at: at, content: "output"},
	})
	if len(media) > 0 {
		t.media = append(append(t.media, openai.TextPart("Output of the call "+i.CallID+":")), media...)
	}
	return nil
}

func (c *conversation) messages() ([]message, error) {
	var out []message
	for _, t := range c.turns {
		if k := slices.Index(t.hasResult, false); k >= 0 {
			at := t.from.calls[k]
			return nil, fault.Invalid(at+".call_id", "%s.call_id %.80q has no output. Add a function_call_output with this call_id.", at, t.ToolCalls[k].ID)
		}
		t.Content = chatContent(t.parts)
		out = append(append(out, t.message), t.results...)
		if len(t.media) > 0 {
			out = append(out, message{openai.Message{Role: "user", Content: chatContent(t.media)}, origin{at: "input"}})
		}
	}
	return out, nil
}
