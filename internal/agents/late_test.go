package agents

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
)

// TestACallThatTheLogWritesLateIsPaidFor: that it is not in the log says
// nothing while its entry is on the way there.
func TestACallThatTheLogWritesLateIsPaidFor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callDone, false)
		node, err := nodes.Join(t.Context(), d, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		g := db.NewGroup(d)
		t.Cleanup(g.Stop)
		slow, refused := make(chan struct{}), errors.New("as the test says")
		outcome := refused
		t.Cleanup(func() { // or a test that failed would wait for ever
			select {
			case <-slow:
			default:
				close(slow)
			}
		})
		log := audit.NewLog(g, node, func(context.Context, *db.Tx, []audit.Booking) error {
			<-slow
			return outcome
		})
		began := time.Now().Add(-2 * lastWrites)
		late := func() (string, *audit.Record) {
			began = began.Add(time.Millisecond)
			id := ids.Floor(ids.Request, began)
			input, output := int64(7), int64(3)
			r := log.Open(audit.Entry{RequestID: id, WorkspaceID: b.who.WorkspaceID, Environment: "live", KeyID: "key", Model: "m", CreatedAt: began})
			r.Settle(func(e *audit.Entry) {
				e.Status, e.Credits, e.InputTokens, e.OutputTokens, e.UsageSource = 200, 5*credits.Credit, &input, &output, audit.UsageProvider
			})
			b.late(id, r)
			return id, r
		}
		failed, record := late()
		o := begin(b.run)
		if _, wait, err := b.costOf(t.Context(), o, failed); err != nil || !wait {
			t.Fatalf("its entry is on the way: %t %v", wait, err)
		}
		close(slow)
		if err := record.Settled(10 * time.Second); err == nil {
			t.Fatal("it was written")
		}
		if got, wait, err := b.costOf(t.Context(), o, failed); err != nil || wait || got != (bill{}) || o.run.Credits != 0 {
			t.Errorf("one that could not be written: %+v %t %v", got, wait, err)
		}
		slow, outcome = make(chan struct{}), nil
		written, record := late()
		if _, wait, err := b.costOf(t.Context(), o, written); err != nil || !wait {
			t.Fatalf("its entry is on the way: %t %v", wait, err)
		}
		close(slow)
		if err := record.Settled(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if got, wait, err := b.costOf(t.Context(), o, written); err != nil || wait || got != (bill{7, 3, 5 * credits.Credit}) || o.run.Credits != 5*credits.Credit || o.run.InputTokens != 7 {
			t.Errorf("it came to %+v %t %v", got, wait, err)
		}
	})
}

// TestACallWhoseEntryIsLateIsRemembered, whatever came of the call.
func TestACallWhoseEntryIsLateIsRemembered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callDone, false)
		node, err := nodes.Join(t.Context(), d, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		away := dbtest.Open(t, dbtest.Address(t, "sqlite"))
		away.Close()
		g := db.NewGroup(away)
		t.Cleanup(g.Stop)
		b.log, b.gateway = audit.NewLog(g, node, nil), &gateway.Gateway{}
		id := ids.New(ids.Request)
		if _, err := b.chat(t.Context(), b.run, b.who, id, []byte("no call")); err == nil {
			t.Fatal("a call of nothing was made")
		}
		if b.unlogged[id] == nil {
			t.Error("nobody knows of its entry any more")
		}
	})
}
