package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

type message struct {
	Role       string         `json:"role"`
	Content    content        `json:"content"`
	ToolCallID string         `json:"tool_call_id"`
	ToolCalls  []toolCall     `json:"tool_calls"`
	Refusal    string         `json:"refusal"`
	Function   jsontext.Value `json:"function_call"`
}

type toolCall struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Function *functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// content is a message's text, or its parts. kind is that of the JSON value,
// 0 if there is none.
type content struct {
	kind  jsontext.Kind
	text  string
	parts []part
}

func (c *content) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*c = content{kind: in.PeekKind()}
	switch c.kind {
	case jsontext.KindString:
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		c.text = token.String()
		return nil
	case jsontext.KindBeginArray:
		return json.UnmarshalDecode(in, &c.parts)
	}
	return in.SkipValue()
}

// turn is a message of the Messages API.
type turn struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block is a part of a turn, of the system's words or of a tool's result.
type block struct {
	Type         string         `json:"type"`
	Text         string         `json:"text,omitzero"`
	Source       *source        `json:"source,omitzero"`
	Title        string         `json:"title,omitzero"`
	ID           string         `json:"id,omitzero"`
	Name         string         `json:"name,omitzero"`
	Input        jsontext.Value `json:"input,omitzero"`
	ToolUseID    string         `json:"tool_use_id,omitzero"`
	Content      []block        `json:"content,omitzero"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

// messages sorts the conversation into what the system says and turns of user
// and assistant. Instructions within the conversation move to its beginning:
// there is no other place for them that every model has. Those that follow the
// assistant's last words are what it is to answer, and become the user's.
func (b *builder) messages() error {
	if b.in.Messages == nil {
		return fault.Missing("messages", "messages is required: an array of messages")
	}
	if len(b.in.Messages) == 0 {
		return fault.Invalid("messages", "messages must have at least one message")
	}
	var open []openCall // those that still need their result
	last := b.afterAssistant()
	for i := range b.in.Messages {
		m := &b.in.Messages[i]
		at := "messages[" + strconv.Itoa(i) + "]"
		b.current = i
		if len(open) > 0 && (m.Role == "user" || m.Role == "assistant") {
			return unanswered(at, open[0].id)
		}
		var err error
		switch m.Role {
		case "system", "developer":
			err = b.system(m, at, i >= last)
		case "user":
			err = b.say("user", m, at)
		case "assistant":
			open, err = b.assistant(m, at)
		case "tool":
			open, err = b.result(m, at, open)
		case "function":
			err = fault.Invalid(at+".role", "%s.role function is not possible with this model's provider: use tools", at)
		case "":
			err = fault.Missing(at+".role", "%s.role is required: system, developer, user, assistant or tool", at)
		default:
			err = fault.Invalid(at+".role", "%s.role must be system, developer, user, assistant or tool", at)
		}
		if err != nil {
			return err
		}
	}
	if len(open) > 0 {
		return unanswered("messages["+strconv.Itoa(len(b.in.Messages))+"]", open[0].id)
	}
	return b.finishMessages()
}

// afterAssistant is where the instructions begin that follow the assistant's
// last message and end the conversation; behind its end if there are none.
func (b *builder) afterAssistant() int {
	n := len(b.in.Messages)
	at := n
	for at > 0 && (b.in.Messages[at-1].Role == "system" || b.in.Messages[at-1].Role == "developer") {
		at--
	}
	if at > 0 && b.in.Messages[at-1].Role == "assistant" {
		return at
	}
	return n
}

func unanswered(at, id string) error {
	return fault.Invalid(at, "%s must be the tool message for the call %.80q: every tool call needs one, right after the assistant's message", at, id)
}

func (b *builder) finishMessages() error {
	turns := b.out.Messages
	if len(turns) == 0 { // a prompt of instructions alone, which OpenAI's models answer
		if len(b.out.System) == 0 {
			return fault.Invalid("messages", "messages must have some text")
		}
		b.out.Messages = []turn{{Role: "user", Content: b.out.System}}
		b.out.System = nil
		return nil
	}
	last := turns[len(turns)-1]
	if last.Role != "assistant" {
		return nil
	}
	if !b.model.prefill() {
		at := "messages[" + strconv.Itoa(b.lastSource) + "]"
		return fault.Invalid(at, "%s must be from the user or a tool: this model cannot continue the assistant's own words", at)
	}
	// The API refuses white space at the very end, which only the assistant's can have here.
	if end := &last.Content[len(last.Content)-1]; end.Type == "text" {
		end.Text = strings.TrimRightFunc(end.Text, unicode.IsSpace)
	}
	return nil
}

// add appends to the conversation. Messages of the same side become one turn,
// as the API would make of them, and as it wants it for results of tools.
func (b *builder) add(role string, blocks ...block) {
	if len(blocks) == 0 {
		return // the API refuses an empty turn; nothing was said in it
	}
	b.lastSource = b.current
	if n := len(b.out.Messages); n > 0 && b.out.Messages[n-1].Role == role {
		b.out.Messages[n-1].Content = append(b.out.Messages[n-1].Content, blocks...)
		return
	}
	b.out.Messages = append(b.out.Messages, turn{Role: role, Content: blocks})
}

func (b *builder) system(m *message, at string, question bool) error {
	blocks, err := m.Content.blocks(at+".content", m.Role)
	if question {
		b.add("user", blocks...)
	} else {
		b.out.System = append(b.out.System, blocks...)
	}
	return err
}

func (b *builder) say(role string, m *message, at string) error {
	blocks, err := m.Content.blocks(at+".content", role)
	b.add(role, blocks...)
	return err
}

// openCall is a call that has no result yet: its id is the caller's, given is
// the one that Anthropic gets.
type openCall struct{ id, given string }

// assistant adds what the assistant said and called, and returns the calls.
func (b *builder) assistant(m *message, at string) (open []openCall, err error) {
	if k := m.Function.Kind(); k != jsontext.KindInvalid && k != jsontext.KindNull {
		return nil, fault.Invalid(at+".function_call", "%s.function_call is not possible with this model's provider: use tool_calls", at)
	}
	if k := m.Content.kind; k != jsontext.KindInvalid && k != jsontext.KindNull || len(m.ToolCalls) == 0 && m.Refusal == "" {
		if err := b.say("assistant", m, at); err != nil {
			return nil, err
		}
	}
	if !isBlank(m.Refusal) {
		b.add("assistant", block{Type: "text", Text: m.Refusal})
	}
	for i := range m.ToolCalls {
		call := &m.ToolCalls[i]
		use, err := call.block(at + ".tool_calls[" + strconv.Itoa(i) + "]")
		if err != nil {
			return nil, err
		}
		use.ID = b.unusedID(use.ID)
		b.add("assistant", use)
		open = append(open, openCall{call.ID, use.ID})
		if !slices.Contains(b.callNames, use.Name) {
			b.callNames = append(b.callNames, use.Name)
		}
	}
	return open, nil
}

// maxArgumentsDepth is that of a request's body.
const maxArgumentsDepth = 128

func (c *toolCall) block(at string) (block, error) {
	switch {
	case c.ID == "":
		return block{}, fault.Missing(at+".id", "%s.id is required", at)
	case c.Type != "" && c.Type != "function":
		return block{}, fault.Invalid(at+".type", "%s.type must be \"function\"", at)
	case c.Function == nil:
		return block{}, fault.Missing(at+".function", "%s.function is required: an object with name and arguments", at)
	case c.Function.Name == "":
		return block{}, fault.Missing(at+".function.name", "%s.function.name is required", at)
	}
	input := jsontext.Value(strings.TrimSpace(c.Function.Arguments))
	if len(input) == 0 { // what models write for a tool without parameters
		input = jsontext.Value("{}")
	}
	if jsonbody.CheckDepth(input, maxArgumentsDepth) != nil || !input.IsValid(jsontext.AllowDuplicateNames(true)) || input.Kind() != jsontext.KindBeginObject {
		return block{}, fault.Invalid(at+".function.arguments", "%s.function.arguments must be the text of a JSON object", at)
	}
	return block{Type: "tool_use", ID: toolID(c.ID), Name: c.Function.Name, Input: input}, nil
}

// unusedID makes the id of a call differ from those before it, as the API
// wants it. Some models begin anew with each of their messages.
func (b *builder) unusedID(id string) string {
	unused := id
	for b.callIDs[unused] > 0 {
		b.callIDs[id]++
		unused = id + "_" + strconv.Itoa(b.callIDs[id])
	}
	b.callIDs[unused] = 1
	return unused
}

// result adds a tool's result and takes its call off the open ones.
func (b *builder) result(m *message, at string, open []openCall) ([]openCall, error) {
	if m.ToolCallID == "" {
		return nil, fault.Missing(at+".tool_call_id", "%s.tool_call_id is required in a tool message", at)
	}
	i := slices.IndexFunc(open, func(c openCall) bool { return c.id == m.ToolCallID })
	if i < 0 {
		return nil, fault.Invalid(at+".tool_call_id", "%s.tool_call_id %.80q is not an open call of the assistant's message before it", at, m.ToolCallID)
	}
	blocks, err := m.Content.blocks(at+".content", m.Role)
	if err != nil {
		return nil, err
	}
	b.add("user", block{Type: "tool_result", ToolUseID: open[i].given, Content: blocks})
	return slices.Delete(open, i, i+1), nil
}

// toolID makes an id that the API accepts of one that another provider made.
func toolID(id string) string {
	valid := !strings.ContainsFunc(id, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
	if valid {
		return id
	}
	return "call_" + digest(id)[:24]
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
