package anthropic

import (
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json"

	"turnpike/internal/catalog"
	"turnpike/internal/providers"
	"turnpike/test/fakes/upstreams"
)

func TestSplicedBodiesKeepAllOtherBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"model":"m","a" : [1.0]}`, `{"model":"up","a" : [1.0]}`},
		{` { "a":1, "model" : "m" } `, ` { "a":1, "model" : "up" } `},
		{`{"model":"up","max_tokens":5}`, `{"model":"up","max_tokens":5}`},
		{`{"max_tokens":500,"model":"m"}`, `{"max_tokens":100,"model":"up"}`},
		{`{"models":["x"], "model":"m"}`, `{"model":"up"}`},
		{`{"model":"m" , "models":["x"], "b":{"models":[1]}}`, `{"model":"up", "b":{"models":[1]}}`},
		{`{"model":"m","models":["x"]}`, `{"model":"up"}`},
		{`{"mod\u0065l":"m"}`, `{"mod\u0065l":"up"}`},
		{`{"models":["x"]}`, `{}`},
		{`{}`, `{}`},
	} {
		got, err := spliceBody(&providers.MessagesRequest{Model: "up", Body: []byte(c.in), MaxOutput: 100})
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
	if _, err := spliceBody(&providers.MessagesRequest{Body: []byte(`[`)}); err == nil {
		t.Error("an array was accepted")
	}
}

func FuzzSplice(f *testing.F) {
	f.Add([]byte(`{"models":[1],"model":"m", "max_tokens":1e9,"x":{"model":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var in map[string]any
		if json.Unmarshal(body, &in) != nil || in == nil {
			return
		}
		got, err := spliceBody(&providers.MessagesRequest{Model: "up", Body: body, MaxOutput: 100})
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		var out map[string]any
		if err := json.Unmarshal(got, &out); err != nil {
			t.Fatalf("%s became %s: %v", body, got, err)
		}
		delete(in, "models")
		if len(in) != len(out) {
			t.Errorf("%s became %s", body, got)
		}
	})
}

func TestNativeFailuresNameTheClientsField(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"messages.0.content.1.image.source.base64: bad image":                         "messages[0].content[1].image.source.base64",
		"tools.3.custom.input_schema.type: Field required":                            "tools[3].custom.input_schema.type",
		"max_tokens: must be at least 1":                                              "max_tokens",
		"stop_sequences: bad":                                                         "stop_sequences",
		"thinking.enabled.budget_tokens: too small":                                   "thinking.enabled.budget_tokens",
		"tools.0.custom.input_schema.$defs: bad":                                      "tools",
		"prompt is too long: 208310 tokens > 200000 maximum":                          "messages",
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000": "max_tokens",
		"something else": "",
	} {
		p, upstream := newProvider(t)
		upstream.Queue(upstreams.AnthropicReply{Status: 400, Body: upstreams.AnthropicError("invalid_request_error", message)})
		_, err := p.Messages(t.Context(), &providers.MessagesRequest{Model: sonnet, Body: []byte(`{"model":"x","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`)})
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind != providers.KindInvalid || f.Param != want {
			t.Errorf("%s: got %v, want the field %q", message, err, want)
		}
	}
}

const (
	nativeStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"usage":{"input_tokens":25,"output_tokens":1}}}`
	nativeText  = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello there, this is forty bytes of text"}}`
)

func TestNativeStreamCountsWhatItForwards(t *testing.T) {
	t.Parallel()
	p, upstream := newProvider(t)
	upstream.Queue(upstreams.AnthropicReply{Events: []string{nativeStart, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, nativeText, nativeText,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":33,"server_tool_use":{"web_search_requests":2},"iterations":[{"type":"message","input_tokens":25,"output_tokens":33},{"type":"compaction","input_tokens":1000,"output_tokens":10}]}}`, `{"type":"message_stop"}`}})
	resp, err := p.Messages(t.Context(), &providers.MessagesRequest{Model: sonnet, Stream: true, Body: []byte(`{"model":"x","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Stream.Close()
	var usage *providers.Usage
	for n := 0; ; n++ {
		chunk, err := resp.Stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
		if so := resp.Stream.SoFar(); n == 3 && (so.InputTokens != 25 || so.OutputTokens < 15 || so.OutputTokens > 25) {
			t.Errorf("after 80 bytes: %+v", so)
		}
	}
	if usage == nil || usage.InputTokens != 1025 || usage.OutputTokens != 43 || usage.ToolCalls[catalog.WebSearch] != 2 {
		t.Errorf("got usage %+v", usage)
	}
}

func TestNativeStreamFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []string
		want   providers.Kind
	}{
		"error":         {[]string{nativeStart, upstreams.AnthropicError("overloaded_error", "Overloaded")}, providers.KindOverloaded},
		"early error":   {[]string{upstreams.AnthropicError("overloaded_error", "Overloaded")}, providers.KindOverloaded},
		"no start":      {[]string{nativeText}, providers.KindProtocol},
		"no end":        {[]string{nativeStart, nativeText}, providers.KindCut},
		"broken counts": {[]string{nativeStart, `{"type":"message_delta","usage":7}`}, providers.KindProtocol},
	} {
		p, upstream := newProvider(t)
		upstream.Queue(upstreams.AnthropicReply{Events: c.events})
		resp, err := p.Messages(t.Context(), &providers.MessagesRequest{Model: sonnet, Stream: true, Body: []byte(`{"model":"x","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`)})
		if err == nil {
			_, err = readAll(resp.Stream)
		}
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
