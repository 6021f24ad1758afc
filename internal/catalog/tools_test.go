package catalog_test

import (
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func TestToolsHaveTheVendorsPricesUnlessTheOperatorSetsThem(t *testing.T) {
	t.Parallel()
	own := catalog.ToolListPrices{catalog.WebSearch: rat("0.5"), catalog.ImageGeneration: rat("0")}
	c := load(t, catalog.Terms{MarkupPercent: rat("100"), Suppliers: []catalog.Supplier{
		{Name: "openai"}, {Name: "mine", Table: "openai", Tools: own}, {Name: "unknown", Default: &catalog.ListPrice{Input: rat("1"), Output: rat("1")}},
		{Name: "local", Local: true, Table: "openai"}, {Name: "claude", Vendor: "anthropic"},
	}})
	known := func(micro credits.Micro) catalog.ToolPrice { return catalog.ToolPrice{PerCall: micro, Known: true} }
	none := catalog.ToolPrice{}
	for _, tt := range []struct {
		supplier, model string
		want            catalog.ToolPrices
	}{
		{"openai", "gpt-4o-mini", catalog.ToolPrices{known(20 * credits.Credit), known(50 * credits.Credit), known(5 * credits.Credit), known(60 * credits.Credit), none}},
		{"openai", "o3", catalog.ToolPrices{known(20 * credits.Credit), known(20 * credits.Credit), known(5 * credits.Credit), known(60 * credits.Credit), none}},
		{"mine", "gpt-4o-mini", catalog.ToolPrices{known(1000 * credits.Credit), known(50 * credits.Credit), known(5 * credits.Credit), known(60 * credits.Credit), known(0)}},
		{"openai", "text-embedding-3-small", catalog.ToolPrices{}},
		{"unknown", "any", catalog.ToolPrices{}},
		{"local", "gpt-4o-mini", catalog.ToolPrices{}},
		{"claude", "claude-opus-4-5", catalog.ToolPrices{known(20 * credits.Credit)}},
	} {
		if got := c.Offer(tt.supplier, tt.model).Price.Tools; got != tt.want {
			t.Errorf("%s at %s: got %+v, want %+v", tt.model, tt.supplier, got, tt.want)
		}
	}
	if !c.Offer("local", "gpt-4o-mini").Price.IsFree() {
		t.Error("a local model isn't free")
	}
	if before := load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "openai"}}}); before.PriceVersion() == load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "openai", Tools: own}}}).PriceVersion() {
		t.Error("the price version ignores prices of tools")
	}
}

func TestToolCallsAreChargedInAdditionToTokens(t *testing.T) {
	t.Parallel()
	m := catalog.Model{Price: catalog.Price{Input: 1000, Tools: catalog.ToolPrices{catalog.FileSearch: {PerCall: 7, Known: true}}}}
	for calls, want := range map[int64]credits.Micro{0: 1, 3: 22, -5: 1, 1 << 62: credits.Micro(1)<<40*7 + 1} {
		if got := m.Cost(catalog.Units{Tokens: catalog.Tokens{Input: 1000}, ToolCalls: catalog.ToolCalls{catalog.FileSearch: calls}}); got != want {
			t.Errorf("%d calls: got %d, want %d", calls, got, want)
		}
	}
	for name, want := range map[string]catalog.Tool{"web_search": catalog.WebSearch, "web_search_2025_08_26": catalog.WebSearch, "web_search_preview_2025_03_11": catalog.WebSearchPreview} {
		if got, ok := catalog.ToolNamed(name); !ok || got != want {
			t.Errorf("%s: got %v %t", name, got, ok)
		}
	}
	if _, ok := catalog.ToolNamed("mcp"); ok {
		t.Error("mcp has a price")
	}
}
