package spend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

const (
	// SignalReclaim asks nodes to release the unused credits of an account in a
	// period, which is the payload.
	SignalReclaim = "spend.recall"
	// signalLimitChanged has the same payload.
	signalLimitChanged = "spend.changed"
)

// Ledger holds the balance of every account and period, and the leases of nodes
// and jobs. It is a database table that all nodes share.
type Ledger struct{ db *db.DB }

// NewLedger returns the ledger of a database.
func NewLedger(d *db.DB) *Ledger { return &Ledger{d} }

// LeaseCache returns an empty cache of the node's leases.
func (l *Ledger) LeaseCache(node *nodes.Node) *LeaseCache {
	c := newLeaseCache(newNodeLeases(l.db, node), node.ID, l.db.Engine() == "sqlite", node.LeaseValid)
	c.assertAlive = node.AssertAlive
	c.background = func(f func()) { go f() }
	l.db.OnSignal(signalLimitChanged, c.expireLeases)
	return c
}

// balance is a row of the ledger.
type balance struct {
	Settled credits.Micro // charged
	Leased  credits.Micro // leased to nodes and jobs, and neither charged nor released
}

// reservedBy returns the credits that others have reserved under the limit.
// free is the part of the leases that the caller can use. Leases from before a
// limit was lowered are being released: beyond the limit only charges count.
func (b balance) reservedBy(limit, free credits.Micro) credits.Micro {
	return max(0, min(b.Leased-free, limit-b.Settled))
}

// lockBalance returns the balance and locks its row until the transaction ends.
// Every transaction locks this row before its leases.
func lockBalance(ctx context.Context, tx *db.Tx, key accountPeriod) (balance, error) {
	return readBalance(ctx, tx, key, tx.Lock("spend"))
}

func readBalance(ctx context.Context, q db.Querier, key accountPeriod, lock string) (b balance, err error) {
	err = db.Scan(q.QueryRow(ctx, "SELECT settled, leased FROM spend WHERE level = $1 AND account_id = $2 AND period = $3"+lock,
		string(key.Level), key.ID, string(key.Period)), &b.Settled, &b.Leased)
	return b, db.IgnoreNotFound(err)
}

// addLeased changes the leased credits, and inserts a missing row.
func addLeased(ctx context.Context, tx *db.Tx, key accountPeriod, leased credits.Micro) error {
	_, err := tx.Exec(ctx, `INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, 0, $4)
		ON CONFLICT (level, account_id, period) DO UPDATE SET leased = spend.leased + $4`,
		string(key.Level), key.ID, string(key.Period), int64(leased))
	return err
}

// charge is the cost of a request. Every account is charged: from the owner's
// lease if the account has one. The ledger lowers that lease together with the charge,
// or if it is an end user's, when the lease is next refilled or released: there may be
// one per request, and too large a lease only keeps credits from other nodes.
type charge struct {
	holds  []hold
	amount credits.Micro
	owner  string // of leases that cover the charge under every budget; empty if none do
}

func (r *Reservation) charge(amount credits.Micro) charge {
	return charge{holds: r.holds, amount: min(amount, r.Amount), owner: r.cache.owner}
}

var (
	addBalances = db.NewBulk("spend", fmt.Sprintf(`ON CONFLICT (level, account_id, period) DO UPDATE SET
		settled = %s, leased = spend.leased + excluded.leased`, saturatingSum("spend", "settled")),
		"level text", "account_id text", "period text", "settled bigint", "leased bigint")
	readBalancesAfter = addBalances.Returning("level, account_id, period, settled, leased")
	lowerLeases       = db.NewBulkUpdate("spend_leases", "granted = spend_leases.granted - v.amount",
		`spend_leases.node_id = v.node_id AND spend_leases.level = v.level AND spend_leases.account_id = v.account_id
		AND spend_leases.period = v.period AND spend_leases.granted >= v.amount`,
		"node_id text", "level text", "account_id text", "period text", "amount bigint")
)

// postings are all ledger changes of a transaction, written in one pass:
// balances before leases, each in order. A second pass could deadlock: it would
// hold the workspace's balance while it waits for a key's.
type postings struct {
	accounts map[accountPeriod]*posting
	ended    []string // owners whose leases end; the other postings include their balances
}

// posting is the change of one account.
type posting struct {
	balance
	lowered []loweredLease // of different owners
}

// loweredLease is what is deducted from a lease.
type loweredLease struct {
	owner  string
	amount credits.Micro
}

func newPostings() *postings { return &postings{accounts: map[accountPeriod]*posting{}} }

// at returns the posting of an account, to add to it.
func (p *postings) at(key accountPeriod) *posting {
	to := p.accounts[key]
	if to == nil {
		to = &posting{}
		p.accounts[key] = to
	}
	return to
}

func (p *postings) charge(c charge) {
	if c.amount == 0 {
		return
	}
	for _, h := range c.holds {
		to := p.at(h.key)
		to.Settled = sum(to.Settled, c.amount)
		if h.lease != nil && c.owner != "" && h.key.Level != EndUser {
			to.lower(c.owner, c.amount)
		}
	}
}

// lower deducts an amount from a lease.
func (p *posting) lower(owner string, amount credits.Micro) {
	p.Leased = sum(p.Leased, -amount)
	i := slices.IndexFunc(p.lowered, func(l loweredLease) bool { return l.owner == owner })
	if i < 0 {
		p.lowered = append(p.lowered, loweredLease{owner, amount})
		return
	}
	p.lowered[i].amount = sum(p.lowered[i].amount, amount)
}

// charged returns the accounts with a charge, in order.
func (p *postings) charged() []accountPeriod {
	return slices.DeleteFunc(p.inOrder(), func(key accountPeriod) bool { return p.accounts[key].Settled <= 0 })
}

func (p *postings) inOrder() []accountPeriod {
	return slices.SortedFunc(maps.Keys(p.accounts), compare)
}

func (p *postings) write(ctx context.Context, tx *db.Tx) error {
	if err := p.writeBalances(ctx, tx); err != nil {
		return err
	}
	return p.writeLeases(ctx, tx)
}

// writeRead is write that returns the balances afterwards.
func (p *postings) writeRead(ctx context.Context, tx *db.Tx) (map[accountPeriod]balance, error) {
	after := make(map[accountPeriod]balance, len(p.accounts))
	if err := readBalancesAfter.Read(ctx, tx, p.balanceRows(), addTo(after)); err != nil {
		return nil, fmt.Errorf("post charges: %w", err)
	}
	return after, p.writeLeases(ctx, tx)
}

// addTo reads a balance with its key.
func addTo(balances map[accountPeriod]balance) func(db.Row) error {
	return func(r db.Row) error {
		var k accountPeriod
		var b balance
		err := db.Scan(r, &k.Level, &k.ID, &k.Period, &b.Settled, &b.Leased)
		balances[k] = b
		return err
	}
}

// sum saturates at the largest amount that the database and a budget can hold.
// Numbers that clients make up must not overflow it.
func sum[N ~int64](a, b N) N {
	return max(-N(credits.Max), min(a+b, N(credits.Max)))
}

// saturatingSum is sum in SQL, for a column and an added value.
func saturatingSum(table, column string) string {
	return fmt.Sprintf("CASE WHEN %[1]s.%[2]s > %[3]d - excluded.%[2]s THEN %[3]d ELSE %[1]s.%[2]s + excluded.%[2]s END", table, column, credits.Max)
}

func (p *postings) writeBalances(ctx context.Context, tx *db.Tx) error {
	return db.Wrap(addBalances.Send(ctx, tx, p.balanceRows(), nil), "post charges")
}

func (p *postings) balanceRows() [][]any {
	rows := make([][]any, 0, len(p.accounts))
	for _, key := range p.inOrder() {
		b := p.accounts[key]
		rows = append(rows, []any{string(key.Level), key.ID, string(key.Period), int64(b.Settled), int64(b.Leased)})
	}
	return rows
}

// writeLeases deducts charges from the leases, and ends some.
func (p *postings) writeLeases(ctx context.Context, tx *db.Tx) error {
	var rows [][]any
	for _, key := range p.inOrder() {
		lowered := p.accounts[key].lowered
		slices.SortFunc(lowered, func(a, b loweredLease) int { return strings.Compare(a.owner, b.owner) })
		for _, l := range lowered {
			rows = append(rows, []any{l.owner, string(key.Level), key.ID, string(key.Period), int64(l.amount)})
		}
	}
	err := lowerLeases.Send(ctx, tx, rows, func(n int64) error {
		if n != int64(len(rows)) { // a lease is never smaller than its reservations
			return fmt.Errorf("%d of %d leases cover what is charged to them", n, len(rows))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("post charges: %w", err)
	}
	return endLeases(ctx, tx, p.ended)
}

// endLeases deletes all leases of the owners. The caller has locked their
// balances and lowers them.
func endLeases(ctx context.Context, tx *db.Tx, owners []string) error {
	for some := range slices.Chunk(slices.Sorted(slices.Values(owners)), 500) { // parameters of one statement
		places, args := db.Places(nil, some)
		if _, err := tx.Exec(ctx, "DELETE FROM spend_leases WHERE node_id IN "+places, args...); err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
	}
	return nil
}

// closeLeases releases the unspent leases of an evicted node.
func closeLeases(ctx context.Context, tx *db.Tx, owner string) error {
	keys, err := db.List(ctx, tx, func(r db.Row) (key accountPeriod, err error) {
		err = db.Scan(r, &key.Level, &key.ID, &key.Period)
		return key, err
	}, "SELECT level, account_id, period FROM spend_leases WHERE node_id = $1", owner)
	if err != nil {
		return err
	}
	slices.SortFunc(keys, compare)
	for _, key := range keys {
		if err := closeLease(ctx, tx, owner, key); err != nil {
			return err
		}
	}
	return nil
}

func closeLease(ctx context.Context, tx *db.Tx, owner string, key accountPeriod) error {
	if _, err := lockBalance(ctx, tx, key); err != nil {
		return err
	}
	granted, err := grantedTo(ctx, tx, owner, key)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := deleteLease(ctx, tx, owner, key); err != nil {
		return err
	}
	return addLeased(ctx, tx, key, -granted)
}

// Balance is the spending of an account in a period, and its reserved credits.
type Balance struct {
	Spent    credits.Micro
	Reserved credits.Micro
}

// ReadBalance returns an account's balance.
func ReadBalance(ctx context.Context, q db.Querier, a Account, p Period) (Balance, error) {
	b, err := readBalance(ctx, q, accountPeriod{a, p}, "")
	return Balance{b.Settled, b.Leased}, err
}

// Spent returns the spending of a level's accounts in a period, by ID. Accounts
// without spending are missing.
func Spent(ctx context.Context, q db.Querier, level Level, ids []string, p Period) (map[string]credits.Micro, error) {
	out := make(map[string]credits.Micro, len(ids))
	query := db.InQuery{SQL: "SELECT account_id, settled FROM spend WHERE level = $1 AND period = $2 AND account_id IN", Args: []any{string(level), string(p)}}
	err := db.ByIDs(ctx, q, query, ids, func(r db.Row) error {
		var id string
		var settled credits.Micro
		err := db.Scan(r, &id, &settled)
		out[id] = settled
		return err
	})
	return out, db.Wrap(err, "read spend")
}

// balancesKept is how long balances of past windows are kept, except for those of workspaces, which the
// billing page shows.
const balancesKept = 62 * 24 * time.Hour

// PurgeBalances deletes up to limit balances of windows that are past. Lifetimes have no end.
func PurgeBalances(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (n int64, err error) {
	before := now.Add(-balancesKept)
	week := PeriodIn(accounts.WindowWeek, before)
	for _, r := range [][2]Period{
		{"", PeriodOf(before)}, // months and days before that month, and weeks of the years before
		{week[:len("2006-W")], week},
	} {
		deleted, err := tx.Exec(ctx, `DELETE FROM spend WHERE leased = 0 AND (level, account_id, period) IN (SELECT level, account_id, period FROM spend
			WHERE level <> 'workspace' AND period >= $1 AND period < $2 AND leased = 0 LIMIT $3)`, string(r[0]), string(r[1]), limit-n)
		if n += deleted; err != nil || n == limit {
			return n, db.Wrap(err, "purge balances")
		}
	}
	return n, nil
}

// Month is the spending of an account in a month.
type Month struct {
	Period Period
	Spent  credits.Micro
}

// Months returns the newest months in which an account has spending.
func Months(ctx context.Context, q db.Querier, a Account, limit int) ([]Month, error) {
	list, err := db.List(ctx, q, func(r db.Row) (m Month, err error) {
		err = db.Scan(r, &m.Period, &m.Spent)
		return m, err
	}, "SELECT period, settled FROM spend WHERE level = $1 AND account_id = $2 AND settled > 0 ORDER BY period DESC LIMIT $3",
		string(a.Level), a.ID, int64(limit))
	return list, db.Wrap(err, "read spend")
}
