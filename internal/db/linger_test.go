package db_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// lingering is a queue whose writes would take an hour by themselves.
func lingering(g *db.Group, commits *atomic.Int64) *db.Queue[string] {
	bulk := db.NewBulk("scratch", "", "id text")
	return db.NewQueue(g, false, func(ctx context.Context, tx *db.Tx, items []string) error {
		commits.Add(1)
		rows := make([][]any, len(items))
		for i, id := range items {
			rows[i] = []any{id}
		}
		return bulk.Send(ctx, tx, rows, nil)
	}).Linger(time.Hour)
}

// TestWhoeverWaitsEndsTheLinger of all that waits, by either way to wait.
func TestWhoeverWaitsEndsTheLinger(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		defer g.Stop()
		var commits atomic.Int64
		q := lingering(g, &commits)
		for round, wait := range []func(*db.Pending) error{
			func(p *db.Pending) error { return p.WaitFor(10 * time.Second) },
			func(p *db.Pending) error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				return p.Wait(ctx)
			},
		} {
			var all []*db.Pending
			for i := range 10 {
				all = append(all, q.Add(fmt.Sprint(round, " ", i)))
			}
			if n := commits.Load(); n != int64(round) {
				t.Errorf("round %d: %d commits before anybody waited", round, n)
			}
			if err := wait(all[0]); err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				if err := wait(p); err != nil {
					t.Error(err)
				}
			}
			if n := commits.Load(); n != int64(round+1) {
				t.Errorf("round %d: %d commits in all, want %d", round, n, round+1)
			}
		}
	})
}

// TestFlushWritesWhatLingers, and returns at once if nothing does or the database can't be reached.
func TestFlushWritesWhatLingers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		defer g.Stop()
		var commits atomic.Int64
		q := lingering(g, &commits)
		q.Flush(t.Context())
		for i := range 3 {
			q.Add(fmt.Sprint(i))
		}
		q.Flush(t.Context())
		q.Flush(t.Context())
		if n := count(t, d); n != 3 || commits.Load() != 1 {
			t.Errorf("%d rows in %d commits, want 3 in 1", n, commits.Load())
		}
		out := db.NewQueue(g, true, func(context.Context, *db.Tx, []int) error { return db.ErrUnavailable }).Linger(time.Hour)
		out.Add(1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for !out.Degraded() {
			out.Flush(ended)
		}
		out.Flush(t.Context())
	})
}

// TestWhatLingersGoesWithOthers, and with the group's end.
func TestWhatLingersGoesWithOthers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		var commits atomic.Int64
		q := lingering(g, &commits)
		other := db.NewQueue(g, false, func(context.Context, *db.Tx, []int) error { return nil })
		q.Add("first")
		if err := other.Add(1).WaitFor(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if n := count(t, d); n != 1 {
			t.Errorf("%d rows are there after another's commit", n)
		}
		q.Add("last")
		g.Stop()
		if n := count(t, d); n != 2 {
			t.Errorf("%d rows are there after Stop", n)
		}
	})
}

// TestTheShortestLingerCounts for all that waits.
func TestTheShortestLingerCounts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		defer g.Stop()
		q := lingering(g, new(atomic.Int64))
		q.Add("for an hour")
		q.AddFor("for a moment", time.Millisecond)
		for end := time.Now().Add(10 * time.Second); count(t, d) < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d rows are there", count(t, d))
			}
		}
	})
}
