package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/openai/openai-go/v3"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

func TestFinishReasonsAreTranslated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, parts, want string }{
		{"STOP", `{"text":"x"}`, "stop"},
		{"STOP", `{"functionCall":{"name":"f"}}`, "tool_calls"},
		{"STOP", ``, "stop"},
		{"MAX_TOKENS", `{"text":"x"}`, "length"},
		{"MAX_TOKENS", `{"functionCall":{"name":"f"}}`, "length"},
		{"SAFETY", ``, "content_filter"},
		{"RECITATION", `{"text":"x"}`, "content_filter"},
		{"BLOCKLIST", ``, "content_filter"},
		{"PROHIBITED_CONTENT", ``, "content_filter"},
		{"SPII", ``, "content_filter"},
		{"IMAGE_SAFETY", ``, "content_filter"},
		{"LANGUAGE", `{"text":"x"}`, "stop"},
		{"OTHER", `{"text":"x"}`, "stop"},
		{"OTHER", ``, "server_error"},
		{"A_NEW_ONE", `{"text":"x"}`, "stop"},
		{"MALFORMED_FUNCTION_CALL", `{"text":"x"}`, "stop"},
		{"MALFORMED_FUNCTION_CALL", `{"functionCall":{"name":"f"}}`, "tool_calls"},
		{"MALFORMED_FUNCTION_CALL", ``, "server_error"},
		{"UNEXPECTED_TOOL_CALL", `{"text":"hm","thought":true}`, "server_error"},
		{"MALFORMED_RESPONSE", ``, "server_error"},
	} {
		body := fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s]},"finishReason":%q}]}`, c.parts, c.reason)
		for _, stream := range []bool{false, true} {
			if got := finishOf(t, body, stream); got != c.want {
				t.Errorf("%s with %s (stream %v): %s, want %s", c.reason, c.parts, stream, got, c.want)
			}
		}
	}
}

// finishOf is how an answer ends: its finish_reason, or the kind of failure.
func finishOf(t *testing.T, body string, stream bool) string {
	t.Helper()
	p, server := start(t)
	if stream {
		server.Queue(upstreams.GeminiReply{Events: []string{body}})
	} else {
		server.Queue(upstreams.GeminiReply{Body: body})
	}
	answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello), Stream: stream})
	var finish string
	read := func(data []byte) {
		var c struct {
			Choices []struct {
				FinishReason *string `json:"finish_reason"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatal(err)
		}
		for _, choice := range c.Choices {
			if choice.FinishReason != nil {
				finish = *choice.FinishReason
			}
		}
	}
	for stream && err == nil {
		var chunk providers.Chunk
		if chunk, err = answer.Stream.Next(); err == nil {
			read(chunk.Data)
		}
	}
	var f *providers.Failure
	switch {
	case errors.As(err, &f):
		return string(f.Kind)
	case err != nil && err != io.EOF:
		t.Fatal(err)
	case !stream:
		read(answer.Body)
	}
	return finish
}

func TestInvalidResponsesAreProtocolFailures(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `null`, `{}`, `[]`, `{"candidates":[]}`, `{"candidates":{}}`, `<html>`, `{"candidates":[{"content":{"parts":[{"text":1}]}}]}`} {
		if got := finishOf(t, body, false); got != "protocol" {
			t.Errorf("%q is %s", body, got)
		}
	}
	// A stream may have ended before anything was said.
	for body, want := range map[string]string{`{"candidates":{}}`: "protocol", `<html>`: "protocol", `{}`: "cut", `{"usageMetadata":{"promptTokenCount":1}}`: "cut"} {
		if got := finishOf(t, body, true); got != want {
			t.Errorf("%q in a stream is %s, want %s", body, got, want)
		}
	}
}

// OpenAI's own library is what reads our answers.
func TestOfficialClientReadsResponsesAndStreams(t *testing.T) {
	t.Parallel()
	const event = `{"candidates":[{"content":{"parts":[{"text":"Let me see."},{"functionCall":{"name":"f","args":{"a":1}}},{"functionCall":{"name":"g","args":{}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":7,"thoughtsTokenCount":2,"cachedContentTokenCount":3}}`
	p, server := start(t)
	server.Queue(upstreams.GeminiReply{Body: event}, upstreams.GeminiReply{Events: []string{event}})
	plain, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello)})
	if err != nil {
		t.Fatal(err)
	}
	var c openai.ChatCompletion
	if err := json.Unmarshal(plain.Body, &c); err != nil {
		t.Fatal(err)
	}
	checkCompletion(t, c)

	streamed, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(hello), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	var all openai.ChatCompletionAccumulator
	for {
		chunk, err := streamed.Stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var c openai.ChatCompletionChunk
		if err := json.Unmarshal(chunk.Data, &c); err != nil {
			t.Fatal(err)
		}
		if !all.AddChunk(c) {
			t.Errorf("not accepted: %s", chunk.Data)
		}
	}
	checkCompletion(t, all.ChatCompletion)
}

func checkCompletion(t *testing.T, c openai.ChatCompletion) {
	t.Helper()
	m := c.Choices[0].Message
	if len(c.Choices) != 1 || c.Choices[0].FinishReason != "tool_calls" || m.Content != "Let me see." || len(m.ToolCalls) != 2 {
		t.Fatalf("read as %+v", c)
	}
	if f := m.ToolCalls[0].Function; f.Name != "f" || f.Arguments != `{"a":1}` || m.ToolCalls[0].ID == m.ToolCalls[1].ID {
		t.Errorf("calls %+v", m.ToolCalls)
	}
	if u := c.Usage; u.PromptTokens != 5 || u.CompletionTokens != 9 || u.TotalTokens != 14 || u.PromptTokensDetails.CachedTokens != 3 || u.CompletionTokensDetails.ReasoningTokens != 2 {
		t.Errorf("usage %+v", u)
	}
}
