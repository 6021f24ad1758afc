package spend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// SignalRecall asks nodes to give back what they do not use; the payload is a line.
const SignalRecall = "spend.recall"

// Books are the accounts in the store: the bank of every node's ledger.
type Books struct {
	db   *db.DB
	node string
}

// NewBooks opens the books for a node.
func NewBooks(d *db.DB, node string) *Books { return &Books{d, node} }

// Ledger makes this node's ledger.
func (b *Books) Ledger() *Ledger {
	g := newLedger(b, b.db.Engine() == "sqlite")
	return g
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

// book changes a line's balance. The line is locked first, its leases after it,
// by everybody.
func book(ctx context.Context, tx *db.Tx, l line, settled, leased credits.Micro) error {
	_, err := tx.Exec(ctx, `INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (level, account_id, period) DO UPDATE SET settled = spend.settled + $4, leased = spend.leased + $5`,
		string(l.Level), l.ID, string(l.Period), int64(settled), int64(leased))
	return err
}

func (b *Books) take(ctx context.Context, l line, limit, need, want credits.Micro) (got credits.Micro, left balance, err error) {
	err = b.db.Write(ctx, func(tx *db.Tx) error {
		got = 0
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
			b.node, string(l.Level), l.ID, string(l.Period), int64(got))
		return err
	})
	if err != nil {
		return 0, balance{}, fmt.Errorf("lease credits: %w", err)
	}
	return got, left, nil
}

func (b *Books) keep(ctx context.Context, l line, amount credits.Micro) error {
	err := b.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := read(ctx, tx, l); err != nil {
			return err
		}
		var granted int64
		err := tx.QueryRow(ctx, "SELECT granted FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4",
			b.node, string(l.Level), l.ID, string(l.Period)).Scan(&granted)
		if errors.Is(err, db.ErrNotFound) || err == nil && granted <= int64(amount) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := book(ctx, tx, l, 0, amount-credits.Micro(granted)); err != nil {
			return err
		}
		return b.setLease(ctx, tx, l, amount)
	})
	if err != nil {
		return fmt.Errorf("give credits back: %w", err)
	}
	return nil
}

func (b *Books) setLease(ctx context.Context, tx *db.Tx, l line, amount credits.Micro) error {
	query := "UPDATE spend_leases SET granted = $5 WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4"
	args := []any{b.node, string(l.Level), l.ID, string(l.Period), int64(amount)}
	if amount == 0 {
		query, args = "DELETE FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4", args[:4]
	}
	_, err := tx.Exec(ctx, query, args...)
	return err
}

func (b *Books) recall(ctx context.Context, l line) error {
	return b.db.Write(ctx, func(tx *db.Tx) error {
		tx.Signal(SignalRecall, l.String())
		return nil
	})
}

// Charge is what a call cost: it is booked to every account, and comes out of
// the lease of those that have a cap.
type Charge struct {
	Period   Period
	Accounts []Account
	Amount   credits.Micro
	// Leased are the lines of the call's reservation.
	Leased []line
}

// ChargeOf makes the charge that settles a reservation.
func ChargeOf(r *Reservation, accounts []Account, amount credits.Micro) Charge {
	return Charge{Period: r.Period, Accounts: accounts, Amount: min(amount, r.Amount), Leased: r.lines}
}

// Settle books charges in the transaction that records the calls.
func (b *Books) Settle(ctx context.Context, tx *db.Tx, charges []Charge) error {
	type sums struct{ settled, leased credits.Micro }
	by := map[line]*sums{}
	of := func(l line) *sums {
		if by[l] == nil {
			by[l] = &sums{}
		}
		return by[l]
	}
	for _, c := range charges {
		for _, a := range c.Accounts {
			of(line{a, c.Period}).settled += c.Amount
		}
		for _, l := range c.Leased {
			of(l).leased += c.Amount
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(by), compare) {
		s := by[l]
		if s.settled == 0 && s.leased == 0 {
			continue
		}
		if err := book(ctx, tx, l, s.settled, 0); err != nil {
			return fmt.Errorf("book charges: %w", err)
		}
		if s.leased == 0 {
			continue
		}
		// A node that was thought dead has no lease any more, and none to lower.
		n, err := tx.Exec(ctx, `UPDATE spend_leases SET granted = granted - $5
			WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4 AND granted >= $5`,
			b.node, string(l.Level), l.ID, string(l.Period), int64(s.leased))
		if err == nil && n > 0 {
			err = book(ctx, tx, l, 0, -s.leased)
		}
		if err != nil {
			return fmt.Errorf("book charges: %w", err)
		}
	}
	return nil
}

// Close ends the leases of a dead node, in the transaction that closes what it
// left open: what it had not spent is everybody's again.
func Close(ctx context.Context, tx *db.Tx, node string) error {
	rows, err := tx.Query(ctx, "SELECT level, account_id, period, granted FROM spend_leases WHERE node_id = $1", node)
	held := map[line]credits.Micro{}
	err = db.Each(rows, err, func(r db.Row) error {
		var level, period string
		var l line
		var granted int64
		if err := r.Scan(&level, &l.ID, &period, &granted); err != nil {
			return err
		}
		l.Level, l.Period = Level(level), Period(period)
		held[l] = credits.Micro(granted)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	for _, l := range slices.SortedFunc(maps.Keys(held), compare) {
		if err := book(ctx, tx, l, 0, -held[l]); err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4",
			node, string(l.Level), l.ID, string(l.Period)); err != nil {
			return fmt.Errorf("close leases: %w", err)
		}
	}
	return nil
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
