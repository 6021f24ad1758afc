//go:build clients

// Package sdk_test runs unmodified client libraries against the real program.
package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func client(s *harness.Server, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func ask(prompt string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "gpt-4o-mini", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

func onEach(t *testing.T, fn func(t *testing.T, c openai.Client)) {
	t.Helper()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		fn(t, client(s, key))
	})
}

func TestSDKListsModels(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c openai.Client) {
		seen := map[string]bool{}
		pager := c.Models.ListAutoPaging(t.Context())
		for pager.Next() {
			m := pager.Current()
			if m.ID == "" || m.OwnedBy == "" || m.Created == 0 {
				t.Errorf("a model lacks something: %s", m.RawJSON())
			}
			seen[m.ID] = true
		}
		if pager.Err() != nil || !seen["gpt-4o-mini"] {
			t.Errorf("%d models, %v", len(seen), pager.Err())
		}
		if m, err := c.Models.Get(t.Context(), "gpt-4o-mini"); err != nil || m.ID != "gpt-4o-mini" {
			t.Errorf("got %v, %v", m, err)
		}
	})
}

func TestSDKChatsPlainAndStreaming(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c openai.Client) {
		plain, err := c.Chat.Completions.New(t.Context(), ask("What is a turnpike?"))
		if err != nil {
			t.Fatal(err)
		}
		text := plain.Choices[0].Message.Content
		if text == "" || plain.Usage.TotalTokens != plain.Usage.PromptTokens+plain.Usage.CompletionTokens || plain.Usage.CompletionTokens == 0 {
			t.Errorf("answer: %s", plain.RawJSON())
		}

		p := ask("What is a turnpike?")
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.Chat.Completions.NewStreaming(t.Context(), p)
		acc := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if acc.Choices[0].Message.Content != text || acc.Usage.TotalTokens != plain.Usage.TotalTokens || acc.Choices[0].FinishReason != "stop" {
			t.Errorf("streamed %q with %d tokens, plain %q with %d", acc.Choices[0].Message.Content, acc.Usage.TotalTokens, text, plain.Usage.TotalTokens)
		}
	})
}

func TestSDKRunsAToolLoop(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c openai.Client) {
		p := ask("[[sim:tool=get_weather]] in Paris")
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "get_weather",
			Parameters: shared.FunctionParameters{"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer", "minimum": 1}}},
		})}
		first, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		message := first.Choices[0].Message
		if len(message.ToolCalls) != 1 || message.ToolCalls[0].Function.Name != "get_weather" || first.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("no tool call: %s", first.RawJSON())
		}
		var args struct{ City string }
		if err := json.Unmarshal([]byte(message.ToolCalls[0].Function.Arguments), &args); err != nil || args.City == "" {
			t.Errorf("arguments %q: %v", message.ToolCalls[0].Function.Arguments, err)
		}
		p.Messages = append(p.Messages, message.ToParam(), openai.ToolMessage("sunny, 21 °C", message.ToolCalls[0].ID))
		second, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if second.Choices[0].Message.Content == "" || len(second.Choices[0].Message.ToolCalls) != 0 {
			t.Errorf("the loop does not end: %s", second.RawJSON())
		}

		stream := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: p.Model, Tools: p.Tools, Messages: p.Messages[:1]})
		acc := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		if stream.Err() != nil || len(acc.Choices) == 0 || len(acc.Choices[0].Message.ToolCalls) != 1 ||
			acc.Choices[0].Message.ToolCalls[0].Function.Arguments != message.ToolCalls[0].Function.Arguments {
			t.Errorf("streamed tool call differs: %v", stream.Err())
		}
	})
}

func TestSDKGetsJSONOfTheSchema(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, c openai.Client) {
		p := ask("Describe a person")
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name: "person", Strict: openai.Bool(true), Schema: map[string]any{"type": "object", "additionalProperties": false,
				"required": []string{"name", "age"}, "properties": map[string]any{"name": map[string]any{"type": "string"}, "age": map[string]any{"type": "integer", "minimum": 18}}},
		}}
		r, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		var person struct {
			Name string
			Age  int
		}
		if err := json.Unmarshal([]byte(r.Choices[0].Message.Content), &person); err != nil || person.Age < 18 {
			t.Errorf("%q: %v", r.Choices[0].Message.Content, err)
		}
	})
}

func TestSDKUnderstandsErrors(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		live, _ := s.Key(t, w, accounts.Live)
		wrong := func(key, prompt, model string) *openai.Error {
			p := ask(prompt)
			if model != "" {
				p.Model = model
			}
			_, err := clientOf(s, key).Chat.Completions.New(t.Context(), p)
			var e *openai.Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: the SDK does not know the error: %v", prompt, err)
			}
			return e
		}
		if e := wrong("tp_test_x", "hi", ""); e.StatusCode != 401 || e.Code != "authentication_error" {
			t.Errorf("%d %s", e.StatusCode, e.Code)
		}
		if e := wrong(live, "hi", ""); e.StatusCode != 503 || e.Code != "no_provider" {
			t.Errorf("%d %s", e.StatusCode, e.Code)
		}
		if e := wrong(key, "hi", "no-such-model"); e.StatusCode != 404 || e.Code != "model_not_found" || e.Param != "model" {
			t.Errorf("%d %s %s", e.StatusCode, e.Code, e.Param)
		}
		if e := wrong(key, "[[sim:error=429]]", ""); e.StatusCode != 429 || e.Code != "rate_limit_exceeded" {
			t.Errorf("%d %s", e.StatusCode, e.Code)
		}

		stream := clientOf(s, key).Chat.Completions.NewStreaming(t.Context(), ask("[[sim:cut=2]] tell me a long story"))
		n := 0
		for stream.Next() {
			n++
		}
		if err := stream.Err(); err == nil || n == 0 || !strings.Contains(err.Error(), "upstream_error") {
			t.Errorf("a stream that breaks after its beginning gave %d chunks and %v", n, err)
		}
	})
}

func clientOf(s *harness.Server, key string) *openai.Client {
	c := client(s, key)
	return &c
}

func TestClientThatLeavesEndsTheCall(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		ctx, leave := context.WithCancel(t.Context())
		stream := clientOf(s, key).Chat.Completions.NewStreaming(ctx, ask("[[sim:length=2000]] [[sim:chunk_delay=20ms]]"))
		if !stream.Next() {
			t.Fatal(stream.Err())
		}
		leave()
		stream.Close()
		// The log entry is written long before the response would end after forty
		// seconds.
		s.Eventually(t, func() bool {
			r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?model=gpt-4o-mini", Key: key})
			return r.Text("data.0.usage_source") == "partial" && r.At("data.0.output_tokens") != nil && r.At("data.0.input_tokens") != 0.0
		})
	})
}
