package anthropic

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// toolDefinition is a tool of the Messages API. OpenAI's "strict" is ignored, as
// Anthropic's own OpenAI endpoint does: its grammars have limits, for example on
// optional parameters, and would reject tools that OpenAI accepts.
type toolDefinition struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitzero"`
	InputSchema  jsontext.Value `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

type toolChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitzero"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitzero"`
}

const emptySchema = `{"type":"object","properties":{}}`

func (b *builder) setTools() error {
	for i := range b.in.Tools {
		definition, err := translateTool(&b.in.Tools[i], "tools["+strconv.Itoa(i)+"]")
		if err != nil {
			return err
		}
		b.out.Tools = append(b.out.Tools, definition)
	}
	choice, err := b.readToolChoice()
	if err != nil {
		return err
	}
	if len(b.out.Tools) == 0 {
		return b.setNoTools(choice)
	}
	if !b.model.forcedTools() {
		choice = b.requestToolCall(choice)
	}
	b.toolMode = choice.Type
	choice.DisableParallel = choice.Type != "none" && b.in.OneCallAtATime()
	if choice != (toolChoice{Type: "auto"}) { // the default
		b.out.ToolChoice = &choice
	}
	return nil
}

// setNoTools is for a request without tools. If the conversation has used some,
// the API requires their definitions.
func (b *builder) setNoTools(choice toolChoice) error {
	if choice.Type == "any" || choice.Type == "tool" {
		return fault.Invalid("tool_choice", "tool_choice requires tools.")
	}
	b.toolMode = "none"
	if len(b.usedTools) == 0 {
		return nil
	}
	for _, name := range b.usedTools {
		b.out.Tools = append(b.out.Tools, toolDefinition{Name: name, InputSchema: jsontext.Value(emptySchema)})
	}
	b.out.ToolChoice = &toolChoice{Type: "none"}
	return nil
}

// requestToolCall asks in the system prompt for a call that the model can't be forced to make.
func (b *builder) requestToolCall(choice toolChoice) toolChoice {
	switch choice.Type {
	case "any":
		b.instruct("Call at least one of the tools now. Do not answer with text alone.")
	case "tool":
		b.out.Tools = []toolDefinition{b.out.Tools[b.toolIndex(choice.Name)]}
		b.instruct("Call the tool `" + choice.Name + "` now. Do not answer in any other way.")
	default:
		return choice
	}
	return toolChoice{Type: "auto"}
}

func (b *builder) toolIndex(name string) int {
	return slices.IndexFunc(b.out.Tools, func(t toolDefinition) bool { return t.Name == name })
}

func translateTool(t *openai.Tool, at string) (toolDefinition, error) {
	schema, err := t.Schema(at)
	if err != nil {
		return toolDefinition{}, err
	}
	if schema == nil {
		schema = jsontext.Value(emptySchema)
	}
	return toolDefinition{
		Name:         t.Function.Name,
		Description:  t.Function.Description,
		InputSchema:  schema,
		CacheControl: readCacheControl(t.CacheControl),
	}, nil
}

// readToolChoice translates tool_choice and drops tools that it doesn't allow.
func (b *builder) readToolChoice() (toolChoice, error) {
	choice, err := b.in.ReadToolChoice()
	if err != nil {
		return toolChoice{}, err
	}
	if choice.Allowed != nil {
		b.out.Tools = slices.DeleteFunc(b.out.Tools, func(t toolDefinition) bool { return !slices.Contains(choice.Allowed, t.Name) })
	}
	switch {
	case choice.Function != "":
		return toolChoice{Type: "tool", Name: choice.Function}, nil
	case choice.Mode == "required":
		return toolChoice{Type: "any"}, nil
	}
	return toolChoice{Type: choice.Mode}, nil
}
