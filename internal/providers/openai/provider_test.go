package openai_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
	"turnpike/test/fakes/upstreams"
)

const (
	key  = "sk-proj-0123456789abcdef"
	body = `{"model":"ours", "messages":[{"role":"user","content":"Hi"}], "top_k": 5 }`
)

var _ providers.Provider = (*openai.Provider)(nil)

func TestResponseIsForwardedUnchanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		body  string
		has   string
		usage providers.Usage
	}{
		"text":          {upstreams.OpenAIReply{Text: "Good day. Ünïcode \u2028"}, "", `"content":"Good day. Ünïcode`, providers.Usage{InputTokens: 10, OutputTokens: 3}},
		"cached":        {upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 2000, Output: 7, Cached: 1920}}, "", "", providers.Usage{InputTokens: 2000, OutputTokens: 7, CachedInput: 1920}},
		"tools":         {upstreams.OpenAIReply{Calls: []upstreams.OpenAICall{{Name: "weather", Arguments: `{"city":"Paris"}`}}, Usage: &upstreams.OpenAIUsage{Input: 5, Output: 6}}, "", `"arguments":"{\"city\":\"Paris\"}"`, providers.Usage{InputTokens: 5, OutputTokens: 6}},
		"forced tool":   {upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 5, Output: 6}}, `{"model":"ours","messages":[{}],"tools":[{"type":"function","function":{"name":"now"}}],"tool_choice":"required"}`, `"name":"now"`, providers.Usage{InputTokens: 5, OutputTokens: 6}},
		"schema":        {upstreams.OpenAIReply{}, `{"model":"ours","messages":[{}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}}`, `"content":"{\"answer\": \"Hello!\"}"`, providers.Usage{InputTokens: 10, OutputTokens: 2}},
		"no usage":      {upstreams.OpenAIReply{Counts: upstreams.CountsMissing}, "", "", providers.Usage{OutputTokens: 8, Estimated: true}},
		"zero usage":    {upstreams.OpenAIReply{Counts: upstreams.CountsZero}, "", "", providers.Usage{OutputTokens: 8, Estimated: true}},
		"late and slow": {upstreams.OpenAIReply{Delay: 5 * time.Millisecond}, "", "", providers.Usage{InputTokens: 10, OutputTokens: 7}},
		"estimated": {upstreams.OpenAIReply{Body: `{"choices":[{"message":{"role":"assistant","content":"12345678","tool_calls":[{"id":"call_1","function":{"name":"abcd","arguments":"{\"a\":1}"}}]}}]}`}, "", "",
			providers.Usage{OutputTokens: 5, Estimated: true}}, // 8 + 4 + 7 characters
		"estimated audio": {upstreams.OpenAIReply{Body: `{"choices":[{"message":{"content":null,"audio":{"id":"audio_1","expires_at":1,"transcript":"12345678","data":"` + strings.Repeat("A", 6400) + `"}}}],"usage":{"prompt_tokens":3}}`}, "", "",
			providers.Usage{InputTokens: 3, OutputTokens: 4, Estimated: true}},
		"no output": {upstreams.OpenAIReply{Body: `{"choices":[{"message":{"content":null}}],"usage":{"prompt_tokens":3}}`}, "", "", providers.Usage{InputTokens: 3}},
		"no error":  {upstreams.OpenAIReply{Body: `{"error":null,"choices":[],"usage":{"prompt_tokens":1}}`}, "", `{"error":null,"choices":[],"usage":{"prompt_tokens":1}}`, providers.Usage{InputTokens: 1}},
		"odd usage": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":3.0,"completion_tokens":"4"}}`}, "", "", providers.Usage{}},
		"usage in float": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":3.0,"completion_tokens":4e0,"prompt_tokens_details":{"cached_tokens":9}}}`}, "", "",
			providers.Usage{InputTokens: 3, OutputTokens: 4, CachedInput: 3}},
		"reasoning apart": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":107,"completion_tokens_details":{"reasoning_tokens":100}}}`}, "", "",
			providers.Usage{InputTokens: 3, OutputTokens: 104}},
		"no prompt counted": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"completion_tokens":5,"total_tokens":1015}}`}, "", "", providers.Usage{OutputTokens: 5}},
		"cache written": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":30}}}`}, "", "",
			providers.Usage{InputTokens: 90, OutputTokens: 4, CachedInput: 50, CacheWrite: 30}},
		"cached elsewhere": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":4,"cached_tokens":50}}`}, "", "",
			providers.Usage{InputTokens: 90, OutputTokens: 4, CachedInput: 50}},
		"cache hits": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":4,"prompt_cache_hit_tokens":60,"prompt_cache_miss_tokens":30}}`}, "", "",
			providers.Usage{InputTokens: 90, OutputTokens: 4, CachedInput: 60}},
		"negative usage": {upstreams.OpenAIReply{Body: `{"choices":[],"usage":{"prompt_tokens":-3,"completion_tokens":4}}`}, "", "", providers.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream, p := start(t)
			upstream.Queue(c.reply)
			result, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "theirs", Body: []byte(cmp.Or(c.body, body))})
			if err != nil {
				t.Fatal(err)
			}
			if result.Usage != c.usage || !strings.Contains(string(result.Body), c.has) || result.Stream != nil {
				t.Errorf("got %+v and %s, want %+v and %s", result.Usage, result.Body, c.usage, c.has)
			}
			if c.reply.Body != "" && string(result.Body) != c.reply.Body {
				t.Errorf("%s was forwarded as %s", c.reply.Body, result.Body)
			}
		})
	}
}

func TestRequestReachesTheProvider(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "theirs", Body: []byte(body), MaxOutput: 50}); err != nil {
		t.Fatal(err)
	}
	req := upstream.Requests()[0]
	if want := `{"model":"theirs","messages":[{"role":"user","content":"Hi"}],"top_k":5,"max_tokens":50}`; string(req.Body) != want {
		t.Errorf("got  %s\nwant %s", req.Body, want)
	}
	if req.Path != "/chat/completions" || req.Header.Get("Authorization") != "Bearer "+key || req.Header.Get("Content-Type") != "application/json" || req.Header.Get("Openai-Project") != "proj_0123456789" {
		t.Errorf("got %s with %v", req.Path, req.Header)
	}
}

func TestServerWithoutKeysGetsNoKey(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, "")
	p := openai.New(openai.Options{Name: "ollama", BaseURL: upstream.BaseURL() + "/", Client: wire.NewClient(wire.Timeouts{})})
	if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	if got, has := upstream.Requests()[0].Header["Authorization"]; has {
		t.Errorf("got the key %q, want none", got)
	}
}

func TestAzureURLNamesTheDeployment(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, key)
	p := openai.New(openai.Options{Name: "azure", BaseURL: upstream.BaseURL(), Key: key, APIVersion: "2024-10-21", Client: wire.NewClient(wire.Timeouts{})})
	if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "my gpt/4", Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	req := upstream.Requests()[0]
	if req.Path != "/deployments/my gpt/4/chat/completions" || req.Query != "api-version=2024-10-21" || req.Header.Get("Api-Key") != key || req.Header.Get("Authorization") != "" {
		t.Errorf("got %s?%s with %v", req.Path, req.Query, req.Header)
	}
}

func TestEmbeddingsAreForwarded(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	result, err := p.Embeddings(t.Context(), "embed", []byte(`{"model":"ours","input":["two words","x"],"dimensions":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (providers.Usage{InputTokens: 3}); result.Usage != want || !strings.Contains(string(result.Body), `"embedding":[9,0.5,-0.25]`) {
		t.Errorf("got %+v and %s", result.Usage, result.Body)
	}
	if req := upstream.Requests()[0]; req.Path != "/embeddings" || string(req.Body) != `{"model":"embed","input":["two words","x"],"dimensions":3}` {
		t.Errorf("got request %s %s", req.Path, req.Body)
	}
	upstream.Queue(upstreams.OpenAIReply{Counts: upstreams.CountsMissing}, upstreams.OpenAIReply{Body: `{"choices":[]}`})
	if result, err := p.Embeddings(t.Context(), "embed", []byte(`{"input":"x"}`)); err != nil || result.Usage != (providers.Usage{}) {
		t.Errorf("without usage: got %v, want zero usage", err)
	}
	if _, err := p.Embeddings(t.Context(), "embed", []byte(`{"input":"x"}`)); failure(err).Kind != providers.KindProtocol {
		t.Errorf("without data: got %v, want a protocol failure", err)
	}
}

// A failure before the response is the same for plain and streamed requests.
func TestFailureHasItsKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply upstreams.OpenAIReply
		want  providers.Failure
		says  string
	}{
		"invalid":          {upstreams.OpenAIReply{Status: 400, Param: "temperature", Message: "too hot", Code: "out_of_range"}, providers.Failure{Kind: providers.KindInvalid, Status: 400, Param: "temperature"}, "invalid_request_error out_of_range: too hot"},
		"long param":       {upstreams.OpenAIReply{Status: 400, Param: strings.Repeat("x", 200)}, providers.Failure{Kind: providers.KindInvalid, Status: 400}, ""},
		"rate limit":       {upstreams.OpenAIReply{Status: 429, Header: http.Header{"Retry-After": {"20"}}, Code: "rate_limit_exceeded"}, providers.Failure{Kind: providers.KindRateLimited, Status: 429, RetryAfter: 20 * time.Second}, "rate_limit_exceeded"},
		"no money":         {upstreams.OpenAIReply{Status: 429, Body: `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`}, providers.Failure{Kind: providers.KindAuth, Status: 429}, "insufficient_quota"},
		"in milliseconds":  {upstreams.OpenAIReply{Status: 429, Header: http.Header{"Retry-After": {"1"}, "Retry-After-Ms": {"250"}}}, providers.Failure{Kind: providers.KindRateLimited, Status: 429, RetryAfter: 250 * time.Millisecond}, ""},
		"no model":         {upstreams.OpenAIReply{Status: 404, Code: "model_not_found"}, providers.Failure{Kind: providers.KindNoModel, Status: 404}, "model_not_found"},
		"server":           {upstreams.OpenAIReply{Status: 500}, providers.Failure{Kind: providers.KindServer, Status: 500}, "server_error"},
		"overloaded":       {upstreams.OpenAIReply{Status: 503}, providers.Failure{Kind: providers.KindOverloaded, Status: 503}, ""},
		"proxy":            {upstreams.OpenAIReply{Status: 502, Body: upstreams.HTML}, providers.Failure{Kind: providers.KindServer, Status: 502}, "502 Bad Gateway"},
		"FastAPI":          {upstreams.OpenAIReply{Status: 422, Body: `{"detail":[{"loc":["body"],"msg":"Field required"}]}`}, providers.Failure{Kind: providers.KindInvalid, Status: 422}, "Field required"},
		"Mistral":          {upstreams.OpenAIReply{Status: 422, Body: `{"object":"error","message":{"detail":[{"msg":"Extra inputs"}]},"type":"invalid_request_error","param":null,"code":null}`}, providers.Failure{Kind: providers.KindInvalid, Status: 422}, "Extra inputs"},
		"Ollama":           {upstreams.OpenAIReply{Status: 404, Body: `{"error":"model 'x' not found"}`}, providers.Failure{Kind: providers.KindNoModel, Status: 404}, "model 'x' not found"},
		"no message":       {upstreams.OpenAIReply{Status: 500, Empty: true}, providers.Failure{Kind: providers.KindServer, Status: 500}, "no message"},
		"HTML":             {upstreams.OpenAIReply{Body: upstreams.HTML}, providers.Failure{Kind: providers.KindProtocol}, "text/html"},
		"half JSON":        {upstreams.OpenAIReply{Body: `{"choices":[{"index":0,`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"more than JSON":   {upstreams.OpenAIReply{Body: `{"choices":[]} {}`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"another object":   {upstreams.OpenAIReply{Body: `{"hello":"there"}`}, providers.Failure{Kind: providers.KindProtocol}, "no choices"},
		"an array":         {upstreams.OpenAIReply{Body: `[]`}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"nothing":          {upstreams.OpenAIReply{Empty: true}, providers.Failure{Kind: providers.KindProtocol}, ""},
		"200 with error":   {upstreams.OpenAIReply{Body: `{"error":{"message":"strange"}}`}, providers.Failure{Kind: providers.KindProtocol, Status: 200}, "strange"},
		"200 overloaded":   {upstreams.OpenAIReply{Body: `{"error":{"type":"overloaded_error","message":"busy"}}`}, providers.Failure{Kind: providers.KindOverloaded, Status: 200}, "busy"},
		"200 rate limited": {upstreams.OpenAIReply{Body: `{"error":{"code":429,"message":"busy"}}`}, providers.Failure{Kind: providers.KindRateLimited, Status: 200}, "busy"},
		"200 bad key":      {upstreams.OpenAIReply{Body: `{"error":{"type":"invalid_request_error","code":"invalid_api_key"}}`}, providers.Failure{Kind: providers.KindAuth, Status: 200}, "invalid_api_key"},
		"200 older vLLM":   {upstreams.OpenAIReply{Body: `{"object":"error","message":"too long","type":"BadRequestError","param":"messages","code":400}`}, providers.Failure{Kind: providers.KindInvalid, Status: 200, Param: "messages"}, "too long"},
		"hung up":          {upstreams.OpenAIReply{Cut: -1}, providers.Failure{Kind: providers.KindConnect}, ""},
		"hangs":            {upstreams.OpenAIReply{Stall: -1}, providers.Failure{Kind: providers.KindTimeout}, "no response within"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", name, stream), func(t *testing.T) {
				t.Parallel()
				upstream := upstreams.NewOpenAI(t, key)
				timeouts := wire.Timeouts{}
				if c.want.Kind == providers.KindTimeout {
					timeouts.FirstByte = 150 * time.Millisecond
				}
				p := newProvider(upstream.BaseURL(), timeouts)
				upstream.Queue(c.reply)
				_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body), Stream: stream})
				got := failure(err)
				if got.Kind != c.want.Kind || got.Status != c.want.Status || got.RetryAfter != c.want.RetryAfter || got.Param != c.want.Param || !strings.Contains(got.Error(), c.says) {
					t.Errorf("got  %#v: %v\nwant %#v with %q", got, got, c.want, c.says)
				}
			})
		}
	}
}

func TestTruncatedBodyIsCut(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, key)
	p := newProvider(upstream.BaseURL(), wire.Timeouts{Idle: 150 * time.Millisecond})
	upstream.Queue(upstreams.OpenAIReply{Cut: 40}, upstreams.OpenAIReply{Stall: 40})
	for _, want := range []providers.Kind{providers.KindCut, providers.KindTimeout} {
		if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body)}); failure(err).Kind != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestStreamRequestRejectsPlainResponse(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Body: `{"choices":[{"index":0,"message":{"content":"Hi"}}]}`})
	if _, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true}); failure(err).Kind != providers.KindProtocol {
		t.Errorf("got %v", err)
	}
}

func TestErrorsDoNotContainTheKey(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, "another")
	p := newProvider(upstream.BaseURL(), wire.Timeouts{})
	texts := []string{p.String(), fmt.Sprintf("%v %+v %#v %s", p, p, p, p)}
	echo := `{"error":{"message":"not with ` + key + ` of proj_0123456789 or tp_live_abcdefghijklmnop"}}`
	open := openai.New(openai.Options{Name: "open", BaseURL: "http://user:hunter2222@" + strings.TrimPrefix(upstreams.NewOpenAI(t, "").BaseURL(), "http://"), Client: wire.NewClient(wire.Timeouts{})})
	texts = append(texts, open.String())

	_, err := p.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body)})
	if failure(err).Kind != providers.KindAuth {
		t.Errorf("another key: got %v, want an auth failure", err)
	}
	texts = append(texts, fmt.Sprintf("%v %+v", err, err))

	accepted, q := start(t)
	accepted.Queue(upstreams.OpenAIReply{Body: echo}, upstreams.OpenAIReply{Status: 400, Body: echo}, upstreams.OpenAIReply{Body: "data: " + echo + "\n\n"})
	for range 2 {
		_, err := q.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: []byte(body)})
		texts = append(texts, fmt.Sprintf("%v %+v", err, err))
	}
	_, _, err = collect(q.Chat(t.Context(), &providers.ChatRequest{Model: "m", Body: streamed(), Stream: true}))
	texts = append(texts, fmt.Sprintf("%v %+v", err, err))

	for _, text := range texts {
		for _, secret := range []string{key, "proj_0123456789", "abcdefghijklmnop", "hunter2222"} {
			if strings.Contains(text, secret) {
				t.Errorf("the secret %s is in %s", secret, text)
			}
		}
	}
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "not with ***") }) {
		t.Errorf("got the texts %q", texts)
	}
}

func TestCanceledRequestIsNotAFailure(t *testing.T) {
	t.Parallel()
	upstream, p := start(t)
	upstream.Queue(upstreams.OpenAIReply{Stall: 20})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-upstream.Wait(1).Began
		cancel()
	}()
	_, err := p.Chat(ctx, &providers.ChatRequest{Model: "m", Body: []byte(body)})
	if err != context.Canceled {
		t.Errorf("got %v", err)
	}
	<-upstream.Requests()[0].Gone
}

func start(t *testing.T) (*upstreams.OpenAI, *openai.Provider) {
	upstream := upstreams.NewOpenAI(t, key)
	return upstream, newProvider(upstream.BaseURL(), wire.Timeouts{})
}

func newProvider(base string, timeouts wire.Timeouts) *openai.Provider {
	return openai.New(openai.Options{
		Name: "openai", BaseURL: base, Key: key, Client: wire.NewClient(timeouts),
		Headers: map[string]string{"OpenAI-Project": "proj_0123456789"},
	})
}

// streamed returns the body of a streamed request.
func streamed() []byte { return []byte(`{"model":"ours","messages":[{}],"stream":true}`) }

// collect reads a stream to its end.
func collect(result *providers.Response, err error) (chunks []string, usage *providers.Usage, _ error) {
	if err != nil {
		return nil, nil, err
	}
	defer result.Stream.Close()
	for {
		chunk, err := result.Stream.Next()
		if err == io.EOF {
			return chunks, usage, nil
		}
		if err != nil {
			return chunks, usage, err
		}
		if usage != nil {
			return chunks, usage, errors.New("a chunk came after the usage")
		}
		chunks, usage = append(chunks, string(chunk.Data)), chunk.Usage
	}
}

func failure(err error) *providers.Failure {
	f := &providers.Failure{Err: fmt.Errorf("got %v, want a failure", err)}
	errors.As(err, &f)
	return f
}
