// Package gemini translates OpenAI's chat completions and embeddings, and
// requests for images, speech and videos, to Gemini's native API and back.
package gemini

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/ids"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// DefaultBaseURL is Google's own server. The version is the one that has
// thinking, JSON schemas and function calls.
const DefaultBaseURL = "https://generativelanguage.googleapis.com/v1beta"

// Options configure a provider.
type Options struct {
	Name    string // in the request log; "gemini" if empty
	BaseURL string // with the version; DefaultBaseURL if empty
	Key     string
	// Credential replaces the key. It may be nil.
	Credential providers.Credential
	Client     *wire.Client // a new one if nil
}

// Provider calls Gemini.
type Provider struct {
	name   string
	base   string
	client *wire.Client
	now    func() time.Time
	newID  func(prefix string) string
}

var (
	_ providers.ChatCompleter   = (*Provider)(nil)
	_ providers.ImageGenerator  = (*Provider)(nil)
	_ providers.SpeechGenerator = (*Provider)(nil)
	_ providers.VideoGenerator  = (*Provider)(nil)
)

// New returns a provider.
func New(o Options) *Provider {
	if o.Client == nil {
		o.Client = wire.NewClient(wire.Timeouts{})
	}
	if o.Credential == nil {
		o.Credential = providers.StaticKey{Key: o.Key, Set: SetKey}
	}
	return &Provider{
		name:   cmp.Or(o.Name, "gemini"),
		base:   strings.TrimRight(cmp.Or(o.BaseURL, DefaultBaseURL), "/"),
		client: o.Client.WithCredential(o.Credential),
		now:    time.Now,
		newID:  ids.New,
	}
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// Chat makes a chat request.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	call, err := translate(req)
	if err != nil {
		return nil, err
	}
	method := "generateContent"
	if req.Stream {
		method = "streamGenerateContent?alt=sse"
	}
	resp, err := p.client.Post(ctx, p.url(req.Model, method), nil, call.body, explain)
	if err != nil {
		return nil, err
	}
	head := head{openai.Head{ID: p.newID("chatcmpl-"), Created: p.now().Unix(), Model: req.Model}, p.newID}
	if req.Stream {
		return &providers.Response{Stream: newStream(wire.NewEvents(resp, req.BeforeWait), head, call, p.client.Secrets()), Ignored: call.ignored}, nil
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	return head.completion(body, call, p.client.Secrets())
}

func (p *Provider) url(model, method string) string {
	return p.base + "/models/" + escape(model) + ":" + method
}

// SetKey puts the key into a header. A URL would end up in logs and error messages.
func SetKey(h http.Header, key string) { h.Set("X-Goog-Api-Key", key) }

// escape makes a model's name one segment of a path. It also escapes the colon,
// which starts the method.
func escape(model string) string {
	return strings.ReplaceAll(url.PathEscape(strings.TrimPrefix(model, "models/")), ":", "%3A")
}
