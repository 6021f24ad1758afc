// Package gemini puts Gemini's native API behind OpenAI's chat completions and
// embeddings: requests, answers, streams and errors are translated both ways.
package gemini

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/ids"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// DefaultBaseURL is Google's own server. The version is the one that has
// thinking, JSON schemas and function calls.
const DefaultBaseURL = "https://generativelanguage.googleapis.com/v1beta"

// Options configure a provider.
type Options struct {
	Name    string       // the word in the log; empty is "gemini"
	BaseURL string       // with the version; empty is DefaultBaseURL
	Key     string       // of the Gemini API
	Client  *wire.Client // nil is one of its own
}

// Provider answers from Gemini.
type Provider struct {
	name   string
	base   string
	key    string
	client *wire.Client
	now    func() time.Time
	newID  func(prefix string) string
}

var _ providers.Provider = (*Provider)(nil)

// New makes a provider.
func New(o Options) *Provider {
	if o.Client == nil {
		o.Client = wire.NewClient(wire.Timeouts{})
	}
	return &Provider{
		name:   cmp.Or(o.Name, "gemini"),
		base:   strings.TrimRight(cmp.Or(o.BaseURL, DefaultBaseURL), "/"),
		key:    o.Key,
		client: o.Client,
		now:    time.Now,
		newID:  ids.New,
	}
}

// Name is the word the audit log uses.
func (p *Provider) Name() string { return p.name }

// Chat answers one chat completion.
func (p *Provider) Chat(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
	call, err := translate(req)
	if err != nil {
		return nil, err
	}
	method := "generateContent"
	if req.Stream {
		method = "streamGenerateContent?alt=sse"
	}
	resp, err := p.post(ctx, req.Model, method, call.body)
	if err != nil {
		return nil, err
	}
	head := head{id: p.newID("chatcmpl-"), created: p.now().Unix(), model: req.Model, newID: p.newID}
	if req.Stream {
		return &providers.Answer{Stream: newStream(wire.NewEvents(resp), head, call, p.key)}, nil
	}
	body, err := wire.ReadAll(resp)
	if err != nil {
		return nil, err
	}
	return head.answer(body, call, p.key)
}

// post calls a method of a model. The key goes into a header: a URL ends up in
// logs and error messages.
func (p *Provider) post(ctx context.Context, model, method string, body []byte) (*http.Response, error) {
	var said apiError
	header := http.Header{"X-Goog-Api-Key": {p.key}}
	resp, err := p.client.Post(ctx, p.base+"/models/"+escape(model)+":"+method, header, body, func(_ int, body []byte) (param, message string) {
		said = readError(body)
		return said.param(), said.Message
	})
	var f *providers.Failure
	if errors.As(err, &f) && f.Status != 0 {
		said.refine(f)
	}
	return resp, err
}

// escape makes a model's name one segment of a path. The colon, which a path
// allows, would begin the method.
func escape(model string) string {
	return strings.ReplaceAll(url.PathEscape(strings.TrimPrefix(model, "models/")), ":", "%3A")
}
