package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/fault"
	"turnpike/internal/operators"
	"turnpike/internal/providers"
)

// checkTogether returns the configuration with the definition, or why it isn't possible.
func (m *Definitions) checkTogether(ctx context.Context, d *operators.Stored) (*effective, error) {
	stored, err := m.records.All(ctx, m.db)
	if err != nil {
		return nil, err
	}
	stored = slices.DeleteFunc(stored, func(other *operators.Stored) bool { return other.Kind == d.Kind && other.Name == d.Name })
	e, err := mergeStored(m.file(), append(stored, d))
	if err != nil {
		return nil, err
	}
	if problem := e.problems[operators.Ref{Kind: d.Kind, Name: d.Name}]; problem != "" {
		return nil, fault.Invalid(catalogParam(d.Kind, problem), "%s%s.", strings.ToUpper(problem[:1]), strings.TrimSuffix(problem[1:], "."))
	}
	return e, nil
}

// catalogParam returns the field that a problem of the catalog is about.
func catalogParam(kind operators.Kind, problem string) string {
	if kind == operators.Pricing {
		return "markup_percent"
	}
	for _, about := range [][2]string{{"unknown table", "catalog"}, {"default price", "default_price"}, {"tool prices", "tool_prices"}} {
		if strings.Contains(problem, about[0]) {
			return about[1]
		}
	}
	return "models"
}

// checkRoute rejects a route to models that no provider has at a known price.
func checkRoute(e *effective, r config.Route) error {
	for _, model := range NotOffered(e.config, e.catalog, r) {
		return fault.Invalid(fmt.Sprintf("models[%d]", slices.Index(r.Models, model)), "No provider offers the model %q at a known price. Add a provider or a price first.", model)
	}
	return nil
}

// NotOffered returns the models of a route that no provider has at a known price.
func NotOffered(c config.Config, models *catalog.Catalog, r config.Route) (missing []string) {
	for _, model := range r.Models {
		if !slices.ContainsFunc(c.Providers, func(p config.Provider) bool { o := models.Offer(p.Name, model); return o != nil && o.Priced }) {
			missing = append(missing, model)
		}
	}
	return missing
}

// checkKeyTimeout is how long a provider may take to list its models.
const checkKeyTimeout = 5 * time.Second

// checkKey rejects a key that the provider rejects. Everything else, such as a server that isn't reachable yet, is up
// to the test of the provider.
func checkKey(ctx context.Context, p *config.Provider, before *operators.Stored) error {
	if before != nil {
		was, err := parseStored(before)
		if old := was.provider; err == nil && old.APIKey == p.APIKey && slices.Equal(old.APIKeys, p.APIKeys) && old.BaseURL == p.BaseURL && old.Type == p.Type {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkKeyTimeout)
	defer cancel()
	single := *p
	single.APIKeys = nil
	keys := map[string]config.Secret{"api_key": p.APIKey}
	for i, k := range p.APIKeys {
		keys[fmt.Sprintf("api_keys[%d].api_key", i)] = k.APIKey
	}
	for param, key := range keys {
		if single.APIKey = key; key == "" {
			continue
		}
		_, err := listModels(ctx, single)
		if f, ok := errors.AsType[*providers.Failure](err); ok && f.Kind == providers.KindAuth && (f.Status == http.StatusUnauthorized || f.Status == http.StatusBadRequest) {
			return fault.Invalid(param, "The provider rejects this key (%d). Check %s and base_url.", f.Status, param)
		}
	}
	return nil
}
