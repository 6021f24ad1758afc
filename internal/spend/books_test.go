package spend

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// Settle books charges alone, without the entries that they are of.
func (b *Books) Settle(ctx context.Context, tx *db.Tx, charges []charge) error {
	p := newPostings()
	for _, c := range charges {
		p.charge(c)
	}
	return p.write(ctx, tx)
}

// TestClosingLeasesWhileTheyAreSpent: a node that is only slow settles while
// others close what it had. Whoever comes first, the books come out even.
func TestClosingLeasesWhileTheyAreSpent(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		const rounds, calls = 8, 20
		d := dbtest.Open(t, address)
		other := d
		if d.Engine() == "postgres" {
			other = dbtest.Open(t, address)
		}
		books, limit, now := NewBooks(d), 1000*credits.Credit, time.Now()
		for round := range rounds {
			list := []Account{{Workspace, fmt.Sprint("ws", round)}, {Key, fmt.Sprint("key", round)}}
			caps := []Cap{{list[0], &limit}, {list[1], &limit}}
			g := books.Ledger("node_1", func() bool { return true })
			var all sync.WaitGroup
			for i := range calls {
				r, err := g.Reserve(t.Context(), caps, credits.Credit, now)
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						return books.Settle(t.Context(), tx, []charge{r.charge(credits.Credit / 2)})
					})
					if err != nil {
						t.Error(err)
					}
				})
				if i == calls/2 {
					all.Go(func() {
						if err := other.Write(t.Context(), func(tx *db.Tx) error { return Close(t.Context(), tx, "node_1") }); err != nil {
							t.Error(err)
						}
					})
				}
			}
			all.Wait()
			// What was leased after it was closed.
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return Close(t.Context(), tx, "node_1") }); err != nil {
				t.Fatal(err)
			}
			for _, a := range list {
				b, err := Read(t.Context(), d, a, PeriodOf(now))
				if err != nil || b.Spent != calls*credits.Credit/2 || b.Reserved != 0 {
					t.Errorf("round %d: the books of the %s say %+v (%v)", round, a.Level, b, err)
				}
			}
		}
	})
}

// TestASpentLeaseLeavesNoRow, however it came to be spent.
func TestASpentLeaseLeavesNoRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		books, limit := NewBooks(d), credits.Credit
		account := Account{Workspace, "ws"}
		g := books.Ledger("node_1", func() bool { return true })
		r, err := g.Reserve(t.Context(), []Cap{{account, &limit}}, credits.Credit, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			return books.Settle(t.Context(), tx, []charge{r.charge(credits.Credit)})
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Settled(credits.Credit)
		if err := g.Recalled(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM spend_leases").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d leases are left (%v)", n, err)
		}
	})
}
