package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
)

// ProjectModelsFunc returns the models that requests of a project may use.
type ProjectModelsFunc func(ctx context.Context, t accounts.Tenant, project string) (catalog.Allowed, error)

// Owner is whose limits apply to the choice of a model.
type Owner struct {
	Principal *access.Principal
	Project   string
	Record    *audit.Record // gets the name of the requested model; may be nil

	unlimited bool
}

// owner returns whose limits apply to the call. Those of a prepared batch were checked when it was
// prepared: its provider may have run it since.
func (c Call) owner() Owner {
	return Owner{c.Principal, c.Project, c.Record, c.Batch != nil && c.Prepaid != nil}
}

// chooser chooses models within the limits of an owner. All of them apply.
type chooser struct {
	*snapshot
	env    accounts.Environment
	limits []access.ModelLimit
	owner  Owner
}

// chooserFor returns the chooser of an owner: the only way to the targets of a call.
func (g *snapshot) chooserFor(ctx context.Context, o Owner) (*chooser, error) {
	c := &chooser{g, o.Principal.Environment, o.Principal.ModelLimits, o}
	if o.unlimited {
		c.limits = nil
	}
	if o.unlimited || o.Project == "" || g.ProjectModels == nil {
		return c, nil
	}
	allowed, err := g.ProjectModels(ctx, o.Principal.Tenant, o.Project)
	if err == nil && !allowed.IsUnlimited() {
		c.limits = append(slices.Clone(c.limits), access.ModelLimit{Source: access.LimitOfProject, Allowed: allowed})
	}
	return c, err
}

// route returns the targets of a request within the owner's limits.
func (g *snapshot) route(ctx context.Context, o Owner, names []string, kind catalog.Kind, r *request) ([]target, error) {
	if o.Record != nil {
		o.Record.Note(func(e *audit.Entry) { e.Requested = names[0] })
	}
	c, err := g.chooserFor(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := g.findRoutes(ctx, o, r); err != nil {
		return nil, err
	}
	targets, err := c.route(ctx, names, kind, r)
	if err != nil {
		return nil, err
	}
	return g.checkFields(r, targets)
}

// denied returns the first limit that doesn't allow a target, or nil. A limit that lists a route allows the
// route's models by that name only.
func (c *chooser) denied(s step, t target) *access.ModelLimit {
	for i, l := range c.limits {
		listed := l.Models == nil || s.route != nil && l.Models.Match(catalog.RoutePrefix+s.route.Name)
		if !listed && !l.Models.Allow(t.offer) || l.Providers != nil && !c.isAt(l.Providers, t) {
			return &c.limits[i]
		}
	}
	return nil
}

// isAt reports whether one of the providers runs the target. The simulator runs a model in place of its
// vendor, and of the providers that offer it.
func (c *chooser) isAt(names []string, t target) bool {
	if c.env == accounts.Live {
		return slices.Contains(names, t.provider.Name())
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return name == t.offer.Provider || c.Catalog.Offer(name, t.offer.ID) != nil
	})
}

// deniedName returns the first limit whose models don't have a name, or nil.
func (c *chooser) deniedName(name string) *access.ModelLimit {
	for i, l := range c.limits {
		if !l.Models.Match(name) {
			return &c.limits[i]
		}
	}
	return nil
}

// limitDetail is what a client learns about a limit in addition to the message.
type limitDetail struct {
	LimitSource  access.LimitSource `json:"limit_source"`
	AllowedModel string             `json:"allowed_model,omitzero"`
}

// notAllowed returns the error for a name, with a model of the kind that is allowed instead.
func (c *chooser) notAllowed(ctx context.Context, name string, kind catalog.Kind, by *access.ModelLimit) *fault.Error {
	who := "This key"
	switch by.Source {
	case access.LimitOfAncestor:
		who = "A key that created this key"
	case access.LimitOfToken:
		who = "This scoped token"
	case access.LimitOfProject:
		who = fmt.Sprintf("The project %q", c.owner.Project)
	}
	what := fmt.Sprintf("the model %q", name)
	if isAuto(name) || strings.HasPrefix(name, catalog.RoutePrefix) {
		what = fmt.Sprintf("any model of %q", name)
	}
	example := c.firstAllowed(ctx, kind)
	instead := fmt.Sprintf("No %s model is allowed.", kindLabels[kind])
	if example != "" {
		instead = fmt.Sprintf("It may use %q, for example. GET /v1/models lists all.", example)
	}
	f := fault.Param(fault.ModelNotAllowed, "model", "%s may not use %s. %s", who, what, instead)
	f.Details = limitDetail{by.Source, example}
	return f
}

// firstAllowed returns a model of the kind that the limits allow, or else a route to such models, or "". It
// prefers a model that the router would choose.
func (c *chooser) firstAllowed(ctx context.Context, kind catalog.Kind) string {
	for _, t := range c.candidates[candidateKey{c.env, kind}] {
		if c.denied(step{}, t) == nil {
			return t.offer.ID
		}
	}
	for _, id := range c.callableIDs(c.env, kind) {
		if c.allowedModel(id, kind) != nil {
			return id
		}
	}
	names, r, err := c.routerValues(ctx)
	if err != nil {
		return "" // the refusal is the better error
	}
	for _, name := range names {
		if strings.HasPrefix(name, catalog.RoutePrefix) && c.allowsRouterValue(name, r, kind) {
			return name
		}
	}
	return ""
}

// allowedModel returns a model as the first provider offers it that may run it, or nil.
func (c *chooser) allowedModel(id string, kinds ...catalog.Kind) *catalog.Model {
	for _, kind := range kinds {
		for _, t := range c.targetsFor(c.env, id, kind) {
			if (t.offer.Priced || c.env == accounts.Test) && !t.offer.AnyName && c.denied(step{}, t) == nil { // test calls are free
				return &t.offer.Model
			}
		}
	}
	return nil
}

// CheckAllowed checks that lists of models and providers name some that exist. Patterns must match at
// least one model, or one route of the operator or of the workspace, whose names ownRoutes returns.
func (g *Gateway) CheckAllowed(a catalog.Allowed, ownRoutes func() ([]string, error)) error {
	s := g.current.Load()
	for _, pattern := range a.Models {
		if strings.HasPrefix(pattern, catalog.RoutePrefix) && !s.knowsPattern(pattern) {
			names, err := ownRoutes()
			if err != nil {
				return err
			}
			if hasRoute(names, pattern) {
				continue
			}
			return fault.Invalid(catalog.AllowedModelsField, "Unknown route %q in %s. List the routes with GET /v1/models.", pattern, catalog.AllowedModelsField)
		}
		if !s.knowsPattern(pattern) {
			return fault.Invalid(catalog.AllowedModelsField, "%s has %q, but no model of this server has that name. List the names with GET /v1/models.", catalog.AllowedModelsField, pattern)
		}
	}
	for _, name := range a.Providers {
		if !s.knowsProvider(name) {
			return fault.Invalid(catalog.AllowedProvidersField, "Unknown provider %q. Providers: %s.", name, strings.Join(s.providerNames(), ", "))
		}
	}
	return nil
}

// hasRoute reports whether a pattern selects one of the routes.
func hasRoute(names []string, pattern string) bool {
	list := catalog.Patterns{pattern}
	return slices.ContainsFunc(names, func(name string) bool { return list.Match(catalog.RoutePrefix + name) })
}

// CheckRouteChange refuses to create, change or delete a workspace's route that a limit of the principal lists.
// Otherwise a key could change what it may use.
func (g *Gateway) CheckRouteChange(ctx context.Context, p *access.Principal, name string) error {
	c, err := g.current.Load().chooserFor(ctx, Owner{Principal: p, Project: p.Project})
	if err != nil {
		return err
	}
	for _, l := range c.limits {
		if l.Models != nil && l.Models.Match(catalog.RoutePrefix+name) {
			return fault.Param(fault.InsufficientScope, "name", "This key may use the models of %q because allowed_models lists the route, so it cannot change the route. Use a key without that entry.", catalog.RoutePrefix+name)
		}
	}
	return nil
}

func (g *snapshot) knowsPattern(pattern string) bool {
	list := catalog.Patterns{pattern}
	if strings.HasPrefix(pattern, catalog.RoutePrefix) {
		return hasRoute(g.routeNames, pattern)
	}
	if isAuto(pattern) { // it follows the lists
		return false
	}
	if g.Catalog.Lookup(pattern) != nil || slices.ContainsFunc(g.Catalog.Models(), func(m *catalog.Model) bool { return list.Match(m.ID) }) {
		return true
	}
	return slices.ContainsFunc(g.Upstreams, func(u Upstream) bool {
		name := u.Provider.Name()
		return g.Catalog.Offer(name, pattern) != nil && !strings.HasSuffix(pattern, "*") ||
			slices.ContainsFunc(g.Catalog.Offers(name), func(o *catalog.Offer) bool { return list.Match(o.ID) })
	})
}

// providerNames returns the configured providers or, if there are none yet, the vendors that the
// simulator runs in place of.
func (g *snapshot) providerNames() (names []string) {
	for _, u := range g.Upstreams {
		names = append(names, u.Provider.Name())
	}
	if len(names) == 0 {
		return g.Catalog.Providers()
	}
	slices.Sort(names)
	return names
}

func (g *snapshot) knowsProvider(name string) bool {
	return slices.Contains(g.providerNames(), name) || g.Catalog.HasProvider(name)
}
