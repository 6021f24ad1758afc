package lanes

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
)

// backlog is a node with n healthy lanes that have more to do than there are turns.
func backlog(n int) (r *Runner[errand], all []*lane[errand]) {
	r = &Runner[errand]{slots: 8, maxUnwritten: 8, perLane: 4, leasedUntil: time.Now().Add(time.Hour)}
	for range n {
		l := &lane[errand]{phase: working, scanFrom: noScan, limit: 4, history: history{health: healthy}, buffer: make([]errand, 1000)}
		r.schedule(l)
		all = append(all, l)
	}
	return r, all
}

// step has one item begin and end, and says whose it was.
func step(t *testing.T, r *Runner[errand]) *lane[errand] {
	t.Helper()
	begun, ok := r.startNext()
	if !ok {
		t.Fatal("nothing began")
	}
	r.running--
	r.inFlight--
	r.runningBy[begun.health]--
	begun.lane.running--
	begun.lane.inFlight--
	r.schedule(begun.lane)
	return begun.lane
}

// TestALaneThatHadNothingInHandIsNext: it need not wait until each of the
// others has had a turn.
func TestALaneThatHadNothingInHandIsNext(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]health{"known": healthy, "new": unknown} {
		r, _ := backlog(64)
		for range 200 {
			step(t, r)
		}
		l := &lane[errand]{phase: working, scanFrom: noScan, limit: 4, history: history{health: h}, buffer: make([]errand, 1)}
		r.schedule(l)
		turns := 1
		for step(t, r) != l {
			turns++
		}
		if turns > 2 {
			t.Errorf("a lane that is %s had to wait for %d turns", name, turns)
		}
	}
}

// TestLanesAtTheirCapHaveNotMissedATurn: they come back when an item of theirs is
// done, and one that had nothing in hand is before them.
func TestLanesAtTheirCapHaveNotMissedATurn(t *testing.T) {
	t.Parallel()
	r, all := backlog(96)
	r.perLane, r.slots, r.maxUnwritten = 1, 64, 10000
	for _, l := range all {
		l.limit = 1
	}
	var work []execution[errand]
	for begun, ok := r.startNext(); ok; begun, ok = r.startNext() {
		work = append(work, begun)
	}
	goOn := func() *lane[errand] {
		begun, ok := r.finish(work[0], true)
		if !ok {
			t.Fatal("nothing began")
		}
		work = append(work[1:], begun)
		return begun.lane
	}
	for range 1000 {
		goOn()
	}
	l := &lane[errand]{phase: working, scanFrom: noScan, limit: 1, history: history{health: healthy}, buffer: make([]errand, 1)}
	r.schedule(l)
	turns := 1
	for goOn() != l {
		turns++
	}
	if turns > 2 {
		t.Errorf("it had to wait for %d turns", turns)
	}
}

// TestALaneThatDrainsAgainAndAgainGainsNothing over those that stay in line.
func TestALaneThatDrainsAgainAndAgainGainsNothing(t *testing.T) {
	t.Parallel()
	const others, rounds = 63, 20
	for _, pause := range []int{0, 1, 5, others / 2, others, 2 * others} {
		r, _ := backlog(others)
		l := &lane[errand]{phase: working, scanFrom: noScan, limit: 4, history: history{health: healthy}}
		turns, last := 0, 0
		for i := range rounds * (others + 1) {
			if len(l.buffer) == 0 && i >= last+pause {
				l.buffer = make([]errand, 1)
				r.schedule(l)
			}
			if step(t, r) == l {
				turns++
				last = i
			}
		}
		if turns > rounds+1 {
			t.Errorf("with pauses of %d it had %d turns, and others %d", pause, turns, rounds)
		}
	}
}

// TestNewcomersWithoutEndLeaveTurns to those in line.
func TestNewcomersWithoutEndLeaveTurns(t *testing.T) {
	t.Parallel()
	const lanes, rounds = 8, 10
	r, all := backlog(lanes)
	turns := map[*lane[errand]]int{}
	for range 8 * lanes * rounds {
		r.schedule(&lane[errand]{phase: working, scanFrom: noScan, limit: 4, history: history{health: healthy}, buffer: make([]errand, 1)})
		turns[step(t, r)]++
	}
	for _, l := range all {
		if turns[l] < rounds-1 {
			t.Errorf("a lane in line had %d turns, and should have had %d", turns[l], rounds)
		}
	}
}

// TestABacklogKeepsNoLaneUnread: with all places taken, and more lanes in line
// than there are places.
func TestABacklogKeepsNoLaneUnread(t *testing.T) {
	t.Parallel()
	r, _ := backlog(16)
	r.store = &table{db: dbtest.Open(t, dbtest.Address(t, "sqlite")), queue: "errands", node: "a", now: time.Now}
	r.workCtx = context.Background()
	for _, ok := r.startNext(); ok; _, ok = r.startNext() {
	}
	l := &lane[errand]{id: "newcomer", limit: 4, scanFrom: fromStart}
	t.Cleanup(r.goroutines.Wait)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule(l)
	r.dispatch()
	if l.phase != scanning {
		t.Error("the newcomer is not looked into")
	}
}
