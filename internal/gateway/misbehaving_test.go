package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/anthropic"
	"turnpike/internal/providers/gemini"
	"turnpike/internal/providers/openai"
	"turnpike/internal/providers/wire"
)

// dialects are the providers' wire formats with one good response each: 10 input tokens and
// "Hello there".
var dialects = map[string]struct {
	provider func(base string, c *wire.Client) providers.Provider
	plain    string
	events   []string
	refusal  string // an error body, sent with status 200
	// The usage in both, to be removed or set to zero.
	usage [][2]string
}{
	"openai": {
		func(base string, c *wire.Client) providers.Provider {
			return openai.New(openai.Options{Name: "up", BaseURL: base + "/v1", Key: "k", Client: c})
		},
		`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`,
		[]string{
			`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}`,
			`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" there"},"finish_reason":null}]}`,
			`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`,
			`[DONE]`,
		},
		`{"error":{"message":"The engine is overloaded","type":"server_error","param":null,"code":null}}`,
		[][2]string{{`,"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`, `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`}},
	},
	"anthropic": {
		func(base string, c *wire.Client) providers.Provider {
			return anthropic.New(anthropic.Options{Name: "up", BaseURL: base, Key: "k", Client: c})
		},
		`{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello there"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":2}}`,
		[]string{
			`{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":10,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" there"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`,
			`{"type":"message_stop"}`,
		},
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
		[][2]string{{`,"usage":{"input_tokens":10,"output_tokens":2}`, `,"usage":{"input_tokens":0,"output_tokens":0}`},
			{`,"usage":{"input_tokens":10,"output_tokens":1}`, `,"usage":{"input_tokens":0,"output_tokens":0}`}, {`,"usage":{"output_tokens":2}`, `,"usage":{"output_tokens":0}`}},
	},
	"gemini": {
		func(base string, c *wire.Client) providers.Provider {
			return gemini.New(gemini.Options{Name: "up", BaseURL: base + "/v1beta", Key: "k", Client: c})
		},
		`{"candidates":[{"content":{"parts":[{"text":"Hello there"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}}`,
		[]string{
			`{"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}}`,
			`{"candidates":[{"content":{"parts":[{"text":" there"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}}`,
		},
		`{"error":{"code":503,"message":"The model is overloaded","status":"UNAVAILABLE"}}`,
		[][2]string{{`,"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12}`, `,"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":0,"totalTokenCount":0}`}},
	},
}

// upstreamResponse is a response and how it is sent.
type upstreamResponse struct {
	body   string
	kind   string // Content-Type
	drip   time.Duration
	hang   int  // bytes after which it stalls; -1 is before the headers
	reset  int  // bytes after which the connection is reset; -1 is before the headers
	length bool // a Content-Length that is too large
}

func (a upstreamResponse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	stop := func() {
		if a.hang != 0 {
			<-r.Context().Done()
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	if a.hang < 0 || a.reset < 0 {
		stop()
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if a.length {
		w.Header().Set("Content-Length", fmt.Sprint(len(a.body)+100))
	}
	text := a.body
	if at := max(a.hang, a.reset); at > 0 {
		text = text[:min(at, len(text))]
	}
	step := len(text)
	if a.drip > 0 {
		step = 40
	}
	for len(text) > 0 {
		n := min(step, len(text))
		_, _ = io.WriteString(w, text[:n])
		_ = http.NewResponseController(w).Flush()
		text = text[n:]
		time.Sleep(a.drip)
	}
	if a.hang > 0 || a.reset > 0 {
		stop()
	}
}

// Every call ends with a clear error or with a charge, and leaves no reservation or slot behind.
func TestMisbehavingUpstreamEndsCallCleanly(t *testing.T) {
	t.Parallel()
	const stallTimeout = 150 * time.Millisecond
	for dialect, d := range dialects {
		for _, stream := range []bool{false, true} {
			good := upstreamResponse{body: d.plain, kind: "application/json"}
			call, name := plainBody, dialect+"/plain"
			if stream {
				good = upstreamResponse{body: "data: " + strings.Join(d.events, "\n\ndata: ") + "\n\n", kind: "text/event-stream"}
				call, name = streamUsageBody, dialect+"/stream"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				base := newFixture(t, nil)
				for what, tt := range badUpstreams(good, d.refusal, d.usage) {
					t.Run(what, func(t *testing.T) {
						server := httptest.NewServer(tt.upstreamResponse)
						defer server.Close()
						defer server.CloseClientConnections()
						timeout := stallTimeout
						if !strings.Contains(what, "hangs") {
							timeout *= 20 // a busy machine stalls for longer
						}
						client := wire.NewClient(wire.Timeouts{Connect: time.Second, FirstByte: timeout, Idle: timeout})
						r := base.withProviders(t, []providers.Provider{d.provider(server.URL, client)})
						out := r.chat(call)
						if !slices.Contains(tt.codes, out.code) {
							t.Errorf("got %q, want one of %q: %v", out.code, tt.codes, out.err)
						}
						switch {
						case out.err == nil && (out.Charged == 0 || out.Input == 0 || out.Output == 0):
							t.Errorf("response charged %s by %s for %d and %d tokens", out.Charged, out.Source, out.Input, out.Output)
						case out.err == nil && what == "good" && out.Charged != 14_000:
							t.Errorf("charged %d, want 14000", out.Charged)
						case out.err != nil && len(out.chunks) == 0 && out.Charged != 0:
							t.Errorf("error charged %s", out.Charged)
						case out.err == nil && stream && !strings.Contains(out.chunks[len(out.chunks)-1], `"usage":{"credits":`+out.Charged.String()):
							t.Errorf("got last chunk %.200s, charged %s", out.chunks[len(out.chunks)-1], out.Charged)
						}
					})
				}
			})
		}
	}
}

// badUpstream is what an upstream does and the acceptable codes; an empty one is a response.
type badUpstream struct {
	upstreamResponse
	codes []string
}

// badUpstreams are the ways in which an upstream spoils a good response. If a stream breaks after
// its start, the code is that of its last event.
func badUpstreams(good upstreamResponse, refusal string, usage [][2]string) map[string]badUpstream {
	const long = 10 << 20
	half := len(good.body)/2 - 5
	with := func(change func(a *upstreamResponse)) upstreamResponse {
		a := good
		change(&a)
		return a
	}
	without := func(instead int) upstreamResponse {
		return with(func(a *upstreamResponse) {
			for _, u := range usage {
				a.body = strings.ReplaceAll(a.body, u[0], [2]string{"", u[1]}[instead])
			}
		})
	}
	answer, slow, broken := []string{""}, []string{"upstream_timeout"}, []string{"upstream_error"}
	return map[string]badUpstream{
		"good":                   {good, answer},
		"hangs immediately":      {with(func(a *upstreamResponse) { a.hang = -1 }), slow},
		"hangs in the middle":    {with(func(a *upstreamResponse) { a.hang = half }), slow},
		"resets immediately":     {with(func(a *upstreamResponse) { a.reset = -1 }), broken},
		"resets in the middle":   {with(func(a *upstreamResponse) { a.reset = half }), broken},
		"drips":                  {with(func(a *upstreamResponse) { a.drip = 5 * time.Millisecond }), answer},
		"ends within a chunk":    {with(func(a *upstreamResponse) { a.body = a.body[:half] }), broken},
		"ends before its length": {with(func(a *upstreamResponse) { a.body, a.length = a.body[:half], true }), broken},
		"invalid JSON":           {with(func(a *upstreamResponse) { a.body = strings.Replace(a.body, `"Hello`, `"Hel"lo`, 1) }), broken},
		"HTML":                   {upstreamResponse{body: "<html><body>502 Bad Gateway</body></html>", kind: "text/html"}, broken},
		"HTML as the right type": {with(func(a *upstreamResponse) { a.body = "<html><body>Welcome</body></html>" }), broken},
		"empty":                  {with(func(a *upstreamResponse) { a.body = "" }), broken},
		"an error with a 200":    {upstreamResponse{body: refusal, kind: "application/json"}, []string{"overloaded", "upstream_error"}},
		"a line of 10 MB":        {with(func(a *upstreamResponse) { a.body = strings.Replace(a.body, "Hello", strings.Repeat("a", long), 1) }), []string{"", "upstream_error"}},
		"10 MB without a line":   {with(func(a *upstreamResponse) { a.body = strings.Repeat("a", long) }), broken},
		"no usage":               {without(0), answer},
		"usage of zero":          {without(1), answer},
		"unknown fields":         {with(func(a *upstreamResponse) { a.body = strings.Replace(a.body, `{"`, `{"unknown":[{"x":1}],"`, 1) }), answer},
	}
}

func TestResponseThatFailsToTransformIsFree(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	for _, transformable := range []bool{false, true} {
		c, out := r.newCall(), outcome{}
		c.Body = []byte(`{"model":"small","messages":[{"role":"user","content":"Hi"}]}`)
		c.TransformBody = func([]byte) ([]byte, error) {
			if !transformable {
				return nil, fault.New(fault.Upstream, "no")
			}
			return []byte("shown"), nil
		}
		out.Response, out.err = r.Chat(t.Context(), c)
		r.settle(c, &out)
		if transformable && (out.err != nil || string(out.Body) != "shown" || out.Charged == 0) || !transformable && (out.code != string(fault.Upstream) || out.Charged != 0) {
			t.Errorf("transformable %t: %v, charged %s", transformable, out.err, out.Charged)
		}
	}
}
