package spend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// A job outlives its request and perhaps its node, so its credits are leased to
// the job itself. Evicting a node doesn't end such a lease.

func jobOwner(jobID string) string { return jobPrefix + jobID }

// The owners of all jobs sort between these two.
const jobPrefix, afterJobs = "job:", "job;"

// TransferToJob moves a reservation's credits to a job, at the end of the
// transaction that creates the job. Transferred then ends the reservation.
func (r *Reservation) TransferToJob(tx *db.Tx, jobID string) {
	if r.Amount == 0 {
		return
	}
	for _, h := range r.holds {
		if h.lease != nil {
			transfers.Add(tx, transfer{h, r.cache, jobOwner(jobID), r.Amount})
		}
	}
}

// transfer moves a part of a node's lease to a job.
type transfer struct {
	hold
	from   *LeaseCache
	to     string
	amount credits.Micro
}

// transfers run after the transaction has locked everything else, like
// settlements.
var transfers = db.NewLast(func(ctx context.Context, tx *db.Tx, list []transfer) error {
	slices.SortStableFunc(list, func(a, b transfer) int { return compare(a.key, b.key) })
	for _, t := range list {
		if err := t.apply(ctx, tx); err != nil {
			return fmt.Errorf("transfer credits to a job: %w", err)
		}
	}
	return nil
})

func (t transfer) apply(ctx context.Context, tx *db.Tx) error {
	if err := t.from.assertAlive(tx); err != nil {
		return err
	}
	key := t.key
	if _, err := lockBalance(ctx, tx, key); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE spend_leases SET granted = granted - $5 WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4 AND granted >= $5",
		t.from.owner, string(key.Level), key.ID, string(key.Period), int64(t.amount))
	if err == nil && n == 0 {
		err = fmt.Errorf("the lease of %s on %s is too small", t.from.owner, key)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO spend_leases (node_id, level, account_id, period, granted) VALUES ($1, $2, $3, $4, $5)",
		t.to, string(key.Level), key.ID, string(key.Period), int64(t.amount))
	return err
}

// Transferred ends a reservation after the transaction of TransferToJob. If the
// commit is in doubt, the node counts the credits as transferred. The ledger
// may then hold too much for its lease, until the lease shrinks.
func (r *Reservation) Transferred(err error) {
	if err == nil || errors.Is(err, db.ErrInDoubt) {
		r.Settled(r.Amount)
		return
	}
	r.Release()
}

// Refund takes back the charge of a request whose work is repeated, in the transaction that repeats
// it. The log shows the amount as unbilled.
func (s *Settler) Refund(ctx context.Context, tx *db.Tx, requestID string) error {
	var before audit.Entry
	e, err := audit.Amend(ctx, tx, requestID, func(e *audit.Entry) {
		e.Credits, e.UnbilledCredits, before = 0, e.UnbilledCredits+e.Credits, *e
		before.UnbilledCredits = e.UnbilledCredits // it doesn't count toward the limit: the repetition isn't the workspace's
	})
	if err != nil || e == nil || before.Credits == 0 {
		return err
	}
	s.last.Add(tx, item{entry: audit.Settlement{Entry: e, Previous: &before}})
	return nil
}

// JobCharge is the outcome of a job.
type JobCharge struct {
	JobID     string
	RequestID string // the request that created it
	accounts.Tenant
	Project   string
	KeyID     string
	CreatedAt time.Time
	Accounts  json.RawMessage // the accounts of the job's reservation
	Model     string
	Provider  string
	Reserved  credits.Micro
	Cost      credits.Micro
	// PriceVersion identifies the prices.
	PriceVersion string
	// Call is what the model call of a job used that consists of one; nil for other jobs.
	Call *audit.Entry
}

// SettleJob charges a job from its lease in the transaction that ends it, and
// releases the rest. It also updates the log entry of the job's request, and
// returns the charge.
func (s *Settler) SettleJob(tx *db.Tx, c JobCharge) credits.Micro {
	charged := c.charged()
	s.last.Add(tx, item{job: &c})
	return charged
}

// charged returns what the job costs the workspace.
func (c *JobCharge) charged() credits.Micro {
	if c.Environment != accounts.Live {
		return 0
	}
	return min(c.Cost, c.Reserved)
}

// amend updates the job's log entry and returns its settlement, or nil if the log no
// longer has it.
func (c *JobCharge) amend(ctx context.Context, tx *db.Tx) (*audit.Settlement, error) {
	var s audit.Settlement
	e, err := audit.Amend(ctx, tx, c.RequestID, func(e *audit.Entry) {
		if e.ErrorCode == string(fault.StorageUnavailable) { // its commit was in doubt, so it is already counted as refused
			refused := *e
			s.Previous = &refused
		}
		e.Requested = e.AskedFor() // before the model that ran
		e.Model, e.Provider, e.PriceVersion = cmp.Or(c.Model, e.Model), cmp.Or(c.Provider, e.Provider), cmp.Or(c.PriceVersion, e.PriceVersion)
		e.UsageSource = audit.UsageProvider
		e.Credits, e.SimulatedCredits, e.UnbilledCredits = c.charged(), 0, c.Cost-c.charged()
		if c.Environment != accounts.Live {
			e.SimulatedCredits, e.UnbilledCredits = c.Cost, 0
		}
		if u := c.Call; u != nil {
			e.InputTokens, e.OutputTokens, e.CachedTokens, e.UsageSource = u.InputTokens, u.OutputTokens, u.CachedTokens, u.UsageSource
			e.Attempts, e.Upstream, e.ErrorCode, e.Failure = u.Attempts, u.Upstream, u.ErrorCode, u.Failure
			e.Requested = cmp.Or(u.Requested, e.Requested)
			e.Status = cmp.Or(u.Status, e.Status)
		}
	})
	if e == nil {
		return nil, err
	}
	s.Entry = e
	return &s, err
}

// chargeJobs charges jobs from their leases and ends those leases. A job's
// lease changes only when the job is created or ends, with its row locked. So
// it can be read before its balances are locked.
func chargeJobs(ctx context.Context, tx *db.Tx, p *postings, jobs []*JobCharge) error {
	for _, c := range jobs {
		if c.Environment != accounts.Live {
			continue // test jobs have no lease
		}
		holds, err := chargedAccounts(c.Accounts, c.WorkspaceID, c.Project, c.KeyID, c.CreatedAt)
		if err != nil {
			return err
		}
		p.charge(charge{holds: holds, amount: c.charged()})
		p.ended = append(p.ended, jobOwner(c.JobID))
	}
	query := db.InQuery{SQL: "SELECT level, account_id, period, granted FROM spend_leases WHERE node_id IN"}
	err := db.ByIDs(ctx, tx, query, p.ended, func(r db.Row) error {
		var key accountPeriod
		var granted credits.Micro
		err := db.Scan(r, &key.Level, &key.ID, &key.Period, &granted)
		if err == nil {
			to := p.at(key)
			to.Leased = sum(to.Leased, -granted)
		}
		return err
	})
	return db.Wrap(err, "read leases")
}
