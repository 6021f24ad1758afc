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

// Settler charges entries of the request log in the transaction that settles
// them, adds up usage, and publishes the alert that few credits are left.
type Settler struct {
	publisher *events.Publisher
	now       func() time.Time
	last      *db.Last[item]

	mu      sync.Mutex
	alerted map[string]Period              // workspaces whose alert is published; reset when one changes
	known   map[string]*accounts.Workspace // a cache; reset in the same way
	changes int                            // counts the signals of changed workspaces
}

// maxCached limits the number of cached workspaces.
const maxCached = 4096

// NewSettler returns a settler, whose Settle is for audit.NewLog.
func NewSettler(l *Ledger, p *events.Publisher, now func() time.Time) *Settler {
	s := &Settler{publisher: p, now: now, alerted: map[string]Period{}, known: map[string]*accounts.Workspace{}}
	s.last = db.NewLast(s.settleAll)
	l.db.OnSignal(accounts.SignalWorkspace, s.forget)
	return s
}

func (s *Settler) forget(workspaceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	if workspaceID == "" {
		clear(s.alerted)
		clear(s.known)
	}
	delete(s.alerted, workspaceID)
	delete(s.known, workspaceID)
}

// workspace returns a workspace from the cache or the database.
func (s *Settler) workspace(ctx context.Context, tx *db.Tx, id string) (*accounts.Workspace, error) {
	s.mu.Lock()
	w, changes := s.known[id], s.changes
	s.mu.Unlock()
	if w != nil {
		return w, nil
	}
	w, err := accounts.GetWorkspace(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes { // otherwise it may have been read before the change
		if len(s.known) >= maxCached {
			clear(s.known)
		}
		s.known[id] = w
	}
	return w, nil
}

// chargedAccounts returns the accounts that an entry or a job is charged to: the
// list that was stored when its credits were reserved. Releases without that list
// charged the workspace, the key and the project.
func chargedAccounts(stored json.RawMessage, workspaceID, project, keyID string, created time.Time) ([]accountMonth, error) {
	if len(stored) > 0 {
		return decodeAccounts(stored)
	}
	period := PeriodOf(created)
	list := []accountMonth{{Account{Workspace, workspaceID}, period}, {Account{Key, keyID}, period}}
	if project != "" {
		list = append(list, accountMonth{Account{Project, ProjectID(workspaceID, project)}, period})
	}
	return list, nil
}

// Settle charges the entries at the end of the transaction, with all others that
// it settles.
func (s *Settler) Settle(_ context.Context, tx *db.Tx, list []audit.Settlement) error {
	for _, b := range list {
		s.last.Add(tx, item{entry: b})
	}
	return nil
}

// item is a log entry or a job to charge.
type item struct {
	entry audit.Settlement
	job   *JobCharge
}

// settleAll charges everything that a transaction settles. All transactions lock
// in this order: log entries, ledger, usage, alerts.
func (s *Settler) settleAll(ctx context.Context, tx *db.Tx, list []item) error {
	p := newPostings()
	var entries []audit.Settlement
	var jobs []*JobCharge
	for _, i := range list {
		if i.job != nil {
			jobs = append(jobs, i.job)
			continue
		}
		entries = append(entries, i.entry)
		c, err := chargeOf(i.entry)
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
			entries = append(entries, audit.Settlement{Entry: e})
		}
	}
	if err := chargeJobs(ctx, tx, p, jobs); err != nil {
		return err
	}
	if err := p.write(ctx, tx); err != nil {
		return err
	}
	if err := addUsage(ctx, tx, entries); err != nil {
		return err
	}
	for _, key := range p.charged(Workspace) {
		if err := s.alert(ctx, tx, key.ID, key.Period); err != nil {
			return err
		}
	}
	tx.OnCommit(func() { release(entries) })
	return nil
}

// chargeOf returns what to charge for an entry now. Test calls are free.
func chargeOf(b audit.Settlement) (charge, error) {
	e := b.Entry
	if e.Environment != string(accounts.Live) {
		return charge{}, nil
	}
	if r, held := e.Hold.(*Reservation); held && b.Previous == nil {
		return r.charge(e.Credits), nil
	}
	keys, err := chargedAccounts(e.Accounts, e.WorkspaceID, e.Project, e.KeyID, e.CreatedAt)
	c := charge{keys: keys, amount: e.Credits}
	if b.Previous != nil {
		c.amount -= b.Previous.Credits // the first settlement used the reservation
	}
	return c, err
}

// release ends the reservations of settled entries.
func release(list []audit.Settlement) {
	for _, b := range list {
		r, held := b.Entry.Hold.(*Reservation)
		switch {
		case held && b.Previous != nil:
			r.Settled(b.Previous.Credits) // that came out of the lease
		case held:
			r.Settled(b.Entry.Credits)
		}
	}
}

// alert publishes billing.credits.low when a charge has brought a workspace below
// its threshold, once until it is above again. There is no alert for a past month.
func (s *Settler) alert(ctx context.Context, tx *db.Tx, workspaceID string, period Period) error {
	if period != PeriodOf(s.now()) {
		return nil
	}
	s.mu.Lock()
	published, changes := s.alerted[workspaceID] == period, s.changes
	s.mu.Unlock()
	if published {
		return nil
	}
	w, err := s.workspace(ctx, tx, workspaceID)
	if fault.Is(err, fault.NotFound) {
		return nil // charges outlive their workspace
	}
	if err != nil || w.MonthlyCredits == nil {
		return err
	}
	b, err := ReadBalance(ctx, tx, Account{Workspace, workspaceID}, period)
	if err != nil || !runsLow(w, b) {
		return err
	}
	// The cached limit may be outdated, and changing it rearms the alert.
	if w, err = accounts.GetWorkspaceLocked(ctx, tx, workspaceID); err != nil || !runsLow(w, b) {
		return err
	}
	if err := publishLow(ctx, tx, s.publisher, w, b, period, s.now()); err != nil {
		return err
	}
	tx.OnCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.changes == changes { // otherwise it may have been rearmed
			s.alerted[workspaceID] = period
		}
	})
	return nil
}

// runsLow reports whether a limited workspace is below its threshold.
func runsLow(w *accounts.Workspace, b Balance) bool {
	return (&Billing{Workspace: w, Balance: b}).Low()
}

// publishLow publishes billing.credits.low, once until the alert is rearmed.
func publishLow(ctx context.Context, tx *db.Tx, p *events.Publisher, w *accounts.Workspace, b Balance, period Period, now time.Time) error {
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

// Billing is the balance of a workspace in a month.
type Billing struct {
	Workspace *accounts.Workspace
	Period    Period
	Balance
}

// Remaining returns what can still be spent, or nil without a limit.
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

// ReadBilling returns the balance of a workspace in the current month.
func ReadBilling(ctx context.Context, q db.Querier, workspaceID string, now time.Time) (*Billing, error) {
	w, err := accounts.GetWorkspace(ctx, q, workspaceID)
	if err != nil {
		return nil, err
	}
	b := &Billing{Workspace: w, Period: PeriodOf(now)}
	b.Balance, err = ReadBalance(ctx, q, Account{Workspace, workspaceID}, b.Period)
	return b, err
}

// SetBilling changes a workspace's limit and threshold, and reclaims the leases
// under the old limit. If the workspace is below the threshold now, it publishes
// the alert, as no charge may follow; otherwise it rearms it.
func SetBilling(ctx context.Context, tx *db.Tx, w *accounts.Workspace, now time.Time) error {
	if err := accounts.SetCredits(ctx, tx, w); err != nil {
		return err
	}
	period := PeriodOf(now)
	ReclaimLeases(tx, Account{Workspace, w.ID}, period)
	b, err := ReadBalance(ctx, tx, Account{Workspace, w.ID}, period)
	if err != nil {
		return err
	}
	if runsLow(w, b) {
		return publishLow(ctx, tx, events.NewPublisher(func() time.Time { return now }), w, b, period, now)
	}
	_, err = tx.Exec(ctx, "DELETE FROM credit_alerts WHERE workspace_id = $1 AND period = $2", w.ID, string(period))
	return err
}

// ChangeBilling applies a change to a workspace's billing and records it in the
// admin log.
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
func ReclaimLeases(tx *db.Tx, a Account, p Period) {
	key := accountMonth{a, p}.String()
	tx.Signal(signalLimitChanged, key) // marks all leases before they are released one by one
	tx.Signal(SignalReclaim, key)
}
