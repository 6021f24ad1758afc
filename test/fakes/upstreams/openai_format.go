package upstreams

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type openAIResponse struct {
	OpenAIReply
	model      string
	stream     bool
	wantsUsage bool
	usage      OpenAIUsage
}

// newOpenAIResponse reads a request and returns the response or an error message.
func newOpenAIResponse(body []byte, reply OpenAIReply) (a *openAIResponse, rejection string) {
	var in struct {
		Model         string           `json:"model"`
		Messages      []jsontext.Value `json:"messages"`
		Models        jsontext.Value   `json:"models"`
		Stream        bool             `json:"stream"`
		StreamOptions *struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
		ToolChoice     jsontext.Value `json:"tool_choice"`
		ResponseFormat struct {
			Type string `json:"type"`
		} `json:"response_format"`
		MaxTokens           *float64 `json:"max_tokens"`
		MaxCompletionTokens *float64 `json:"max_completion_tokens"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, "We could not parse the JSON body of your request: " + err.Error()
	}
	switch {
	case in.Model == "":
		return nil, "You must provide a model parameter"
	case len(in.Messages) == 0:
		return nil, "Missing required parameter: 'messages'"
	case in.Models != nil:
		return nil, "Unrecognized request argument supplied: models"
	case in.StreamOptions != nil && !in.Stream:
		return nil, "The 'stream_options' parameter is only allowed when 'stream' is enabled."
	case in.MaxTokens != nil && in.MaxCompletionTokens != nil:
		return nil, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
	}
	a = &openAIResponse{OpenAIReply: reply, model: in.Model, stream: in.Stream}
	a.wantsUsage = in.StreamOptions != nil && in.StreamOptions.IncludeUsage
	choice := string(in.ToolChoice)
	if a.Text == "" && a.Calls == nil && len(in.Tools) > 0 && choice != "" && choice != `"auto"` && choice != `"none"` {
		a.Calls = []OpenAICall{{Name: in.Tools[0].Function.Name, Arguments: "{}"}}
	}
	text := "Hello! How can I help you today?"
	if strings.HasPrefix(in.ResponseFormat.Type, "json") {
		text = `{"answer": "Hello!"}`
	}
	if a.Text == "" && a.Calls == nil && a.Refusal == "" {
		a.Text = text
	}
	a.usage = OpenAIUsage{Input: 10, Output: int64(len(strings.Fields(a.Text + " " + a.Refusal + " " + a.Reasoning)))}
	if a.Usage != nil {
		a.usage = *a.Usage
	}
	if a.Counts == CountsZero {
		a.usage = OpenAIUsage{}
	}
	return a, ""
}

func (a *openAIResponse) finish() string {
	if len(a.Calls) > 0 {
		return cmp.Or(a.Finish, "tool_calls")
	}
	return cmp.Or(a.Finish, "stop")
}

func (a *openAIResponse) body() string {
	message := `{"role":"assistant","content":` + openAIStringOrNull(a.Text) + `,"refusal":` + openAIStringOrNull(a.Refusal)
	if a.Reasoning != "" {
		message += `,"reasoning_content":` + openAIString(a.Reasoning)
	}
	if len(a.Calls) > 0 {
		calls := make([]string, len(a.Calls))
		for i, c := range a.Calls {
			calls[i] = fmt.Sprintf(`{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, openAIString(callID(c, i)), openAIString(c.Name), openAIString(c.Arguments))
		}
		message += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	usage := ""
	if a.Counts != CountsMissing {
		usage = `,"usage":` + a.usage.json()
	}
	return fmt.Sprintf("{\n  %s,\n  \"choices\": [{\"index\":0,\"message\":%s,\"annotations\":[]},\"logprobs\":null,\"finish_reason\":%s}]%s,\n  \"service_tier\": \"default\"\n}\n",
		a.head("chat.completion"), message, openAIString(a.finish()), usage)
}

func (a *openAIResponse) events() []string {
	deltas := []string{`{"role":"assistant","content":"","refusal":null}`}
	add := func(field, text string) {
		if text == "" {
			return
		}
		for _, word := range strings.SplitAfter(text, " ") {
			deltas = append(deltas, `{"`+field+`":`+openAIString(word)+`}`)
		}
	}
	add("reasoning_content", a.Reasoning)
	add("content", a.Text)
	add("refusal", a.Refusal)
	for i, c := range a.Calls {
		deltas = append(deltas, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`, i, openAIString(callID(c, i)), openAIString(c.Name)))
		for _, piece := range strings.SplitAfter(c.Arguments, ",") {
			deltas = append(deltas, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, openAIString(piece)))
		}
	}
	deltas = append(deltas, "{}")
	events := make([]string, 0, len(deltas)+2)
	for i, delta := range deltas {
		finish := "null"
		if i == len(deltas)-1 {
			finish = openAIString(a.finish())
		}
		choices := fmt.Sprintf(`[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]`, delta, finish)
		events = append(events, a.event(choices, a.usageOf(i, len(deltas))))
	}
	if (a.Counts == CountsUsual || a.Counts == CountsZero) && a.wantsUsage || a.Counts == CountsOnEvery {
		events = append(events, a.event("[]", `,"usage":`+a.usage.json()))
	}
	return append(events, "data: [DONE]\n\n")
}

func (a *openAIResponse) event(choices, usage string) string {
	return "data: {" + a.head("chat.completion.chunk") + `,"service_tier":"default","choices":` + choices + usage + "}\n\n"
}

// usageOf returns the usage field of chunk i of n with a choice.
func (a *openAIResponse) usageOf(i, n int) string {
	switch {
	case a.Counts == CountsOnEvery:
		growing := a.usage
		growing.Output = growing.Output * int64(i) / int64(n)
		return `,"usage":` + growing.json()
	case a.Counts == CountsOnLast && i == n-1:
		return `,"usage":` + a.usage.json()
	case a.Counts == CountsUsual && a.wantsUsage:
		return `,"usage":null`
	}
	return ""
}

func (a *openAIResponse) head(object string) string {
	return fmt.Sprintf(`"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":%q,"created":1741569952,"model":%s`, object, openAIString(a.model))
}

func (u OpenAIUsage) json() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0}}`,
		u.Input, u.Output, u.Input+u.Output, u.Cached, u.Reasoning)
}

// openAIError returns an error body in OpenAI's format.
func openAIError(r OpenAIReply) string {
	kind := map[int]string{401: "invalid_request_error", 403: "permission_error", 429: "requests", 500: "server_error", 503: "server_error"}[r.Status]
	return fmt.Sprintf("{\n    \"error\": {\n        \"message\": %s,\n        \"type\": %s,\n        \"param\": %s,\n        \"code\": %s\n    }\n}\n",
		openAIString(cmp.Or(r.Message, "The request failed.")), openAIString(cmp.Or(kind, "invalid_request_error")), openAIStringOrNull(r.Param), openAIStringOrNull(r.Code))
}

// openAIVectors returns the response to an embeddings request. Each vector follows
// from the length of its input.
func openAIVectors(body []byte, r OpenAIReply) string {
	var in struct {
		Model  string         `json:"model"`
		Input  jsontext.Value `json:"input"`
		Format string         `json:"encoding_format"`
	}
	_ = json.Unmarshal(body, &in)
	inputs := []string{""}
	if json.Unmarshal(in.Input, &inputs) != nil {
		_ = json.Unmarshal(in.Input, &inputs[0])
	}
	vectors, tokens := make([]string, len(inputs)), 0
	for i, text := range inputs {
		vector := fmt.Sprintf(`[%d,0.5,-0.25]`, len(text))
		if in.Format == "base64" {
			vector = openAIString(openAIFloats(float32(len(text)), 0.5, -0.25))
		}
		vectors[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)
		tokens += len(strings.Fields(text))
	}
	usage := fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"total_tokens":%d}`, tokens, tokens)
	if r.Counts == CountsMissing {
		usage = ""
	}
	return fmt.Sprintf(`{"object":"list","data":[%s],"model":%s%s}`, strings.Join(vectors, ","), openAIString(in.Model), usage)
}

// openAIFloats returns a vector in base64, which OpenAI's clients request.
func openAIFloats(vector ...float32) string {
	var b []byte
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func callID(c OpenAICall, i int) string { return cmp.Or(c.ID, fmt.Sprintf("call_%024d", i+1)) }

func openAIString(s string) string {
	b, _ := jsontext.AppendQuote(nil, s)
	return string(b)
}

func openAIStringOrNull(s string) string {
	if s == "" {
		return "null"
	}
	return openAIString(s)
}
