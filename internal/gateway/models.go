package gateway

import (
	"slices"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
)

// callableKinds are the kinds of models that can be called by name.
var callableKinds = []catalog.Kind{catalog.Chat, catalog.Embedding, catalog.Image, catalog.Speech, catalog.Video}

// Models returns the models that the principal can call, sorted by ID.
func (g *Gateway) Models(p *access.Principal) []*catalog.Model {
	var out []*catalog.Model
	for _, id := range g.callableIDs(p.Environment, callableKinds...) {
		if m := g.model(p.Environment, id); m != nil {
			out = append(out, m)
		}
	}
	return out
}

// model returns a model as the first of its providers offers it. Models that the catalog
// doesn't know are not listed, although they may be callable.
func (g *Gateway) model(env accounts.Environment, id string) *catalog.Model {
	for _, kind := range callableKinds {
		for _, t := range g.targetsFor(env, id, kind) {
			if t.offer.Priced && !t.offer.AnyName {
				return &t.offer.Model
			}
		}
	}
	return nil
}

// Model returns one of the models.
func (g *Gateway) Model(p *access.Principal, id string) (*catalog.Model, error) {
	if m := g.model(p.Environment, id); m != nil {
		return m, nil
	}
	return nil, modelNotFound("", id)
}

// IsRouterValue reports whether the name is one of the router's.
func (g *Gateway) IsRouterValue(name string) bool { return slices.Contains(g.RouterValues(), name) }
