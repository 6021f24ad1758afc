package spend

import (
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
		sure := func() bool { return true }
		one, other := books.Ledger("node_1", sure), books.Ledger("node_2", sure)
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
