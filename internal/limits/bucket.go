package limits

import (
	"math/bits"
	"time"
)

// window is the period of every rate limit. It is also the largest burst: an
// idle bucket admits one window's worth immediately.
const window = int64(time.Minute)

// maxCharge caps the charge of one request, so that no client-supplied number
// blocks a key forever.
const maxCharge = int64(24 * time.Hour)

// bucket is a rate limit by the generic cell rate algorithm (GCRA). In any
// period d it admits limit × (1 + d/minute) and no more. It needs no timer and
// no cleanup. Times are nanoseconds; the zero bucket is idle.
type bucket struct {
	full     int64 // the theoretical arrival time
	returned int64 // sum of all refunds
}

// span returns how long n units take to refill, or 0 without a limit. It rounds
// down, so that the whole limit always fits into the window.
func span(limit, n int64) int64 {
	if limit <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(window))
	if hi >= uint64(limit) {
		return maxCharge
	}
	d, _ := bits.Div64(hi, lo, uint64(limit))
	return int64(min(d, uint64(maxCharge)))
}

// units returns how many units refill in d.
func units(limit, d int64) int64 {
	hi, lo := bits.Mul64(uint64(limit), uint64(d))
	n, _ := bits.Div64(hi, lo, uint64(window)) // hi < window: limits and spans are far below 2⁶³
	return int64(n)
}

// wait returns how long until n units fit. A request above the limit never
// fits: an idle bucket admits it, and later requests wait until it's paid off.
func (b *bucket) wait(limit, n, now int64) int64 {
	if limit == 0 || n <= 0 {
		return 0
	}
	return max(0, max(b.full-now, 0)+min(span(limit, n), window)-window)
}

// charge takes n units, even if they don't fit.
func (b *bucket) charge(limit, n, now int64) { b.full = max(b.full, now) + span(limit, n) }

// available returns how many units fit now.
func (b *bucket) available(limit, now int64) int64 {
	return units(limit, max(0, window-max(0, b.full-now)))
}

// mark returns the position of the last charge, for refundable.
func (b *bucket) mark() int64 { return b.full + b.returned }

// refundable returns how much of a charge can still be refunded. The part that
// has already refilled can't: a request that ends after two minutes would get
// its minute twice.
//
// A charge moves forward by every refund, including those of later charges.
// This errs on the safe side, and costs nothing if requests end in order.
func (b *bucket) refundable(d, mark, now int64) int64 {
	return max(0, min(d, mark-b.returned-now))
}

// refund returns a span that refundable allowed.
func (b *bucket) refund(d int64) {
	b.full -= d
	b.returned += d
}

// state returns the values for the headers. The leased units count as remaining.
func (b *bucket) state(limit, leased, now int64) State {
	if limit == 0 {
		return State{}
	}
	return State{
		Limit:     limit,
		Remaining: min(limit, leased+b.available(limit, now)),
		Reset:     time.Duration(max(0, b.full-now-span(limit, leased))),
	}
}
