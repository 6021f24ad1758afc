package catalog_test

import (
	"math"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/credits"
)

func TestCostCountsEachKindOfToken(t *testing.T) {
	t.Parallel()
	p := catalog.Price{Input: 100 * credits.Credit, Output: 1000 * credits.Credit, CachedInput: 10 * credits.Credit, CacheWrite: 125 * credits.Credit}
	for name, tt := range map[string]struct {
		used catalog.Tokens
		want credits.Micro
	}{
		"nothing":                  {catalog.Tokens{}, 0},
		"plain":                    {catalog.Tokens{Input: 1000, Output: 500}, 100_000 + 500_000},
		"cached":                   {catalog.Tokens{Input: 1000, CachedInput: 400}, 60_000 + 4_000},
		"written":                  {catalog.Tokens{Input: 1000, CacheWrite: 400}, 60_000 + 50_000},
		"all":                      {catalog.Tokens{Input: 1000, Output: 1, CachedInput: 500, CacheWrite: 300}, 20_000 + 5_000 + 37_500 + 1_000},
		"negative":                 {catalog.Tokens{Input: -5, Output: -5, CachedInput: -5, CacheWrite: -5}, 0},
		"negative cached":          {catalog.Tokens{Input: 1000, CachedInput: -400, CacheWrite: -400}, 100_000},
		"more cached than input":   {catalog.Tokens{Input: 1000, CachedInput: 5000}, 10_000},
		"more written than input":  {catalog.Tokens{Input: 1000, CacheWrite: 5000}, 125_000},
		"more of both than input":  {catalog.Tokens{Input: 1000, CachedInput: 600, CacheWrite: 600}, 6_000 + 50_000},
		"cached of negative input": {catalog.Tokens{Input: -1, CachedInput: 600}, 0},
	} {
		if got := p.Cost(tt.used); got != tt.want {
			t.Errorf("%s: %+v costs %d, want %d", name, tt.used, got, tt.want)
		}
	}
}

func TestCostRoundsUpOnceAndNeverOverflows(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	for name, tt := range map[string]struct {
		price catalog.Price
		used  catalog.Tokens
		want  credits.Micro
	}{
		"a millionth":                  {catalog.Price{Input: 1}, catalog.Tokens{Input: 1}, 1},
		"several millionths":           {catalog.Price{Input: 1, Output: 1, CachedInput: 1, CacheWrite: 1}, catalog.Tokens{Input: 3, Output: 1, CachedInput: 1, CacheWrite: 1}, 1},
		"a whole and a millionth":      {catalog.Price{Input: 1}, catalog.Tokens{Input: 1_000_001}, 2},
		"a whole":                      {catalog.Price{Input: 1}, catalog.Tokens{Input: 1_000_000}, 1},
		"the largest":                  {catalog.Price{Input: credits.Max}, catalog.Tokens{Input: 1_000_000}, credits.Max},
		"above the largest":            {catalog.Price{Input: credits.Max}, catalog.Tokens{Input: 1_000_001}, credits.Max},
		"absurd input":                 {catalog.Price{Input: credits.Max}, catalog.Tokens{Input: most}, credits.Max},
		"absurd everything":            {catalog.Price{Input: credits.Max, Output: credits.Max, CachedInput: credits.Max, CacheWrite: credits.Max}, catalog.Tokens{Input: most, Output: most, CachedInput: most / 2, CacheWrite: most / 2}, credits.Max},
		"an impossible rate":           {catalog.Price{Input: -1, Output: math.MaxInt64}, catalog.Tokens{Input: 1_000_000, Output: 1}, credits.Max / 1_000_000},
		"dividing beyond 64 bits":      {catalog.Price{Input: 1_000_000}, catalog.Tokens{Input: most}, credits.Max},
		"more than 64 bits in between": {catalog.Price{Input: 600 * credits.Credit, Output: 600 * credits.Credit}, catalog.Tokens{Input: 1e14, Output: 1e14}, 120_000_000_000 * credits.Credit},
	} {
		if got := tt.price.Cost(tt.used); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestHighestInputIsTheHighestRate(t *testing.T) {
	t.Parallel()
	for _, p := range []catalog.Price{{Input: 9, CachedInput: 1, CacheWrite: 2}, {Input: 1, CachedInput: 9}, {Input: 1, CacheWrite: 9, CachedInput: 2}} {
		p.Output = 100
		if got := p.HighestInput(); got != 9 {
			t.Errorf("%+v: got %d", p, got)
		}
		used := catalog.Tokens{Input: 1_000_000, CachedInput: 300_000, CacheWrite: 300_000}
		if p.Cost(used) > (catalog.Price{Input: p.HighestInput()}).Cost(catalog.Tokens{Input: used.Input}) {
			t.Errorf("%+v: a call can cost more than was reserved", p)
		}
	}
}
