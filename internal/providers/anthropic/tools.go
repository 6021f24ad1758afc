package anthropic

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
)

// tool is one that the caller offers. OpenAI's "strict" is ignored, as
// Anthropic's own OpenAI endpoint does: its grammars have limits, on optional
// parameters for one, that would refuse tools which OpenAI takes.
type tool struct {
	Type         string         `json:"type"`
	Function     *function      `json:"function"`
	CacheControl jsontext.Value `json:"cache_control"`
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

type toolOffer struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitzero"`
	InputSchema  jsontext.Value `json:"input_schema"`
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
}

type choice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitzero"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitzero"`
}

const noParameters = `{"type":"object","properties":{}}`

func (b *builder) tools() error {
	for i := range b.in.Tools {
		offer, err := b.in.Tools[i].offer("tools[" + strconv.Itoa(i) + "]")
		if err != nil {
			return err
		}
		b.out.Tools = append(b.out.Tools, offer)
	}
	wanted, err := b.readChoice()
	if err != nil {
		return err
	}
	if len(b.out.Tools) == 0 {
		return b.withoutTools(wanted)
	}
	if wanted.Type == "tool" && b.offerIndex(wanted.Name) < 0 {
		return fault.Invalid("tool_choice.function.name", "tool_choice.function.name %.80q is not one of the tools", wanted.Name)
	}
	if !b.model.forcedTools() {
		wanted = b.ask(wanted)
	}
	b.mode = wanted.Type
	wanted.DisableParallel = wanted.Type != "none" && b.in.ParallelToolCalls != nil && !*b.in.ParallelToolCalls
	if wanted != (choice{Type: "auto"}) { // the default
		b.out.ToolChoice = &wanted
	}
	return nil
}

// withoutTools: none are offered. A conversation that has used some needs
// them defined nevertheless, and OpenAI's models call none of them then.
func (b *builder) withoutTools(wanted choice) error {
	if wanted.Type == "any" || wanted.Type == "tool" {
		return fault.Invalid("tool_choice", "tool_choice needs tools")
	}
	b.mode = "none"
	if len(b.callNames) == 0 {
		return nil
	}
	for _, name := range b.callNames {
		b.out.Tools = append(b.out.Tools, toolOffer{Name: name, InputSchema: jsontext.Value(noParameters)})
	}
	b.out.ToolChoice = &choice{Type: "none"}
	return nil
}

// ask puts into words what the model does not let itself be forced to.
func (b *builder) ask(wanted choice) choice {
	switch wanted.Type {
	case "any":
		b.instruct("Call at least one of the tools now. Do not answer with text alone.")
	case "tool":
		b.out.Tools = []toolOffer{b.out.Tools[b.offerIndex(wanted.Name)]}
		b.instruct("Call the tool `" + wanted.Name + "` now. Do not answer in any other way.")
	default:
		return wanted
	}
	return choice{Type: "auto"}
}

func (b *builder) offerIndex(name string) int {
	return slices.IndexFunc(b.out.Tools, func(t toolOffer) bool { return t.Name == name })
}

func (t *tool) offer(at string) (toolOffer, error) {
	switch {
	case t.Type == "":
		return toolOffer{}, fault.Missing(at+".type", "%s.type is required: \"function\"", at)
	case t.Type != "function":
		return toolOffer{}, fault.Invalid(at+".type", "%s.type must be \"function\": other tools are not possible with this model's provider", at)
	case t.Function == nil:
		return toolOffer{}, fault.Missing(at+".function", "%s.function is required: an object with name and parameters", at)
	case t.Function.Name == "":
		return toolOffer{}, fault.Missing(at+".function.name", "%s.function.name is required", at)
	}
	schema, ok := objectSchema(t.Function.Parameters)
	if !ok {
		return toolOffer{}, fault.Invalid(at+".function.parameters", "%s.function.parameters must be a JSON Schema of an object", at)
	}
	return toolOffer{
		Name:         t.Function.Name,
		Description:  t.Function.Description,
		InputSchema:  schema,
		CacheControl: readCacheControl(t.CacheControl),
	}, nil
}

// givenChoice is "tool_choice" as an object.
type givenChoice struct {
	Type     string `json:"type"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Allowed struct {
		Mode  string `json:"mode"`
		Tools []tool `json:"tools"`
	} `json:"allowed_tools"`
}

// readChoice reads "tool_choice": a word, or an object that names one tool or
// those that are allowed.
func (b *builder) readChoice() (choice, error) {
	const message = "tool_choice must be auto, none, required or an object that names a function"
	invalid := fault.Invalid("tool_choice", message)
	switch b.in.ToolChoice.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return choice{Type: "auto"}, nil
	case jsontext.KindString:
		var word string
		if json.Unmarshal(b.in.ToolChoice, &word) != nil {
			return choice{}, invalid
		}
		return readMode(word, "tool_choice", message)
	}
	var object givenChoice
	if json.Unmarshal(b.in.ToolChoice, &object) != nil {
		return choice{}, invalid
	}
	switch {
	case object.Type == "function" && object.Function.Name != "":
		return choice{Type: "tool", Name: object.Function.Name}, nil
	case object.Type == "allowed_tools":
		b.out.Tools = slices.DeleteFunc(b.out.Tools, func(offer toolOffer) bool {
			return !slices.ContainsFunc(object.Allowed.Tools, func(t tool) bool { return t.Function != nil && t.Function.Name == offer.Name })
		})
		const param = "tool_choice.allowed_tools.mode"
		return readMode(object.Allowed.Mode, param, param+" must be auto or required")
	}
	return choice{}, invalid
}

func readMode(word, param, message string) (choice, error) {
	switch word {
	case "auto":
		return choice{Type: "auto"}, nil
	case "required":
		return choice{Type: "any"}, nil
	case "none":
		return choice{Type: "none"}, nil
	}
	return choice{}, fault.Invalid(param, "%s", message)
}
