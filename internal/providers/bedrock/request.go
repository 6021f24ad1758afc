package bedrock

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

type converseRequest struct {
	Messages        []message        `json:"messages"`
	System          []block          `json:"system,omitzero"`
	InferenceConfig *inferenceConfig `json:"inferenceConfig,omitzero"`
	ToolConfig      *toolConfig      `json:"toolConfig,omitzero"`
}

type inferenceConfig struct {
	MaxTokens     int64    `json:"maxTokens,omitzero"`
	Temperature   *float64 `json:"temperature,omitzero"`
	TopP          *float64 `json:"topP,omitzero"`
	StopSequences []string `json:"stopSequences,omitzero"`
}

type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}

// block has one of its fields.
type block struct {
	Text       *string     `json:"text,omitzero"`
	Image      *media      `json:"image,omitzero"`
	Document   *media      `json:"document,omitzero"`
	ToolUse    *toolUse    `json:"toolUse,omitzero"`
	ToolResult *toolResult `json:"toolResult,omitzero"`
	Reasoning  *reasoning  `json:"reasoningContent,omitzero"`
	CachePoint *cachePoint `json:"cachePoint,omitzero"`
}

type media struct {
	Format string `json:"format"`
	Name   string `json:"name,omitzero"` // of a document
	Source struct {
		Bytes string `json:"bytes"` // in base64
	} `json:"source"`
}

type toolUse struct {
	ID    string         `json:"toolUseId"`
	Name  string         `json:"name"`
	Input jsontext.Value `json:"input,omitzero"`
}

type toolResult struct {
	ID      string  `json:"toolUseId"`
	Content []block `json:"content"`
}

// reasoning is in responses only: OpenAI's format can't carry its signature.
type reasoning struct {
	Text struct {
		Text string `json:"text"`
	} `json:"reasoningText"`
}

// cachePoint ends the part of the prompt that Bedrock caches.
type cachePoint struct {
	Type string `json:"type"`
}

func textBlock(text string) block { return block{Text: &text} }

// call is a translated request and what the translation of its response needs.
type call struct {
	body         []byte
	includeUsage bool
	answerTool   string // the tool whose input is the response; "" for none
	oneCall      bool   // the client accepts at most one tool call
	ignored      []string
}

type builder struct {
	in    *openai.ChatRequest
	model model
	out   converseRequest
	call  call

	usedTools []string // names of tools that the conversation calls
	callIDs   map[string]int
	documents int
}

// translate builds a Converse request. It returns a fault for fields that the API has no counterpart for, if
// ignoring them would surprise the client.
func translate(req *providers.ChatRequest) (*call, error) {
	in, err := openai.Decode(req.Body)
	if err != nil {
		return nil, err
	}
	b := &builder{in: in, model: parseModel(req.Model), callIDs: map[string]int{}, call: call{includeUsage: in.IncludeUsage(), oneCall: in.OneCallAtATime()}}
	for _, step := range []func() error{
		in.CheckTranslatable, b.checkN, func() error { return b.setInference(req.MaxOutput) }, b.setMessages, b.setTools, b.setFormat,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	b.call.ignored = in.IgnoredFields("frequency_penalty", "presence_penalty", "prompt_cache_key", "reasoning_effort", "safety_identifier", "seed", "service_tier", "user", "verbosity")
	if b.call.body, err = json.Marshal(&b.out, wire.Lenient); err != nil {
		return nil, fault.New(fault.InvalidJSON, "The body is nested too deeply.").Because(err)
	}
	return &b.call, nil
}

func (b *builder) checkN() error {
	if n := b.in.N; n != nil && *n != 1 {
		return fault.Invalid("n", "n must be 1 for this model's provider. Send the request several times.")
	}
	return nil
}

// setInference passes the settings on that all models have. OpenAI's temperature goes up to 2, and Bedrock's to 1.
func (b *builder) setInference(limit int64) (err error) {
	if err := b.in.CheckSampling(); err != nil {
		return err
	}
	c := inferenceConfig{TopP: b.in.TopP}
	if t := b.in.Temperature; t != nil {
		c.Temperature = new(min(*t, 1))
	}
	if c.MaxTokens, err = b.in.MaxOutput(limit); err != nil {
		return err
	}
	if c.StopSequences, err = b.in.ReadStop(); err != nil {
		return err
	}
	if c.MaxTokens != 0 || c.Temperature != nil || c.TopP != nil || len(c.StopSequences) > 0 {
		b.out.InferenceConfig = &c
	}
	return nil
}

func (b *builder) instruct(text string) { b.out.System = append(b.out.System, textBlock(text)) }

// model is what a model's name says about its abilities.
type model struct {
	forcedTools bool // it can be forced to call a tool
}

// forcible are the beginnings of the names of models that accept a tool choice other than auto.
var forcible = []string{"anthropic.", "amazon.nova", "mistral.mistral-large", "mistral.pixtral"}

func parseModel(name string) (m model) {
	for _, part := range forcible { // a region or an ARN may precede it
		m.forcedTools = m.forcedTools || strings.HasPrefix(name, part) || strings.Contains(name, "."+part) || strings.Contains(name, "/"+part)
	}
	return m
}
