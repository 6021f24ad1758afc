package spend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
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
					if err := node.AssertAlive(tx); err != nil {
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
					if err := NewSettler(NewLedger(other), events.NewPublisher(time.Now), time.Now).CloseEvicted(t.Context()); err != nil {
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

func TestBalancesOfPastWindowsArePurged(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 3, 10, 12, 0, 0, 0, time.UTC)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		write := func(fn func(tx *db.Tx) error) {
			t.Helper()
			if err := d.Write(t.Context(), fn); err != nil {
				t.Fatal(err)
			}
		}
		user := Account{EndUser, "eu_1"}
		kept := []accountPeriod{{user, "2027-03-10"}, {user, "2027-01-07"}, {user, "2027-W10"}, {user, "2027-W01"}, {user, "2027-03"}, {user, "2027-01"}, {user, lifetime},
			{Account{Workspace, "ws_1"}, "2020-01"}, {Account{Key, "key_leased"}, "2026-01"}}
		purged := []accountPeriod{{user, "2026-12-31"}, {user, "2026-02-01"}, {user, "2026-W52"}, {user, "2026-W09"}, {user, "2026-12"}, {Account{Key, "key_1"}, "2026-11"}, {Account{KeyLimit, "key_1/limit_1"}, "2025-W50"}}
		write(func(tx *db.Tx) error {
			p := newPostings()
			for _, key := range append(slices.Clone(kept), purged...) {
				p.at(key).Settled = credits.Credit
			}
			*p.at(accountPeriod{Account{Key, "key_leased"}, "2026-01"}) = posting{balance: balance{Leased: 1}} // by a job
			return p.writeBalances(t.Context(), tx)
		})
		for _, want := range []int64{4, 3, 0} {
			write(func(tx *db.Tx) error {
				if n, err := PurgeBalances(t.Context(), tx, now, 4); err != nil || n != want {
					t.Errorf("got %d deleted (%v), want %d", n, err, want)
				}
				return nil
			})
		}
		left, err := db.List(t.Context(), d, func(r db.Row) (key accountPeriod, err error) {
			err = db.Scan(r, &key.Level, &key.ID, &key.Period)
			return key, err
		}, "SELECT level, account_id, period FROM spend")
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(left, compare)
		slices.SortFunc(kept, compare)
		if !slices.Equal(left, kept) {
			t.Errorf("got %v, want %v", left, kept)
		}
	})
}
