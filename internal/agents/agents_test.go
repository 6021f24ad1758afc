package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
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
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/safehttp"
)

// TestMoves: those of the contract work, and no others do.
func TestMoves(t *testing.T) {
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
			r := &Run{Status: from}
			err := r.move(to)
			want := from == to || allowed[string(from)+" "+string(to)]
			if (err == nil) != want {
				t.Errorf("from %s to %s: %v", from, to, err)
			}
			if now := map[bool]Status{true: to, false: from}[want]; r.Status != now {
				t.Errorf("from %s to %s it became %s", from, to, r.Status)
			}
			if err := (&outcome{run: &Run{Status: from}}).end(to, nil, time.Now()); (err == nil) != want {
				t.Errorf("the end of one that is %s as %s: %v", from, to, err)
			}
		}
		if from.Ended() != (len(moves[from]) == 0) {
			t.Errorf("%s has ended, or not", from)
		}
	}
}

// bench is a service on a store, with a run that has one call of a tool at a
// server that counts.
type bench struct {
	*Service
	calls *atomic.Int64
	keys  chan string
	run   *Run
	who   *access.Principal
}

// node is another service on the same store.
func node(t *testing.T, d *db.DB) *Service {
	t.Helper()
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{DB: d, Ring: ring, Guard: safehttp.New(safehttp.Policy{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Publisher: events.NewPublisher(time.Now), Node: ids.New("node_"), PerLane: 1, Slots: 1, CallsPerStep: 16, CallsPerRun: 500, Version: "1", Now: time.Now})
	t.Cleanup(s.group.Stop)
	return s
}

func newBench(t *testing.T, d *db.DB, callStatus string, idempotent bool) *bench {
	t.Helper()
	b := &bench{Service: node(t, d), calls: new(atomic.Int64), keys: make(chan string, 9), who: &access.Principal{WorkspaceID: ids.New(ids.Workspace), Environment: accounts.Live}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.calls.Add(1)
		b.keys <- r.Header.Get("Idempotency-Key")
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(server.Close)
	now := time.Now()
	b.run = &Run{ID: ids.New(ids.Run), WorkspaceID: b.who.WorkspaceID, Environment: accounts.Live, KeyID: "key", Status: InProgress, Model: "m", Metadata: map[string]string{},
		MaxSteps: 9, DueAt: &now, CreatedAt: now, Lane: "lane", Orders: orders{ApprovalSeconds: 60, ToolOutputSeconds: 60},
		Specs: []tools.Spec{{Type: tools.HTTP, Name: "pay", Method: "POST", URL: server.URL, Idempotent: idempotent, Parameters: json.RawMessage(`{"type":"object"}`)}}}
	call := &Call{RunID: b.run.ID, Step: 1, ID: callID(1, 0), Tool: "pay", Kind: tools.HTTP, Arguments: "{}", Hash: hashOf("{}"), Status: callStatus}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if err := insertRun(t.Context(), tx, b.run); err != nil {
			return err
		}
		o := begin(b.run)
		o.run.StepsUsed, o.run.Resolved = 1, true
		o.run.Tools = []tools.Tool{{Name: "pay", Kind: tools.HTTP, Idempotent: idempotent, Parameters: json.RawMessage(`{"type":"object"}`)}}
		o.calls = []*Call{call}
		if err := b.writeOutcomes(t.Context(), tx, []*outcome{o}); err != nil {
			return err
		}
		if o.lost {
			return errLost
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run, _ = b.load(t)
	return b
}

// load is the run as it is stored, with its calls.
func (b *bench) load(t *testing.T) (*Run, []*Call) {
	t.Helper()
	r, err := b.Get(t.Context(), b.db, b.who, b.run.ID)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := callsOf(t.Context(), b.db, r.ID, 1, r.StepsUsed)
	if err != nil {
		t.Fatal(err)
	}
	return r, calls
}

func (b *bench) write(t *testing.T, list ...*outcome) {
	t.Helper()
	if err := b.db.Write(t.Context(), func(tx *db.Tx) error { return b.writeOutcomes(t.Context(), tx, list) }); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) decide(t *testing.T, approval, decision string) error {
	t.Helper()
	return b.db.Write(t.Context(), func(tx *db.Tx) error {
		_, _, err := b.Decide(t.Context(), tx, b.who, audit.Operator, b.run.ID, approval, Decision{Decision: decision})
		return err
	})
}

// TestATurnIsWrittenOnce: an outcome of an older turn counts for nothing,
// alone or beside the one that won.
func TestATurnIsWrittenOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		outcomeOf := func(r *Run, text string) *outcome {
			o := begin(r)
			o.run.Answer = text
			o.say("test", text)
			m, err := plainMessage("user", text)
			if err != nil {
				t.Fatal(err)
			}
			o.messages = append(o.messages, m)
			return o
		}
		first, late := outcomeOf(b.run, "first"), outcomeOf(b.run, "late")
		b.write(t, first)
		if err := late.end(Failed, failure("x", "x"), time.Now()); err != nil {
			t.Fatal(err)
		}
		b.write(t, late)
		r, _ := b.load(t)
		if first.lost || !late.lost || r.Answer != "first" || r.Status != InProgress || r.Turn != b.run.Turn+1 || r.Logged != b.run.Logged+1 || r.Messages != b.run.Messages+1 {
			t.Errorf("lost: %t %t; the run is %+v", first.lost, late.lost, r)
		}
		one, two := outcomeOf(r, "one"), outcomeOf(r, "two")
		b.write(t, one, two)
		if r, _ = b.load(t); one.lost == two.lost || r.Messages != b.run.Messages+2 {
			t.Errorf("lost: %t %t; the run is %+v", one.lost, two.lost, r)
		}
		var told int
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM events").Scan(&told); err != nil || told != 0 {
			t.Errorf("%d events: %v", told, err)
		}
	})
}

// TestTwoNodesWithOneRun: both think it theirs, and the tool is called once.
func TestTwoNodesWithOneRun(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, true)
		other := node(t, d)
		type result struct {
			o   *outcome
			err error
		}
		results := make(chan result, 2)
		ready := make(chan struct{}) // both have read the run before either acts
		for _, s := range []*Service{b.Service, other} {
			r, calls := b.load(t)
			go func() {
				<-ready
				o, err := s.act(t.Context(), r, calls)
				results <- result{o, err}
			}()
		}
		close(ready)
		var won *outcome
		lost := 0
		for range 2 {
			switch r := <-results; {
			case errors.Is(r.err, errLost):
				lost++
			case r.err != nil:
				t.Fatal(r.err)
			default:
				won = r.o
			}
		}
		if lost != 1 || won == nil || b.calls.Load() != 1 {
			t.Fatalf("%d have lost, and the tool was called %d times", lost, b.calls.Load())
		}
		b.write(t, won)
		if _, calls := b.load(t); won.lost || calls[0].Status != callDone || calls[0].Output != "done" {
			t.Errorf("it came to %+v", calls[0])
		}
	})
}

// TestACallOfUnknownOutcome: it is repeated with the same key if that does no
// harm, and else only when a person says so.
func TestACallOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		harmless := newBench(t, d, callStarted, true)
		r, calls := harmless.load(t)
		o, err := harmless.goOn(t.Context(), r, harmless.who)
		if err != nil || harmless.calls.Load() != 1 || o.calls[0].Status != callDone || <-harmless.keys != r.ID+":"+calls[0].ID {
			t.Errorf("called %d times: %+v %v", harmless.calls.Load(), o, err)
		}

		for _, decision := range []string{Approve, Deny} {
			b := newBench(t, d, callStarted, false)
			r, _ := b.load(t)
			o, err := b.goOn(t.Context(), r, b.who)
			if err != nil {
				t.Fatal(err)
			}
			b.write(t, o)
			r, calls := b.load(t)
			if r.Status != AwaitingApproval || calls[0].Status != callAsking || calls[0].Note == "" || calls[0].ApprovalID == "" || b.calls.Load() != 0 {
				t.Fatalf("it is %s with %+v", r.Status, calls[0])
			}
			if list := Object(r, calls).RequiredActions; len(list) != 1 || list[0].Note == "" {
				t.Errorf("it asks for %+v", list)
			}
			// The node that was thought dead comes back with what it has.
			stale := begin(b.run)
			stale.calls = []*Call{{RunID: r.ID, Step: 1, ID: calls[0].ID, Tool: "pay", Kind: tools.HTTP, Arguments: "{}", Hash: hashOf("{}"), Status: callReady}}
			b.write(t, stale)
			if r, calls := b.load(t); !stale.lost || r.Status != AwaitingApproval || calls[0].Status != callAsking {
				t.Fatalf("it is %s with %+v", r.Status, calls[0])
			}
			if err := b.decide(t, calls[0].ApprovalID, decision); err != nil {
				t.Fatal(err)
			}
			r, calls = b.load(t)
			if r.Status != Queued {
				t.Fatalf("it is %s", r.Status)
			}
			if decision == Deny {
				// There is no way from here to the tool, not even for act itself.
				if _, err := b.act(t.Context(), r, calls); err != nil || calls[0].Status != callDenied || b.calls.Load() != 0 {
					t.Errorf("a denied call: %+v %v", calls[0], err)
				}
				continue
			}
			if o, err = b.goOn(t.Context(), r, b.who); err != nil || b.calls.Load() != 1 || o.calls[0].Status != callDone {
				t.Errorf("called %d times: %v", b.calls.Load(), err)
			}
		}
	})
}

// TestACallThatACancelInterrupts is not known to be over.
func TestACallThatACancelInterrupts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callReady, false)
		r, calls := b.load(t)
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, _, err := b.Cancel(t.Context(), tx, b.who, r.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		// The turn was loaded before: its checkpoint hears of the cancel.
		if _, err := b.act(t.Context(), r, calls); !errors.Is(err, errLost) || b.calls.Load() != 0 {
			t.Errorf("called %d times: %v", b.calls.Load(), err)
		}
		if r, _ := b.load(t); r.Status != Cancelling || r.DueAt == nil {
			t.Errorf("it is %s, due %v", r.Status, r.DueAt)
		}
	})
}

// TestADecisionAndItsExpiry at the same time: one of them counts.
func TestADecisionAndItsExpiry(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d, callStarted, false)
		r, _ := b.load(t)
		o, err := b.goOn(t.Context(), r, b.who)
		if err != nil {
			t.Fatal(err)
		}
		b.write(t, o)
		r, calls := b.load(t)
		expired, err := b.turn(t.Context(), r) // loaded, and about to be written
		if err != nil || expired.run.Error.Code != "approval_expired" {
			t.Fatalf("%+v %v", expired, err)
		}
		if err := b.decide(t, calls[0].ApprovalID, Approve); err != nil {
			t.Fatal(err)
		}
		b.write(t, expired)
		if r, _ := b.load(t); !expired.lost || r.Status != Queued || r.Error != nil {
			t.Errorf("it is %s: %+v", r.Status, r.Error)
		}
		if err := b.decide(t, calls[0].ApprovalID, Deny); !fault.Is(err, fault.InvalidState) {
			t.Errorf("the opposite: %v", err)
		}
	})
}

// TestPurge: an old run goes with all that belongs to it, and no other.
func TestPurge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		old, young := newBench(t, d, callDone, false), newBench(t, d, callDone, false)
		o := begin(old.run)
		o.step = &Step{RunID: old.run.ID, Number: 1, ID: ids.New(ids.Step), Status: stepCompleted}
		m, err := plainMessage("user", "x")
		if err != nil {
			t.Fatal(err)
		}
		o.messages = append(o.messages, m)
		if err := o.end(Failed, failure("x", "x"), time.Now().Add(-kept-time.Minute)); err != nil {
			t.Fatal(err)
		}
		old.write(t, o)
		err = d.Write(context.Background(), func(tx *db.Tx) error {
			_, err := old.Purge(t.Context(), tx, 100)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]int{"agent_runs": 1, "agent_calls": 1, "agent_steps": 0, "agent_messages": 0, "agent_events": 0} {
			var n int
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
				t.Errorf("%d rows of %s are left: %v", n, table, err)
			}
		}
		young.load(t)
	})
}
