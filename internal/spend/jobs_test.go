package spend

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// order is a job with a reservation, created by a request in the log.
func (o *fixture) order(amount credits.Micro) JobCharge {
	o.t.Helper()
	group := db.NewGroup(o.d)
	defer group.Stop()
	c, _ := o.orderIn(audit.NewLog(group, o.node, o.settler.Settle), amount)
	return c
}

// orderIn is order with a log. It also returns the record of a node that got no response to the commit.
func (o *fixture) orderIn(log *audit.Log, amount credits.Micro) (JobCharge, *audit.Record) {
	o.t.Helper()
	c := JobCharge{JobID: ids.New(ids.Video), RequestID: ids.New(ids.Request), Tenant: o.workspace.In(accounts.Live), Project: "p", KeyID: "key_1",
		CreatedAt: o.now, Model: "m", Provider: "openai", Reserved: amount, PriceVersion: "1"}
	r := o.reserve(amount)
	entry := audit.Entry{RequestID: c.RequestID, Tenant: o.workspace.In(accounts.Live), KeyID: "key_1",
		Project: "p", CreatedAt: o.now, Method: "POST", Path: "/v1/videos", Model: "m", Reserved: amount}
	stored, unaware := log.Open(entry), log.Open(entry)
	succeed := func(e *audit.Entry) { e.Status = 200 }
	o.write(func(ctx context.Context, tx *db.Tx) error {
		r.TransferToJob(tx, c.JobID)
		return stored.SettleIn(ctx, tx, succeed)
	})
	r.Transferred(nil)
	err := o.d.Write(o.t.Context(), func(tx *db.Tx) error {
		return errors.Join(unaware.SettleIn(o.t.Context(), tx, succeed), db.ErrInDoubt)
	})
	if !errors.Is(err, db.ErrInDoubt) {
		o.t.Fatal(err)
	}
	return c, unaware
}

func (o *fixture) settle(c JobCharge) (charged credits.Micro) {
	o.t.Helper()
	o.write(func(_ context.Context, tx *db.Tx) error {
		charged = o.settler.SettleJob(tx, c)
		return nil
	})
	return charged
}

// leases returns the leases of jobs.
func (o *fixture) leases() (n int, sum credits.Micro) {
	o.t.Helper()
	if err := o.d.QueryRow(o.t.Context(), "SELECT count(*), CAST(coalesce(sum(granted), 0) AS BIGINT) FROM spend_leases WHERE node_id LIKE 'job:%'").Scan(&n, (*int64)(&sum)); err != nil {
		o.t.Fatal(err)
	}
	return n, sum
}

// balance returns the workspace's balance.
func (o *fixture) balance() Balance {
	o.t.Helper()
	b, err := ReadBalance(o.t.Context(), o.d, o.account(), PeriodOf(o.now))
	if err != nil {
		o.t.Fatal(err)
	}
	return b
}

// even checks that the leased total matches the sum of all leases.
func (o *fixture) even() {
	o.t.Helper()
	var off int
	if err := o.d.QueryRow(o.t.Context(), `SELECT count(*) FROM spend s WHERE leased <> (SELECT coalesce(sum(granted), 0) FROM spend_leases l
		WHERE l.level = s.level AND l.account_id = s.account_id AND l.period = s.period)`).Scan(&off); err != nil {
		o.t.Fatal(err)
	}
	if off != 0 {
		o.t.Errorf("%d balances do not match their leases", off)
	}
}

func TestJobIsChargedFromItsLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for name, c := range map[string]struct{ cost, charged, unbilled credits.Micro }{
			"less":    {3 * credits.Credit, 3 * credits.Credit, 0},
			"all":     {10 * credits.Credit, 10 * credits.Credit, 0},
			"nothing": {0, 0, 0},
			"more":    {12 * credits.Credit, 10 * credits.Credit, 2 * credits.Credit},
		} {
			o := newFixture(t, d, 100*credits.Credit)
			job := o.order(10 * credits.Credit)
			if n, sum := o.leases(); n != 1 || sum != 10*credits.Credit {
				t.Errorf("%s: the job has %d leases of %s", name, n, sum)
			}
			o.even()
			job.Cost = c.cost
			if charged := o.settle(job); charged != c.charged {
				t.Errorf("%s: %s were charged", name, charged)
			}
			if n, _ := o.leases(); n != 0 || o.balance().Spent != c.charged {
				t.Errorf("%s: %d leases are left, and %s were charged", name, n, o.balance().Spent)
			}
			o.even()
			if err := o.cache.ReleaseUnused(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if b := o.balance(); b.Reserved != 0 {
				t.Errorf("%s: %s stay reserved", name, b.Reserved)
			}
			if u := o.used("live"); u.Requests != 1 || u.Credits != c.charged {
				t.Errorf("%s: the usage is %+v", name, u)
			}
			var charged, unbilled int64
			if err := d.QueryRow(t.Context(), "SELECT credits, unbilled_credits FROM requests WHERE id = $1", job.RequestID).Scan(&charged, &unbilled); err != nil {
				t.Fatal(err)
			}
			if charged != int64(c.charged) || unbilled != int64(c.unbilled) {
				t.Errorf("%s: the log says %d and %d", name, charged, unbilled)
			}
		}
	})
}

// A client got a 503 because the commit of its job was in doubt, and the job was created after all. The refusal is
// written before or after the end of the job, and once or twice.
func TestJobWhoseCreationWasInDoubtIsCountedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for name, c := range map[string]struct {
			endsFirst bool
			writes    int
			charged   credits.Micro
		}{
			"refused, then ended":       {false, 1, 3 * credits.Credit},
			"refused twice, then ended": {false, 2, 3 * credits.Credit},
			"ended, then refused":       {true, 1, 3 * credits.Credit},
			"ended, then refused twice": {true, 2, 3 * credits.Credit},
		} {
			o := newFixture(t, d, 100*credits.Credit)
			group := db.NewGroup(d)
			t.Cleanup(group.Stop)
			log := audit.NewLog(group, o.node, o.settler.Settle)
			job, record := o.orderIn(log, 10*credits.Credit)
			job.Cost = 3 * credits.Credit
			if c.endsFirst {
				o.settle(job)
			}
			refused := func(e *audit.Entry) { e.Status, e.ErrorCode = 503, string(fault.StorageUnavailable) }
			for _, write := range []func(func(*audit.Entry)){record.Settle, record.Refuse}[:c.writes] {
				write(refused)
				if err := record.Settled(time.Minute); err != nil {
					t.Fatal(err)
				}
				if u := o.used("live"); !c.endsFirst && (u.Requests != 1 || u.Errors != 1 || u.Credits != 0) {
					t.Errorf("%s: got usage %+v after the refusal, want one failed request", name, u)
				}
			}
			if !c.endsFirst {
				o.settle(job)
			}
			errors := int64(1)
			if c.endsFirst {
				errors = 0
			}
			if u := o.used("live"); u.Requests != 1 || u.Errors != errors || u.Credits != c.charged {
				t.Errorf("%s: got usage %+v, want one request as in the log", name, u)
			}
			if b := o.balance(); b.Spent != c.charged {
				t.Errorf("%s: got %s spent, want %s", name, b.Spent, c.charged)
			}
			if n, _ := o.leases(); n != 0 {
				t.Errorf("%s: %d leases are left", name, n)
			}
			o.even()
		}
	})
}

// TestEvictionOfANodeEndsNoJob checks that a job keeps the lease that was
// transferred to it.
func TestEvictionOfANodeEndsNoJob(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		job := o.order(10 * credits.Credit)
		o.reserve(credits.Credit) // belongs to the node itself
		evict(t, d, o.node)
		if err := o.settler.CloseEvicted(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := o.balance(), (Balance{Reserved: 10 * credits.Credit}); got != want {
			t.Errorf("after the eviction: got %+v, want %+v", got, want)
		}
		o.even()
		job.Cost = 4 * credits.Credit
		o.settle(job)
		if got, want := o.balance(), (Balance{Spent: 4 * credits.Credit}); got != want {
			t.Errorf("after the job: got %+v, want %+v", got, want)
		}
	})
}

// TestFailedTransferReleasesTheReservation also covers a commit in doubt. Then
// the node counts the credits as gone, and the ledger corrects it when the
// lease is idle.
func TestFailedTransferReleasesTheReservation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for name, c := range map[string]struct {
			commits bool
			err     error
			left    credits.Micro // the job's lease
		}{
			"refused":                     {false, errors.New("refused"), 0},
			"in doubt, and was committed": {true, db.ErrInDoubt, 10 * credits.Credit},
			"in doubt, and was not":       {false, db.ErrInDoubt, 0},
		} {
			o := newFixture(t, d, 20*credits.Credit)
			r := o.reserve(10 * credits.Credit)
			back := errors.New("rolled back")
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				r.TransferToJob(tx, ids.New(ids.Video))
				if c.commits {
					return nil
				}
				return back
			})
			if err != nil && !errors.Is(err, back) {
				t.Fatal(err)
			}
			r.Transferred(c.err)
			if err := o.cache.ReleaseUnused(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if b := o.balance(); b.Reserved != c.left || b.Spent != 0 {
				t.Errorf("%s: the ledger says %+v", name, b)
			}
			o.even()
			// Everything else can be reserved.
			o.reserve(20*credits.Credit - c.left).Release()
		}
	})
}

// TestJobIsChargedInItsMonth checks the charge against every budget that
// applied.
func TestJobIsChargedInItsMonth(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		limit := 50 * credits.Credit
		var caps []Cap
		for _, a := range o.accounts() {
			caps = append(caps, Cap{Account: a, Limit: &limit})
		}
		r, err := o.cache.Reserve(t.Context(), caps, 10*credits.Credit, o.now)
		if err != nil {
			t.Fatal(err)
		}
		c := JobCharge{JobID: "job_1", RequestID: "gone", Tenant: o.workspace.In(accounts.Live), Project: "p", KeyID: "key_1", CreatedAt: o.now,
			Reserved: 10 * credits.Credit, Cost: 7 * credits.Credit}
		o.write(func(_ context.Context, tx *db.Tx) error { r.TransferToJob(tx, c.JobID); return nil })
		r.Transferred(nil)
		if n, sum := o.leases(); n != 3 || sum != 30*credits.Credit {
			t.Errorf("the job has %d leases of %s", n, sum)
		}
		month := PeriodOf(o.now)
		o.now = o.now.AddDate(0, 1, 1)
		if charged := o.settle(c); charged != 7*credits.Credit { // the log no longer has the request
			t.Errorf("%s were charged", charged)
		}
		if err := o.cache.ReleaseUnused(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for _, a := range o.accounts() {
			old, err := ReadBalance(t.Context(), d, a, month)
			if err != nil || old != (Balance{Spent: 7 * credits.Credit}) {
				t.Errorf("%s: the old month says %+v, %v", a.Level, old, err)
			}
			if now, err := ReadBalance(t.Context(), d, a, PeriodOf(o.now)); err != nil || now != (Balance{}) {
				t.Errorf("%s: the new month says %+v, %v", a.Level, now, err)
			}
		}
		o.even()
	})
}

func TestTestJobCountsAsUsageOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 0)
		if charged := o.settle(JobCharge{JobID: "job_1", RequestID: "none", Tenant: o.workspace.In(accounts.Test), KeyID: "key_1", CreatedAt: o.now, Cost: credits.Credit}); charged != 0 {
			t.Errorf("%s were charged", charged)
		}
		if o.balance() != (Balance{}) {
			t.Errorf("the ledger says %+v", o.balance())
		}
		if n := o.alerts(); n != 0 {
			t.Errorf("%d alerts", n)
		}
	})
}

func (o *fixture) alerts() (n int) {
	o.t.Helper()
	if err := o.d.QueryRow(o.t.Context(), "SELECT count(*) FROM events WHERE type = $1", string(events.BillingCreditsLow)).Scan(&n); err != nil {
		o.t.Fatal(err)
	}
	return n
}
