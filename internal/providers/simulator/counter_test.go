package simulator

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/simulator/o200k"
)

// counting is a simulator that reports how many bytes it has tokenized.
func counting() (s *Simulator, counted *atomic.Int64) {
	s, counted = New(Options{}), new(atomic.Int64)
	s.tokenizer.ends = func(text string) iter.Seq[int] {
		counted.Add(int64(len(text)))
		return o200k.Ends(text)
	}
	return s, counted
}

func chatOf(t *testing.T, fields map[string]any, contents ...string) *providers.ChatRequest {
	t.Helper()
	messages := make([]map[string]string, len(contents))
	for i, text := range contents {
		messages[i] = map[string]string{"role": "user", "content": text}
	}
	body := map[string]any{"messages": messages}
	for name, value := range fields {
		body[name] = value
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return &providers.ChatRequest{Model: "m", Body: text}
}

func TestWorkOfCountingIsBounded(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	part := strings.Repeat(" ", maxCounted-1)
	for name, c := range map[string]struct {
		fields   map[string]any
		contents []string
		bytes    int // of text
	}{
		"one long string": {nil, []string{strings.Repeat("a", 8*mib)}, 8 * mib},
		"many strings":    {nil, []string{part, part, part, part, part, part, part, part}, 8 * len(part)},
		"a schema": {map[string]any{"tools": []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "f", "parameters": map[string]any{"type": "object", "description": strings.Repeat("q", 2*mib)}}}}}, []string{"Hi"}, 2 * mib},
		"a long answer": {nil, []string{"[[sim:text=" + strings.Repeat("a", 2*mib) + "]]"}, 4 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, counted := counting()
			a, err := s.Chat(t.Context(), chatOf(t, c.fields, c.contents...))
			if err != nil {
				t.Fatal(err)
			}
			if n := counted.Load(); n > maxCounted {
				t.Errorf("tokenized %d bytes, want at most %d", n, maxCounted)
			}
			got := a.Usage.InputTokens + a.Usage.OutputTokens
			if want := int64(c.bytes-maxCounted) / estimatedBytes; got < want || got > want+maxCounted {
				t.Errorf("counted %d tokens, want %d for the rest and at most one for each byte before it", got, want)
			}
		})
	}
}

func TestTextIsCountedExactlyUpToTheLimit(t *testing.T) {
	t.Parallel()
	s, counted := counting()
	c := &counter{tokenizer: s.tokenizer, left: maxCounted}
	text := strings.Repeat("The quick brown fox. ", maxCounted/21)
	if got, want := c.count(text), o200k.Count(text); got != want {
		t.Errorf("counted %d tokens, want %d", got, want)
	}
	rest := maxCounted - len(text)
	long := strings.Repeat("fox ", 1000)
	if got, want := c.count(long), o200k.Count(long[:rest])+(len(long)-rest+3)/4; got != want {
		t.Errorf("beyond the limit counted %d tokens, want %d", got, want)
	}
	if got := c.count("hello world"); got != 3 || counted.Load() != maxCounted {
		t.Errorf("estimated %d tokens, want 3; tokenized %d bytes, want %d", got, counted.Load(), maxCounted)
	}
	kept, ends, cut := c.tokenize("héllo wörld", 2)
	if kept != "héllo w" || len(ends) != 2 || !cut {
		t.Errorf("cut %q at %v, want 8 bytes after 2 estimated tokens", kept, ends)
	}
}

func TestWorkOfEmbeddingsIsBounded(t *testing.T) {
	t.Parallel()
	s, counted := counting()
	embeddings := func(inputs ...string) error {
		body, err := json.Marshal(map[string]any{"input": inputs, "dimensions": 8})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Embeddings(t.Context(), "m", body)
		return err
	}
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprint(i, strings.Repeat(" a", 8_000)))
	}
	if err := embeddings(many[:32]...); err != nil {
		t.Error(err)
	}
	if n := counted.Load(); n > maxCounted {
		t.Errorf("tokenized %d bytes, want at most %d", n, maxCounted)
	}
	for len(many) < 100 {
		many = append(many, many[0])
	}
	if f, ok := fault.As(embeddings(many...)); !ok || f.Param != "input" {
		t.Errorf("more than %d tokens gave %v, want a refusal of input", maxTotalTokens, f)
	}
}

// Decode fails if the request has ended, so this shows what runs in it.
func TestOnlyLargeRequestsWaitForDecoding(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(Options{})
	for size, want := range map[int]error{smallRequest: nil, smallRequest + 1: context.Canceled} {
		if err := s.tokenizer.counting(ctx, size, func(*counter) error { return nil }); !errors.Is(err, want) {
			t.Errorf("counting %d bytes of a request that has ended: %v, want %v", size, err, want)
		}
	}
	images := &providers.ImageRequest{Body: []byte(`{"prompt":"a","size":"64x64"}`)}
	if _, err := s.Images(ctx, images); !errors.Is(err, context.Canceled) {
		t.Errorf("drawing for a request that has ended: %v, want %v", err, context.Canceled)
	}
}

func BenchmarkEmbed(b *testing.B) {
	text := strings.Repeat("some words ", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		embed(text, defaultDimensions)
	}
}
