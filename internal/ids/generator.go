package ids

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"
)

type uuid struct{ hi, lo uint64 }

// generator creates UUIDs of version 7: the time followed by random bits. Each is larger than the
// one before, even within the same tick.
type generator struct {
	now func() time.Time

	mu     sync.Mutex
	last   int64 // tick of the last UUID
	random [64 * 8]byte
	left   int // unused bytes of random
}

// ticks is the number of ticks per millisecond: an ID has 12 bits for them. The clock only uses those
// of 256 nanoseconds each.
const ticks = 1 << 12

// clockReset is how far, here 1 second, the clock must go back for IDs to follow it: after a wrong
// time was corrected, new records must not sort under it. Smaller steps are adjustments, for which
// the order of IDs matters more.
const clockReset = 1000 * ticks

func (g *generator) next() uuid {
	g.mu.Lock()
	defer g.mu.Unlock()
	tick := g.tick()
	return uuid{uint64(tick/ticks)<<16 | 7<<12 | uint64(tick%ticks), 1<<63 | g.word()>>2} //nolint:gosec // the time is after 1970
}

// tick returns the time, or the tick after the last one. It needs the lock: a time from before waiting
// for the lock would look like a clock that was set back.
func (g *generator) tick() int64 {
	nano := g.now().UnixNano()
	tick := nano/1e6*ticks + nano%1e6>>8
	if ahead := g.last - tick; ahead >= 0 && ahead < clockReset {
		tick = g.last + 1
	}
	g.last = tick
	return tick
}

// word returns random bits. It reads 64 words at a time, because IDs are on the hot path. IDs are not
// secrets.
func (g *generator) word() uint64 {
	if g.left == 0 {
		rand.Read(g.random[:]) //nolint:errcheck // it never fails
		g.left = len(g.random)
	}
	g.left -= 8
	return binary.BigEndian.Uint64(g.random[g.left:])
}
