package gateway

import (
	"context"

	"turnpike/internal/catalog"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

type embedder interface {
	Embeddings(ctx context.Context, model string, body []byte) (*providers.Response, error)
}

// Embeddings makes an embeddings call.
func (g *Gateway) Embeddings(ctx context.Context, c Call) (*Response, error) {
	r, err := readEmbeddings(c.Body)
	if err != nil {
		return nil, c.noteRequested(err)
	}
	return g.forward(ctx, c, r, catalog.Embedding, func(ctx context.Context, t target, _ int64) (*providers.Response, error) {
		return t.provider.(embedder).Embeddings(ctx, t.offer.Upstream, r.body)
	})
}

// forward makes a call to a model of a kind.
func (g *Gateway) forward(ctx context.Context, c Call, r *request, kind catalog.Kind, send sendFunc) (*Response, error) {
	s := g.current.Load()
	targets, err := s.route(ctx, c.owner(), r.models, kind, r)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, c, r, targets, send)
}

type embeddingFields struct {
	Model  *string  `json:"model"`
	Models []string `json:"models"`
}

func readEmbeddings(body []byte) (*request, error) {
	var in embeddingFields
	if err := jsonbody.DecodeForwarded(body, &in, providers.EmbeddingNames); err != nil {
		return nil, err
	}
	r := &request{operation: "embeddings", endpoint: "embeddings", body: body} // no choices: the output isn't charged
	var err error
	if r.models, err = modelList(in.Model, in.Models); err != nil {
		return nil, err
	}
	r.maxInput = maxTextTokens(body, r.needs)
	r.addContent("input")
	return r, nil
}
