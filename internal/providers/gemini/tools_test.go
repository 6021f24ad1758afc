package gemini

import (
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

const twoTools = `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`

// told is what a caller reads of an answer's only choice.
type told struct {
	text, finish string
	calls        []string
}

func (s *told) read(t *testing.T, data []byte) {
	t.Helper()
	type message struct {
		Content   string `json:"content"`
		ToolCalls []struct {
			Function openai.FunctionCall `json:"function"`
		} `json:"tool_calls"`
	}
	var c struct {
		Choices []struct {
			Message      message `json:"message"`
			Delta        message `json:"delta"`
			FinishReason string  `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	for _, choice := range c.Choices {
		s.finish += choice.FinishReason
		for _, m := range []message{choice.Message, choice.Delta} {
			s.text += m.Content
			for _, call := range m.ToolCalls {
				s.calls = append(s.calls, call.Function.Name)
			}
		}
	}
}

// ask sends a request to a model that answers with some parts, plain or in a
// stream with an event for each part.
func ask(t *testing.T, body string, stream bool, parts ...string) (s told) {
	t.Helper()
	p, server := start(t)
	event := func(parts, finish string) string {
		return `{"candidates":[{"content":{"role":"model","parts":[` + parts + `]}` + finish + `}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":7}}`
	}
	const stop = `,"finishReason":"STOP"`
	reply := upstreams.GeminiReply{Body: event(strings.Join(parts, ","), stop)}
	if stream {
		reply = upstreams.GeminiReply{}
		for _, part := range parts {
			reply.Events = append(reply.Events, event(part, ""))
		}
		reply.Events = append(reply.Events, event("", stop))
	}
	server.Queue(reply)
	answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "gemini-2.5-flash", Body: []byte(body), Stream: stream})
	if err != nil {
		t.Fatal(err)
	}
	if !stream {
		s.read(t, answer.Body)
		return s
	}
	defer answer.Stream.Close()
	for {
		chunk, err := answer.Stream.Next()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		s.read(t, chunk.Data)
	}
}

func TestArgumentsOfAnswerToolAreTheContent(t *testing.T) {
	t.Parallel()
	body := say(`"Time?"`, twoTools, `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`)
	const answer, words, call = `{"functionCall":{"name":"final_answer","args":{"time": "noon"}}}`, `{"text":"Here it is."}`, `{"functionCall":{"name":"f","args":{}}}`
	for _, stream := range []bool{false, true} {
		if s := ask(t, body, stream, words, answer, answer); s.text != `{"time":"noon"}` || s.finish != "stop" || len(s.calls) > 0 {
			t.Errorf("stream %v: %+v", stream, s)
		}
		if s := ask(t, body, stream, call); s.text != "" || s.finish != "tool_calls" || len(s.calls) != 1 {
			t.Errorf("stream %v: %+v for a call of the caller's", stream, s)
		}
	}
}

func TestOnlyFirstCallIsReturnedWithoutParallelCalls(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{`"parallel_tool_calls":false`: "f", `"parallel_tool_calls":true`: "f g", `"parallel_tool_calls":null`: "f g"} {
		for _, stream := range []bool{false, true} {
			s := ask(t, say(`"Time?"`, twoTools, fields), stream, `{"functionCall":{"name":"f","args":{}},"thoughtSignature":"YQ=="}`, `{"functionCall":{"name":"g","args":{}}}`)
			if got := strings.Join(s.calls, " "); got != want || s.finish != "tool_calls" {
				t.Errorf("%s, stream %v: %s, %s", fields, stream, got, s.finish)
			}
		}
	}
}

func TestParametersMustBeAnObjectSchema(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{}`:                                `{"type":"object"}`,
		`{"properties":{}}`:                 `{"type":"object","properties":{}}`,
		`{"type":"object"}`:                 `{"type":"object"}`,
		`{"type":["object","null"]}`:        `{"type":["object","null"]}`,
		`{"$ref":"#/$defs/A","$defs":{}}`:   `{"$ref":"#/$defs/A","$defs":{}}`,
		`{"type":"string","properties":{}}`: ``,
	} {
		got, err := declare(&openai.Tool{Function: &openai.Function{Name: "f", Parameters: jsontext.Value(in)}}, "tools[0]")
		if string(got.ParametersJSONSchema) != want || (err == nil) != (want != "") {
			t.Errorf("%s became %s, %v", in, got.ParametersJSONSchema, err)
		}
	}
}
