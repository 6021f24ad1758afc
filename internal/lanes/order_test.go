package lanes_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// TestTransactionsOfSeveralStepsDoNotWaitForEachOther: each puts work into the
// same two lanes, in the order of its own steps.
func TestTransactionsOfSeveralStepsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			t.Skip("one transaction at a time")
		}
		enqueue := func(tx *db.Tx, id string) {
			_ = lanes.Enqueue(t.Context(), tx, queue, map[string]time.Time{id: time.Now()})
		}
		write(t, d, func(tx *db.Tx) error {
			enqueue(tx, "a")
			enqueue(tx, "b")
			return nil
		})
		var runs atomic.Int64
		var halfway, both sync.WaitGroup
		halfway.Add(2)
		for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
			first := sync.OnceFunc(halfway.Done)
			both.Go(func() {
				write(t, d, func(tx *db.Tx) error {
					runs.Add(1)
					enqueue(tx, order[0])
					first()
					halfway.Wait()
					enqueue(tx, order[1])
					return nil
				})
			})
		}
		both.Wait()
		if n := runs.Load(); n != 2 {
			t.Errorf("2 transactions took %d runs", n)
		}
		for _, id := range []string{"a", "b"} {
			var seq int64
			if err := d.QueryRow(t.Context(), "SELECT seq FROM lanes WHERE queue = $1 AND id = $2", queue, id).Scan(&seq); err != nil || seq != 3 {
				t.Errorf("seq of %s is %d (%v)", id, seq, err)
			}
		}
	})
}
