package bedrock

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

type toolConfig struct {
	Tools  []tool      `json:"tools"`
	Choice *toolChoice `json:"toolChoice,omitzero"`
}

// tool has one of its fields.
type tool struct {
	Spec       *toolSpec   `json:"toolSpec,omitzero"`
	CachePoint *cachePoint `json:"cachePoint,omitzero"`
}

type toolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	InputSchema struct {
		JSON jsontext.Value `json:"json"`
	} `json:"inputSchema"`
}

// toolChoice has one of its fields. Without it, the model decides.
type toolChoice struct {
	Any  *struct{}    `json:"any,omitzero"`
	Tool *namedChoice `json:"tool,omitzero"`
}

type namedChoice struct {
	Name string `json:"name"`
}

const emptySchema = `{"type":"object","properties":{}}`

func newTool(name, description string, schema jsontext.Value) tool {
	t := &toolSpec{Name: name, Description: description}
	if t.InputSchema.JSON = schema; schema == nil {
		t.InputSchema.JSON = jsontext.Value(emptySchema)
	}
	return tool{Spec: t}
}

func (b *builder) setTools() error {
	choice, err := b.in.ReadToolChoice()
	if err != nil {
		return err
	}
	var list []tool
	for i := range b.in.Tools {
		t := &b.in.Tools[i]
		schema, err := t.Schema("tools[" + strconv.Itoa(i) + "]")
		if err != nil {
			return err
		}
		if choice.Allowed != nil && !slices.Contains(choice.Allowed, t.Function.Name) {
			continue
		}
		list = append(list, newTool(t.Function.Name, t.Function.Description, schema))
		if t.CacheControl.Kind() == jsontext.KindBeginObject {
			list = append(list, tool{CachePoint: &cachePoint{"default"}})
		}
	}
	if choice.Mode == "none" || len(list) == 0 {
		return b.setNoTools(list)
	}
	b.out.ToolConfig = &toolConfig{Tools: list}
	switch {
	case choice.Mode != "required":
	case b.model.forcedTools && choice.Function != "":
		b.out.ToolConfig.Choice = &toolChoice{Tool: &namedChoice{choice.Function}}
	case b.model.forcedTools:
		b.out.ToolConfig.Choice = &toolChoice{Any: &struct{}{}}
	case choice.Function != "":
		b.instruct("Call the tool `" + choice.Function + "` now. Do not answer in any other way.")
	default:
		b.instruct("Call at least one of the tools now. Do not answer with text alone.")
	}
	return nil
}

// setNoTools is for a request in which the model may not call tools. If the conversation has used some, Bedrock
// requires their definitions.
func (b *builder) setNoTools(list []tool) error {
	if len(b.usedTools) == 0 {
		return nil
	}
	for _, name := range b.usedTools {
		if !slices.ContainsFunc(list, func(t tool) bool { return t.Spec != nil && t.Spec.Name == name }) {
			list = append(list, newTool(name, "", nil))
		}
	}
	b.out.ToolConfig = &toolConfig{Tools: list}
	b.instruct("Do not call tools. Answer with text.")
	return nil
}

// setFormat makes the model respond in JSON. A model that can be forced to call a tool calls one whose input has the
// schema, and that input becomes the response. Others are asked for it in the system prompt.
func (b *builder) setFormat() error {
	f := b.in.ResponseFormat
	if f == nil || f.Type == "text" {
		return nil
	}
	if err := f.Check(); err != nil {
		return err
	}
	const alone = " and nothing else: no words around it and no code fence."
	if f.Type == "json_object" {
		b.instruct("Answer with a single valid JSON object" + alone)
		return nil
	}
	if err := f.JSONSchema.CheckName(); err != nil {
		return err
	}
	input, ok := openai.ObjectSchema(f.JSONSchema.Schema)
	if !ok {
		const at = "response_format.json_schema.schema"
		return fault.Invalid(at, "%s must describe an object.", at)
	}
	var choice *toolChoice
	if b.out.ToolConfig != nil {
		choice = b.out.ToolConfig.Choice
	}
	switch {
	case choice != nil && choice.Tool != nil: // a tool that the client names takes precedence
	case b.model.forcedTools:
		b.addAnswerTool(f.JSONSchema, input)
	default:
		b.instruct("Answer with a single JSON object that is valid under this JSON Schema" + alone + "\n" + string(input))
	}
	return nil
}

func (b *builder) addAnswerTool(s *openai.JSONSchema, input jsontext.Value) {
	offered := b.out.ToolConfig != nil && len(b.in.Tools) > 0 && b.in.ToolChoice.Text != "none"
	if b.out.ToolConfig == nil {
		b.out.ToolConfig = new(toolConfig)
	}
	c := b.out.ToolConfig
	name := s.Name
	for slices.ContainsFunc(c.Tools, func(t tool) bool { return t.Spec != nil && t.Spec.Name == name }) {
		name += "_answer"
	}
	c.Tools = append(c.Tools, newTool(name, strings.TrimSpace(s.Description+"\n\nGives the final answer: what it is called with goes to the user."), input))
	b.call.answerTool = name
	if c.Choice = (&toolChoice{Any: &struct{}{}}); !offered {
		c.Choice = &toolChoice{Tool: &namedChoice{name}}
	}
}
