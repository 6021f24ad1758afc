package openai

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// Message is a message of a conversation.
type Message struct {
	Role         string         `json:"role"`
	Content      Content        `json:"content"`
	Name         string         `json:"name,omitzero"`
	ToolCalls    []ToolCall     `json:"tool_calls,omitzero"`
	ToolCallID   string         `json:"tool_call_id,omitzero"`
	Refusal      string         `json:"refusal,omitzero"`
	FunctionCall *FunctionCall  `json:"function_call,omitzero"` // the predecessor of tool_calls
	Audio        jsontext.Value `json:"audio,omitzero"`
}

// Content is the content of a message: a string or an array of parts.
type Content = StringOr[[]Part]

// TextContent returns content that is a string.
func TextContent(text string) Content {
	return Content{Kind: jsontext.KindString, Text: text}
}

// PartsContent returns content that is an array of parts.
func PartsContent(parts []Part) Content {
	return Content{Kind: jsontext.KindBeginArray, Value: parts}
}

// Part is a part of a message's content. Which field is set depends on the type.
type Part struct {
	Type         string         `json:"type"`
	Text         *string        `json:"text,omitzero"`
	Refusal      *string        `json:"refusal,omitzero"`
	ImageURL     *ImageURL      `json:"image_url,omitzero"`
	File         *File          `json:"file,omitzero"`
	InputAudio   *InputAudio    `json:"input_audio,omitzero"`
	CacheControl jsontext.Value `json:"cache_control,omitzero"` // Anthropic's, which many clients send
	Extra        jsontext.Value `json:",embed"`
}

// TextPart returns a part that is text.
func TextPart(text string) Part { return Part{Type: "text", Text: &text} }

// ImageURL is an image at an https URL or inside a data URL.
type ImageURL struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitzero"`
}

// File is a document, usually inside a data URL.
type File struct {
	ID   string `json:"file_id,omitzero"`
	Data string `json:"file_data,omitzero"`
	Name string `json:"filename,omitzero"`
}

// InputAudio is audio in base64.
type InputAudio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

// ToolCall is a tool call of the assistant. Index is set only in a stream.
type ToolCall struct {
	Index    *int           `json:"index,omitzero"`
	ID       string         `json:"id,omitzero"`
	Type     string         `json:"type,omitzero"`
	Function *FunctionCall  `json:"function"`
	Extra    jsontext.Value `json:"extra_content,omitzero"` // Google's
}

// FunctionCall names a function and has its arguments: JSON as text.
type FunctionCall struct {
	Name      string `json:"name,omitzero"`
	Arguments string `json:"arguments"`
}

const roles = "system, developer, user, assistant or tool"

// CheckMessages checks that there are messages, that each has a known role, and that tool messages
// say which call they answer. Content and tool calls have checks of their own.
func (r *ChatRequest) CheckMessages() error {
	if r.Messages == nil {
		return fault.Missing("messages", "messages is required: an array of messages.")
	}
	if len(r.Messages) == 0 {
		return fault.Invalid("messages", "messages must have at least one message.")
	}
	for i := range r.Messages {
		at := "messages[" + strconv.Itoa(i) + "]"
		switch m := &r.Messages[i]; {
		case m.Role == "":
			return fault.Missing(at+".role", "%s.role is required: %s.", at, roles)
		case !slices.Contains([]string{"system", "developer", "user", "assistant", "tool", "function"}, m.Role):
			return fault.Invalid(at+".role", "%s.role must be %s.", at, roles)
		case m.Role == "tool" && m.ToolCallID == "":
			return fault.Missing(at+".tool_call_id", "%s.tool_call_id is required in a tool message.", at)
		case m.Role == "function" && m.Name == "":
			return fault.Missing(at+".name", "%s.name is required in a function message.", at)
		}
	}
	return nil
}

// IsInstruction reports whether the message tells the model how to behave.
func (m *Message) IsInstruction() bool { return m.Role == "system" || m.Role == "developer" }

// TrailingInstructions returns the index of the first of the instructions that
// end the conversation right after a message of the assistant. They are what
// the model shall respond to. Without any it returns len(messages).
func TrailingInstructions(messages []Message) int {
	i := len(messages)
	for i > 0 && messages[i-1].IsInstruction() {
		i--
	}
	if i > 0 && messages[i-1].Role == "assistant" {
		return i
	}
	return len(messages)
}

// EachPart checks the content of the message at a path, and calls read for each part with its path.
// A string is a text part. types are the types of parts that the model accepts from users.
func (m *Message) EachPart(at string, types []string, read func(p *Part, at string) error) error {
	c := &m.Content
	switch {
	case c.IsNull():
		return fault.Missing(at, "%s is required: a string or an array of parts. Only an assistant message with tool_calls may omit it.", at)
	case !c.valid():
		return fault.Invalid(at, "%s must be a string or an array of parts.", at)
	case c.Kind == jsontext.KindString:
		return read(new(TextPart(c.Text)), at)
	}
	for i := range c.Value {
		p, here := &c.Value[i], at+"["+strconv.Itoa(i)+"]"
		if err := p.check(here, m.Role, types); err != nil {
			return err
		}
		if err := read(p, here); err != nil {
			return err
		}
	}
	return nil
}

// PlainText returns the text or the refusal of a part.
func (p *Part) PlainText() string {
	switch {
	case p.Text != nil:
		return *p.Text
	case p.Refusal != nil:
		return *p.Refusal
	}
	return ""
}

// check checks that the part at a path has the field that its type requires, and that a message of
// the role may have it.
func (p *Part) check(at, role string, types []string) error {
	allowed := "text"
	switch {
	case role == "user":
		allowed = joinOr(types)
	case role == "assistant":
		types = []string{"text", "refusal"}
	default:
		types = []string{"text"}
	}
	switch {
	case p.Type == "":
		return fault.Missing(at+".type", "%s.type is required: %s.", at, allowed)
	case slices.Contains(types, p.Type):
	case role == "user":
		return fault.Invalid(at+".type", "%s.type must be %s for this model, not %.40q.", at, allowed, p.Type)
	default:
		return fault.Invalid(at+".type", "%s.type must be text. Other parts belong in a user message.", at)
	}
	var missing, what string
	switch {
	case p.Type == "text" && p.Text == nil:
		missing, what = "text", "a string"
	case p.Type == "refusal" && p.Refusal == nil:
		missing, what = "refusal", "a string"
	case p.Type == "image_url" && p.ImageURL == nil:
		missing, what = "image_url", "an object with url"
	case p.Type == "image_url" && p.ImageURL.URL == "":
		missing, what = "image_url.url", "an https or data URL"
	case p.Type == "input_audio" && p.InputAudio == nil:
		missing, what = "input_audio", "an object with data and format"
	case p.Type == "input_audio" && p.InputAudio.Data == "":
		missing, what = "input_audio.data", "base64 audio"
	case p.Type == "file" && p.File == nil:
		missing, what = "file", "an object with file_data"
	default:
		return nil
	}
	return fault.Missing(at+"."+missing, "%s.%s is required: %s.", at, missing, what)
}

func joinOr(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " or " + words[n-1]
	}
	return strings.Join(words, "")
}

// Content returns the media type and the base64 of the file at a path. Files
// that are stored at OpenAI don't exist at other providers.
func (f *File) Content(at string) (mediaType, data string, err error) {
	switch {
	case f.Data == "" && f.ID != "":
		return "", "", fault.Invalid(at+".file_id", "%s.file_id is not supported by this model's provider. Send the file itself in file_data.", at)
	case f.Data == "":
		return "", "", fault.Missing(at+".file_data", "%s.file_data is required: a data URL in base64.", at)
	}
	mediaType, data, ok := ParseDataURL(f.Data)
	if !ok {
		return "", "", fault.Invalid(at+".file_data", "%s.file_data must be a data URL in base64.", at)
	}
	return mediaType, data, nil
}

// ParseDataURL splits a URL such as data:image/png;base64,iVBORw0… into its
// media type in lower case and its data. It doesn't check the base64.
func ParseDataURL(url string) (mediaType, data string, ok bool) {
	if !HasScheme(url, "data") {
		return "", "", false
	}
	head, data, _ := strings.Cut(url[len("data:"):], ",")
	mediaType, parameters, _ := strings.Cut(strings.ToLower(head), ";")
	inBase64 := parameters == "base64" || strings.HasSuffix(parameters, ";base64")
	return strings.TrimSpace(mediaType), data, inBase64 && data != ""
}

// HasScheme reports whether a URL has the scheme, in any case.
func HasScheme(url, scheme string) bool {
	return len(url) > len(scheme) && url[len(scheme)] == ':' && strings.EqualFold(url[:len(scheme)], scheme)
}

// Check checks that the tool call at a path calls a function. IDs are left to
// the caller: not every provider needs them.
func (c *ToolCall) Check(at string) error {
	switch {
	case c.Type != "" && c.Type != "function":
		return fault.Invalid(at+".type", "%s.type must be \"function\".", at)
	case c.Function == nil:
		return fault.Missing(at+".function", "%s.function is required: an object with name and arguments.", at)
	case c.Function.Name == "":
		return fault.Missing(at+".function.name", "%s.function.name is required.", at)
	}
	return nil
}

// maxDepth bounds JSON inside strings, which the check of the body can't see.
// It is the limit of the body.
const maxDepth = 128

// Object returns the arguments of the function call at a path as a JSON object.
// Models write nothing for a function without parameters.
func (f *FunctionCall) Object(at string, opts ...jsontext.Options) (jsontext.Value, error) {
	object := jsontext.Value(strings.TrimSpace(f.Arguments))
	if len(object) == 0 {
		return jsontext.Value("{}"), nil
	}
	if jsonbody.CheckDepth(object, maxDepth) != nil || !object.IsValid(opts...) || object.Kind() != jsontext.KindBeginObject {
		return nil, fault.Invalid(at+".arguments", "%s.arguments must be a JSON object as a string.", at)
	}
	return object, nil
}

// PendingCalls are the IDs of tool calls that still need their tool message.
type PendingCalls []string

// Answer removes the call that the tool message at a path answers, and returns its index.
func (p *PendingCalls) Answer(m *Message, at string) (int, error) {
	i := slices.Index(*p, m.ToolCallID)
	if i < 0 {
		return 0, fault.Invalid(at+".tool_call_id", "%s.tool_call_id %.80q does not match a pending call of the assistant message before it.", at, m.ToolCallID)
	}
	*p = slices.Delete(*p, i, i+1)
	return i, nil
}

// Check fails if a call is pending where another message than its tool message begins.
func (p PendingCalls) Check(index int) error {
	if len(p) == 0 {
		return nil
	}
	at := "messages[" + strconv.Itoa(index) + "]"
	return fault.Invalid(at, "%s must be the tool message for the call %.80q. Every tool call needs one, right after the assistant message.", at, p[0])
}
