package agents

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// keyed gives the run a key that lives.
func (b *bench) keyed(t *testing.T) {
	t.Helper()
	k := &access.Key{WorkspaceID: b.who.WorkspaceID, Environment: accounts.Live, Name: "test", Scopes: []string{"agents.runs:create"}}
	err := b.db.Write(t.Context(), func(tx *db.Tx) error {
		w := &accounts.Workspace{ID: b.who.WorkspaceID, Name: "test"}
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		k.WorkspaceID = w.ID
		if _, err := access.NewKeys(b.ring, time.Now).Create(t.Context(), tx, access.Caller{Actor: audit.Operator}, k); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE agent_runs SET key_id = $2 WHERE id = $1", b.run.ID, k.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTimeThatEndsWhileACallIsWrittenDown: the call is not made, and nobody is
// asked what became of it.
func TestTimeThatEndsWhileACallIsWrittenDown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		b.keyed(t)
		r, _ := b.load(t)
		left := 300 * time.Millisecond
		r.Orders.TimeoutSeconds, r.Worked = 60, 60*time.Second-left
		// Nothing is written before the run's time is over.
		held, over := make(chan struct{}), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- d.Write(context.Background(), func(tx *db.Tx) error {
				_, err := tx.Exec(context.Background(), "UPDATE agent_runs SET model = model WHERE id = $1", r.ID)
				close(held)
				<-over
				return err
			})
		}()
		<-held
		late, stop := context.WithTimeout(t.Context(), 2*left)
		defer stop()
		context.AfterFunc(late, func() { close(over) })
		o, err := b.turn(t.Context(), r)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err != nil || b.calls.Load() != 0 || o.run.Worked < 60*time.Second {
			t.Fatalf("the tool was called %d times: %+v %v", b.calls.Load(), o, err)
		}
		b.write(t, o)
		r, calls := b.load(t)
		if r.Status != InProgress || calls[0].Status != callDone || !calls[0].IsError {
			t.Fatalf("it is %s with %+v", r.Status, calls[0])
		}
		r.Orders.TimeoutSeconds = 60
		if o, err = b.turn(t.Context(), r); err != nil || o.run.Status != Failed || o.run.Error.Code != "run_timeout" {
			t.Errorf("it came to %+v %v", o, err)
		}
	})
}

// TestTimeThatEndsInATurnIsCounted, whatever the turn came to.
func TestTimeThatEndsInATurnIsCounted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		b.keyed(t)
		b.run.Worked = 60*time.Second - time.Microsecond
		b.write(t, begin(b.run))
		r, _ := b.load(t)
		// Over before anything is read, also where timers are late.
		r.Orders.TimeoutSeconds, r.Worked = 60, 60*time.Second-time.Nanosecond
		o, err := b.turn(t.Context(), r)
		if err != nil || o.run.Worked < 60*time.Second || o.run.DueAt == nil || b.calls.Load() != 0 {
			t.Fatalf("it came to %+v %v", o, err)
		}
		b.write(t, o)
		if _, calls := b.load(t); o.lost || calls[0].Status != callReady {
			t.Errorf("its call is %+v", calls[0])
		}
	})
}

// TestACallThatWasNotBegunIsMadeLater: a server that stops knows that.
func TestACallThatWasNotBegunIsMadeLater(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		r, calls := b.load(t)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		o, err := b.act(ctx, r, calls)
		if err != nil {
			t.Fatal(err)
		}
		b.write(t, o)
		r, calls = b.load(t)
		if calls[0].Status != callReady || calls[0].StartedAt != nil || b.calls.Load() != 0 || r.DueAt == nil {
			t.Fatalf("it is %s with %+v", r.Status, calls[0])
		}
		if o, err = b.act(t.Context(), r, calls); err != nil || b.calls.Load() != 1 || o.calls[0].Status != callDone {
			t.Errorf("called %d times: %v", b.calls.Load(), err)
		}
	})
}
