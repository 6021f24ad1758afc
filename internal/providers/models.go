package providers

import "context"

// ModelLister lists the models that the provider has for its key. The list is free, and needs a valid key where the
// provider has keys.
type ModelLister interface {
	ListModels(ctx context.Context) ([]string, error)
}
