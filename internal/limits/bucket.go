// Package limits bounds how often and how much a key may call: requests and
// tokens per minute and calls in flight. It takes ids, not principals.
package limits

import (
	"time"
)

// window is the time that limits are given for: so many per minute. It is also
// how much may come at once after a rest.
const window = time.Minute

// bucket is a rate limit by the generic cell rate algorithm: the moment at
// which all that was let through would have come at an even pace. It needs no
// timer, forgets by itself, and lets through exactly the rate.
type bucket struct {
	full time.Time // the theoretical arrival time
}

// pace is the time that one unit takes.
func pace(limit int64) time.Duration { return window / time.Duration(limit) }

// take lets n units through, or says how long to wait. More than the limit at
// once never fits: it is let through when the bucket is empty, and the rest
// waits for it.
func (b *bucket) take(limit, n int64, now time.Time) (wait time.Duration, ok bool) {
	full := b.full
	if full.Before(now) {
		full = now
	}
	cost := time.Duration(n) * pace(limit)
	if ahead := full.Add(min(cost, window)).Sub(now); ahead > window {
		return ahead - window, false
	}
	b.full = full.Add(cost)
	return 0, true
}

// State is a limit as its headers show it.
type State struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until everything is there again
}

func (b *bucket) state(limit int64, now time.Time) State {
	behind := max(0, b.full.Sub(now))
	return State{Limit: limit, Remaining: max(0, int64((window-behind)/pace(limit))), Reset: behind}
}
