package spend

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// Bookkeeper adds up the entries of the request log as they are settled, in
// the same transaction: charges, usage, and the alert that little is left.
type Bookkeeper struct {
	publisher *events.Publisher
	now       func() time.Time
	last      *db.Last[item]

	mu      sync.Mutex
	alerted map[string]Period              // workspaces that were told, for as long as nobody changes that
	known   map[string]*accounts.Workspace // as they were read, for as long
	changes int                            // of workspaces that were heard of
}

// maxKnown bounds the workspaces that are remembered.
const maxKnown = 4096

// NewBookkeeper makes a bookkeeper; its Book is the log's.
func NewBookkeeper(b *Books, p *events.Publisher, now func() time.Time) *Bookkeeper {
	k := &Bookkeeper{publisher: p, now: now, alerted: map[string]Period{}, known: map[string]*accounts.Workspace{}}
	k.last = db.NewLast(k.settle)
	b.db.OnSignal(accounts.SignalWorkspace, k.forget)
	return k
}

func (k *Bookkeeper) forget(workspaceID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
	if workspaceID == "" {
		clear(k.alerted)
		clear(k.known)
	}
	delete(k.alerted, workspaceID)
	delete(k.known, workspaceID)
}

// workspace reads a workspace, unless it is known.
func (k *Bookkeeper) workspace(ctx context.Context, tx *db.Tx, id string) (*accounts.Workspace, error) {
	k.mu.Lock()
	w, heard := k.known[id], k.changes
	k.mu.Unlock()
	if w != nil {
		return w, nil
	}
	w, err := accounts.GetWorkspace(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes == heard { // otherwise it may have been read before the change
		if len(k.known) >= maxKnown {
			clear(k.known)
		}
		k.known[id] = w
	}
	return w, nil
}

// chargedLines returns what an entry or a job is charged to, from the list that
// was stored when its credits were reserved. Releases without that list charged
// the workspace, the key and the project.
func chargedLines(stored json.RawMessage, workspaceID, project, keyID string, created time.Time) ([]line, error) {
	if len(stored) > 0 {
		return decodeLines(stored)
	}
	period := PeriodOf(created)
	list := []line{{Account{Workspace, workspaceID}, period}, {Account{Key, keyID}, period}}
	if project != "" {
		list = append(list, line{Account{Project, ProjectID(workspaceID, project)}, period})
	}
	return list, nil
}

// Book is called with the entries that a transaction settles. They are booked at
// its end, with all others that it settles.
func (k *Bookkeeper) Book(_ context.Context, tx *db.Tx, list []audit.Booking) error {
	for _, b := range list {
		k.last.Add(tx, item{booking: b})
	}
	return nil
}

// item is something to be booked: an entry of the log, or a job that has ended.
type item struct {
	booking audit.Booking
	job     *JobCharge
}

// settle books all that a transaction settles. Everybody locks in this order:
// entries of the log, the books, usage, alerts.
func (k *Bookkeeper) settle(ctx context.Context, tx *db.Tx, list []item) error {
	p := newPostings()
	var entries []audit.Booking
	var jobs []*JobCharge
	for _, i := range list {
		if i.job != nil {
			jobs = append(jobs, i.job)
			continue
		}
		entries = append(entries, i.booking)
		c, err := chargeOf(i.booking)
		if err != nil {
			return err
		}
		p.charge(c)
	}
	slices.SortFunc(jobs, func(a, b *JobCharge) int { return strings.Compare(a.RequestID, b.RequestID) })
	for _, c := range jobs {
		e, err := c.amend(ctx, tx)
		if err != nil {
			return err
		}
		if e != nil {
			entries = append(entries, audit.Booking{Entry: e})
		}
	}
	if err := payJobs(ctx, tx, p, jobs); err != nil {
		return err
	}
	if err := p.write(ctx, tx); err != nil {
		return err
	}
	if err := addUsage(ctx, tx, entries); err != nil {
		return err
	}
	for _, l := range p.charged(Workspace) {
		if err := k.alert(ctx, tx, l.ID, l.Period); err != nil {
			return err
		}
	}
	tx.OnCommit(func() { release(entries) })
	return nil
}

// chargeOf is what an entry is charged now; test calls are free.
func chargeOf(b audit.Booking) (charge, error) {
	e := b.Entry
	if e.Environment != string(accounts.Live) {
		return charge{}, nil
	}
	if r, held := e.Hold.(*Reservation); held && b.Old == nil {
		return r.charge(e.Credits), nil
	}
	lines, err := chargedLines(e.Accounts, e.WorkspaceID, e.Project, e.KeyID, e.CreatedAt)
	c := charge{lines: lines, amount: e.Credits}
	if b.Old != nil {
		c.amount -= b.Old.Credits // the first settlement used the reservation
	}
	return c, err
}

// release ends what was set aside for calls whose charges are booked.
func release(list []audit.Booking) {
	for _, b := range list {
		r, held := b.Entry.Hold.(*Reservation)
		switch {
		case held && b.Old != nil:
			r.Settled(b.Old.Credits) // which is what came out of the lease
		case held:
			r.Settled(b.Entry.Credits)
		}
	}
}

// alert publishes billing.credits.low when a charge has brought a workspace
// below its threshold, once until it is above again. Of a month that is over
// nobody is told: the limit is today's, and nothing can be done about it.
func (k *Bookkeeper) alert(ctx context.Context, tx *db.Tx, workspaceID string, period Period) error {
	if period != PeriodOf(k.now()) {
		return nil
	}
	k.mu.Lock()
	told, heard := k.alerted[workspaceID] == period, k.changes
	k.mu.Unlock()
	if told {
		return nil
	}
	w, err := k.workspace(ctx, tx, workspaceID)
	if fault.Is(err, fault.NotFound) {
		return nil // a charge is booked whatever became of its workspace
	}
	if err != nil || w.MonthlyCredits == nil {
		return err
	}
	b, err := Read(ctx, tx, Account{Workspace, workspaceID}, period)
	if err != nil || !runsLow(w, b) {
		return err
	}
	// Somebody may be changing the limit, which arms the alert again: what was
	// remembered must not undo that.
	if w, err = accounts.GetWorkspaceLocked(ctx, tx, workspaceID); err != nil || !runsLow(w, b) {
		return err
	}
	if err := tellLow(ctx, tx, k.publisher, w, b, period, k.now()); err != nil {
		return err
	}
	tx.OnCommit(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.changes == heard { // otherwise it may have been armed again
			k.alerted[workspaceID] = period
		}
	})
	return nil
}

// runsLow reports whether a limited workspace has less left than its threshold.
func runsLow(w *accounts.Workspace, b Balance) bool {
	return (&Billing{Workspace: w, Balance: b}).Low()
}

// tellLow publishes billing.credits.low, once until the alert is armed again.
func tellLow(ctx context.Context, tx *db.Tx, p *events.Publisher, w *accounts.Workspace, b Balance, period Period, now time.Time) error {
	n, err := tx.Exec(ctx, "INSERT INTO credit_alerts (workspace_id, period, fired_at) VALUES ($1, $2, $3) ON CONFLICT (workspace_id, period) DO NOTHING",
		w.ID, string(period), now.UnixMicro())
	if err != nil {
		return fmt.Errorf("credit alert: %w", err)
	}
	if n == 0 {
		return nil
	}
	limit := *w.MonthlyCredits
	_, err = p.Publish(ctx, tx, events.Origin{WorkspaceID: w.ID, Environment: string(accounts.Live)},
		events.CreditsLow{Remaining: max(0, limit-b.Spent), Threshold: w.Alert.Of(limit), MonthlyCredits: limit, Period: string(period)})
	return err
}

// Billing is how a workspace stands in a month.
type Billing struct {
	Workspace *accounts.Workspace
	Period    Period
	Balance
}

// Remaining is what may still be used, or nil without a limit.
func (b *Billing) Remaining() *credits.Micro {
	if b.Workspace.MonthlyCredits == nil {
		return nil
	}
	left := max(0, *b.Workspace.MonthlyCredits-b.Spent)
	return &left
}

// Low reports whether less is left than the threshold.
func (b *Billing) Low() bool {
	left := b.Remaining()
	return left != nil && *left < b.Workspace.Alert.Of(*b.Workspace.MonthlyCredits)
}

// ReadBilling reads how a workspace stands now.
func ReadBilling(ctx context.Context, q db.Querier, workspaceID string, now time.Time) (*Billing, error) {
	w, err := accounts.GetWorkspace(ctx, q, workspaceID)
	if err != nil {
		return nil, err
	}
	b := &Billing{Workspace: w, Period: PeriodOf(now)}
	b.Balance, err = Read(ctx, q, Account{Workspace, workspaceID}, b.Period)
	return b, err
}

// SetBilling changes a workspace's limit and threshold. Leases that nodes took
// under the old limit are called back. If less is left than the threshold now,
// that is told, as no charge may follow; otherwise the alert is armed again.
func SetBilling(ctx context.Context, tx *db.Tx, w *accounts.Workspace, now time.Time) error {
	if err := accounts.SetCredits(ctx, tx, w); err != nil {
		return err
	}
	period := PeriodOf(now)
	Recall(tx, Account{Workspace, w.ID}, period)
	b, err := Read(ctx, tx, Account{Workspace, w.ID}, period)
	if err != nil {
		return err
	}
	if runsLow(w, b) {
		return tellLow(ctx, tx, events.NewPublisher(func() time.Time { return now }), w, b, period, now)
	}
	_, err = tx.Exec(ctx, "DELETE FROM credit_alerts WHERE workspace_id = $1 AND period = $2", w.ID, string(period))
	return err
}

// ChangeBilling is SetBilling of what somebody changes, with the admin log, unless
// change refuses.
func ChangeBilling(ctx context.Context, tx *db.Tx, by audit.Actor, workspaceID string, change func(*accounts.Workspace) error, now time.Time) (*Billing, error) {
	w, err := accounts.GetWorkspaceLocked(ctx, tx, workspaceID)
	if err != nil {
		return nil, err
	}
	if err := change(w); err != nil {
		return nil, err
	}
	if err := SetBilling(ctx, tx, w, now); err != nil {
		return nil, err
	}
	b, err := ReadBilling(ctx, tx, w.ID, now)
	if err != nil {
		return nil, err
	}
	return b, audit.LogAction(ctx, tx, by, audit.Action{WorkspaceID: w.ID, Environment: string(accounts.Live), Action: "billing.updated", Target: w.ID},
		map[string]any{"monthly_credits": w.MonthlyCredits, "alert_threshold": w.Alert}, now)
}

// Recall calls back what nodes have leased of an account and do not use, after
// the commit: its budget was changed.
func Recall(tx *db.Tx, a Account, p Period) {
	l := line{a, p}.String()
	tx.Signal(signalChanged, l) // at once, and before it is called back one by one
	tx.Signal(SignalRecall, l)
}
