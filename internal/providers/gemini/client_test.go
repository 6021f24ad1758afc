//go:build clients

package gemini

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/openai/openai-go/v3"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

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
