package spend

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestALimitThatWasRaisedForAWhileHoldsAgain: a node has all of a limit. It is
// raised, another node takes the rest, and it is lowered again. What the first
// one's call did not need is nobody's then, though it was taken under the limit
// that holds.
func TestALimitThatWasRaisedForAWhileHoldsAgain(t *testing.T) {
	t.Parallel()
	account := Account{Key, "key_1"}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		books := NewBooks(d)
		one, other := books.Ledger(join(t, d)), books.Ledger(join(t, d))
		one.patience = 0
		now := time.Now()
		reserve := func(g *Ledger, limit credits.Micro) (*Reservation, error) {
			return g.Reserve(t.Context(), []Cap{{account, &limit}}, credits.Credit, now)
		}
		first, err := reserve(one, credits.Credit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reserve(other, 2*credits.Credit); err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error { Recall(tx, account, PeriodOf(now)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		first.Release()
		var refusal *Refusal
		if _, err := reserve(one, credits.Credit); !errors.As(err, &refusal) {
			t.Errorf("a call began beside another that has all of the limit (%v)", err)
		}
	})
}

// changing is a bank during whose first lease the limit is set anew.
type changing struct {
	bank
	ledger *Ledger
	takes  int
}

func (b *changing) take(ctx context.Context, l line, limit, need, want credits.Micro) (credits.Micro, balance, error) {
	got, left, err := b.bank.take(ctx, l, limit, need, want)
	if b.takes++; b.takes == 1 {
		b.ledger.changed("")
	}
	return got, left, err
}

func TestALeaseThatIsTakenWhileTheLimitChangesIsTakenAnew(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := NewBooks(d).Ledger(join(t, d))
		b := &changing{bank: g.bank, ledger: g}
		g.bank, g.aside = b, nil
		limit := 10 * credits.Credit
		if _, err := g.Reserve(t.Context(), []Cap{{Account{Key, "key_1"}, &limit}}, credits.Credit, time.Now()); err != nil || b.takes != 2 {
			t.Errorf("it was asked for %d times (%v)", b.takes, err)
		}
	})
}
