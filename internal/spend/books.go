package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// SignalRecall asks nodes to give back what they do not use; the payload is a line.
const SignalRecall = "spend.recall"

// signalChanged tells nodes that a limit was set anew; the payload is a line.
const signalChanged = "spend.changed"

// Books are the accounts in the store: the bank of every node's ledger.
type Books struct{ db *db.DB }

// NewBooks opens the books.
func NewBooks(d *db.DB) *Books { return &Books{d} }

// Ledger makes the ledger of a node.
func (b *Books) Ledger(node *nodes.Node) *Ledger {
	g := newLedger(nodeBank{b.db, node}, node.ID, b.db.Engine() == "sqlite", node.LeaseValid)
	g.assertAlive = node.AssertAlive
	g.aside = func(f func()) { go f() }
	b.db.OnSignal(signalChanged, g.changed)
	return g
}

// nodeBank is the bank of one node. An evicted node changes nothing in it.
type nodeBank struct {
	db   *db.DB
	node *nodes.Node
}

// read returns a line's balance, and holds the line until the transaction ends.
func read(ctx context.Context, tx *db.Tx, l line) (s balance, err error) {
	err = tx.QueryRow(ctx, "SELECT settled, leased FROM spend WHERE level = $1 AND account_id = $2 AND period = $3"+tx.Lock("spend"),
		string(l.Level), l.ID, string(l.Period)).Scan((*int64)(&s.Settled), (*int64)(&s.Leased))
	if errors.Is(err, db.ErrNotFound) {
		return balance{}, nil
	}
	return s, err
}

// sumOf is sum in SQL: what a column of a table has, and what is added to it.
func sumOf(table, column string) string {
	return fmt.Sprintf("CASE WHEN %[1]s.%[2]s > %[3]d - excluded.%[2]s THEN %[3]d ELSE %[1]s.%[2]s + excluded.%[2]s END", table, column, credits.Max)
}

// book changes a line's balance. The line is locked first, its leases after it,
// by everybody.
func book(ctx context.Context, tx *db.Tx, l line, settled, leased credits.Micro) error {
	_, err := tx.Exec(ctx, `INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (level, account_id, period) DO UPDATE SET settled = spend.settled + $4, leased = spend.leased + $5`,
		string(l.Level), l.ID, string(l.Period), int64(settled), int64(leased))
	return err
}

func (b nodeBank) take(ctx context.Context, l line, limit, need, want credits.Micro) (got credits.Micro, left balance, err error) {
	err = b.db.Write(ctx, func(tx *db.Tx) error {
		got = 0
		if err := b.node.AssertAlive(ctx, tx); err != nil {
			return err
		}
		// The row must be there to be held.
		if err := book(ctx, tx, l, 0, 0); err != nil {
			return err
		}
		if left, err = read(ctx, tx, l); err != nil {
			return err
		}
		room := limit - left.Settled - left.Leased
		if room < need || room <= 0 {
			return nil
		}
		got = min(max(need, min(want, room/chunkShare)), room)
		if err := book(ctx, tx, l, 0, got); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO spend_leases (node_id, level, account_id, period, granted) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (node_id, level, account_id, period) DO UPDATE SET granted = spend_leases.granted + $5`,
			b.node.ID, string(l.Level), l.ID, string(l.Period), int64(got))
		return err
	})
	if err != nil {
		return 0, balance{}, fmt.Errorf("lease credits: %w", err)
	}
	return got, left, nil
}

func (b nodeBank) keep(ctx context.Context, l line, amount credits.Micro) error {
	owner := b.node.ID
	err := b.db.Write(ctx, func(tx *db.Tx) error {
		if err := b.node.AssertAlive(ctx, tx); err != nil {
			return err
		}
		if _, err := read(ctx, tx, l); err != nil {
			return err
		}
		granted, err := grantedOf(ctx, tx, owner, l)
		if errors.Is(err, db.ErrNotFound) {
			// A commit in doubt that makes the line itself may still be under way: it is
			// waited for.
			if err := book(ctx, tx, l, 0, 0); err != nil {
				return err
			}
			granted, err = grantedOf(ctx, tx, owner, l)
		}
		spent := granted == 0 && amount == 0 // its row is left
		if errors.Is(err, db.ErrNotFound) || err == nil && granted <= int64(amount) && !spent {
			return nil
		}
		if err != nil {
			return err
		}
		if err := book(ctx, tx, l, 0, amount-credits.Micro(granted)); err != nil {
			return err
		}
		return setLease(ctx, tx, owner, l, amount)
	})
	if err != nil {
		return fmt.Errorf("give credits back: %w", err)
	}
	return nil
}

func grantedOf(ctx context.Context, tx *db.Tx, owner string, l line) (granted int64, err error) {
	err = tx.QueryRow(ctx, "SELECT granted FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4",
		owner, string(l.Level), l.ID, string(l.Period)).Scan(&granted)
	return granted, err
}

func setLease(ctx context.Context, tx *db.Tx, owner string, l line, amount credits.Micro) error {
	query := "UPDATE spend_leases SET granted = $5 WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4"
	args := []any{owner, string(l.Level), l.ID, string(l.Period), int64(amount)}
	if amount == 0 {
		query, args = "DELETE FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4", args[:4]
	}
	_, err := tx.Exec(ctx, query, args...)
	return err
}

func (b nodeBank) recall(ctx context.Context, l line) error {
	return b.db.Write(ctx, func(tx *db.Tx) error {
		tx.Signal(SignalRecall, l.String())
		return nil
	})
}

// charge is what a request cost. Every line is charged, and those that the
// request's reservation held are charged out of their lease.
type charge struct {
	lines  []line
	amount credits.Micro
	leased []leased
}

// leased is a line and who has the lease of it.
type leased struct {
	line  line
	owner string
}

// charge returns what settles the reservation.
func (r *Reservation) charge(amount credits.Micro) charge {
	c := charge{lines: r.lines, amount: min(amount, r.Amount)}
	for _, h := range r.holds {
		c.leased = append(c.leased, leased{h.line, r.ledger.owner})
	}
	return c
}

var (
	bookLines = db.NewBulk("spend", fmt.Sprintf(`ON CONFLICT (level, account_id, period) DO UPDATE SET
		settled = %s, leased = spend.leased + excluded.leased`, sumOf("spend", "settled")),
		"level text", "account_id text", "period text", "settled bigint", "leased bigint")
	lowerLeases = db.NewBulkUpdate("spend_leases", "granted = spend_leases.granted - v.amount",
		`spend_leases.node_id = v.node_id AND spend_leases.level = v.level AND spend_leases.account_id = v.account_id
		AND spend_leases.period = v.period AND spend_leases.granted >= v.amount`,
		"node_id text", "level text", "account_id text", "period text", "amount bigint")
)

// postings are all that a transaction changes in the books. They are written in
// one pass, the lines first and their leases after them, each in order, as
// everybody locks them: a transaction that came back for the line of another key
// would hold its workspace's, which whoever has that key's line waits for.
type postings struct {
	lines   map[line]balance
	lowered map[leased]credits.Micro
	ended   []string // owners whose leases end; their lines are among the others
}

func newPostings() *postings {
	return &postings{lines: map[line]balance{}, lowered: map[leased]credits.Micro{}}
}

func (p *postings) charge(c charge) {
	if c.amount == 0 {
		return
	}
	for _, l := range c.lines {
		add(p.lines, l, balance{Settled: c.amount})
	}
	for _, l := range c.leased {
		p.lowered[l] = sum(p.lowered[l], c.amount)
		add(p.lines, l.line, balance{Leased: -c.amount})
	}
}

// charged are the lines of a level that were charged something, in order.
func (p *postings) charged(level Level) []line {
	var list []line
	for l, b := range p.lines {
		if l.Level == level && b.Settled > 0 {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func (p *postings) write(ctx context.Context, tx *db.Tx) error {
	if err := bookAll(ctx, tx, p.lines); err != nil {
		return err
	}
	if err := lower(ctx, tx, p.lowered); err != nil {
		return err
	}
	return endLeases(ctx, tx, p.ended)
}

func add(to map[line]balance, l line, b balance) {
	was := to[l]
	to[l] = balance{Settled: sum(was.Settled, b.Settled), Leased: sum(was.Leased, b.Leased)}
}

// sum stays within what the store has room for, and a budget can be set to:
// whoever makes up numbers must not make a sum start anew below zero.
func sum[N ~int64](a, b N) N {
	return max(-N(credits.Max), min(a+b, N(credits.Max)))
}

// bookAll changes the lines' balances.
func bookAll(ctx context.Context, tx *db.Tx, changes map[line]balance) error {
	rows := make([][]any, 0, len(changes))
	for _, l := range slices.SortedFunc(maps.Keys(changes), compare) {
		rows = append(rows, []any{string(l.Level), l.ID, string(l.Period), int64(changes[l].Settled), int64(changes[l].Leased)})
	}
	if err := bookLines.Send(ctx, tx, rows, nil); err != nil {
		return fmt.Errorf("book charges: %w", err)
	}
	return nil
}

// lower takes what was charged out of the leases.
func lower(ctx context.Context, tx *db.Tx, amounts map[leased]credits.Micro) error {
	order := slices.SortedFunc(maps.Keys(amounts), func(a, b leased) int {
		return cmp.Or(compare(a.line, b.line), strings.Compare(a.owner, b.owner))
	})
	rows := make([][]any, len(order))
	for i, l := range order {
		rows[i] = []any{l.owner, string(l.line.Level), l.line.ID, string(l.line.Period), int64(amounts[l])}
	}
	err := lowerLeases.Send(ctx, tx, rows, func(n int64) error {
		if n != int64(len(order)) { // a lease is never smaller than what is reserved of it
			return fmt.Errorf("%d of %d leases cover what is charged to them", n, len(order))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("book charges: %w", err)
	}
	return nil
}

// endLeases deletes what owners have leases of. Their lines are held, and what
// was leased is booked there.
func endLeases(ctx context.Context, tx *db.Tx, owners []string) error {
	for some := range slices.Chunk(slices.Sorted(slices.Values(owners)), 500) { // a statement has room for so many, and more
		places, args := placesOf(some)
		if _, err := tx.Exec(ctx, "DELETE FROM spend_leases WHERE node_id IN ("+places+")", args...); err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
	}
	return nil
}

// placesOf are values as the parameters of a statement, from $1 on.
func placesOf(values []string) (places string, args []any) {
	for i, v := range values {
		if i > 0 {
			places += ", "
		}
		places += "$" + strconv.Itoa(i+1)
		args = append(args, v)
	}
	return places, args
}

// CloseEvicted ends the leases of evicted nodes whose open log entries are
// charged: the charges come out of the leases.
func (b *Books) CloseEvicted(ctx context.Context) error {
	// A job ends its own lease.
	rows, err := b.db.Query(ctx, `SELECT DISTINCT node_id FROM spend_leases WHERE (node_id < $1 OR node_id >= $2)
		AND node_id NOT IN (SELECT id FROM nodes)`, jobPrefix, afterJobs)
	evicted, err := db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
	if err != nil {
		return fmt.Errorf("close leases: %w", err)
	}
	var failed error
	for _, node := range evicted {
		err := b.db.Write(ctx, func(tx *db.Tx) error {
			if open, err := audit.HasOpen(ctx, tx, node); err != nil || open {
				return err // the next recovery charges them
			}
			return closeLeases(ctx, tx, node)
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("close leases of %s: %w", node, err))
		}
	}
	return failed
}

// closeLeases releases what an evicted node has leased and not spent.
func closeLeases(ctx context.Context, tx *db.Tx, owner string) error {
	lines, err := leasesOf(ctx, tx, owner)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if err := closeLease(ctx, tx, owner, l); err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
	}
	return nil
}

// leasesOf are the lines that an owner has leases of, as everybody locks them.
func leasesOf(ctx context.Context, tx *db.Tx, owner string) ([]line, error) {
	rows, err := tx.Query(ctx, "SELECT level, account_id, period FROM spend_leases WHERE node_id = $1", owner)
	lines, err := db.All(rows, err, func(r db.Row) (l line, err error) {
		err = r.Scan((*string)(&l.Level), &l.ID, (*string)(&l.Period))
		return l, err
	})
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	slices.SortFunc(lines, compare)
	return lines, nil
}

func closeLease(ctx context.Context, tx *db.Tx, owner string, l line) error {
	if _, err := read(ctx, tx, l); err != nil { // held first, as everybody does
		return err
	}
	var granted int64
	err := tx.QueryRow(ctx, "DELETE FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4 RETURNING granted",
		owner, string(l.Level), l.ID, string(l.Period)).Scan(&granted)
	if errors.Is(err, db.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return book(ctx, tx, l, 0, -credits.Micro(granted))
}

// Balance is what an account has spent in a month, and what is set aside.
type Balance struct {
	Spent    credits.Micro
	Reserved credits.Micro
}

// Read returns an account's balance.
func Read(ctx context.Context, q db.Querier, a Account, p Period) (out Balance, err error) {
	err = q.QueryRow(ctx, "SELECT settled, leased FROM spend WHERE level = $1 AND account_id = $2 AND period = $3",
		string(a.Level), a.ID, string(p)).Scan((*int64)(&out.Spent), (*int64)(&out.Reserved))
	if errors.Is(err, db.ErrNotFound) {
		return Balance{}, nil
	}
	return out, err
}

// Spent is what accounts of a level have spent in a month, by their ids; those
// that have spent nothing are left out.
func Spent(ctx context.Context, q db.Querier, level Level, ids []string, p Period) (map[string]credits.Micro, error) {
	out := make(map[string]credits.Micro, len(ids))
	for some := range slices.Chunk(ids, 500) { // a statement has room for so many, and more
		args, places := []any{string(level), string(p)}, make([]string, len(some))
		for i, id := range some {
			args = append(args, id)
			places[i] = "$" + strconv.Itoa(len(args))
		}
		rows, err := q.Query(ctx, "SELECT account_id, settled FROM spend WHERE level = $1 AND period = $2 AND account_id IN ("+strings.Join(places, ", ")+")", args...)
		err = db.Each(rows, err, func(r db.Row) error {
			var id string
			var settled int64
			if err := r.Scan(&id, &settled); err != nil {
				return err
			}
			out[id] = credits.Micro(settled)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read spend: %w", err)
		}
	}
	return out, nil
}

// Month is what an account has spent in a month.
type Month struct {
	Period Period
	Spent  credits.Micro
}

// Months are the newest months in which an account has spent something.
func Months(ctx context.Context, q db.Querier, a Account, limit int) ([]Month, error) {
	rows, err := q.Query(ctx, "SELECT period, settled FROM spend WHERE level = $1 AND account_id = $2 AND settled > 0 ORDER BY period DESC LIMIT $3",
		string(a.Level), a.ID, int64(limit))
	list, err := db.All(rows, err, func(r db.Row) (m Month, err error) {
		err = r.Scan((*string)(&m.Period), (*int64)(&m.Spent))
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("read spend: %w", err)
	}
	return list, nil
}
