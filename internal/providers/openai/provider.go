// Package openai calls any server that speaks OpenAI's format: OpenAI itself,
// Azure, vLLM, Ollama, llama.cpp, Groq, Mistral, OpenRouter and many more. The
// caller's bytes go through with a few splices, the answer's as they are.
package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// Options configure a provider.
type Options struct {
	Name    string // such as "openai"
	BaseURL string // with the version: https://api.openai.com/v1
	Key     string // empty for servers that want none
	// Headers are sent with every call, such as OpenAI-Organization.
	Headers map[string]string
	// APIVersion is for Azure's dated API alone: a call then goes to
	// BaseURL/deployments/{model}, and the key into Api-Key. The BaseURL ends
	// in /openai; with one that ends in /openai/v1 it is not needed.
	APIVersion string
	// OldLimitOnly is for servers that refuse or ignore max_completion_tokens,
	// such as Ollama: they get the caller's as max_tokens. NoStreamOptions is
	// for those that refuse stream_options, and say unasked what a stream
	// used. Mistral's own server is known to be both.
	OldLimitOnly    bool
	NoStreamOptions bool
	Client          *wire.Client
}

// Provider is one such server.
type Provider struct {
	name       string
	base       string
	apiVersion string
	header     http.Header
	secrets    []string
	dialect    dialect
	client     *wire.Client
}

// dialect is how a server differs from OpenAI's.
type dialect struct{ oldLimitOnly, noStreamOptions bool }

// New makes a provider.
func New(o Options) *Provider {
	p := &Provider{
		name:       o.Name,
		base:       strings.TrimRight(o.BaseURL, "/"),
		apiVersion: o.APIVersion,
		header:     http.Header{},
		dialect:    dialect{oldLimitOnly: o.OldLimitOnly, noStreamOptions: o.NoStreamOptions},
		client:     o.Client,
	}
	if u, err := url.Parse(o.BaseURL); err == nil && u.Hostname() == "api.mistral.ai" {
		p.dialect = dialect{oldLimitOnly: true, noStreamOptions: true}
	}
	if o.Key != "" {
		p.secrets = append(p.secrets, o.Key)
		if o.APIVersion != "" {
			p.header.Set("Api-Key", o.Key)
		} else {
			p.header.Set("Authorization", "Bearer "+o.Key)
		}
	}
	for name, value := range o.Headers {
		p.header.Set(name, value)
		p.secrets = append(p.secrets, value)
	}
	return p
}

// Name is the provider's name.
func (p *Provider) Name() string { return p.name }

// String and GoString keep the key out of whatever prints a provider.
func (p *Provider) String() string {
	base := "an unreadable address"
	if u, err := url.Parse(p.base); err == nil {
		base = u.Redacted()
	}
	return p.name + " at " + base
}

// GoString is String.
func (p *Provider) GoString() string { return p.String() }

// Chat answers a chat completion. A plain answer that does not say what it
// used has a zero Usage, and a stream none at all: the caller has to estimate.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
	body, err := p.dialect.chatBody(req)
	if err != nil {
		return nil, err
	}
	resp, err := p.post(ctx, req.Model, "/chat/completions", body)
	if err != nil {
		return nil, err
	}
	if req.Stream && mayBeEvents(resp) {
		return &providers.Answer{Stream: newStream(p, resp)}, nil
	}
	answer, err := p.readAnswer(resp, "choices")
	if err == nil && req.Stream {
		return nil, protocol("a plain answer to a streamed call (%s)", resp.Header.Get("Content-Type"))
	}
	return answer, err
}

// Embeddings answers an embeddings call. Its body is the caller's JSON; the
// answer's usage may be zero, as with Chat.
func (p *Provider) Embeddings(ctx context.Context, model string, body []byte) (*providers.Answer, error) {
	body, err := embeddingsBody(model, body)
	if err != nil {
		return nil, err
	}
	resp, err := p.post(ctx, model, "/embeddings", body)
	if err != nil {
		return nil, err
	}
	return p.readAnswer(resp, "data")
}

func (p *Provider) post(ctx context.Context, model, path string, body []byte) (*http.Response, error) {
	to := p.base + path
	if p.apiVersion != "" {
		to = p.base + "/deployments/" + url.PathEscape(model) + path + "?api-version=" + url.QueryEscape(p.apiVersion)
	}
	account := false
	resp, err := p.client.Post(ctx, to, p.header, body, func(status int, body []byte) (param, message string) {
		account = isAboutAccount(status, body)
		return explain(status, body)
	})
	var f *providers.Failure
	if account && errors.As(err, &f) {
		f.Kind = providers.KindAuth
	}
	return resp, err
}

// mayBeEvents reports whether an answer can be a stream. Not every server
// gives its streams their proper type.
func mayBeEvents(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "text/event-stream", "text/plain", "application/octet-stream", "":
		return true
	}
	return false
}

// protocol is the failure of an answer that cannot be understood.
func protocol(format string, args ...any) error {
	return &providers.Failure{Kind: providers.KindProtocol, Err: fmt.Errorf(format, args...)}
}
