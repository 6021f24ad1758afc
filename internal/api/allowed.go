package api

import (
	"cmp"
	"context"

	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/jsonbody"
	"turnpike/internal/modelroutes"
)

// allowedLists are the allowed models and providers in a request or an object; nil allows all.
type allowedLists struct {
	AllowedModels    *catalog.Patterns `json:"allowed_models"`
	AllowedProviders *[]string         `json:"allowed_providers"`
}

func newAllowedLists(a catalog.Allowed) (o allowedLists) {
	if a.Models != nil {
		o.AllowedModels = &a.Models
	}
	if a.Providers != nil {
		o.AllowedProviders = &a.Providers
	}
	return o
}

// routesIn returns a function with the names of the workspace's routes that requests in a project can use.
func (c *Call) routesIn(ctx context.Context, q db.Querier, project string) func() ([]string, error) {
	return func() ([]string, error) {
		names, err := modelroutes.Names(ctx, q, c.Principal.Tenant, project)
		for _, r := range c.declaredRoutes {
			if r.Project == "" || r.Project == project {
				names = append(names, r.Name)
			}
		}
		return names, err
	}
}

// readAllowed returns the lists of a request. Their entries must exist.
func (c *Call) readAllowed(in allowedLists, routes func() ([]string, error)) (a catalog.Allowed, err error) {
	if in.AllowedModels != nil {
		a.Models = *in.AllowedModels
	}
	if in.AllowedProviders != nil {
		a.Providers = *in.AllowedProviders
	}
	return a, cmp.Or(a.Check(), c.s.Gateway.CheckAllowed(a, routes))
}

// allowedChanges are the models and providers in a request that changes something.
type allowedChanges struct {
	AllowedModels    jsonbody.Optional[catalog.Patterns] `json:"allowed_models"`
	AllowedProviders jsonbody.Optional[[]string]         `json:"allowed_providers"`
}

// changeAllowed changes the lists that a request has. Only those are checked, because models of others
// may have been removed since.
func (c *Call) changeAllowed(a *catalog.Allowed, in allowedChanges, routes func() ([]string, error)) error {
	set(&a.Models, in.AllowedModels)
	set(&a.Providers, in.AllowedProviders)
	var changed catalog.Allowed
	set(&changed.Models, in.AllowedModels)
	set(&changed.Providers, in.AllowedProviders)
	return cmp.Or(changed.Check(), c.s.Gateway.CheckAllowed(changed, routes))
}
