package gateway

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

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
	if env == accounts.Live && !slices.ContainsFunc(g.upstreams, func(u Upstream) bool { return makes(u.Provider, kind) }) {
		return nil, fault.New(fault.NoProvider, "no provider of %s is set up on this server, so that live keys have nothing to call; test keys (tp_test_…) are answered by the simulator", products[kind])
	}
	var list, unable []target
	unpriced := ""
	models := g.expand(names)
	for _, name := range models {
		if isAuto(name) {
			list = join(list, g.auto(env, name, kind, r))
			continue
		}
		var found []target
		for _, t := range g.offering(env, name, kind) {
			switch {
			case !t.offer.Priced && env == accounts.Live: // test calls cost nothing
				unpriced = name
			case len(models) > 1 && !t.can(r):
				unable = join(unable, []target{t}) // a list is there to find one that can
			default:
				found = append(found, t)
			}
		}
		list = join(list, g.inOrder(found))
	}
	now := g.now()
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(a.health.rank(now), b.health.rank(now)) })
	switch {
	case len(list) > 0:
		return list, nil
	case len(unable) > 0:
		return unable, nil // the table may be wrong, and else the provider says what it does not take
	case unpriced != "":
		return nil, fault.Param(fault.ModelNotPriced, "model", "it is not known what %q costs; set a price for it, or a default price for its provider, in the configuration", unpriced)
	case len(names) == 1 && isAuto(names[0]):
		return nil, fault.Param(fault.ModelNotFound, "model", "no model of this server can do what the request asks for: see its tools, images and length")
	}
	if m := g.model(env, names[0]); m != nil {
		return nil, fault.Param(fault.ModelNotFound, "model", "%q is a model of the kind %q, which is not called here; GET /v1/models lists models with their modalities", names[0], m.Kind)
	}
	return nil, fault.Param(fault.ModelNotFound, "model", "there is no model %q; GET /v1/models lists those there are", names[0])
}

// named reports whether a name is no caller's invention.
func (g *Gateway) named(name string) bool {
	if route, ok := strings.CutPrefix(name, routePrefix); ok {
		return g.routes[route] != nil
	}
	if _, ok := g.simulated[name]; ok || isAuto(name) {
		return true
	}
	return slices.ContainsFunc(g.upstreams, func(u Upstream) bool { return g.healths.listed[spot{u.Provider.Name(), name}] != nil })
}

// join appends those that are not there yet: nobody is asked twice because two
// names of a list mean the same.
func join(list, more []target) []target {
	if list == nil {
		return more
	}
	for _, t := range more {
		if !slices.ContainsFunc(list, func(o target) bool { return o.provider == t.provider && o.offer.ID == t.offer.ID }) {
			list = append(list, t)
		}
	}
	return list
}

func isAuto(name string) bool {
	return name == Auto || name == AutoCheapest || name == AutoFastest || name == AutoStrongest
}

// expand puts the models of routes in their place.
func (g *Gateway) expand(names []string) []string {
	if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, routePrefix) }) {
		return names
	}
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

// offering are the providers that have the model: those that name it, or else
// those that take any name.
func (g *Gateway) offering(env accounts.Environment, name string, kind catalog.Kind) (list []target) {
	if env == accounts.Test {
		t, found := g.simulated[name]
		if !found {
			m := g.catalog.Lookup(name) // a snapshot
			if m == nil {
				return nil
			}
			t = g.simulate(m)
		}
		if t.offer.Kind != kind {
			return nil
		}
		return []target{t}
	}
	var untold []target // at providers that take any name
	known := false
	for _, u := range g.upstreams {
		o := g.catalog.Offer(u.Provider.Name(), name)
		if o == nil {
			continue
		}
		known = known || !o.Any
		if o.Kind != kind && o.Kind != "" || !makes(u.Provider, kind) {
			continue
		}
		t := target{u.Provider, o, u.Weight, g.healths.of(spot{u.Provider.Name(), name}, g.now)}
		if o.Any {
			untold = append(untold, t)
		} else {
			list = append(list, t)
		}
	}
	if known { // what one is known to have is not looked for at others
		return list
	}
	return untold
}

// simulate is a model of the table at the simulator.
func (g *Gateway) simulate(m *catalog.Model) target {
	return target{provider: g.simulator, offer: &catalog.Offer{Model: *m, Upstream: m.ID}, health: &health{}}
}

// prepare works out, once, what does not change: the simulator's models, the
// state of the listed ones, and those that the router may choose from.
func (g *Gateway) prepare() {
	g.simulated = map[string]target{}
	for _, m := range g.catalog.Distinct(listed...) {
		g.simulated[m.ID] = g.simulate(m)
	}
	g.healths = healths{listed: map[spot]*health{}, others: map[spot]*health{}}
	for _, u := range g.upstreams {
		for _, o := range g.catalog.Offers(u.Provider.Name()) {
			g.healths.listed[spot{u.Provider.Name(), o.ID}] = &health{listed: true}
		}
	}
	g.choice = map[choiceKey][]target{}
	for _, kind := range listed {
		live := g.choosable(accounts.Live, kind, g.callable(accounts.Live, kind))
		g.choice[choiceKey{accounts.Live, kind}] = live
		g.choice[choiceKey{accounts.Test, kind}] = g.choosable(accounts.Test, kind, g.likely(kind, live))
	}
}

// makersOfMost have most of the table's models that anybody asks for.
var makersOfMost = []string{"openai", "anthropic", "gemini"}

// likely are the models that the router chooses from for test keys: those of
// live keys, so that a test shows what will be called, or, where no provider is
// set up yet, those that one most likely will be. The whole table would have
// models of long ago in its middle.
func (g *Gateway) likely(kind catalog.Kind, live []target) (ids []string) {
	for _, t := range live {
		if _, ok := g.simulated[t.offer.ID]; ok && !slices.Contains(ids, t.offer.ID) {
			ids = append(ids, t.offer.ID)
		}
	}
	if len(ids) > 0 {
		return ids
	}
	for _, m := range g.catalog.Distinct(kind) {
		if slices.Contains(makersOfMost, m.Provider) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

type choiceKey struct {
	env  accounts.Environment
	kind catalog.Kind
}

// choosable are those of the models that the router may choose from, the
// cheapest first: known, priced, not about to go, for general use, no snapshot
// of another, which would fall back from a model to itself, and not old where
// others are not: what was dear long ago is not what is strong.
func (g *Gateway) choosable(env accounts.Environment, kind catalog.Kind, ids []string) (all []target) {
	for _, id := range ids {
		for _, t := range g.offering(env, id, kind) {
			if t.offer.Priced && t.offer.Kind == kind && t.offer.Deprecated.IsZero() && (t.offer.Listed || !t.offer.Special()) {
				all = append(all, t)
			}
		}
	}
	known := make(map[spot]bool, len(all))
	for _, t := range all {
		known[spot{t.provider.Name(), t.offer.ID}] = true
	}
	all = slices.DeleteFunc(all, func(t target) bool {
		_, snapshot := catalog.SnapshotOf(t.offer.ID, func(id string) bool { return known[spot{t.provider.Name(), id}] })
		return snapshot && !t.offer.Listed
	})
	if slices.ContainsFunc(all, func(t target) bool { return !t.offer.Old }) {
		all = slices.DeleteFunc(all, func(t target) bool { return t.offer.Old && !t.offer.Listed })
	}
	slices.SortStableFunc(all, byPriceThenVersion)
	return all
}

// byPriceThenVersion has the later version of a name before the earlier ones of
// the same price, and previews, which may go at any time, behind those.
func byPriceThenVersion(a, b target) int {
	preview := func(t target) int { return strings.Count(t.offer.ID, "preview") }
	return cmp.Or(cmp.Compare(a.price(), b.price()), preview(a)-preview(b), strings.Compare(b.offer.ID, a.offer.ID))
}

// can reports whether the model can do what is asked, as far as is known.
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

// auto finds the best few of all models that can do what is asked. Those that
// fail at the moment come last.
func (g *Gateway) auto(env accounts.Environment, name string, kind catalog.Kind, r *request) []target {
	var able []target
	for _, t := range g.choice[choiceKey{env, kind}] {
		if t.can(r) {
			able = append(able, t)
		}
	}
	now, compare := g.now(), ranking(name, able)
	var best []target
	for _, t := range able {
		at := len(best)
		for at > 0 && cmp.Or(cmp.Compare(t.health.rank(now), best[at-1].health.rank(now)), compare(t, best[at-1])) < 0 {
			at--
		}
		if at < autoTries {
			best = slices.Insert(best, at, t)
			best = best[:min(len(best), autoTries)]
		}
	}
	return best
}

// price is what an ordinary request costs: the only measure of strength that
// all providers give.
func (t target) price() int64 { return int64(t.offer.Typical()) }

// reasons is 1 for a model that thinks before it speaks: the dearest of all are
// old ones that do not.
func (t target) reasons() int {
	if t.offer.Capabilities.Reasoning {
		return 1
	}
	return 0
}

// ranking compares targets by a router's value. The list is in the order of
// prices, and what compares as equal stays in its order.
func ranking(name string, all []target) func(a, b target) int {
	switch name {
	case AutoCheapest:
		return func(a, b target) int { return cmp.Compare(a.price(), b.price()) }
	case AutoStrongest:
		return func(a, b target) int { return cmp.Or(b.reasons()-a.reasons(), cmp.Compare(b.price(), a.price())) }
	case AutoFastest:
		return func(a, b target) int { return cmp.Compare(a.health.expected(), b.health.expected()) }
	}
	// Neither the weakest nor the dearest: nearest to the middle of the prices.
	middle := int64(0)
	if len(all) > 0 {
		middle = all[len(all)/2].price()
	}
	away := func(t target) int64 { return max(t.price()-middle, middle-t.price()) }
	return func(a, b target) int { return cmp.Compare(away(a), away(b)) }
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
			if o.Priced && (o.Kind == "" || slices.Contains(kinds, o.Kind) && makes(u.Provider, o.Kind)) {
				out = append(out, o.ID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
