package simulator

import (
	"context"
	"testing"

	"turnpike/internal/providers"
)

// shortPrompt is the prompt of the server's benchmark.
const shortPrompt = `{"model":"sim-1","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say hello in one short sentence, please."}],"temperature":0.7}`

func bench(b *testing.B, body string, stream bool) {
	s := New(Options{})
	req := &providers.ChatRequest{Model: "sim-1", Body: []byte(body), Stream: stream}
	run := func() {
		answer, err := s.Chat(context.Background(), req)
		if err != nil {
			b.Fatal(err)
		}
		for stream {
			if _, err := answer.Stream.Next(); err != nil {
				break
			}
		}
	}
	run() // loads the vocabulary
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}

func BenchmarkChatPlain(b *testing.B)  { bench(b, shortPrompt, false) }
func BenchmarkChatStream(b *testing.B) { bench(b, shortPrompt, true) }
func BenchmarkChatTool(b *testing.B) {
	bench(b, say("[[sim:tool=weather]]", weatherTool), false)
}
func BenchmarkChatSchema(b *testing.B) {
	bench(b, say("Hi", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":3}},"required":["city","days"],"additionalProperties":false}}}`), false)
}
func BenchmarkChatLong(b *testing.B) { bench(b, say("[[sim:length=16384]]"), false) }
