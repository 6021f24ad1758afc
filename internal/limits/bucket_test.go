package limits

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestABucketLetsExactlyTheRateThrough: in any stretch of time no more than
// the rest that has gathered and what the time brings.
func TestABucketLetsExactlyTheRateThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(1, 10_000).Draw(rt, "limit")
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := start
		var b bucket
		through := int64(0)
		for range rapid.IntRange(1, 200).Draw(rt, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(window/4)).Draw(rt, "pause")))
			wait, ok := b.take(limit, 1, now)
			if ok {
				through++
			} else if _, early := b.take(limit, 1, now.Add(wait-time.Nanosecond)); early {
				rt.Fatalf("it said to wait %v, and less was enough", wait)
			}
			if most := limit + int64(now.Sub(start)/pace(limit)); through > most {
				rt.Fatalf("%d in %v of %d a minute", through, now.Sub(start), limit)
			}
		}
	})
}

func TestABucketFillsAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var b bucket
	for i := range 60 {
		if _, ok := b.take(60, 1, now); !ok {
			t.Fatalf("refused after %d of 60", i)
		}
	}
	wait, ok := b.take(60, 1, now)
	if ok || wait != time.Second {
		t.Errorf("let through, or wait %v", wait)
	}
	if s := b.state(60, now); s != (State{60, 0, time.Minute}) {
		t.Errorf("%+v", s)
	}
	if s := b.state(60, now.Add(30*time.Second)); s != (State{60, 30, 30 * time.Second}) {
		t.Errorf("%+v", s)
	}
	// More than there ever is goes through once, and is waited for.
	b = bucket{}
	if _, ok := b.take(60, 600, now); !ok {
		t.Error("a call that is larger than the limit can never be made")
	}
	if wait, ok := b.take(60, 1, now); ok || wait < 9*time.Minute {
		t.Errorf("it was not waited for: %v %v", wait, ok)
	}
}
