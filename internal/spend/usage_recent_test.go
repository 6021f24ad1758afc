package spend

import (
	"context"
	"slices"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestRecentUsageReadsABoundedNumberOfRows checks that the returned usage is
// complete since the returned time.
func TestRecentUsageReadsABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		noon := time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)
		for hour := range 10 {
			for _, model := range []string{"a", "b", "c"} {
				e := o.entry(nil, credits.Credit)
				e.CreatedAt, e.Model = noon.Add(-time.Duration(hour)*time.Hour), model
				o.write(func(ctx context.Context, tx *db.Tx) error { return addUsage(ctx, tx, []audit.Settlement{{Entry: e}}) })
			}
		}
		u := UsageQuery{Tenant: o.workspace.In("live"), Start: noon.Add(-20 * time.Hour), End: noon, Bucket: ByHour, GroupBy: []string{"model"}}
		for bound, want := range map[int]struct {
			requests int64
			since    time.Time
		}{
			100: {30, time.Time{}}, 30: {30, time.Time{}},
			29: {27, time.Date(2026, 3, 10, 4, 0, 0, 0, time.UTC)}, 27: {27, time.Date(2026, 3, 10, 4, 0, 0, 0, time.UTC)},
			3: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)},
			// With fewer rows than one step has, that step is still returned,
			// and complete.
			2: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}, 1: {3, time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)},
		} {
			list, since, err := RecentUsage(t.Context(), d, u, bound)
			if err != nil {
				t.Fatal(err)
			}
			var sum Usage
			for _, x := range list {
				sum.Add(x)
			}
			if sum.Requests != want.requests || !since.Equal(want.since) {
				t.Errorf("with a bound of %d: %d requests since %s", bound, sum.Requests, since)
			}
		}
	})
}

func TestStepsCoverTheQueriedBuckets(t *testing.T) {
	t.Parallel()
	at := func(month time.Month, day, hour int) time.Time {
		return time.Date(2026, month, day, hour, 0, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		bucket     Bucket
		start, end time.Time
		want       []time.Time
	}{
		{ByMonth, at(1, 31, 5), at(3, 1, 0), []time.Time{at(1, 1, 0), at(2, 1, 0)}},
		{ByDay, at(2, 27, 5), at(3, 1, 1), []time.Time{at(2, 27, 0), at(2, 28, 0), at(3, 1, 0)}},
		{ByHour, at(2, 1, 22), at(2, 2, 0), []time.Time{at(2, 1, 22), at(2, 1, 23)}},
	} {
		if got := (UsageQuery{Bucket: c.bucket, Start: c.start, End: c.end}).Steps(); !slices.EqualFunc(got, c.want, time.Time.Equal) {
			t.Errorf("by %s from %s to %s: %v", c.bucket, c.start, c.end, got)
		}
	}
}

func TestMonthsAreTheNewestWithSpending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			posted := newPostings()
			for p, amount := range map[Period]credits.Micro{"2025-12": 3, "2026-01": 0, "2026-02": 5, "2026-03": 7} {
				add(posted.balances, accountMonth{o.account(), p}, balance{Settled: amount})
			}
			add(posted.balances, accountMonth{Account{Workspace, "ws_other"}, "2026-02"}, balance{Settled: 9})
			return posted.write(ctx, tx)
		})
		got, err := Months(t.Context(), d, o.account(), 2)
		if want := []Month{{"2026-03", 7}, {"2026-02", 5}}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%v (%v)", got, err)
		}
		if got, err := Months(t.Context(), d, o.account(), 10); err != nil || len(got) != 3 {
			t.Errorf("%v (%v)", got, err)
		}
	})
}
