package simulator

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// FuzzChat checks every body for these guarantees: no panic, a plain and a
// streamed request agree, responses are JSON, and rejections are faults with a
// message.
func FuzzChat(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `{"messages":1}`, `null`,
		say("Hello there"),
		say("日本語 🦩", `"max_tokens":3,"n":2,"stop":["a"],"logprobs":true`),
		say("[[sim:error=429]]"), say("[[sim:cut=2]]"), say("[[sim:length=30]] [[sim:finish=length]]"), say("[[sim:refusal]]"), say("[[sim:text=[x]]]"), say("[[sim:"),
		say("[[sim:script=tool:now+broken:weather*2;invalid;text:x]]", weatherTool), say("[[sim:script=tool:now{*;]]"),
		say("[[sim:tool=weather]] [[sim:tool=now]]", weatherTool, `"max_tokens":20`),
		say("hi", weatherTool, `"tool_choice":{"type":"function","function":{"name":"now"}}`),
		say("hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"$ref":"#"},"b":{"enum":[1,"x"]},"c":{"type":"string","pattern":"^a+$"}},"required":["b","c"]}}}`),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://example.com"}}]},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"x"}]}`,
	} {
		f.Add([]byte(body))
	}
	s := New(Options{Now: func() time.Time { return time.Unix(created, 0) }})
	f.Fuzz(func(t *testing.T, body []byte) {
		if strings.Contains(string(body), "delay") {
			t.Skip("it would only wait")
		}
		plain, err := s.Chat(context.Background(), &providers.ChatRequest{Model: "m", Body: body})
		if err != nil {
			if e, ok := fault.As(err); !ok || e.Message == "" || !utf8.ValidString(e.Message) || !utf8.ValidString(e.Param) {
				t.Errorf("refused with %v", err)
			}
		} else if !json.Valid(plain.Body) {
			t.Errorf("not JSON: %s", plain.Body)
		}
		answer, streamErr := s.Chat(context.Background(), &providers.ChatRequest{Model: "m", Body: body, Stream: true})
		if streamErr != nil {
			if err == nil {
				t.Errorf("the plain call is answered, the streamed one is not: %v", streamErr)
			}
			return
		}
		var used *providers.Usage
		for {
			chunk, err := answer.Stream.Next()
			if err != nil {
				if err != io.EOF && !fault.Is(err, fault.Upstream) {
					t.Errorf("the stream ended with %v", err)
				}
				break
			}
			if !json.Valid(chunk.Data) {
				t.Errorf("not JSON: %s", chunk.Data)
			}
			used = chunk.Usage
		}
		if err == nil && (used == nil || *used != plain.Usage) {
			t.Errorf("streamed usage %+v, plain %+v", used, plain.Usage)
		}
	})
}
