package gateway

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// Upstream is a provider that calls can go to. Its name is a supplier's in the
// catalog.
type Upstream struct {
	Provider providers.Provider
	Weight   int // against other providers of the same model
}

// target is one way to answer a call: a model at a provider.
type target struct {
	provider providers.Provider
	offer    *catalog.Offer
	weight   int
	health   *health
}

// The router's own names of models.
const (
	Auto          = "auto"
	AutoCheapest  = "auto:cheapest"
	AutoFastest   = "auto:fastest"
	AutoStrongest = "auto:strongest"
	routePrefix   = "route/"
)

// RouterValues are the names that the router understands beside models'.
func (g *Gateway) RouterValues() []string {
	list := []string{Auto, AutoCheapest, AutoFastest, AutoStrongest}
	for _, name := range g.routeNames {
		list = append(list, routePrefix+name)
	}
	return list
}

// autoTries is how many models stand behind a router's value: the first is the
// one that was meant, the others are for when it fails.
const autoTries = 3

// route finds what can answer a call, in the order in which it is tried.
func (g *Gateway) route(env accounts.Environment, names []string, kind catalog.Kind, r *request) ([]target, error) {
	if env == accounts.Live && len(g.upstreams) == 0 {
		return nil, fault.New(fault.NoProvider, "no model provider is set up on this server, so that live keys have nothing to call; test keys (tp_test_…) are answered by the simulator")
	}
	var list []target
	unpriced := ""
	for _, name := range g.expand(names) {
		var found []target
		switch {
		case isAuto(name):
			found = g.auto(env, name, kind, r)
		default:
			for _, t := range g.offering(env, name, kind) {
				if !t.offer.Priced {
					unpriced = name
					continue
				}
				if len(names) > 1 && !t.can(r) {
					continue // a list is there to find one that can
				}
				found = append(found, t)
			}
			found = g.inOrder(found)
		}
		list = append(list, found...)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case unpriced != "":
		return nil, fault.Param(fault.ModelNotPriced, "model", "it is not known what %q costs; set a price for it, or a default price for its provider, in the configuration", unpriced)
	case len(names) == 1 && isAuto(names[0]):
		return nil, fault.Param(fault.ModelNotFound, "model", "no model of this server can do what the request asks for: see its tools, images and length")
	}
	return nil, fault.Param(fault.ModelNotFound, "model", "there is no model %q; GET /v1/models lists those there are", names[0])
}

func isAuto(name string) bool {
	return name == Auto || name == AutoCheapest || name == AutoFastest || name == AutoStrongest
}

// expand puts the models of routes in their place.
func (g *Gateway) expand(names []string) []string {
	var out []string
	for _, name := range names {
		if route, ok := strings.CutPrefix(name, routePrefix); ok {
			out = append(out, g.routes[route]...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// offering are the providers that have the model.
func (g *Gateway) offering(env accounts.Environment, name string, kind catalog.Kind) (list []target) {
	if env == accounts.Test {
		m := g.catalog.Lookup(name)
		if m == nil || m.Kind != kind {
			return nil
		}
		return []target{{provider: g.simulator, offer: &catalog.Offer{Model: *m, Upstream: name}, health: &health{}}}
	}
	for _, u := range g.upstreams {
		if o := g.catalog.Offer(u.Provider.Name(), name); o != nil && (o.Kind == kind || o.Kind == "") {
			list = append(list, target{u.Provider, o, u.Weight, g.healthOf(u.Provider.Name(), name)})
		}
	}
	return list
}

// can reports whether the model is known to be unable to do what is asked.
func (t target) can(r *request) bool {
	m := t.offer
	if m.Kind == "" {
		return true // nothing is known of it
	}
	can := m.Capabilities
	switch {
	case r.needs.tools && !can.Tools, r.needs.vision && !can.Vision, r.needs.audio && !can.AudioInput, r.needs.schema && !can.JSONSchema:
		return false
	case m.ContextWindow > 0 && r.inputBound/4 > m.ContextWindow: // about four bytes are a token
		return false
	case m.MaxOutputTokens > 0 && r.maxOutput > m.MaxOutputTokens:
		return false
	}
	return true
}

// auto ranks all models that can do what is asked and are not about to go.
func (g *Gateway) auto(env accounts.Environment, name string, kind catalog.Kind, r *request) []target {
	var all []target
	for _, id := range g.callable(env, kind) {
		for _, t := range g.offering(env, id, kind) {
			if t.offer.Priced && t.offer.Kind == kind && t.offer.Deprecated.IsZero() && t.can(r) {
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, g.ranking(name, all))
	now := g.now()
	slices.SortStableFunc(all, func(a, b target) int { return cmp.Compare(a.health.rank(now), b.health.rank(now)) })
	return all[:min(len(all), autoTries)]
}

// price is what a target's model costs for as much out as in: the only measure
// of strength that all providers give.
func (t target) price() int64 { return int64(t.offer.Price.Input) + int64(t.offer.Price.Output) }

func (g *Gateway) ranking(name string, all []target) func(a, b target) int {
	byID := func(a, b target) int { return strings.Compare(a.offer.ID, b.offer.ID) }
	cheapest := func(a, b target) int { return cmp.Or(cmp.Compare(a.price(), b.price()), byID(a, b)) }
	switch name {
	case AutoStrongest:
		return func(a, b target) int { return cmp.Or(cmp.Compare(b.price(), a.price()), byID(a, b)) }
	case AutoFastest:
		// Those of which nothing was learned yet come first, so that it will be.
		return func(a, b target) int { return cmp.Or(cmp.Compare(a.health.pace(), b.health.pace()), cheapest(a, b)) }
	case AutoCheapest:
		return cheapest
	}
	// Neither the weakest nor the dearest: nearest to the middle of the prices.
	prices := make([]int64, len(all))
	for i, t := range all {
		prices[i] = t.price()
	}
	slices.Sort(prices)
	middle := int64(0)
	if len(prices) > 0 {
		middle = prices[len(prices)/2]
	}
	away := func(t target) int64 { return max(t.price()-middle, middle-t.price()) }
	return func(a, b target) int { return cmp.Or(cmp.Compare(away(a), away(b)), cheapest(a, b)) }
}

// inOrder draws the order of a model's providers by their weights; those that
// fail at the moment come last.
func (g *Gateway) inOrder(list []target) []target {
	if len(list) < 2 {
		return list
	}
	drawn := make(map[*health]float64, len(list))
	for _, t := range list {
		drawn[t.health] = rand.ExpFloat64() / float64(max(1, t.weight))
	}
	now := g.now()
	slices.SortStableFunc(list, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.health.rank(now), b.health.rank(now)), cmp.Compare(drawn[a.health], drawn[b.health]))
	})
	return list
}

// callable are the ids of models that can be called.
func (g *Gateway) callable(env accounts.Environment, kinds ...catalog.Kind) []string {
	var out []string
	if env == accounts.Test {
		for _, m := range g.catalog.Distinct(kinds...) {
			out = append(out, m.ID)
		}
		return out
	}
	for _, u := range g.upstreams {
		for _, o := range g.catalog.Offers(u.Provider.Name()) {
			if o.Priced && (o.Kind == "" || slices.Contains(kinds, o.Kind)) {
				out = append(out, o.ID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// healthOf is how a model at a provider has been doing.
func (g *Gateway) healthOf(provider, model string) *health {
	key := [2]string{provider, model}
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.healths[key]
	if h == nil {
		if len(g.healths) >= maxHealths { // names are the callers' where a provider takes any
			clear(g.healths)
		}
		h = &health{}
		g.healths[key] = h
	}
	return h
}

const maxHealths = 10_000

// coolDowns is how long a target that failed so often in a row comes last.
var coolDowns = []time.Duration{0, 0, 5 * time.Second, 15 * time.Second, time.Minute}
