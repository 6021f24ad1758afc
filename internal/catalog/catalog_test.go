package catalog_test

import (
	"math"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func TestPricesAreExact(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	m := c.Find("gpt-4o-mini")
	if m == nil {
		t.Fatal("gpt-4o-mini is not in the table")
	}
	// US$0.15 and US$0.60 a million tokens are 150 and 600 credits.
	if m.Price.Input != 150*credits.Credit || m.Price.Output != 600*credits.Credit {
		t.Errorf("price of gpt-4o-mini is %v and %v", m.Price.Input, m.Price.Output)
	}
	if got := m.Price.Cost(1000, 500); got != 450_000 {
		t.Errorf("1,000 in and 500 out cost %v credits, expected 0.45", got)
	}
}

func TestCostRoundsUpAndNeverOverflows(t *testing.T) {
	t.Parallel()
	p := catalog.Price{Input: 1, Output: credits.Max}
	if got := p.Cost(1, 0); got != 1 {
		t.Errorf("a millionth of a microcredit costs %d, expected it rounded up to 1", got)
	}
	if got := (catalog.Price{Input: credits.Max}).Cost(math.MaxInt64, 0); got != credits.Max {
		t.Errorf("an absurd number of tokens costs %d", got)
	}
	if got := p.Cost(-5, 0); got != 0 {
		t.Errorf("a negative count costs %d", got)
	}
}
