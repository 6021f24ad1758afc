package gateway

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/providers"
)

func TestUsageSourceIsRecorded(t *testing.T) {
	t.Parallel()
	about := estimateTokens(int64(len(plainBody)) + frameTokens)
	aboutStreamed := estimateTokens(int64(len(streamBody)) + frameTokens)
	plain := func(body string, u providers.Usage) chatFunc {
		return func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
			return &providers.Response{Body: []byte(body), Usage: u}, nil
		}
	}
	const answer = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"message":{"role":"assistant","content":"12345678","tool_calls":[{"id":"call_1","function":{"name":"abcd","arguments":"{\"a\":1}"}}]}}]}`
	base := newFixture(t, nil)
	for name, tt := range map[string]struct {
		do      chatFunc
		call    string
		in, out int64
		source  string
	}{
		"plain":                      {respond(10, 5), plainBody, 10, 5, "provider"},
		"plain without input":        {plain(answer, providers.Usage{OutputTokens: 3}), plainBody, about, 3, "estimated"},
		"plain without any output":   {plain(`{"choices":[{"message":{"content":null}}]}`, providers.Usage{InputTokens: 3}), plainBody, 3, 0, "provider"},
		"plain nonsense":             {plain(answer, providers.Usage{InputTokens: -5, OutputTokens: -5}), plainBody, about, 0, "estimated"},
		"stream":                     {respond(10, 5), streamBody, 10, 5, "provider"},
		"stream without":             {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), textChunk("b")}}), streamBody, aboutStreamed, 2, "estimated"},
		"stream with zero":           {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{})}}), streamBody, aboutStreamed, 1, "estimated"},
		"plain, estimated":           {plain(answer, providers.Usage{InputTokens: 3, OutputTokens: 4, Estimated: true}), plainBody, 3, 4, "estimated"},
		"stream, estimated":          {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 2, Estimated: true})}}), streamBody, 4, 2, "estimated"},
		"stream, twice":              {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 1}), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 9})}}), streamBody, 4, 9, "provider"},
		"stream, in the middle":      {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 1}), textChunk("b"), textChunk("c")}}), streamBody, 4, 3, "estimated"},
		"stream, middle and the end": {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 1}), textChunk("b"), usageChunk(providers.Usage{InputTokens: 4, OutputTokens: 2})}}), streamBody, 4, 2, "provider"},
		"stream that breaks":         {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), textChunk("b")}, end: &providers.Failure{Kind: providers.KindCut, Err: io.ErrUnexpectedEOF}}), streamBody, aboutStreamed, 2, "partial"},
		"stream of more than all":    {respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a"), usageChunk(providers.Usage{InputTokens: 1 << 60, OutputTokens: 1 << 60})}}), streamBody, 1 << 40, 1 << 40, "provider"},
	} {
		out := base.withProviders(t, []providers.Provider{newFake("one", tt.do)}).chat(tt.call)
		if out.Input != tt.in || out.Output != tt.out || out.Source != tt.source {
			t.Errorf("%s: got %d in, %d out by %s; want %d, %d by %s (%v)", name, out.Input, out.Output, out.Source, tt.in, tt.out, tt.source, out.err)
		}
		if want := min(out.Reserved, credits.Micro(1000*tt.in+2000*tt.out)); out.Charged != want || out.Charged+out.Unbilled != credits.Micro(1000*tt.in+2000*tt.out) {
			t.Errorf("%s: charged %d, want %d; unbilled %d", name, out.Charged, want, out.Unbilled)
		}
	}
}

func TestUsageChunkIsSentOnlyOnRequest(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	if out := r.chat(streamBody); len(out.chunks) != 2 {
		t.Errorf("got %v", out.chunks)
	}
	if out := r.chat(streamUsageBody); len(out.chunks) != 3 || !strings.Contains(out.chunks[2], `"usage":{"credits":0.02,"prompt_tokens":10,`) {
		t.Errorf("got %v", out.chunks)
	}
	silent := newFixture(t, []providers.Provider{newFake("one", respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a")}}))})
	if out := silent.chat(streamBody); len(out.chunks) != 1 {
		t.Errorf("got %v", out.chunks)
	}
	out := silent.chat(streamUsageBody)
	if len(out.chunks) != 2 || !strings.HasPrefix(out.chunks[1], `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"credits":`) {
		t.Errorf("got %v", out.chunks)
	}
}

func TestStreamIgnoringItsLimitIsCut(t *testing.T) {
	t.Parallel()
	chunks := make([]providers.Chunk, 100)
	for i := range chunks {
		chunks[i] = textChunk("word")
	}
	p := newFake("one", respondStream(&fakeStream{chunks: chunks, perChunk: 10}))
	r := newFixture(t, []providers.Provider{p})
	out := r.chat(strings.Replace(streamUsageBody, `"stream":true`, `"stream":true,"max_tokens":50,"n":2`, 1))
	if out.err != nil || len(out.chunks) != 22 { // twice 100 tokens, the end, and the usage
		t.Fatalf("got %d chunks, want 22 (%v)", len(out.chunks), out.err)
	}
	end, usage := out.chunks[20], out.chunks[21]
	if !strings.Contains(end, `"created":7,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"},{"index":1,`) {
		t.Errorf("got last chunk %s", end)
	}
	if !strings.Contains(usage, `"usage":{"credits":`+out.Charged.String()+`,`) || out.Source != "estimated" || out.Output != 210 {
		t.Errorf("%s; %+v", usage, out.entry)
	}
	// An estimate that is slightly too high does not cut.
	r = newFixture(t, []providers.Provider{newFake("one", respondStream(&fakeStream{chunks: chunks[:10], perChunk: 10}))})
	if out := r.chat(strings.Replace(streamBody, `"stream":true`, `"stream":true,"max_tokens":60`, 1)); len(out.chunks) != 10 || strings.Contains(out.chunks[9], "length") {
		t.Errorf("cut too early: %v", out.chunks)
	}
}

func TestNextAfterEndRepeatsTheEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, s := range map[string]*fakeStream{"end": {chunks: []providers.Chunk{textChunk("a")}}, "error": {chunks: []providers.Chunk{textChunk("a")}, end: broken}} {
		r := newFixture(t, []providers.Provider{newFake("one", respondStream(s))})
		c := r.newCall()
		c.Body = []byte(streamUsageBody)
		response, err := r.Chat(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_, first := readAll(response.Stream)
		if data, err := response.Stream.Next(); data != nil || err == nil || name == "error" && err != first {
			t.Errorf("%s: got %q, %v after the end", name, data, err)
		}
		for range 2 {
			if err := response.Stream.Close(); err != nil {
				t.Errorf("%s: Close: %v", name, err)
			}
		}
		r.settle(c, &outcome{})
	}
}

// That happens if the log can't be written.
func TestUnreadStreamIsChargedPartially(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	c := r.newCall()
	c.Body = []byte(streamBody)
	response, err := r.Chat(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Stream.Close()
	var out outcome
	if r.settle(c, &out); out.Source != "partial" || out.Output != 1 {
		t.Errorf("%+v", out.entry)
	}
}

func TestEmptyStreamIsAProviderFailure(t *testing.T) {
	t.Parallel()
	empty, good := newFake("empty", respondStream(&fakeStream{})), newFake("good", respond(10, 5))
	if out := newFixture(t, []providers.Provider{empty}).chat(streamBody); out.code != "upstream_error" || out.Charged != 0 {
		t.Errorf("got %+v", out)
	}
	r := newFixture(t, []providers.Provider{empty, good})
	r.current.Load().Upstreams[0].Weight = 1 << 40
	if out := r.chat(streamBody); out.err != nil || out.Provider != "good" {
		t.Errorf("got %+v", out)
	}
}

func TestCreditsAreSplicedIntoUsage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"usage":{"a":1}}`: `{"usage":{"credits":0.5,"a":1}}`,
		`{"usage":{}}`:      `{"usage":{"credits":0.5}}`,
		`{"x":{"usage":{}},"usage": { "a" : 1 } }`: `{"x":{"usage":{}},"usage": {"credits":0.5, "a" : 1 } }`,
		`{"usage":{"a":1,"credits": 7.25,"b":2}}`:  `{"usage":{"a":1,"credits": 0.5,"b":2}}`,
		`{"usage":null}`: `{"usage":null}`,
		`{}`:             `{}`,
		`[]`:             `[]`,
		`{"usage":{"a":`: `{"usage":{"credits":0.5,"a":`,
		`{"id":"\ud800","usage":{"credits":"none"}}`: `{"id":"\ud800","usage":{"credits":0.5}}`,
	} {
		if got := string(withCredits([]byte(in), credits.Credit/2)); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// lateUsageStream delays its last chunk, the usage, until the test lets it arrive.
type lateUsageStream struct {
	fakeStream
	ctx     context.Context
	waits   chan struct{} // closed when the stream waits
	arrives chan struct{}
}

func (s *lateUsageStream) Next() (providers.Chunk, error) {
	if len(s.chunks) == 1 {
		close(s.waits)
		select {
		case <-s.ctx.Done():
		case <-s.arrives:
		}
		if s.ctx.Err() != nil {
			return providers.Chunk{}, s.ctx.Err()
		}
	}
	return s.fakeStream.Next()
}

func TestClientLeavingBeforeUsageChunkPaysInFull(t *testing.T) {
	t.Parallel()
	long := providers.Chunk{Data: make([]byte, maxBytesAfterDisconnect), Whole: true}
	end := textChunk("!")
	end.Whole = true
	base := newFixture(t, nil)
	for name, tt := range map[string]struct {
		chunks  []providers.Chunk
		arrives bool // the usage, after the client left
		out     int64
		source  string
	}{
		"usage arrives":     {[]providers.Chunk{textChunk("Hello"), end}, true, 6002, "provider"},
		"no usage arrives":  {[]providers.Chunk{textChunk("Hello"), end}, false, 2, "partial"},
		"too much arrives":  {[]providers.Chunk{textChunk("Hello"), end, long, long}, false, 4, "partial"},
		"output is missing": {[]providers.Chunk{end, textChunk("Hello")}, false, 2, "partial"},
	} {
		for _, how := range []string{"context canceled", "stream closed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				count := usageChunk(providers.Usage{InputTokens: 10, OutputTokens: 6002})
				s := &lateUsageStream{fakeStream: fakeStream{chunks: append(tt.chunks, count)}, waits: make(chan struct{}), arrives: make(chan struct{})}
				r := base.withProviders(t, []providers.Provider{newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
					s.ctx = ctx
					return &providers.Response{Stream: s}, nil
				})})
				if r.usageTimeout = time.Minute; !tt.arrives {
					r.usageTimeout = time.Millisecond
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				c := r.newCall()
				c.Body = []byte(streamBody)
				response, err := r.Chat(ctx, c)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := response.Stream.Next(); err != nil {
						t.Fatal(err)
					}
				}
				go func() {
					<-s.waits
					leave()
					if tt.arrives {
						close(s.arrives)
					}
				}()
				if how == "context canceled" {
					_, _ = readAll(response.Stream)
				}
				_ = response.Stream.Close()
				if s.ctx.Err() == nil {
					t.Error("the provider's call is not canceled")
				}
				var out outcome
				if r.settle(c, &out); out.Source != tt.source || out.Output != tt.out {
					t.Errorf("got %d tokens by %s, want %d by %s", out.Output, out.Source, tt.out, tt.source)
				}
			})
		}
	}
}

func TestEarlyDisconnectCancelsProvider(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	p := newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
		leave()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if out := newFixture(t, []providers.Provider{p}).chatIn(ctx, streamBody); out.code != "canceled" || out.Source != "partial" || p.calls() != 1 {
		t.Errorf("got %+v, want canceled and partial after one call", out)
	}
}

func TestProviderIsCanceledAfterByteLimit(t *testing.T) {
	t.Parallel()
	ctx, w := watchClient(t.Context(), time.Minute)
	defer w.stop()
	w.observeChunk(providers.Chunk{Data: make([]byte, 2*maxBytesAfterDisconnect), Whole: true})
	w.clientDisconnected()
	w.observeChunk(providers.Chunk{Data: make([]byte, maxBytesAfterDisconnect), Whole: true})
	w.observeChunk(providers.Chunk{Data: []byte("!"), Whole: true})
	if ctx.Err() == nil {
		t.Errorf("not canceled after %d bytes", w.bytesAfter)
	}
}
