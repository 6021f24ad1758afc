package accounts

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func TestExpiringLimitCountsUntilRoundedExpiry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
		limit := ExpiringLimit{ID: "records", Max: 3, Granularity: time.Minute}
		add := func(l ExpiringLimit, lifetime time.Duration) error {
			return d.Write(t.Context(), func(tx *db.Tx) error { return l.Add(t.Context(), tx, now.Add(lifetime), now) })
		}
		wantRoom := func(lifetime time.Duration) {
			t.Helper()
			if err := add(limit, lifetime); err != nil {
				t.Fatalf("got %v, want room", err)
			}
		}
		wantFull := func(until time.Time) {
			t.Helper()
			var full *LimitReachedError
			if err := add(limit, time.Second); !errors.As(err, &full) || full.Max != 3 || !full.Until.Equal(until) {
				t.Fatalf("got %v, want the limit reached until %s", err, until)
			}
		}
		wantRoom(10 * time.Second)
		wantRoom(5 * time.Minute)
		wantRoom(15 * time.Minute)
		wantFull(now.Add(30 * time.Second))
		if err := add(ExpiringLimit{ID: "others", Max: 1, Granularity: time.Minute}, time.Second); err != nil {
			t.Errorf("got %v for another ID, want room", err)
		}
		for range 5 {
			if err := add(ExpiringLimit{ID: "unlimited", Granularity: time.Minute}, time.Hour); err != nil {
				t.Errorf("got %v without a limit, want room", err)
			}
		}
		now = now.Add(29 * time.Second)
		wantFull(now.Add(time.Second))
		now = now.Add(time.Second)
		wantRoom(time.Hour)
		wantFull(time.Date(2026, 1, 1, 12, 6, 0, 0, time.UTC))

		// A removed record frees its slot once.
		remove := func(ends time.Time) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return limit.Remove(t.Context(), tx, ends, now) }); err != nil {
				t.Fatal(err)
			}
		}
		remove(now.Add(time.Hour))
		remove(now.Add(time.Hour))
		wantRoom(time.Minute)
		wantFull(now.Add(time.Minute))

		purge := func() (n int64) {
			err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				n, err = PurgeCounts(t.Context(), tx, now, 10)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := purge(); n != 1 {
			t.Errorf("got %d rows purged, want 1: all of the others have ended", n)
		}
		now = now.Add(2 * time.Hour)
		if n := purge(); n != 1 {
			t.Errorf("got %d rows purged, want the last one", n)
		}
		wantRoom(time.Second)
	})
}

func TestExpiringLimitIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		limit := ExpiringLimit{ID: "records", Max: 25, Granularity: time.Minute}
		var added atomic.Int64
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for range 5 {
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return limit.Add(t.Context(), tx, now.Add(time.Duration(i)*time.Minute+time.Second), now)
					})
					var full *LimitReachedError
					switch {
					case err == nil:
						added.Add(1)
					case !errors.As(err, &full):
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := added.Load(); n != 25 {
			t.Errorf("got %d, want 25", n)
		}
	})
}
