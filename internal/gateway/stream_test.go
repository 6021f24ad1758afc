package gateway

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"turnpike/internal/credits"
	"turnpike/internal/providers"
)

func TestWhereUsageComesFrom(t *testing.T) {
	t.Parallel()
	about := aboutTokens(int64(len(plainCall)) + frameTokens)
	aboutStreamed := aboutTokens(int64(len(streamedCall)) + frameTokens)
	plain := func(body string, u providers.Usage) doing {
		return func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
			return &providers.Answer{Body: []byte(body), Usage: u}, nil
		}
	}
	const answer = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"message":{"role":"assistant","content":"12345678","tool_calls":[{"id":"call_1","function":{"name":"abcd","arguments":"{\"a\":1}"}}]}}]}`
	base := newRig(t, nil)
	for name, tt := range map[string]struct {
		do      doing
		call    string
		in, out int64
		source  string
	}{
		"plain":                      {says(10, 5), plainCall, 10, 5, "provider"},
		"plain without":              {plain(answer, providers.Usage{}), plainCall, about, 6, "estimated"}, // 8 + 4 + 9 characters with the escapes
		"plain sound without":        {plain(`{"choices":[{"message":{"content":null,"audio":{"id":"audio_1","expires_at":1,"transcript":"12345678","data":"`+strings.Repeat("A", 6400)+`"}}}]}`, providers.Usage{}), plainCall, about, 4, "estimated"},
		"plain without output":       {plain(answer, providers.Usage{InputTokens: 3}), plainCall, 3, 6, "estimated"},
		"plain without input":        {plain(answer, providers.Usage{OutputTokens: 3}), plainCall, about, 3, "estimated"},
		"plain and silent":           {plain(`{"choices":[{"message":{"content":null}}]}`, providers.Usage{InputTokens: 3}), plainCall, 3, 0, "provider"},
		"plain nonsense":             {plain(answer, providers.Usage{InputTokens: -5, OutputTokens: -5}), plainCall, about, 6, "estimated"},
		"stream":                     {says(10, 5), streamedCall, 10, 5, "provider"},
		"stream without":             {streams(&fakeStream{chunks: []providers.Chunk{said("a"), said("b")}}), streamedCall, aboutStreamed, 2, "estimated"},
		"stream with zero":           {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{})}}), streamedCall, aboutStreamed, 1, "estimated"},
		"plain, estimated":           {plain(answer, providers.Usage{InputTokens: 3, OutputTokens: 4, Estimated: true}), plainCall, 3, 4, "estimated"},
		"stream, estimated":          {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{InputTokens: 4, OutputTokens: 2, Estimated: true})}}), streamedCall, 4, 2, "estimated"},
		"stream, twice":              {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{InputTokens: 4, OutputTokens: 1}), counted(providers.Usage{InputTokens: 4, OutputTokens: 9})}}), streamedCall, 4, 9, "provider"},
		"stream, in the middle":      {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{InputTokens: 4, OutputTokens: 1}), said("b"), said("c")}}), streamedCall, 4, 3, "estimated"},
		"stream, middle and the end": {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{InputTokens: 4, OutputTokens: 1}), said("b"), counted(providers.Usage{InputTokens: 4, OutputTokens: 2})}}), streamedCall, 4, 2, "provider"},
		"stream that breaks":         {streams(&fakeStream{chunks: []providers.Chunk{said("a"), said("b")}, end: &providers.Failure{Kind: providers.KindCut, Err: io.ErrUnexpectedEOF}}), streamedCall, aboutStreamed, 2, "partial"},
		"stream of more than all":    {streams(&fakeStream{chunks: []providers.Chunk{said("a"), counted(providers.Usage{InputTokens: 1 << 60, OutputTokens: 1 << 60})}}), streamedCall, 1 << 40, 1 << 40, "provider"},
	} {
		out := base.serving(t, []providers.Provider{doer("one", tt.do)}).chat(tt.call)
		if out.Input != tt.in || out.Output != tt.out || out.Source != tt.source {
			t.Errorf("%s: %d in, %d out by %s; expected %d, %d by %s (%v)", name, out.Input, out.Output, out.Source, tt.in, tt.out, tt.source, out.err)
		}
		if want := min(out.Reserved, credits.Micro(1000*tt.in+2000*tt.out)); out.Charged != want || out.Charged+out.Unbilled != credits.Micro(1000*tt.in+2000*tt.out) {
			t.Errorf("%s: charged %d, expected %d; %d not billed", name, out.Charged, want, out.Unbilled)
		}
	}
}

func TestUsageChunkIsForWhoAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	if out := r.chat(streamedCall); len(out.chunks) != 2 {
		t.Errorf("got %v", out.chunks)
	}
	if out := r.chat(countedCall); len(out.chunks) != 3 || !strings.Contains(out.chunks[2], `"usage":{"credits":0.02,"prompt_tokens":10,`) {
		t.Errorf("got %v", out.chunks)
	}
	silent := newRig(t, []providers.Provider{doer("one", streams(&fakeStream{chunks: []providers.Chunk{said("a")}}))})
	if out := silent.chat(streamedCall); len(out.chunks) != 1 {
		t.Errorf("got %v", out.chunks)
	}
	out := silent.chat(countedCall)
	if len(out.chunks) != 2 || !strings.HasPrefix(out.chunks[1], `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"credits":`) {
		t.Errorf("got %v", out.chunks)
	}
}

// TestStreamThatDoesNotKeepToItsLimit is cut as if the model had reached it.
func TestStreamThatDoesNotKeepToItsLimit(t *testing.T) {
	t.Parallel()
	chunks := make([]providers.Chunk, 100)
	for i := range chunks {
		chunks[i] = said("word")
	}
	p := doer("one", streams(&fakeStream{chunks: chunks, perChunk: 10}))
	r := newRig(t, []providers.Provider{p})
	out := r.chat(strings.Replace(countedCall, `"stream":true`, `"stream":true,"max_tokens":50,"n":2`, 1))
	if out.err != nil || len(out.chunks) != 22 { // twice 100 tokens, the end, and the usage
		t.Fatalf("%d chunks, %v", len(out.chunks), out.err)
	}
	end, usage := out.chunks[20], out.chunks[21]
	if !strings.Contains(end, `"created":7,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"},{"index":1,`) {
		t.Errorf("it ends with %s", end)
	}
	if !strings.Contains(usage, `"usage":{"credits":`+out.Charged.String()+`,`) || out.Source != "estimated" || out.Output != 210 {
		t.Errorf("%s; %+v", usage, out.entry)
	}
	// An estimate that is a little high cuts nobody.
	r = newRig(t, []providers.Provider{doer("one", streams(&fakeStream{chunks: chunks[:10], perChunk: 10}))})
	if out := r.chat(strings.Replace(streamedCall, `"stream":true`, `"stream":true,"max_tokens":60`, 1)); len(out.chunks) != 10 || strings.Contains(out.chunks[9], "length") {
		t.Errorf("cut: %v", out.chunks)
	}
}

func TestNextAfterTheEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, s := range map[string]*fakeStream{"end": {chunks: []providers.Chunk{said("a")}}, "error": {chunks: []providers.Chunk{said("a")}, end: broken}} {
		r := newRig(t, []providers.Provider{doer("one", streams(s))})
		c := r.open()
		c.Body = []byte(countedCall)
		answer, err := r.Chat(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		_, first := drain(answer.Stream)
		if data, err := answer.Stream.Next(); data != nil || err == nil || name == "error" && err != first {
			t.Errorf("%s: after the end came %q, %v", name, data, err)
		}
		for range 2 {
			if err := answer.Stream.Close(); err != nil {
				t.Errorf("%s: closing failed: %v", name, err)
			}
		}
		r.settle(c, &outcome{})
	}
}

// TestCloseWithoutNext: the log could not be written, say, so that nothing is
// sent.
func TestCloseWithoutNext(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	c := r.open()
	c.Body = []byte(streamedCall)
	answer, err := r.Chat(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Stream.Close()
	var out outcome
	if r.settle(c, &out); out.Source != "partial" || out.Output != 1 {
		t.Errorf("%+v", out.entry)
	}
}

func TestEmptyStreamIsAFailure(t *testing.T) {
	t.Parallel()
	empty, good := doer("empty", streams(&fakeStream{})), doer("good", says(10, 5))
	if out := newRig(t, []providers.Provider{empty}).chat(streamedCall); out.code != "upstream_error" || out.Charged != 0 {
		t.Errorf("%+v", out)
	}
	r := newRig(t, []providers.Provider{empty, good})
	r.upstreams[0].Weight = 1 << 40
	if out := r.chat(streamedCall); out.err != nil || out.Provider != "good" {
		t.Errorf("%+v", out)
	}
}

func TestSpliceUsage(t *testing.T) {
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
		if got := string(spliceUsage([]byte(in), credits.Credit/2)); got != want {
			t.Errorf("%s became %s, expected %s", in, got, want)
		}
	}
}
