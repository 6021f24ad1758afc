package anthropic

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

type format struct {
	Type       string        `json:"type"`
	JSONSchema *formatSchema `json:"json_schema"`
}

type formatSchema struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Schema      jsontext.Value `json:"schema"`
}

// format makes the answer JSON. Anthropic's structured output is what OpenAI's
// json_schema is, a grammar that the answer cannot leave, so it is used where
// the model has it. It cannot express objects with open properties or schemas
// that contain themselves, and older models have none of it: there the model
// is made to call a tool whose input has the schema, and that input becomes
// the content. json_object has no counterpart and is asked for in words.
func (b *builder) format() error {
	f := b.in.ResponseFormat
	if f == nil {
		return nil
	}
	switch f.Type {
	case "text":
		return nil
	case "json_object":
		b.instruct("Answer with a single valid JSON object and nothing else: no words around it and no code fence.")
		return nil
	case "json_schema":
	case "":
		return fault.Missing("response_format.type", "response_format.type is required: text, json_object or json_schema")
	default:
		return fault.Invalid("response_format.type", "response_format.type must be text, json_object or json_schema")
	}
	const param = "response_format.json_schema"
	switch {
	case f.JSONSchema == nil:
		return fault.Missing(param, "%s is required when response_format.type is json_schema", param)
	case f.JSONSchema.Name == "":
		return fault.Missing(param+".name", "%s.name is required", param)
	case !isName(f.JSONSchema.Name):
		return fault.Invalid(param+".name", "%s.name must be 1 to 64 letters, digits, underscores or dashes", param)
	}
	schema := f.JSONSchema.Schema
	switch schema.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return fault.Missing(param+".schema", "%s.schema is required: a JSON Schema", param)
	case jsontext.KindBeginObject:
	default:
		return fault.Invalid(param+".schema", "%s.schema must be an object", param)
	}
	if b.model.structured() && (isClosed(schema) || !b.model.forcedTools()) {
		b.outputConfig().Format = &outputFormat{Type: "json_schema", Schema: grammar(schema)}
		return nil
	}
	input, ok := objectSchema(schema)
	if !ok {
		return fault.Invalid(param+".schema", "%s.schema must describe an object", param)
	}
	b.addAnswerTool(f.JSONSchema, input)
	return nil
}

// addAnswerTool offers the tool whose input is the answer and has it called,
// or one of the caller's. A tool that the caller names goes before the format.
func (b *builder) addAnswerTool(s *formatSchema, input jsontext.Value) {
	if b.mode == "tool" {
		return
	}
	name := s.Name
	for b.offerIndex(name) >= 0 {
		name += "_answer"
	}
	b.asked.answerTool = name
	b.out.Tools = append(b.out.Tools, toolOffer{
		Name:        name,
		Description: strings.TrimSpace(s.Description + "\n\nGives the final answer: what it is called with goes to the user."),
		InputSchema: input,
	})
	if b.mode == "none" {
		b.out.ToolChoice = &choice{Type: "tool", Name: name, DisableParallel: true}
		return
	}
	disable := b.out.ToolChoice != nil && b.out.ToolChoice.DisableParallel
	b.out.ToolChoice = &choice{Type: "any", DisableParallel: disable}
}

func isName(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && toolID(s) == s
}
