package lanes

import (
	"testing"
	"time"
)

type errand struct{}

func (errand) Key() Key { return Key{} }

// TestLanesThatTurnSlowLeaveRoom, although they stand in line among the healthy ones.
func TestLanesThatTurnSlowLeaveRoom(t *testing.T) {
	t.Parallel()
	r := &Runner[errand]{slots: 8, maxUnwritten: 8, perLane: 4, leasedUntil: time.Now().Add(time.Hour)}
	for range 8 {
		l := &lane[errand]{phase: working, scanFrom: noScan, limit: 4, history: history{health: healthy}, buffer: make([]errand, 8)}
		r.schedule(l)
		r.updateHealth(l, false)
		r.schedule(l)
	}
	begun := 0
	for range 16 {
		if _, ok := r.startNext(); ok {
			begun++
		}
	}
	if begun != 4 {
		t.Errorf("%d of 8 slots are taken by lanes that turned slow", begun)
	}
}

// TestALaneThatTurnsOutWellLeavesTheStrangers, who have all the places that
// they may have.
func TestALaneThatTurnsOutWellLeavesTheStrangers(t *testing.T) {
	t.Parallel()
	r := &Runner[errand]{slots: 8, maxUnwritten: 8, perLane: 4, leasedUntil: time.Now().Add(time.Hour)}
	for range 8 {
		r.schedule(&lane[errand]{phase: working, scanFrom: noScan, limit: 1, buffer: make([]errand, 8)})
	}
	l := &lane[errand]{phase: working, scanFrom: noScan, limit: 4, buffer: make([]errand, 8)}
	r.schedule(l)
	for _, ok := r.startNext(); ok; _, ok = r.startNext() {
	}
	r.updateHealth(l, true)
	r.schedule(l)
	if next, ok := r.startNext(); !ok || next.lane != l {
		t.Error("it waits behind the strangers")
	}
}

// TestSlowLanesHaveTheirTurn, however often nothing could begin in between.
func TestSlowLanesHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for idle := range 8 {
		r := &Runner[errand]{slots: 8, maxUnwritten: 99, perLane: 1, leasedUntil: time.Now().Add(time.Hour)}
		for range 32 {
			r.schedule(&lane[errand]{phase: working, scanFrom: noScan, limit: 1, buffer: make([]errand, 1)})
		}
		r.schedule(&lane[errand]{phase: working, scanFrom: noScan, id: "slow", limit: 1, history: history{health: slow}, buffer: make([]errand, 1)})
		begun, ok := r.startNext()
		if !ok {
			t.Fatal("nothing began")
		}
		for n := 0; begun.lane.id != "slow"; n++ {
			if n == 16 {
				t.Fatalf("the slow lane had no turn, with %d in vain after each", idle)
			}
			r.runningBy[unknown] = r.slots // nothing may begin
			for range idle {
				if _, ok := r.startNext(); ok {
					t.Fatal("something began")
				}
			}
			r.runningBy[unknown], r.running = 0, 0
			if begun, ok = r.startNext(); !ok {
				t.Fatal("nothing began")
			}
		}
	}
}
