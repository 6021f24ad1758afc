package spend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// A job works on after its request was answered, perhaps on other nodes, so
// what is set aside for it is leased to the job itself: a lease like a node's,
// which no death of a node ends.

// jobOwner is in whose name a job has its lease.
func jobOwner(jobID string) string { return jobPrefix + jobID }

// The names of all jobs' owners lie between these two.
const jobPrefix, afterJobs = "job:", "job;"

// HandToJob gives what a reservation holds to a job, in the transaction that
// makes the job. Whatever the transaction comes to, Handed ends the reservation.
func (r *Reservation) HandToJob(ctx context.Context, tx *db.Tx, jobID string) error {
	holds := slices.Clone(r.holds)
	slices.SortFunc(holds, func(a, b hold) int { return compare(a.line, b.line) })
	for _, h := range holds {
		if r.Amount == 0 {
			break
		}
		if _, err := read(ctx, tx, h.line); err != nil { // held first, as everybody does
			return fmt.Errorf("hand credits to a job: %w", err)
		}
		l := h.line
		n, err := tx.Exec(ctx, "UPDATE spend_leases SET granted = granted - $5 WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4 AND granted >= $5",
			h.lease.owner, string(l.Level), l.ID, string(l.Period), int64(r.Amount))
		if err == nil && n == 0 {
			err = nodes.ErrUnsure // others took this node for dead, and gave it away
		}
		if err != nil {
			return fmt.Errorf("hand credits to a job: %w", err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO spend_leases (node_id, level, account_id, period, granted) VALUES ($1, $2, $3, $4, $5)",
			jobOwner(jobID), string(l.Level), l.ID, string(l.Period), int64(r.Amount)); err != nil {
			return fmt.Errorf("hand credits to a job: %w", err)
		}
	}
	return nil
}

// Handed ends a reservation after the transaction of HandToJob. When nobody
// knows whether that was committed, this node rather has less than it could.
func (r *Reservation) Handed(err error) {
	switch {
	case err == nil:
		r.Settled(r.Amount)
	case errors.Is(err, db.ErrInDoubt):
		r.Settled(r.Amount)
		r.ledger.mu.Lock()
		for _, h := range r.holds {
			h.lease.unsure = true
		}
		r.ledger.mu.Unlock()
	default:
		r.Release()
	}
}

// JobCharge is what a job came to.
type JobCharge struct {
	JobID       string
	RequestID   string // that made it
	WorkspaceID string
	Environment accounts.Environment
	Project     string
	KeyID       string
	CreatedAt   time.Time // whose month is charged
	Model       string
	Provider    string
	Reserved    credits.Micro
	Cost        credits.Micro
	// PriceVersion names the prices.
	PriceVersion string
}

// SettleJob charges a job in the transaction that ends it: out of what was set
// aside for it, the rest of which is everybody's again. The entry of the
// request that made the job says what it cost in the end. It returns what was
// charged.
func (k *Bookkeeper) SettleJob(ctx context.Context, tx *db.Tx, c JobCharge) (credits.Micro, error) {
	var charged, simulated, unbilled credits.Micro
	if c.Environment == accounts.Live {
		charged = min(c.Cost, c.Reserved)
		unbilled = c.Cost - charged
	} else {
		simulated = c.Cost
	}
	capped := false
	if c.Environment == accounts.Live {
		var err error
		if capped, err = k.payJob(ctx, tx, c, charged); err != nil {
			return 0, err
		}
	}
	e, err := audit.Amend(ctx, tx, c.RequestID, func(e *audit.Entry) {
		e.Model, e.Provider, e.PriceVersion, e.UsageSource = c.Model, c.Provider, c.PriceVersion, audit.UsageProvider
		e.Credits, e.SimulatedCredits, e.UnbilledCredits = charged, simulated, unbilled
	})
	if err != nil {
		return 0, err
	}
	if e != nil {
		if err := addUsage(ctx, tx, []audit.Booking{{Entry: e}}); err != nil {
			return 0, err
		}
	}
	if capped {
		return charged, k.alert(ctx, tx, c.WorkspaceID, PeriodOf(c.CreatedAt))
	}
	return charged, nil
}

// payJob books a job's charge out of its lease, and ends the lease. It reports
// whether the workspace has a limit.
func (k *Bookkeeper) payJob(ctx context.Context, tx *db.Tx, c JobCharge, charged credits.Micro) (capped bool, err error) {
	lines, err := leasesOf(ctx, tx, jobOwner(c.JobID))
	if err != nil {
		return false, err
	}
	charge := Charge{Period: PeriodOf(c.CreatedAt), Accounts: AccountsOf(c.WorkspaceID, c.Project, c.KeyID), Amount: charged}
	for _, l := range lines {
		charge.Leased = append(charge.Leased, leased{l, jobOwner(c.JobID)})
		capped = capped || l.Level == Workspace
	}
	if err := k.books.Settle(ctx, tx, []Charge{charge}); err != nil {
		return false, err
	}
	return capped, Close(ctx, tx, jobOwner(c.JobID))
}
