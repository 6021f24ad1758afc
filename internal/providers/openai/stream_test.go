package openai_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

const (
	hello = `{"id":"1","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}`
	stop  = `{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	used  = `{"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`
	done  = "data: [DONE]\n\n"
)

func event(data string) string { return "data: " + data + "\n\n" }

func TestStreamIsForwardedUnchanged(t *testing.T) {
	t.Parallel()
	ofThree := &providers.Usage{InputTokens: 3, OutputTokens: 4}
	for name, c := range map[string]struct {
		events string
		want   []string
		usage  *providers.Usage
		fails  providers.Kind
	}{
		"as OpenAI has it": {event(hello) + event(stop) + event(used) + done, []string{hello, stop, used}, ofThree, ""},
		"no usage":         {event(hello) + event(stop) + done, []string{hello, stop}, nil, ""},
		"zero usage":       {event(hello) + event(stop) + event(`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`) + done, []string{hello, stop}, nil, ""},
		"no output counted": {event(hello) + event(stop) + event(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}`) + done,
			[]string{hello, stop}, nil, ""},
		"usage null": {event(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`) + done, []string{`{"choices":[{"delta":{"content":"a"}}],"usage":null}`}, nil, ""},
		"usage on the last": {event(hello) + event(`{"id":"1","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4},"x":1}`) + done,
			[]string{hello, `{"id":"1","choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}],"usage":null,"x":1}`,
				`{"id":"1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4},"x":1}`}, ofThree, ""},
		"usage on every one": {event(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`) +
			event(`{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`) + event(used) + done,
			[]string{`{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":null}`, used}, ofThree, ""},
		"usage twice": {event(hello) + event(`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}`) + event(stop) + event(used) + done, []string{hello, stop, used}, ofThree, ""},
		"usage without choices": {event(stop) + event(`{"usage":{"prompt_tokens":3,"completion_tokens":4}}`) + done,
			[]string{stop, `{"usage":{"prompt_tokens":3,"completion_tokens":4},"choices":[]}`}, ofThree, ""},
		"Azure's filter":     {event(`{"choices":[],"prompt_filter_results":[{}]}`) + event(hello) + event(stop) + done, []string{`{"choices":[],"prompt_filter_results":[{}]}`, hello, stop}, nil, ""},
		"comments":           {": OPENROUTER PROCESSING\n\n" + event(hello) + ": x\n\n" + event(stop) + done, []string{hello, stop}, nil, ""},
		"empty data":         {event(hello) + "data:\n\n" + event(stop) + done, []string{hello, stop}, nil, ""},
		"several lines":      {"data: {\ndata: \"choices\":[]}\n\n" + done, []string{`{ "choices":[]}`}, nil, ""},
		"carriage returns":   {"data: " + hello + "\r\n\r\ndata: [DONE]\r\n\r\n", []string{hello}, nil, ""},
		"not for us":         {event(`{"a":[1,2],"choices":null}`) + event(`{"choices":[7,{"delta":"x"},{"delta":{"tool_calls":{}}}]}`) + done, []string{`{"a":[1,2],"choices":null}`, `{"choices":[7,{"delta":"x"},{"delta":{"tool_calls":{}}}]}`}, nil, ""},
		"more after the end": {event(stop) + done + event(hello), []string{stop}, nil, ""},
		"no [DONE]":          {event(hello) + event(stop), []string{hello, stop}, nil, ""},
		"no empty line":      {event(hello) + "data: [DONE]\n", []string{hello}, nil, ""},
		"no line's end":      {event(hello) + "data: [DONE]", []string{hello}, nil, ""},

		"no end at all":      {event(hello), []string{hello}, nil, providers.KindCut},
		"nothing":            {": hello\n\n", nil, nil, providers.KindCut},
		"half a chunk":       {event(hello) + "data: {\"id\":", []string{hello}, nil, providers.KindCut},
		"half a last chunk":  {event(stop) + "data: {\"id\":", []string{stop}, nil, providers.KindCut},
		"broken JSON":        {event(hello) + event(`{"id":`), []string{hello}, nil, providers.KindProtocol},
		"broken inside":      {event(hello) + event(`{"choices":[{"delta":{"content":"a}]}`), []string{hello}, nil, providers.KindProtocol},
		"no JSON":            {event("hello"), nil, nil, providers.KindProtocol},
		"no object":          {event("[]"), nil, nil, providers.KindProtocol},
		"an error":           {event(hello) + event(`{"error":{"message":"no","type":"server_error"}}`), []string{hello}, nil, providers.KindServer},
		"an error's number":  {event(hello) + event(`{"error":{"message":"no","code":"503"},"choices":[{"finish_reason":"error"}]}`), []string{hello}, nil, providers.KindOverloaded},
		"an error string":    {event(`{"error":"no"}`), nil, nil, providers.KindProtocol},
		"an error's event":   {"event: error\n" + event(`{"message":"no","type":"rate_limit_error"}`), nil, nil, providers.KindRateLimited},
		"older vLLM's error": {event(`{"object":"error","message":"no","code":400}`), nil, nil, providers.KindInvalid},
		"no error":           {event(`{"error":null,"choices":[]}`) + event(`{"error":{}}`) + done, []string{`{"error":null,"choices":[]}`, `{"error":{}}`}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			upstream.Queue(upstreams.OpenAIReply{Body: c.events, Type: "text/event-stream"})
			got, usage, err := collect(p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true}))
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if (usage == nil) != (c.usage == nil) || usage != nil && *usage != *c.usage {
				t.Errorf("got usage %+v, want %+v", usage, c.usage)
			}
			if c.fails == "" && err != nil || c.fails != "" && failure(err).Kind != c.fails {
				t.Errorf("got error %v, want %s", err, c.fails)
			}
		})
	}
}

func TestUsageIsReadInEveryFormat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts upstreams.OpenAICounts
		known  bool
	}{
		"OpenAI":         {upstreams.CountsUsual, true},
		"not at all":     {upstreams.CountsMissing, false},
		"zero":           {upstreams.CountsZero, false},
		"last chunk":     {upstreams.CountsOnLast, true},
		"on every chunk": {upstreams.CountsOnEvery, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			upstream.Queue(upstreams.OpenAIReply{Text: "one two three", Reasoning: "hm hm", Usage: &upstreams.OpenAIUsage{Input: 20, Output: 30, Cached: 16}, Counts: c.counts})
			result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true})
			chunks, usage, err := collect(result, err)
			if err != nil {
				t.Fatal(err)
			}
			want := providers.Usage{InputTokens: 20, OutputTokens: 30, CachedInput: 16}
			if !c.known {
				want = providers.Usage{OutputTokens: 5} // five chunks, 18 characters
			}
			if (usage != nil) != c.known || c.known && *usage != want || result.Stream.SoFar() != want {
				t.Errorf("got usage %+v and SoFar %+v, want %+v", usage, result.Stream.SoFar(), want)
			}
			text := ""
			for _, chunk := range chunks {
				var in struct {
					Choices []struct{ Delta struct{ Content string } }
				}
				if err := json.Unmarshal([]byte(chunk), &in); err != nil {
					t.Errorf("%s: %v", chunk, err)
				}
				for _, choice := range in.Choices {
					text += choice.Delta.Content
				}
			}
			if text != "one two three" {
				t.Errorf("got text %q", text)
			}
		})
	}
}

func TestOutputIsEstimatedWithoutUsage(t *testing.T) {
	t.Parallel()
	delta := func(s string) string { return `{"choices":[{"delta":` + s + `}]}` }
	for name, c := range map[string]struct {
		chunks []string
		want   int64
	}{
		"nothing":         {[]string{delta(`{"role":"assistant","content":""}`), delta(`{"content":null}`)}, 0},
		"one per chunk":   {[]string{delta(`{"content":"a"}`), delta(`{"content":"b"}`), delta(`{"content":"c"}`)}, 3},
		"by characters":   {[]string{delta(`{"content":"123456789"}`)}, 3},
		"not by bytes":    {[]string{delta(`{"content":"日本語の"}`), delta(`{"content":"ünïç"}`)}, 2},
		"nor by escapes":  {[]string{delta(`{"content":"\u00e9\"\\\n"}`)}, 1},
		"refusal":         {[]string{delta(`{"refusal":"12345"}`)}, 2},
		"reasoning":       {[]string{delta(`{"reasoning_content":"12345"}`), delta(`{"reasoning":"12345678"}`)}, 4},
		"tools":           {[]string{delta(`{"tool_calls":[{"index":0,"id":"call_123456789","function":{"name":"1234","arguments":""}},{"function":{"arguments":"{\"a\":1}"}}]}`)}, 3},
		"older functions": {[]string{delta(`{"function_call":{"name":"1234","arguments":"1234"}}`)}, 2},
		"choices":         {[]string{`{"choices":[{"delta":{"content":"1234"}},{"delta":{"content":"1234"}}]}`}, 2},
		"parts":           {[]string{delta(`{"content":[{"type":"text","text":"12345"}]}`)}, 2},
		"transcript":      {[]string{delta(`{"audio":{"id":"audio_123456789","transcript":"12345"}}`)}, 2},
		"sound":           {[]string{delta(`{"audio":{"data":"` + strings.Repeat("A", 16_000) + `"}}`), delta(`{"audio":{"data":"AAAA"}}`)}, 5},
		"little of it":    {[]string{delta(`{"audio":{"data":"AAAA"}}`), delta(`{"audio":{"data":"AAAA"}}`)}, 2},
		"the end of it":   {[]string{delta(`{"audio":{"expires_at":1741569952}}`), delta(`{"audio":{"id":"audio_1","transcript":"","data":null}}`)}, 0},
		"what is new":     {[]string{delta(`{"role":"assistant","smell":"roses"}`), delta(`{"content":"","taste":{"sweet":"yes"}}`)}, 2},
		"what is no news": {[]string{delta(`{"role":"assistant","smell":"","taste":{},"touch":[ ],"sight":null,"final":false}`)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			events := ""
			for _, chunk := range c.chunks {
				events += event(chunk)
			}
			upstream.Queue(upstreams.OpenAIReply{Body: events + event(stop) + done})
			result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true})
			if _, _, err := collect(result, err); err != nil {
				t.Fatal(err)
			}
			if got := result.Stream.SoFar(); got != (providers.Usage{OutputTokens: c.want}) {
				t.Errorf("got %+v, want %d output tokens", got, c.want)
			}
		})
	}
}

// TestStreamIsWholeWhenAllChoicesHaveFinished, however they are mixed.
func TestStreamIsWholeWhenAllChoicesHaveFinished(t *testing.T) {
	t.Parallel()
	says := func(index, finish string) string {
		return `{"choices":[{"delta":{"content":"a"},"finish_reason":` + finish + `,"index":` + index + `}]}`
	}
	for name, c := range map[string]struct {
		chunks []string
		whole  []bool
	}{
		"one":                {[]string{says("0", "null"), says("0", `"stop"`)}, []bool{false, true}},
		"one without index":  {[]string{hello, `{"choices":[{"delta":{},"finish_reason":"length"}]}`}, []bool{false, true}},
		"more after its end": {[]string{says("0", `"stop"`), `{"choices":[{"index":0,"delta":{},"finish_reason":null,"content_filter_offsets":{}}]}`, `{"choices":[]}`}, []bool{true, true, true}},
		"two":                {[]string{says("0", "null"), says("1", "null"), says("0", `"stop"`), says("1", `"stop"`)}, []bool{false, false, false, true}},
		"the second first":   {[]string{says("1", `"stop"`), says("0", `"stop"`)}, []bool{false, true}},
		"one after another":  {[]string{says("0", `"stop"`), says("1", "null"), says("1", `"stop"`)}, []bool{true, false, true}},
		"both at once":       {[]string{`{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"finish_reason":null}]}`, says("1", `"stop"`)}, []bool{false, true}},
		"empty on the way":   {[]string{says("0", `""`), says("0", `"stop"`)}, []bool{false, true}},
		"absurd":             {[]string{says("-1", "null"), says("1e999", `"stop"`), says(`"x"`, `"stop"`)}, []bool{false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			events := ""
			for _, chunk := range c.chunks {
				events += event(chunk)
			}
			upstream.Queue(upstreams.OpenAIReply{Body: events + event(used) + done})
			result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			defer result.Stream.Close()
			for i, want := range c.whole {
				if chunk, err := result.Stream.Next(); err != nil || chunk.Whole != want {
					t.Errorf("chunk %d: got Whole %t (%v)", i, chunk.Whole, err)
				}
			}
		})
	}
}

func TestCanceledRequestEndsTheStream(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Body: event(hello), Stall: len(event(hello))})
	ctx, cancel := context.WithCancel(t.Context())
	result, err := p.Chat(ctx, &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer result.Stream.Close()
	if chunk, err := result.Stream.Next(); string(chunk.Data) != hello || err != nil {
		t.Fatalf("%s, %v", chunk.Data, err)
	}
	cancel()
	for range 2 {
		if _, err := result.Stream.Next(); err != context.Canceled {
			t.Errorf("got %v", err)
		}
	}
	if got := result.Stream.SoFar(); got != (providers.Usage{OutputTokens: 2}) {
		t.Errorf("got SoFar %+v", got)
	}
	<-upstream.Requests()[0].Gone
}

func TestClosingTheStreamEndsTheRequest(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Body: event(hello), Stall: len(event(hello))})
	result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := result.Stream.Close(); err != nil {
			t.Error(err)
		}
	}
	<-upstream.Requests()[0].Gone
}

func TestStreamFailureHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		want  providers.Kind
	}{
		"cut":            {upstreams.OpenAIReply{Cut: 400}, providers.KindCut},
		"stalled":        {upstreams.OpenAIReply{Stall: 400}, providers.KindTimeout},
		"an endless":     {upstreams.OpenAIReply{Body: event(hello) + "data: " + strings.Repeat("x", 11<<20)}, providers.KindProtocol},
		"drips, is fine": {upstreams.OpenAIReply{Drip: time.Millisecond}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, key)
			timeouts := wire.Timeouts{}
			if c.want == providers.KindTimeout {
				timeouts.Idle = 150 * time.Millisecond
			}
			upstream.Queue(c.reply)
			chunks, _, err := collect(newProvider(upstream.BaseURL(), timeouts).Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true}))
			if c.want == "" && err != nil || c.want != "" && failure(err).Kind != c.want || len(chunks) == 0 {
				t.Errorf("got %d chunks and %v, want %s", len(chunks), err, c.want)
			}
		})
	}
}

func TestLongChunkIsForwarded(t *testing.T) {
	t.Parallel()
	long := `{"choices":[{"delta":{"content":"` + strings.Repeat("x", 10_000_000) + `"}}]}`
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Body: event(long) + event(stop) + done})
	chunks, _, err := collect(p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true}))
	if err != nil || len(chunks) != 2 || chunks[0] != long {
		t.Errorf("got %d chunks and %v, want all", len(chunks), err)
	}
}

// FuzzStream checks for every body that nothing panics, that chunks are JSON of one
// line, and that usage comes at most once, at the end.
func FuzzStream(f *testing.F) {
	for _, body := range []string{
		"", event(hello) + event(stop) + event(used) + done, event(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3}}`) + done,
		event(`{"error":{"code":429}}`), "data: {\ndata: \"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n" + event(stop), event(`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"\u`),
	} {
		f.Add([]byte(body))
	}
	var body atomic.Pointer[[]byte]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(*body.Load())
	}))
	f.Cleanup(server.Close)
	p := openai.New(openai.Options{Name: "fuzz", BaseURL: server.URL, Client: wire.NewClient(wire.Timeouts{})})
	f.Fuzz(func(t *testing.T, events []byte) {
		body.Store(&events)
		result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(`{}`), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		defer result.Stream.Close()
		for ended := false; ; {
			chunk, err := result.Stream.Next()
			if err != nil {
				if err != io.EOF && failure(err).Kind == "" {
					t.Errorf("ended with %v", err)
				}
				return
			}
			if ended || strings.ContainsAny(string(chunk.Data), "\r\n") || !json.Valid(chunk.Data) {
				t.Errorf("chunk %q", chunk.Data)
			}
			ended = chunk.Usage != nil
			if u := result.Stream.SoFar(); u.InputTokens < 0 || u.OutputTokens < 0 || u.CachedInput > u.InputTokens {
				t.Errorf("got SoFar %+v", u)
			}
		}
	})
}
