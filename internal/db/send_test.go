package db_test

import (
	"errors"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestWhatWasSentIsThereForTheNextStatement, in order, and whoever sent it is
// told how much of it was new.
func TestWhatWasSentIsThereForTheNextStatement(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		bulk := db.NewBulk("scratch", "ON CONFLICT (id) DO NOTHING", "id text")
		var told []int64
		tell := func(n int64) error {
			told = append(told, n)
			return nil
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if err := bulk.Send(t.Context(), tx, [][]any{{"a"}, {"b"}}, tell); err != nil {
				return err
			}
			again := func(n int64) error {
				told = append(told, n)
				return bulk.Send(t.Context(), tx, [][]any{{"d"}}, tell)
			}
			if err := bulk.Send(t.Context(), tx, [][]any{{"b"}, {"c"}}, again); err != nil {
				return err
			}
			var n int64
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM scratch").Scan(&n); err != nil || n != 4 {
				t.Errorf("the transaction sees %d rows (%v)", n, err)
			}
			return bulk.Send(t.Context(), tx, [][]any{{"e"}}, tell)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := count(t, d); n != 5 {
			t.Errorf("%d rows are there", n)
		}
		if len(told) != 4 || told[0] != 2 || told[1] != 1 || told[2] != 1 || told[3] != 1 {
			t.Errorf("told %v", told)
		}
	})
}

// TestWhatCannotBeWrittenFailsTheTransactionThatSentIt, whoever sees it first.
func TestWhatCannotBeWrittenFailsTheTransactionThatSentIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		bulk := db.NewBulk("scratch", "", "id text")
		for _, asks := range []bool{false, true} {
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				if err := bulk.Send(t.Context(), tx, [][]any{{"a"}}, nil); err != nil {
					return err
				}
				if err := bulk.Send(t.Context(), tx, [][]any{{"a"}}, nil); err != nil {
					return err
				}
				if !asks {
					return nil
				}
				var n int64
				return tx.QueryRow(t.Context(), "SELECT count(*) FROM scratch").Scan(&n)
			})
			if !errors.Is(err, db.ErrExists) || errors.Is(err, db.ErrInDoubt) {
				t.Errorf("a row that is there twice: %v", err)
			}
		}
		refused := errors.New("refused")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			return bulk.Send(t.Context(), tx, [][]any{{"b"}}, func(int64) error { return refused })
		})
		if !errors.Is(err, refused) {
			t.Errorf("what followed was refused: %v", err)
		}
		if n := count(t, d); n != 0 {
			t.Errorf("%d rows are there of transactions that failed", n)
		}
	})
}
