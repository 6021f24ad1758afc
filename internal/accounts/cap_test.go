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

func TestCapCountsUntilTheEndOfTheSlice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
		things := Cap{ID: "things", Max: 3, Slice: time.Minute}
		add := func(c Cap, lifetime time.Duration) error {
			return d.Write(t.Context(), func(tx *db.Tx) error { return c.Add(t.Context(), tx, now.Add(lifetime), now) })
		}
		wantRoom := func(lifetime time.Duration) {
			t.Helper()
			if err := add(things, lifetime); err != nil {
				t.Fatalf("got %v, want room", err)
			}
		}
		wantFull := func(until time.Time) {
			t.Helper()
			var full *CapReached
			if err := add(things, time.Second); !errors.As(err, &full) || full.Max != 3 || !full.Until.Equal(until) {
				t.Fatalf("got %v, want the cap reached until %s", err, until)
			}
		}
		wantRoom(10 * time.Second)
		wantRoom(5 * time.Minute)
		wantRoom(15 * time.Minute)
		wantFull(now.Add(30 * time.Second))
		if err := add(Cap{ID: "others", Max: 1, Slice: time.Minute}, time.Second); err != nil {
			t.Errorf("got %v for another ID, want room", err)
		}
		for range 5 {
			if err := add(Cap{ID: "uncapped", Slice: time.Minute}, time.Hour); err != nil {
				t.Errorf("got %v without a cap, want room", err)
			}
		}
		now = now.Add(29 * time.Second)
		wantFull(now.Add(time.Second))
		now = now.Add(time.Second)
		wantRoom(time.Hour)
		wantFull(time.Date(2026, 1, 1, 12, 6, 0, 0, time.UTC))

		// One that ended early leaves its slot, once.
		remove := func(ends time.Time) {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return things.Remove(t.Context(), tx, ends, now) }); err != nil {
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

func TestCapIsExactUnderConcurrency(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		things := Cap{ID: "things", Max: 25, Slice: time.Minute}
		var added atomic.Int64
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for range 5 {
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return things.Add(t.Context(), tx, now.Add(time.Duration(i)*time.Minute+time.Second), now)
					})
					var full *CapReached
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
