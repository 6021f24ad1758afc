package spend

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/events"
)

// Settler charges log entries, adds up usage, and publishes the alerts of budgets: in
// the transaction that settles the entries, or later from the journal.
type Settler struct {
	db        *db.DB
	journal   *journal // nil posts all charges directly
	publisher *events.Publisher
	now       func() time.Time
	last      *db.Last[item]
	exempt    atomic.Pointer[func(provider string) bool] // see ExemptUnbilled; nil exempts none
	flush     func(context.Context)                      // writes entries that wait for a commit; nil without a log

	mu      sync.Mutex
	budgets map[Account]*alertBudget       // a cache; an account's owner or workspace drops it when it changes
	alerted map[accountPeriod]publishedSet // likewise
	changes int                            // counts those changes
}

// NewSettler returns a settler. Pass its Settle method to audit.NewLog.
func NewSettler(l *Ledger, p *events.Publisher, now func() time.Time) *Settler {
	s := &Settler{db: l.db, publisher: p, now: now, budgets: map[Account]*alertBudget{}, alerted: map[accountPeriod]publishedSet{}}
	s.last = db.NewLast(s.settleAll)
	l.db.OnSignal(accounts.SignalWorkspace, s.forgetWorkspace)
	l.db.OnSignal(access.SignalKey, s.forgetOwner)
	l.db.OnSignal(endusers.SignalID, s.forgetOwner)
	return s
}

// chargedAccounts returns the accounts to charge for an entry or a job: the
// array stored when its credits were reserved. Releases without that array
// charged the workspace, the key and the project.
func chargedAccounts(stored json.RawMessage, workspaceID, project, keyID string, created time.Time) ([]hold, error) {
	if len(stored) > 0 {
		return decodeAccounts(stored)
	}
	period := PeriodOf(created)
	list := []hold{{key: accountPeriod{Account{Workspace, workspaceID}, period}}, {key: accountPeriod{Account{Key, keyID}, period}}}
	if project != "" {
		list = append(list, hold{key: accountPeriod{Account{Project, ProjectID(workspaceID, project)}, period}})
	}
	return list, nil
}

// Settle charges the entries at the end of the transaction, together with
// everything else that it settles.
func (s *Settler) Settle(_ context.Context, tx *db.Tx, list []audit.Settlement) error {
	for _, b := range list {
		s.last.Add(tx, item{entry: b})
	}
	return nil
}

type item struct {
	entry audit.Settlement
	job   *JobCharge
}

// settleAll charges everything that a transaction settles: what leases of this node
// cover in its journal, and the rest in the ledger. All transactions lock in this
// order: log entries, journal, ledger, usage, alerts.
func (s *Settler) settleAll(ctx context.Context, tx *db.Tx, list []item) error {
	direct, later := newTotals(), newTotals()
	if s.journal == nil {
		later = direct
	}
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
		if c.owner != "" || c.amount == 0 {
			later.count(i.entry, c)
		} else {
			direct.count(i.entry, c)
		}
		s.addUnbilled(later, i.entry)
	}
	slices.SortFunc(jobs, func(a, b *JobCharge) int { return strings.Compare(a.RequestID, b.RequestID) })
	for _, c := range jobs {
		amended, err := c.amend(ctx, tx)
		if err != nil {
			return err
		}
		if amended != nil {
			direct.count(*amended, charge{})
			s.addUnbilled(direct, *amended)
		}
	}
	if err := chargeJobs(ctx, tx, direct.postings, jobs); err != nil {
		return err
	}
	if s.journal != nil {
		if err := s.journal.write(tx, later); err != nil {
			return err
		}
	}
	if !direct.isEmpty() {
		if err := direct.write(ctx, tx, s, true); err != nil {
			return err
		}
	}
	tx.OnCommit(func() { release(entries) })
	return nil
}

// chargeOf returns the charge for an entry. Test requests are free.
func chargeOf(b audit.Settlement) (charge, error) {
	e := b.Entry
	if e.Environment != accounts.Live {
		return charge{}, nil
	}
	if r, held := e.Hold.(*Reservation); held && b.Previous == nil {
		return r.charge(e.Credits), nil
	}
	holds, err := chargedAccounts(e.Accounts, e.WorkspaceID, e.Project, e.KeyID, e.CreatedAt)
	c := charge{holds: holds, amount: e.Credits}
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
			r.Settled(b.Previous.Credits) // deducted from the lease by the first settlement
		case held:
			r.Settled(b.Entry.Credits)
		}
	}
}

// Billing is the balance of a workspace in a month.
type Billing struct {
	Workspace *accounts.Workspace
	Period    Period
	Balance
}

// Remaining returns the credits that can still be spent, or nil without a
// limit.
func (b *Billing) Remaining() *credits.Micro {
	if b.Workspace.MonthlyCredits == nil {
		return nil
	}
	left := max(0, *b.Workspace.MonthlyCredits-b.Spent)
	return &left
}

// Low reports whether the remaining credits are below the threshold.
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

func init() {
	accounts.WorkspaceRules.Add(followBilling)
	accounts.ProjectRules.Add(func(ctx context.Context, tx *db.Tx, c accounts.Changed[accounts.Project]) error {
		if c.After.Environment != accounts.Live { // test projects have no budget, and can share their ID with a live one
			return nil
		}
		return projectBudgets(c.After).follow(ctx, tx, projectBudgets(c.Before), c.At)
	})
	access.KeyRules.Add(func(ctx context.Context, tx *db.Tx, c accounts.Changed[access.Key]) error {
		return KeyBudgets(c.After).follow(ctx, tx, KeyBudgets(c.Before), c.At)
	})
	endusers.Rules.Add(followUser)
}

// followBilling follows a change of a workspace's limit and thresholds. A new limit can't be lower than the spending
// so far. It reclaims the leases under the old limit, and publishes the alerts that are due now, because no charge may
// follow. If the workspace isn't low, it rearms billing.credits.low.
func followBilling(ctx context.Context, tx *db.Tx, c accounts.Changed[accounts.Workspace]) error {
	w := c.After
	if !w.HasNewBilling(c.Before) {
		return nil
	}
	account, period := Account{Workspace, w.ID}, PeriodOf(c.At)
	b, err := ReadBalance(ctx, tx, account, period)
	if err == nil && hasChanged(c.Before.MonthlyCredits, w.MonthlyCredits) {
		err = checkSpent("monthly_credits", *w.MonthlyCredits, b.Spent)
	}
	if err == nil {
		err = BudgetChanged(ctx, tx, account, c.At)
	}
	if err != nil || runsLow(w, b) { // BudgetChanged has published it
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM credit_alerts WHERE workspace_id = $1 AND period = $2", w.ID, string(period))
	return err
}

// BudgetChanged reclaims the leases of an account whose budget has changed, and
// publishes the alerts that are due under the new budget.
func BudgetChanged(ctx context.Context, tx *db.Tx, a Account, now time.Time) error {
	budget, err := loadAlertBudget(ctx, tx, a, false)
	if err != nil {
		return err
	}
	key := accountPeriod{a, PeriodIn(budget.window, now)}
	ReclaimLeases(tx, a, key.Period)
	if budget.limit == nil {
		return nil
	}
	b, err := ReadBalance(ctx, tx, a, key.Period)
	if err != nil {
		return err
	}
	return budget.publish(ctx, tx, events.NewPublisher(func() time.Time { return now }), dueAlert{key: key, spent: b.Spent, at: now})
}

// ReclaimLeases asks all nodes to release the unused leases of an account after the
// commit, because its budget has changed.
func ReclaimLeases(tx *db.Tx, a Account, p Period) {
	key := accountPeriod{a, p}.String()
	tx.Signal(signalLimitChanged, key) // expires all leases before they are released one by one
	tx.Signal(SignalReclaim, key)
}
