package catalog_test

import (
	"math/big"
	"regexp"
	"strings"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func rat(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		panic(text)
	}
	return r
}

func TestTermsConvertExactlyOrRoundUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		terms catalog.Terms
		want  credits.Micro // for US$0.15
	}{
		"default":                {catalog.Terms{}, 150 * credits.Credit},
		"default by its name":    {catalog.Terms{CreditUSD: rat("0.001"), MarkupPercent: rat("0")}, 150 * credits.Credit},
		"a cent":                 {catalog.Terms{CreditUSD: rat("0.01")}, 15 * credits.Credit},
		"20 % on top":            {catalog.Terms{MarkupPercent: rat("20")}, 180 * credits.Credit},
		"12.5 % on top of cents": {catalog.Terms{CreditUSD: rat("0.01"), MarkupPercent: rat("12.5")}, 16_875_000},
		"a third, rounded up":    {catalog.Terms{CreditUSD: rat("0.0007")}, 214_285_715}, // 214,285,714.28…
		"a tiny part rounded up": {catalog.Terms{MarkupPercent: rat("0.000000001")}, 150_000_001},
	} {
		c := load(t, tt.terms)
		if got := c.Find("openai", "gpt-4o-mini").Price.Input; got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestInvalidTermsAreRejected(t *testing.T) {
	t.Parallel()
	for name, terms := range map[string]catalog.Terms{
		"worthless credits": {CreditUSD: rat("0")},
		"negative credits":  {CreditUSD: rat("-1")},
		"negative markup":   {MarkupPercent: rat("-1")},
		"overflow":          {CreditUSD: rat("0.000000000000001")},
		"negative price":    {Suppliers: []catalog.Supplier{{Name: "x", Default: &catalog.ListPrice{Input: rat("-1")}}}},
		"bad model price":   {Suppliers: []catalog.Supplier{{Name: "x", Models: []catalog.ListedModel{{ID: "m", Price: &catalog.ListPrice{Input: rat("1e30")}}}}}},
		"unknown table":     {Suppliers: []catalog.Supplier{{Name: "x", Table: "opneai"}}},
		"unknown ability":   {Suppliers: []catalog.Supplier{{Name: "x", Models: []catalog.ListedModel{{ID: "m", Capabilities: []string{"flight"}}}}}},
		"two of a name":     {Suppliers: []catalog.Supplier{{Name: "x"}, {Name: "x"}}},
	} {
		if _, err := catalog.Load(terms); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	_, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "x", Table: "opneai"}}})
	if !strings.Contains(err.Error(), `"opneai"; want one of anthropic, `) {
		t.Errorf("got %v", err)
	}
}

func TestPriceVersionChangesWithPrices(t *testing.T) {
	t.Parallel()
	one := catalog.ListPrice{Input: rat("1"), Output: rat("1")}
	supplier := func(s catalog.Supplier) catalog.Terms {
		s.Name = "x"
		return catalog.Terms{Suppliers: []catalog.Supplier{s}}
	}
	version := func(terms catalog.Terms) string { return load(t, terms).PriceVersion() }

	for name, terms := range map[string]catalog.Terms{
		"nothing":           {},
		"the default":       {CreditUSD: rat("0.0010"), MarkupPercent: rat("0")},
		"a plain supplier":  supplier(catalog.Supplier{Vendor: "openai"}),
		"a list of models":  supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "gpt-4o", Upstream: "gpt-4o"}, {ID: "o1"}}}),
		"facts, not prices": supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "gpt-4o", ContextWindow: 5}}}),
	} {
		if got := version(terms); got != "2026-08-08" {
			t.Errorf("%s: got %s", name, got)
		}
	}

	seen := map[string]string{}
	for name, terms := range map[string]catalog.Terms{
		"credit":         {CreditUSD: rat("0.01")},
		"markup":         {MarkupPercent: rat("0.01")},
		"local":          supplier(catalog.Supplier{Local: true}),
		"table":          supplier(catalog.Supplier{Table: "openai"}),
		"default price":  supplier(catalog.Supplier{Default: &one}),
		"model price":    supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "m", Price: &one}}}),
		"another model":  supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "n", Price: &one}}}),
		"another price":  supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "m", Price: &catalog.ListPrice{Input: rat("1")}}}}),
		"other side":     supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "m", Price: &catalog.ListPrice{Output: rat("1")}}}}),
		"another target": supplier(catalog.Supplier{Models: []catalog.ListedModel{{ID: "m", Upstream: "gpt-4o"}}}),
	} {
		got := version(terms)
		if !regexp.MustCompile(`^2026-08-08\+[0-9a-f]{8}$`).MatchString(got) {
			t.Errorf("%s: got %s", name, got)
		}
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s have the same version %s", name, other, got)
		}
		seen[got] = name
		if again := version(terms); again != got {
			t.Errorf("%s: %s, then %s", name, got, again)
		}
	}

	a, b := catalog.Supplier{Name: "a", Default: &one}, catalog.Supplier{Name: "b", Local: true}
	if version(catalog.Terms{Suppliers: []catalog.Supplier{a, b}}) != version(catalog.Terms{Suppliers: []catalog.Supplier{b, a}}) {
		t.Error("the order of suppliers priceChanges the version")
	}
}
