package gateway

import (
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
)

// listed are the kinds of models that can be called by their name.
var listed = []catalog.Kind{catalog.Chat, catalog.Embedding, catalog.Image, catalog.Speech, catalog.Video}

// Models lists what the principal can call, by id.
func (g *Gateway) Models(p *access.Principal) []*catalog.Model {
	var out []*catalog.Model
	for _, id := range g.callable(p.Environment, listed...) {
		if m := g.model(p.Environment, id); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// model is a model as the first provider that has it offers it. One that
// nobody knows is not listed, although it may be called.
func (g *Gateway) model(env accounts.Environment, id string) *catalog.Model {
	for _, kind := range listed {
		for _, t := range g.offering(env, id, kind) {
			if t.offer.Priced && !t.offer.Any {
				return &t.offer.Model
			}
		}
	}
	return nil
}

// Model returns one of them.
func (g *Gateway) Model(p *access.Principal, id string) (*catalog.Model, error) {
	if m := g.model(p.Environment, id); m != nil {
		return m, nil
	}
	return nil, fault.New(fault.ModelNotFound, "there is no model %q; GET /v1/models lists those there are", id)
}

// IsRouterValue reports whether the name is one of the router's own.
func (g *Gateway) IsRouterValue(name string) bool { return slices.Contains(g.RouterValues(), name) }
