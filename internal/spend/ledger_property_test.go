package spend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
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
)

var repeatedSeed = flag.Uint64("spend.seed", 0, "repeat the sequence of TestLedgerFollowsTheLogDespiteCrashes with this seed")

// TestLedgerFollowsTheLogDespiteCrashes runs random sequences of requests, postings, crashes, evictions of live nodes,
// recoveries, new days, weeks and months, and changed and raised limits. Unlike TestNoBudgetIsEverOverspent, it runs
// three nodes with their logs on a real database, and checks the tables after every step.
func TestLedgerFollowsTheLogDespiteCrashes(t *testing.T) {
	t.Parallel()
	sequences := 4
	if os.Getenv("TURNPIKE_CHAOS") == "full" {
		sequences = 100
	}
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			for range sequences {
				seed := cmp.Or(*repeatedSeed, rand.Uint64())
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					newSequence(t, dbtest.Address(t, engine), seed).run()
				})
			}
		})
	}
}

const (
	sequenceSteps = 200
	// sequenceAlways is how many budgets every request counts toward. The others apply to some requests.
	sequenceAlways = 4
)

// sequence is a number of nodes on one database.
type sequence struct {
	t       *testing.T
	address string
	d       *db.DB // of no node
	random  *rand.Rand
	now     time.Time
	tenant  accounts.Tenant
	budgets []sequenceBudget
	nodes   []*sequenceNode
	dead    []string // crashed nodes that no other node has evicted
	evicted bool     // some evicted node is not recovered

	mu      sync.Mutex
	calls   []*sequenceCall
	refused int
}

type sequenceBudget struct {
	Cap
	unlimited    bool
	limit        credits.Micro
	raise        credits.Micro // the limit until raisedUntil
	raisedUntil  time.Time
	highestSoFar credits.Micro
}

// sequenceNode is one process.
type sequenceNode struct {
	d       *db.DB
	node    *nodes.Node
	group   *db.Group
	log     *audit.Log
	settler *Settler
	cache   *LeaseCache
	evicted bool            // by another node, without its knowledge
	open    []*sequenceCall // requests in progress
	written []*sequenceCall // settled, and perhaps not committed
}

// sequenceCall is a request with a reservation.
type sequenceCall struct {
	id           string
	record       *audit.Record
	reservation  *Reservation
	amount, cost credits.Micro
	logged       bool // its intent is durable
	settled      bool // by the node, at the cost
	committed    bool // the settlement is durable
}

func newSequence(t *testing.T, address string, seed uint64) *sequence {
	t.Helper()
	s := &sequence{t: t, address: address, d: dbtest.Open(t, address), random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	w := &accounts.Workspace{Name: "w", Alert: accounts.DefaultAlert}
	err := s.d.Write(t.Context(), func(tx *db.Tx) error {
		if err := accounts.CreateWorkspace(t.Context(), tx, w, s.now); err != nil {
			return err
		}
		limit := credits.Micro(200) // publishes alerts
		w.MonthlyCredits = &limit
		return storeLimit(t.Context(), tx, w)
	})
	if err != nil {
		t.Fatal(err)
	}
	s.tenant = w.In(accounts.Live)
	for _, c := range []Cap{{Account: Account{Workspace, w.ID}}, {Account: Account{Project, ProjectID(w.ID, "p")}},
		{Account: Account{Key, "key"}}, {Account: Account{Key, "parent"}}, {Account: Account{KeyLimit, "key/day"}, Window: accounts.WindowDay},
		{Account: Account{KeyLimit, "key/week"}, Window: accounts.WindowWeek}, {Account: Account{ProjectLimit, "p/lifetime"}, Window: accounts.WindowLifetime}, {Account: Account{EndUser, "eu"}, Window: accounts.WindowDay}} {
		s.budgets = append(s.budgets, sequenceBudget{Cap: c, unlimited: c.ID == "parent"})
		s.setLimit(len(s.budgets) - 1)
	}
	for range 3 {
		s.nodes = append(s.nodes, s.start())
	}
	t.Cleanup(func() {
		for _, n := range s.nodes {
			n.stop()
		}
	})
	return s
}

func (s *sequence) amount(from, to int) credits.Micro {
	return credits.Micro(from + s.random.IntN(to-from+1))
}

func (s *sequence) start() *sequenceNode {
	s.t.Helper()
	d, err := db.Open(s.t.Context(), s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	n := &sequenceNode{d: d, node: join(s.t, d), group: db.NewGroup(d)}
	clock := func() time.Time { return s.now }
	ledger := NewLedger(d)
	n.settler = NewSettler(ledger, events.NewPublisher(clock), clock).Journal(n.node.ID)
	n.log = audit.NewLog(n.group, n.node, n.settler.Settle)
	n.settler.FlushWith(n.log)
	n.cache = ledger.LeaseCache(n.node).PostWith(n.settler)
	n.cache.alone, n.cache.reclaimTimeout, n.cache.reclaimPoll = false, 0, 0
	n.cache.background = func(refill func()) { refill() }
	n.cache.source = sequenceSource{n.cache.source, s, n}
	return n
}

// stop ends the process without committing anything.
func (n *sequenceNode) stop() {
	n.d.Close()
	n.group.Stop()
}

// sequenceSource reclaims credits without signals, which would arrive at any time.
type sequenceSource struct {
	leaseSource
	*sequence
	node *sequenceNode
}

func (s sequenceSource) reclaim(ctx context.Context, key accountPeriod) error {
	for _, n := range s.nodes {
		if n != s.node {
			s.expect(n, n.settler.Post(ctx))
			s.expect(n, n.cache.ReleaseUnused(ctx, key.String()))
		}
	}
	return nil
}

// expect fails the test if a node has an error, unless it is evicted.
func (s *sequence) expect(n *sequenceNode, err error) {
	if err != nil && !(n.evicted && errors.Is(err, db.ErrUnavailable)) {
		s.t.Error(err)
	}
}

// limitOf returns the limit that applies now.
func (s *sequence) limitOf(i int) credits.Micro {
	b := s.budgets[i]
	if s.now.Before(b.raisedUntil) {
		return max(b.limit, b.raise)
	}
	return b.limit
}

func (s *sequence) budgetOf(a Account) int {
	return slices.IndexFunc(s.budgets, func(b sequenceBudget) bool { return b.Account == a })
}

// setLimit changes a limit. Every node learns of it immediately.
func (s *sequence) setLimit(i int) {
	s.budgets[i].limit = s.amount(200, 2000)
	if s.random.IntN(20) == 0 {
		s.budgets[i].limit = s.amount(0, 40)
	}
	s.limitChanged(i)
}

// raiseLimit raises a limit for some time, whose end is not announced.
func (s *sequence) raiseLimit(i int) {
	s.budgets[i].raise, s.budgets[i].raisedUntil = s.budgets[i].limit+s.amount(1, 100), s.now.Add(30*time.Hour)
	s.limitChanged(i)
}

func (s *sequence) limitChanged(i int) {
	s.budgets[i].highestSoFar = max(s.budgets[i].highestSoFar, s.limitOf(i))
	for _, n := range s.nodes {
		n.cache.expireLeases("")
	}
}

// drawCaps returns the budgets of a request.
func (s *sequence) drawCaps() (caps []Cap) {
	for i, b := range s.budgets {
		if i >= sequenceAlways && s.random.IntN(2) == 0 {
			continue
		}
		if limit := s.limitOf(i); !b.unlimited {
			b.Limit = &limit
		}
		caps = append(caps, b.Cap)
	}
	return caps
}

// run runs the sequence and checks the tables after each step.
func (s *sequence) run() {
	for n := 0; n < sequenceSteps && !s.t.Failed(); n++ {
		s.step()
		s.check()
	}
	if !s.t.Failed() {
		s.end()
	}
}

func (s *sequence) step() {
	i := s.random.IntN(len(s.nodes))
	n := s.nodes[i]
	switch s.random.IntN(30) {
	default:
		s.drawWork(n, true)()
	case 0, 1: // all nodes work at the same time
		work := make([]func(), len(s.nodes))
		for i, n := range s.nodes {
			work[i] = s.drawWork(n, false)
		}
		var all sync.WaitGroup
		for _, do := range work {
			all.Go(do)
		}
		all.Wait()
	case 2: // it crashes and restarts
		if s.random.IntN(2) == 0 {
			s.crash(i)
		}
	case 3: // other nodes evict it without its knowledge
		if s.d.Engine() != "sqlite" && !n.evicted { // the embedded database has one server
			n.evicted, s.evicted = true, true
			n.settler.flush = nil // would wait for settlements that fail
			s.evict(n.node.ID)
		}
	case 4: // it learns of that
		if n.evicted {
			n.stop()
			s.nodes[i] = s.start()
		}
	case 5:
		for _, id := range s.dead {
			s.evict(id)
		}
		s.dead = nil
	case 6:
		s.recover(true)
	case 10:
		s.recover(false)
	case 7:
		s.now = s.now.Add(20 * time.Hour)
	case 8:
		s.setLimit(s.random.IntN(len(s.budgets)))
	case 9:
		s.raiseLimit(s.random.IntN(len(s.budgets)))
	}
}

// crash kills a node and starts another one. What it has not committed is lost.
func (s *sequence) crash(i int) {
	s.nodes[i].stop()
	if !s.nodes[i].evicted {
		s.dead, s.evicted = append(s.dead, s.nodes[i].node.ID), true
	}
	s.nodes[i] = s.start()
}

func (s *sequence) evict(node string) {
	s.t.Helper()
	err := s.d.Write(s.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(s.t.Context(), "DELETE FROM nodes WHERE id = $1", node)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// recover lets all nodes recover the evicted ones, at the same time. charge is false if none of them can charge what they
// left open.
func (s *sequence) recover(charge bool) {
	ctx := s.t.Context()
	var all sync.WaitGroup
	for _, n := range s.nodes {
		if n.evicted {
			continue
		}
		s.evicted = s.evicted && !(charge && len(s.dead) == 0)
		all.Go(func() {
			if charge {
				_, err := n.log.Recover(ctx, n.d)
				s.expect(n, err)
			}
			s.expect(n, n.settler.CloseEvicted(ctx))
		})
	}
	all.Wait()
	// Each may have left the leases to another one that was still charging.
	for _, n := range s.nodes {
		if !n.evicted {
			s.expect(n, n.settler.CloseEvicted(ctx))
		}
	}
}

// drawWork returns one thing that a node does. alone means that nothing else happens meanwhile.
func (s *sequence) drawWork(n *sequenceNode, alone bool) func() {
	ctx := s.t.Context()
	switch s.random.IntN(16) {
	default:
		caps, amount, logged := s.drawCaps(), s.amount(1, 40), s.random.IntN(4) > 0
		return func() { s.reserve(n, caps, amount, logged, alone) }
	case 0, 1, 2, 3, 8:
		if len(n.open) == 0 {
			return func() {}
		}
		of, cost := s.random.IntN(len(n.open)), s.amount(0, 50)
		return func() { s.settle(n, of, cost) }
	case 4:
		return func() { s.flush(n) }
	case 5:
		return func() {
			s.expect(n, n.settler.Post(ctx))
			s.flush(n)
		}
	case 6:
		return func() { s.expect(n, n.cache.ReleaseIdle(ctx)) }
	case 7:
		return func() { s.expect(n, n.cache.ReleaseUnused(ctx, "")) }
	}
}

// reserve begins a request.
func (s *sequence) reserve(n *sequenceNode, caps []Cap, amount credits.Micro, logged, alone bool) {
	r, err := n.cache.Reserve(s.t.Context(), caps, amount, s.now)
	if refusal, refused := errors.AsType[*Refusal](err); refused {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
		if alone && !s.evicted {
			s.checkRefusal(refusal, amount)
		}
		return
	}
	if err != nil {
		s.expect(n, err)
		return
	}
	c := &sequenceCall{id: ids.New(ids.Request), reservation: r, amount: amount}
	c.record = n.log.Open(audit.Entry{RequestID: c.id, Tenant: s.tenant, KeyID: "key", Project: "p", Model: "m", Provider: "openai", CreatedAt: s.now,
		Reserved: amount, Accounts: r.Accounts(), Hold: r})
	if logged {
		patience := time.Minute
		if n.evicted {
			patience = time.Millisecond
		}
		if err := c.record.Durable(patience); err != nil {
			s.expect(n, err)
			c.record.Refuse(func(*audit.Entry) {})
			return
		}
		c.logged = true
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	n.open = append(n.open, c)
	if alone && !n.evicted {
		s.checkAdmitted(r)
	}
}

// settle ends a request, or releases its reservation if it costs nothing and isn't in the log.
func (s *sequence) settle(n *sequenceNode, i int, cost credits.Micro) {
	c := n.open[i]
	n.open = slices.Delete(n.open, i, i+1)
	c.cost = min(cost, c.amount)
	if c.cost == 0 && !c.logged {
		c.reservation.Release()
		return
	}
	c.settled = true
	c.record.Settle(func(e *audit.Entry) {
		e.Status, e.Credits, e.UnbilledCredits, e.UsageSource, e.Latency = 200, c.cost, cost-c.cost, audit.UsageProvider, time.Hour // lingers as long as possible
	})
	n.written = append(n.written, c)
}

// flush commits the requests that the node has settled.
func (s *sequence) flush(n *sequenceNode) {
	if n.evicted {
		return
	}
	n.log.Flush(s.t.Context())
	for _, c := range n.written {
		if err := c.record.Settled(time.Minute); err != nil {
			s.t.Error(err)
		}
		c.committed = true
	}
	n.written = nil
}

// books is one snapshot of the tables.
type books struct {
	ledger   map[accountPeriod]balance
	leases   map[string]map[accountPeriod]credits.Micro // by node
	journals map[string]map[accountPeriod]journalCharge // by node
	charged  map[accountPeriod]credits.Micro            // by settled entries
	open     map[accountPeriod]credits.Micro            // reserved by open entries
	openOf   map[string]map[accountPeriod]credits.Micro // by node
	entries  map[string]loggedCall
}

type loggedCall struct {
	settled bool
	credits credits.Micro
	source  string
}

// read reads all tables in one statement.
func (s *sequence) read() books {
	s.t.Helper()
	b := books{map[accountPeriod]balance{}, map[string]map[accountPeriod]credits.Micro{}, map[string]map[accountPeriod]journalCharge{},
		map[accountPeriod]credits.Micro{}, map[accountPeriod]credits.Micro{}, map[string]map[accountPeriod]credits.Micro{}, map[string]loggedCall{}}
	rows, err := s.d.Query(s.t.Context(), `SELECT 'ledger', '', level, account_id, period, settled, leased, '' FROM spend
		UNION ALL SELECT 'lease', node_id, level, account_id, period, granted, 0, '' FROM spend_leases
		UNION ALL SELECT 'journal', node_id, '', '', '', 0, 0, postings FROM spend_journal
		UNION ALL SELECT CASE WHEN settled THEN 'settled' ELSE 'open' END, id, COALESCE(usage_source, ''), node_id, '',
			CASE WHEN settled THEN credits ELSE reserved END, created_at, accounts FROM requests
		UNION ALL SELECT 'unbilled', '', '', workspace_id, '', unbilled_credits, created_at, '' FROM requests WHERE settled AND unbilled_credits <> 0`)
	err = db.Each(rows, err, func(r db.Row) error {
		var kind, id, level, account, period, body string
		var amount, other int64
		if err := r.Scan(&kind, &id, &level, &account, &period, &amount, &other, &body); err != nil {
			return err
		}
		key := accountPeriod{Account{Level(level), account}, Period(period)}
		switch kind {
		case "ledger":
			b.ledger[key] = balance{credits.Micro(amount), credits.Micro(other)}
		case "lease":
			of(b.leases, id)[key] += credits.Micro(amount)
		case "journal":
			var row journalRow
			if err := json.Unmarshal([]byte(body), &row); err != nil {
				return err
			}
			for _, c := range row.Charges {
				key := accountPeriod{Account{c.Level, c.ID}, c.Period}
				sum := of(b.journals, id)[key]
				b.journals[id][key] = journalCharge{Amount: sum.Amount + c.Amount, Leased: sum.Leased + c.Leased}
			}
		case "unbilled":
			b.charged[accountPeriod{Account{Unbilled, account}, PeriodOf(time.UnixMicro(other))}] += credits.Micro(amount)
		default:
			b.entries[id] = loggedCall{kind == "settled", credits.Micro(amount), level}
			sums := b.open
			if kind == "settled" {
				sums = b.charged
			}
			holds, err := decodeAccounts(json.RawMessage(body))
			for _, h := range holds {
				sums[h.key] += credits.Micro(amount)
				if kind == "open" {
					of(b.openOf, account)[h.key] += credits.Micro(amount)
				}
				if i := s.budgetOf(h.key.Account); h.key.Period != PeriodIn(s.budgets[i].Window, time.UnixMicro(other)) {
					s.t.Errorf("%s began at %s and counts toward %v", id, time.UnixMicro(other).UTC(), h.key)
				}
			}
			return err
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func of[T any](m map[string]map[accountPeriod]T, node string) map[accountPeriod]T {
	if m[node] == nil {
		m[node] = map[accountPeriod]T{}
	}
	return m[node]
}

// check checks what is true at any time.
func (s *sequence) check() {
	s.t.Helper()
	b := s.read()
	leased, unposted := map[accountPeriod]credits.Micro{}, map[accountPeriod]credits.Micro{}
	for _, list := range b.leases {
		for key, granted := range list {
			leased[key] += granted
		}
	}
	for _, list := range b.journals {
		for key, c := range list {
			unposted[key] += c.Amount
		}
	}
	for _, node := range slices.Concat(slices.Collect(maps.Keys(b.journals)), slices.Collect(maps.Keys(b.openOf))) {
		for key := range b.ledger {
			if key.Level == Unbilled { // it has no leases
				continue
			}
			later, open := b.journals[node][key].Leased, b.openOf[node][key]
			if granted := b.leases[node][key]; granted < later+open && !s.budgets[s.budgetOf(key.Account)].unlimited {
				s.t.Errorf("%s has a lease of %d for %v, less than %d that are not posted and %d reserved", node, granted, key, later, open)
			}
		}
	}
	for key, charged := range b.charged {
		if got := b.ledger[key].Settled + unposted[key]; got != charged {
			s.t.Errorf("%v: got %d settled and %d not posted, want %d as in the log", key, b.ledger[key].Settled, unposted[key], charged)
		}
	}
	for key, row := range b.ledger {
		if row.Settled+unposted[key] != 0 && b.charged[key] == 0 {
			s.t.Errorf("%v: got %d settled and %d not posted, want none as in the log", key, row.Settled, unposted[key])
		}
		if row.Leased != leased[key] {
			s.t.Errorf("%v: got %d leased, want %d as the leases have", key, row.Leased, leased[key])
		}
		if key.Level != Unbilled {
			s.checkLimit(b, key, s.budgets[s.budgetOf(key.Account)].highestSoFar)
		}
	}
}

// checkLimit compares the balance of an account with a limit. The leases of end users are not lowered with their charges.
func (s *sequence) checkLimit(b books, key accountPeriod, limit credits.Micro) {
	s.t.Helper()
	if s.budgets[s.budgetOf(key.Account)].unlimited {
		return
	}
	if row := b.ledger[key]; row.Settled+row.Leased > limit && key.Level != EndUser {
		s.t.Errorf("%v: got %d settled and %d leased, want at most %d", key, row.Settled, row.Leased, limit)
	}
	if b.charged[key]+b.open[key] > limit {
		s.t.Errorf("%v: got %d charged and %d reserved in the log, want at most %d", key, b.charged[key], b.open[key], limit)
	}
}

// checkAdmitted compares the balances of an admitted request with the current limits, whatever they were before.
func (s *sequence) checkAdmitted(r *Reservation) {
	s.t.Helper()
	b := s.read()
	for _, h := range r.holds {
		s.checkLimit(b, h.key, s.limitOf(s.budgetOf(h.key.Account)))
	}
}

// checkRefusal checks that a refused request doesn't fit. No node is dead or evicted.
func (s *sequence) checkRefusal(r *Refusal, amount credits.Micro) {
	s.t.Helper()
	i, b := s.budgetOf(r.Account), s.read()
	key := accountPeriod{r.Account, PeriodIn(s.budgets[i].Window, s.now)}
	used := b.charged[key] + b.open[key]
	for _, n := range s.nodes {
		for _, c := range slices.Concat(n.open, n.written) {
			if _, logged := b.entries[c.id]; !logged && slices.Contains(keysOf(c.reservation.holds), key) {
				used += c.amount
			}
		}
	}
	if left := s.limitOf(i) - used; amount <= left {
		s.t.Errorf("%v: a request for %d was refused with %d left", key, amount, left)
	}
}

// end ends all requests and nodes, recovers the dead ones, and compares the tables with what happened.
func (s *sequence) end() {
	for i, n := range s.nodes {
		for len(n.open) > s.random.IntN(4) {
			s.settle(n, 0, s.amount(0, 50))
		}
		if s.random.IntN(2) == 0 {
			s.flush(n)
		}
		if n.evicted || len(n.open) > 0 || s.random.IntN(2) == 0 {
			s.crash(i)
		}
	}
	for _, id := range s.dead {
		s.evict(id)
	}
	s.dead = nil
	s.check()
	s.recover(true)
	s.check()
	for _, n := range s.nodes {
		s.flush(n)
		s.expect(n, n.settler.Post(s.t.Context()))
		s.expect(n, n.cache.ReleaseUnused(s.t.Context(), ""))
	}
	s.check()
	b := s.read()
	if len(b.leases) > 0 || len(b.journals) > 0 || len(b.open) > 0 {
		s.t.Errorf("got leases %v, journals %v and open entries %v, want none", b.leases, b.journals, b.open)
	}
	s.checkCalls(b)
	s.checkUsage(b)
	s.checkRest(b)
	s.report()
}

// report logs what happened, to show that the sequence was not idle.
func (s *sequence) report() {
	committed, recovered, lost := 0, 0, 0
	for _, c := range s.calls {
		switch {
		case c.committed:
			committed++
		case c.logged:
			recovered++
		default:
			lost++
		}
	}
	s.t.Logf("%d requests: %d settled, %d recovered, %d lost; %d refused", len(s.calls), committed, recovered, lost, s.refused)
}

// checkCalls checks that the log has every request once, at its cost or if its node crashed at its reservation.
func (s *sequence) checkCalls(b books) {
	for _, c := range s.calls {
		e, found := b.entries[c.id]
		delete(b.entries, c.id)
		atCost := found && e.settled && e.source == audit.UsageProvider && e.credits == c.cost
		recovered := found && e.settled && e.source == audit.UsageRecovered && e.credits == c.amount
		switch {
		case c.committed && atCost, c.settled && !c.committed && atCost, c.logged && !c.committed && recovered, !c.logged && !c.committed && !found:
		default:
			s.t.Errorf("got the entry %+v (%t), want that of %+v", e, found, c)
		}
	}
	for id, e := range b.entries {
		if e.credits != 0 { // a write in doubt that was refused
			s.t.Errorf("got %s with %+v, want no entry", id, e)
		}
	}
}

// checkUsage compares usage with the log.
func (s *sequence) checkUsage(b books) {
	var charged, used int64
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days"} {
		if err := s.d.QueryRow(s.t.Context(), "SELECT CAST(COALESCE(sum(credits), 0) AS BIGINT) FROM requests").Scan(&charged); err != nil {
			s.t.Fatal(err)
		}
		if err := s.d.QueryRow(s.t.Context(), "SELECT CAST(COALESCE(sum(credits), 0) AS BIGINT) FROM "+table).Scan(&used); err != nil {
			s.t.Fatal(err)
		}
		if used != charged {
			s.t.Errorf("got %d in %s, want %d as in the log", used, table, charged)
		}
	}
}

// checkRest checks that exactly the rest of each budget can be spent.
func (s *sequence) checkRest(b books) {
	n := s.start()
	defer n.stop()
	for i, budget := range s.budgets {
		limit := s.limitOf(i)
		left := limit - b.charged[accountPeriod{budget.Account, PeriodIn(budget.Window, s.now)}]
		if budget.unlimited || left <= 0 {
			continue
		}
		budget.Limit = &limit
		if _, err := n.cache.Reserve(s.t.Context(), []Cap{budget.Cap}, left, s.now); err != nil {
			s.t.Errorf("%v: got %v for the %d that are left, want a reservation", budget.Account, err, left)
		}
		if _, err := n.cache.Reserve(s.t.Context(), []Cap{budget.Cap}, 1, s.now); err == nil {
			s.t.Errorf("%v: one more than the %d that were left was reserved", budget.Account, left)
		}
	}
}
