// Package anthropic calls servers with Anthropic's Messages API (version 2023-06-01). It translates
// OpenAI's chat completions to it and back, and forwards requests in Anthropic's own format.
package anthropic

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/ids"
	"turnpike/internal/openai"
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
	// Credential replaces the key. It may be nil.
	Credential providers.Credential
	// Platform is where the API runs. For Vertex, BaseURL ends in /publishers/anthropic.
	Platform Platform
	// Private is whether all clients may use the objects in the account, such as files and containers.
	Private bool
	Client  *wire.Client // a new one if nil
}

// Provider calls Anthropic or another server with the Messages API.
type Provider struct {
	name     string
	url      string // of messages; the BaseURL of other platforms
	platform Platform
	private  bool
	client   *wire.Client
	now      func() time.Time
	newID    func(prefix string) string
}

var _ providers.Provider = (*Provider)(nil)

// New returns a provider.
func New(o Options) *Provider {
	if o.Client == nil {
		o.Client = wire.NewClient(wire.Timeouts{})
	}
	if o.Credential == nil {
		o.Credential = providers.StaticKey{Key: o.Key, Set: SetKey}
	}
	base := strings.TrimRight(cmp.Or(o.BaseURL, defaultBaseURL), "/")
	return &Provider{
		name:     cmp.Or(o.Name, "anthropic"),
		url:      o.Platform.address(base),
		platform: o.Platform,
		private:  o.Private,
		client:   o.Client.WithCredential(o.Credential),
		now:      time.Now,
		newID:    ids.New,
	}
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// Chat makes a chat request. A streamed one returns once the model has started,
// so that an error at the very start is returned here.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	body, info, err := translate(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.send(ctx, messageCall{model: req.Model, stream: req.Stream, header: p.header(), body: body}, explain)
	if err != nil {
		return nil, err
	}
	head := openai.Head{ID: p.newID("chatcmpl-"), Created: p.now().Unix(), Model: info.model}
	if req.Stream {
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
			resp.Body.Close()
			return nil, p.protocolFailure("%.80q instead of a stream", kind)
		}
		queue := wire.ChunkQueue{Head: head, IncludeUsage: info.includeUsage}
		s := &stream{ChunkQueue: queue, events: wire.NewEvents(resp, req.BeforeWait), provider: p, info: info}
		if err := s.start(); err != nil {
			s.Close()
			return nil, err
		}
		return &providers.Response{Stream: s, Ignored: info.ignored}, nil
	}
	text, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	return p.completion(text, info, head)
}

func (p *Provider) header() http.Header {
	return http.Header{"Anthropic-Version": {apiVersion}}
}

// SetKey puts the key into the header for it.
func SetKey(h http.Header, key string) { h.Set("X-Api-Key", key) }
