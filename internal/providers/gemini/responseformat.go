package gemini

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

const schemaParam = "response_format.json_schema.schema"

func (b *builder) setFormat() error {
	f := b.in.ResponseFormat
	if f == nil {
		return nil
	}
	if err := f.Check(); err != nil {
		return err
	}
	switch f.Type {
	case "json_object":
		b.out.GenerationConfig.ResponseMimeType = "application/json"
	case "json_schema":
		schema, err := cleanSchema(f.JSONSchema.Schema)
		if err != nil {
			return fault.Invalid(schemaParam, "%s is not a valid JSON Schema.", schemaParam).Because(err)
		}
		b.out.GenerationConfig.ResponseMimeType, b.out.GenerationConfig.ResponseJSONSchema = "application/json", schema
	}
	return nil
}

// replaceFormat is for models that reject a JSON format next to functions. If a
// function must be called, the format has no effect and is dropped. If none may
// be called, the functions are. Otherwise the model has to call one of them or
// the answer tool, whose arguments are the response and whose name is returned.
// JSON without a schema is requested in the system instruction.
func (b *builder) replaceFormat() (answerTool string, err error) {
	r, config := &b.out, &b.out.GenerationConfig
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
		b.instruct("If you call no function, answer with a single valid JSON object and nothing else: no words around it and no code fence.")
		return "", nil
	}
	return r.addAnswerTool(schema)
}

func (r *generateRequest) addAnswerTool(schema jsontext.Value) (string, error) {
	parameters, ok := objectSchema(schema)
	if !ok {
		return "", fault.Invalid(schemaParam, "%s must describe an object if there are tools.", schemaParam)
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

// objectSchema returns the schema with the type object. It isn't ok if the schema
// has another type.
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
	case top.Type != nil || top.Ref != nil: // nothing may be next to a reference
		return schema, true
	}
	out := jsontext.Value(`{"type":"object"`)
	if string(schema) != "{}" {
		out = append(out, ',')
	}
	return append(out, schema[1:]...), true
}
