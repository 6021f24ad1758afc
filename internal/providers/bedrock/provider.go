// Package bedrock translates OpenAI's chat completions to Amazon Bedrock's Converse API and back, which all
// chat models of Bedrock have. Claude's own API on Bedrock is in package anthropic.
package bedrock

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/ids"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const eventStream = "application/vnd.amazon.eventstream"

// Options configure a provider.
type Options struct {
	Name       string // in the request log; "bedrock" if empty
	BaseURL    string // of the runtime in a region
	Credential providers.Credential
	Client     *wire.Client // a new one if nil
}

// Provider calls Bedrock.
type Provider struct {
	name   string
	base   string
	client *wire.Client
	now    func() time.Time
	newID  func(prefix string) string
}

var _ providers.ChatCompleter = (*Provider)(nil)

// New returns a provider.
func New(o Options) *Provider {
	if o.Client == nil {
		o.Client = wire.NewClient(wire.Timeouts{})
	}
	return &Provider{name: cmp.Or(o.Name, "bedrock"), base: strings.TrimRight(o.BaseURL, "/"), client: o.Client.WithCredential(o.Credential), now: time.Now, newID: ids.New}
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// Chat makes a chat request. A streamed one returns once the model has started, so that an error at the very
// start is returned here.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	c, err := translate(req)
	if err != nil {
		return nil, err
	}
	method, header := "/converse", http.Header{"Accept": {"application/json"}}
	if req.Stream {
		method, header = "/converse-stream", http.Header{"Accept": {eventStream}}
	}
	resp, err := p.client.Post(ctx, p.base+"/model/"+escape(req.Model)+method, header, c.body, explain)
	if err != nil {
		return nil, err
	}
	head := openai.Head{ID: p.newID("chatcmpl-"), Created: p.now().Unix(), Model: req.Model}
	if !req.Stream {
		text, err := wire.ReadAll(resp)
		if err != nil {
			return nil, err
		}
		return p.completion(text, c, head)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != eventStream {
		resp.Body.Close()
		return nil, wire.ProtocolFailure("%.80q instead of an event stream", kind)
	}
	wire.BeforeWait(resp, req.BeforeWait)
	s := newStream(resp.Body, stream{ChunkQueue: wire.ChunkQueue{Head: head, IncludeUsage: c.includeUsage}, provider: p, call: c})
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return &providers.Response{Stream: s, Ignored: c.ignored}, nil
}

// escape makes a model's name or ARN one segment of a path.
func escape(model string) string { return strings.ReplaceAll(url.PathEscape(model), ":", "%3A") }

// SetKey puts an API key of Bedrock into the header for it.
func SetKey(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }
