// Package openai calls servers with OpenAI's API: OpenAI itself, Azure, vLLM,
// Ollama, llama.cpp, Groq, Mistral, OpenRouter and many more. It forwards the
// client's bytes with a few changed fields, and responses unchanged.
package openai

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Options configure a provider.
type Options struct {
	Name    string // such as "openai"
	BaseURL string // with the version: https://api.openai.com/v1
	Key     string // empty for servers without keys
	// Credential replaces the key. It may be nil.
	Credential providers.Credential
	// Headers are sent with every request, such as OpenAI-Organization.
	Headers map[string]string
	// APIVersion is only for Azure's dated API: requests then go to
	// BaseURL/deployments/{model}, and the key into Api-Key. The BaseURL ends in
	// /openai. One that ends in /openai/v1 needs no APIVersion.
	APIVersion string
	// MaxTokensOnly is for servers that reject or ignore max_completion_tokens, such as Ollama:
	// they get it as max_tokens. NoStreamOptions is for servers that reject stream_options and send
	// the usage of a stream anyway. Mistral's own server is known to be both.
	MaxTokensOnly   bool
	NoStreamOptions bool
	// HasResponses is for servers with the Responses API.
	HasResponses bool
	// Private is whether all clients may use the objects in the account, such as files and vector stores.
	Private bool
	Client  *wire.Client
}

// Provider is a server with OpenAI's API.
type Provider struct {
	name       string
	base       string
	apiVersion string
	header     http.Header
	headers    []string // the values of Options.Headers
	dialect    dialect
	client     *wire.Client

	hasResponses bool
}

var (
	_ providers.ImageGenerator  = (*Provider)(nil)
	_ providers.SpeechGenerator = (*Provider)(nil)
	_ providers.VideoGenerator  = (*Provider)(nil)
	_ providers.VideoRemixer    = (*Provider)(nil)
	_ providers.Responder       = (*Provider)(nil)
	_ providers.Completer       = (*Provider)(nil)
	_ providers.Transcriber     = (*Provider)(nil)
	_ providers.Moderator       = (*Provider)(nil)
	_ providers.Reranker        = (*Provider)(nil)
)

// dialect is how a server differs from OpenAI's.
type dialect struct {
	maxTokensOnly, noStreamOptions bool

	private bool // see Options.Private
}

// New returns a provider.
func New(o Options) *Provider {
	p := &Provider{
		name:       o.Name,
		base:       strings.TrimRight(o.BaseURL, "/"),
		apiVersion: o.APIVersion,
		header:     http.Header{},
		dialect:    dialect{maxTokensOnly: o.MaxTokensOnly, noStreamOptions: o.NoStreamOptions, private: o.Private},

		hasResponses: o.HasResponses && o.APIVersion == "",
	}
	if u, err := url.Parse(o.BaseURL); err == nil && u.Hostname() == "api.mistral.ai" {
		p.dialect.maxTokensOnly, p.dialect.noStreamOptions = true, true
	}
	if o.Credential == nil {
		o.Credential = providers.StaticKey{Key: o.Key, Set: SetKey(o.APIVersion)}
	}
	p.client = o.Client.WithCredential(o.Credential)
	for name, value := range o.Headers {
		p.header.Set(name, value)
		p.headers = append(p.headers, value)
	}
	return p
}

// SetKey returns how a server gets its key. apiVersion is that of Azure's dated API, or empty.
func SetKey(apiVersion string) providers.SetKey {
	if apiVersion != "" {
		return providers.HeaderKey("Api-Key")
	}
	return providers.BearerKey
}

// secrets returns what must not be logged.
func (p *Provider) secrets() []string { return slices.Concat(p.headers, p.client.Secrets()) }

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// String returns the name and the URL without the key and a password.
func (p *Provider) String() string {
	base := "an invalid URL"
	if u, err := url.Parse(p.base); err == nil {
		base = u.Redacted()
	}
	return p.name + " at " + base
}

// GoString returns the same as String.
func (p *Provider) GoString() string { return p.String() }

// Chat makes a chat request. If the server doesn't count tokens, the output is estimated, the input
// is zero, and a stream ends without a usage chunk.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	body, err := p.dialect.chatBody(req)
	if err != nil {
		return nil, err
	}
	return p.complete(ctx, req, "/chat/completions", body)
}

// Complete makes a text completion.
func (p *Provider) Complete(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	d := p.dialect
	d.maxTokensOnly = true // the API is older than the other field
	body, err := d.chatBody(req)
	if err != nil {
		return nil, err
	}
	return p.complete(ctx, req, "/completions", body)
}

func (p *Provider) complete(ctx context.Context, req *providers.ChatRequest, path string, body []byte) (*providers.Response, error) {
	resp, err := p.post(ctx, req.Model, path, body)
	if err != nil {
		return nil, err
	}
	if req.Stream && mayBeEvents(resp) {
		return &providers.Response{Stream: &stream{provider: p, events: wire.NewEvents(resp, req.BeforeWait)}}, nil
	}
	result, err := p.readResponse(resp, "choices")
	if err == nil && req.Stream {
		return nil, wire.ProtocolFailure("the response isn't a stream (%s)", resp.Header.Get("Content-Type"))
	}
	return result, err
}

// Embeddings makes an embeddings request. The usage may be zero, as with Chat.
func (p *Provider) Embeddings(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	resp, err := p.forward(ctx, model, "/embeddings", body)
	if err != nil {
		return nil, err
	}
	return p.readResponse(resp, "data")
}

// Moderate makes a moderations request. OpenAI reports no usage.
func (p *Provider) Moderate(ctx context.Context, model string, body []byte) (*providers.Response, error) {
	resp, err := p.forward(ctx, model, "/moderations", body)
	if err != nil {
		return nil, err
	}
	return p.readResponse(resp, "results")
}

// forward sends the client's body with the provider's name of the model.
func (p *Provider) forward(ctx context.Context, model, path string, body []byte) (*http.Response, error) {
	var o object
	if err := o.parseBody(jsonbody.NewIndex(body), model); err != nil {
		return nil, err
	}
	return p.post(ctx, model, path, o.bytes())
}

func (p *Provider) post(ctx context.Context, model, path string, body []byte) (*http.Response, error) {
	return p.client.Post(ctx, p.url(model, path), p.header, body, explain)
}

func (p *Provider) url(model, path string) string {
	if p.apiVersion != "" {
		return p.base + "/deployments/" + url.PathEscape(model) + path + "?api-version=" + url.QueryEscape(p.apiVersion)
	}
	return p.base + path
}

// doMedia sends a request that a content filter may reject. Its headers are
// added to the provider's.
func (p *Provider) doMedia(ctx context.Context, call wire.Call) (*http.Response, error) {
	header := p.header.Clone()
	maps.Copy(header, call.Header)
	call.Header, call.Explain = header, explainMedia
	return p.client.Do(ctx, call)
}

// mayBeEvents reports whether a response can be a stream. Not every server
// sends the right media type.
func mayBeEvents(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream", "text/plain", "application/octet-stream", "":
		return true
	}
	return false
}
