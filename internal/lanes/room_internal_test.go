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
	r := &Runner[errand]{slots: 8, unwritten: 8, valid: time.Now().Add(time.Hour)}
	for range 8 {
		l := &lane[errand]{cap: 4, doing: well, buffer: make([]errand, 8)}
		r.offer(l)
		l.judge(false, 4)
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
