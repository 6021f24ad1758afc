package gateway

import (
	"context"
	"errors"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// embeddingProvider is a provider with embeddings.
type embeddingProvider struct {
	*fake
	answer func() (*providers.Response, error)
}

func (e embeddingProvider) Embeddings(context.Context, string, []byte) (*providers.Response, error) {
	return e.answer()
}

func (r *fixture) embed(body string) (out outcome) {
	r.t.Helper()
	c := r.newCall()
	c.Body = []byte(body)
	out.Response, out.err = r.Embeddings(r.t.Context(), c)
	r.settle(c, &out)
	return out
}

func TestEmbeddingsAreChargedByInput(t *testing.T) {
	t.Parallel()
	const body = `{"model":"text-embedding-3-small","input":"hello"}`
	usage := providers.Usage{InputTokens: 3}
	var failure error
	p := embeddingProvider{newFake("one", respond(1, 1)), func() (*providers.Response, error) {
		return &providers.Response{Body: []byte(`{"data":[]}`), Usage: usage}, failure
	}}
	// The output price must not count: embeddings have no choices.
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Default: dollars(1, 2)})
	if out := r.embed(`{"model":"any","input":"hello"}`); out.err != nil || out.Charged != 3000 || out.Source != "provider" || out.Output != 0 {
		t.Errorf("got %+v", out)
	}
	usage = providers.Usage{}
	if out := r.embed(`{"model":"any","input":"hello"}`); out.err != nil || out.Charged != credits.Micro(1000*estimateTokens(31+frameTokens)) || out.Source != "estimated" {
		t.Errorf("got %+v", out)
	}
	failure = &providers.Failure{Kind: providers.KindAuth, Err: errors.New("no")}
	if out := r.embed(`{"model":"any","input":"hello"}`); out.code != string(fault.Upstream) || out.Charged != 0 {
		t.Errorf("got %+v", out)
	}
	little := credits.Micro(10)
	r.budget = &little
	if out := r.embed(`{"model":"any","input":"hello"}`); out.code != string(fault.InsufficientCredits) {
		t.Errorf("got %+v", out)
	}
	unable := newFixture(t, []providers.Provider{newFake("one", respond(1, 1))}, catalog.Supplier{Table: "openai"})
	if out := unable.embed(body); out.code != string(fault.NoProvider) {
		t.Errorf("got %+v", out)
	}
}
