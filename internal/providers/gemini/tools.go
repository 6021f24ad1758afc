package gemini

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

type chatTool struct {
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

type toolSet struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

// functionDeclaration has its parameters as JSON schema. The older field
// beside it, parameters, takes a dialect of OpenAPI and refuses the rest.
type functionDeclaration struct {
	Name                 string         `json:"name"`
	Description          string         `json:"description,omitempty"`
	ParametersJSONSchema jsontext.Value `json:"parametersJsonSchema,omitzero"`
}

type toolConfig struct {
	FunctionCallingConfig functionCallingConfig `json:"functionCallingConfig"`
}

type functionCallingConfig struct {
	Mode                 string   `json:"mode"`
	AllowedFunctionNames []string `json:"allowedFunctionNames,omitempty"`
}

func (r *chatRequest) tools() ([]toolSet, error) {
	if len(r.Tools) == 0 {
		return nil, nil
	}
	list := make([]functionDeclaration, 0, len(r.Tools))
	for i, t := range r.Tools {
		param := func(field string) string { return fmt.Sprintf("tools[%d].%s", i, field) }
		if t.Type != "" && t.Type != "function" {
			return nil, fault.Invalid(param("type"), "%s must be \"function\"", param("type"))
		}
		if t.Function == nil || t.Function.Name == "" {
			return nil, fault.Missing(param("function.name"), "%s is required", param("function.name"))
		}
		d := functionDeclaration{Name: t.Function.Name, Description: t.Function.Description}
		switch t.Function.Parameters.Kind() {
		case jsontext.KindInvalid, jsontext.KindNull:
		case jsontext.KindBeginObject:
			schema, err := cleanSchema(t.Function.Parameters)
			if err != nil {
				return nil, fault.Invalid(param("function.parameters"), "%s cannot be read as a JSON schema", param("function.parameters")).Because(err)
			}
			var ok bool
			if d.ParametersJSONSchema, ok = objectSchema(schema); !ok {
				return nil, fault.Invalid(param("function.parameters"), "%s must be a JSON schema of an object", param("function.parameters"))
			}
		default:
			return nil, fault.Invalid(param("function.parameters"), "%s must be a JSON schema: an object", param("function.parameters"))
		}
		list = append(list, d)
	}
	return []toolSet{{FunctionDeclarations: list}}, nil
}

// choice is a tool_choice that is an object.
type choice struct {
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`
	Allowed  *struct {
		Mode  string     `json:"mode"`
		Tools []chatTool `json:"tools"`
	} `json:"allowed_tools"`
}

// toolConfig translates tool_choice. Without tools there is nothing to choose.
func (r *chatRequest) toolConfig() (*toolConfig, error) {
	config := functionCallingConfig{}
	switch r.ToolChoice.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, nil
	case jsontext.KindString:
		var word string
		_ = json.Unmarshal(r.ToolChoice, &word) // it is a string
		config.Mode = map[string]string{"auto": "AUTO", "none": "NONE", "required": "ANY"}[word]
	case jsontext.KindBeginObject:
		var c choice
		if err := json.Unmarshal(r.ToolChoice, &c); err != nil {
			return nil, badChoice()
		}
		switch {
		case c.Type == "function" && c.Function != nil:
			config.Mode, config.AllowedFunctionNames = "ANY", []string{c.Function.Name}
		case c.Type == "allowed_tools" && c.Allowed != nil && len(c.Allowed.Tools) > 0:
			// VALIDATED is AUTO with a list of names.
			config.Mode = map[string]string{"auto": "VALIDATED", "required": "ANY"}[c.Allowed.Mode]
			for _, t := range c.Allowed.Tools {
				if t.Function == nil {
					return nil, badChoice()
				}
				config.AllowedFunctionNames = append(config.AllowedFunctionNames, t.Function.Name)
			}
		}
	}
	if config.Mode == "" {
		return nil, badChoice()
	}
	for _, name := range config.AllowedFunctionNames {
		if !slices.ContainsFunc(r.Tools, func(t chatTool) bool { return t.Function != nil && t.Function.Name == name }) {
			return nil, fault.Invalid("tool_choice", "tool_choice names %.80q, which is not among tools", name)
		}
	}
	if len(r.Tools) == 0 {
		if config.Mode == "ANY" {
			return nil, fault.Invalid("tool_choice", "tool_choice asks for a call, and there are no tools")
		}
		return nil, nil
	}
	return &toolConfig{config}, nil
}

func badChoice() error {
	return fault.Invalid("tool_choice", "tool_choice must be auto, none, required, a function or a list of allowed tools")
}
