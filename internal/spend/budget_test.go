package spend

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"turnpike/internal/accounts"
)

// TestPeriodsHaveStableNames pins the keys of stored rows.
func TestPeriodsHaveStableNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 3, 23, 30, 0, 0, time.FixedZone("", -3600)) // a Monday in UTC
	for w, want := range map[accounts.Window]Period{"": "2027-01", accounts.WindowDay: "2027-01-04", accounts.WindowWeek: "2027-W01",
		accounts.WindowMonth: "2027-01", accounts.WindowLifetime: "lifetime"} {
		if got := PeriodIn(w, at); got != want {
			t.Errorf("the %s of %s is %q, want %q", w, at, got, want)
		}
	}
	if got := PeriodIn(accounts.WindowWeek, at.Add(-time.Hour)); got != "2026-W53" {
		t.Errorf("the week of the Sunday before is %q, want 2026-W53", got)
	}
	for _, p := range []Period{"", "x", "2026-W54", "2026-13", "2026-W4", "2026-02-30", "2026-W471"} {
		if w := p.Window(); w != "" || !p.Start().IsZero() || !p.End().IsZero() {
			t.Errorf("%q is the period of a %s", p, w)
		}
	}
}

func TestPeriodsOfAWindowAdjoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(rt, "time"), 0).UTC()
		for _, w := range []accounts.Window{accounts.WindowDay, accounts.WindowWeek, accounts.WindowMonth} {
			p := PeriodIn(w, at)
			start, end := p.Start(), p.End()
			if p.Window() != w || at.Before(start) || !at.Before(end) || PeriodIn(w, start) != p || PeriodIn(w, end.Add(-1)) != p || PeriodIn(w, end).Start() != end {
				rt.Fatalf("the %s of %s is %s from %s to %s", w, at, p, start, end)
			}
			if w == accounts.WindowWeek && start.Weekday() != time.Monday {
				rt.Fatalf("%s starts on a %s", p, start.Weekday())
			}
		}
	})
}
