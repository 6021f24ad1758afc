package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// forgetful opens a database of each engine that loses the responses to commits of groups while
// lose is above 0, and counts it down.
func forgetful(t *testing.T, fn func(t *testing.T, d *db.DB, lose *atomic.Int64)) {
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			var lose atomic.Int64
			d, err := db.Open(db.LoseResponses(t.Context(), func([]string) bool { return lose.Add(-1) >= 0 }), dbtest.Address(t, engine))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			scratch(t, d)
			fn(t, d, &lose)
		})
	}
}

// addRows counts how often each item is written.
func addRows(ctx context.Context, tx *db.Tx, items []string) error {
	for _, id := range items {
		if _, err := tx.Exec(ctx, "INSERT INTO scratch (id, n) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = scratch.n + 1", id); err != nil {
			return err
		}
	}
	return nil
}

func wantRows(t *testing.T, d *db.DB, n, sum int) {
	t.Helper()
	var gotN, gotSum int
	if err := d.QueryRow(t.Context(), "SELECT count(*), COALESCE(sum(n), 0) FROM scratch").Scan(&gotN, &gotSum); err != nil || gotN != n || gotSum != sum {
		t.Errorf("%d items were written %d times (%v), want %d and %d", gotN, gotSum, err, n, sum)
	}
}

// TestCommitWithoutResponseIsNotRepeated: the writer doesn't recognize what it has written. Whoever waits learns
// of the commit that happened, and what follows it runs once. (B1, B2)
func TestCommitWithoutResponseIsNotRepeated(t *testing.T) {
	t.Parallel()
	forgetful(t, func(t *testing.T, d *db.DB, lose *atomic.Int64) {
		g := db.NewGroup(d)
		defer g.Stop()
		var followed atomic.Int64
		q := db.NewQueue(g, true, func(ctx context.Context, tx *db.Tx, items []string) error {
			tx.OnCommit(func() { followed.Add(int64(len(items))) })
			return addRows(ctx, tx, items)
		})
		failing := db.NewQueue(g, false, addRows)
		for round := range 3 {
			lose.Store(1)
			a, b := q.Add(fmt.Sprint("a", round)), q.Add(fmt.Sprint("b", round))
			if err := errors.Join(a.WaitFor(time.Minute), b.WaitFor(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		if err := failing.Add("later").WaitFor(time.Minute); err != nil {
			t.Fatal(err)
		}
		wantRows(t, d, 7, 7)
		if n := followed.Load(); n != 6 {
			t.Errorf("what follows the commit ran for %d items, want 6", n)
		}
	})
}

// TestCommitInDoubtThatDidNotHappenIsRepeated: the transaction was rolled back, although its commit got no response.
func TestCommitInDoubtThatDidNotHappenIsRepeated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		defer g.Stop()
		var tries atomic.Int64
		q := db.NewQueue(g, true, func(ctx context.Context, tx *db.Tx, items []string) error {
			err := addRows(ctx, tx, items)
			if tries.Add(1) <= 2 {
				err = fmt.Errorf("%w: %w", db.ErrInDoubt, db.ErrUnavailable)
			}
			return err
		})
		if err := q.Add("a").WaitFor(time.Minute); err != nil {
			t.Fatal(err)
		}
		wantRows(t, d, 1, 1)
		if n := tries.Load(); n != 3 {
			t.Errorf("written %d times, want 3", n)
		}
	})
}

// TestIsolatedItemsInDoubtAreWrittenOnce: after a rejected item, each one has a commit of its own.
func TestIsolatedItemsInDoubtAreWrittenOnce(t *testing.T) {
	t.Parallel()
	forgetful(t, func(t *testing.T, d *db.DB, lose *atomic.Int64) {
		g := db.NewGroup(d)
		defer g.Stop()
		hold := make(chan struct{})
		q := db.NewQueue(g, true, func(ctx context.Context, tx *db.Tx, items []string) error {
			<-hold
			if len(items) > 1 {
				return errors.New("not together")
			}
			return addRows(ctx, tx, items)
		})
		var pending []*db.Pending
		for i := range 6 {
			pending = append(pending, q.Add(fmt.Sprint(i)))
		}
		lose.Store(3)
		close(hold)
		for _, p := range pending {
			if err := p.WaitFor(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		wantRows(t, d, 6, 6)
	})
}

// parkedItems reads the metric.
func parkedItems(t *testing.T, d *db.DB) float64 {
	t.Helper()
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(d)
	found, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.GetName() == "turnpike_commit_parked" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric; got %d with %v", testutil.CollectAndCount(d), found)
	return 0
}

// TestRejectedResultWaitsApartFromOthers: others are written, and it is once its cause is fixed, also if that commit gets
// no response.
func TestRejectedResultWaitsApartFromOthers(t *testing.T) {
	t.Parallel()
	forgetful(t, func(t *testing.T, d *db.DB, lose *atomic.Int64) {
		g := db.NewGroup(d).Named("group")
		defer g.Stop()
		var broken atomic.Bool
		broken.Store(true)
		rejected := make(chan struct{}, 100)
		q := db.NewQueue(g, true, func(ctx context.Context, tx *db.Tx, items []string) error {
			for _, item := range items {
				if item == "poison" && broken.Load() {
					rejected <- struct{}{}
					return errors.New("permission denied")
				}
			}
			return addRows(ctx, tx, items)
		}).Identify("results", func(item string) string { return item })
		poison := q.Add("poison")
		<-rejected
		for i := range 20 {
			if err := q.Add(fmt.Sprint(i)).WaitFor(time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if n := parkedItems(t, d); n != 1 || poison.Ended() {
			t.Errorf("%v items are parked, and the rejected one ended: %t; want that it waits", n, poison.Ended())
		}
		lose.Store(1)
		broken.Store(false)
		if err := poison.WaitFor(time.Minute); err != nil {
			t.Error(err)
		}
		wantRows(t, d, 21, 21)
		if n := parkedItems(t, d); n != 0 {
			t.Errorf("%v items are parked after the cause was fixed", n)
		}
	})
}

// TestShutdownGivesUpRejectedResults: whoever waits for one learns of it, so no one holds up the shutdown.
func TestShutdownGivesUpRejectedResults(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := db.NewGroup(d)
		rejects := errors.New("permission denied")
		rejected := make(chan struct{}, 100)
		q := db.NewQueue(g, true, func(context.Context, *db.Tx, []string) error {
			rejected <- struct{}{}
			return rejects
		})
		before := q.Add("before")
		<-rejected
		d.GiveUpParked()
		if err := before.WaitFor(time.Minute); !errors.Is(err, rejects) {
			t.Errorf("got %v, want the rejection", err)
		}
		if err := q.Add("during").WaitFor(time.Minute); !errors.Is(err, rejects) {
			t.Errorf("got %v, want the rejection", err)
		}
		g.Stop()
	})
}
