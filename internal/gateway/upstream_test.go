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

// dialects are the providers' wire formats, with one good answer in each: ten
// tokens in, and "Hello there" out.
var dialects = map[string]struct {
	provider func(base string, c *wire.Client) providers.Provider
	plain    string
	events   []string
	refusal  string // an error body, which comes with a 200
	// What says the usage, in both, to be taken out or made zero.
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

// answered is an upstream's answer, and how it comes.
type answered struct {
	body   string
	kind   string // Content-Type
	drip   time.Duration
	hang   int  // bytes after which nothing comes; -1 is before the headers
	reset  int  // bytes after which the connection is reset; -1 is before the headers
	length bool // a Content-Length that is not kept
}

func (a answered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// TestUpstreamsThatMisbehave: whatever an upstream does, a call ends soon, with
// an error that says what is wrong or with a charge, and nothing stays behind.
func TestUpstreamsThatMisbehave(t *testing.T) {
	t.Parallel()
	const patience = 150 * time.Millisecond
	for dialect, d := range dialects {
		for _, stream := range []bool{false, true} {
			good := answered{body: d.plain, kind: "application/json"}
			call, name := plainCall, dialect+"/plain"
			if stream {
				good = answered{body: "data: " + strings.Join(d.events, "\n\ndata: ") + "\n\n", kind: "text/event-stream"}
				call, name = countedCall, dialect+"/stream"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				base := newRig(t, nil)
				for what, tt := range faults(good, d.refusal, d.usage) {
					t.Run(what, func(t *testing.T) {
						server := httptest.NewServer(tt.answered)
						defer server.Close()
						defer server.CloseClientConnections()
						patience := patience
						if !strings.Contains(what, "hangs") {
							patience *= 20 // a busy machine stands still for longer
						}
						client := wire.NewClient(wire.Timeouts{Connect: time.Second, FirstByte: patience, Idle: patience})
						r := base.serving(t, []providers.Provider{d.provider(server.URL, client)})
						begun := time.Now()
						out := r.chat(call)
						if took := time.Since(begun); took > 30*time.Second { // no provider is waited for as long, and a busy machine takes a while
							t.Errorf("it took %s", took)
						}
						if !slices.Contains(tt.codes, out.code) {
							t.Errorf("got %q, expected %q: %v", out.code, tt.codes, out.err)
						}
						switch {
						case out.err == nil && (out.Charged == 0 || out.Input == 0 || out.Output == 0):
							t.Errorf("an answer was charged %s by %s for %d and %d", out.Charged, out.Source, out.Input, out.Output)
						case out.err == nil && what == "good" && out.Charged != 14_000:
							t.Errorf("charged %d", out.Charged)
						case out.err != nil && len(out.chunks) == 0 && out.Charged != 0:
							t.Errorf("an error cost %s", out.Charged)
						case out.err == nil && stream && !strings.Contains(out.chunks[len(out.chunks)-1], `"usage":{"credits":`+out.Charged.String()):
							t.Errorf("it ends with %.200s, charged %s", out.chunks[len(out.chunks)-1], out.Charged)
						}
					})
				}
			})
		}
	}
}

// misbehaviour is what an upstream does, and the codes that are clear then; an
// empty one stands for an answer.
type misbehaviour struct {
	answered
	codes []string
}

// faults are all the ways in which an upstream spoils a good answer. In a
// stream that broke after its beginning the code is its last event's.
func faults(good answered, refusal string, usage [][2]string) map[string]misbehaviour {
	const long = 10 << 20
	half := len(good.body)/2 - 5
	with := func(change func(a *answered)) answered {
		a := good
		change(&a)
		return a
	}
	without := func(instead int) answered {
		return with(func(a *answered) {
			for _, u := range usage {
				a.body = strings.ReplaceAll(a.body, u[0], [2]string{"", u[1]}[instead])
			}
		})
	}
	answer, slow, broken := []string{""}, []string{"upstream_timeout"}, []string{"upstream_error"}
	return map[string]misbehaviour{
		"good":                     {good, answer},
		"hangs at once":            {with(func(a *answered) { a.hang = -1 }), slow},
		"hangs in the middle":      {with(func(a *answered) { a.hang = half }), slow},
		"resets at once":           {with(func(a *answered) { a.reset = -1 }), broken},
		"resets in the middle":     {with(func(a *answered) { a.reset = half }), broken},
		"drips":                    {with(func(a *answered) { a.drip = 5 * time.Millisecond }), answer},
		"ends in half a chunk":     {with(func(a *answered) { a.body = a.body[:half] }), broken},
		"ends before its length":   {with(func(a *answered) { a.body, a.length = a.body[:half], true }), broken},
		"invalid JSON":             {with(func(a *answered) { a.body = strings.Replace(a.body, `"Hello`, `"Hel"lo`, 1) }), broken},
		"HTML":                     {answered{body: "<html><body>502 Bad Gateway</body></html>", kind: "text/html"}, broken},
		"HTML as what was asked":   {with(func(a *answered) { a.body = "<html><body>Welcome</body></html>" }), broken},
		"nothing":                  {with(func(a *answered) { a.body = "" }), broken},
		"an error with a 200":      {answered{body: refusal, kind: "application/json"}, []string{"overloaded", "upstream_error"}},
		"a line of 10 MB":          {with(func(a *answered) { a.body = strings.Replace(a.body, "Hello", strings.Repeat("a", long), 1) }), []string{"", "upstream_error"}},
		"10 MB without a line":     {with(func(a *answered) { a.body = strings.Repeat("a", long) }), broken},
		"no usage":                 {without(0), answer},
		"usage of zero":            {without(1), answer},
		"fields that nobody knows": {with(func(a *answered) { a.body = strings.Replace(a.body, `{"`, `{"unheard":[{"of":1}],"`, 1) }), answer},
	}
}

// TestAnAnswerThatCannotBeShownIsFree.
func TestAnAnswerThatCannotBeShownIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	for _, shown := range []bool{false, true} {
		c, out := r.open(), outcome{}
		c.Body = []byte(`{"model":"small","messages":[{"role":"user","content":"Hi"}]}`)
		c.Shape = func([]byte) ([]byte, error) {
			if !shown {
				return nil, fault.New(fault.Upstream, "no")
			}
			return []byte("shown"), nil
		}
		out.Answer, out.err = r.Chat(t.Context(), c)
		r.settle(c, &out)
		if shown && (out.err != nil || string(out.Body) != "shown" || out.Charged == 0) || !shown && (out.code != string(fault.Upstream) || out.Charged != 0) {
			t.Errorf("shown %t: %v, %s charged", shown, out.err, out.Charged)
		}
	}
}
