package anthropic

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// setFormat makes the model respond in JSON. Anthropic's structured output constrains the response
// to a grammar, like OpenAI's json_schema, and is used if the model has it. It can't express
// objects with open properties or recursive schemas, and older models don't have it. In these cases
// the model has to call a tool whose input has the schema, and that input becomes the response.
// json_object has no counterpart and is requested in the system prompt.
func (b *builder) setFormat() error {
	f := b.in.ResponseFormat
	if f == nil {
		return nil
	}
	if err := f.Check(); err != nil {
		return err
	}
	switch f.Type {
	case "text":
		return nil
	case "json_object":
		b.instruct("Answer with a single valid JSON object and nothing else: no words around it and no code fence.")
		return nil
	}
	if err := f.JSONSchema.CheckName(); err != nil {
		return err
	}
	schema := openai.ParseOrdered(f.JSONSchema.Schema)
	if b.model.structured() && (isClosed(schema) || !b.model.forcedTools()) {
		schema = grammar(schema)
		b.outputConfig().Format = &outputFormat{Type: "json_schema", Schema: schema.JSON()}
		return nil
	}
	input, ok := openai.ObjectSchema(f.JSONSchema.Schema)
	if !ok {
		const at = "response_format.json_schema.schema"
		return fault.Invalid(at, "%s must describe an object.", at)
	}
	b.addAnswerTool(f.JSONSchema, input)
	return nil
}

// addAnswerTool adds the tool whose input is the response, and forces the model to call it or one
// of the client's. A tool that the client names takes precedence over the format.
func (b *builder) addAnswerTool(s *openai.JSONSchema, input jsontext.Value) {
	if b.toolMode == "tool" {
		return
	}
	name := s.Name
	for b.toolIndex(name) >= 0 {
		name += "_answer"
	}
	b.info.answerTool = name
	b.out.Tools = append(b.out.Tools, toolDefinition{
		Name:        name,
		Description: strings.TrimSpace(s.Description + "\n\nGives the final answer: what it is called with goes to the user."),
		InputSchema: input,
	})
	if b.toolMode == "none" {
		b.out.ToolChoice = &toolChoice{Type: "tool", Name: name, DisableParallel: true}
		return
	}
	disable := b.out.ToolChoice != nil && b.out.ToolChoice.DisableParallel
	b.out.ToolChoice = &toolChoice{Type: "any", DisableParallel: disable}
}
