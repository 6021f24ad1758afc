package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

const sonnet = "claude-sonnet-4-5"

func simple(stream bool) *providers.ChatRequest {
	return &providers.ChatRequest{Model: sonnet, Stream: stream, Body: []byte(ask())}
}

// failure returns the failure of a request. It reads a stream to its end.
func failure(t *testing.T, p *Provider, stream bool) *providers.Failure {
	t.Helper()
	answer, err := p.Chat(t.Context(), simple(stream))
	if err == nil && stream {
		_, err = readAll(answer.Stream)
	}
	var f *providers.Failure
	if !errors.As(err, &f) {
		t.Fatalf("stream %v: got %v, want a failure", stream, err)
	}
	return f
}

func readAll(s providers.Stream) (chunks []string, err error) {
	defer s.Close()
	for {
		chunk, err := s.Next()
		if err == io.EOF {
			return chunks, nil
		}
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, string(chunk.Data))
	}
}

func TestErrorsMapToKinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  int
		kind    string
		message string
		want    providers.Kind
		param   string
	}{
		{400, "invalid_request_error", "max_tokens: 9 > 8, which is the maximum", providers.KindInvalid, "max_tokens"},
		{400, "invalid_request_error", "messages.3.content.0.image.source.base64: too large", providers.KindInvalid, "messages"},
		{400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", providers.KindInvalid, "messages"},
		{400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again", providers.KindInvalid, "max_tokens"},
		{400, "invalid_request_error", "output_config.format.schema: Schema is too complex.", providers.KindInvalid, "response_format"},
		{400, "invalid_request_error", "Something else: it is wrong", providers.KindInvalid, ""},
		{400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.", providers.KindAuth, ""},
		{400, "invalid_request_error", "You have reached your specified API usage limits.", providers.KindAuth, ""},
		{401, "authentication_error", "invalid x-api-key", providers.KindAuth, ""},
		{402, "billing_error", "no money", providers.KindAuth, ""},
		{403, "permission_error", "not yours", providers.KindAuth, ""},
		{404, "not_found_error", "model: claude-9", providers.KindNoModel, "model"},
		{409, "conflict_error", "again", providers.KindServer, ""},
		{413, "request_too_large", "Request exceeds the maximum size", providers.KindInvalid, ""},
		{429, "rate_limit_error", "slow down", providers.KindRateLimited, ""},
		{500, "api_error", "Internal server error", providers.KindServer, ""},
		{504, "timeout_error", "too slow", providers.KindTimeout, ""},
		{529, "overloaded_error", "Overloaded", providers.KindOverloaded, ""},
		{503, "new_error", "?", providers.KindOverloaded, ""},
	} {
		t.Run(fmt.Sprint(test.status, test.kind), func(t *testing.T) {
			t.Parallel()
			p, mock := newProvider(t)
			body := upstreams.AnthropicError(test.kind, test.message)
			mock.Queue(upstreams.AnthropicReply{Status: test.status, Body: body, Header: http.Header{"Retry-After": {"7"}}})
			f := failure(t, p, false)
			if f.Kind != test.want || f.Status != test.status || f.Param != test.param || f.RetryAfter != 7*time.Second || !strings.Contains(f.Error(), test.message) {
				t.Errorf("%+v", f)
			}
			if test.kind == "new_error" {
				return
			}
			// The same inside a stream.
			mock.Queue(upstreams.AnthropicReply{Events: []string{started, body}})
			if f := failure(t, p, true); f.Kind != test.want || f.Param != test.param || !strings.Contains(f.Error(), test.message) {
				t.Errorf("in the stream: %+v", f)
			}
		})
	}
}

const (
	started = `{"type":"message_start","message":{"type":"message","role":"assistant","model":"` + sonnet + `","content":[],"usage":{"input_tokens":20,"cache_read_input_tokens":30,"output_tokens":2}}}`
	textOn  = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	hello   = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, how are you today?"}}`
	textOff = `{"type":"content_block_stop","index":0}`
	stopped = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`
	ended   = `{"type":"message_stop"}`
)

func TestErrorAtStartOfStreamIsReturnedByChat(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Events: []string{`{"type":"ping"}`, upstreams.AnthropicError("overloaded_error", "Overloaded")}})
	_, err := p.Chat(t.Context(), simple(true))
	var f *providers.Failure
	if !errors.As(err, &f) || f.Kind != providers.KindOverloaded {
		t.Errorf("%v", err)
	}
}

func TestInvalidResponsesAreFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply  upstreams.AnthropicReply
		stream bool
		want   providers.Kind
	}{
		"HTML":                      {upstreams.AnthropicReply{Body: "<html>"}, false, providers.KindProtocol},
		"nothing":                   {upstreams.AnthropicReply{}, false, providers.KindProtocol},
		"another object":            {upstreams.AnthropicReply{Body: `{"object":"chat.completion"}`}, false, providers.KindProtocol},
		"wrong types":               {upstreams.AnthropicReply{Body: `{"type":"message","content":"x"}`}, false, providers.KindProtocol},
		"an error with 200":         {upstreams.AnthropicReply{Body: upstreams.AnthropicError("rate_limit_error", "x")}, false, providers.KindRateLimited},
		"a body cut":                {upstreams.AnthropicReply{Body: `{"type":"mess`, Cut: true}, false, providers.KindCut},
		"an HTML error":             {upstreams.AnthropicReply{Status: 502, Body: "<html>"}, false, providers.KindServer},
		"no stream":                 {upstreams.AnthropicReply{Body: `{"type":"message"}`}, true, providers.KindProtocol},
		"an empty stream":           {upstreams.AnthropicReply{Events: []string{}}, true, providers.KindCut},
		"a cut before it begins":    {upstreams.AnthropicReply{Events: []string{`{"type":"ping"}`}, Cut: true}, true, providers.KindCut},
		"a cut in the middle":       {upstreams.AnthropicReply{Events: []string{started, textOn, hello}, Cut: true}, true, providers.KindCut},
		"an end in the middle":      {upstreams.AnthropicReply{Events: []string{started, textOn, hello}}, true, providers.KindCut},
		"an end before the stop":    {upstreams.AnthropicReply{Events: []string{started, textOn, hello, textOff, stopped}}, true, providers.KindCut},
		"garbage in the middle":     {upstreams.AnthropicReply{Events: []string{started, "garbage"}}, true, providers.KindProtocol},
		"a delta before the start":  {upstreams.AnthropicReply{Events: []string{hello}}, true, providers.KindProtocol},
		"a start without a message": {upstreams.AnthropicReply{Events: []string{`{"type":"message_start"}`}}, true, providers.KindProtocol},
		"two starts":                {upstreams.AnthropicReply{Events: []string{started, started}}, true, providers.KindProtocol},
		"an error of no known type": {upstreams.AnthropicReply{Events: []string{started, `{"type":"error"}`}}, true, providers.KindServer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, mock := newProvider(t)
			mock.Queue(test.reply)
			if f := failure(t, p, test.stream); f.Kind != test.want {
				t.Errorf("got %v, want %s", f, test.want)
			}
		})
	}
}

func TestUnknownEventsAndBlocksAreIgnored(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Events: []string{
		started, `{"type":"new_event","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"x","name":"web_search","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"lost"}}`,
		`{"type":"content_block_start","index":2}`, `{"type":"content_block_stop","index":9}`,
		textOn, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}`, hello, textOff, stopped, ended, "garbage",
	}})
	answer, err := p.Chat(t.Context(), simple(true))
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := readAll(answer.Stream)
	if err != nil || len(chunks) != 4 { // role, text, finish, usage
		t.Errorf("%d chunks, %v: %s", len(chunks), err, chunks)
	}
}

func TestCanceledStreamIsChargedForWhatArrived(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Hold: make(chan struct{}), Events: []string{
		started,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		// 400 bytes of base64 are 300 bytes of thinking: 75 tokens.
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"` + strings.Repeat("A", 400) + `"}}`,
		textOff, textOn, hello,
	}})
	ctx, cancel := context.WithCancel(t.Context())
	answer, err := p.Chat(ctx, simple(true))
	if err != nil {
		t.Fatal(err)
	}
	want := providers.Usage{InputTokens: 50, CachedInput: 30, OutputTokens: 2}
	if got := answer.Stream.SoFar(); got != want {
		t.Errorf("usage at the start: got %+v, want %+v", got, want)
	}
	for range 2 { // role, text
		if _, err := answer.Stream.Next(); err != nil {
			t.Fatal(err)
		}
	}
	want.OutputTokens, want.Estimated = (300+int64(len("Hello, how are you today?"))+3)/4, true
	if got := answer.Stream.SoFar(); got != want {
		t.Errorf("usage after the text: got %+v, want %+v", got, want)
	}
	cancel()
	if _, err := answer.Stream.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("after canceling: got %v, want context.Canceled", err)
	}
	answer.Stream.Close()
	<-mock.Requests()[0].Gone // the model stops, and so does the bill
}

func TestRequestHasAnthropicsHeadersAndURL(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	answer, err := p.Chat(t.Context(), simple(false))
	if err != nil || !strings.Contains(string(answer.Body), `"content":"Hi"`) {
		t.Fatalf("%v, %v", answer, err)
	}
	r := mock.Requests()[0]
	if r.Header.Get("X-Api-Key") != testKey || r.Header.Get("Anthropic-Version") != "2023-06-01" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "" {
		t.Errorf("%v", r.Header)
	}
	for base, want := range map[string]string{
		"":                           "https://api.anthropic.com/v1/messages",
		"https://example.com":        "https://example.com/v1/messages",
		"https://example.com/v1":     "https://example.com/v1/messages",
		"https://example.com/llm/":   "https://example.com/llm/v1/messages",
		"https://example.com/a/v1//": "https://example.com/a/v1/messages",
	} {
		if got := New(Options{BaseURL: base}).url; got != want {
			t.Errorf("%q: got %s, want %s", base, got, want)
		}
	}
	if name := New(Options{}).Name(); name != "anthropic" {
		t.Error(name)
	}
	if name := New(Options{Name: "claude"}).Name(); name != "claude" {
		t.Error(name)
	}
}

func TestErrorsNeverContainTheKey(t *testing.T) {
	t.Parallel()
	check := func(err error) {
		t.Helper()
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)), testKey) {
			t.Errorf("got %v, want an error without the key", err)
		}
	}
	for _, reply := range []upstreams.AnthropicReply{
		{Status: 401, Body: upstreams.AnthropicError("authentication_error", "the key "+testKey+" is wrong")},
		{Status: 400, Body: upstreams.AnthropicError(testKey, testKey)},
		{Status: 500, Body: testKey},
		{Body: upstreams.AnthropicError("api_error", testKey)},
		{Body: `{"type":"` + testKey + `"}`},
		{Body: `{"type":"message","content":[{"type":"tool_use","text":{"` + testKey + `":1}}]}`},
	} {
		p, mock := newProvider(t)
		mock.Queue(reply)
		_, err := p.Chat(t.Context(), simple(false))
		check(err)
	}
	for _, reply := range []upstreams.AnthropicReply{
		{Events: []string{upstreams.AnthropicError("api_error", testKey)}},
		{Events: []string{`"` + testKey + `"`}},
		{Header: http.Header{"Content-Type": {testKey + "/x"}}},
	} {
		p, mock := newProvider(t)
		mock.Queue(reply)
		_, err := p.Chat(t.Context(), simple(true))
		check(err)
	}
	p := New(Options{BaseURL: "http://127.0.0.1:1", Key: testKey, Client: wire.NewClient(wire.Timeouts{})})
	_, err := p.Chat(t.Context(), simple(false))
	check(err)
}

func TestStopReasonsBecomeFinishReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stop  string
		calls bool
		want  string
	}{
		{"end_turn", false, "stop"},
		{"stop_sequence", false, "stop"},
		{"max_tokens", false, "length"},
		{"max_tokens", true, "length"},
		{"model_context_window_exceeded", false, "length"},
		{"tool_use", true, "tool_calls"},
		{"tool_use", false, "stop"}, // the answer's own tool
		{"refusal", false, "content_filter"},
		{"pause_turn", false, "stop"},
		{"", false, "stop"},
		{"something_new", false, "stop"},
	} {
		if got := finishReason(test.stop, test.calls); got != test.want {
			t.Errorf("%s with calls %v: got %s, want %s", test.stop, test.calls, got, test.want)
		}
	}
}

func TestHugeCountsDoNotOverflow(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	const huge = "9223372036854775807"
	mock.Queue(upstreams.AnthropicReply{Body: `{"type":"message","content":[],"usage":{"input_tokens":` + huge + `,"cache_read_input_tokens":` + huge + `,"cache_creation_input_tokens":` + huge + `,"output_tokens":-5}}`})
	answer, err := p.Chat(t.Context(), simple(false))
	if err != nil {
		t.Fatal(err)
	}
	if u := answer.Usage; u.InputTokens != 3*maxTokens || u.OutputTokens != 0 {
		t.Errorf("%+v", u)
	}
}

func TestProviderIDsAreReplaced(t *testing.T) {
	t.Parallel()
	mock := upstreams.NewAnthropic(t, testKey)
	p := New(Options{BaseURL: mock.BaseURL(), Key: testKey, Client: wire.NewClient(wire.Timeouts{})})
	mock.Queue(upstreams.AnthropicReply{Body: `{"id":"msg_1","type":"message","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{}}],"stop_reason":"tool_use"}`})
	answer, err := p.Chat(t.Context(), simple(false))
	if err != nil {
		t.Fatal(err)
	}
	body := string(answer.Body)
	if strings.Contains(body, "msg_1") || strings.Contains(body, "toolu_1") || !strings.Contains(body, `{"id":"chatcmpl-`) || !strings.Contains(body, `{"id":"call_`) {
		t.Error(body)
	}
}

func TestMissingCountsAreEstimated(t *testing.T) {
	t.Parallel()
	p, mock := newProvider(t)
	mock.Queue(upstreams.AnthropicReply{Body: `{"type":"message","role":"assistant","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"output_tokens":9}}`})
	answer, err := p.Chat(t.Context(), simple(false))
	if err != nil {
		t.Fatal(err)
	}
	if u := answer.Usage; !u.Estimated || u.InputTokens <= 0 || u.OutputTokens != 9 {
		t.Errorf("got %+v, want an estimated input and 9 output tokens", u)
	}
}
