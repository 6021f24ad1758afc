package gateway

import (
	"slices"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/providers"
)

// Settings are the settings that Apply can change while requests are in progress.
type Settings struct {
	Catalog   *catalog.Catalog
	Upstreams []Upstream
	Routes    []Route
	Rates     Rates
	// DefaultMaxOutput limits the output tokens of requests without a limit.
	DefaultMaxOutput int64
	// Strict delays the upstream call until the request is in the log.
	Strict bool
}

// Upstream is a configured provider. The catalog has a supplier of the same name.
type Upstream struct {
	Provider providers.Provider
	Weight   int // relative to other providers of the same model
	// BatchPercent is the price of the provider's batch API in percent of its usual price; 0 doesn't use it.
	BatchPercent int
	// AllowFields are the fields of pricedFields that clients may use.
	AllowFields []string
	// IgnoreUnbilled means that the provider's unbilled credits don't count toward the limits of workspaces.
	IgnoreUnbilled bool
}

// snapshot is the gateway with the settings that were current when a request began. The request
// uses them until it ends, so that it sees one set of providers and prices.
type snapshot struct {
	*Gateway
	Settings
	routes     map[string]*Route
	routeNames []string
	health     healthTable
	simulated  map[string]target         // by model ID
	candidates map[candidateKey][]target // models that the auto names choose from
}

// Apply replaces the settings for requests that begin from now on. A provider that is the same
// object as before keeps the health of its models.
func (g *Gateway) Apply(settings Settings) {
	s := &snapshot{Gateway: g, Settings: settings, routes: map[string]*Route{}, simulated: map[string]target{}, candidates: map[candidateKey][]target{}}
	for _, r := range settings.Routes {
		s.routes[r.Name] = &r
		s.routeNames = append(s.routeNames, r.Name)
	}
	slices.Sort(s.routeNames)
	for _, m := range s.Catalog.Distinct(callableKinds...) {
		s.simulated[m.ID] = s.simulate(m)
	}
	s.health = healthTable{listed: map[modelKey]*health{}, unlisted: map[modelKey]*health{}}
	for _, u := range s.Upstreams {
		for _, o := range s.Catalog.Offers(u.Provider.Name()) {
			s.health.listed[modelKey{u.Provider.Name(), o.ID}] = &health{listed: true}
		}
	}
	if before := g.current.Load(); before != nil {
		s.health.keep(&before.health, s.keptProviders(before))
	}
	for _, kind := range callableKinds {
		live := s.selectCandidates(accounts.Live, kind, s.callableIDs(accounts.Live, kind))
		s.candidates[candidateKey{accounts.Live, kind}] = live
		s.candidates[candidateKey{accounts.Test, kind}] = s.selectCandidates(accounts.Test, kind, s.testCandidateIDs(kind, live))
	}
	g.current.Store(s)
}

// keptProviders returns the names of the providers that are the same as before. Others may have a
// new address or key, so their cooldowns must not continue.
func (g *snapshot) keptProviders(before *snapshot) []string {
	var names []string
	for _, u := range g.Upstreams {
		if slices.ContainsFunc(before.Upstreams, func(old Upstream) bool { return old.Provider == u.Provider }) {
			names = append(names, u.Provider.Name())
		}
	}
	return names
}
