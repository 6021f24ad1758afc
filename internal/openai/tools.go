package openai

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// Tool is a function that the model may call.
type Tool struct {
	Type         string         `json:"type"`
	Function     *Function      `json:"function"`
	CacheControl jsontext.Value `json:"cache_control,omitzero"` // Anthropic's, which many clients send
	Extra        jsontext.Value `json:",embed"`
}

// Function describes a function. Parameters is a JSON Schema.
type Function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Parameters  jsontext.Value `json:"parameters,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// Check checks that the tool at a path is a function with a name.
func (t *Tool) Check(at string) error {
	switch {
	case t.Type == "":
		return fault.Missing(at+".type", "%s.type is required: \"function\".", at)
	case t.Type != "function":
		return fault.Invalid(at+".type", "%s.type must be \"function\". This model does not support other tools.", at)
	case t.Function == nil:
		return fault.Missing(at+".function", "%s.function is required: an object with name and parameters.", at)
	case t.Function.Name == "":
		return fault.Missing(at+".function.name", "%s.function.name is required.", at)
	}
	return nil
}

// Schema checks the tool at a path and returns its parameters as the schema of an object, or nil.
func (t *Tool) Schema(at string) (jsontext.Value, error) {
	if err := t.Check(at); err != nil || !isSet(t.Function.Parameters) {
		return nil, err
	}
	schema, ok := ObjectSchema(t.Function.Parameters)
	if !ok {
		at += ".function.parameters"
		return nil, fault.Invalid(at, "%s must be a JSON Schema of an object.", at)
	}
	return schema, nil
}

// ObjectSchema returns a schema with the type object. It isn't ok if the schema has another type.
func ObjectSchema(v jsontext.Value) (_ jsontext.Value, ok bool) {
	if v.Kind() != jsontext.KindBeginObject {
		return nil, false
	}
	schema := ParseOrdered(v)
	at := schema.Index("type")
	if at < 0 {
		schema.Members = slices.Insert(schema.Members, 0, Member{Name: "type", Value: OrderedString("object")})
		return schema.JSON(), true
	}
	of := &schema.Members[at].Value
	return v, of.Kind != jsontext.KindString || of.Text() == "object"
}

// ToolIndex returns the index of the tool with a name, or -1.
func (r *ChatRequest) ToolIndex(name string) int {
	return slices.IndexFunc(r.Tools, func(t Tool) bool { return t.Function != nil && t.Function.Name == name })
}

// NameRule describes the names that ValidName accepts.
const NameRule = "1 to 64 letters, digits, underscores or dashes"

// ValidName reports whether OpenAI accepts the name of a function or a schema.
func ValidName(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	})
}

// ChoiceObject is tool_choice as an object: one function or the allowed tools.
type ChoiceObject struct {
	Type         string        `json:"type"`
	Function     *Function     `json:"function,omitzero"`
	AllowedTools *AllowedTools `json:"allowed_tools,omitzero"`
}

// AllowedTools restricts the model to some of the tools.
type AllowedTools struct {
	Mode  string `json:"mode"`
	Tools []Tool `json:"tools"`
}

// ToolChoice is what a request says about calling tools.
type ToolChoice struct {
	Mode     string   // auto, none or required
	Function string   // the only function that may be called, with the mode required
	Allowed  []string // the functions that may be called; nil for all
}

// ReadToolChoice returns the tool choice, which is auto by default.
func (r *ChatRequest) ReadToolChoice() (ToolChoice, error) {
	c, err := r.toolChoice()
	switch {
	case err != nil:
		return c, err
	case c.Function != "" && r.ToolIndex(c.Function) < 0:
		return c, fault.Invalid("tool_choice.function.name", "tool_choice.function.name %.80q is not one of the tools.", c.Function)
	case c.Mode == "required" && len(r.Tools) == 0:
		return c, fault.Invalid("tool_choice", "tool_choice requires tools.")
	}
	return c, nil
}

func (r *ChatRequest) toolChoice() (ToolChoice, error) {
	choice, object := &r.ToolChoice, &r.ToolChoice.Value
	switch {
	case choice.IsNull():
		return ToolChoice{Mode: "auto"}, nil
	case slices.Contains([]string{"auto", "none", "required"}, choice.Text):
		return ToolChoice{Mode: choice.Text}, nil
	case object.Type == "function" && object.Function != nil && object.Function.Name != "":
		return ToolChoice{Mode: "required", Function: object.Function.Name}, nil
	case object.Type == "allowed_tools" && object.AllowedTools != nil:
		return object.AllowedTools.toolChoice()
	}
	return ToolChoice{}, fault.Invalid("tool_choice", `tool_choice must be "auto", "none", "required", or an object with a function or allowed_tools.`)
}

func (a *AllowedTools) toolChoice() (ToolChoice, error) {
	const at = "tool_choice.allowed_tools"
	if a.Mode != "auto" && a.Mode != "required" {
		return ToolChoice{}, fault.Invalid(at+".mode", "%s.mode must be \"auto\" or \"required\".", at)
	}
	c := ToolChoice{Mode: a.Mode, Allowed: []string{}}
	for i := range a.Tools {
		if a.Tools[i].Function == nil {
			param := at + ".tools[" + strconv.Itoa(i) + "].function"
			return c, fault.Missing(param, "%s is required: an object with name.", param)
		}
		c.Allowed = append(c.Allowed, a.Tools[i].Function.Name)
	}
	if len(c.Allowed) == 0 {
		return c, fault.Invalid("tool_choice", "%s.tools must name at least one of the tools.", at)
	}
	return c, nil
}

// ResponseFormat is the format of the model's response.
type ResponseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *JSONSchema `json:"json_schema,omitzero"`
}

// JSONSchema is a named JSON Schema.
type JSONSchema struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitzero"`
	Schema      jsontext.Value `json:"schema,omitzero"`
	Strict      *bool          `json:"strict,omitzero"`
}

// Check checks the type, and that json_schema has a schema. The name has a
// check of its own: not every provider needs one.
func (f *ResponseFormat) Check() error {
	const types, at = "text, json_object or json_schema", "response_format.json_schema"
	switch f.Type {
	case "text", "json_object":
		return nil
	case "json_schema":
	case "":
		return fault.Missing("response_format.type", "response_format.type is required: %s.", types)
	default:
		return fault.Invalid("response_format.type", "response_format.type must be %s.", types)
	}
	switch {
	case f.JSONSchema == nil:
		return fault.Missing(at, "%s is required if response_format.type is json_schema.", at)
	case !isSet(f.JSONSchema.Schema):
		return fault.Missing(at+".schema", "%s.schema is required: a JSON Schema.", at)
	case f.JSONSchema.Schema.Kind() != jsontext.KindBeginObject:
		return fault.Invalid(at+".schema", "%s.schema must be an object: a JSON Schema.", at)
	}
	return nil
}

// CheckName checks the name of the schema.
func (s *JSONSchema) CheckName() error {
	const at = "response_format.json_schema.name"
	switch {
	case s.Name == "":
		return fault.Missing(at, "%s is required.", at)
	case !ValidName(s.Name):
		return fault.Invalid(at, "%s must be %s.", at, NameRule)
	}
	return nil
}
