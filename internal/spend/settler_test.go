package spend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

// fixture is a settler with a workspace, the ledger and a lease cache.
type fixture struct {
	t         *testing.T
	d         *db.DB
	ledger    *Ledger
	settler   *Settler
	cache     *LeaseCache
	node      *nodes.Node
	workspace *accounts.Workspace
	now       time.Time
}

// join registers a node.
func join(t *testing.T, d *db.DB) *nodes.Node {
	t.Helper()
	n, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// evict removes the node's row, like an eviction.
func evict(t *testing.T, d *db.DB, n *nodes.Node) {
	t.Helper()
	if err := n.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func newFixture(t *testing.T, d *db.DB, limit credits.Micro) *fixture {
	t.Helper()
	o := &fixture{t: t, d: d, ledger: NewLedger(d), node: join(t, d), now: time.Now()}
	clock := func() time.Time { return o.now }
	o.settler = NewSettler(o.ledger, events.NewPublisher(clock), clock).Journal(o.node.ID)
	o.cache = o.ledger.LeaseCache(o.node).PostWith(o.settler)
	o.cache.background = nil // so that the ledger changes only when the test asks for it
	o.workspace = &accounts.Workspace{Name: ids.New("w "), Alert: accounts.DefaultAlert}
	o.write(func(ctx context.Context, tx *db.Tx) error {
		if err := accounts.CreateWorkspace(ctx, tx, o.workspace, o.now); err != nil {
			return err
		}
		o.workspace.MonthlyCredits = &limit
		return storeLimit(ctx, tx, o.workspace)
	})
	return o
}

// storeLimit stores the workspace's monthly credits without a signal, which may arrive during the test.
func storeLimit(ctx context.Context, tx *db.Tx, w *accounts.Workspace) error {
	_, err := tx.Exec(ctx, "UPDATE workspaces SET monthly_credits = $2 WHERE id = $1", w.ID, int64(*w.MonthlyCredits))
	return err
}

// changeLimit changes the workspace's monthly credits as people do.
func (o *fixture) changeLimit(limit credits.Micro) {
	o.t.Helper()
	o.workspace.MonthlyCredits = &limit
	o.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := accounts.ChangeWorkspace(ctx, tx, o.workspace.ID, accounts.Change[accounts.Workspace]{By: audit.Operator, At: o.now, Apply: func(w *accounts.Workspace) error {
			w.MonthlyCredits, w.Alert = &limit, o.workspace.Alert
			return nil
		}})
		return err
	})
}

// storeProject stores a changed project.
func (o *fixture) storeProject(ctx context.Context, tx *db.Tx, p *accounts.Project) error {
	_, err := accounts.ChangeProject(ctx, tx, accounts.ProjectChange{Tenant: p.Tenant, ID: p.ID, Action: "project.updated",
		Change: accounts.Change[accounts.Project]{By: audit.Operator, At: o.now, Apply: func(stored *accounts.Project) error {
			*stored = *p
			return nil
		}}})
	return err
}

func (o *fixture) write(fn func(ctx context.Context, tx *db.Tx) error) {
	o.t.Helper()
	if err := o.d.Write(o.t.Context(), func(tx *db.Tx) error { return fn(o.t.Context(), tx) }); err != nil {
		o.t.Fatal(err)
	}
}

func (o *fixture) settleEntries(list ...audit.Settlement) {
	o.t.Helper()
	o.write(func(ctx context.Context, tx *db.Tx) error { return o.settler.Settle(ctx, tx, list) })
}

// post adds what the node has charged to the ledger and to usage.
func (o *fixture) post() {
	o.t.Helper()
	if err := o.settler.Post(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

func (o *fixture) account() Account { return Account{Workspace, o.workspace.ID} }

// accounts returns the accounts that an entry is charged to.
func (o *fixture) accounts() []Account {
	return []Account{o.account(), {Key, "key_1"}, {Project, ProjectID(o.workspace.ID, "p")}}
}

func (o *fixture) reserve(amount credits.Micro) *Reservation {
	o.t.Helper()
	r, err := o.cache.Reserve(o.t.Context(), []Cap{{Account: o.account(), Limit: o.workspace.MonthlyCredits}, {Account: o.accounts()[1], Limit: nil}, {Account: o.accounts()[2], Limit: nil}}, amount, o.now)
	if err != nil {
		o.t.Fatal(err)
	}
	return r
}

// entry returns the log entry of a reserved request with its final cost.
func (o *fixture) entry(r *Reservation, amount credits.Micro) *audit.Entry {
	input, output := int64(10), int64(5)
	e := &audit.Entry{RequestID: ids.New(ids.Request), Tenant: o.workspace.In(accounts.Live), KeyID: "key_1", Project: "p", Model: "m", Provider: "openai",
		CreatedAt: o.now, Status: 200, InputTokens: &input, OutputTokens: &output, Credits: amount, UsageSource: audit.UsageProvider, Settled: true}
	if r != nil {
		e.Hold, e.Reserved = r, r.Amount
	}
	return e
}

// expect compares the ledger with the charges, and the node's leases with the
// ledger's.
func (o *fixture) expect(spent credits.Micro) {
	o.t.Helper()
	o.post()
	period := PeriodOf(o.now)
	for _, a := range o.accounts() {
		if b, err := ReadBalance(o.t.Context(), o.d, a, period); err != nil || b.Spent != spent {
			o.t.Errorf("the %s has spent %v of %v (%v)", a.Level, b.Spent, spent, err)
		}
	}
	var leased, granted int64
	if err := o.d.QueryRow(o.t.Context(), "SELECT CAST(coalesce(sum(leased), 0) AS BIGINT) FROM spend").Scan(&leased); err != nil {
		o.t.Fatal(err)
	}
	if err := o.d.QueryRow(o.t.Context(), "SELECT CAST(coalesce(sum(granted), 0) AS BIGINT) FROM spend_leases").Scan(&granted); err != nil {
		o.t.Fatal(err)
	}
	var mine credits.Micro
	if le := o.cache.leases[accountPeriod{o.account(), period}]; le != nil {
		mine = le.granted
	}
	if leased != granted || mine != credits.Micro(granted) {
		o.t.Errorf("%d are leased, by leases of %d, of which the node knows %d", leased, granted, mine)
	}
}

// used returns the usage of the hour.
func (o *fixture) used(environment accounts.Environment) Usage {
	o.t.Helper()
	o.post()
	list, err := ReadUsage(o.t.Context(), o.d, UsageQuery{Tenant: o.workspace.In(environment),
		Start: o.now.Add(-time.Hour), End: o.now.Add(time.Hour), Bucket: ByMonth})
	if err != nil {
		o.t.Fatal(err)
	}
	var sum Usage
	for _, u := range list {
		sum.Requests += u.Requests
		sum.Errors += u.Errors
		sum.InputTokens += u.InputTokens
		sum.OutputTokens += u.OutputTokens
		sum.Credits += u.Credits
		sum.SimulatedCredits += u.SimulatedCredits
	}
	return sum
}

// TestChargeWhoseCommitIsInDoubtIsPostedOnce covers a request that is settled
// again, and one that is refused because its write was not confirmed.
func TestChargeWhoseCommitIsInDoubtIsPostedOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		again credits.Micro
		want  Usage
	}{
		{"settled", 4 * credits.Credit, Usage{Requests: 1, InputTokens: 10, OutputTokens: 5, Credits: 4 * credits.Credit}},
		{"refused", 0, Usage{Requests: 1, Errors: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				o := newFixture(t, d, 100*credits.Credit)
				r := o.reserve(10 * credits.Credit)
				// The node doesn't learn of the first settlement.
				old := o.entry(nil, 4*credits.Credit)
				o.write(func(ctx context.Context, tx *db.Tx) error {
					if err := addUsage(ctx, tx, []audit.Settlement{{Entry: old}}); err != nil {
						return err
					}
					return o.ledger.Settle(ctx, tx, []charge{r.charge(old.Credits)})
				})
				e := o.entry(r, test.again)
				if test.again == 0 {
					e.Status, e.InputTokens, e.OutputTokens = 503, nil, nil
				}
				o.settleEntries(audit.Settlement{Entry: e, Previous: old})
				o.expect(test.again)
				if got := o.used("live"); got != test.want {
					t.Errorf("usage is %+v", got)
				}
				o.settleEntries(audit.Settlement{Entry: e, Previous: e})
				o.expect(test.again)
				if err := o.cache.ReleaseUnused(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				o.expect(test.again)
				if len(o.cache.leases) > 0 {
					t.Error("at rest there is a lease")
				}
			})
		})
	}
}

// TestEvictedNodeChangesNoBalance checks that another node charges the open
// request at its reservation. Every later write of the evicted node fails.
func TestEvictedNodeChangesNoBalance(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	d := dbtest.Open(t, address)
	o := newFixture(t, d, 1000*credits.Credit)
	group := db.NewGroup(d)
	log := audit.NewLog(group, o.node, o.settler.Settle)
	open := func(r *Reservation) *audit.Record {
		intent := *o.entry(r, 0)
		intent.Status, intent.InputTokens, intent.OutputTokens, intent.UsageSource, intent.Settled = 0, nil, nil, "", false
		return log.Open(intent)
	}
	before, idle, unlogged := open(o.reserve(10*credits.Credit)), o.reserve(credits.Credit), o.reserve(10*credits.Credit)
	if err := before.Durable(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	evict(t, d, o.node)
	other := dbtest.Open(t, address)
	otherBooks := NewLedger(other)
	recoverEvicted(t, other, join(t, other), otherBooks, 1)

	if !o.node.LeaseValid() {
		t.Fatal("the node notices by its clock, which this test must rule out")
	}
	after := open(unlogged)
	if err := after.Durable(5 * time.Second); !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("a call after the eviction: got %v, want ErrEvicted", err)
	}
	after.Refuse(func(e *audit.Entry) {})
	before.Settle(func(e *audit.Entry) { *e = *o.entryLike(e, 3*credits.Credit) })
	if _, err := o.cache.Reserve(t.Context(), []Cap{{Account: Account{Key, "key_2"}, Limit: o.workspace.MonthlyCredits}}, credits.Credit, o.now); !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("a new lease: got %v, want ErrEvicted", err)
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error { idle.TransferToJob(tx, "job_1"); return nil })
	if !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("a hand-over to a job: got %v, want ErrEvicted", err)
	}
	idle.Transferred(err)
	if err := o.cache.ReleaseUnused(t.Context(), ""); !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("a release: got %v, want ErrEvicted", err)
	}
	group.Stop()

	o.cache = otherBooks.LeaseCache(join(t, d)) // with a new ID and no state
	o.expect(10 * credits.Credit)
	if got, want := o.used("live"), (Usage{Requests: 1, Credits: 10 * credits.Credit}); got != want {
		t.Errorf("got usage %+v, want %+v", got, want)
	}
}

// recoverEvicted recovers evicted nodes like a running node, and expects a
// number of recovered log entries.
func recoverEvicted(t *testing.T, d *db.DB, by *nodes.Node, b *Ledger, want int64) {
	t.Helper()
	group := db.NewGroup(d)
	defer group.Stop()
	settler := NewSettler(b, events.NewPublisher(time.Now), time.Now).Journal(by.ID)
	log := audit.NewLog(group, by, settler.Settle)
	if n, err := log.Recover(t.Context(), d); err != nil || n != want {
		t.Fatalf("recovered %d entries (%v), want %d", n, err, want)
	}
	if err := settler.CloseEvicted(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// entryLike returns a settled copy of the entry.
func (o *fixture) entryLike(e *audit.Entry, amount credits.Micro) *audit.Entry {
	done := o.entry(nil, amount)
	done.RequestID, done.Hold, done.Reserved = e.RequestID, e.Hold, e.Reserved
	return done
}

// TestLeasesOfAnEvictedNodeStayUntilItsOpenEntriesAreCharged checks that the
// charges come out of the leases.
func TestLeasesOfAnEvictedNodeStayUntilItsOpenEntriesAreCharged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		group := db.NewGroup(d)
		intent := *o.entry(o.reserve(10*credits.Credit), 0)
		intent.Settled = false
		if err := audit.NewLog(group, o.node, o.settler.Settle).Open(intent).Durable(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		group.Stop()
		before := o.balance()
		evict(t, d, o.node)
		if err := o.settler.CloseEvicted(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := o.balance(); got != before {
			t.Errorf("before the open entry is charged: got %+v, want %+v", got, before)
		}
		recoverEvicted(t, d, join(t, d), o.ledger, 1)
		if got, want := o.balance(), (Balance{Spent: 10 * credits.Credit}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestTestCallsCountAsUsageAndCostNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		e := o.entry(nil, credits.Credit) // test requests are free even with a cost
		e.Environment, e.SimulatedCredits = "test", 7*credits.Credit
		o.settleEntries(audit.Settlement{Entry: e})
		o.expect(0)
		want := Usage{Requests: 1, InputTokens: 10, OutputTokens: 5, Credits: credits.Credit, SimulatedCredits: 7 * credits.Credit}
		if got := o.used("test"); got != want {
			t.Errorf("usage is %+v", got)
		}
		if got := o.used("live"); got != (Usage{}) {
			t.Errorf("live usage is %+v", got)
		}
		var lines int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM spend").Scan(&lines); err != nil || lines != 0 {
			t.Errorf("the ledger has %d rows (%v)", lines, err)
		}
	})
}

// TestLowCreditAlertIsPublishedOnce also checks that it is published again
// after the balance was above the threshold.
func TestLowCreditAlertIsPublishedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		spend := func(amount credits.Micro) {
			t.Helper()
			o.settleEntries(audit.Settlement{Entry: o.entry(o.reserve(amount), amount)})
			o.post()
		}
		told := func(want int64) {
			t.Helper()
			var n int64
			err := d.QueryRow(t.Context(), "SELECT count(*) FROM events WHERE type = $1 AND workspace_id = $2", string(events.BillingCreditsLow), o.workspace.ID).Scan(&n)
			if err != nil || n != want {
				t.Fatalf("told %d times, not %d (%v)", n, want, err)
			}
		}
		set := func(limit credits.Micro) {
			t.Helper()
			o.changeLimit(limit)
		}
		spend(79 * credits.Credit)
		told(0)
		spend(1 * credits.Credit) // leaves 20: the threshold, and not below it
		told(0)
		spend(1 * credits.Credit)
		told(1)
		spend(4 * credits.Credit)
		// Another node has no memory of published alerts.
		o.settler = NewSettler(o.ledger, events.NewPublisher(func() time.Time { return o.now }), func() time.Time { return o.now })
		spend(1 * credits.Credit)
		told(1)
		set(101 * credits.Credit) // still below
		spend(1 * credits.Credit)
		told(1)
		set(200 * credits.Credit)
		spend(1 * credits.Credit)
		told(1)
		spend(72 * credits.Credit) // leaves 40
		told(1)
		spend(1 * credits.Credit)
		told(2)
		spend(1 * credits.Credit)
		told(2)
		// A new month starts with the full budget.
		o.now = PeriodOf(o.now).End().Add(time.Hour)
		spend(159 * credits.Credit)
		told(2)
		spend(2 * credits.Credit)
		told(3)
		// Without any charge, a lower limit or a higher threshold publishes the
		// alert.
		set(1000 * credits.Credit)
		set(161 * credits.Credit) // leaves nothing
		told(4)
		set(162 * credits.Credit)
		told(4)
		set(1000 * credits.Credit)
		o.workspace.Alert = accounts.Threshold{Percent: 90}
		set(1000 * credits.Credit)
		told(5)
	})
}

// TestRecoveredEntryIsChargedToItsStoredAccounts checks that the accounts
// aren't recomputed from the key and its current ancestors.
func TestRecoveredEntryIsChargedToItsStoredAccounts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		ancestor := Account{Key, "key_0"}
		r, err := o.cache.Reserve(t.Context(), []Cap{{Account: o.account(), Limit: nil}, {Account: o.accounts()[1], Limit: nil}, {Account: ancestor, Limit: nil}}, 3*credits.Credit, o.now)
		if err != nil {
			t.Fatal(err)
		}
		e := o.entry(nil, 3*credits.Credit)
		e.UsageSource, e.Accounts = audit.UsageRecovered, r.Accounts()
		o.settleEntries(audit.Settlement{Entry: e})
		period := PeriodOf(o.now)
		for _, c := range []struct {
			Account
			want credits.Micro
		}{{o.account(), 3 * credits.Credit}, {o.accounts()[1], 3 * credits.Credit}, {ancestor, 3 * credits.Credit}, {o.accounts()[2], 0}} {
			if b, err := ReadBalance(t.Context(), d, c.Account, period); err != nil || b.Spent != c.want {
				t.Errorf("%s %s: got %v spent, want %v (%v)", c.Level, c.ID, b.Spent, c.want, err)
			}
		}
		// A correction uses the same accounts.
		corrected := *e
		corrected.Credits, corrected.UsageSource = credits.Credit, audit.UsageProvider
		o.settleEntries(audit.Settlement{Entry: &corrected, Previous: e})
		if b, err := ReadBalance(t.Context(), d, ancestor, period); err != nil || b.Spent != credits.Credit {
			t.Errorf("after a correction: got %v spent, want 1 (%v)", b.Spent, err)
		}
	})
}

// TestRearmedAlertFires also covers an alert that is rearmed while the previous
// one is being written.
func TestRearmedAlertFires(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		more := 1000 * credits.Credit
		o.write(func(ctx context.Context, tx *db.Tx) error {
			tx.OnCommit(func() { // waiters of this commit may run before this handler
				o.changeLimit(more)
			})
			return o.settler.Settle(ctx, tx, []audit.Settlement{{Entry: o.entry(nil, 90*credits.Credit)}})
		})
		if n := o.alerts(); n != 1 {
			t.Fatalf("%d alerts before the limit was raised", n)
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 900*credits.Credit)})
		if n := o.alerts(); n != 2 {
			t.Errorf("%d alerts with 10 of 1000 left", n)
		}
	})
}

// TestNoLowCreditAlertForPastMonth checks that charges for a past month publish
// no alert. No one can act on it, and the limit may have changed.
func TestNoLowCreditAlertForPastMonth(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		for _, ago := range []int{1, 12, -1} {
			e := o.entry(nil, 90*credits.Credit)
			e.CreatedAt = time.Date(o.now.Year(), o.now.Month()-time.Month(ago), 15, 0, 0, 0, 0, time.UTC)
			o.settleEntries(audit.Settlement{Entry: e})
			if n := o.alerts(); n != 0 {
				t.Fatalf("%d alerts of %s", n, PeriodOf(e.CreatedAt))
			}
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 1 {
			t.Errorf("%d alerts of this month", n)
		}
	})
}

// TestChangedProjectIsLoggedAndItsLeasesAreReclaimed also checks that changing
// a test project leaves the live project with the same ID alone.
func TestChangedProjectIsLoggedAndItsLeasesAreReclaimed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		var mu sync.Mutex
		var recalled []string
		d.OnSignal(SignalReclaim, func(what string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(what, "shop") { // the workspace's signal may arrive late
				recalled = append(recalled, what)
			}
		})
		budget := 7 * credits.Credit
		for _, env := range []accounts.Environment{accounts.Test, accounts.Live} {
			o.write(func(ctx context.Context, tx *db.Tx) error {
				p := &accounts.Project{Tenant: o.workspace.In(env), ID: "shop"}
				if err := accounts.CreateProject(ctx, tx, p, o.now); err != nil {
					return err
				}
				p.Name, p.MonthlyBudget = "The shop", &budget
				return o.storeProject(ctx, tx, p)
			})
			p, err := accounts.GetProject(t.Context(), d, o.workspace.In(env), "shop")
			if err != nil || p.Name != "The shop" || p.MonthlyBudget == nil || *p.MonthlyBudget != budget {
				t.Errorf("the project is %+v (%v)", p, err)
			}
			found, err := audit.FindActions(t.Context(), d, visibility.Filter{Tenant: o.workspace.In(env)}, audit.ActionFilter{}, db.Page{Limit: 10})
			if err != nil || len(found.Rows) != 1 || found.Rows[0].Action != "project.updated" || found.Rows[0].Target != "shop" || found.Rows[0].Environment != env {
				t.Errorf("the log has %+v (%v)", found, err)
			}
		}
		want := []string{accountPeriod{Account{Project, ProjectID(o.workspace.ID, "shop")}, PeriodOf(o.now)}.String()}
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			got := slices.Clone(recalled)
			mu.Unlock()
			if len(got) > 0 || time.Since(begun) > 10*time.Second {
				if !slices.Equal(got, want) {
					t.Errorf("called back is %q, want %q", got, want)
				}
				return
			}
		}
	})
}

// TestSumsSaturate checks that no number made up by clients makes a sum fail or
// wrap below zero, and that budgets still refuse.
func TestSumsSaturate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, credits.Max)
		many := make([]audit.Settlement, 20)
		for i := range many {
			e := o.entry(nil, credits.Max)
			tokens := int64(1) << 62
			e.InputTokens, e.OutputTokens = &tokens, &tokens
			many[i].Entry = e
		}
		for range 3 {
			o.settleEntries(many...)
			o.settleEntries(many[0])
		}
		if b := o.balance(); b.Spent != credits.Max {
			t.Errorf("%s are spent", b.Spent)
		}
		if u := o.used("live"); u.Requests != 63 || u.Credits != credits.Max || u.OutputTokens != int64(credits.Max) {
			t.Errorf("usage is %+v", u)
		}
		if _, err := ReadBilling(t.Context(), d, o.workspace.ID, o.now); err != nil {
			t.Error(err)
		}
		if _, err := o.cache.Reserve(t.Context(), []Cap{{Account: o.account(), Limit: o.workspace.MonthlyCredits}}, 1, o.now); err == nil || Transient(err) {
			t.Errorf("more can be spent: %v", err)
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 0), Previous: many[0].Entry}) // corrects one of them
		if b := o.balance(); b.Spent != 0 {
			t.Errorf("%s are spent after the correction", b.Spent)
		}
	})
}

// TestRecoveredChargePublishesTheAlert checks that recovered charges publish
// the alert like any other.
func TestRecoveredChargePublishesTheAlert(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		e := o.entry(nil, 79*credits.Credit)
		e.UsageSource = audit.UsageRecovered
		o.settleEntries(audit.Settlement{Entry: e})
		if o.alerts() != 0 {
			t.Error("an alert with 21 % left")
		}
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 2*credits.Credit)})
		if o.alerts() != 1 {
			t.Error("no alert with 19 % left")
		}
	})
}

// TestAlertUsesTheStoredLimitNotTheCachedOne covers a node whose cached limit
// is outdated.
func TestAlertUsesTheStoredLimitNotTheCachedOne(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := newFixture(t, d, 100*credits.Credit)
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, credits.Credit)})
		o.settler.mu.Lock()
		remembered := o.settler.budgets[o.account()]
		o.settler.mu.Unlock()
		more := 1000 * credits.Credit
		o.changeLimit(more)
		o.settler.mu.Lock()
		o.settler.budgets[o.account()] = remembered // like a node that missed the change
		o.settler.mu.Unlock()
		o.settleEntries(audit.Settlement{Entry: o.entry(nil, 90*credits.Credit)})
		if n := o.alerts(); n != 0 {
			t.Errorf("%d alerts with 909 of 1000 left", n)
		}
	})
}

// TestSumNeverOverflows adds twelve of the largest amounts, which wrap below
// zero, and twenty, which wrap above zero again.
func TestSumNeverOverflows(t *testing.T) {
	t.Parallel()
	p := newPostings()
	most := charge{holds: []hold{{lease: &lease{}}}, amount: credits.Max, owner: "node_x"}
	for n := range 40 {
		p.charge(most)
		if got := p.at(accountPeriod{}); got.balance != (balance{credits.Max, -credits.Max}) || got.lowered[0].amount != credits.Max {
			t.Fatalf("%d of them are %+v", n+1, got)
		}
	}
}

// TestRefusalOfARunOrAZeroBudgetIsNotTransient covers two cases. A run's
// requests are sequential, so nothing else is reserved in its budget. A budget
// of zero refuses even free requests.
func TestRefusalOfARunOrAZeroBudgetIsNotTransient(t *testing.T) {
	t.Parallel()
	for _, r := range []Refusal{{Account: Account{Level: Run}, Limit: 5, Spent: 1}, {Account: Account{Level: Key}}} {
		if r.For(0).Transient {
			t.Errorf("it passes that %s", &r)
		}
	}
	if r := (Refusal{Account: Account{Level: Key}, Limit: 5, Spent: 1, Reserved: 4}); !r.For(4).Transient || r.For(5).Transient {
		t.Errorf("of what is reserved: %+v, %+v", r.For(4), r.For(5))
	}
}
