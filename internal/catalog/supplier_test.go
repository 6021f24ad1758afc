package catalog_test

import (
	"slices"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func usd(input, output string) *catalog.ListPrice {
	return &catalog.ListPrice{Input: rat(input), Output: rat(output)}
}

func TestOffersOfASupplier(t *testing.T) {
	t.Parallel()
	const cent, mini = 10 * credits.Credit, 150 * credits.Credit
	c := load(t, catalog.Terms{Suppliers: []catalog.Supplier{
		{Name: "openai"},
		{Name: "groq", Vendor: "openai"},
		{Name: "own-openai", Vendor: "openai"},
		{Name: "azure", Table: "openai", Models: []catalog.ListedModel{{ID: "gpt-4o-mini", Upstream: "mini-deployment"}, {ID: "fast", Upstream: "gpt-4o-mini"}, {ID: "gpt-4o-mini-2031-01-01"}, {ID: "priced", Upstream: "x", Price: usd("0.01", "0.01")}}},
		{Name: "house"},
		{Name: "defaulted", Default: usd("0.01", "0.02")},
		{Name: "defaulted-openai", Table: "openai", Default: usd("0.01", "0.02")},
		{Name: "listed", Table: "openai", Default: usd("0.01", "0.02"), Models: []catalog.ListedModel{{ID: "gpt-4o-mini"}, {ID: "new-model"}}},
		{Name: "ollama", Local: true},
		{Name: "priced-local", Local: true, Default: usd("0.01", "0.02")},
		{Name: "local-openai", Local: true, Table: "openai", Models: []catalog.ListedModel{{ID: "gpt-4o-mini"}, {ID: "llama3", Price: usd("0.01", "0.02")}}},
		{Name: "mistral", Local: true}, // a name of the table, but its own models
	}})
	for _, tt := range []struct {
		supplier, id string
		upstream     string // "" for not offered
		priced       bool
		input        credits.Micro
	}{
		{"openai", "gpt-4o-mini", "gpt-4o-mini", true, mini},
		{"openai", "gpt-4o-mini-2031-07-18", "gpt-4o-mini-2031-07-18", true, mini},
		{"openai", "gpt-image-1", "gpt-image-1", false, 5000 * credits.Credit},
		{"openai", "claude-opus-5", "", false, 0},
		{"openai", "llama3", "", false, 0},
		{"openai", "", "", false, 0},
		{"groq", "openai/gpt-oss-20b", "openai/gpt-oss-20b", true, 75 * credits.Credit}, // its name before its vendor
		{"groq", "gpt-4o-mini", "", false, 0},
		{"own-openai", "gpt-4o-mini", "gpt-4o-mini", true, mini},
		{"azure", "fast", "gpt-4o-mini", true, mini},
		{"azure", "gpt-4o-mini-2031-01-01", "gpt-4o-mini-2031-01-01", true, mini},
		{"azure", "gpt-4o-mini", "mini-deployment", false, 0}, // nothing says what that deployment is
		{"azure", "priced", "x", true, cent},
		{"azure", "gpt-4o", "", false, 0}, // not in its list
		{"house", "gpt-4o-mini", "", false, 0},
		{"defaulted", "whatever", "whatever", true, cent},
		{"defaulted-openai", "gpt-4o-mini", "gpt-4o-mini", true, mini}, // the table before the default
		{"defaulted-openai", "gpt-image-1", "gpt-image-1", true, cent},
		{"defaulted-openai", "new-model", "new-model", true, cent},
		{"listed", "gpt-4o-mini", "gpt-4o-mini", true, mini},
		{"listed", "new-model", "new-model", true, cent},
		{"listed", "other", "", false, 0},
		{"ollama", "gpt-4o-mini", "gpt-4o-mini", true, 0},
		{"priced-local", "llama3", "llama3", true, cent},
		{"local-openai", "gpt-4o-mini", "gpt-4o-mini", true, 0},
		{"local-openai", "llama3", "llama3", true, cent},
		{"local-openai", "phi", "", false, 0},
		{"mistral", "mistral-large-latest", "mistral-large-latest", true, 0},
		{"unknown", "gpt-4o-mini", "", false, 0},
	} {
		o := c.Offer(tt.supplier, tt.id)
		if o == nil {
			if tt.upstream != "" {
				t.Errorf("%s has no %s", tt.supplier, tt.id)
			}
			continue
		}
		if o.ID != tt.id || o.Supplier != tt.supplier || o.Upstream != tt.upstream || o.Priced != tt.priced || o.Price.Input != tt.input {
			t.Errorf("%s at %s: got upstream %q, priced %t at %v: %+v", tt.id, tt.supplier, o.Upstream, o.Priced, o.Price.Input, o.Model)
		}
	}
	for supplier, want := range map[string]struct {
		models  int
		anyName bool
	}{"openai": {131, false}, "azure": {4, false}, "house": {0, false}, "ollama": {0, true}, "defaulted-openai": {131, true}, "local-openai": {2, false}, "mistral": {0, true}, "unknown": {0, false}} {
		offers := c.Offers(supplier)
		if len(offers) != want.models || c.OffersAny(supplier) != want.anyName {
			t.Errorf("%s: %d models, any: %t", supplier, len(offers), c.OffersAny(supplier))
		}
		if !slices.IsSortedFunc(offers, func(a, b *catalog.Offer) int {
			if a.ID < b.ID {
				return -1
			}
			return 1
		}) {
			t.Errorf("%s: not in order", supplier)
		}
	}
}

func TestOperatorSettingsOverrideTheTable(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{MarkupPercent: rat("100"), Suppliers: []catalog.Supplier{{Name: "openai", Models: []catalog.ListedModel{
		{ID: "gpt-4o-mini", ContextWindow: 10, MaxOutputTokens: 20, Capabilities: []string{"audio_input"},
			Price: &catalog.ListPrice{Input: rat("1"), Output: rat("2"), CachedInput: rat("0.5")}},
		{ID: "gpt-4o", Capabilities: []string{}},
		{ID: "o3"},
	}}}})
	mini := c.Offer("openai", "gpt-4o-mini")
	if mini.ContextWindow != 10 || mini.MaxOutputTokens != 20 || mini.Capabilities != (catalog.Capabilities{AudioInput: true}) || !slices.Equal(mini.Modalities, []string{"text", "audio"}) {
		t.Errorf("got %+v", mini)
	}
	// The markup is on the operator's prices too.
	if want := (catalog.Price{Input: 2000 * credits.Credit, Output: 4000 * credits.Credit, CachedInput: 1000 * credits.Credit, CacheWrite: 2000 * credits.Credit, Tools: mini.Price.Tools}); mini.Price != want {
		t.Errorf("got %+v, want %+v", mini.Price, want)
	}
	if none := c.Offer("openai", "gpt-4o"); none.Capabilities != (catalog.Capabilities{}) || none.ContextWindow != 128_000 {
		t.Errorf("an empty list gave %+v", none.Capabilities)
	}
	if o3 := c.Offer("openai", "o3"); !o3.Capabilities.Reasoning || o3.Kind != catalog.Chat {
		t.Errorf("got %+v", o3)
	}
	if c.Find("openai", "gpt-4o-mini").ContextWindow != 128_000 {
		t.Error("the table itself was changed")
	}
}
