package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/modelroutes"
	"turnpike/internal/providers"
)

type target struct {
	provider providers.Provider
	offer    *catalog.Offer
	weight   int
	health   *health
	route    *Route // by which the request got here; nil if it names the model
}

// Model names that the router resolves itself.
const (
	Auto          = "auto"
	AutoCheapest  = "auto:cheapest"
	AutoFastest   = "auto:fastest"
	AutoStrongest = "auto:strongest"
)

// RouterValues returns the names that the router accepts in addition to models.
func (g *Gateway) RouterValues() []string {
	list := []string{Auto, AutoCheapest, AutoFastest, AutoStrongest}
	for _, name := range g.current.Load().routeNames {
		list = append(list, modelroutes.Prefix+name)
	}
	return list
}

// autoTargets is how many models an auto name resolves to: the best one and its fallbacks.
const autoTargets = 3

// route returns the targets of a request within the owner's limits. A model that the request names must be
// allowed. Routes and auto names choose among the allowed models.
func (c *chooser) route(ctx context.Context, names []string, kind catalog.Kind, r *request) ([]target, error) {
	g, env := c.snapshot, c.env
	if env == accounts.Live && !slices.ContainsFunc(g.Upstreams, func(u Upstream) bool { return supportsKind(u.Provider, kind) }) {
		return nil, fault.New(fault.NoProvider, "This server has no %s provider, so live keys cannot make this request. Test keys (tp_test_…) use the simulator.", kindLabels[kind])
	}
	var list, incapable []target
	unpriced := ""
	var refused error
	steps, models := g.expandRoutes(names, r)
	for _, s := range steps {
		byModel := make([][]target, len(s.models))
		for i, name := range s.models {
			if isAuto(name) {
				var by *access.ModelLimit
				if byModel[i], by = c.auto(s, name, kind, r); by != nil {
					refused = c.notAllowed(ctx, s.requested(name), kind, by)
				}
				continue
			}
			if by := c.deniedName(name); by != nil && s.route == nil {
				return nil, c.notAllowed(ctx, name, kind, by)
			}
			var found []target
			var by *access.ModelLimit
			left := 0
			for _, t := range g.targetsFor(env, name, kind) {
				if limit := c.denied(s, t); limit != nil {
					by = limit
					continue
				}
				left++
				switch {
				case !t.offer.Priced && env == accounts.Live: // test calls are free
					unpriced = name
				case models > 1 && !t.canServe(r):
					incapable = appendNew(incapable, []target{t})
				default:
					found = append(found, t)
				}
			}
			if by != nil && left == 0 {
				if refused = c.notAllowed(ctx, s.requested(name), kind, by); s.route == nil {
					return nil, refused
				}
			}
			byModel[i] = g.shuffleByWeight(found, r)
		}
		list = appendNew(list, s.order(byModel, r))
	}
	now := g.Now()
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(a.health.rank(now), b.health.rank(now)) })
	switch {
	case len(list) > 0:
		return list, nil
	case len(incapable) > 0:
		return incapable, nil // the catalog may be wrong; if not, the provider's error is the better one
	case refused != nil:
		return nil, refused
	case unpriced != "":
		return nil, fault.Param(fault.ModelNotPriced, "model", "Model %q has no price. Set a price for it, or a default price for its provider, in the configuration.", unpriced)
	case len(names) == 1 && isAuto(names[0]):
		return nil, fault.Param(fault.ModelNotFound, "model", "No model of this server supports the request. Check its tools, images and length.")
	}
	if m := g.model(env, names[0]); m != nil {
		return nil, fault.Param(fault.ModelNotFound, "model", "%q is a model of kind %q, which this endpoint does not serve. GET /v1/models lists the modalities of each model.", names[0], m.Kind)
	}
	return nil, modelNotFound("model", names[0])
}

// isKnownName reports whether a name belongs to the router, the catalog or the operator.
func (g *snapshot) isKnownName(name string) bool {
	if route, ok := strings.CutPrefix(name, modelroutes.Prefix); ok {
		return g.routes[route] != nil
	}
	if _, ok := g.simulated[name]; ok || isAuto(name) {
		return true
	}
	return slices.ContainsFunc(g.Upstreams, func(u Upstream) bool { return g.health.listed[modelKey{u.Provider.Name(), name}] != nil })
}

func appendNew(list, more []target) []target {
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

// targetsFor returns the providers that list the model or, if none does, those that accept any name.
func (g *snapshot) targetsFor(env accounts.Environment, name string, kind catalog.Kind) (list []target) {
	if env == accounts.Test {
		t, found := g.simulated[name]
		if !found {
			m := g.Catalog.Lookup(name) // a snapshot
			if m == nil {
				m = g.configuredModel(name)
			}
			if m == nil {
				return nil
			}
			t = g.simulate(m)
		}
		if t.offer.Kind != kind && t.offer.Kind != "" {
			return nil
		}
		return []target{t}
	}
	var unlisted []target
	known := false
	for _, u := range g.Upstreams {
		o := g.Catalog.Offer(u.Provider.Name(), name)
		if o == nil {
			continue
		}
		known = known || !o.AnyName
		if o.Kind != kind && o.Kind != "" || !supportsKind(u.Provider, kind) {
			continue
		}
		t := target{provider: u.Provider, offer: o, weight: u.Weight, health: g.health.get(modelKey{u.Provider.Name(), name}, g.Now)}
		if o.AnyName {
			unlisted = append(unlisted, t)
		} else {
			list = append(list, t)
		}
	}
	if known {
		return list
	}
	return unlisted
}

// configuredModel returns a model that the operator lists for a provider, or nil. The table may be
// older than the model.
func (g *snapshot) configuredModel(name string) *catalog.Model {
	for _, u := range g.Upstreams {
		if o := g.Catalog.Offer(u.Provider.Name(), name); o != nil && !o.AnyName {
			return &o.Model
		}
	}
	return nil
}

func (g *snapshot) simulate(m *catalog.Model) target {
	return target{provider: g.Simulator, offer: &catalog.Offer{Model: *m, Upstream: m.ID}, health: &health{}}
}

// mainProviders have most of the catalog's models in common use.
var mainProviders = []string{"openai", "anthropic", "gemini"}

// testCandidateIDs returns the models that auto names choose from for test keys: the same as for
// live keys or, if no provider is configured yet, those of the main providers. The median of
// the whole catalog would be an outdated model.
func (g *snapshot) testCandidateIDs(kind catalog.Kind, live []target) (ids []string) {
	for _, t := range live {
		if _, ok := g.simulated[t.offer.ID]; ok && !slices.Contains(ids, t.offer.ID) {
			ids = append(ids, t.offer.ID)
		}
	}
	if len(ids) > 0 {
		return ids
	}
	for _, m := range g.Catalog.Distinct(kind) {
		if slices.Contains(mainProviders, m.Provider) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

type candidateKey struct {
	env  accounts.Environment
	kind catalog.Kind
}

// selectCandidates returns the models that auto names choose from, cheapest first: priced, not
// deprecated and for general use. Snapshots are left out, because a model would fall back to
// itself, and so are old models if there are newer ones, whose price says more about their strength.
func (g *snapshot) selectCandidates(env accounts.Environment, kind catalog.Kind, ids []string) (all []target) {
	for _, id := range ids {
		for _, t := range g.targetsFor(env, id, kind) {
			if t.offer.Priced && t.offer.Kind == kind && t.offer.Deprecated.IsZero() && (t.offer.Listed || !t.offer.SpecialPurpose()) {
				all = append(all, t)
			}
		}
	}
	known := make(map[modelKey]bool, len(all))
	for _, t := range all {
		known[modelKey{t.provider.Name(), t.offer.ID}] = true
	}
	all = slices.DeleteFunc(all, func(t target) bool {
		_, snapshot := catalog.SnapshotOf(t.offer.ID, func(id string) bool { return known[modelKey{t.provider.Name(), id}] })
		return snapshot && !t.offer.Listed
	})
	if slices.ContainsFunc(all, func(t target) bool { return !t.offer.Outdated }) {
		all = slices.DeleteFunc(all, func(t target) bool { return t.offer.Outdated && !t.offer.Listed })
	}
	slices.SortStableFunc(all, byPriceThenVersion)
	return all
}

// byPriceThenVersion sorts later versions before earlier ones of the same price, and previews,
// which can disappear at any time, after both.
func byPriceThenVersion(a, b target) int {
	preview := func(t target) int { return strings.Count(t.offer.ID, "preview") }
	return cmp.Or(cmp.Compare(a.price(), b.price()), preview(a)-preview(b), strings.Compare(b.offer.ID, a.offer.ID))
}

func (t target) canServe(r *request) bool {
	m := t.offer
	if m.Kind == "" {
		return true // the catalog doesn't know the model
	}
	can := m.Capabilities
	switch {
	case r.needs.tools && !can.Tools, r.needs.vision && !can.Vision, r.needs.audio && !can.AudioInput, r.needs.schema && !can.JSONSchema:
		return false
	case m.ContextWindow > 0 && r.maxInput/4 > m.ContextWindow: // about four bytes per token
		return false
	case m.MaxOutputTokens > 0 && r.maxOutput > m.MaxOutputTokens:
		return false
	}
	return true
}

// auto returns the best allowed models that support the request. Targets that cool down come last. If no
// candidate is allowed, it returns a limit that is the reason.
func (c *chooser) auto(s step, name string, kind catalog.Kind, r *request) (best []target, by *access.ModelLimit) {
	var able []target
	allowed := false
	for _, t := range c.candidates[candidateKey{c.env, kind}] {
		if limit := c.denied(s, t); limit != nil {
			by = limit
			continue
		}
		allowed = true
		if t.canServe(r) {
			able = append(able, t)
		}
	}
	if allowed {
		by = nil
	}
	now, compare := c.Now(), ranking(name, able)
	for _, t := range able {
		at := len(best)
		for at > 0 && cmp.Or(cmp.Compare(t.health.rank(now), best[at-1].health.rank(now)), compare(t, best[at-1])) < 0 {
			at--
		}
		if at < autoTargets {
			best = slices.Insert(best, at, t)
			best = best[:min(len(best), autoTargets)]
		}
	}
	return best, by
}

// price returns the cost of a typical request, the only measure of strength that all providers give.
func (t target) price() int64 { return int64(t.offer.TypicalCost()) }

// reasoning is 1 for a model with reasoning. Without it, the most expensive models are old ones.
func (t target) reasoning() int {
	if t.offer.Capabilities.Reasoning {
		return 1
	}
	return 0
}

// ranking returns the order of an auto name. The targets are sorted by price, and those that
// compare as equal keep their order.
func ranking(name string, all []target) func(a, b target) int {
	switch name {
	case AutoCheapest:
		return func(a, b target) int { return cmp.Compare(a.price(), b.price()) }
	case AutoStrongest:
		return func(a, b target) int {
			return cmp.Or(b.reasoning()-a.reasoning(), cmp.Compare(b.price(), a.price()))
		}
	case AutoFastest:
		return func(a, b target) int { return cmp.Compare(a.health.expectedLatency(), b.health.expectedLatency()) }
	}
	// Auto: nearest to the median price.
	median := int64(0)
	if len(all) > 0 {
		median = all[len(all)/2].price()
	}
	distance := func(t target) int64 { return max(t.price()-median, median-t.price()) }
	return func(a, b target) int { return cmp.Compare(distance(a), distance(b)) }
}

// shuffleByWeight draws an order of a model's providers by their weights, which is the same for all
// requests of a session. Targets that cool down come last.
func (g *snapshot) shuffleByWeight(list []target, r *request) []target {
	if len(list) < 2 {
		return list
	}
	draws := make(map[*health]float64, len(list))
	for _, t := range list {
		draws[t.health] = r.session.draw(t.provider.Name(), t.offer.ID) / float64(max(1, t.weight))
	}
	now := g.Now()
	slices.SortStableFunc(list, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.health.rank(now), b.health.rank(now)), cmp.Compare(draws[a.health], draws[b.health]))
	})
	return list
}

func (g *snapshot) callableIDs(env accounts.Environment, kinds ...catalog.Kind) []string {
	var out []string
	if env == accounts.Test {
		for _, m := range g.Catalog.Distinct(kinds...) {
			out = append(out, m.ID)
		}
	}
	for _, u := range g.Upstreams {
		for _, o := range g.Catalog.Offers(u.Provider.Name()) {
			if (o.Priced || env == accounts.Test) && (o.Kind == "" || slices.Contains(kinds, o.Kind) && supportsKind(u.Provider, o.Kind)) {
				out = append(out, o.ID)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var callableKinds = []catalog.Kind{catalog.Chat, catalog.Embedding, catalog.Image, catalog.Speech, catalog.Video, catalog.Transcription, catalog.Moderation, catalog.Rerank}

// Models are what an owner can call.
type Models struct {
	Router []string         // names that the router resolves
	Models []*catalog.Model // by ID, without those that the catalog doesn't know
}

// Models returns what the owner can call.
func (g *Gateway) Models(ctx context.Context, o Owner) (*Models, error) {
	s := g.current.Load()
	c, err := s.chooserFor(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &Models{}
	names, r, err := c.routerValues(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if c.allowsRouterValue(name, r, callableKinds...) {
			out.Router = append(out.Router, name)
		}
	}
	for _, id := range s.callableIDs(c.env, callableKinds...) {
		if m := c.allowedModel(id, callableKinds...); m != nil {
			out.Models = append(out.Models, m)
		}
	}
	return out, nil
}

// Model returns one of the models, or nil for a name that the router resolves.
func (g *Gateway) Model(ctx context.Context, o Owner, id string) (*catalog.Model, error) {
	s := g.current.Load()
	c, err := s.chooserFor(ctx, o)
	if err != nil {
		return nil, err
	}
	names, r, err := c.routerValues(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, id) {
		if !c.allowsRouterValue(id, r, callableKinds...) {
			return nil, c.notAllowed(ctx, id, catalog.Chat, &c.limits[0])
		}
		return nil, nil
	}
	if m := c.allowedModel(id, callableKinds...); m != nil {
		return m, nil
	}
	if m := s.model(c.env, id); m != nil {
		return nil, c.notAllowed(ctx, id, cmp.Or(m.Kind, catalog.Chat), &c.limits[0])
	}
	return nil, modelNotFound("", id)
}

// model returns a model as the first of its providers offers it, whoever may use it.
func (g *snapshot) model(env accounts.Environment, id string) *catalog.Model {
	c := chooser{snapshot: g, env: env}
	return c.allowedModel(id, callableKinds...)
}

// allowsRouterValue reports whether a name of the router has an allowed model of one of the kinds.
func (c *chooser) allowsRouterValue(name string, r *request, kinds ...catalog.Kind) bool {
	if len(c.limits) == 0 {
		return true
	}
	steps, _ := c.expandRoutes([]string{name}, r)
	for _, s := range steps {
		for _, model := range s.models {
			for _, kind := range kinds {
				targets := c.candidates[candidateKey{c.env, kind}]
				if !isAuto(model) {
					targets = c.targetsFor(c.env, model, kind)
				}
				if slices.ContainsFunc(targets, func(t target) bool { return c.denied(s, t) == nil }) {
					return true
				}
			}
		}
	}
	return false
}

// routerValues returns the names that the router accepts from the owner, and a request that has the routes of
// its workspace.
func (c *chooser) routerValues(ctx context.Context) ([]string, *request, error) {
	r := &request{models: c.RouterValues()}
	if c.RouteNames == nil {
		return r.models, r, nil
	}
	own, err := c.RouteNames(ctx, c.owner.Principal.Tenant, c.owner.Project)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(own)
	for _, name := range own {
		if name = modelroutes.Prefix + name; !slices.Contains(r.models, name) {
			r.models = append(r.models, name)
		}
	}
	return r.models, r, c.findRoutes(ctx, c.owner, r)
}

// isRouterValue reports whether the name is one of the router's.
func (g *Gateway) isRouterValue(name string) bool { return slices.Contains(g.RouterValues(), name) }
