package gemini

import (
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

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

// part has one of its fields, and Thought or ThoughtSignature next to it.
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
	ResponseModalities []string        `json:"responseModalities,omitempty"`
	ImageConfig        *imageConfig    `json:"imageConfig,omitzero"`
	SpeechConfig       *speechConfig   `json:"speechConfig,omitzero"`
}

// call is a translated request and what the translation of its response needs.
type call struct {
	body         []byte
	promptTokens int64 // estimate, for a response without a count
	includeUsage bool
	answerTool   string // function whose arguments are the response; "" for none
	oneCall      bool   // the client accepts at most one tool call
	ignored      []string
}

type builder struct {
	in    *openai.ChatRequest
	model model
	out   generateRequest

	instruction []part
	callNames   map[string]string // function names by call ID
	inResults   bool              // the last content has function responses
	lastModelAt string            // path of the last assistant message with content

	textBytes, images, audioBytes int
}

// translate builds a Gemini request. It returns a fault for fields that Gemini
// has no counterpart for, if ignoring them would surprise the client.
func translate(req *providers.ChatRequest) (*call, error) {
	in, err := openai.Decode(req.Body)
	if err != nil {
		return nil, err
	}
	b := &builder{in: in, model: parseModel(req.Model), callNames: map[string]string{}}
	for _, step := range []func() error{
		in.CheckTranslatable, func() error { return b.setMaxOutput(req.MaxOutput) }, b.setCandidates, b.setSampling,
		b.setThinking, b.setFormat, b.setTools, b.setToolConfig, b.setContents,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c := &call{includeUsage: in.IncludeUsage(), oneCall: in.OneCallAtATime(), ignored: b.ignored()}
	if !b.model.jsonWithTools() {
		if c.answerTool, err = b.replaceFormat(); err != nil {
			return nil, err
		}
	}
	if len(b.instruction) > 0 {
		b.out.SystemInstruction = &content{Parts: b.instruction}
	}
	c.promptTokens = b.promptTokens()
	if c.body, err = json.Marshal(b.out); err != nil {
		return nil, fmt.Errorf("gemini: encode request: %w", err)
	}
	return c, nil
}

// ignored lists the fields that Gemini's format can't express.
func (b *builder) ignored() []string {
	names := []string{"verbosity", "user", "safety_identifier", "prompt_cache_key", "service_tier"}
	c := &b.out.GenerationConfig
	for name, value := range map[string]*float64{"temperature": c.Temperature, "top_p": c.TopP, "presence_penalty": c.PresencePenalty, "frequency_penalty": c.FrequencyPenalty} {
		if value == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return b.in.IgnoredFields(names...)
}

// promptTokens estimates the tokens of the prompt by Google's numbers: four characters are a token,
// a small image is 258, and a second of audio 32. Audio is assumed to be MP3 of 128 kbit/s.
func (b *builder) promptTokens() int64 {
	return wire.EstimateTokens(b.textBytes) + int64(b.images)*258 + int64(b.audioBytes/16000)*32
}

func (b *builder) setMaxOutput(limit int64) error {
	n, err := b.in.MaxOutput(limit)
	b.out.GenerationConfig.MaxOutputTokens = min(n, math.MaxInt32)
	return err
}

func (b *builder) setCandidates() error {
	switch n := b.in.N; {
	case n == nil || *n == 1: // some models reject the field itself
	case *n < 1 || *n > math.MaxInt32:
		return fault.Invalid("n", "n must be a whole number of at least 1.")
	case !b.model.candidates():
		return fault.Invalid("n", "n must be 1 for this model. Send the request several times.")
	default:
		b.out.GenerationConfig.CandidateCount = *n
	}
	return nil
}

func (b *builder) setSampling() (err error) {
	c := &b.out.GenerationConfig
	if b.model.sampling() {
		c.Temperature, c.TopP = b.in.Temperature, b.in.TopP
	}
	if b.model.penalties() {
		c.PresencePenalty, c.FrequencyPenalty = b.in.PresencePenalty, b.in.FrequencyPenalty
	}
	if b.in.Seed != nil {
		seed := *b.in.Seed
		if seed != int64(int32(seed)) {
			seed ^= seed >> 32 // Gemini's seeds have 32 bits
		}
		c.Seed = new(int32(seed))
	}
	c.StopSequences, err = b.in.ReadStop()
	return err
}

func (b *builder) setThinking() (err error) {
	b.out.GenerationConfig.ThinkingConfig, err = b.model.thinking(b.in.ReasoningEffort)
	return err
}
