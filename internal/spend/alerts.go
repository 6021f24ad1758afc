package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

const (
	maxCached = 32_768
	// exceeded is the percentage of budget.exceeded in the table of alerts.
	exceeded = 100
)

// alertBudget is the budget of an account and when it alerts people.
type alertBudget struct {
	origin     events.Origin
	source     Level // whose budget it is, as events show it
	id, name   string
	limitID    string              // of one of the owner's limits; empty for its own budget
	window     accounts.Window     // empty for a month
	workspace  *accounts.Workspace // at the level of a workspace, for billing.credits.low
	limit      *credits.Micro      // nil for no limit
	raise      *accounts.Raise     // of the limit
	limits     []accounts.Limit    // of the owner
	thresholds accounts.AlertThresholds
}

// publishedSet is what this node knows to be published for an account in a
// period.
type publishedSet struct {
	limit    credits.Micro
	percent  int64 // the highest threshold
	exceeded bool
	low      bool // billing.credits.low
}

// covers reports whether everything in the other set is published.
func (p publishedSet) covers(o publishedSet) bool {
	if p.limit != o.limit { // a raise began or ended, so its alerts are due again
		p = publishedSet{}
	}
	return p.percent >= o.percent && (p.exceeded || !o.exceeded) && (p.low || !o.low)
}

// dueAlert is the state of an account that its alerts depend on.
type dueAlert struct {
	key     accountPeriod
	spent   credits.Micro
	refused bool      // the budget has refused a small request
	at      time.Time // in the period
	ended   bool      // the period, meanwhile
}

// due returns the alerts that the state calls for. A budget of 0 blocks
// requests on purpose, and has none.
func (a *alertBudget) due(d dueAlert) (set publishedSet) {
	set.limit = a.limitAt(d.at)
	if set.limit > 0 {
		for _, percent := range a.thresholds {
			if reached(d.spent, set.limit, percent) {
				set.percent = percent
			}
		}
		set.exceeded = d.refused || d.spent >= set.limit
	}
	if a.workspace != nil && !d.ended {
		set.low = runsLow(a.workspace, Balance{Spent: d.spent})
	}
	return set
}

// limitAt returns the limit at a time, which may be raised.
func (a *alertBudget) limitAt(now time.Time) credits.Micro { return *a.raise.Apply(a.limit, now) }

// reached reports whether the spending is at least the percentage of a limit.
// Dividing first keeps large limits from overflowing.
func reached(spent, limit credits.Micro, percent int64) bool {
	return spent >= limit/100*credits.Micro(percent)+limit%100*credits.Micro(percent)/100
}

// loadAlertBudget reads the budget of an account. If lock is set, it locks the
// budget's owner until the transaction ends. Accounts outlive their owners:
// without one, there is no limit.
func loadAlertBudget(ctx context.Context, tx *db.Tx, a Account, lock bool) (budget *alertBudget, err error) {
	switch a.Level {
	case Workspace:
		budget, err = workspaceBudget(ctx, tx, a.ID, lock)
	case Project:
		budget, err = projectBudget(ctx, tx, a.ID, lock)
	case Key:
		budget, err = keyBudget(ctx, tx, a.ID, lock)
	case ProjectLimit, KeyLimit:
		budget, err = limitBudget(ctx, tx, a, lock)
	case EndUser:
		budget, err = userBudget(ctx, tx, a.ID, lock)
	default:
		budget = &alertBudget{}
	}
	if fault.Is(err, fault.NotFound) || errors.Is(err, db.ErrNotFound) {
		return &alertBudget{}, nil
	}
	return budget, db.Wrap(err, "read budget")
}

func workspaceBudget(ctx context.Context, tx *db.Tx, id string, lock bool) (*alertBudget, error) {
	var w *accounts.Workspace
	var err error
	if lock {
		w, err = accounts.GetWorkspaceLocked(ctx, tx, id)
	} else {
		w, err = accounts.GetWorkspace(ctx, tx, id)
	}
	if err != nil {
		return nil, err
	}
	return &alertBudget{origin: events.Origin{Tenant: w.In(accounts.Live)}, source: Workspace, id: w.ID, name: w.Name, workspace: w, limit: w.MonthlyCredits,
		thresholds: w.AlertThresholds.Or(accounts.DefaultAlertThresholds)}, nil
}

func projectBudget(ctx context.Context, tx *db.Tx, qualified string, lock bool) (*alertBudget, error) {
	workspaceID, id, _ := strings.Cut(qualified, "/")
	tenant := accounts.Tenant{WorkspaceID: workspaceID, Environment: accounts.Live}
	var p *accounts.Project
	var err error
	if lock {
		p, err = accounts.GetProjectLocked(ctx, tx, tenant, id)
	} else {
		p, err = accounts.GetProject(ctx, tx, tenant, id)
	}
	if err != nil {
		return nil, err
	}
	w, err := accounts.GetWorkspace(ctx, tx, workspaceID)
	if err != nil {
		return nil, err
	}
	return &alertBudget{origin: events.Origin{Tenant: tenant, Project: id}, source: Project, id: id, name: p.Name, limit: p.MonthlyBudget, raise: p.Raise, limits: p.Limits,
		thresholds: p.AlertThresholds.Or(w.AlertThresholds).Or(accounts.DefaultAlertThresholds)}, nil
}

func keyBudget(ctx context.Context, tx *db.Tx, id string, lock bool) (*alertBudget, error) {
	read := func(ctx context.Context, tx *db.Tx, id string) (*access.KeyBudget, error) {
		return access.BudgetOf(ctx, tx, id)
	}
	if lock {
		read = access.LockBudgetOf
	}
	k, err := read(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	w, err := accounts.GetWorkspace(ctx, tx, k.WorkspaceID)
	if err != nil {
		return nil, err
	}
	return &alertBudget{origin: events.Origin{Tenant: k.Tenant, Project: k.Project}, source: Key, id: k.KeyID, name: k.Name, limit: k.MonthlyBudget, raise: k.Raise, limits: k.Limits,
		thresholds: k.AlertThresholds.Or(w.AlertThresholds).Or(accounts.DefaultAlertThresholds)}, nil
}

// limitBudget returns the budget of one of the limits of a key or a project.
func limitBudget(ctx context.Context, tx *db.Tx, a Account, lock bool) (*alertBudget, error) {
	i := strings.LastIndexByte(a.ID, '/')
	read := keyBudget
	if a.Level == ProjectLimit {
		read = projectBudget
	}
	budget, err := read(ctx, tx, a.ID[:max(i, 0)], lock)
	if err != nil {
		return nil, err
	}
	budget.limitID, budget.limit, budget.raise = a.ID[i+1:], nil, nil // the limit may have lost its budget since
	for _, l := range budget.limits {
		if l.ID == budget.limitID {
			budget.limit, budget.window = l.Budget, l.Window
		}
	}
	return budget, nil
}

// forgetWorkspace drops what is cached about a workspace, or everything if the ID is
// empty. Accounts without an owner don't know their workspace.
func (s *Settler) forgetWorkspace(id string) {
	s.forget(func(b *alertBudget) bool { return id == "" || b.limit == nil || b.origin.WorkspaceID == id })
}

// forgetOwner drops what is cached about a key or an end user.
func (s *Settler) forgetOwner(id string) {
	s.forget(func(b *alertBudget) bool { return id == "" || b.id == id })
}

func (s *Settler) forget(changed func(*alertBudget) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	maps.DeleteFunc(s.budgets, func(a Account, b *alertBudget) bool { return changed(b) })
	maps.DeleteFunc(s.alerted, func(k accountPeriod, _ publishedSet) bool { return s.budgets[k.Account] == nil })
}

// budgetOf is loadAlertBudget with a cache.
func (s *Settler) budgetOf(ctx context.Context, tx *db.Tx, a Account) (*alertBudget, error) {
	s.mu.Lock()
	budget, changes := s.budgets[a], s.changes
	s.mu.Unlock()
	if budget != nil {
		return budget, nil
	}
	budget, err := loadAlertBudget(ctx, tx, a, false)
	if err != nil {
		return nil, err
	}
	s.cache(changes, map[Account]*alertBudget{a: budget})
	return budget, nil
}

// cache keeps budgets that were read after a number of changes.
func (s *Settler) cache(changes int, list map[Account]*alertBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != changes { // they may have been read before the change
		return
	}
	if len(s.budgets)+len(list) > maxCached {
		clear(s.budgets)
		clear(s.alerted)
	}
	maps.Copy(s.budgets, list)
}

// loadUsers caches the budgets of all end users among the accounts, in one
// statement. There may be one per request.
func (s *Settler) loadUsers(ctx context.Context, tx *db.Tx, list []accountPeriod) error {
	var missing []string
	s.mu.Lock()
	changes := s.changes
	for _, key := range list {
		if key.Level == EndUser && s.budgets[key.Account] == nil {
			missing = append(missing, key.ID)
		}
	}
	s.mu.Unlock()
	if len(missing) < 2 { // budgetOf loads one as well
		return nil
	}
	found, err := userBudgets(ctx, tx, missing)
	if err != nil {
		return db.Wrap(err, "read budgets of users")
	}
	budgets := make(map[Account]*alertBudget, len(found))
	for id, b := range found {
		budgets[Account{EndUser, id}] = b
	}
	s.cache(changes, budgets)
	return nil
}

// isIn reports whether the period is one of the budget's window, which may have
// changed since the period was charged.
func (a *alertBudget) isIn(p Period) bool {
	return p.Window() == cmp.Or(a.window, accounts.WindowMonth)
}

// refusedBy returns the account whose budget is exhausted, so that it refused the request.
func refusedBy(e *audit.Entry) (accountPeriod, bool) {
	r, refused := e.Hold.(*Refusal)
	if !refused || !r.Exhausted || e.Environment != accounts.Live {
		return accountPeriod{}, false
	}
	return accountPeriod{r.Account, PeriodIn(r.Window, e.CreatedAt)}, true
}

// alertAll publishes the alerts of accounts that were charged or have refused a
// request, each once per period and budget. after has the balances of charged accounts,
// which the transaction has locked.
func (s *Settler) alertAll(ctx context.Context, tx *db.Tx, t *totals, after map[accountPeriod]balance) error {
	now := s.now()
	refusedOnly := slices.DeleteFunc(slices.SortedFunc(maps.Keys(t.refused), compare), func(key accountPeriod) bool { _, charged := after[key]; return charged })
	others, err := readBalances(ctx, tx, refusedOnly, "")
	if err != nil {
		return err
	}
	maps.Copy(after, others)
	list := slices.AppendSeq(t.charged(), maps.Keys(t.refused))
	slices.SortFunc(list, compare)
	list = slices.Compact(list)
	if err := s.loadUsers(ctx, tx, list); err != nil {
		return err
	}
	budgets := make(map[accountPeriod]*alertBudget, len(list))
	for _, key := range list {
		if alertTime(key.Period, now).IsZero() {
			continue
		}
		budget, err := s.budgetOf(ctx, tx, key.Account)
		if err != nil {
			return err
		}
		if budget.limit != nil && budget.isIn(key.Period) {
			budgets[key] = budget
		}
	}
	for _, key := range list {
		if budgets[key] == nil {
			continue
		}
		at := alertTime(key.Period, now)
		if err := s.alert(ctx, tx, budgets[key], dueAlert{key, after[key].Settled, t.refused[key], at, !at.Equal(now)}); err != nil {
			return err
		}
	}
	return nil
}

// lateAlerts is for how long a period that has ended still alerts people: charges are posted after a second, and
// those of an evicted node after a minute. Later, the budget may have been changed for the next period.
const lateAlerts = 5 * time.Minute

// alertTime returns the time in the period at which its alerts are due, which is now or the period's last moment. It
// returns zero for other periods, which have no alerts.
func alertTime(p Period, now time.Time) time.Time {
	if p == PeriodIn(p.Window(), now) {
		return now
	}
	if end := p.End(); !now.Before(end) && now.Before(end.Add(lateAlerts)) {
		return end.Add(-time.Microsecond)
	}
	return time.Time{}
}

// readBalances returns the balances of accounts that have one. They must be in order, because the lock, if any, is taken in
// that order.
func readBalances(ctx context.Context, tx *db.Tx, list []accountPeriod, lock string) (map[accountPeriod]balance, error) {
	out := make(map[accountPeriod]balance, len(list))
	for some := range slices.Chunk(list, 100) {
		places, args := placesOf(nil, some)
		found, err := tx.Query(ctx, "SELECT level, account_id, period, settled, leased FROM spend WHERE (level, account_id, period) IN "+places+" ORDER BY level, account_id, period"+lock, args...)
		if err := db.Each(found, err, addTo(out)); err != nil {
			return nil, fmt.Errorf("read spend: %w", err)
		}
	}
	return out, nil
}

// alert publishes the alerts of one account that are due and not yet published.
func (s *Settler) alert(ctx context.Context, tx *db.Tx, budget *alertBudget, d dueAlert) error {
	s.mu.Lock()
	published, changes := s.alerted[d.key], s.changes
	s.mu.Unlock()
	if published.covers(budget.due(d)) {
		return nil
	}
	// The cached budget may be outdated.
	budget, err := loadAlertBudget(ctx, tx, d.key.Account, true)
	if err != nil || budget.limit == nil || !budget.isIn(d.key.Period) {
		return err
	}
	if err := budget.publish(ctx, tx, s.publisher, d); err != nil {
		return err
	}
	due := budget.due(d)
	tx.OnCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.changes == changes { // otherwise the budget may have changed
			was := s.alerted[d.key]
			if was.limit != due.limit {
				was = publishedSet{}
			}
			s.alerted[d.key] = publishedSet{due.limit, max(was.percent, due.percent), was.exceeded || due.exceeded, was.low || due.low}
		}
	})
	return nil
}

// publish publishes the alerts that are due and not yet published.
func (a *alertBudget) publish(ctx context.Context, tx *db.Tx, p *events.Publisher, d dueAlert) error {
	due := a.due(d)
	var list []events.Payload
	data := events.BudgetAlert{LimitSource: string(a.source), LimitID: a.limitID, ID: a.id, Name: a.name, Budget: due.limit, Spent: d.spent,
		Period: string(d.key.Period)}
	if end := d.key.Period.End(); !end.IsZero() {
		data.ResetsAt = events.Unix(&end)
	}
	for _, percent := range a.thresholds {
		if percent > due.percent {
			break
		}
		first, err := a.record(ctx, tx, d, percent)
		if err != nil {
			return err
		}
		if first {
			list = append(list, events.BudgetThreshold{BudgetAlert: data, Threshold: percent})
		}
	}
	if due.exceeded {
		first, err := a.record(ctx, tx, d, exceeded)
		if err != nil {
			return err
		}
		if first {
			list = append(list, events.BudgetExceeded{BudgetAlert: data})
		}
	}
	if len(list) > 0 {
		if _, err := p.PublishAll(ctx, tx, a.origin, list...); err != nil {
			return err
		}
	}
	if !due.low {
		return nil
	}
	return publishLow(ctx, tx, p, &Billing{Workspace: a.workspace, Period: d.key.Period, Balance: Balance{Spent: d.spent}}, d.at)
}

// record stores that an alert is published, and reports whether it is the first
// time in the period and for the budget.
func (a *alertBudget) record(ctx context.Context, tx *db.Tx, d dueAlert, percent int64) (first bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO budget_alerts (level, account_id, period, budget, percent, fired_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (level, account_id, period, budget, percent) DO NOTHING`,
		string(d.key.Level), d.key.ID, string(d.key.Period), int64(a.limitAt(d.at)), percent, d.at.UnixMicro())
	return n > 0, db.Wrap(err, "record alert")
}

// alertsKept is longer than any period but a lifetime.
const alertsKept = 400 * 24 * time.Hour

// PurgeAlerts deletes up to limit records of old alerts. Those of a lifetime stay, or they would be published again.
func PurgeAlerts(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM budget_alerts WHERE (level, account_id, period, budget, percent) IN
		(SELECT level, account_id, period, budget, percent FROM budget_alerts WHERE fired_at < $1 AND period <> $3 ORDER BY fired_at LIMIT $2)`,
		now.Add(-alertsKept).UnixMicro(), limit, string(lifetime))
}

// runsLow reports whether a limited workspace is below its threshold.
func runsLow(w *accounts.Workspace, b Balance) bool {
	return (&Billing{Workspace: w, Balance: b}).Low()
}

// publishLow publishes billing.credits.low, once until the alert is rearmed.
func publishLow(ctx context.Context, tx *db.Tx, p *events.Publisher, b *Billing, now time.Time) error {
	w := b.Workspace
	n, err := tx.Exec(ctx, "INSERT INTO credit_alerts (workspace_id, period, fired_at) VALUES ($1, $2, $3) ON CONFLICT (workspace_id, period) DO NOTHING",
		w.ID, string(b.Period), now.UnixMicro())
	if err != nil {
		return fmt.Errorf("credit alert: %w", err)
	}
	if n == 0 {
		return nil
	}
	limit := *w.MonthlyCredits
	_, err = p.Publish(ctx, tx, events.Origin{Tenant: w.In(accounts.Live)},
		events.CreditsLow{Remaining: max(0, limit-b.Spent), Threshold: w.Alert.Of(limit), MonthlyCredits: limit, Period: string(b.Period)})
	return err
}
