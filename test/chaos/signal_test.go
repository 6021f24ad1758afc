package chaos

import (
	"errors"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestSignalSurvivesALostCommitResponse checks that listeners drop cached data after a
// lost commit response, because the change may have been committed.
func TestSignalSurvivesALostCommitResponse(t *testing.T) {
	longOnly(t, "db.TestSignalsReachOtherNodes")
	t.Parallel()
	wire, address := dropResponses(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	heard := make(chan string, 1)
	d.OnSignal("in.doubt", func(payload string) {
		if payload != "" { // an empty payload is for listeners that may have missed signals
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
		t.Fatalf("got error %v from the commit, want a lost response", err)
	}
	select {
	case <-heard:
	case <-time.After(5 * time.Second):
		t.Error("the listener got no signal")
	}
}
