package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/budget"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/messages"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// MessageOptions are what a request to the Messages API has besides its body.
type MessageOptions struct {
	ID        string   // of the message, if Turnpike writes it
	Version   string   // of the API
	Beta      []string // the anthropic-beta headers
	BetaQuery bool     // the URL has ?beta=true
	// ResumeThread returns the body of a request with a thread: the whole conversation. If it is nil, threads are rejected.
	ResumeThread func(*messages.Turn) ([]byte, error)
}

// Messages makes a request in Anthropic's format. A provider that has the Messages API gets the
// client's bytes, and all others get a chat completion.
func (g *Gateway) Messages(ctx context.Context, c Call, o MessageOptions) (*Response, error) {
	r, err := readMessageCall(&c, &o)
	if err != nil {
		return nil, err
	}
	if err := messages.CheckMaxTokens(r.messages.MaxTokens); err != nil {
		return nil, err
	}
	r.session = c.session(r)
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Chat, r)
	if err != nil {
		return nil, err
	}
	if err := r.checkMessagePrices(targets); err != nil {
		return nil, err
	}
	m := &messageCall{body: c.Body, index: r.indexed, options: o, decode: messages.Decode, beforeWait: c.BeforeWait}
	return s.run(ctx, c, r, targets, func(ctx context.Context, t target, maxOutput int64) (*providers.Response, error) {
		return m.send(ctx, t, r.stream, maxOutput)
	})
}

// CountTokens counts the input tokens of a request in Anthropic's format. It is free. For models of
// other providers the count is an estimate.
func (g *Gateway) CountTokens(ctx context.Context, c Call, o MessageOptions) (*Response, error) {
	r, err := readMessageCall(&c, &o)
	if err != nil {
		return nil, err
	}
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, catalog.Chat, r)
	if err != nil {
		return nil, err
	}
	m := &messageCall{body: c.Body, index: r.indexed, options: o, decode: messages.DecodeForCount}
	counted := &request{operation: r.operation, models: r.models, needs: r.needs}
	return s.run(ctx, c, counted, targets, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		return m.count(ctx, t, g.Simulator)
	})
}

// messageCall sends a request in Anthropic's format to a target.
type messageCall struct {
	body    []byte
	index   *jsonbody.Index // of the body
	options MessageOptions
	decode  func(body []byte, version string) (*messages.Request, error)

	beforeWait func() error // see providers.ChatRequest

	translated *messages.Request // nil until a target needs it
}

func (m *messageCall) native(t target, stream bool, maxOutput int64) *providers.MessagesRequest {
	return &providers.MessagesRequest{Model: t.offer.Upstream, Body: m.body, Index: m.index, Stream: stream, MaxOutput: maxOutput, Version: m.options.Version, Beta: allowedBetas(m.options.Beta, t), BetaQuery: m.options.BetaQuery, BeforeWait: m.beforeWait}
}

func (m *messageCall) send(ctx context.Context, t target, stream bool, maxOutput int64) (*providers.Response, error) {
	if p, ok := t.provider.(providers.MessageCreator); ok {
		return p.Messages(ctx, m.native(t, stream, maxOutput))
	}
	body, err := m.chat(ctx, t)
	if err != nil {
		return nil, err
	}
	resp, err := t.provider.(providers.ChatCompleter).Chat(ctx, &providers.ChatRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: body, Stream: stream, MaxOutput: maxOutput, BeforeWait: m.beforeWait})
	if err != nil {
		return nil, m.translateError(err)
	}
	resp.Ignored = m.translated.Ignored(resp.Ignored)
	if resp.Stream != nil {
		resp.Stream = m.translated.NewStream(m.options.ID, t.offer.ID, resp.Stream)
		return resp, nil
	}
	resp.Body, err = m.translated.Message(m.options.ID, t.offer.ID, resp.Body, resp.Usage)
	return resp, err
}

func (m *messageCall) count(ctx context.Context, t target, fallback providers.Provider) (*providers.Response, error) {
	if p, ok := t.provider.(providers.MessageCreator); ok {
		return p.CountMessageTokens(ctx, m.native(t, false, 0))
	}
	body, err := m.chat(ctx, t)
	if err != nil {
		return nil, err
	}
	n, err := fallback.(providers.TokenCounter).CountTokens(ctx, body)
	if err != nil {
		return nil, m.translateError(err)
	}
	return &providers.Response{Body: fmt.Appendf(nil, `{"input_tokens":%d}`, n)}, nil
}

// chat translates the request for a target that has no Messages API.
func (m *messageCall) chat(ctx context.Context, t target) (_ []byte, err error) {
	if m.translated == nil {
		if err := budget.Of(ctx).Reserve(int64(len(m.body))); err != nil {
			return nil, err
		}
		if m.translated, err = m.decode(m.body, m.options.Version); err != nil {
			return nil, err
		}
	}
	return m.translated.Chat(t.offer.Kind == "" || t.offer.Capabilities.Reasoning)
}

// translateError names the client's fields in errors about a chat completion.
func (m *messageCall) translateError(err error) error {
	var f *providers.Failure
	if errors.As(err, &f) {
		f.Param = m.translated.FieldName(f.Param)
		return err
	}
	return m.translated.TranslateFault(err)
}

// longContext begins the beta that raises the context window of models with a smaller one. Longer
// prompts cost more there, and the catalog has one price.
const longContext = "context-1m-"

const smallContextWindow = 200_000

// allowedBetas returns the client's betas without those that change prices.
func allowedBetas(headers []string, t target) []string {
	if n := t.offer.ContextWindow; n == 0 || n > smallContextWindow || !strings.Contains(strings.Join(headers, ","), longContext) {
		return headers
	}
	return withoutBeta(headers, longContext)
}

// messageFields are the fields that decide where a request goes and what it may cost.
type messageFields struct {
	Model        string         `json:"model"`
	Models       []string       `json:"models"` // fallbacks
	MaxTokens    *int64         `json:"max_tokens"`
	Stream       bool           `json:"stream"`
	Tools        []messageTool  `json:"tools"`
	Speed        string         `json:"speed"`
	InferenceGeo string         `json:"inference_geo"`
	MCPServers   jsontext.Value `json:"mcp_servers"`
	Thread       jsontext.Value `json:"thread"`
	OutputFormat jsontext.Value `json:"output_format"`

	ContextManagement struct {
		Edits []contextEdit `json:"edits"`
	} `json:"context_management"`
	OutputConfig struct {
		Format jsontext.Value `json:"format"`
	} `json:"output_config"`
}

type messageTool struct {
	Type    string `json:"type"`
	MaxUses *int64 `json:"max_uses"`
}

// messageNames are the names that Turnpike reads, here or in a translation.
var messageNames = func() jsonbody.Names {
	names := messages.Names()
	for name, inside := range jsonbody.NamesOf[messageFields]() {
		if names[name] == nil {
			names[name] = inside
		}
	}
	names["tools"]["max_uses"] = nil
	return names
}()

func readMessages(body []byte) (*request, error) {
	in := new(messageFields)
	if err := jsonbody.DecodeForwarded(body, in, messageNames); err != nil {
		return nil, err
	}
	r := &request{
		operation: "chat", endpoint: "messages", body: body, choices: 1, stream: in.Stream, messages: in,
		needs:     needs{tools: len(in.Tools) > 0, schema: isSet(in.OutputFormat) || isSet(in.OutputConfig.Format)},
		hourCache: mayCacheForAnHour(body),
	}
	if n := in.MaxTokens; n != nil {
		r.maxOutput = min(*n, maxTokenCount)
	}
	var err error
	if r.models, err = modelList(&in.Model, in.Models); err != nil {
		return nil, err
	}
	r.maxInput = maxTextTokens(body, r.needs)
	if bytes.Count(body, []byte("[")) > 1 { // messages and their blocks are arrays
		r.addContent("messages", "system")
	}
	for _, t := range in.Tools {
		if t.Type != "" && t.Type != "custom" {
			r.maxInput += builtInToolTokens
		}
	}
	return r, nil
}

// mayCacheForAnHour looks for "ttl":"1h", with escapes or without.
func mayCacheForAnHour(body []byte) bool {
	return bytes.Contains(body, []byte(`"1h"`)) || bytes.Contains(body, []byte(`\u0031`)) || bytes.Contains(body, []byte(`\u0068`))
}

func isSet(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != jsontext.KindNull }

// builtInToolTokens is more than what Anthropic adds to the prompt for one of its tools.
const builtInToolTokens = 2_000

// clientTools begin the types of tools that the client runs. Others run at the provider, which
// charges for them and adds their results to the input.
var clientTools = []string{"custom", "bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"}

// checkMessagePrices rejects what has a price that the catalog doesn't know, unless the models are
// free. Web searches may have one, and then need a limit.
func (r *request) checkMessagePrices(targets []target) error {
	if !slices.ContainsFunc(targets, func(t target) bool { return !t.offer.Price.IsFree() }) {
		return nil
	}
	const unknown = "has its own price, which this server does not know."
	f, searches := r.messages, int64(0)
	for i, t := range f.Tools {
		if t.Type == "" || slices.ContainsFunc(clientTools, func(prefix string) bool { return strings.HasPrefix(t.Type, prefix) }) {
			continue
		}
		path := "tools[" + strconv.Itoa(i) + "]"
		if strings.HasPrefix(t.Type, "web_search_") && !slices.ContainsFunc(targets, func(t target) bool { return !t.offer.Price.Tools[catalog.WebSearch].Known }) {
			if t.MaxUses == nil || *t.MaxUses < 1 {
				return fault.Missing(path+".max_uses", "%s.max_uses is required, because each web search costs credits. Set it to the number of searches that you allow.", path)
			}
			searches = min(searches+*t.MaxUses, maxTokenCount)
			continue
		}
		at := path + ".type"
		return fault.Invalid(at, "%s %.60q runs at the provider and %s Use a tool that your program runs.", at, t.Type, unknown)
	}
	switch {
	case isSet(f.MCPServers) && string(f.MCPServers) != "[]":
		return fault.Invalid("mcp_servers", "mcp_servers are called by the provider, which adds their results to the input at a price that this server does not know. Call them from your program.")
	case f.compacts():
		return fault.Invalid("context_management.edits", "context_management.edits may only have types that begin with %s. Others are model calls with a price that this server does not know.", contextEdits)
	case f.Speed != "" && f.Speed != "standard":
		return fault.Invalid("speed", "speed %.40q %s Omit it.", f.Speed, unknown)
	case f.InferenceGeo != "" && f.InferenceGeo != "global":
		return fault.Invalid("inference_geo", "inference_geo %.40q %s Omit it.", f.InferenceGeo, unknown)
	}
	if searches > 0 {
		r.hosted = &hostedTools{maxCalls: func(target) (calls catalog.ToolCalls) {
			calls[catalog.WebSearch] = searches
			return calls
		}}
		r.fillsWindow = true // the results become input
	}
	return nil
}
