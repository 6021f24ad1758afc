package spend

import (
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
)

// A job works on after its request was answered, perhaps on other nodes, so
// what is set aside for it is leased to the job itself: a lease like a node's,
// which no death of a node ends.

// jobOwner is in whose name a job has its lease.
func jobOwner(jobID string) string { return jobPrefix + jobID }

// The names of all jobs' owners lie between these two.
const jobPrefix, afterJobs = "job:", "job;"

// HandToJob gives what a reservation holds to a job, at the end of the
// transaction that makes the job. Whatever that comes to, Handed ends the
// reservation.
func (r *Reservation) HandToJob(tx *db.Tx, jobID string) {
	if r.Amount == 0 {
		return
	}
	for _, h := range r.holds {
		handOvers.Add(tx, handOver{h, r.ledger, jobOwner(jobID), r.Amount})
	}
}

// handOver is what a job gets of what a reservation holds.
type handOver struct {
	hold
	from   *Ledger
	to     string
	amount credits.Micro
}

// handOvers are made when the transaction holds all else that it changes, as
// with bookings.
var handOvers = db.NewLast(func(ctx context.Context, tx *db.Tx, list []handOver) error {
	slices.SortStableFunc(list, func(a, b handOver) int { return compare(a.line, b.line) })
	for _, h := range list {
		if err := h.make(ctx, tx); err != nil {
			return fmt.Errorf("hand credits to a job: %w", err)
		}
	}
	return nil
})

func (h handOver) make(ctx context.Context, tx *db.Tx) error {
	if err := h.from.assertAlive(ctx, tx); err != nil {
		return err
	}
	l := h.line
	if _, err := read(ctx, tx, l); err != nil { // held first, as everybody does
		return err
	}
	n, err := tx.Exec(ctx, "UPDATE spend_leases SET granted = granted - $5 WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4 AND granted >= $5",
		h.from.owner, string(l.Level), l.ID, string(l.Period), int64(h.amount))
	if err == nil && n == 0 {
		err = fmt.Errorf("the lease of %s on %s is too small", h.from.owner, l)
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO spend_leases (node_id, level, account_id, period, granted) VALUES ($1, $2, $3, $4, $5)",
		h.to, string(l.Level), l.ID, string(l.Period), int64(h.amount))
	return err
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
	CreatedAt   time.Time
	Accounts    json.RawMessage // that the job's reservation named
	Model       string
	Provider    string
	Reserved    credits.Micro
	Cost        credits.Micro
	// PriceVersion names the prices.
	PriceVersion string
}

// SettleJob charges a job in the transaction that ends it: out of what was set
// aside for it, the rest of which is everybody's again. The entry of the
// request that made the job says what it cost in the end. It returns what is
// charged; the books hear of it with all else that the transaction settles.
func (k *Bookkeeper) SettleJob(tx *db.Tx, c JobCharge) credits.Micro {
	charged := c.charged()
	k.last.Add(tx, item{job: &c})
	return charged
}

// charged is what the job costs its owner.
func (c *JobCharge) charged() credits.Micro {
	if c.Environment != accounts.Live {
		return 0
	}
	return min(c.Cost, c.Reserved)
}

// amend says in the log what a job came to. It returns the entry, or nil when
// the log no longer has it.
func (c *JobCharge) amend(ctx context.Context, tx *db.Tx) (*audit.Entry, error) {
	return audit.Amend(ctx, tx, c.RequestID, func(e *audit.Entry) {
		e.Model, e.Provider, e.PriceVersion, e.UsageSource = c.Model, c.Provider, c.PriceVersion, audit.UsageProvider
		e.Credits, e.SimulatedCredits, e.UnbilledCredits = c.charged(), 0, c.Cost-c.charged()
		if c.Environment != accounts.Live {
			e.SimulatedCredits, e.UnbilledCredits = c.Cost, 0
		}
	})
}

// payJobs books what jobs are charged out of their leases, and ends those. A
// job's lease changes only when the job is made and when it ends, with its row
// held, so it can be read before its lines are.
func payJobs(ctx context.Context, tx *db.Tx, p *postings, jobs []*JobCharge) error {
	for _, c := range jobs {
		if c.Environment != accounts.Live {
			continue // which have none
		}
		lines, err := chargedLines(c.Accounts, c.WorkspaceID, c.Project, c.KeyID, c.CreatedAt)
		if err != nil {
			return err
		}
		p.charge(charge{lines: lines, amount: c.charged()})
		p.ended = append(p.ended, jobOwner(c.JobID))
	}
	for some := range slices.Chunk(p.ended, 500) { // a statement has room for so many, and more
		places, args := placesOf(some)
		rows, err := tx.Query(ctx, "SELECT level, account_id, period, granted FROM spend_leases WHERE node_id IN ("+places+")", args...)
		err = db.Each(rows, err, func(r db.Row) error {
			var l line
			var granted int64
			if err := r.Scan((*string)(&l.Level), &l.ID, (*string)(&l.Period), &granted); err != nil {
				return err
			}
			add(p.lines, l, balance{Leased: -credits.Micro(granted)})
			return nil
		})
		if err != nil {
			return fmt.Errorf("read leases: %w", err)
		}
	}
	return nil
}
