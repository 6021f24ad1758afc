package lanes

import (
	"testing"
	"time"
)

type errand struct{}

func (errand) Key() Key { return Key{} }

// TestLanesThatTurnSlowLeaveRoom, although they stand in line among the well ones.
func TestLanesThatTurnSlowLeaveRoom(t *testing.T) {
	t.Parallel()
	r := &Runner[errand]{slots: 8, unwritten: 8, cap: 4, valid: time.Now().Add(time.Hour)}
	for range 8 {
		l := &lane[errand]{cap: 4, record: record{doing: well}, buffer: make([]errand, 8)}
		r.offer(l)
		r.judge(l, false)
		r.offer(l)
	}
	begun := 0
	for range 16 {
		if _, ok := r.next(); ok {
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
	r := &Runner[errand]{slots: 8, unwritten: 8, cap: 4, valid: time.Now().Add(time.Hour)}
	for range 8 {
		r.offer(&lane[errand]{cap: 1, buffer: make([]errand, 8)})
	}
	l := &lane[errand]{cap: 4, buffer: make([]errand, 8)}
	r.offer(l)
	for _, ok := r.next(); ok; _, ok = r.next() {
	}
	r.judge(l, true)
	r.offer(l)
	if next, ok := r.next(); !ok || next.lane != l {
		t.Error("it waits behind the strangers")
	}
}

// TestSlowLanesHaveTheirTurn, however often nothing could begin in between.
func TestSlowLanesHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for idle := range 8 {
		r := &Runner[errand]{slots: 8, unwritten: 99, cap: 1, valid: time.Now().Add(time.Hour)}
		for range 32 {
			r.offer(&lane[errand]{cap: 1, buffer: make([]errand, 1)})
		}
		r.offer(&lane[errand]{id: "slow", cap: 1, record: record{doing: slow}, buffer: make([]errand, 1)})
		begun, ok := r.next()
		if !ok {
			t.Fatal("nothing began")
		}
		for n := 0; begun.lane.id != "slow"; n++ {
			if n == 16 {
				t.Fatalf("the slow lane had no turn, with %d in vain after each", idle)
			}
			r.among[strange] = r.slots // nothing may begin
			for range idle {
				if _, ok := r.next(); ok {
					t.Fatal("something began")
				}
			}
			r.among[strange], r.running = 0, 0
			if begun, ok = r.next(); !ok {
				t.Fatal("nothing began")
			}
		}
	}
}
