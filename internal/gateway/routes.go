package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/modelroutes"
)

// Route is a name for a list of models.
type Route struct {
	Name string
	modelroutes.Spec
	// Owned marks a workspace's route. Its timeout says nothing about the health of a provider, which
	// other workspaces use too.
	Owned bool
}

// RouteFunc returns the route that a request in a project of a workspace gets for a name, or nil.
type RouteFunc func(ctx context.Context, t accounts.Tenant, project, name string) (*modelroutes.Route, error)

// findRoutes looks up the workspace's routes that a request names. Those of the operator come first, so
// that a workspace can't replace them.
func (g *snapshot) findRoutes(ctx context.Context, o Owner, r *request) error {
	for _, name := range r.models {
		route, ok := strings.CutPrefix(name, modelroutes.Prefix)
		if !ok || g.routes[route] != nil || g.WorkspaceRoute == nil {
			continue
		}
		found, err := g.WorkspaceRoute(ctx, o.Principal.Tenant, o.Project, route)
		if err != nil {
			return err
		}
		if found != nil {
			if r.routes == nil {
				r.routes = map[string]*Route{}
			}
			r.routes[route] = &Route{Name: route, Spec: found.Spec, Owned: true}
		}
	}
	return nil
}

// HasRoute reports whether the operator has a route with a name.
func (g *Gateway) HasRoute(name string) bool { return g.current.Load().routes[name] != nil }

// CheckRouteModels reports the first model of a workspace's route that the principal can't call.
func (g *Gateway) CheckRouteModels(p *access.Principal, models []string) error {
	s := g.current.Load()
	for _, name := range models {
		callable := func(kind catalog.Kind) bool {
			return slices.ContainsFunc(s.targetsFor(p.Environment, name, kind), func(t target) bool { return t.offer.Priced || p.Environment == accounts.Test })
		}
		if !slices.ContainsFunc(callableKinds, callable) {
			return modelNotFound("models", name)
		}
	}
	return nil
}

// step is a name of a request: a model, or a route to several.
type step struct {
	route  *Route // nil for a model
	models []string
}

// requested returns the name in the request that stands for a model.
func (s step) requested(model string) string {
	if s.route == nil {
		return model
	}
	return modelroutes.Prefix + s.route.Name
}

// expandRoutes returns the steps of a request and the number of their models. Unknown routes have none.
func (g *snapshot) expandRoutes(names []string, r *request) (steps []step, models int) {
	steps = make([]step, 0, len(names))
	for i, name := range names {
		s := step{models: names[i : i+1]}
		if route, ok := strings.CutPrefix(name, modelroutes.Prefix); ok {
			if s.route = g.routes[route]; s.route == nil {
				s.route = r.routes[route]
			}
			if s.route == nil {
				continue
			}
			s.models = s.route.Models
		}
		models += len(s.models)
		steps = append(steps, s)
	}
	return steps, models
}

// order returns the targets of a step's models by the strategy of its route. byModel has them in the
// order of the route, and the targets of each model in their own order.
func (s step) order(byModel [][]target, r *request) []target {
	if s.route == nil {
		return byModel[0]
	}
	strategy := s.route.Strategy
	if strategy == modelroutes.ByWeight {
		byModel = s.shuffle(byModel, r)
	}
	var list []target
	scores := map[*health]float64{}
	for i, found := range byModel {
		for _, t := range found {
			t.route = s.route
			list = appendNew(list, []target{t})
			switch strategy {
			case modelroutes.ByLatency:
				scores[t.health] = float64(t.health.expectedLatency()) / s.route.Weight(i)
			case modelroutes.ByPrice:
				scores[t.health] = float64(t.price()) / s.route.Weight(i)
			}
		}
	}
	if strategy == modelroutes.ByLatency || strategy == modelroutes.ByPrice {
		slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(scores[a.health], scores[b.health]) })
	}
	return list
}

// shuffle draws an order of the models by their weights.
func (s step) shuffle(byModel [][]target, r *request) [][]target {
	type drawn struct {
		targets []target
		score   float64
	}
	list := make([]drawn, len(byModel))
	for i, targets := range byModel {
		list[i] = drawn{targets, r.session.draw(s.models[i]) / s.route.Weight(i)}
	}
	slices.SortStableFunc(list, func(a, b drawn) int { return cmp.Compare(a.score, b.score) })
	out := make([][]target, len(list))
	for i, d := range list {
		out[i] = d.targets
	}
	return out
}
