package responses

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
)

// tool is a tool that the client offers. Chat completions only know functions.
type tool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`
	Format      *grammar       `json:"format"`    // of a custom tool
	Execution   string         `json:"execution"` // of a tool search
	Tools       []tool         `json:"tools"`     // of a namespace

	// These configure hosted tools; chat completions don't have them.
	AllowedCallers jsontext.Value `json:"allowed_callers"`
	Async          jsontext.Value `json:"async"`
	DeferLoading   jsontext.Value `json:"defer_loading"`
	OutputSchema   jsontext.Value `json:"output_schema"`
	Model          jsontext.Value `json:"model"`

	Function jsontext.Value `json:"function"` // the shape of chat completions
	Extra    jsontext.Value `json:",embed"`   // such as a provider's cache_control
}

// grammar is the format of a custom tool's input.
type grammar struct {
	Type       string `json:"type"` // text or grammar
	Syntax     string `json:"syntax"`
	Definition string `json:"definition"`
}

// callKind is the type of the items that are calls of a tool.
type callKind string

const (
	functionCall   callKind = "function_call"
	customCall     callKind = "custom_tool_call"
	toolSearchCall callKind = "tool_search_call"
)

func (k callKind) idPrefix() string {
	switch k {
	case customCall:
		return "ctc"
	case toolSearchCall:
		return "tsc"
	}
	return "fc"
}

// toolRef is a tool as the client knows it.
type toolRef struct {
	kind            callKind
	namespace, name string
}

// toolbox holds the tools of a request as functions of a chat completion.
type toolbox struct {
	functions []openai.Tool
	paths     []string           // of the functions in the request
	refs      map[string]toolRef // by the function's name
	dropped   []string           // types of the hosted tools that the model doesn't get
}

// droppedTools are hosted tools that coding agents offer with every request. Without them, the
// model works with the other tools. Requests with any other hosted tool are rejected.
var droppedTools = []string{"web_search", "web_search_preview", "image_generation"}

func isDropped(kind string) bool {
	return slices.ContainsFunc(droppedTools, func(name string) bool { return kind == name || strings.HasPrefix(kind, name+"_20") }) // dated versions
}

func (b *toolbox) addAll(tools []tool, at string) error {
	for i := range tools {
		if err := b.add(&tools[i], at+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

func (b *toolbox) add(t *tool, at string) error {
	switch {
	case t.Type == "namespace":
		return b.addNamespace(t, at)
	case t.Type == "tool_search":
		return b.addSearch(t, at)
	case isDropped(t.Type):
		if !slices.Contains(b.dropped, t.Type) {
			b.dropped = append(b.dropped, t.Type)
		}
		return nil
	}
	return b.addNamed(t, "", at)
}

// addNamed adds a function or a custom tool. A later tool replaces an earlier one of the same name.
func (b *toolbox) addNamed(t *tool, namespace, at string) error {
	f, err := t.function(at)
	if err != nil {
		return err
	}
	ref := toolRef{functionCall, namespace, t.Name}
	if t.Type == "custom" {
		ref.kind = customCall
	}
	f.Name = chatName(namespace, t.Name)
	b.put(openai.Tool{Type: "function", Function: f, Extra: t.Extra}, ref, at)
	return nil
}

func (b *toolbox) put(f openai.Tool, ref toolRef, at string) {
	if b.refs == nil {
		b.refs = map[string]toolRef{}
	}
	name := f.Function.Name
	_, exists := b.refs[name]
	b.refs[name] = ref
	if exists {
		i := slices.IndexFunc(b.functions, func(o openai.Tool) bool { return o.Function.Name == name })
		b.functions[i], b.paths[i] = f, at
		return
	}
	b.functions, b.paths = append(b.functions, f), append(b.paths, at)
}

// addNamespace adds the tools of a namespace. The first one describes it.
func (b *toolbox) addNamespace(t *tool, at string) error {
	if t.Name == "" {
		return fault.Missing(at+".name", "%s.name is required.", at)
	}
	for i := range t.Tools {
		inner := t.Tools[i]
		if d := value(t.Description); i == 0 && d != "" {
			inner.Description = new(strings.TrimSpace(value(inner.Description) + "\n\nAbout all " + t.Name + " tools: " + d))
		}
		if err := b.addNamed(&inner, t.Name, at+".tools["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

const toolSearch = "tool_search"

// addSearch adds the function for a search by the client. A search by the server isn't needed,
// because the model gets all tools, including the deferred ones.
func (b *toolbox) addSearch(t *tool, at string) error {
	if t.Execution != "client" {
		return nil
	}
	f := &openai.Function{Name: toolSearch, Description: value(t.Description)}
	if isSet(t.Parameters) {
		if t.Parameters.Kind() != jsontext.KindBeginObject {
			return fault.Invalid(at+".parameters", "%s.parameters must be an object: a JSON Schema.", at)
		}
		f.Parameters = t.Parameters
	}
	b.put(openai.Tool{Type: "function", Function: f}, toolRef{kind: toolSearchCall, name: toolSearch}, at)
	return nil
}

// customParameters is the schema of a custom tool's function.
const customParameters = `{"type":"object","properties":{"input":{"type":"string","description":"The input of the tool, exactly as the tool expects it."}},"required":["input"],"additionalProperties":false}`

func (t *tool) function(at string) (*openai.Function, error) {
	switch {
	case t.Type == "":
		return nil, fault.Missing(at+".type", "%s.type is required, such as \"function\".", at)
	case t.Type != "function" && t.Type != "custom":
		return nil, fault.Invalid(at+".type", "%s.type %.40q needs a model of a provider with the Responses API. For this model, use function, custom or namespace.", at, t.Type)
	case t.Name == "" && isSet(t.Function):
		return nil, fault.Missing(at+".name", "%s.name is required: put name, description and parameters next to type, not inside function.", at)
	case t.Name == "":
		return nil, fault.Missing(at+".name", "%s.name is required.", at)
	case t.Type == "custom":
		return &openai.Function{Description: t.customDescription(), Parameters: jsontext.Value(customParameters)}, nil
	case isSet(t.Parameters) && t.Parameters.Kind() != jsontext.KindBeginObject:
		return nil, fault.Invalid(at+".parameters", "%s.parameters must be an object: a JSON Schema.", at)
	}
	f := &openai.Function{Description: value(t.Description), Strict: t.Strict}
	if isSet(t.Parameters) {
		f.Parameters = t.Parameters
	}
	return f, nil
}

func (t *tool) customDescription() string {
	d := value(t.Description)
	if t.Format != nil && t.Format.Type == "grammar" {
		d = strings.TrimSpace(d + "\n\nThe input must match this " + t.Format.Syntax + " grammar:\n" + t.Format.Definition)
	}
	return d
}

// chatName returns the name of the function for a tool: letters, digits, underscores and dashes, at
// most 64. It depends on nothing else, so that calls in the input get the same name.
func chatName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	full := strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, namespace+"__"+name)
	const longest, hashed = 64, 55
	if len(full) <= longest {
		return full
	}
	sum := sha256.Sum256([]byte(namespace + "\x00" + name))
	return full[:hashed] + "_" + hex.EncodeToString(sum[:4])
}

// ref returns the tool behind a function's name. A model may invent names.
func (b *toolbox) ref(function string) toolRef {
	if ref, ok := b.refs[function]; ok {
		return ref
	}
	return toolRef{kind: functionCall, name: function}
}

// apply copies the tools and tool_choice to the chat request. Chat completions reject an empty array
// of tools, and settings of tools without tools.
func (b *toolbox) apply(in *request, out *openai.ChatRequest) error {
	choice, err := in.chatChoice()
	if err != nil {
		return err
	}
	if out.Tools = b.functions; len(out.Tools) > 0 {
		out.ToolChoice, out.ParallelToolCalls = choice, in.ParallelToolCalls
		return nil
	}
	if !choice.IsZero() && choice.Text != "auto" && choice.Text != "none" {
		return fault.Invalid("tool_choice", "tool_choice needs tools. Add at least one to tools, or omit tool_choice.")
	}
	return nil
}

type toolChoice = openai.StringOr[choiceObject]

type choiceObject struct {
	Type      string        `json:"type"`
	Name      string        `json:"name,omitzero"`
	Namespace string        `json:"namespace,omitzero"`
	Mode      string        `json:"mode,omitzero"`
	Tools     []allowedTool `json:"tools,omitzero"`
}

type allowedTool struct {
	Type      string `json:"type"`
	Name      string `json:"name,omitzero"`
	Namespace string `json:"namespace,omitzero"`
}

// chatChoice translates tool_choice. The result is zero if it is absent.
func (in *request) chatChoice() (out openai.StringOr[openai.ChoiceObject], err error) {
	c := &in.ToolChoice
	switch {
	case c.IsNull():
		return out, nil
	case slices.Contains([]string{"none", "auto", "required"}, c.Text):
		out.Kind, out.Text = c.Kind, c.Text
		return out, nil
	case c.Kind == jsontext.KindBeginObject:
		out.Kind = c.Kind
		out.Value, err = c.Value.chat()
		return out, err
	}
	return out, fault.Invalid("tool_choice", "tool_choice must be none, auto, required, a function or allowed_tools.")
}

func (o *choiceObject) chat() (out openai.ChoiceObject, err error) {
	out.Type = o.Type
	switch o.Type {
	case "function", "custom":
		if o.Name == "" {
			return out, fault.Missing("tool_choice.name", "tool_choice.name is required: the name of a function in tools.")
		}
		out.Type, out.Function = "function", &openai.Function{Name: chatName(o.Namespace, o.Name)}
		return out, nil
	case "allowed_tools":
		out.AllowedTools, err = o.allowed()
		return out, err
	case "":
		return out, fault.Missing("tool_choice.type", "tool_choice.type is required: function, custom or allowed_tools.")
	}
	return out, fault.Invalid("tool_choice.type", "tool_choice.type must be function, custom or allowed_tools: this model has no other tools.")
}

func (o *choiceObject) allowed() (*openai.AllowedTools, error) {
	if o.Mode != "auto" && o.Mode != "required" {
		return nil, fault.Invalid("tool_choice.mode", "tool_choice.mode must be auto or required.")
	}
	out := &openai.AllowedTools{Mode: o.Mode}
	for i, t := range o.Tools {
		at := "tool_choice.tools[" + strconv.Itoa(i) + "]"
		if isDropped(t.Type) {
			continue
		}
		if t.Type != "function" && t.Type != "custom" {
			return nil, fault.Invalid(at+".type", "%s.type must be \"function\" or \"custom\": this model has no other tools.", at)
		}
		if t.Name == "" {
			return nil, fault.Missing(at+".name", "%s.name is required: the name of a function in tools.", at)
		}
		out.Tools = append(out.Tools, openai.Tool{Type: "function", Function: &openai.Function{Name: chatName(t.Namespace, t.Name)}})
	}
	if len(out.Tools) == 0 {
		return nil, fault.Missing("tool_choice.tools", "tool_choice.tools must name at least one function of tools.")
	}
	return out, nil
}

// customInput returns the input of a custom tool from the arguments of its function. Some models
// send the input itself instead of an object.
func customInput(arguments string) string {
	var in struct {
		Input *string `json:"input"`
	}
	if json.Unmarshal([]byte(arguments), &in, lenient...) == nil && in.Input != nil {
		return *in.Input
	}
	var plain string
	if json.Unmarshal([]byte(arguments), &plain, lenient...) == nil {
		return plain
	}
	return arguments
}

// customArguments is the reverse of customInput.
func customArguments(input string) string {
	out, _ := json.Marshal(map[string]string{"input": input}, lenient...) // strings can always be encoded
	return string(out)
}
