package simulator

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/providers/simulator/jsonsample"
)

// maxTools is OpenAI's limit.
const maxTools = 128

// toolChoice is "tool_choice" in one form: whether a call is required, may
// happen, or is forbidden, and which tool is meant.
type toolChoice struct {
	mode string // auto, required, none
	name string // the required tool; "" is the first
}

func (r *request) validateTools() error {
	if len(r.Tools) > maxTools {
		return fault.Invalid("tools", "tools must have at most %d tools", maxTools)
	}
	for i, t := range r.Tools {
		param := func(field string) string { return fmt.Sprintf("tools[%d].%s", i, field) }
		switch {
		case t.Type == "":
			return fault.Missing(param("type"), "%s is required: \"function\"", param("type"))
		case t.Type != "function":
			return fault.Invalid(param("type"), "%s must be \"function\": other tools are not simulated", param("type"))
		case t.Function == nil:
			return fault.Missing(param("function"), "%s is required: an object with name and parameters", param("function"))
		case t.Function.Name == "":
			return fault.Missing(param("function.name"), "%s is required", param("function.name"))
		case !isName(t.Function.Name):
			return fault.Invalid(param("function.name"), "%s must be %s", param("function.name"), nameRule)
		case r.toolIndex(t.Function.Name) < i:
			return fault.Invalid(param("function.name"), "%s is the name of an earlier tool too", param("function.name"))
		}
		switch t.Function.Parameters.Kind() {
		case jsontext.KindInvalid, jsontext.KindNull, jsontext.KindBeginObject:
		default:
			return fault.Invalid(param("function.parameters"), "%s must be an object: a JSON Schema", param("function.parameters"))
		}
	}
	return nil
}

// toolIndex finds a tool by name; -1 is none.
func (r *request) toolIndex(name string) int {
	return slices.IndexFunc(r.Tools, func(t tool) bool { return t.Function != nil && t.Function.Name == name })
}

// readToolChoice reads "tool_choice": a mode, one tool, or a mode over some tools.
func (r *request) readToolChoice() error {
	r.choice = toolChoice{mode: "auto"}
	switch r.ToolChoice.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil
	case jsontext.KindString:
		if json.Unmarshal(r.ToolChoice, &r.choice.mode) != nil || !slices.Contains([]string{"none", "auto", "required"}, r.choice.mode) {
			return badToolChoice()
		}
	case jsontext.KindBeginObject:
		if err := r.readToolChoiceObject(); err != nil {
			return err
		}
	default:
		return badToolChoice()
	}
	if r.choice.mode == "required" && len(r.Tools) == 0 {
		return fault.Invalid("tool_choice", "tool_choice needs tools to choose from")
	}
	return nil
}

func badToolChoice() error {
	return fault.Invalid("tool_choice", `tool_choice must be none, auto, required, or an object such as {"type":"function","function":{"name":"…"}}`)
}

// toolChoiceObject is "tool_choice" as an object.
type toolChoiceObject struct {
	Type     string    `json:"type"`
	Function *function `json:"function"`
	Allowed  *struct {
		Mode  string `json:"mode"`
		Tools []tool `json:"tools"`
	} `json:"allowed_tools"`
}

func (r *request) readToolChoiceObject() error {
	var object toolChoiceObject
	if json.Unmarshal(r.ToolChoice, &object) != nil {
		return badToolChoice()
	}
	param := "tool_choice.function.name"
	switch {
	case object.Type == "function" && object.Function != nil:
		r.choice = toolChoice{mode: "required", name: object.Function.Name}
	case object.Type == "allowed_tools" && object.Allowed != nil && len(object.Allowed.Tools) > 0 && object.Allowed.Tools[0].Function != nil:
		param = "tool_choice.allowed_tools.tools[0].function.name"
		r.choice = toolChoice{mode: object.Allowed.Mode, name: object.Allowed.Tools[0].Function.Name}
		if r.choice.mode != "auto" && r.choice.mode != "required" {
			return fault.Invalid("tool_choice.allowed_tools.mode", "tool_choice.allowed_tools.mode must be auto or required")
		}
	default:
		return badToolChoice()
	}
	if r.toolIndex(r.choice.name) < 0 {
		return fault.Invalid(param, "%s %.80q is not the name of a tool in tools", param, r.choice.name)
	}
	return nil
}

// call is one tool call of the answer.
type call struct {
	name      string
	arguments string
	ends      []int // of the arguments' tokens
}

// newCall makes a call with arguments that satisfy the tool's schema.
func (r *request) newCall(name string) (call, error) {
	i := r.toolIndex(name)
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
