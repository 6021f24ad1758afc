package simulator

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/jsonbody"
)

// request is what the simulator reads of a chat completion request. Fields
// that are not listed are accepted and have no effect.
type request struct {
	Messages            []message      `json:"messages"`
	N                   *int64         `json:"n"`
	MaxTokens           *int64         `json:"max_tokens"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens"`
	Temperature         *float64       `json:"temperature"`
	TopP                *float64       `json:"top_p"`
	PresencePenalty     *float64       `json:"presence_penalty"`
	FrequencyPenalty    *float64       `json:"frequency_penalty"`
	Logprobs            bool           `json:"logprobs"`
	TopLogprobs         *int64         `json:"top_logprobs"`
	Stop                jsontext.Value `json:"stop"`
	StreamOptions       *streamOptions `json:"stream_options"`
	Tools               []tool         `json:"tools"`
	ToolChoice          jsontext.Value `json:"tool_choice"`
	ParallelToolCalls   *bool          `json:"parallel_tool_calls"`
	ResponseFormat      *format        `json:"response_format"`
	Modalities          []string       `json:"modalities"`

	stops  []string   // Stop, read
	choice toolChoice // ToolChoice, read
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role       string         `json:"role"`
	Content    content        `json:"content"`
	Name       string         `json:"name"`
	ToolCallID string         `json:"tool_call_id"`
	ToolCalls  []toolCall     `json:"tool_calls"`
	Refusal    string         `json:"refusal"`
	Function   *functionCall  `json:"function_call"`
	Audio      jsontext.Value `json:"audio"`
}

type toolCall struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"`
	Function *functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type part struct {
	Type       string  `json:"type"`
	Text       *string `json:"text"`
	Refusal    *string `json:"refusal"`
	ImageURL   *image  `json:"image_url"`
	InputAudio *audio  `json:"input_audio"`
	File       *file   `json:"file"`
}

type image struct {
	URL    string `json:"url"`
	Detail string `json:"detail"`
}

type audio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

type file struct {
	ID   string `json:"file_id"`
	Data string `json:"file_data"`
}

type tool struct {
	Type     string    `json:"type"`
	Function *function `json:"function"`
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
}

type format struct {
	Type       string        `json:"type"`
	JSONSchema *formatSchema `json:"json_schema"`
}

type formatSchema struct {
	Name   string         `json:"name"`
	Schema jsontext.Value `json:"schema"`
}

// content is a message's text, or its parts. kind is that of the JSON value,
// 0 if there is none; a kind that is not allowed is left to the validation,
// which knows the message's place.
type content struct {
	kind  jsontext.Kind
	text  string
	parts []part
}

func (c *content) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	*c = content{kind: in.PeekKind()}
	switch c.kind {
	case jsontext.KindString:
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		c.text = token.String()
		return nil
	case jsontext.KindBeginArray:
		return json.UnmarshalDecode(in, &c.parts)
	}
	return in.SkipValue()
}

func decode(body []byte) (*request, error) {
	r := new(request)
	return r, jsonbody.DecodeLenient(body, r)
}
