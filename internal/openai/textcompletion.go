package openai

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
)

// CompletionNames are the fields of a text completion that the gateway or a provider reads, sets or drops.
var CompletionNames = jsonbody.NewNames(`model models prompt n best_of max_tokens max_completion_tokens n_predict stream suffix echo logprobs
	stop temperature top_p presence_penalty frequency_penalty seed user service_tier store`,
	jsonbody.Names{"stream_options": jsonbody.NewNames("include_usage", nil)})

// CompletionRequest is the body of POST /v1/completions, which is older than chat completions.
type CompletionRequest struct {
	Model         string         `json:"model"`
	Models        []string       `json:"models"`
	Prompt        jsontext.Value `json:"prompt"` // a string, tokens, or an array of either
	N             *int64         `json:"n"`
	BestOf        *int64         `json:"best_of"`
	MaxTokens     *int64         `json:"max_tokens"`
	Stream        bool           `json:"stream"`
	StreamOptions *StreamOptions `json:"stream_options"`
	Suffix        jsontext.Value `json:"suffix"`
	Echo          *bool          `json:"echo"`
	Logprobs      jsontext.Value `json:"logprobs"`
	ServiceTier   jsontext.Value `json:"service_tier"`
	Extra         jsontext.Value `json:",embed"` // all other fields
}

const (
	// defaultCompletionTokens is OpenAI's limit for requests without one.
	defaultCompletionTokens = 16
	maxPrompts              = 128
)

// ReadCompletion reads a text completion, and rejects other spellings of CompletionNames.
func ReadCompletion(body []byte) (*CompletionRequest, *Routing, error) {
	in := new(CompletionRequest)
	if err := jsonbody.DecodeForwarded(body, in, CompletionNames); err != nil {
		return nil, nil, err
	}
	prompts, err := in.countPrompts()
	if err != nil {
		return nil, nil, err
	}
	choices := int64(1)
	for _, field := range []struct {
		name  string
		value *int64
	}{{"n", in.N}, {"best_of", in.BestOf}} {
		if field.value == nil {
			continue
		}
		if *field.value < 1 || *field.value > maxChoices {
			return nil, nil, fault.Invalid(field.name, "%s must be from 1 to %d.", field.name, maxChoices)
		}
		choices = max(choices, *field.value)
	}
	if in.MaxTokens == nil {
		in.MaxTokens = new(int64(defaultCompletionTokens))
	}
	if *in.MaxTokens < 1 {
		return nil, nil, fault.Invalid("max_tokens", "max_tokens must be at least 1.")
	}
	return in, &Routing{Model: in.Model, Models: in.Models, Stream: in.Stream, IncludeUsage: in.StreamOptions != nil && in.StreamOptions.IncludeUsage,
		Choices: choices * prompts, MaxOutput: *in.MaxTokens, PriorityService: strings.EqualFold(text(in.ServiceTier), "priority")}, nil
}

func (in *CompletionRequest) countPrompts() (int64, error) {
	switch in.Prompt.Kind() {
	case jsontext.KindString:
		return 1, nil
	case jsontext.KindBeginArray:
		var list []jsontext.Value
		_ = json.Unmarshal(in.Prompt, &list) // it is one
		switch {
		case len(list) > 0 && list[0].Kind() == '0': // tokens
			return 1, nil
		case len(list) >= 1 && len(list) <= maxPrompts:
			return int64(len(list)), nil
		}
		return 0, fault.Invalid("prompt", "prompt must have 1 to %d entries.", maxPrompts)
	}
	return 0, fault.Missing("prompt", "prompt is required: a string or an array of strings.")
}

// Chat translates the request to a chat completion, for models without text completions.
func (in *CompletionRequest) Chat() ([]byte, error) {
	const unsupported = "is not supported by this model, which only has chat completions."
	var prompt string
	if json.Unmarshal(in.Prompt, &prompt) != nil {
		var list []string
		if json.Unmarshal(in.Prompt, &list) != nil || len(list) != 1 {
			return nil, fault.Invalid("prompt", "prompt must be one string for this model. Send a request for each prompt.")
		}
		prompt = list[0]
	}
	switch {
	case isSet(in.Suffix) && string(in.Suffix) != `""`:
		return nil, fault.Invalid("suffix", "suffix %s", unsupported)
	case in.Echo != nil && *in.Echo:
		return nil, fault.Invalid("echo", "echo %s", unsupported)
	case isSet(in.Logprobs):
		return nil, fault.Invalid("logprobs", "logprobs %s", unsupported)
	case in.BestOf != nil && *in.BestOf > 1:
		return nil, fault.Invalid("best_of", "best_of %s", unsupported)
	}
	return json.Marshal(&ChatRequest{Model: in.Model, Messages: []Message{{Role: "user", Content: TextContent(prompt)}}, N: in.N, MaxTokens: in.MaxTokens,
		Stream: in.Stream, StreamOptions: in.StreamOptions, Extra: in.Extra})
}

// textCompletion is a text completion or a chunk of one. Chat completions have a message or a delta
// in the place of the text.
type textCompletion struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Created int64          `json:"created"`
	Model   string         `json:"model"`
	Choices []textChoice   `json:"choices"`
	Usage   jsontext.Value `json:"usage,omitzero"`
}

type textChoice struct {
	Text         string      `json:"text"`
	Index        int         `json:"index"`
	Logprobs     *struct{}   `json:"logprobs"`
	FinishReason *string     `json:"finish_reason"`
	Message      *textSource `json:"message,omitzero"`
	Delta        *textSource `json:"delta,omitzero"`
}

type textSource struct {
	Content *string `json:"content"`
}

const textCompletionObject = "text_completion"

// ToTextCompletion translates a chat completion, or a chunk of one, to a text completion. Text
// completions are returned unchanged.
func ToTextCompletion(body []byte) ([]byte, error) {
	var c textCompletion
	if err := json.Unmarshal(body, &c, jsontext.AllowInvalidUTF8(true)); err != nil || c.Object == textCompletionObject || !strings.HasPrefix(c.Object, "chat.completion") {
		return body, nil
	}
	c.Object = textCompletionObject
	if !strings.HasPrefix(c.ID, "cmpl-") {
		c.ID = "cmpl-" + strings.TrimPrefix(c.ID, "chatcmpl-")
	}
	for i := range c.Choices {
		choice := &c.Choices[i]
		for _, from := range []*textSource{choice.Message, choice.Delta} {
			if from != nil && from.Content != nil {
				choice.Text = *from.Content
			}
		}
		choice.Message, choice.Delta = nil, nil
	}
	return json.Marshal(&c, jsontext.AllowInvalidUTF8(true))
}
