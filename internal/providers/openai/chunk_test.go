package openai

import (
	"testing"

	"turnpike/internal/providers"
)

func BenchmarkChunk(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abcdefgh"}`)
	s := &stream{provider: &Provider{}}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.chunk.read(data); err != nil {
			b.Fatal(err)
		}
		if s.forward(data) == nil {
			b.Fatal("lost")
		}
	}
}

func BenchmarkChatBody(b *testing.B) {
	body := []byte(`{"model":"ours","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Tell me about flamingos."}],"temperature":0.7,"stream":true}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (dialect{}).chatBody(&providers.ChatRequest{Model: "theirs", Body: body, Stream: true, MaxOutput: 100}); err != nil {
			b.Fatal(err)
		}
	}
}
