package api

import "testing"

// TestSomeRoomIsLeftWhoeverHasTheRest: two workspaces together must not have all.
func TestSomeRoomIsLeftWhoeverHasTheRest(t *testing.T) {
	t.Parallel()
	b := newBodyRoom(64)
	for _, who := range []string{"a", "b", "c"} {
		took := 0
		for b.take(who, 1) {
			took++
		}
		if took == 0 {
			t.Errorf("%s has nothing: %v of %d", who, b.by, b.limit)
		}
	}
	if b.by["a"] != 32 {
		t.Errorf("who came first has %d, expected half of all", b.by["a"])
	}
	for who, bytes := range b.by {
		b.give(who, bytes)
	}
	if b.taken != 0 || len(b.by) != 0 {
		t.Errorf("%d are left, of %v", b.taken, b.by)
	}
	took := 0
	for b.take("", 1) {
		took++
	}
	if took != 4 {
		t.Errorf("visitors have %d, expected a sixteenth", took)
	}
}
