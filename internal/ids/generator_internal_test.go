package ids

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestIDsFollowAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	right := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	for _, ahead := range []time.Duration{1001 * time.Millisecond, time.Hour, 365 * 24 * time.Hour} {
		at := right.Add(ahead)
		g := &generator{now: func() time.Time { return at }}
		if got := Time(encode(g.next())); !got.Equal(at) {
			t.Errorf("first ID: got time %s, want %s", got, at)
		}
		at = right
		if got := Time(encode(g.next())); !got.Equal(right) {
			t.Errorf("after the clock went back by %s: got time %s, want %s", ahead, got, right)
		}
	}
}

func TestIDsStayOrderedWhileClockIsAdjusted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	g := &generator{now: func() time.Time { return at }}
	last := encode(g.next())
	for _, step := range []time.Duration{0, -900 * time.Millisecond, 0, 300 * time.Millisecond, 0, 2 * time.Second, -time.Nanosecond, -time.Second / 2} {
		at = at.Add(step)
		for range 10_000 {
			next := encode(g.next())
			if next <= last {
				t.Fatalf("%s follows %s when the clock moved by %s", next, last, step)
			}
			last = next
		}
	}
}

func TestConcurrentIDsAreOrderedAndUnique(t *testing.T) {
	t.Parallel()
	g := &generator{now: time.Now}
	lists := make([][]string, 8)
	var wg sync.WaitGroup
	for i := range lists {
		wg.Go(func() {
			for range 5000 {
				lists[i] = append(lists[i], encode(g.next()))
			}
		})
	}
	wg.Wait()
	for _, list := range lists {
		if !slices.IsSorted(list) {
			t.Fatal("IDs of one goroutine are not sorted")
		}
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	for i := range all[1:] {
		if decode(all[i]).hi == decode(all[i+1]).hi {
			t.Fatalf("%s and %s have the same time", all[i], all[i+1])
		}
	}
}

func TestIDsAreUUIDsOfVersion7(t *testing.T) {
	t.Parallel()
	g := &generator{now: time.Now}
	var ones, zeros uint64
	for range 1000 {
		b := g.next()
		if b.hi>>12&15 != 7 || b.lo>>62 != 2 {
			t.Fatalf("%x-%x is not version 7", b.hi, b.lo)
		}
		ones |= b.lo
		zeros |= ^b.lo
	}
	if ones != 1<<63|(1<<62-1) || zeros != 1<<63-1 {
		t.Errorf("not all of 62 bits are random: %x, %x", ones, zeros)
	}
}
