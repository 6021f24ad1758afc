package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

type chatMessage struct {
	Role         string            `json:"role"`
	Content      chatContent       `json:"content"`
	Name         string            `json:"name"`
	ToolCallID   string            `json:"tool_call_id"`
	ToolCalls    []chatCall        `json:"tool_calls"`
	FunctionCall *chatFunctionCall `json:"function_call"`
	Refusal      string            `json:"refusal"`
}

type chatCall struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Function *chatFunctionCall `json:"function"`
	Extra    jsontext.Value    `json:"extra_content"`
}

type chatFunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// chatContent is a message's text, or its parts. kind is that of the JSON
// value, 0 if there is none; one that is not allowed is refused by parts,
// which knows the message's place.
type chatContent struct {
	kind  jsontext.Kind
	text  string
	parts []chatPart
}

func (c *chatContent) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*c = chatContent{kind: in.PeekKind()}
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

// extra is where Google's own OpenAI-compatible interface keeps the signature
// of a thought, so that its clients know to send it back.
type extra struct {
	Google struct {
		ThoughtSignature string `json:"thought_signature"`
	} `json:"google"`
}

// foreignSignature stands for the signature of a call that another model made,
// or whose client did not keep it: Google publishes it for that.
const foreignSignature = "skip_thought_signature_validator"

// conversation turns messages into contents.
type conversation struct {
	model       family
	contents    []content
	instruction []part
	callNames   map[string]string // by the id of the call
	inResults   bool              // the last content has function responses
	lastParam   string            // the assistant's last message

	textBytes, images, audioBytes int
}

func (t *conversation) read(messages []chatMessage) error {
	if messages == nil {
		return fault.Missing("messages", "messages is required: an array of messages")
	}
	if len(messages) == 0 {
		return fault.Invalid("messages", "messages must have at least one message")
	}
	last := afterAssistant(messages)
	for i := range messages {
		if err := t.message(fmt.Sprintf("messages[%d]", i), &messages[i], i >= last); err != nil {
			return err
		}
	}
	if len(t.contents) == 0 && len(t.instruction) == 0 {
		return fault.Invalid("messages", "messages must have some content")
	}
	if n := len(t.contents); n > 0 && t.contents[n-1].Role == "model" && !t.model.continuesItself() {
		return fault.Invalid(t.lastParam, "%s must be from the user or a tool: this model cannot continue the assistant's own words", t.lastParam)
	}
	// Gemini does not speak first: an instruction alone becomes the question.
	if len(t.instruction) > 0 && (len(t.contents) == 0 || t.model.noInstructions) {
		t.contents = slices.Insert(t.contents, 0, content{Role: "user", Parts: t.instruction})
		t.instruction = nil
	}
	return nil
}

// afterAssistant is where the instructions begin that follow the assistant's
// last message and end the conversation; behind its end if there are none.
func afterAssistant(messages []chatMessage) int {
	at := len(messages)
	for at > 0 && (messages[at-1].Role == "system" || messages[at-1].Role == "developer") {
		at--
	}
	if at > 0 && messages[at-1].Role == "assistant" {
		return at
	}
	return len(messages)
}

// instruct adds to what the system says.
func (t *conversation) instruct(text string) {
	t.instruction = t.appendText(t.instruction, text)
}

func (t *conversation) system() *content {
	if len(t.instruction) == 0 {
		return nil
	}
	return &content{Parts: t.instruction}
}

// tokens guesses the prompt's length by what Google publishes: four
// characters are a token, a small image is 258, a second of audio 32. The
// audio is taken for MP3 of 128 kbit/s.
func (t *conversation) tokens() int64 {
	return guessTokens(t.textBytes) + int64(t.images)*258 + int64(t.audioBytes/16000)*32
}

// guessTokens is for a text.
func guessTokens(bytes int) int64 { return int64(bytes+3) / 4 }

// message adds a message. Instructions that follow the assistant's last words
// are what it is to answer, the question, and become the user's.
func (t *conversation) message(param string, m *chatMessage, question bool) error {
	switch m.Role {
	case "system", "developer":
		parts, err := t.parts(param+".content", m)
		if question {
			t.add("user", parts)
		} else {
			t.instruction = append(t.instruction, parts...)
		}
		return err
	case "user":
		parts, err := t.parts(param+".content", m)
		t.add("user", parts)
		return err
	case "assistant":
		return t.assistant(param, m)
	case "tool":
		if m.ToolCallID == "" {
			return fault.Missing(param+".tool_call_id", "%s.tool_call_id is required in a tool message", param)
		}
		name, ok := t.callNames[m.ToolCallID]
		if !ok {
			return fault.Invalid(param+".tool_call_id", "%s.tool_call_id %.80q is not a call of an assistant's message before it", param, m.ToolCallID)
		}
		return t.result(param, m, name)
	case "function": // the form before tools
		if m.Name == "" {
			return fault.Missing(param+".name", "%s.name is required in a function message", param)
		}
		return t.result(param, m, m.Name)
	case "":
		return fault.Missing(param+".role", "%s.role is required: system, developer, user, assistant or tool", param)
	}
	return fault.Invalid(param+".role", "%s.role must be system, developer, user, assistant or tool", param)
}

// add appends a content. One without parts is left out: Gemini refuses it,
// and it says nothing. What the model said in several messages becomes one, as
// a function call must follow the user or a function's response.
func (t *conversation) add(role string, parts []part) {
	if len(parts) == 0 {
		return
	}
	t.inResults = false
	if n := len(t.contents); n > 0 && role == "model" && t.contents[n-1].Role == role {
		t.contents[n-1].Parts = append(t.contents[n-1].Parts, parts...)
		return
	}
	t.contents = append(t.contents, content{Role: role, Parts: parts})
}

func (t *conversation) assistant(param string, m *chatMessage) error {
	var parts []part
	if m.Content.kind != jsontext.KindInvalid && m.Content.kind != jsontext.KindNull {
		said, err := t.parts(param+".content", m)
		if err != nil {
			return err
		}
		parts = said
	}
	parts = t.appendText(parts, m.Refusal)
	calls := slices.Clip(m.ToolCalls)
	at := func(i int, field string) string { return fmt.Sprintf("%s.tool_calls[%d].%s", param, i, field) }
	if m.FunctionCall != nil { // the form before tools
		calls = append(calls, chatCall{Function: m.FunctionCall})
		at = func(int, string) string { return param + ".function_call.arguments" }
	}
	for i, c := range calls {
		p, err := t.functionCall(c, func(field string) string { return at(i, field) })
		if err != nil {
			return err
		}
		if i == 0 && p.ThoughtSignature == "" && t.model.wantsSignatures() {
			p.ThoughtSignature = foreignSignature // only a step's first call must have one
		}
		parts = append(parts, p)
	}
	if len(parts) > 0 {
		t.lastParam = param
	}
	t.add("model", parts)
	return nil
}

func (t *conversation) functionCall(c chatCall, param func(field string) string) (part, error) {
	if c.Type != "" && c.Type != "function" {
		return part{}, fault.Invalid(param("type"), "%s must be \"function\"", param("type"))
	}
	if c.Function == nil || c.Function.Name == "" {
		return part{}, fault.Missing(param("function.name"), "%s is required", param("function.name"))
	}
	args := jsontext.Value(c.Function.Arguments)
	switch {
	case len(args) == 0:
		args = jsontext.Value("{}")
	case !usable(args) || args.Kind() != jsontext.KindBeginObject:
		at := param("function.arguments")
		return part{}, fault.Invalid(at, "%s must be the text of a JSON object", at)
	}
	if c.ID != "" {
		t.callNames[c.ID] = c.Function.Name
	}
	t.textBytes += len(args)
	var e extra
	if len(c.Extra) > 0 {
		_ = json.Unmarshal(c.Extra, &e) // of another shape it is not Google's
	}
	return part{
		FunctionCall:     &functionCall{ID: c.ID, Name: c.Function.Name, Args: args},
		ThoughtSignature: e.Google.ThoughtSignature,
	}, nil
}

// result adds what a function returned. The results of one step belong into
// one content.
func (t *conversation) result(param string, m *chatMessage, name string) error {
	parts, err := t.parts(param+".content", m)
	if err != nil {
		return err
	}
	var text string
	for _, p := range parts {
		text += p.Text
	}
	answer := part{FunctionResponse: &functionResponse{ID: m.ToolCallID, Name: name, Response: resultObject(text)}}
	if t.inResults {
		last := &t.contents[len(t.contents)-1]
		last.Parts = append(last.Parts, answer)
		return nil
	}
	t.add("user", []part{answer})
	t.inResults = true
	return nil
}

// resultObject makes a JSON object of a result: itself if it is one, else an
// object with what Gemini takes for the output.
func resultObject(text string) jsontext.Value {
	v := jsontext.Value(text)
	if !usable(v) || !exact(v) {
		v, _ = jsontext.AppendQuote(nil, text)
	} else if v.Kind() == jsontext.KindBeginObject {
		return v
	}
	return append(append(jsontext.Value(`{"output":`), v...), '}')
}

// exact reports whether the numbers in a value stay as they are written where
// every number is a float64, as in Gemini's objects: an id of 19 digits would be
// another, and 1.10 would be 1.1.
func exact(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return true // the end: it is valid
		}
		if t.Kind() == jsontext.KindNumber {
			if f, err := t.Float(); err != nil || strconv.FormatFloat(f, 'f', -1, 64) != t.String() {
				return false
			}
		}
	}
}

// maxDepth of JSON inside strings, which the check of the body cannot see; it
// is the same as the body's.
const maxDepth = 128

func usable(v jsontext.Value) bool {
	return jsonbody.CheckDepth(v, maxDepth) == nil && v.IsValid()
}
