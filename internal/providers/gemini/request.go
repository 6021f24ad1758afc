package gemini

import (
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// chatRequest is what is read of a chat completion request; other fields have
// no counterpart in Gemini.
type chatRequest struct {
	Messages            []chatMessage   `json:"messages"`
	N                   *int64          `json:"n"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	TopP                *float64        `json:"top_p"`
	PresencePenalty     *float64        `json:"presence_penalty"`
	FrequencyPenalty    *float64        `json:"frequency_penalty"`
	Seed                *int64          `json:"seed"`
	Stop                jsontext.Value  `json:"stop"`
	Tools               []chatTool      `json:"tools"`
	ToolChoice          jsontext.Value  `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	Functions           jsontext.Value  `json:"functions"`
	WebSearch           jsontext.Value  `json:"web_search_options"`
	ResponseFormat      *responseFormat `json:"response_format"`
	ReasoningEffort     string          `json:"reasoning_effort"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	Logprobs            bool            `json:"logprobs"`
	Modalities          []string        `json:"modalities"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// generateRequest is Gemini's GenerateContentRequest.
type generateRequest struct {
	Contents          []content        `json:"contents"`
	SystemInstruction *content         `json:"systemInstruction,omitzero"`
	Tools             []toolSet        `json:"tools,omitempty"`
	ToolConfig        *toolConfig      `json:"toolConfig,omitzero"`
	GenerationConfig  generationConfig `json:"generationConfig,omitempty"`
}

type content struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

// part is one of its fields; thought and its signature stand beside another.
type part struct {
	Text             string            `json:"text,omitempty"`
	InlineData       *blob             `json:"inlineData,omitzero"`
	FileData         *fileData         `json:"fileData,omitzero"`
	FunctionCall     *functionCall     `json:"functionCall,omitzero"`
	FunctionResponse *functionResponse `json:"functionResponse,omitzero"`
	Thought          bool              `json:"thought,omitzero"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
}

type blob struct {
	MimeType string `json:"mimeType"`
	Data     string `json:"data"`
}

type fileData struct {
	MimeType string `json:"mimeType"`
	FileURI  string `json:"fileUri"`
}

type functionCall struct {
	ID   string         `json:"id,omitempty"`
	Name string         `json:"name"`
	Args jsontext.Value `json:"args,omitzero"`
}

type functionResponse struct {
	ID       string         `json:"id,omitempty"`
	Name     string         `json:"name"`
	Response jsontext.Value `json:"response"`
}

type generationConfig struct {
	Temperature        *float64        `json:"temperature,omitzero"`
	TopP               *float64        `json:"topP,omitzero"`
	CandidateCount     int64           `json:"candidateCount,omitzero"`
	MaxOutputTokens    int64           `json:"maxOutputTokens,omitzero"`
	StopSequences      []string        `json:"stopSequences,omitempty"`
	PresencePenalty    *float64        `json:"presencePenalty,omitzero"`
	FrequencyPenalty   *float64        `json:"frequencyPenalty,omitzero"`
	Seed               *int32          `json:"seed,omitzero"`
	ResponseMimeType   string          `json:"responseMimeType,omitempty"`
	ResponseJSONSchema jsontext.Value  `json:"responseJsonSchema,omitzero"`
	ThinkingConfig     *thinkingConfig `json:"thinkingConfig,omitzero"`
}

// call is a translated request with what its answer will need of it.
type call struct {
	body         []byte
	promptTokens int64 // a guess, for an answer that does not count them
	includeUsage bool
	answerTool   string // the function whose arguments are the answer; "" if there is none
	oneCall      bool   // the caller takes no more than one
}

// translate turns a chat completion request into Gemini's.
func translate(req *providers.ChatRequest) (*call, error) {
	in := new(chatRequest)
	if err := jsonbody.DecodeLenient(req.Body, in); err != nil {
		return nil, err
	}
	if err := in.refuse(); err != nil {
		return nil, err
	}
	model := familyOf(req.Model)
	var out generateRequest
	var err error
	if out.GenerationConfig, err = in.generationConfig(model, req.MaxOutput); err != nil {
		return nil, err
	}
	if out.Tools, err = in.tools(); err != nil {
		return nil, err
	}
	if out.ToolConfig, err = in.toolConfig(); err != nil {
		return nil, err
	}
	t := conversation{model: model, callNames: map[string]string{}}
	if err := t.read(in.Messages); err != nil {
		return nil, err
	}
	c := &call{
		includeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
		oneCall:      in.ParallelToolCalls != nil && !*in.ParallelToolCalls,
	}
	if !model.jsonBesideTools() {
		if c.answerTool, err = out.formatBesideTools(&t); err != nil {
			return nil, err
		}
	}
	out.Contents, out.SystemInstruction = t.contents, t.system()
	c.promptTokens = t.tokens()
	if c.body, err = json.Marshal(out); err != nil {
		return nil, fmt.Errorf("gemini: encode request: %w", err)
	}
	return c, nil
}

// refuse names what a caller would miss if it were ignored.
func (r *chatRequest) refuse() error {
	const not = "is not possible with this model's provider"
	if r.Logprobs {
		return fault.Invalid("logprobs", "logprobs %s", not)
	}
	for i, m := range r.Modalities {
		if m != "text" {
			param := fmt.Sprintf("modalities[%d]", i)
			return fault.Invalid(param, "%s must be \"text\": other output %s", param, not)
		}
	}
	for _, field := range []struct {
		name, instead string
		value         jsontext.Value
	}{{"functions", "use tools", r.Functions}, {"web_search_options", "offer it a tool that searches", r.WebSearch}} {
		if k := field.value.Kind(); k != jsontext.KindInvalid && k != jsontext.KindNull {
			return fault.Invalid(field.name, "%s %s: %s", field.name, not, field.instead)
		}
	}
	return nil
}

func (r *chatRequest) generationConfig(model family, maxOutput int64) (c generationConfig, err error) {
	if model.sampling() {
		c.Temperature, c.TopP = r.Temperature, r.TopP
	}
	if model.penalties() {
		c.PresencePenalty, c.FrequencyPenalty = r.PresencePenalty, r.FrequencyPenalty
	}
	if c.MaxOutputTokens, err = r.maxOutput(maxOutput); err != nil {
		return c, err
	}
	if r.N != nil {
		if *r.N < 1 || *r.N > math.MaxInt32 {
			return c, fault.Invalid("n", "n must be a whole number from 1 on")
		}
		if *r.N > 1 && !model.candidates() {
			return c, fault.Invalid("n", "n greater than 1 is not possible with this model: send the request several times")
		}
		if *r.N > 1 { // some models refuse the field itself
			c.CandidateCount = *r.N
		}
	}
	if r.Seed != nil {
		seed := *r.Seed
		if seed != int64(int32(seed)) {
			seed ^= seed >> 32 // Gemini's has half the bits
		}
		c.Seed = new(int32(seed))
	}
	if c.StopSequences, err = r.stops(); err != nil {
		return c, err
	}
	if c.ThinkingConfig, err = model.thinking(r.ReasoningEffort); err != nil {
		return c, err
	}
	return c, r.format(&c)
}

// maxOutput is the least of what the caller and the gateway allow; 0 is no
// bound.
func (r *chatRequest) maxOutput(bound int64) (int64, error) {
	for _, asked := range []struct {
		param string
		value *int64
	}{{"max_tokens", r.MaxTokens}, {"max_completion_tokens", r.MaxCompletionTokens}} {
		switch {
		case asked.value == nil:
		case *asked.value < 1:
			return 0, fault.Invalid(asked.param, "%s must be at least 1", asked.param)
		case bound == 0 || *asked.value < bound:
			bound = *asked.value
		}
	}
	return min(bound, math.MaxInt32), nil
}

func (r *chatRequest) stops() ([]string, error) {
	switch r.Stop.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, nil
	case jsontext.KindString:
		var one string
		if err := json.Unmarshal(r.Stop, &one); err == nil {
			return []string{one}, nil
		}
	case jsontext.KindBeginArray:
		var list []string
		if err := json.Unmarshal(r.Stop, &list); err == nil {
			return list, nil
		}
	}
	return nil, fault.Invalid("stop", "stop must be a string or an array of strings")
}
