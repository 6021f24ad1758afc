package audit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// TestRecordTransitionsMatchTheDiagram checks every transition against the diagram in the package
// comment.
func TestRecordTransitionsMatchTheDiagram(t *testing.T) {
	t.Parallel()
	want := map[recordState]map[recordEvent]recordState{
		recordOpen:       {eventDefer: recordDeferred, eventStart: recordQueued, eventSettle: recordClosing},
		recordDeferred:   {eventStart: recordQueued, eventSettle: recordClosing},
		recordQueued:     {eventRead: recordWritten, eventSettle: recordClosing},
		recordWritten:    {eventSettle: recordSettling},
		recordClosing:    {eventRead: recordSettled},
		recordSettling:   {eventRead: recordSettled},
		recordSettled:    {eventSettle: recordCorrecting},
		recordCorrecting: {eventRead: recordSettled},
	}
	for s := recordOpen; s <= recordFailed; s++ {
		for e := eventDefer; e <= eventFail; e++ {
			next, changes := want[s][e]
			switch {
			case e == eventCommit:
				next = recordSettled
			case e == eventFail:
				next = recordFailed
			case !changes:
				next = s
			}
			if got := s.next(e); got != next {
				t.Errorf("state %d, event %d: got %d, want %d", s, e, got, next)
			}
		}
	}
}

// TestEntryChargeAndReservationAlwaysAgree starts, settles and refuses requests while writes fail at
// random. Finally the stored entry, the charges and the reservation must match
// the client's response.
func TestEntryChargeAndReservationAlwaysAgree(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	b := &ledger{}
	l, _ := newTestLog(t, d, b)
	inDoubt := fmt.Errorf("%w: %w", db.ErrInDoubt, db.ErrUnavailable)
	rapid.Check(t, func(rt *rapid.T) {
		b.fail(nil)
		b.mu.Lock()
		b.list = nil
		b.mu.Unlock()
		h := &hold{}
		r := l.Open(live(h))
		weather := func() { b.fail(rapid.SampledFrom([]error{nil, nil, db.ErrUnavailable, inDoubt}).Draw(rt, "failure")) }
		weather()
		l.calls.Store(rapid.SampledFrom([]int64{0, manyCalls}).Draw(rt, "calls in progress"))
		if rapid.Bool().Draw(rt, "start") {
			r.Start(0, false)
			if rapid.Bool().Draw(rt, "wait") {
				_ = r.Durable(5 * time.Second)
			}
		}
		weather()
		r.Settle(costing(4 * credits.Credit))
		told := r.Durable(5 * time.Second)
		if told != nil || rapid.Bool().Draw(rt, "refuse") {
			weather()
			r.Refuse(told503)
			told = errors.New("refused")
		}
		b.fail(nil)
		// Retained records are written before any that are queued after them.
		marker := l.Open(live(nil))
		marker.Settle(costing(0))
		if err := errors.Join(marker.Settled(5*time.Second), l.settlements.Add(marker).WaitFor(5*time.Second)); err != nil {
			rt.Fatal(err)
		}
		var charged credits.Micro
		b.mu.Lock()
		for _, s := range b.list {
			if s.Entry.RequestID == r.entry.RequestID {
				charged += s.Entry.Credits
				if s.Previous != nil {
					charged -= s.Previous.Credits
				}
			}
		}
		b.mu.Unlock()
		e, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, r.entry.RequestID)
		switch stored := err == nil && e.Settled; {
		case told == nil && (!stored || e.Status != 200 || charged != 4*credits.Credit || h.isReleased()):
			rt.Fatalf("a served call: stored %+v (%v), charged %v, released %t", e, err, charged, h.isReleased())
		case told != nil && stored && (e.Status != 503 || e.Credits != 0 || charged != 0):
			rt.Fatalf("a refused call: stored %+v, charged %v", e, charged)
		case told != nil && !stored && (!h.isReleased() || charged != 0):
			rt.Fatalf("a refused call that is not stored: charged %v, released %t", charged, h.isReleased())
		}
	})
}

// Entries of slow requests wait longer to share a commit, because nobody notices.
func TestLingerFollowsTheTimeOfARequest(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration][2]time.Duration{
		0:                      {2 * time.Millisecond, 10 * time.Millisecond},
		40 * time.Millisecond:  {10 * time.Millisecond, 10 * time.Millisecond},
		200 * time.Millisecond: {50 * time.Millisecond, 20 * time.Millisecond},
		time.Minute:            {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		if intent, settle := intentLinger(took), settleLinger(took); intent != want[0] || settle != want[1] {
			t.Errorf("a request of %v: the intent lingers %v and the settlement %v, want %v", took, intent, settle, want)
		}
	}
}

// TestManyQuickCallsAreWrittenOnce compares calls that end before their intent is due with those that don't.
func TestManyQuickCallsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const quick, slow = 5 * time.Millisecond, mostLinger
		l, _ := newTestLog(t, d, &ledger{})
		stored := func(r *Record) *Entry {
			e, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, r.entry.RequestID)
			switch {
			case fault.Is(err, fault.NotFound):
				return nil
			case err != nil:
				t.Fatal(err)
			}
			return e
		}
		eventually := func(what string, r *Record) {
			t.Helper()
			for begun := time.Now(); stored(r) == nil; time.Sleep(time.Millisecond) {
				if time.Since(begun) > 10*time.Second {
					t.Fatalf("%s has no intent", what)
				}
			}
		}
		start := func(expected time.Duration, streams bool) *Record {
			r := l.Open(live(&hold{}))
			r.Start(expected, streams)
			return r
		}
		var few []*Record
		for range manyCalls {
			r := start(quick, false)
			if r.deferral != nil {
				t.Fatal("the intent of one of few calls is deferred")
			}
			few = append(few, r)
		}
		for what, r := range map[string]*Record{"a stream": start(quick, true), "a slow call": start(slow, false)} {
			if r.deferral != nil {
				t.Errorf("the intent of %s is deferred", what)
			}
			few = append(few, r)
		}

		once := start(quick, false)
		for !once.deferral.Stop() { // until its response, even if this test is slow
			few = append(few, once)
			once = start(quick, false)
		}
		for _, r := range few {
			eventually("one of few calls", r)
		}
		if once.state != recordDeferred || stored(once) != nil {
			t.Error("the intent of a quick call was written")
		}
		once.Settle(costing(credits.Credit))
		if err := once.Durable(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if e := stored(once); once.second != nil || e == nil || !e.Settled {
			t.Errorf("after its response a quick call is stored as %+v, written twice: %t", e, once.second != nil)
		}

		late := start(quick, false)
		eventually("a call that takes longer than expected", late)
		for _, r := range append(few, late) {
			r.Settle(costing(credits.Credit))
			if err := r.Settled(10 * time.Second); err != nil || r.second == nil {
				t.Errorf("a call with an intent: %v, written twice: %t", err, r.second != nil)
			}
		}
		if n := l.calls.Load(); n != 0 {
			t.Errorf("%d calls are in progress after all have ended", n)
		}
	})
}
