package gemini

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type toolSet struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

// functionDeclaration has its parameters as JSON Schema. The older field
// parameters takes a dialect of OpenAPI and rejects everything else.
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

func (b *builder) setTools() error {
	if len(b.in.Tools) == 0 {
		return nil
	}
	declarations := make([]functionDeclaration, 0, len(b.in.Tools))
	for i := range b.in.Tools {
		d, err := declare(&b.in.Tools[i], fmt.Sprintf("tools[%d]", i))
		if err != nil {
			return err
		}
		declarations = append(declarations, d)
	}
	b.out.Tools = []toolSet{{FunctionDeclarations: declarations}}
	return nil
}

func declare(t *openai.Tool, at string) (functionDeclaration, error) {
	if t.Type == "" { // accepted for clients that use only Gemini
		t.Type = "function"
	}
	schema, err := t.Schema(at)
	if err != nil {
		return functionDeclaration{}, err
	}
	if schema != nil {
		schema = cleanSchema(schema)
	}
	return functionDeclaration{t.Function.Name, t.Function.Description, schema}, nil
}

func (b *builder) setToolConfig() error {
	choice, err := b.in.ReadToolChoice()
	if err != nil || b.in.ToolChoice.IsNull() {
		return err
	}
	var config functionCallingConfig
	switch {
	case choice.Function != "":
		config = functionCallingConfig{Mode: "ANY", AllowedFunctionNames: []string{choice.Function}}
	case choice.Mode == "auto" && choice.Allowed != nil:
		config = functionCallingConfig{Mode: "VALIDATED", AllowedFunctionNames: choice.Allowed} // AUTO with names
	case choice.Mode == "required":
		config = functionCallingConfig{Mode: "ANY", AllowedFunctionNames: choice.Allowed}
	case choice.Mode == "none":
		config.Mode = "NONE"
	default:
		config.Mode = "AUTO"
	}
	if i := slices.IndexFunc(choice.Allowed, func(name string) bool { return b.in.ToolIndex(name) < 0 }); i >= 0 {
		return fault.Invalid("tool_choice", "tool_choice names %.80q, which is not one of the tools.", choice.Allowed[i])
	}
	if len(b.in.Tools) > 0 {
		b.out.ToolConfig = &toolConfig{config}
	}
	return nil
}
