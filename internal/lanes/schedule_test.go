package lanes

import (
	"context"
	"testing"
	"time"
)

type fakeItem struct{}

func (fakeItem) Key() Key { return Key{} }

func fakeRunner() *Runner[fakeItem] {
	return &Runner[fakeItem]{Options: Options{Slots: 8, MaxUnwritten: 8, PerLane: 4}, leasedUntil: time.Now().Add(time.Hour)}
}

func fakeLane(h health, limit, items int) *lane[fakeItem] {
	return &lane[fakeItem]{phase: working, scanFrom: noScan, limit: limit, history: history{health: h}, buffer: make([]fakeItem, items)}
}

// backlog returns a runner with n healthy lanes that have more items than the test runs.
func backlog(n int) (r *Runner[fakeItem], all []*lane[fakeItem]) {
	r = fakeRunner()
	for range n {
		l := fakeLane(healthy, 4, 1000)
		r.schedule(l)
		all = append(all, l)
	}
	return r, all
}

// step starts and ends one item, and returns its lane.
func step(t *testing.T, r *Runner[fakeItem]) *lane[fakeItem] {
	t.Helper()
	e, ok := r.startNext()
	if !ok {
		t.Fatal("no item started")
	}
	r.running--
	r.inFlight--
	r.runningBy[e.health]--
	e.lane.running--
	e.lane.inFlight--
	r.schedule(e.lane)
	return e.lane
}

// turnsUntil counts the turns until next returns the lane.
func turnsUntil(l *lane[fakeItem], next func() *lane[fakeItem]) int {
	turns := 1
	for next() != l {
		turns++
	}
	return turns
}

func TestLaneThatMissedItsTurnIsNext(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]health{"known": healthy, "new": unknown} {
		r, _ := backlog(64)
		for range 200 {
			step(t, r)
		}
		l := fakeLane(h, 4, 1)
		r.schedule(l)
		if n := turnsUntil(l, func() *lane[fakeItem] { return step(t, r) }); n > 2 {
			t.Errorf("a %s lane waited for %d turns, want at most 2", name, n)
		}
	}
}

// TestLanesAtTheirLimitMissNoTurn checks that such lanes queue behind an idle
// lane when one of their items ends.
func TestLanesAtTheirLimitMissNoTurn(t *testing.T) {
	t.Parallel()
	r, all := backlog(96)
	r.PerLane, r.Slots, r.MaxUnwritten = 1, 64, 10000
	for _, l := range all {
		l.limit = 1
	}
	var running []execution[fakeItem]
	for e, ok := r.startNext(); ok; e, ok = r.startNext() {
		running = append(running, e)
	}
	next := func() *lane[fakeItem] {
		e, ok := r.finish(running[0], true)
		if !ok {
			t.Fatal("no item started")
		}
		running = append(running[1:], e)
		return e.lane
	}
	for range 1000 {
		next()
	}
	l := fakeLane(healthy, 1, 1)
	r.schedule(l)
	if n := turnsUntil(l, next); n > 2 {
		t.Errorf("waited for %d turns, want at most 2", n)
	}
}

func TestDrainingAndRefillingGainsNoTurns(t *testing.T) {
	t.Parallel()
	const others, rounds = 63, 20
	for _, pause := range []int{0, 1, 5, others / 2, others, 2 * others} {
		r, _ := backlog(others)
		l := fakeLane(healthy, 4, 0)
		turns, last := 0, 0
		for i := range rounds * (others + 1) {
			if len(l.buffer) == 0 && i >= last+pause {
				l.buffer = make([]fakeItem, 1)
				r.schedule(l)
			}
			if step(t, r) == l {
				turns++
				last = i
			}
		}
		if turns > rounds+1 {
			t.Errorf("with pauses of %d turns: got %d turns, others had %d", pause, turns, rounds)
		}
	}
}

func TestNewLanesLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	const lanes, rounds = 8, 10
	r, all := backlog(lanes)
	turns := map[*lane[fakeItem]]int{}
	for range 8 * lanes * rounds {
		r.schedule(fakeLane(healthy, 4, 1))
		turns[step(t, r)]++
	}
	for _, l := range all {
		if turns[l] < rounds-1 {
			t.Errorf("a lane in the round had %d turns, want %d", turns[l], rounds)
		}
	}
}

// TestNewLaneIsScannedDuringBacklog covers a node with all slots in use and
// more queued lanes than slots.
func TestNewLaneIsScannedDuringBacklog(t *testing.T) {
	t.Parallel()
	r, _ := backlog(16)
	w := &world{rows: map[string]*row{"new": {}}}
	r.store, r.workCtx = &node{w: w, down: true}, context.Background()
	for _, ok := r.startNext(); ok; _, ok = r.startNext() {
	}
	l := &lane[fakeItem]{id: "new", limit: 4}
	t.Cleanup(r.goroutines.Wait)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule(l)
	r.dispatch()
	if l.phase != scanning {
		t.Errorf("phase of the new lane: got %s, want %s", l.phase, scanning)
	}
}

// TestLanesThatTurnSlowLeaveSlots covers lanes that were queued among healthy
// ones.
func TestLanesThatTurnSlowLeaveSlots(t *testing.T) {
	t.Parallel()
	r := fakeRunner()
	for range 8 {
		l := fakeLane(healthy, 4, 8)
		r.schedule(l)
		r.updateHealth(l, false)
		r.schedule(l)
	}
	started := 0
	for range 16 {
		if _, ok := r.startNext(); ok {
			started++
		}
	}
	if started != 4 {
		t.Errorf("slow lanes took %d of 8 slots, want 4", started)
	}
}

// TestLaneThatTurnsHealthyPassesUnknownLanes covers unknown lanes that use all
// their slots.
func TestLaneThatTurnsHealthyPassesUnknownLanes(t *testing.T) {
	t.Parallel()
	r := fakeRunner()
	for range 8 {
		r.schedule(fakeLane(unknown, 1, 8))
	}
	l := fakeLane(unknown, 4, 8)
	r.schedule(l)
	for _, ok := r.startNext(); ok; _, ok = r.startNext() {
	}
	r.updateHealth(l, true)
	r.schedule(l)
	if e, ok := r.startNext(); !ok || e.lane != l {
		t.Error("the healthy lane waits behind unknown ones")
	}
}

// TestSlowLanesGetTurns also covers turns in which nothing could start.
func TestSlowLanesGetTurns(t *testing.T) {
	t.Parallel()
	for failed := range 8 {
		r := fakeRunner()
		r.MaxUnwritten = 99
		for range 32 {
			r.schedule(fakeLane(unknown, 1, 1))
		}
		slowLane := fakeLane(slow, 1, 1)
		r.schedule(slowLane)
		turns := turnsUntil(slowLane, func() *lane[fakeItem] {
			r.runningBy[unknown] = r.Slots
			for range failed {
				if _, ok := r.startNext(); ok {
					t.Fatal("an item of an unknown lane started although such lanes have all their slots")
				}
			}
			r.runningBy[unknown], r.running = 0, 0
			e, ok := r.startNext()
			if !ok {
				t.Fatal("no item started")
			}
			return e.lane
		})
		if turns > 16 {
			t.Errorf("with %d failed starts in between, the slow lane waited for %d turns, want at most 16", failed, turns)
		}
	}
}
