//go:build clients

package sdk_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// The responses of the upstreams, in any format.
const (
	spoken   = "It is forty-two, of course."
	toolName = "get_weather"
	toolArgs = `{"city":"Paris"}`
	person   = `{"name":"Ada","age":36}`
	// pixel is an image of one pixel.
	pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

// step is one upstream response in the shared conversation.
type step struct {
	text   string // empty: a tool call
	stream bool
}

// conversation has the upstream responses in the order of the clients' requests.
var conversation = []step{
	{spoken, false}, {spoken, true}, // chat
	{"", false}, {spoken, false}, {"", true}, // tools: a loop, and a streamed call
	{person, false}, {spoken, false}, // structured output, vision
	{spoken, false}, {spoken, true}, {"", false}, {spoken, false}, // responses: plain, streamed, a tool loop
}

// upstream is a mock provider with its settings for the clients.
type upstream struct {
	name       string
	model      string
	embeddings string // an embeddings model, if it has one
	base       string
	queue      func(list []step) // the responses
	bodies     func() []byte     // all request bodies
}

const upstreamKey = "the-upstream-key"

// allUpstreams starts a mock of every provider.
func allUpstreams(t *testing.T) []upstream {
	o, a, g := upstreams.NewOpenAI(t, upstreamKey), upstreams.NewAnthropic(t, upstreamKey), upstreams.NewGemini(t, upstreamKey)
	return []upstream{
		{"openai", "gpt-4o-mini", "text-embedding-3-small", o.BaseURL(), func(list []step) {
			for i, s := range list {
				reply := upstreams.OpenAIReply{Text: s.text}
				if s.text == "" {
					reply.Calls = []upstreams.OpenAICall{{ID: fmt.Sprintf("call_%d", i), Name: toolName, Arguments: toolArgs}}
				}
				o.Queue(reply)
			}
		}, func() (all []byte) {
			for _, r := range o.Requests() {
				all = append(all, r.Body...)
			}
			return all
		}},
		{"anthropic", "claude-sonnet-4-5", "", a.BaseURL(), func(list []step) {
			for i, s := range list {
				a.Queue(anthropicReply(s, fmt.Sprintf("toolu_%d", i)))
			}
		}, func() (all []byte) {
			for _, r := range a.Requests() {
				all = append(all, r.Body...)
			}
			return all
		}},
		{"gemini", "gemini-2.5-flash", "gemini-embedding-001", g.BaseURL(), func(list []step) {
			for _, s := range list {
				g.Queue(geminiReply(s))
			}
		}, func() (all []byte) {
			for _, r := range g.Requests() {
				all = append(all, r.Body...)
			}
			return all
		}},
	}
}

func anthropicReply(s step, call string) upstreams.AnthropicReply {
	block, start, delta, stop := fmt.Sprintf(`{"type":"text","text":%q}`, s.text), `{"type":"text","text":""}`, fmt.Sprintf(`{"type":"text_delta","text":%q}`, s.text), "end_turn"
	if s.text == "" {
		block = `{"type":"tool_use","id":"` + call + `","name":"` + toolName + `","input":` + toolArgs + `}`
		start = `{"type":"tool_use","id":"` + call + `","name":"` + toolName + `","input":{}}`
		delta = fmt.Sprintf(`{"type":"input_json_delta","partial_json":%q}`, toolArgs)
		stop = "tool_use"
	}
	const message = `{"id":"msg_01A","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[%s],"stop_reason":%s,"stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":%d}}`
	if !s.stream {
		return upstreams.AnthropicReply{Body: fmt.Sprintf(message, block, strconv.Quote(stop), 9)}
	}
	return upstreams.AnthropicReply{Events: []string{
		`{"type":"message_start","message":` + fmt.Sprintf(message, "", "null", 1) + `}`,
		`{"type":"content_block_start","index":0,"content_block":` + start + `}`,
		`{"type":"content_block_delta","index":0,"delta":` + delta + `}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"` + stop + `","stop_sequence":null},"usage":{"output_tokens":9}}`,
		`{"type":"message_stop"}`,
	}}
}

func geminiReply(s step) upstreams.GeminiReply {
	part := fmt.Sprintf(`{"text":%q}`, s.text)
	if s.text == "" {
		part = `{"functionCall":{"name":"` + toolName + `","args":` + toolArgs + `}}`
	}
	body := `{"candidates":[{"content":{"parts":[` + part + `],"role":"model"},"finishReason":"STOP","index":0}],` +
		`"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":9,"totalTokenCount":21},"modelVersion":"gemini-2.5-flash","responseId":"r"}`
	if s.stream {
		return upstreams.GeminiReply{Events: []string{body}}
	}
	return upstreams.GeminiReply{Body: body}
}

// startUpstreams starts a server that has all providers.
func startUpstreams(t *testing.T, engine string) (*harness.Server, []upstream) {
	t.Helper()
	list := allUpstreams(t)
	cfg := harness.Config(t, engine)
	for _, u := range list {
		cfg.Providers = append(cfg.Providers, config.Provider{Name: u.name, Type: u.name, BaseURL: config.Address(u.base), APIKey: upstreamKey, Weight: 1})
	}
	return harness.Start(t, cfg, harness.NewClock()), list
}

// withUpstreams runs fn once for each provider, with a server that has all of them and
// a live key. It then checks the provider's requests.
func withUpstreams(t *testing.T, engine string, fn func(t *testing.T, s *harness.Server, key string, u upstream)) {
	t.Helper()
	s, list := startUpstreams(t, engine)
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
	for _, u := range list {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			u.queue(conversation)
			fn(t, s, key, u)
			if seen := u.bodies(); !bytes.Contains(seen, []byte(pixel)) || !bytes.Contains(seen, []byte("sunny")) {
				t.Error("the image or the tool's answer has not reached the provider")
			}
		})
	}
}
