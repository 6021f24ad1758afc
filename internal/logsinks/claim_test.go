package logsinks

import (
	"errors"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

func TestWorkerThatLostItsClaimStoresNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		first, second := newServer(t, d, to), newServer(t, d, to)
		first.start(second)
		first.settle(first.open())
		first.raise()
		second.raise()
		lost := first.worker()
		w := second.worker()
		if err := lost.drain(t.Context()); !errors.Is(err, nodes.ErrClaimLost) {
			t.Errorf("got %v, want ErrClaimLost", err)
		}
		second.check(w.drain(t.Context()))
		if len(to.batches) != 2 {
			t.Errorf("got batches %v, want the entry again by the second node", to.batches)
		}
	})
}

// TestEvictedWorkerStoresUntilAnotherNodeTakesOver shows that the claim alone protects the position: the next worker
// continues after the last batch of an evicted node.
func TestEvictedWorkerStoresUntilAnotherNodeTakesOver(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		first, second := newServer(t, d, to), newServer(t, d, to)
		first.start(second)
		first.settle(first.open())
		first.raise()
		second.raise()
		evicted := first.worker()
		first.check(first.node.Leave(t.Context())) // has the same effect as an eviction
		first.check(evicted.drain(t.Context()))
		w := &worker{Sink: second.sink, sender: to, claim: &nodes.Claim{DB: d, Row: evicted.claim.Row, Node: second.node.ID, Now: time.Now}}
		if taken, err := w.claim.Take(t.Context()); err != nil || !taken {
			t.Fatalf("got no claim (%v), although its node is gone", err)
		}
		if err := evicted.store(t.Context(), evicted.position, 0, func(*db.Tx) error { return nil }); !errors.Is(err, nodes.ErrClaimLost) {
			t.Errorf("got %v, want ErrClaimLost", err)
		}
		position, err := w.register(t.Context())
		second.check(err)
		w.position = position
		second.check(w.drain(t.Context()))
		if position != evicted.position || len(to.batches) != 1 {
			t.Errorf("got position %s and batches %v, want %s and the entry once", position, to.batches, evicted.position)
		}
	})
}
