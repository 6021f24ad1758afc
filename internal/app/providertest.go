package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/fault"
	"turnpike/internal/operators"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

const (
	// testTimeout limits the test of a provider, which a person waits for.
	testTimeout = 30 * time.Second
	// testOutput is the smallest limit that the vendors accept for all of their models.
	testOutput = 16
)

// testClient has its own connections, so that a test says something about the address and its certificate.
func testClient() *wire.Client {
	return wire.NewClient(wire.Timeouts{Connect: 10 * time.Second, FirstByte: testTimeout, Idle: testTimeout})
}

func listModels(ctx context.Context, p config.Provider) ([]string, error) {
	lister, ok := upstream(p, testClient()).(providers.ModelLister)
	if !ok {
		return nil, nil
	}
	return lister.ListModels(ctx)
}

// TestProvider makes a real call to a provider. Its result has nothing of the provider's response, because some
// servers repeat the key.
func (m *Definitions) TestProvider(ctx context.Context, name, model string) (*operators.Test, error) {
	e, p, err := m.effectiveProvider(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	started := time.Now()
	called, err := callModel(ctx, p, e.catalog, model)
	if f, ok := fault.As(err); ok && f.Param == "model" {
		return nil, err
	}
	test := &operators.Test{OK: err == nil, Model: called, Latency: time.Since(started)}
	if err != nil {
		test.Problem = explainTest(p, err)
	}
	return test, nil
}

// effectiveProvider returns a provider of the configuration or the database.
func (m *Definitions) effectiveProvider(ctx context.Context, name string) (*effective, config.Provider, error) {
	e, _, err := m.effective(ctx)
	if err != nil {
		return nil, config.Provider{}, err
	}
	i := slices.IndexFunc(e.config.Providers, func(p config.Provider) bool { return p.Name == name })
	if i < 0 {
		return nil, config.Provider{}, noSuchDefinition(operators.Provider, name)
	}
	return e, e.config.Providers[i], nil
}

// DiscoverModels asks a provider for its models, and returns those that Turnpike doesn't know first.
func (m *Definitions) DiscoverModels(ctx context.Context, name string) ([]operators.DiscoveredModel, error) {
	e, p, err := m.effectiveProvider(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	names, err := listModels(ctx, p)
	if err != nil {
		return nil, fault.New(fault.Upstream, "%s", explainTest(p, err)).Because(err)
	}
	slices.Sort(names)
	list := []operators.DiscoveredModel{}
	for _, id := range slices.Compact(names) {
		o := e.catalog.Offer(p.Name, id)
		if o == nil { // the operator may offer it under another name
			o = offerOf(e.catalog, p.Name, id)
		}
		list = append(list, operators.DiscoveredModel{ID: id, Known: o != nil && !o.AnyName, Priced: o != nil && o.Priced})
	}
	slices.SortStableFunc(list, func(a, b operators.DiscoveredModel) int {
		switch {
		case a.Known == b.Known:
			return 0
		case a.Known:
			return 1
		}
		return -1
	})
	return list, nil
}

// offerOf returns the offer with the provider's name of a model, or nil.
func offerOf(models *catalog.Catalog, provider, upstream string) *catalog.Offer {
	for _, o := range models.Offers(provider) {
		if o.Upstream == upstream {
			return o
		}
	}
	return nil
}

// callModel asks a chat model for a word, or lists the models of a provider without chat models.
func callModel(ctx context.Context, p config.Provider, models *catalog.Catalog, model string) (called string, err error) {
	o := models.Offer(p.Name, model)
	if model == "" {
		o = cheapestChat(models, p.Name)
	} else if o == nil {
		return "", fault.Invalid("model", "The provider %q does not offer the model %q.", p.Name, model)
	}
	if o == nil {
		names, err := listModels(ctx, p)
		if err != nil || len(names) == 0 {
			return "", err
		}
		if o = models.Offer(p.Name, names[0]); o == nil {
			return "", nil
		}
	}
	chat, ok := upstream(p, testClient()).(providers.ChatCompleter)
	if !ok || o.Kind != catalog.Chat && o.Kind != "" {
		_, err := listModels(ctx, p)
		return "", err
	}
	body, err := json.Marshal(map[string]any{"model": o.ID, "messages": []any{map[string]any{"role": "user", "content": "Reply with OK."}}})
	if err != nil {
		return "", err
	}
	_, err = chat.Chat(ctx, &providers.ChatRequest{Model: o.Upstream, ID: o.ID, Body: body, MaxOutput: testOutput})
	return o.ID, err
}

// cheapestChat returns the cheapest chat model for general use that a provider offers, or nil.
func cheapestChat(models *catalog.Catalog, provider string) *catalog.Offer {
	var best *catalog.Offer
	for _, o := range models.Offers(provider) {
		if (o.Kind == catalog.Chat || o.Listed && o.Kind == "") && (o.Listed || !o.SpecialPurpose() && !o.Outdated && o.Deprecated.IsZero()) &&
			(best == nil || o.TypicalCost() < best.TypicalCost()) {
			best = o
		}
	}
	return best
}

// explainTest says what is wrong and what to do.
func explainTest(p config.Provider, err error) string {
	if fixed, ok := fault.As(err); ok {
		return fixed.Message
	}
	f, ok := errors.AsType[*providers.Failure](err)
	if !ok {
		return "The test failed. Retry it."
	}
	switch f.Kind {
	case providers.KindAuth:
		if f.Status == http.StatusForbidden {
			return "The provider rejects the key for this model (403). Check the permissions of the key."
		}
		return fmt.Sprintf("The provider rejects the key (%d). Check api_key and base_url, and the provider's account.", f.Status)
	case providers.KindConnect:
		return fmt.Sprintf("Turnpike cannot connect to %s: %v. Check base_url, the network and the certificate.", p.BaseURL, f.Err)
	case providers.KindTimeout:
		return "The provider did not respond in time. Check base_url, and retry."
	case providers.KindNoModel:
		return "The provider does not have the model, or base_url is incomplete (404). Test with another model."
	case providers.KindRateLimited, providers.KindOverloaded:
		return fmt.Sprintf("The provider is reachable, but limits requests (%d). Retry later.", f.Status)
	case providers.KindProtocol:
		return "The response is not what a provider of this type sends. Check type and base_url."
	}
	return fmt.Sprintf("The provider fails with %s (status %d).", cmp.Or(string(f.Kind), "an error"), f.Status)
}
