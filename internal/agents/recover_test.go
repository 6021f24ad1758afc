package agents

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
)

// newLog returns a request log that is written to a database.
func newLog(t *testing.T, nodeDB, logDB *db.DB, book func(context.Context, *db.Tx, []audit.Settlement) error) *audit.Log {
	t.Helper()
	node, err := nodes.Join(t.Context(), nodeDB, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(logDB)
	t.Cleanup(g.Stop)
	return audit.NewLog(g, node, book)
}

// TestRunWaitsForLateLogEntry: a call is not taken for one that was not made
// while its log entry is being written.
func TestRunWaitsForLateLogEntry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callCompleted)
		began := time.Now().Add(-2 * maxLogDelay)
		for _, c := range []struct {
			err  error // of the write
			want usage
		}{{errors.New("rejected"), usage{}}, {nil, usage{7, 3, 5 * credits.Credit}}} {
			blocked := make(chan struct{})
			log := newLog(t, d, d, func(context.Context, *db.Tx, []audit.Settlement) error {
				<-blocked
				return c.err
			})
			began = began.Add(time.Millisecond)
			id := ids.Floor(ids.Request, began)
			input, output := int64(7), int64(3)
			record := log.Open(audit.Entry{RequestID: id, Tenant: accounts.Tenant{WorkspaceID: f.principal.WorkspaceID, Environment: "live"}, KeyID: "key", Model: "m", CreatedAt: began})
			record.Settle(func(e *audit.Entry) {
				e.Status, e.Credits, e.InputTokens, e.OutputTokens, e.UsageSource = 200, 5*credits.Credit, &input, &output, audit.UsageProvider
			})
			f.trackUnlogged(id, record)
			o := newOutcome(f.run)
			_, wait, err := f.chargeFromLog(t.Context(), o, id)
			close(blocked) // before a failure, as the log's writer must stop
			if err != nil || !wait {
				t.Fatalf("before the entry is written: wait %t, %v; want to wait", wait, err)
			}
			if err := record.Settled(10 * time.Second); (err == nil) != (c.err == nil) {
				t.Fatalf("writing the entry: %v, want %v", err, c.err)
			}
			if got, wait, err := f.chargeFromLog(t.Context(), o, id); err != nil || wait || got != c.want || o.run.Credits != c.want.Credits {
				t.Errorf("after the write: %+v, wait %t, %v; want %+v", got, wait, err, c.want)
			}
		}
	})
}

func TestFailedCallWithLateLogEntryIsTracked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callCompleted)
		closed := dbtest.Open(t, dbtest.Address(t, "sqlite"))
		closed.Close()
		f.Log, f.complete = newLog(t, d, closed, nil), (&gateway.Gateway{}).Chat
		id := ids.New(ids.Request)
		if _, err := f.chat(t.Context(), f.run, f.principal, id, []byte("not JSON")); err == nil {
			t.Fatal("an invalid call succeeded")
		}
		if f.unlogged[id] == nil {
			t.Error("the call's log entry is not tracked")
		}
	})
}

// TestRunWaitsOnlyForRecentCallsToAppearInTheLog, and not for one whose ID comes
// from a clock that was ahead.
func TestRunWaitsOnlyForRecentCallsToAppearInTheLog(t *testing.T) {
	t.Parallel()
	s := &Service{logDelay: maxLogDelay}
	for age, want := range map[time.Duration]bool{-24 * time.Hour: false, -2 * maxLogDelay: false, -maxLogDelay / 2: true, maxLogDelay / 2: true, 2 * maxLogDelay: false} {
		if got := s.mayStillBeLogged(ids.Floor(ids.Request, time.Now().Add(-age))); got != want {
			t.Errorf("a call %s ago: got %t, want %t", age, got, want)
		}
	}
	if s.mayStillBeLogged("") {
		t.Error("a call without an ID may still be logged")
	}
}

// TestRunWaitingForCreditsRetriesLessAndLessOften: a check counts from the time
// of the answer, not of the step.
func TestRunWaitingForCreditsRetriesLessAndLessOften(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callCompleted)
		now := time.Now()
		for waited, want := range map[time.Duration]time.Duration{0: minBackoff, 40 * time.Second: 10 * time.Second, time.Hour: maxBackoff} {
			r, _ := f.load(t)
			answered := now.Add(-waited)
			o := newOutcome(r)
			o.step = &Step{RunID: r.ID, Number: r.StepsUsed, ID: "step", Status: stepCompleted, CreatedAt: now.Add(-24 * time.Hour), CompletedAt: &answered}
			f.write(t, o)
			r, _ = f.load(t)
			o = newOutcome(r)
			if _, wait, err := f.recoverInFlight(t.Context(), o); err != nil || wait {
				t.Fatal(wait, err)
			}
			if got := o.backoff(now).Round(time.Millisecond); got != want {
				t.Errorf("backoff after %s: got %s, want %s", waited, got, want)
			}
		}
	})
}
