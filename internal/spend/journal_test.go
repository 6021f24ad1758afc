package spend

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

func (o *fixture) journaled() (n int64) {
	o.t.Helper()
	if err := o.d.QueryRow(o.t.Context(), "SELECT count(*) FROM spend_journal WHERE node_id = $1", o.node.ID).Scan(&n); err != nil {
		o.t.Fatal(err)
	}
	return n
}

// TestChargesOfADeadNodeArePostedOnce: they come out of its leases, and two nodes may recover it at the same time.
func TestChargesOfADeadNodeArePostedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		for range 3 {
			o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 4*credits.Credit)})
		}
		free := *o.entry(nil, 0)
		free.Environment = "test"
		o.settleEntries(audit.Settlement{Entry: &free})
		if got := o.balance(); got.Spent != 0 || got.Reserved < 12*credits.Credit {
			t.Errorf("before the charges are posted: got %+v, want them to be reserved", got)
		}
		if n := o.journaled(); n != 4 {
			t.Errorf("the journal has %d rows, want one per commit", n)
		}
		evict(t, d, o.node)
		by := []*fixture{newFixture(t, d, 0), newFixture(t, d, 0)}
		done := make(chan error, len(by))
		for _, other := range by {
			go func() { done <- other.settler.CloseEvicted(context.WithoutCancel(t.Context())) }()
		}
		for range by {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got, want := o.balance(), (Balance{Spent: 12 * credits.Credit}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got := o.used("live"); got.Requests != 3 || got.Credits != 12*credits.Credit {
			t.Errorf("got live usage %+v, want 3 requests and 12 credits", got)
		}
		if got := o.used("test"); got.Requests != 1 {
			t.Errorf("got test usage %+v, want 1 request", got)
		}
		if n := o.journaled(); n != 0 {
			t.Errorf("the journal still has %d rows", n)
		}
	})
}

// TestLeasesOfADeadNodeCoverItsChargesUntilAllArePosted: another node posts the first part of the same journal.
func TestLeasesOfADeadNodeCoverItsChargesUntilAllArePosted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 10_000*credits.Credit)
		const commits = maxPosted + 1
		r := o.reserve(commits * credits.Credit)
		charges := newTotals()
		charges.charge(r.charge(credits.Credit))
		o.write(func(ctx context.Context, tx *db.Tx) error {
			for range commits {
				if err := o.settler.journal.write(tx, charges); err != nil {
					return err
				}
			}
			return nil
		})
		evict(t, d, o.node)
		first, second := newFixture(t, d, 0), newFixture(t, d, 0)
		closed := make(chan error, 1)
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, more, err := first.settler.postJournal(ctx, tx, journalOf{node: o.node.ID, limit: maxPosted})
			if err != nil || !more {
				return fmt.Errorf("the journal is posted in one part (%v)", err)
			}
			go func() { closed <- second.settler.closeEvicted(context.WithoutCancel(ctx), o.node.ID) }()
			dbtest.AwaitBlocked(t, d, tx)
			return nil
		})
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if n := o.journaled(); n != 0 {
			t.Errorf("the leases are closed, and %d rows of the journal aren't posted", n)
		}
		if got, want := o.balance(), (Balance{Spent: commits * credits.Credit}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestPostInDoubtIsNotRepeated: the database has posted the charges, and the node doesn't know.
func TestPostInDoubtIsNotRepeated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 10*credits.Credit)})
		o.post()
		o.settler.journal.last = 0
		o.settler.journal.dirty.Store(true)
		o.expect(10 * credits.Credit)
	})
}

// TestLateCommitIsPosted: its result was in doubt, and later rows were posted before it.
func TestLateCommitIsPosted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		for range 2 {
			o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 10*credits.Credit)})
			o.post()
		}
		late := newTotals()
		for _, a := range o.accounts() {
			late.at(accountPeriod{a, PeriodOf(o.now)}).Settled = 4 * credits.Credit
		}
		body, err := json.Marshal(late.row())
		if err != nil {
			t.Fatal(err)
		}
		o.write(func(ctx context.Context, tx *db.Tx) error {
			return tx.Send(nil, insertJournal, o.node.ID, int64(1), string(body))
		})
		o.settler.journal.dirty.Store(true)
		o.expect(24 * credits.Credit)
	})
}

// TestChargesWithoutALeaseArePosted: a node of an older version has closed the leases and left the journal.
func TestChargesWithoutALeaseArePosted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 4*credits.Credit)})
		evict(t, d, o.node)
		o.write(func(ctx context.Context, tx *db.Tx) error { return closeLeases(ctx, tx, o.node.ID) })
		if err := newFixture(t, d, 0).settler.CloseEvicted(t.Context()); err != nil {
			t.Error(err)
		}
		if got, want := o.balance(), (Balance{Spent: 4 * credits.Credit}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestChargesArePostedWithoutWhatFails: neither the same charges nor those of others may wait forever.
func TestChargesArePostedWithoutWhatFails(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]string{
		"a lease that doesn't cover a charge": "UPDATE spend_leases SET granted = 1 WHERE level = 'workspace' AND account_id = $1",
		"a budget that can't be read":         "UPDATE workspaces SET alert_thresholds = '{' WHERE id = $1",
	} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dead=%v", name, dead), func(t *testing.T) {
				t.Parallel()
				dbtest.Each(t, func(t *testing.T, d *db.DB) {
					o := newFixture(t, d, 100*credits.Credit)
					for range 3 {
						o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 4*credits.Credit)})
					}
					o.write(func(ctx context.Context, tx *db.Tx) error {
						_, err := tx.Exec(ctx, breakIt, o.workspace.ID)
						return err
					})
					post := o.settler.Post
					if dead {
						evict(t, d, o.node)
						post = newFixture(t, d, 0).settler.CloseEvicted
					}
					if err := post(t.Context()); err != nil {
						t.Error(err)
					}
					if got := o.balance(); got.Spent != 12*credits.Credit || o.journaled() != 0 {
						t.Errorf("got %+v and %d rows in the journal, want 12 credits spent and none", got, o.journaled())
					}
				})
			})
		}
	}
}

// TestUnreadableChargesKeepTheirLease: their amount isn't known, so the credits stay leased, and others are posted.
func TestUnreadableChargesKeepTheirLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		for range 3 {
			o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 4*credits.Credit)})
		}
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE spend_journal SET postings = '{' WHERE node_id = $1 AND seq = 2", o.node.ID)
			return err
		})
		check := func(err error) {
			t.Helper()
			if got := o.balance(); err == nil || got.Spent != 8*credits.Credit || got.Reserved < 4*credits.Credit || o.journaled() != 1 {
				t.Errorf("got %v, %+v and %d rows in the journal, want an error, 8 credits spent, 4 leased and 1 row", err, got, o.journaled())
			}
		}
		check(o.settler.Post(t.Context()))
		check(o.cache.ReleaseUnused(t.Context(), ""))
		evict(t, d, o.node)
		check(newFixture(t, d, 0).settler.CloseEvicted(t.Context()))
	})
}

// TestRefusalKnowsWhatIsCharged: a charge that isn't posted counts as spent and not as reserved, so the request doesn't wait for
// other nodes and isn't told to retry.
func TestRefusalKnowsWhatIsCharged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 10*credits.Credit)
		o.cache.alone, o.cache.reclaimTimeout = false, time.Hour
		o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(10*credits.Credit), 10*credits.Credit)})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := o.cache.Reserve(ctx, []Cap{{Account: o.account(), Limit: o.workspace.MonthlyCredits}}, credits.Credit, o.now)
		r, refused := err.(*Refusal)
		if !refused || r.Transient || r.Spent != 10*credits.Credit {
			t.Errorf("got %v, want a final refusal with 10 credits spent", err)
		}
	})
}

// Whoever reads spending sees requests that have ended, also while their entries wait to share a commit.
func TestPostIncludesEntriesThatWaitForACommit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		group := db.NewGroup(d)
		defer group.Stop()
		log := audit.NewLog(group, o.node, o.settler.Settle)
		o.settler.FlushWith(log)
		e := *o.entry(o.reserve(10*credits.Credit), 3*credits.Credit)
		e.Settled = false
		r := log.Open(e)
		if err := r.Durable(time.Minute); err != nil {
			t.Fatal(err)
		}
		r.Settle(func(e *audit.Entry) { e.Latency = time.Hour })
		o.expect(3 * credits.Credit)
	})
}

// The charges of many end users are posted in several transactions, so that none holds SQLite's writer for long.
func TestLargeJournalIsPostedInParts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		const commits, users = 5, 1000
		charges := newTotals()
		for i := range users {
			charges.at(accountPeriod{Account{EndUser, fmt.Sprintf("user_%026d", i)}, PeriodOf(o.now)}).Settled = credits.Credit
		}
		for range commits {
			o.write(func(_ context.Context, tx *db.Tx) error { return o.settler.journal.write(tx, charges) })
		}
		var last int64
		var more bool
		o.write(func(ctx context.Context, tx *db.Tx) (err error) {
			last, more, err = o.settler.postJournal(ctx, tx, journalOf{node: o.node.ID, limit: maxPosted, alive: true})
			return err
		})
		if last == 0 || last == commits || !more {
			t.Errorf("one transaction posted %d of %d commits, and reports more: %v", last, commits, more)
		}
		o.post()
		spent, err := db.Value[int64](d.QueryRow(t.Context(), "SELECT CAST(sum(settled) AS BIGINT) FROM spend"))
		if err != nil || spent != int64(commits*users*credits.Credit) || o.journaled() != 0 {
			t.Errorf("%d is posted and %d rows are left (%v)", spent, o.journaled(), err)
		}
	})
}
