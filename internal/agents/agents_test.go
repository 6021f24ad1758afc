package agents

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/safehttp"
)

// TestRunMovesOnlyAlongTheTransitionTable: the documented transitions work, and
// no others do.
func TestRunMovesOnlyAlongTheTransitionTable(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{}
	for _, line := range []string{
		"queued in_progress", "queued cancelled", "queued failed",
		"in_progress awaiting_approval", "in_progress requires_action", "in_progress verifying", "in_progress cancelling", "in_progress queued", "in_progress failed",
		"awaiting_approval queued", "awaiting_approval requires_action", "awaiting_approval failed", "awaiting_approval cancelled",
		"requires_action queued", "requires_action failed", "requires_action cancelled",
		"verifying completed", "verifying in_progress", "verifying cancelling", "verifying queued", "verifying failed",
		"cancelling cancelled",
	} {
		allowed[line] = true
	}
	for _, from := range Statuses {
		for _, to := range Statuses {
			o := newOutcome(&Run{Status: from})
			want := from
			ok := from == to || allowed[string(from)+" "+string(to)]
			if ok {
				want = to
			}
			if err := o.transition(to, time.Now()); (err == nil) != ok || o.run.Status != want {
				t.Errorf("from %s to %s: got %s (%v), want %s", from, to, o.run.Status, err, want)
			}
		}
		if from.Ended() != (len(transitions[from]) == 0) {
			t.Errorf("%s.Ended() = %t with transitions to %v", from, from.Ended(), transitions[from])
		}
	}
}

// TestRunIsNeverScheduledFarAhead, whatever a provider's Retry-After says.
func TestRunIsNeverScheduledFarAhead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for delay, want := range map[time.Duration]time.Duration{0: 0, time.Minute: time.Minute, 48 * time.Hour: maxDelay} {
		o := newOutcome(&Run{})
		if o.schedule(now, delay); o.run.DueAt.Sub(now) != want {
			t.Errorf("schedule(now, %s): due after %s, want %s", delay, o.run.DueAt.Sub(now), want)
		}
	}
}

// fixture is a service with a run that has one tool call. The tool's server
// counts its requests.
type fixture struct {
	*Service
	requests  *atomic.Int64
	run       *Run
	principal *access.Principal
}

func newService(t *testing.T, d *db.DB, now func() time.Time) *Service {
	t.Helper()
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{DB: d, Ring: ring, Guard: safehttp.New(safehttp.Policy{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Publisher: events.NewPublisher(now), Node: ids.New("node_"), PerLane: 1, Slots: 1, Version: "1", Now: now}, Settings{CallsPerStep: 16, CallsPerRun: 500})
	t.Cleanup(s.group.Stop)
	return s
}

func newFixture(t *testing.T, d *db.DB, status CallStatus) *fixture {
	t.Helper()
	f := &fixture{Service: newService(t, d, time.Now), requests: new(atomic.Int64), principal: newKey(t, d)}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.requests.Add(1) }))
	t.Cleanup(server.Close)
	now := time.Now()
	schema := json.RawMessage(`{"type":"object"}`)
	f.run = &Run{ID: ids.New(ids.Run), Tenant: accounts.Tenant{WorkspaceID: f.principal.WorkspaceID, Environment: accounts.Live}, KeyID: f.principal.KeyID, Status: InProgress, Model: "m",
		Metadata: map[string]string{}, MaxSteps: 9, DueAt: &now, CreatedAt: now, Lane: "lane", Config: config{ApprovalSeconds: 60, ToolOutputSeconds: 60, TimeoutSeconds: 60},
		Specs: []tools.Spec{{Type: tools.HTTP, Name: "pay", Method: "POST", URL: server.URL, Parameters: schema}}}
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return insertRun(t.Context(), tx, f.run) }); err != nil {
		t.Fatal(err)
	}
	o := newOutcome(f.run)
	o.run.StepsUsed, o.run.Resolved = 1, true
	o.run.Tools = []tools.Tool{{Name: "pay", Kind: tools.HTTP, Parameters: schema}}
	o.calls = []*Call{{RunID: f.run.ID, Step: 1, ID: callID(1, 0), Tool: "pay", Kind: tools.HTTP, Arguments: "{}", Hash: hashOf("{}"), Status: status}}
	f.write(t, o)
	f.run, _ = f.load(t)
	return f
}

// newKey creates a workspace with a key that may create runs.
func newKey(t *testing.T, d *db.DB) *access.Principal {
	t.Helper()
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	k := &access.Key{Tenant: accounts.Tenant{Environment: accounts.Live}, Name: "test", Scopes: []string{"agents.runs:create"}}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		w := &accounts.Workspace{Name: ids.New("test_")}
		if err := accounts.CreateWorkspace(t.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		k.WorkspaceID = w.ID
		_, err := access.NewKeys(ring, time.Now).Create(t.Context(), tx, access.Caller{Actor: audit.Operator}, k)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &access.Principal{Tenant: accounts.Tenant{WorkspaceID: k.WorkspaceID, Environment: accounts.Live}, KeyID: k.ID}
}

// load returns the run and its calls as they are stored.
func (f *fixture) load(t *testing.T) (*Run, []*Call) {
	t.Helper()
	r, err := f.loadRun(t.Context(), f.run.ID)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := f.Calls(t.Context(), f.DB, r.ID, 1, r.StepsUsed)
	if err != nil {
		t.Fatal(err)
	}
	return r, calls
}

func (f *fixture) write(t *testing.T, list ...*outcome) {
	t.Helper()
	if err := f.DB.Write(t.Context(), func(tx *db.Tx) error { return f.writeOutcomes(t.Context(), tx, list) }); err != nil {
		t.Fatal(err)
	}
}

// expiredContext is a context whose deadline passes when expire is called.
type expiredContext struct {
	context.Context
	done chan struct{}
}

func (c expiredContext) Done() <-chan struct{} { return c.done }

func (c expiredContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestToolIsNotCalledIfTheRunTimesOutDuringItsCheckpoint, and the call is known
// not to have been made.
func TestToolIsNotCalledIfTheRunTimesOutDuringItsCheckpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callReady)
		ctx := expiredContext{t.Context(), make(chan struct{})}
		f.outcomes = db.NewQueue(f.group, true, func(c context.Context, tx *db.Tx, list []*outcome) error {
			close(ctx.done)
			return f.writeOutcomes(c, tx, list)
		})
		r, calls := f.load(t)
		o, err := f.act(ctx, r, calls)
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, o)
		r, calls = f.load(t)
		if f.requests.Load() != 0 || r.Status != InProgress || calls[0].Status != callCompleted || !calls[0].IsError {
			t.Errorf("%d requests, run %s, call %+v; want no request and a completed call with an error", f.requests.Load(), r.Status, calls[0])
		}
		r.Worked = time.Minute
		if o, err = f.runTurn(t.Context(), r); err != nil || o.run.Status != Failed || o.run.Error.Code != "run_timeout" {
			t.Errorf("the next turn: %+v, %v; want run_timeout", o, err)
		}
	})
}

func TestInterruptedTurnCountsTowardTheRunTimeout(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callReady)
		r, _ := f.load(t)
		r.Worked = time.Minute - time.Nanosecond // over before the turn reads anything
		o, err := f.runTurn(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if o.run.DueAt == nil || o.run.Worked <= 0 || f.requests.Load() != 0 {
			t.Fatalf("%+v with %d requests; want a due run without requests", o.run, f.requests.Load())
		}
		f.write(t, o)
		if _, calls := f.load(t); o.stale || calls[0].Status != callReady {
			t.Errorf("stale %t, call %s; want a ready call", o.stale, calls[0].Status)
		}
	})
}

func TestRunTimeoutIgnoresRunsOwnedByAnotherNode(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, status := range []CallStatus{callAwaitingApproval, callCompleted} {
			f := newFixture(t, d, status)
			if _, err := f.reload(t.Context(), f.run.ID); err != nil {
				t.Fatal(err)
			}
			_, calls := f.load(t)
			o := newOutcome(f.run)
			o.calls = calls
			var err error
			if status == callAwaitingApproval {
				calls[0].requestApproval(o.run, "", time.Now())
				err = o.proceed(time.Now())
			} else {
				err = o.end(Failed, runError("model_error", "test"), time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
			f.write(t, o)
			if _, err := f.reload(t.Context(), f.run.ID); !errors.Is(err, errStale) {
				t.Errorf("reload of a run that is %s: %v, want errStale", o.run.Status, err)
			}
		}
	})
}

func TestCheckFailureDoesNotContainItsURL(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, callCompleted)
		server := httptest.NewServer(nil)
		server.Close()
		_, err := f.requestCheck(t.Context(), f.run, serverCheck{check: check{Type: checkHTTP, URL: server.URL + "/check?token=secret"}}, nil)
		if !errors.Is(err, errCheckServer) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want errCheckServer without the URL", err)
		}
	})
}

func TestPurgeDeletesOldRunsWithAllTheirRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		old, recent := newFixture(t, d, callCompleted), newFixture(t, d, callCompleted)
		o := newOutcome(old.run)
		o.step = &Step{RunID: old.run.ID, Number: 1, ID: ids.New(ids.Step), Status: stepCompleted}
		o.messages = append(o.messages, textMessage("user", "x"))
		if err := o.end(Failed, runError("x", "x"), time.Now().Add(-retention-time.Minute)); err != nil {
			t.Fatal(err)
		}
		old.write(t, o)
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := old.Purge(t.Context(), tx, 100)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]int{"agent_runs": 1, "agent_calls": 1, "agent_steps": 0, "agent_messages": 0, "agent_events": 0} {
			var n int
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
				t.Errorf("%s has %d rows, want %d (%v)", table, n, want, err)
			}
		}
		recent.load(t)
	})
}
