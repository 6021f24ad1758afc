//go:build clients

package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// TestSDKWithEveryProvider gets the same results from each provider with the same
// client code, as if all were OpenAI. Its requests follow the order of the
// conversation.
func TestSDKWithEveryProvider(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			withUpstreams(t, engine, func(t *testing.T, s *harness.Server, key string, u upstream) {
				c := conversationWith{T: t, Client: client(s, key), upstream: u}
				c.chats()
				c.usesTools()
				c.getsJSON()
				c.shows()
				c.responds()
				c.respondsWithTools()
				c.embeds()
			})
		})
	}
}

type conversationWith struct {
	*testing.T
	openai.Client
	upstream
	simulated bool
}

// sim returns a magic input for the simulator.
func (c conversationWith) sim(input string) string {
	if !c.simulated {
		return ""
	}
	return " [[sim:" + input + "]]"
}

// openAIGo has the same conversation with the simulator.
func openAIGo(t *testing.T, to connection) string {
	t.Helper()
	c := conversationWith{T: t, simulated: true, upstream: upstream{model: to.model, embeddings: to.embeddings},
		Client: openai.NewClient(option.WithBaseURL(to.url+"/v1"), option.WithAPIKey(to.key), option.WithMaxRetries(0))}
	for _, step := range []func(){c.chats, c.usesTools, c.getsJSON, c.shows, c.responds, c.respondsWithTools, c.embeds, c.fails, c.cancels} {
		step()
	}
	return "ok: text\nok: streaming\nok: tools\nok: structured output\nok: images\nok: errors\nok: cancel\n"
}

func (c conversationWith) fails() {
	c.Helper()
	for prompt, status := range map[string]int{"[[sim:error=429]]": 429, "[[sim:error=503]]": 503} {
		_, err := c.Chat.Completions.New(c.Context(), c.ask(prompt))
		if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != status {
			c.Errorf("got %v, want status %d", err, status)
		}
	}
}

func (c conversationWith) cancels() {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	stream := c.Chat.Completions.NewStreaming(ctx, c.ask("[[sim:length=500]] [[sim:chunk_delay=50ms]]"))
	for stream.Next() {
		cancel()
	}
	if !errors.Is(stream.Err(), context.Canceled) {
		c.Errorf("a canceled stream ended with %v", stream.Err())
	}
}

func (c conversationWith) ask(prompt string) openai.ChatCompletionNewParams {
	p := ask(prompt)
	p.Model = c.model
	return p
}

func (c conversationWith) complete(p openai.ChatCompletionNewParams) *openai.ChatCompletion {
	c.Helper()
	r, err := c.Chat.Completions.New(c.Context(), p)
	if err != nil {
		c.Fatal(err)
	}
	if r.Model != c.model || r.Usage.PromptTokens == 0 || r.Usage.TotalTokens != r.Usage.PromptTokens+r.Usage.CompletionTokens {
		c.Errorf("answer: %s", r.RawJSON())
	}
	return r
}

func (c conversationWith) accumulate(p openai.ChatCompletionNewParams) *openai.ChatCompletionAccumulator {
	c.Helper()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	acc := &openai.ChatCompletionAccumulator{}
	last := ""
	for s := c.Chat.Completions.NewStreaming(c.Context(), p); ; {
		if !s.Next() {
			if s.Err() != nil {
				c.Fatal(s.Err())
			}
			break
		}
		if !acc.AddChunk(s.Current()) {
			c.Errorf("a chunk does not fit: %s", s.Current().RawJSON())
		}
		last = s.Current().RawJSON()
	}
	if !strings.Contains(last, `"credits":`) || acc.Usage.TotalTokens == 0 {
		c.Errorf("the stream ends with %s", last)
	}
	return acc
}

func (c conversationWith) chats() {
	c.Helper()
	if r := c.complete(c.ask("What is the answer?" + c.sim("text="+spoken))); r.Choices[0].Message.Content != spoken || r.Choices[0].FinishReason != "stop" {
		c.Errorf("answer: %s", r.RawJSON())
	}
	if acc := c.accumulate(c.ask("What is the answer?" + c.sim("text="+spoken))); acc.Choices[0].Message.Content != spoken || acc.Choices[0].FinishReason != "stop" {
		c.Errorf("streamed: %+v", acc.Choices)
	}
}

var weatherSchema = map[string]any{"type": "object", "required": []string{"city"}, "additionalProperties": false,
	"properties": map[string]any{"city": map[string]any{"type": "string"}}}

// weatherQuestion makes the model call the tool, and respond to its result.
func (c conversationWith) weatherQuestion() string {
	return "How is the weather in Paris?" + c.sim("script=tool:"+toolName+toolArgs+";text:"+spoken)
}

func (c conversationWith) usesTools() {
	c.Helper()
	p := c.ask(c.weatherQuestion())
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: toolName, Parameters: weatherSchema})}
	first := c.complete(p)
	m := first.Choices[0].Message
	if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != toolName || !sameJSON(m.ToolCalls[0].Function.Arguments, toolArgs) || first.Choices[0].FinishReason != "tool_calls" {
		c.Fatalf("no call: %s", first.RawJSON())
	}
	again := p
	again.Messages = append(append([]openai.ChatCompletionMessageParamUnion{}, p.Messages...), m.ToParam(), openai.ToolMessage("sunny", m.ToolCalls[0].ID))
	if r := c.complete(again); r.Choices[0].Message.Content != spoken {
		c.Errorf("after the call: %s", r.RawJSON())
	}
	acc := c.accumulate(p)
	calls := acc.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].ID == "" || calls[0].Function.Name != toolName || !sameJSON(calls[0].Function.Arguments, toolArgs) || acc.Choices[0].FinishReason != "tool_calls" {
		c.Errorf("streamed: %+v", acc.Choices)
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && jsonText(x) == jsonText(y)
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func (c conversationWith) getsJSON() {
	c.Helper()
	p := c.ask("Describe a person" + c.sim("text="+person))
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "person", Strict: openai.Bool(true), Schema: map[string]any{"type": "object", "additionalProperties": false, "required": []string{"name", "age"},
			"properties": map[string]any{"name": map[string]any{"type": "string"}, "age": map[string]any{"type": "integer"}}},
	}}
	if r := c.complete(p); !sameJSON(r.Choices[0].Message.Content, person) {
		c.Errorf("answer: %s", r.RawJSON())
	}
}

func (c conversationWith) shows() {
	c.Helper()
	p := c.ask("")
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart("What is this?" + c.sim("text="+spoken)), openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + pixel})})}
	if r := c.complete(p); r.Choices[0].Message.Content != spoken {
		c.Errorf("answer: %s", r.RawJSON())
	}
}

func (c conversationWith) respond(p responses.ResponseNewParams) *responses.Response {
	c.Helper()
	r, err := c.Responses.New(c.Context(), p)
	if err != nil {
		c.Fatal(err)
	}
	if r.Status != "completed" || r.Usage.TotalTokens == 0 {
		c.Errorf("response: %s", r.RawJSON())
	}
	return r
}

func (c conversationWith) responds() {
	c.Helper()
	p := responses.ResponseNewParams{Model: c.model, Instructions: openai.String("Be brief."), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("What is the answer?" + c.sim("text="+spoken))}}
	if r := c.respond(p); r.OutputText() != spoken {
		c.Errorf("response: %s", r.RawJSON())
	}
	text, completed := "", ""
	each(c.T, c.Responses.NewStreaming(c.Context(), p), func(e responses.ResponseStreamEventUnion) {
		switch e := e.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += e.Delta
		case responses.ResponseCompletedEvent:
			completed = e.Response.OutputText()
		}
	})
	if text != spoken || completed != spoken {
		c.Errorf("streamed %q, and completed %q", text, completed)
	}
}

// each passes the events of a stream to fn.
func each[T any](t *testing.T, s *ssestream.Stream[T], fn func(T)) {
	t.Helper()
	for s.Next() {
		fn(s.Current())
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

func (c conversationWith) respondsWithTools() {
	c.Helper()
	question := responses.ResponseInputItemParamOfMessage(c.weatherQuestion(), responses.EasyInputMessageRoleUser)
	p := responses.ResponseNewParams{Model: c.model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{question}},
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: toolName, Parameters: weatherSchema, Strict: openai.Bool(true)}}}}
	first := c.respond(p)
	var call responses.ResponseFunctionToolCall
	for _, item := range first.Output {
		if item.Type == "function_call" {
			call = item.AsFunctionCall()
		}
	}
	if call.Name != toolName || !sameJSON(call.Arguments, toolArgs) {
		c.Fatalf("no call: %s", first.RawJSON())
	}
	result := responses.ResponseInputItemParamOfFunctionCallOutput("sunny")
	result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
	p.Input.OfInputItemList = append(p.Input.OfInputItemList, responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), result)
	if r := c.respond(p); r.OutputText() != spoken {
		c.Errorf("after the call: %s", r.RawJSON())
	}
}

func (c conversationWith) embeds() {
	c.Helper()
	if c.embeddings == "" {
		_, err := c.Embeddings.New(c.Context(), openai.EmbeddingNewParams{Model: c.model, Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("one")}})
		var e *openai.Error
		if !errors.As(err, &e) || e.Code != "model_not_found" {
			c.Errorf("a model without embeddings gave %v", err)
		}
		return
	}
	r, err := c.Embeddings.New(c.Context(), openai.EmbeddingNewParams{Model: c.embeddings, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "three"}}})
	if err != nil {
		c.Fatal(err)
	}
	if len(r.Data) != 2 || len(r.Data[1].Embedding) == 0 || r.Data[1].Index != 1 || r.Usage.PromptTokens == 0 {
		c.Errorf("embeddings: %s", r.RawJSON())
	}
}
