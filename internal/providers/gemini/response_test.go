package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

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
