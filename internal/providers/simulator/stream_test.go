package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

func TestStreamAnnouncesItsPauses(t *testing.T) {
	t.Parallel()
	for delay, want := range map[string]bool{"": false, "[[sim:chunk_delay=1ms]]": true} {
		pauses, chunks := 0, 0
		req := &providers.ChatRequest{Model: "m", Stream: true, BeforeWait: func() error { pauses++; return nil }, Body: []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi ` + delay + `"}]}`)}
		answer, err := New(Options{}).Chat(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for ; err == nil; chunks++ {
			_, err = answer.Stream.Next()
		}
		if (pauses == chunks-2) != want || !want && pauses > 0 { // before every chunk but the first, and none before the end
			t.Errorf("%q: %d pauses and %d chunks", delay, pauses, chunks)
		}
	}
}

// streamed is the message that a client assembles from the chunks of the first
// choice.
type streamed struct {
	text, refusal string
	calls         []providerCall
	finish        string
	usage         providers.Usage
	chunks        []completion
}

type providerCall struct{ id, name, arguments string }

func readStream(t *testing.T, body string) streamed {
	t.Helper()
	chunks, used, err := readAll(t, openStream(t.Context(), t, body))
	if err != nil {
		t.Fatal(err)
	}
	if used == nil {
		t.Fatal("the last chunk carries no usage")
	}
	s := streamed{usage: *used, chunks: chunks}
	for _, c := range chunks[:len(chunks)-1] {
		choice := c.Choices[0]
		if choice.Index != 0 {
			continue
		}
		if choice.Delta.Content != nil {
			s.text += *choice.Delta.Content
		}
		if choice.Delta.Refusal != nil {
			s.refusal += *choice.Delta.Refusal
		}
		for _, call := range choice.Delta.ToolCalls {
			if call.ID != "" {
				if call.Index != len(s.calls) || call.Type != "function" {
					t.Errorf("call %+v is not the next one", call)
				}
				s.calls = append(s.calls, providerCall{id: call.ID, name: call.Function.Name})
			}
			s.calls[call.Index].arguments += call.Function.Arguments
		}
		if choice.FinishReason != nil {
			s.finish = *choice.FinishReason
		}
	}
	return s
}

const weatherTool = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}}},{"type":"function","function":{"name":"now"}}]`

func TestStreamAddsUpToTheUnstreamedResponse(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"sentence":   say("Hello there, how are you?"),
		"characters": say("日本語 👩‍🚀 Grüße 🦩"),
		"control":    say("[[sim:text=tab\tquote\"back\\slash\u2028\x01]]"),
		"nothing":    say("[[sim:text=]]"),
		"limit":      say("Hello there", `"max_tokens":3`),
		"stop":       say("Hello there", `"stop":["simulated"]`),
		"length":     say("[[sim:length=300]]"),
		"refusal":    say("[[sim:refusal]]"),
		"choices":    say("Hello", `"n":3`),
		"json":       say("Hello", `"response_format":{"type":"json_object"}`),
		"tool":       say("[[sim:tool=weather]]", weatherTool),
		"tools":      say("[[sim:tool=weather]] [[sim:tool=now]] [[sim:tool=weather]]", weatherTool),
		"cut tool":   say("[[sim:tool=weather]] [[sim:tool=now]]", weatherTool, `"max_tokens":9`),
		"no tool":    say("[[sim:tool=weather]]", weatherTool, `"max_tokens":2`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, s := ask(t, body), readStream(t, body)
			message := plain.Choices[0].Message
			if message.Content != nil && s.text != *message.Content || message.Content == nil && s.text != "" {
				t.Errorf("streamed %q, plain %v", s.text, message.Content)
			}
			if message.Refusal != nil && s.refusal != *message.Refusal {
				t.Errorf("streamed refusal %q, plain %q", s.refusal, *message.Refusal)
			}
			if len(s.calls) != len(message.ToolCalls) {
				t.Fatalf("streamed %d calls, plain %d", len(s.calls), len(message.ToolCalls))
			}
			for i, call := range message.ToolCalls {
				if want := (providerCall{call.ID, call.Function.Name, call.Function.Arguments}); s.calls[i] != want {
					t.Errorf("streamed call %+v, plain %+v", s.calls[i], want)
				}
			}
			if s.finish != *plain.Choices[0].FinishReason {
				t.Errorf("streamed %q, plain %q", s.finish, *plain.Choices[0].FinishReason)
			}
			if s.usage.InputTokens != plain.Usage.PromptTokens || s.usage.OutputTokens != plain.Usage.CompletionTokens {
				t.Errorf("streamed %+v, plain %+v", s.usage, plain.Usage)
			}
			for _, c := range s.chunks {
				// Equal bodies have equal IDs.
				if c.ID != plain.ID || c.Object != "chat.completion.chunk" || c.Created != created || c.Model != "m" {
					t.Errorf("chunk %+v", c)
				}
			}
		})
	}
}

func TestStreamHasOpenAIsOrder(t *testing.T) {
	t.Parallel()
	chunks := readStream(t, say("Hello")).chunks
	first, finish, last := chunks[0], chunks[len(chunks)-2], chunks[len(chunks)-1]
	if d := first.Choices[0].Delta; d.Role != "assistant" || d.Content == nil || *d.Content != "" {
		t.Errorf("first delta %+v", d)
	}
	for _, c := range chunks[1 : len(chunks)-2] {
		if d := c.Choices[0].Delta; d.Role != "" || d.Content == nil || *d.Content == "" || c.Choices[0].FinishReason != nil {
			t.Errorf("content delta %+v", d)
		}
	}
	if d := finish.Choices[0].Delta; d.Content != nil || d.Role != "" || finish.Choices[0].FinishReason == nil {
		t.Errorf("last delta %+v", d)
	}
	if len(last.Choices) != 0 || last.Usage == nil {
		t.Errorf("usage chunk %+v", last)
	}
	// One chunk for each token.
	if got, want := len(chunks)-3, int(last.Usage.CompletionTokens); got != want {
		t.Errorf("%d content chunks for %d tokens", got, want)
	}
}

func TestIncludeUsageAddsNullUsageToOtherChunks(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]int{
		`"stream":true`: 0,
		`"stream_options":{"include_usage":false}`: 0,
		`"stream_options":{"include_usage":true}`:  1,
	} {
		s := openStream(t.Context(), t, say("Hi", options))
		for {
			chunk, err := s.Next()
			if err != nil {
				break
			}
			if got := strings.Count(string(chunk.Data), `"usage":null`); chunk.Usage == nil && got != want {
				t.Errorf("%s: %s", options, chunk.Data)
			}
		}
	}
}

func TestChunksStayValidWhenKept(t *testing.T) {
	t.Parallel()
	s := openStream(t.Context(), t, say("[[sim:length=200]]"))
	var kept [][]byte
	var copies []string
	for {
		chunk, err := s.Next()
		if err != nil {
			break
		}
		kept = append(kept, chunk.Data)
		copies = append(copies, string(chunk.Data))
		_ = append(chunk.Data, "a reader that appends must not reach the next chunk"...)
	}
	for i := range kept {
		if string(kept[i]) != copies[i] || !json.Valid(kept[i]) {
			t.Fatalf("chunk %d was %s and is %s", i, copies[i], kept[i])
		}
	}
}

func TestMagicCutEndsStreamWithUpstreamError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		body    string
		content int
	}{
		{say("[[sim:cut=5]] and much more text than that"), 5},
		{say("[[sim:cut=0]]"), 0},
		{say("[[sim:cut=100]] [[sim:length=7]]"), 7},
		{say("[[sim:cut=2]] [[sim:tool=weather]]", weatherTool), 2},
	} {
		chunks, used, err := readAll(t, openStream(t.Context(), t, test.body))
		if !fault.Is(err, fault.Upstream) || used != nil {
			t.Errorf("%s: ended with %v, usage %v", test.body, err, used)
		}
		if got := len(chunks) - 1; got != test.content {
			t.Errorf("%s: %d content chunks, want %d", test.body, got, test.content)
		}
		if err := askFor(test.body); !fault.Is(err, fault.Upstream) {
			t.Errorf("%s: the plain call gave %v", test.body, err)
		}
	}
}

func TestMagicDelayDelaysTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ask(t, say("[[sim:delay=2s]]"))
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("the answer took %v", d)
		}
		start = time.Now()
		if err := askFor(say("[[sim:delay=500ms]] [[sim:error=503]]")); !fault.Is(err, fault.Overloaded) || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestMagicDelayEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := newSimulator().Chat(ctx, &providers.ChatRequest{Body: []byte(say("[[sim:delay=60s]]"))})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestMagicChunkDelaySeparatesChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := readStream(t, say("[[sim:chunk_delay=20ms]] [[sim:length=10]]"))
		if d, want := time.Since(start), 20*time.Millisecond*time.Duration(len(s.chunks)-1); d != want {
			t.Errorf("%d chunks took %v, want %v", len(s.chunks), d, want)
		}
	})
}

func TestStreamEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, body := range []string{say("[[sim:chunk_delay=1s]]"), say("no delay")} {
			ctx, cancel := context.WithCancel(t.Context())
			s := openStream(ctx, t, body)
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
			cancel()
			if _, err := s.Next(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: after the caller left came %v", body, err)
			}
		}
	})
}
