package gemini

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
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
		b.out.GenerationConfig.ResponseMimeType = "application/json"
		b.out.GenerationConfig.ResponseJSONSchema = cleanSchema(f.JSONSchema.Schema)
	}
	return nil
}

// replaceFormat is for models that reject a JSON format next to functions. If a function must be
// called, the format has no effect and is dropped. If none may be called, the functions are.
// Otherwise the model has to call one of them or the answer tool, whose arguments are the response
// and whose name is returned. JSON without a schema is requested in the system instruction.
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
	parameters, ok := openai.ObjectSchema(schema)
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
		ParametersJSONSchema: cleanSchema(parameters), // a $ref allows no type
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

// cleanSchema translates a JSON Schema to the part of the language that Gemini
// reads. It drops $schema and keywords that Gemini rejects next to a $ref, and
// replaces const by an enum of one value, and definitions by $defs with the
// references to them. Other keywords stay, although some have no effect.
func cleanSchema(schema jsontext.Value) jsontext.Value {
	c := schemaCleaner{renamesDefinitions: !bytes.Contains(schema, []byte(`"$defs"`))}
	out := c.clean(openai.ParseOrdered(schema))
	return out.JSON()
}

type schemaCleaner struct {
	renamesDefinitions bool // not in a schema that has both
}

// clean cleans a schema, which may also be true or false.
func (c schemaCleaner) clean(schema openai.Ordered) openai.Ordered {
	ref := schema.Index("$ref")
	isRef := ref >= 0 && schema.Members[ref].Value.Kind == jsontext.KindString
	var out []openai.Member
	hasEnum := false
	for _, m := range schema.Members {
		isEnum := m.Name == "const" || m.Name == "enum"
		if m.Name == "$schema" || isRef && !allowedNextToRef(m.Name) || isEnum && hasEnum {
			continue
		}
		hasEnum = hasEnum || isEnum
		out = append(out, c.keyword(m))
	}
	schema.Members = out
	return schema
}

func allowedNextToRef(name string) bool {
	return strings.HasPrefix(name, "$") || name == "definitions" || name == "description" || name == "default"
}

func (c schemaCleaner) keyword(m openai.Member) openai.Member {
	switch m.Name {
	case "const":
		return openai.Member{Name: "enum", Value: openai.Ordered{Kind: jsontext.KindBeginArray, Elements: []openai.Ordered{m.Value}}}
	case "$ref":
		if rest, ok := strings.CutPrefix(m.Value.Text(), "#/definitions/"); ok && c.renamesDefinitions {
			m.Value = openai.OrderedString("#/$defs/" + rest)
		}
	case "definitions":
		if c.renamesDefinitions {
			m.Name = "$defs"
		}
		m.Value = m.Value.Map(c.clean)
	case "properties", "patternProperties", "$defs", "dependentSchemas":
		if m.Value.Kind == jsontext.KindBeginObject {
			m.Value = m.Value.Map(c.clean)
		}
	case "items", "prefixItems", "anyOf", "oneOf", "allOf":
		if m.Value.Kind == jsontext.KindBeginArray {
			m.Value = m.Value.Map(c.clean)
		} else {
			m.Value = c.clean(m.Value)
		}
	case "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames":
		m.Value = c.clean(m.Value)
	}
	return m
}
