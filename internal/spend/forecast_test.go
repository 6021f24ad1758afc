package spend

import (
	"testing"
	"time"

	"turnpike/internal/credits"
)

func TestForecastIsLinear(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	budget := 100 * credits.Credit
	for name, c := range map[string]struct {
		spent     credits.Micro
		limit     *credits.Micro
		now       time.Time
		total     credits.Micro
		exhausted time.Time
		none      bool
	}{
		"at this pace, exhausted on the 21st": {spent: 50 * credits.Credit, limit: &budget, now: day(11), total: 150 * credits.Credit, exhausted: day(21)},
		"lasts":                               {spent: 30 * credits.Credit, limit: &budget, now: day(11), total: 90 * credits.Credit},
		"without a budget":                    {spent: 30 * credits.Credit, now: day(11), total: 90 * credits.Credit},
		"exhausted":                           {spent: 100 * credits.Credit, limit: &budget, now: day(11), total: 300 * credits.Credit, exhausted: day(11)},
		"nothing spent":                       {limit: &budget, now: day(11), none: true},
		"too early to tell":                   {spent: credits.Credit, limit: &budget, now: day(1).Add(59 * time.Minute), none: true},
		"the largest amount":                  {spent: credits.Max, now: day(11), total: credits.Max},
	} {
		f := ForecastOf(c.spent, c.limit, "2026-11", c.now)
		if c.none {
			if f != nil {
				t.Errorf("%s: got a forecast of %v, want none", name, f.Total)
			}
			continue
		}
		if f == nil || f.Total != c.total {
			t.Errorf("%s: got %+v, want %v", name, f, c.total)
			continue
		}
		if (f.ExhaustedAt == nil) != c.exhausted.IsZero() || f.ExhaustedAt != nil && !f.ExhaustedAt.Equal(c.exhausted) {
			t.Errorf("%s: exhausted at %v, want %v", name, f.ExhaustedAt, c.exhausted)
		}
	}
}
