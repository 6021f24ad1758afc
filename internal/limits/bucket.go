package limits

import (
	"math/bits"
	"time"
)

// window is the time that limits are given for: so many per minute. It is also
// how much may come at once after a rest.
const window = int64(time.Minute)

// longest bounds what one call can be charged, so that no number a caller makes
// up closes a key for good.
const longest = int64(24 * time.Hour)

// bucket is a rate limit by the generic cell rate algorithm: the moment at
// which all that was let through would have come at an even pace. It needs no
// timer, forgets by itself, and in any stretch of time d it lets through no
// more than limit × (1 + d/minute), and not less when that is asked for.
// Moments and spans are nanoseconds; the zero bucket is at rest.
type bucket struct {
	full  int64 // the theoretical arrival time
	given int64 // the sum of what was given back
}

// span is the time that n units take, none without a limit. It is rounded down,
// so that the whole limit always fits into the window.
func span(limit, n int64) int64 {
	if limit <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(window))
	if hi >= uint64(limit) {
		return longest
	}
	d, _ := bits.Div64(hi, lo, uint64(limit))
	return int64(min(d, uint64(longest)))
}

// units is how many a time brings.
func units(limit, d int64) int64 {
	hi, lo := bits.Mul64(uint64(limit), uint64(d))
	n, _ := bits.Div64(hi, lo, uint64(window)) // hi is less: limits and spans are far below 2⁶³
	return int64(n)
}

// wait says how long until n units fit; zero is now. More than the limit at
// once never fits: it goes through when the bucket is at rest, and the rest
// waits for it.
func (b *bucket) wait(limit, n, now int64) int64 {
	if limit == 0 || n <= 0 {
		return 0
	}
	return max(0, max(b.full-now, 0)+min(span(limit, n), window)-window)
}

// charge takes n units, whether they fit or not.
func (b *bucket) charge(limit, n, now int64) { b.full = max(b.full, now) + span(limit, n) }

// room is how many units fit now.
func (b *bucket) room(limit, now int64) int64 {
	return units(limit, max(0, window-max(0, b.full-now)))
}

// mark is the place in line of what was charged last, for returnable.
func (b *bucket) mark() int64 { return b.full + b.given }

// returnable is how much of a charge can still be given back. What time has
// brought back already cannot: a call that ends after two minutes would
// otherwise get its minute twice. A charge stands in line up to its mark, and
// moves up by whatever is given back, by those behind it too, which errs on the
// safe side and costs nothing when calls end in the order in which they began.
func (b *bucket) returnable(d, mark, now int64) int64 {
	return max(0, min(d, mark-b.given-now))
}

// giveBack returns a span that is returnable.
func (b *bucket) giveBack(d int64) {
	b.full -= d
	b.given += d
}

// state is what the headers show, with what was leased ahead of it.
func (b *bucket) state(limit, have, now int64) State {
	if limit == 0 {
		return State{}
	}
	return State{
		Limit:     limit,
		Remaining: min(limit, have+b.room(limit, now)),
		Reset:     time.Duration(max(0, b.full-now-span(limit, have))),
	}
}
