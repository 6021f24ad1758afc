package anthropic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// defaultMaxTokens is for calls that bound the answer in no way: the Messages
// API wants a number, and every model has at least this one.
const defaultMaxTokens = 4096

// chat is what is read of a chat completion request. A field that is not
// listed has no counterpart in the Messages API and is ignored.
type chat struct {
	Messages            []message      `json:"messages"`
	N                   *int64         `json:"n"`
	MaxTokens           *int64         `json:"max_tokens"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens"`
	Temperature         *float64       `json:"temperature"`
	TopP                *float64       `json:"top_p"`
	Stop                jsontext.Value `json:"stop"`
	StreamOptions       streamOptions  `json:"stream_options"`
	Tools               []tool         `json:"tools"`
	ToolChoice          jsontext.Value `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	Functions           jsontext.Value `json:"functions"`
	WebSearch           jsontext.Value `json:"web_search_options"`
	ResponseFormat      *format        `json:"response_format"`
	ReasoningEffort     string         `json:"reasoning_effort"`
	User                string         `json:"user"`
	SafetyIdentifier    string         `json:"safety_identifier"`
	Logprobs            bool           `json:"logprobs"`
	Modalities          []string       `json:"modalities"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// request is a call of the Messages API.
type request struct {
	Model         string        `json:"model"`
	MaxTokens     int64         `json:"max_tokens"`
	System        []block       `json:"system,omitzero"`
	Messages      []turn        `json:"messages"`
	Tools         []toolOffer   `json:"tools,omitzero"`
	ToolChoice    *choice       `json:"tool_choice,omitzero"`
	Temperature   *float64      `json:"temperature,omitzero"`
	TopP          *float64      `json:"top_p,omitzero"`
	StopSequences []string      `json:"stop_sequences,omitzero"`
	Thinking      *thinking     `json:"thinking,omitzero"`
	OutputConfig  *outputConfig `json:"output_config,omitzero"`
	Metadata      *metadata     `json:"metadata,omitzero"`
	Stream        bool          `json:"stream,omitzero"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int64  `json:"budget_tokens,omitzero"`
	Display      string `json:"display,omitzero"`
}

type outputConfig struct {
	Effort string        `json:"effort,omitzero"`
	Format *outputFormat `json:"format,omitzero"`
}

type outputFormat struct {
	Type   string         `json:"type"`
	Schema jsontext.Value `json:"schema"`
}

// asked is what the answer's translation must know of the question.
type asked struct {
	model        string
	bytes        int    // of the request, for an estimate
	answerTool   string // the tool whose input is the answer; "" if there is none
	includeUsage bool
}

// builder makes a request of a chat.
type builder struct {
	in    *chat
	model model
	out   request
	asked asked

	mode       string         // of the tool choice: auto, any, tool or none
	callNames  []string       // of the tools that the conversation has used
	callIDs    map[string]int // how often its calls have had an id
	current    int            // the message that is being translated
	lastSource int            // the message that the last turn ends with
}

// translate makes the body of a Messages call. What the API cannot do is
// refused with the name of the field.
func translate(req *providers.ChatRequest) ([]byte, asked, error) {
	in := new(chat)
	if err := jsonbody.DecodeLenient(req.Body, in); err != nil {
		return nil, asked{}, err
	}
	b := &builder{
		in:      in,
		model:   readModel(req.Model),
		out:     request{Model: req.Model, Stream: req.Stream},
		asked:   asked{model: req.Model, includeUsage: in.StreamOptions.IncludeUsage},
		callIDs: map[string]int{},
	}
	for _, step := range []func() error{
		b.refuse, func() error { return b.maxTokens(req.MaxOutput) },
		b.messages, b.tools, b.format, b.think, b.sampling, b.stop,
	} {
		if err := step(); err != nil {
			return nil, asked{}, err
		}
	}
	b.user()
	body, err := json.Marshal(&b.out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, asked{}, fault.New(fault.InvalidJSON, "the body nests too deeply").Because(err)
	}
	b.asked.bytes = len(body)
	return body, b.asked, nil
}

// refuse names what a caller would miss if it were ignored.
func (b *builder) refuse() error {
	const not = "is not possible with this model's provider"
	if n := b.in.N; n != nil && *n != 1 {
		if *n < 1 {
			return fault.Invalid("n", "n must be at least 1")
		}
		return fault.Invalid("n", "n greater than 1 %s: send the request several times", not)
	}
	if b.in.Logprobs {
		return fault.Invalid("logprobs", "logprobs %s", not)
	}
	for i, m := range b.in.Modalities {
		if m != "text" {
			param := fmt.Sprintf("modalities[%d]", i)
			return fault.Invalid(param, "%s must be \"text\": other output %s", param, not)
		}
	}
	for _, field := range []struct {
		name, instead string
		value         jsontext.Value
	}{{"functions", "use tools", b.in.Functions}, {"web_search_options", "offer it a tool that searches", b.in.WebSearch}} {
		if k := field.value.Kind(); k != jsontext.KindInvalid && k != jsontext.KindNull {
			return fault.Invalid(field.name, "%s %s: %s", field.name, not, field.instead)
		}
	}
	return nil
}

func (b *builder) maxTokens(bound int64) error {
	limit := int64(0)
	for _, given := range []struct {
		name  string
		value *int64
	}{{"max_tokens", b.in.MaxTokens}, {"max_completion_tokens", b.in.MaxCompletionTokens}} {
		if given.value == nil {
			continue
		}
		if *given.value < 1 {
			return fault.Invalid(given.name, "%s must be at least 1", given.name)
		}
		limit = *given.value
	}
	switch {
	case limit == 0 && bound > 0:
		limit = bound
	case limit == 0:
		limit = defaultMaxTokens
	case bound > 0:
		limit = min(limit, bound)
	}
	b.out.MaxTokens = limit
	return nil
}

// sampling passes temperature and top_p on. OpenAI's temperature goes to 2,
// Anthropic's to 1. Models that have dropped them, and those that think, would
// refuse the whole call over a setting that most clients send unasked.
func (b *builder) sampling() error {
	t, p := b.in.Temperature, b.in.TopP
	if t != nil && (*t < 0 || *t > 2) {
		return fault.Invalid("temperature", "temperature must be from 0 to 2")
	}
	if p != nil && (*p < 0 || *p > 1) {
		return fault.Invalid("top_p", "top_p must be from 0 to 1")
	}
	if !b.model.sampling() || b.out.Thinking != nil {
		return nil
	}
	if t != nil {
		capped := min(*t, 1)
		b.out.Temperature = &capped
	}
	if t == nil || b.model.bothSampling() {
		b.out.TopP = p
	}
	return nil
}

func (b *builder) stop() error {
	const message = "stop must be a string or an array of strings, none of them empty"
	var list []string
	switch b.in.Stop.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil
	case jsontext.KindString:
		list = make([]string, 1)
		if json.Unmarshal(b.in.Stop, &list[0]) != nil {
			return fault.Invalid("stop", message)
		}
	default:
		if json.Unmarshal(b.in.Stop, &list) != nil {
			return fault.Invalid("stop", message)
		}
	}
	if slices.Contains(list, "") {
		return fault.Invalid("stop", message)
	}
	if slices.ContainsFunc(list, isBlank) {
		return fault.Invalid("stop", "stop of nothing but white space is not possible with this model's provider")
	}
	b.out.StopSequences = list
	return nil
}

// shares of the answer's tokens that an effort may spend on thinking, for
// models that want a number. They leave room for the answer at every effort.
var shares = map[string]float64{"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.8, "max": 0.8}

// minBudget is the least that the API accepts.
const minBudget = 1024

// think turns reasoning_effort into what the model has of it. Without it the
// model's own default holds, unless a tool call is forced, which excludes
// thinking.
func (b *builder) think() error {
	wanted := b.in.ReasoningEffort
	_, known := shares[wanted]
	switch {
	case wanted == "none":
		b.dontThink()
	case wanted != "" && !known:
		return fault.Invalid("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh")
	case b.forced():
		b.callWithoutThinking(wanted)
	case wanted == "":
	case b.model.adaptive():
		b.outputConfig().Effort = b.model.effort(wanted)
		b.out.Thinking = &thinking{Type: "adaptive"}
		if b.model.hidesThinking() {
			b.out.Thinking.Display = "summarized"
		}
	case b.model.budget() && b.out.MaxTokens >= 2*minBudget && !b.answersTools() && !b.continuesItself():
		budget := int64(shares[wanted] * float64(b.out.MaxTokens))
		b.out.Thinking = &thinking{Type: "enabled", BudgetTokens: max(budget, minBudget)}
	}
	return nil
}

// forced: the model has to call a tool.
func (b *builder) forced() bool {
	return b.out.ToolChoice != nil && (b.out.ToolChoice.Type == "any" || b.out.ToolChoice.Type == "tool")
}

// callWithoutThinking is for a forced call. A model that thinks unless it is
// told otherwise is told so, and then takes no effort above high.
func (b *builder) callWithoutThinking(wanted string) {
	off := b.model.thinkingOff()
	if off != "" {
		b.out.Thinking = &thinking{Type: off}
	}
	if wanted == "" || !b.model.adaptive() {
		return
	}
	effort := b.model.effort(wanted)
	if off != "" && (effort == "xhigh" || effort == "max") {
		effort = "high"
	}
	b.outputConfig().Effort = effort
}

func (b *builder) dontThink() {
	if b.model.alwaysThinks() {
		b.outputConfig().Effort = "low"
	} else if off := b.model.thinkingOff(); off != "" {
		b.out.Thinking = &thinking{Type: off}
	}
}

// answersTools: the conversation ends with results of tools. A model with a
// budget then wants its own thinking from before the call back, signed, and
// OpenAI's format has no place for it.
func (b *builder) answersTools() bool {
	last := b.out.Messages[len(b.out.Messages)-1]
	return last.Content[0].Type == "tool_result"
}

// continuesItself: the conversation ends with the assistant's own words, which
// a model does not go on with while it thinks.
func (b *builder) continuesItself() bool {
	return b.out.Messages[len(b.out.Messages)-1].Role == "assistant"
}

func (b *builder) outputConfig() *outputConfig {
	if b.out.OutputConfig == nil {
		b.out.OutputConfig = new(outputConfig)
	}
	return b.out.OutputConfig
}

// maxUserID is the API's limit.
const maxUserID = 256

func (b *builder) user() {
	id := b.in.SafetyIdentifier
	if id == "" {
		id = b.in.User
	}
	if id == "" {
		return
	}
	if len(id) > maxUserID {
		id = digest(id)
	}
	b.out.Metadata = &metadata{UserID: id}
}

// instruct adds to what the system says.
func (b *builder) instruct(text string) {
	b.out.System = append(b.out.System, block{Type: "text", Text: text})
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
