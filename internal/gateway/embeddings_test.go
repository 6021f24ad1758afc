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

// embeds is a provider that has embeddings.
type embeds struct {
	*fake
	answer func() (*providers.Answer, error)
}

func (e embeds) Embeddings(context.Context, string, []byte) (*providers.Answer, error) {
	return e.answer()
}

func (r *rig) embed(body string) (out outcome) {
	r.t.Helper()
	c := r.open()
	c.Body = []byte(body)
	out.Answer, out.err = r.Embeddings(r.t.Context(), c)
	r.settle(c, &out)
	return out
}

func TestEmbeddings(t *testing.T) {
	t.Parallel()
	const body = `{"model":"text-embedding-3-small","input":"hello"}`
	usage := providers.Usage{InputTokens: 3}
	var failure error
	p := embeds{doer("one", says(1, 1)), func() (*providers.Answer, error) {
		return &providers.Answer{Body: []byte(`{"data":[]}`), Usage: usage}, failure
	}}
	// A price of output must not be multiplied by the choices that there are none of.
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Default: dollars(1, 2)})
	if out := r.embed(`{"model":"any","input":"hello"}`); out.err != nil || out.Charged != 3000 || out.Source != "provider" || out.Output != 0 {
		t.Errorf("%+v", out)
	}
	usage = providers.Usage{}
	if out := r.embed(`{"model":"any","input":"hello"}`); out.err != nil || out.Charged != credits.Micro(1000*aboutTokens(31+frameTokens)) || out.Source != "estimated" {
		t.Errorf("%+v", out)
	}
	failure = &providers.Failure{Kind: providers.KindAuth, Err: errors.New("no")}
	if out := r.embed(`{"model":"any","input":"hello"}`); out.code != string(fault.Upstream) || out.Charged != 0 {
		t.Errorf("%+v", out)
	}
	little := credits.Micro(10)
	r.budget = &little
	if out := r.embed(`{"model":"any","input":"hello"}`); out.code != string(fault.InsufficientCredits) {
		t.Errorf("%+v", out)
	}
	unable := newRig(t, []providers.Provider{doer("one", says(1, 1))}, catalog.Supplier{Table: "openai"})
	if out := unable.embed(body); out.code != string(fault.NoProvider) {
		t.Errorf("%+v", out)
	}
}
