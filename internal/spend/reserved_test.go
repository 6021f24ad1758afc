package spend

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestReservedNeverExceedsTheRemainingBudget covers leases under a higher
// limit, which are being released, and free credits, which don't block
// requests.
func TestReservedNeverExceedsTheRemainingBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		b                 balance
		limit, free, want credits.Micro
	}{
		{balance{Settled: 3, Leased: 4}, 10, 1, 3},
		{balance{Settled: 3, Leased: 40}, 10, 0, 7},
		{balance{Settled: 30, Leased: 4}, 10, 0, 0},
		{balance{Settled: 3, Leased: 4}, 10, 5, 0},
	} {
		if got := tt.b.reservedBy(tt.limit, tt.free); got != tt.want {
			t.Errorf("%+v under %d, of which %d are free: %d are reserved", tt.b, tt.limit, tt.free, got)
		}
	}
}

// TestTransferLocksBalancesInLedgerOrder covers a reservation in another order.
// It would hold the workspace's balance while it waits for the key's.
func TestTransferLocksBalancesInLedgerOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return // the embedded database has one writer
		}
		o := newFixture(t, d, 100*credits.Credit)
		key, period := Account{Key, "key_1"}, PeriodOf(o.now)
		r, err := o.cache.Reserve(t.Context(), []Cap{{o.account(), o.workspace.MonthlyCredits}, {key, o.workspace.MonthlyCredits}}, credits.Credit, o.now)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		var busy error
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := lockBalance(t.Context(), tx, accountMonth{key, period}); err != nil {
				return err
			}
			var holder int
			if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&holder); err != nil {
				return err
			}
			go func() {
				ended <- d.Write(t.Context(), func(tx *db.Tx) error {
					r.TransferToJob(tx, "job_1")
					return nil
				})
			}()
			for waits, until := 0, time.Now().Add(time.Minute); waits == 0; {
				if err := d.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", holder).Scan(&waits); err != nil || time.Now().After(until) {
					t.Errorf("nobody waits for the key's line (%v)", err)
					return err
				}
			}
			var settled int64
			busy = d.Write(t.Context(), func(tx *db.Tx) error {
				return tx.QueryRow(t.Context(), "SELECT settled FROM spend WHERE level = $1 AND account_id = $2 AND period = $3 FOR UPDATE NOWAIT",
					string(Workspace), o.workspace.ID, string(period)).Scan(&settled)
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || busy != nil {
			t.Errorf("it holds the workspace's line meanwhile: %v (%v)", busy, err)
		}
		r.Transferred(nil)
		o.even()
	})
}

// TestTransferFailsIfTheLeaseIsTooSmall covers a lease that was partly released
// to others.
func TestTransferFailsIfTheLeaseIsTooSmall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		r := o.reserve(10 * credits.Credit)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE spend_leases SET granted = $1", int64(3*credits.Credit))
			return err
		})
		err := d.Write(t.Context(), func(tx *db.Tx) error { r.TransferToJob(tx, "job_1"); return nil })
		r.Transferred(err)
		if n, sum := o.leases(); err == nil || n != 0 {
			t.Errorf("%s were handed over: %v", sum, err)
		}
	})
}

// TestTokensOfACommitSaturate covers any number of settled requests.
func TestTokensOfACommitSaturate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		list := make([]audit.Settlement, 3)
		for i := range list {
			e, tokens := o.entry(nil, 1), int64(1)<<62
			e.InputTokens, e.OutputTokens = &tokens, &tokens
			list[i].Entry = e
		}
		o.settleEntries(list...)
		if u := o.used("live"); u.Requests != 3 || u.InputTokens != int64(credits.Max) || u.OutputTokens != int64(credits.Max) || u.Credits != 3 {
			t.Errorf("usage is %+v", u)
		}
	})
}
