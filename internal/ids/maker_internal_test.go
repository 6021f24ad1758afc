package ids

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestIDsFollowAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	right := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	for _, ahead := range []time.Duration{1001 * time.Millisecond, time.Hour, 365 * 24 * time.Hour} {
		at := right.Add(ahead)
		m := &maker{now: func() time.Time { return at }}
		if made := Time(encode(m.make())); !made.Equal(at) {
			t.Errorf("the first was made %s instead of %s", made, at)
		}
		at = right
		if made := Time(encode(m.make())); !made.Equal(right) {
			t.Errorf("after the clock went back by %s one was made %s instead of %s", ahead, made, right)
		}
	}
}

func TestIDsKeepTheirOrderWhileAClockIsAdjusted(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	m := &maker{now: func() time.Time { return at }}
	last := encode(m.make())
	for _, step := range []time.Duration{0, -900 * time.Millisecond, 0, 300 * time.Millisecond, 0, 2 * time.Second, -time.Nanosecond, -time.Second / 2} {
		at = at.Add(step)
		for range 10_000 {
			next := encode(m.make())
			if next <= last {
				t.Fatalf("%s follows %s when the clock moved by %s", next, last, step)
			}
			last = next
		}
	}
}

func TestIDsMadeAtOnceAreInOrderForEachMaker(t *testing.T) {
	t.Parallel()
	m := &maker{now: time.Now}
	lists := make([][]string, 8)
	var working sync.WaitGroup
	for i := range lists {
		working.Go(func() {
			for range 5000 {
				lists[i] = append(lists[i], encode(m.make()))
			}
		})
	}
	working.Wait()
	for _, list := range lists {
		if !slices.IsSorted(list) {
			t.Fatal("ids that one made after the other do not sort in that order")
		}
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	for i := range all[1:] {
		if decode(all[i]).hi == decode(all[i+1]).hi {
			t.Fatalf("%s and %s have the same time: only chance orders them", all[i], all[i+1])
		}
	}
}

func TestIDsAreUUIDsOfVersion7(t *testing.T) {
	t.Parallel()
	m := &maker{now: time.Now}
	var ones, zeros uint64
	for range 1000 {
		b := m.make()
		if b.hi>>12&15 != 7 || b.lo>>62 != 2 {
			t.Fatalf("%x-%x has another version or variant", b.hi, b.lo)
		}
		ones |= b.lo
		zeros |= ^b.lo
	}
	if ones != 1<<63|(1<<62-1) || zeros != 1<<63-1 {
		t.Errorf("not all of 62 bits are random: %x, %x", ones, zeros)
	}
}
