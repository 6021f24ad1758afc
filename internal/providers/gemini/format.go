package gemini

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema *jsonSchema `json:"json_schema"`
}

type jsonSchema struct {
	Schema jsontext.Value `json:"schema"`
}

const schemaParam = "response_format.json_schema.schema"

func (r *chatRequest) format(c *generationConfig) error {
	f := r.ResponseFormat
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text":
		return nil
	case "json_object":
		c.ResponseMimeType = "application/json"
		return nil
	case "json_schema":
		if f.JSONSchema == nil || f.JSONSchema.Schema.Kind() != jsontext.KindBeginObject {
			return fault.Missing(schemaParam, "%s is required: a JSON schema", schemaParam)
		}
		schema, err := cleanSchema(f.JSONSchema.Schema)
		if err != nil {
			return fault.Invalid(schemaParam, "%s cannot be read as a JSON schema", schemaParam).Because(err)
		}
		c.ResponseMimeType, c.ResponseJSONSchema = "application/json", schema
		return nil
	}
	return fault.Invalid("response_format.type", "response_format.type must be text, json_object or json_schema")
}

// formatBesideTools is for models that refuse a JSON format in a request that
// offers functions. Where one has to be called, the format has nothing to
// say, and where none may be, the functions have not. Else the model has to
// call one of them or one more, whose arguments are the answer: its name is
// returned. JSON without a schema is asked for in words.
func (r *generateRequest) formatBesideTools(t *conversation) (answerTool string, err error) {
	config := &r.GenerationConfig
	if len(r.Tools) == 0 || config.ResponseMimeType == "" {
		return "", nil
	}
	mode := ""
	if r.ToolConfig != nil {
		mode = r.ToolConfig.FunctionCallingConfig.Mode
	}
	if mode == "NONE" {
		r.Tools, r.ToolConfig = nil, nil
		return "", nil
	}
	schema := config.ResponseJSONSchema
	config.ResponseMimeType, config.ResponseJSONSchema = "", nil
	switch {
	case mode == "ANY":
		return "", nil
	case schema == nil:
		t.instruct("If you call no function, answer with a single valid JSON object and nothing else: no words around it and no code fence.")
		return "", nil
	}
	return r.addAnswerTool(schema)
}

func (r *generateRequest) addAnswerTool(schema jsontext.Value) (string, error) {
	parameters, ok := objectSchema(schema)
	if !ok {
		return "", fault.Invalid(schemaParam, "%s must describe an object, beside tools", schemaParam)
	}
	list := &r.Tools[0].FunctionDeclarations
	name := "final_answer"
	for slices.ContainsFunc(*list, func(d functionDeclaration) bool { return d.Name == name }) {
		name += "_"
	}
	*list = append(*list, functionDeclaration{
		Name:                 name,
		Description:          "Gives the final answer: what it is called with goes to the user.",
		ParametersJSONSchema: parameters,
	})
	if r.ToolConfig == nil {
		r.ToolConfig = new(toolConfig)
	}
	choice := &r.ToolConfig.FunctionCallingConfig
	choice.Mode = "ANY"
	if len(choice.AllowedFunctionNames) > 0 {
		choice.AllowedFunctionNames = append(choice.AllowedFunctionNames, name)
	}
	return name, nil
}

// objectSchema makes a schema that says that it is an object's. One of
// something else is not ok.
func objectSchema(schema jsontext.Value) (_ jsontext.Value, ok bool) {
	var top struct {
		Type jsontext.Value `json:"type"`
		Ref  jsontext.Value `json:"$ref"`
	}
	if json.Unmarshal(schema, &top) != nil {
		return nil, false
	}
	switch {
	case top.Type.Kind() == jsontext.KindString:
		return schema, string(top.Type) == `"object"`
	case top.Type != nil || top.Ref != nil: // nothing may stand beside a reference
		return schema, true
	}
	out := jsontext.Value(`{"type":"object"`)
	if string(schema) != "{}" {
		out = append(out, ',')
	}
	return append(out, schema[1:]...), true
}
