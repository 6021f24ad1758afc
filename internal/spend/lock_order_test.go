package spend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSettlementsOfManyKeysNeverDeadlock runs concurrent transactions that
// charge requests of some keys and jobs of others, in different orders. None of
// them may fail and retry.
func TestSettlementsOfManyKeysNeverDeadlock(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100_000*credits.Credit)
		const writers, rounds, keys = 4, 12, 5
		jobs := make([]JobCharge, writers*rounds)
		for i := range jobs {
			jobs[i] = o.order(credits.Credit)
			jobs[i].Cost, jobs[i].KeyID, jobs[i].Model = credits.Credit, fmt.Sprintf("key_%d", i%keys), fmt.Sprintf("m%d", i%3)
		}
		var attempts atomic.Int64
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range rounds {
					n := w*rounds + i
					call := func(key int) []audit.Settlement {
						e := o.entry(nil, credits.Credit)
						e.KeyID, e.Model = fmt.Sprintf("key_%d", key%keys), fmt.Sprintf("m%d", key%3)
						return []audit.Settlement{{Entry: e}}
					}
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						attempts.Add(1)
						if err := o.settler.Settle(t.Context(), tx, call(n)); err != nil {
							return err
						}
						o.settler.SettleJob(tx, jobs[n])
						return o.settler.Settle(t.Context(), tx, call(n+w+1))
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := attempts.Load(); n != writers*rounds {
			t.Errorf("%d transactions were begun %d times", writers*rounds, n)
		}
		if b := o.balance(); b.Spent != 3*writers*rounds*credits.Credit {
			t.Errorf("%s are spent", b.Spent)
		}
		if n, _ := o.leases(); n != 0 {
			t.Errorf("%d leases of jobs are left", n)
		}
		o.even()
		if u := o.used("live"); u.Requests != 3*writers*rounds || u.Credits != 3*writers*rounds*credits.Credit {
			t.Errorf("usage is %+v", u)
		}
	})
}

// TestTransferNeverDeadlocksWithSettlements checks that both lock the ledger
// last.
func TestTransferNeverDeadlocksWithSettlements(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 1000*credits.Credit)
		held := o.reserve(credits.Credit)
		r := o.reserve(credits.Credit)
		var attempts atomic.Int64
		touch := func(ctx context.Context, tx *db.Tx) error {
			attempts.Add(1)
			_, err := tx.Exec(ctx, "UPDATE workspaces SET name = name WHERE id = $1", o.workspace.ID)
			return err
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				o.write(func(ctx context.Context, tx *db.Tx) error {
					if err := o.settler.Settle(ctx, tx, []audit.Settlement{{Entry: o.entry(nil, credits.Credit)}}); err != nil {
						return err
					}
					return touch(ctx, tx)
				})
			})
		}
		all.Go(func() {
			o.write(func(ctx context.Context, tx *db.Tx) error {
				if err := touch(ctx, tx); err != nil {
					return err
				}
				r.TransferToJob(tx, "job_1")
				return nil
			})
		})
		all.Wait()
		r.Transferred(nil)
		held.Release()
		if n := attempts.Load(); n != 9 {
			t.Errorf("9 transactions were begun %d times", n)
		}
		o.even()
	})
}
