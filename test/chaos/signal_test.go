package chaos

import (
	"errors"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSignalOfACommitThatIsNotAnswered: it may have been made, so whoever has
// something of it in memory must not rely on that.
func TestSignalOfACommitThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	wire, address := swallow(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	heard := make(chan string, 1)
	d.OnSignal("in.doubt", func(payload string) {
		if payload != "" { // that is for whoever may have missed some
			heard <- payload
		}
	})
	wire.after("INSERT INTO meta")
	wire.hangUp(true)
	if err := wire.begin(); err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		tx.Signal("in.doubt", "key_1")
		_, err := tx.Exec(t.Context(), "INSERT INTO meta (name, value) VALUES ('in doubt', 'x')")
		return err
	})
	if !errors.Is(err, db.ErrInDoubt) {
		t.Fatalf("the commit was answered: %v", err)
	}
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Error("the signal was not heard")
	}
}
