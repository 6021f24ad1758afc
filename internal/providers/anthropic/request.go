package anthropic

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// defaultMaxTokens is for requests without a limit: the Messages API requires
// one, and every model accepts this one.
const defaultMaxTokens = 4096

type request struct {
	Model         string           `json:"model"`
	MaxTokens     int64            `json:"max_tokens"`
	System        []block          `json:"system,omitzero"`
	Messages      []message        `json:"messages"`
	Tools         []toolDefinition `json:"tools,omitzero"`
	ToolChoice    *toolChoice      `json:"tool_choice,omitzero"`
	Temperature   *float64         `json:"temperature,omitzero"`
	TopP          *float64         `json:"top_p,omitzero"`
	StopSequences []string         `json:"stop_sequences,omitzero"`
	Thinking      *thinking        `json:"thinking,omitzero"`
	OutputConfig  *outputConfig    `json:"output_config,omitzero"`
	Metadata      *metadata        `json:"metadata,omitzero"`
	Stream        bool             `json:"stream,omitzero"`
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

// requestInfo is what the translation of the response needs from the request.
type requestInfo struct {
	model        string
	bytes        int    // size of the request, to estimate its tokens
	answerTool   string // tool whose input is the response; "" for none
	includeUsage bool
	ignored      []string // fields of the request
}

type builder struct {
	in    *openai.ChatRequest
	model model
	out   request
	info  requestInfo

	toolMode  string         // auto, any, tool or none
	usedTools []string       // names of tools that the conversation calls
	callIDs   map[string]int // how often the conversation uses a call ID

	current     int // index of the message that is being translated
	lastMessage int // index of the last message that has content
}

// translate builds the body of a Messages request. It returns a fault for fields that the API has
// no counterpart for, if ignoring them would surprise the client.
func translate(req *providers.ChatRequest) ([]byte, requestInfo, error) {
	in, err := openai.Decode(req.Body)
	if err != nil {
		return nil, requestInfo{}, err
	}
	b := &builder{
		in:      in,
		model:   parseModel(req.Model),
		out:     request{Model: req.Model, Stream: req.Stream},
		info:    requestInfo{model: req.Model, includeUsage: in.IncludeUsage()},
		callIDs: map[string]int{},
	}
	for _, step := range []func() error{
		in.CheckTranslatable, b.checkN, func() error { return b.setMaxTokens(req.MaxOutput) },
		b.setMessages, b.setTools, b.setFormat, b.setThinking, b.setSampling, b.setStop,
	} {
		if err := step(); err != nil {
			return nil, requestInfo{}, err
		}
	}
	b.setUser()
	b.noteIgnored()
	body, err := json.Marshal(&b.out, wire.Lenient)
	if err != nil {
		return nil, requestInfo{}, fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	b.info.bytes = len(body)
	return body, b.info, nil
}

func (b *builder) checkN() error {
	switch n := b.in.N; {
	case n == nil || *n == 1:
		return nil
	case *n < 1:
		return fault.Invalid("n", "n must be at least 1.")
	}
	return fault.Invalid("n", "n must be 1 for this model's provider. Send the request several times.")
}

func (b *builder) setMaxTokens(limit int64) error {
	n, err := b.in.MaxOutput(limit)
	b.out.MaxTokens = cmp.Or(n, defaultMaxTokens)
	return err
}

// setSampling passes temperature and top_p on. OpenAI's temperature goes up to
// 2, Anthropic's to 1. Models that think or no longer have these settings would
// reject the request, and most clients send them by default, so they are dropped.
func (b *builder) setSampling() error {
	if err := b.in.CheckSampling(); err != nil {
		return err
	}
	if !b.model.sampling() || b.out.Thinking != nil {
		return nil
	}
	if t := b.in.Temperature; t != nil {
		b.out.Temperature = new(min(*t, 1))
	}
	if b.in.Temperature == nil || b.model.bothSampling() {
		b.out.TopP = b.in.TopP
	}
	return nil
}

func (b *builder) setStop() (err error) {
	if b.out.StopSequences, err = b.in.ReadStop(); err != nil {
		return err
	}
	if slices.ContainsFunc(b.out.StopSequences, isBlank) {
		return fault.Invalid("stop", "stop must not be only white space for this model's provider.")
	}
	return nil
}

// budgetShares are the shares of the output tokens that each effort may spend on
// thinking, for models that take a number. They leave room for the response.
var budgetShares = map[string]float64{"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.8, "max": 0.8}

const minBudget = 1024

// setThinking translates reasoning_effort. Without it the model's default
// applies, unless a tool call is forced, which rules out thinking.
func (b *builder) setThinking() error {
	effort := b.in.ReasoningEffort
	share, known := budgetShares[effort]
	switch {
	case effort == "none":
		b.disableThinking()
	case effort != "" && !known:
		return fault.Invalid("reasoning_effort", "reasoning_effort must be none, minimal, low, medium, high or xhigh.")
	case b.forcesToolCall():
		b.forceToolCallWithoutThinking(effort)
	case effort == "":
	case b.model.adaptive():
		b.outputConfig().Effort = b.model.effort(effort)
		b.out.Thinking = &thinking{Type: "adaptive"}
		if b.model.hidesThinking() {
			b.out.Thinking.Display = "summarized"
		}
	case b.model.budget() && b.out.MaxTokens >= 2*minBudget && b.canThink():
		budget := int64(share * float64(b.out.MaxTokens))
		b.out.Thinking = &thinking{Type: "enabled", BudgetTokens: max(budget, minBudget)}
	}
	return nil
}

func (b *builder) forcesToolCall() bool {
	return b.out.ToolChoice != nil && (b.out.ToolChoice.Type == "any" || b.out.ToolChoice.Type == "tool")
}

// forceToolCallWithoutThinking turns thinking off where it is on by default.
// Without thinking a model accepts no effort above high.
func (b *builder) forceToolCallWithoutThinking(effort string) {
	off := b.model.thinkingOff()
	if off != "" {
		b.out.Thinking = &thinking{Type: off}
	}
	if effort == "" || !b.model.adaptive() {
		return
	}
	effort = b.model.effort(effort)
	if off != "" && (effort == "xhigh" || effort == "max") {
		effort = "high"
	}
	b.outputConfig().Effort = effort
}

func (b *builder) disableThinking() {
	if b.model.alwaysThinks() {
		b.outputConfig().Effort = "low"
	} else if off := b.model.thinkingOff(); off != "" {
		b.out.Thinking = &thinking{Type: off}
	}
}

// canThink reports whether a model with a budget may think before the end of the conversation. After
// tool results it requires its signed thinking from before the call, which OpenAI's format can't
// carry, and it can't think while it continues its own message.
func (b *builder) canThink() bool {
	last := b.out.Messages[len(b.out.Messages)-1]
	return last.Role != "assistant" && last.Content[0].Type != "tool_result"
}

func (b *builder) outputConfig() *outputConfig {
	if b.out.OutputConfig == nil {
		b.out.OutputConfig = new(outputConfig)
	}
	return b.out.OutputConfig
}

const maxUserID = 256

func (b *builder) setUser() {
	id := cmp.Or(b.in.SafetyIdentifier, b.in.User)
	if id == "" {
		return
	}
	if len(id) > maxUserID {
		id = digest(id)
	}
	b.out.Metadata = &metadata{UserID: id}
}

// noteIgnored lists the fields that the Messages API can't express.
func (b *builder) noteIgnored() {
	names := []string{"seed", "presence_penalty", "frequency_penalty", "verbosity", "prompt_cache_key", "service_tier"}
	if b.out.Temperature == nil {
		names = append(names, "temperature")
	}
	if b.out.TopP == nil {
		names = append(names, "top_p")
	}
	b.info.ignored = b.in.IgnoredFields(names...)
}

func (b *builder) instruct(text string) {
	b.out.System = append(b.out.System, block{Type: "text", Text: text})
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
