package api

import (
	"cmp"

	"turnpike/internal/catalog"
	"turnpike/internal/jsonbody"
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

// readAllowed returns the lists of a request. Their entries must exist.
func (c *Call) readAllowed(in allowedLists) (a catalog.Allowed, err error) {
	if in.AllowedModels != nil {
		a.Models = *in.AllowedModels
	}
	if in.AllowedProviders != nil {
		a.Providers = *in.AllowedProviders
	}
	return a, cmp.Or(a.Check(), c.s.Gateway.CheckAllowed(a))
}

// allowedChanges are the models and providers in a request that changes something.
type allowedChanges struct {
	AllowedModels    jsonbody.Optional[catalog.Patterns] `json:"allowed_models"`
	AllowedProviders jsonbody.Optional[[]string]         `json:"allowed_providers"`
}

// changeAllowed changes the lists that a request has. Only those are checked, because models of others
// may have been removed since.
func (c *Call) changeAllowed(a *catalog.Allowed, in allowedChanges) error {
	set(&a.Models, in.AllowedModels)
	set(&a.Providers, in.AllowedProviders)
	var changed catalog.Allowed
	set(&changed.Models, in.AllowedModels)
	set(&changed.Providers, in.AllowedProviders)
	return cmp.Or(changed.Check(), c.s.Gateway.CheckAllowed(changed))
}
