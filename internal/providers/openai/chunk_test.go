package openai

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	chunkHead = `{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1","service_tier":"default","system_fingerprint":"fp_1","choices":[`
	chunkTail = `],"usage":null,"obfuscation":"abcdefgh"}`
)

func BenchmarkChunk(b *testing.B) {
	for name, content := range map[string]string{"text": ` word`, "escapes": `\n\n`} {
		b.Run(name, func(b *testing.B) {
			data := []byte(chunkHead + `{"index":0,"delta":{"content":"` + content + `"},"logprobs":null,"finish_reason":null}` + chunkTail)
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
		})
	}
}

// BenchmarkStream measures a whole stream of 22 chunks without the network, per chunk.
func BenchmarkStream(b *testing.B) {
	const chunks = 22
	event := "data: " + chunkHead + `{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}` + chunkTail + "\n\n"
	body := []byte(strings.Repeat(event, chunks-2) + strings.Replace(event, `"finish_reason":null`, `"finish_reason":"stop"`, 1) +
		"data: " + chunkHead + `],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}` + "\n\ndata: [DONE]\n\n")
	b.ReportAllocs()
	for b.Loop() {
		resp := &http.Response{Body: io.NopCloser(bytes.NewReader(body))}
		s := &stream{provider: &Provider{}, events: wire.NewEvents(resp, nil)}
		for n := 0; ; n++ {
			_, err := s.Next()
			if err == io.EOF && n == chunks {
				break
			}
			if err != nil {
				b.Fatal(n, err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
}

// A chunk is read as if it were the first one, whatever came before it.
func FuzzChunkAfterAnother(f *testing.F) {
	var seeds []string
	for _, choice := range []string{
		`{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"Wört"},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":null}`,
		`{"index":0,"delta":{"content":"a\"b\u00e4"},"logprobs":null,"finish_reason":null}`,
		"{\"index\":0,\"delta\":{\"content\":\"a\nb\"},\"logprobs\":null,\"finish_reason\":null}",
		`{"index":0,"delta":{"content":"a","reasoning":"b"},"finish_reason":""}`,
		`{"index":1,"delta":{"content":"a"},"finish_reason":"stop"}`,
		`{"index":0,"delta":{"audio":{"data":"` + strings.Repeat("A", 2*audioPerCharacter) + `"}}}`,
		`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{"}}]}},{"index":1,"delta":{}}`,
		``,
	} {
		seeds = append(seeds, chunkHead+choice+chunkTail)
	}
	seeds = append(seeds, `{"object":"a","x":"y","choices":[{"delta":"a"}],"choices":[{"delta":"b"}]}`, `{"object":"error","x":"z","choices":[{"delta":"a"}]}`,
		`{"x":"y","choices":"a"}`, `{"error":"","choices":[{"delta":"a"}]}`, `{"error":"e","choices":[{"delta":"a"}]}`,
		chunkHead+`{"delta":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, chunkHead+`{"delta":"b"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		`{"choices":[{"delta":"a"}]}x`, `{"choices":[{"delta":"a`, `[]`, `"`)
	for _, a := range seeds {
		for _, b := range seeds {
			f.Add([]byte(a), []byte(b))
		}
	}
	f.Fuzz(func(t *testing.T, before, data []byte) {
		read := func(s *stream, data []byte) string {
			data = bytes.Clone(data)
			defer clear(data) // the stream reuses it
			c := &s.chunk
			if c.read(data) != nil {
				return "invalid"
			}
			e, failed := findError(&c.object)
			usage, counted := c.usage()
			return fmt.Sprint(c.choices, c.characters, c.hasOutput, e, failed, usage, counted, string(s.forward(data)))
		}
		first := &stream{provider: &Provider{}}
		after := &stream{provider: &Provider{}}
		read(after, before)
		if want, got := read(first, data), read(after, data); got != want {
			t.Errorf("after %s\n%s\nis read as %s\nwant %s", before, data, got, want)
		}
	})
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
