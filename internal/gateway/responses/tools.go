package responses

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
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

// translateTools translates the tools and tool_choice. Chat completions reject an empty array of
// tools, and settings of tools without tools.
func (in *request) translateTools(out *openai.ChatRequest) error {
	for i := range in.Tools {
		t, err := in.Tools[i].chat("tools[" + strconv.Itoa(i) + "]")
		if err != nil {
			return err
		}
		out.Tools = append(out.Tools, t)
	}
	choice, err := in.chatChoice()
	if err != nil {
		return err
	}
	if len(out.Tools) > 0 {
		out.ToolChoice, out.ParallelToolCalls = choice, in.ParallelToolCalls
		return nil
	}
	if !choice.IsZero() && choice.Text != "auto" && choice.Text != "none" {
		return fault.Invalid("tool_choice", "tool_choice needs tools. Add at least one to tools, or omit tool_choice.")
	}
	return nil
}

func (t *tool) chat(at string) (openai.Tool, error) {
	switch {
	case t.Type == "":
		return openai.Tool{}, fault.Missing(at+".type", "%s.type is required: \"function\".", at)
	case t.Type != "function":
		return openai.Tool{}, fault.Invalid(at+".type", "%s.type must be \"function\": %.40q and other hosted tools are not supported.", at, t.Type)
	case t.Name == "" && isSet(t.Function):
		return openai.Tool{}, fault.Missing(at+".name", "%s.name is required: put name, description and parameters next to type, not inside function.", at)
	case t.Name == "":
		return openai.Tool{}, fault.Missing(at+".name", "%s.name is required.", at)
	case isSet(t.Parameters) && t.Parameters.Kind() != jsontext.KindBeginObject:
		return openai.Tool{}, fault.Invalid(at+".parameters", "%s.parameters must be an object: a JSON Schema.", at)
	}
	f := &openai.Function{Name: t.Name, Description: value(t.Description), Strict: t.Strict}
	if isSet(t.Parameters) {
		f.Parameters = t.Parameters
	}
	return openai.Tool{Type: t.Type, Function: f, Extra: t.Extra}, nil
}

type toolChoice = openai.StringOr[choiceObject]

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

// chatChoice translates tool_choice. The result is zero if it is absent.
func (in *request) chatChoice() (out openai.StringOr[openai.ChoiceObject], err error) {
	c := &in.ToolChoice
	switch {
	case c.IsNull():
		return out, nil
	case slices.Contains([]string{"none", "auto", "required"}, c.Text):
		out.Kind, out.Text = c.Kind, c.Text
		return out, nil
	case c.Kind == jsontext.KindBeginObject:
		out.Kind = c.Kind
		out.Value, err = c.Value.chat()
		return out, err
	}
	return out, fault.Invalid("tool_choice", "tool_choice must be none, auto, required, a function or allowed_tools.")
}

func (o *choiceObject) chat() (out openai.ChoiceObject, err error) {
	out.Type = o.Type
	switch o.Type {
	case "function":
		if o.Name == "" {
			return out, fault.Missing("tool_choice.name", "tool_choice.name is required: the name of a function in tools.")
		}
		out.Function = &openai.Function{Name: o.Name}
		return out, nil
	case "allowed_tools":
		out.AllowedTools, err = o.allowed()
		return out, err
	case "":
		return out, fault.Missing("tool_choice.type", "tool_choice.type is required: function or allowed_tools.")
	}
	return out, fault.Invalid("tool_choice.type", "tool_choice.type must be function or allowed_tools: other tools are not supported.")
}

func (o *choiceObject) allowed() (*openai.AllowedTools, error) {
	if o.Mode != "auto" && o.Mode != "required" {
		return nil, fault.Invalid("tool_choice.mode", "tool_choice.mode must be auto or required.")
	}
	if len(o.Tools) == 0 {
		return nil, fault.Missing("tool_choice.tools", "tool_choice.tools must name at least one function of tools.")
	}
	out := &openai.AllowedTools{Mode: o.Mode}
	for i, t := range o.Tools {
		at := "tool_choice.tools[" + strconv.Itoa(i) + "]"
		if t.Type != "function" {
			return nil, fault.Invalid(at+".type", "%s.type must be \"function\": other tools are not supported.", at)
		}
		if t.Name == "" {
			return nil, fault.Missing(at+".name", "%s.name is required: the name of a function in tools.", at)
		}
		out.Tools = append(out.Tools, openai.Tool{Type: t.Type, Function: &openai.Function{Name: t.Name}})
	}
	return out, nil
}
