package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// tool is a tool that the client offers. Chat completions only know functions.
type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`

	// These configure hosted tools; chat completions don't have them.
	AllowedCallers jsontext.Value `json:"allowed_callers"`
	Async          jsontext.Value `json:"async"`
	DeferLoading   jsontext.Value `json:"defer_loading"`
	OutputSchema   jsontext.Value `json:"output_schema"`

	Function jsontext.Value `json:"function"` // the shape of chat completions
	Extra    jsontext.Value `json:",embed"`   // such as a provider's cache_control
}

type chatTool struct {
	Type     string         `json:"type"`
	Function function       `json:"function"`
	Extra    jsontext.Value `json:",embed"`
}

type function struct {
	Name        string         `json:"name"`
	Description *string        `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// translateTools translates the tools and tool_choice. Chat completions reject an empty array of
// tools, and settings of tools without tools.
func (in *request) translateTools(out *chat) error {
	for i := range in.Tools {
		t, err := in.Tools[i].chat("tools[" + strconv.Itoa(i) + "]")
		if err != nil {
			return err
		}
		out.Tools = append(out.Tools, t)
	}
	choice, err := in.ToolChoice.chat()
	if err != nil {
		return err
	}
	if len(out.Tools) > 0 {
		out.ToolChoice, out.ParallelToolCalls = choice, in.ParallelToolCalls
		return nil
	}
	if choice != nil && choice.mode != "auto" && choice.mode != "none" {
		return fault.Invalid("tool_choice", "tool_choice needs tools. Add at least one to tools, or omit tool_choice.")
	}
	return nil
}

func (t *tool) chat(at string) (chatTool, error) {
	switch {
	case t.Type == "":
		return chatTool{}, fault.Missing(at+".type", "%s.type is required: \"function\".", at)
	case t.Type != "function":
		return chatTool{}, fault.Invalid(at+".type", "%s.type must be \"function\": %.40q and other hosted tools are not supported.", at, t.Type)
	case t.Name == "" && isSet(t.Function):
		return chatTool{}, fault.Missing(at+".name", "%s.name is required: put name, description and parameters next to type, not inside function.", at)
	case t.Name == "":
		return chatTool{}, fault.Missing(at+".name", "%s.name is required.", at)
	case isSet(t.Parameters) && t.Parameters.Kind() != jsontext.KindBeginObject:
		return chatTool{}, fault.Invalid(at+".parameters", "%s.parameters must be an object: a JSON Schema.", at)
	}
	f := function{Name: t.Name, Description: t.Description, Strict: t.Strict}
	if isSet(t.Parameters) {
		f.Parameters = t.Parameters
	}
	return chatTool{Type: t.Type, Function: f, Extra: t.Extra}, nil
}

// toolChoice is "tool_choice": a mode, or an object.
type toolChoice struct {
	kind   jsontext.Kind // of the JSON value; 0 if absent
	mode   string
	object choiceObject
}

type choiceObject struct {
	Type  string        `json:"type"`
	Name  string        `json:"name,omitzero"`
	Mode  string        `json:"mode,omitzero"`
	Tools []allowedTool `json:"tools,omitzero"`
}

type allowedTool struct {
	Type string `json:"type"`
	Name string `json:"name,omitzero"`
}

func (c *toolChoice) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*c = toolChoice{kind: in.PeekKind()}
	switch c.kind {
	case jsontext.KindString:
		return json.UnmarshalDecode(in, &c.mode)
	case jsontext.KindBeginObject:
		return json.UnmarshalDecode(in, &c.object)
	}
	return in.SkipValue()
}

// MarshalJSONTo writes it into the response.
func (c toolChoice) MarshalJSONTo(out *jsontext.Encoder) error {
	if c.kind == jsontext.KindBeginObject {
		return json.MarshalEncode(out, c.object)
	}
	if c.mode == "" {
		return out.WriteToken(jsontext.String("auto"))
	}
	return out.WriteToken(jsontext.String(c.mode))
}

// chatChoice is the "tool_choice" of chat completions.
type chatChoice struct {
	mode   string // if it is a string
	object chatChoiceObject
}

type chatChoiceObject struct {
	Type         string       `json:"type"`
	Function     *named       `json:"function,omitzero"`
	AllowedTools *chatAllowed `json:"allowed_tools,omitzero"`
}

type named struct {
	Name string `json:"name"`
}

type chatAllowed struct {
	Mode  string             `json:"mode"`
	Tools []chatChoiceObject `json:"tools"`
}

func (c *chatChoice) MarshalJSONTo(out *jsontext.Encoder) error {
	if c.mode != "" {
		return out.WriteToken(jsontext.String(c.mode))
	}
	return json.MarshalEncode(out, c.object)
}

// chat returns nil if tool_choice is absent.
func (c *toolChoice) chat() (*chatChoice, error) {
	const allowed = "must be none, auto, required, a function or allowed_tools"
	switch c.kind {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, nil
	case jsontext.KindString:
		if !slices.Contains([]string{"none", "auto", "required"}, c.mode) {
			return nil, fault.Invalid("tool_choice", "tool_choice %s.", allowed)
		}
		return &chatChoice{mode: c.mode}, nil
	case jsontext.KindBeginObject:
		return c.object.chat()
	}
	return nil, fault.Invalid("tool_choice", "tool_choice %s.", allowed)
}

func (o *choiceObject) chat() (*chatChoice, error) {
	switch o.Type {
	case "function":
		if o.Name == "" {
			return nil, fault.Missing("tool_choice.name", "tool_choice.name is required: the name of a function in tools.")
		}
		return &chatChoice{object: chatChoiceObject{Type: o.Type, Function: &named{o.Name}}}, nil
	case "allowed_tools":
		allowed, err := o.allowed()
		return &chatChoice{object: chatChoiceObject{Type: o.Type, AllowedTools: allowed}}, err
	case "":
		return nil, fault.Missing("tool_choice.type", "tool_choice.type is required: function or allowed_tools.")
	}
	return nil, fault.Invalid("tool_choice.type", "tool_choice.type must be function or allowed_tools: other tools are not supported.")
}

func (o *choiceObject) allowed() (*chatAllowed, error) {
	if o.Mode != "auto" && o.Mode != "required" {
		return nil, fault.Invalid("tool_choice.mode", "tool_choice.mode must be auto or required.")
	}
	if len(o.Tools) == 0 {
		return nil, fault.Missing("tool_choice.tools", "tool_choice.tools must name at least one function of tools.")
	}
	out := &chatAllowed{Mode: o.Mode}
	for i, t := range o.Tools {
		at := "tool_choice.tools[" + strconv.Itoa(i) + "]"
		if t.Type != "function" {
			return nil, fault.Invalid(at+".type", "%s.type must be \"function\": other tools are not supported.", at)
		}
		if t.Name == "" {
			return nil, fault.Missing(at+".name", "%s.name is required: the name of a function in tools.", at)
		}
		out.Tools = append(out.Tools, chatChoiceObject{Type: t.Type, Function: &named{t.Name}})
	}
	return out, nil
}
