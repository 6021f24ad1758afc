// Package anthropic puts Anthropic's Messages API (version 2023-06-01) behind
// OpenAI's chat completions, translated both ways.
package anthropic

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/ids"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	defaultBaseURL = "https://api.anthropic.com"
	apiVersion     = "2023-06-01"
)

// Options configure a provider.
type Options struct {
	Name    string // "anthropic" if empty
	BaseURL string // with or without "/v1"; Anthropic's own if empty
	Key     string
	Client  *wire.Client
}

// Provider answers with Anthropic's models, or with those of another server
// that speaks the Messages API.
type Provider struct {
	name   string
	url    string
	key    string
	client *wire.Client
	now    func() time.Time
	newID  func(prefix string) string
}

var _ providers.Provider = (*Provider)(nil)

// New makes a provider.
func New(o Options) *Provider {
	if o.Name == "" {
		o.Name = "anthropic"
	}
	if o.BaseURL == "" {
		o.BaseURL = defaultBaseURL
	}
	base := strings.TrimSuffix(strings.TrimRight(o.BaseURL, "/"), "/v1")
	return &Provider{
		name:   o.Name,
		url:    base + "/v1/messages",
		key:    o.Key,
		client: o.Client,
		now:    time.Now,
		newID:  ids.New,
	}
}

// Name is the provider's name.
func (p *Provider) Name() string { return p.name }

// Chat answers a chat completion. A streamed call returns once the model has
// begun, so that a refusal at the very start is this call's error.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
	body, asked, err := translate(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.post(ctx, body)
	if err != nil {
		return nil, err
	}
	begin := head{id: p.newID("chatcmpl-"), created: p.now().Unix(), model: asked.model}
	if req.Stream {
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
			resp.Body.Close()
			return nil, p.garbled("a stream was asked for and %.80q came", kind)
		}
		s := &stream{events: wire.NewEvents(resp), provider: p, asked: asked, head: begin}
		if err := s.begin(); err != nil {
			s.Close()
			return nil, err
		}
		return &providers.Answer{Stream: s}, nil
	}
	text, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	return p.answer(text, asked, begin)
}

func (p *Provider) post(ctx context.Context, body []byte) (*http.Response, error) {
	header := http.Header{"Anthropic-Version": {apiVersion}}
	if p.key != "" {
		header.Set("X-Api-Key", p.key)
	}
	var said apiError
	resp, err := p.client.Post(ctx, p.url, header, body, func(_ int, text []byte) (param, message string) {
		said = readError(text)
		return said.param(), said.text()
	})
	var f *providers.Failure
	if errors.As(err, &f) {
		if kind := said.kind(); kind != "" {
			f.Kind = kind
		}
	}
	return resp, err
}
