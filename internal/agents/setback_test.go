package agents

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

// TestACallOfAWrongFutureIsNotWaitedFor: a clock that was ahead is set right, and
// a node has died over a call before that.
func TestACallOfAWrongFutureIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callDone, false)
		for ago, want := range map[time.Duration]bool{-24 * time.Hour: false, -2 * lastWrites: false, -lastWrites / 2: true, lastWrites / 2: true, 2 * lastWrites: false} {
			if _, wait, err := b.costOf(t.Context(), begin(b.run), ids.Floor(ids.Request, time.Now().Add(-ago))); err != nil || wait != want {
				t.Errorf("one of %s ago is waited for: %t %v", ago, wait, err)
			}
		}
		if _, wait, err := b.costOf(t.Context(), begin(b.run), ""); err != nil || wait {
			t.Errorf("one that is still to be made is waited for: %t %v", wait, err)
		}
	})
}

// TestARunThatIsDueInAWrongFutureGoesOn when a server starts, and one that
// somebody is waited for is still waited for.
func TestARunThatIsDueInAWrongFutureGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		b.keyed(t)
		tomorrow, soon := time.Now().Add(24*time.Hour), time.Now().Add(2*time.Minute)
		asks, retries := *b.run, *b.run
		asks.ID, asks.Status, asks.DueAt = ids.New(ids.Run), AwaitingApproval, &tomorrow
		retries.ID, retries.DueAt = ids.New(ids.Run), &soon
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			for _, r := range []*Run{&asks, &retries} {
				if err := insertRun(t.Context(), tx, r); err != nil {
					return err
				}
			}
			_, err := tx.Exec(t.Context(), "UPDATE agent_runs SET due_at = $2 WHERE id = $1", b.run.ID, tomorrow.UnixMicro())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			b.Run(ctx)
			close(stopped)
		}()
		select {
		case <-b.keys:
		case <-time.After(20 * time.Second):
			t.Error("its tool was not called")
		}
		stop()
		<-stopped
		for _, r := range []*Run{&asks, &retries} {
			var due int64
			if err := d.QueryRow(t.Context(), "SELECT due_at FROM agent_runs WHERE id = $1", r.ID).Scan(&due); err != nil || due != r.DueAt.UnixMicro() {
				t.Errorf("one that is %s is due %s instead of %s: %v", r.Status, time.UnixMicro(due), r.DueAt, err)
			}
		}
	})
}
