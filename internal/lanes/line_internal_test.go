package lanes

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
)

// backlog is a node with n well lanes that have more to do than there are turns.
func backlog(n int) (r *Runner[errand], all []*lane[errand]) {
	r = &Runner[errand]{slots: 8, unwritten: 8, cap: 4, valid: time.Now().Add(time.Hour)}
	for range n {
		l := &lane[errand]{cap: 4, record: record{doing: well}, buffer: make([]errand, 1000)}
		r.offer(l)
		all = append(all, l)
	}
	return r, all
}

// step has one item begin and end, and says whose it was.
func step(t *testing.T, r *Runner[errand]) *lane[errand] {
	t.Helper()
	begun, ok := r.next()
	if !ok {
		t.Fatal("nothing began")
	}
	r.running--
	r.open--
	r.among[begun.as]--
	begun.lane.active--
	begun.lane.open--
	r.offer(begun.lane)
	return begun.lane
}

// TestALaneThatHadNothingInHandIsNext: it need not wait until each of the
// others has had a turn.
func TestALaneThatHadNothingInHandIsNext(t *testing.T) {
	t.Parallel()
	for name, doing := range map[string]standing{"known": well, "new": strange} {
		r, _ := backlog(64)
		for range 200 {
			step(t, r)
		}
		l := &lane[errand]{cap: 4, record: record{doing: doing}, buffer: make([]errand, 1)}
		r.offer(l)
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
	r.cap, r.slots, r.unwritten = 1, 64, 10000
	for _, l := range all {
		l.cap = 1
	}
	var work []turn[errand]
	for begun, ok := r.next(); ok; begun, ok = r.next() {
		work = append(work, begun)
	}
	goOn := func() *lane[errand] {
		begun, ok := r.done(work[0], true)
		if !ok {
			t.Fatal("nothing began")
		}
		work = append(work[1:], begun)
		return begun.lane
	}
	for range 1000 {
		goOn()
	}
	l := &lane[errand]{cap: 1, record: record{doing: well}, buffer: make([]errand, 1)}
	r.offer(l)
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
		l := &lane[errand]{cap: 4, record: record{doing: well}}
		turns, last := 0, 0
		for i := range rounds * (others + 1) {
			if len(l.buffer) == 0 && i >= last+pause {
				l.buffer = make([]errand, 1)
				r.offer(l)
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
		r.offer(&lane[errand]{cap: 4, record: record{doing: well}, buffer: make([]errand, 1)})
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
	r.db = dbtest.Open(t, dbtest.Address(t, "sqlite"))
	r.work = context.Background()
	for _, ok := r.next(); ok; _, ok = r.next() {
	}
	l := &lane[errand]{id: "newcomer", cap: 4, dirty: true}
	t.Cleanup(r.idle.Wait)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offer(l)
	r.pump()
	if !l.fetching {
		t.Error("the newcomer is not looked into")
	}
}
