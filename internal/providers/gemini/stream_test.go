package gemini

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

func streamOf(t *testing.T, reply upstreams.GeminiReply, body string) providers.Stream {
	t.Helper()
	p, server := start(t)
	server.Queue(reply)
	answer, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Stream.Close() })
	return answer.Stream
}

func next(t *testing.T, s providers.Stream) providers.Chunk {
	t.Helper()
	chunk, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return chunk
}

func TestCanceledStreamHasUsageSoFar(t *testing.T) {
	t.Parallel()
	// Before the first event: the prompt's guess, 8 characters.
	s := streamOf(t, upstreams.GeminiReply{Events: []string{
		`{"candidates":[{"content":{"parts":[{"text":"twelve bytes"}]}}],"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":9}}`,
		`{"candidates":[{"content":{"parts":[{"text":"more"}]}}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":11,"thoughtsTokenCount":5}}`,
	}}, say(`"12345678"`))
	if got, want := s.SoFar(), (providers.Usage{InputTokens: 2, Estimated: true}); got != want {
		t.Errorf("at first %+v, want %+v", got, want)
	}
	next(t, s) // role
	next(t, s)
	if got, want := s.SoFar(), (providers.Usage{InputTokens: 30, CachedInput: 9, OutputTokens: 3, Estimated: true}); got != want {
		t.Errorf("without a count %+v, want %+v", got, want)
	}
	next(t, s)
	if got, want := s.SoFar(), (providers.Usage{InputTokens: 30, OutputTokens: 16}); got != want {
		t.Errorf("with a count %+v, want %+v", got, want)
	}
}

func TestBrokenConnectionIsCut(t *testing.T) {
	t.Parallel()
	s := streamOf(t, upstreams.GeminiReply{Events: []string{`{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}`}, Cut: true}, hello)
	next(t, s)
	next(t, s)
	for range 2 { // an error stays
		if _, err := s.Next(); failureOf(t, err).Kind != providers.KindCut {
			t.Errorf("%v", err)
		}
	}
}

func TestLastEventNeedsNoEmptyLine(t *testing.T) {
	t.Parallel()
	whole := "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]},\"finishReason\":\"STOP\"}]}"
	for body, complete := range map[string]bool{whole: true, whole + "\n": true, whole[:len(whole)-2]: false} {
		s := streamOf(t, upstreams.GeminiReply{Body: body}, hello)
		got := string(show(t, s))
		if strings.HasSuffix(got, "end\n") != complete || !complete && !strings.Contains(got, "failure cut") {
			t.Errorf("%q: %s", body, got)
		}
	}
}

func TestUsageIsNullInChunksIfRequested(t *testing.T) {
	t.Parallel()
	s := streamOf(t, upstreams.GeminiReply{Events: []string{`{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}`}},
		say(`"Hi"`, `"stream_options":{"include_usage":true}`))
	for range 3 {
		if c := next(t, s); !strings.HasSuffix(string(c.Data), `,"usage":null}`) || c.Usage != nil {
			t.Errorf("chunk %s", c.Data)
		}
	}
	if c := next(t, s); !strings.Contains(string(c.Data), `"choices":[],"usage":{"prompt_tokens"`) || c.Usage == nil {
		t.Errorf("usage chunk %s", c.Data)
	}
	if _, err := s.Next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestClosingTheStreamEndsTheRequest(t *testing.T) {
	t.Parallel()
	p, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer, err := p.Chat(ctx, &providers.ChatRequest{Model: "m", Body: []byte(say(`"` + strings.Repeat("word ", 20_000) + `"`)), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	next(t, answer.Stream)
	cancel()
	for err == nil {
		_, err = answer.Stream.Next()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if err := answer.Stream.Close(); err != nil {
		t.Error(err)
	}
}
