package spend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
)

// Settle posts ledger charges without log entries.
func (b *Ledger) Settle(ctx context.Context, tx *db.Tx, charges []charge) error {
	p := newPostings()
	for _, c := range charges {
		p.charge(c)
	}
	return p.write(ctx, tx)
}

// TestEvictionDuringSettlementsKeepsTheLedgerExact evicts a node while it
// settles. Each charge is either in the ledger or failed, and no lease is left.
func TestEvictionDuringSettlementsKeepsTheLedgerExact(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	const rounds, calls = 8, 20
	d, other := dbtest.Open(t, address), dbtest.Open(t, address)
	ledger, limit, now := NewLedger(d), 1000*credits.Credit, time.Now()
	for round := range rounds {
		list := []Account{{Workspace, fmt.Sprint("ws", round)}, {Key, fmt.Sprint("key", round)}}
		caps := []Cap{{Account: list[0], Limit: &limit}, {Account: list[1], Limit: &limit}}
		node := join(t, d)
		g := ledger.LeaseCache(node)
		var charged atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			r, err := g.Reserve(t.Context(), caps, credits.Credit, now)
			if errors.Is(err, nodes.ErrEvicted) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					if err := node.AssertAlive(t.Context(), tx); err != nil {
						return err
					}
					return ledger.Settle(t.Context(), tx, []charge{r.charge(credits.Credit / 2)})
				})
				switch {
				case err == nil:
					charged.Add(int64(credits.Credit / 2))
				case !errors.Is(err, nodes.ErrEvicted):
					t.Error(err)
				}
			})
			if i == calls/2 {
				all.Go(func() {
					evict(t, other, node)
					if err := NewLedger(other).CloseEvicted(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		for _, a := range list {
			got, err := ReadBalance(t.Context(), d, a, PeriodOf(now))
			if want := (Balance{Spent: credits.Micro(charged.Load())}); err != nil || got != want {
				t.Errorf("round %d: %s got %+v (%v), want %+v", round, a.Level, got, err, want)
			}
		}
	}
}

// TestSpentLeaseLeavesNoRow covers every way to spend a lease.
func TestSpentLeaseLeavesNoRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ledger, limit := NewLedger(d), credits.Credit
		account := Account{Workspace, "ws"}
		g := ledger.LeaseCache(join(t, d))
		r, err := g.Reserve(t.Context(), []Cap{{Account: account, Limit: &limit}}, credits.Credit, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			return ledger.Settle(t.Context(), tx, []charge{r.charge(credits.Credit)})
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Settled(credits.Credit)
		if err := g.ReleaseUnused(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM spend_leases").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d leases are left (%v)", n, err)
		}
	})
}
