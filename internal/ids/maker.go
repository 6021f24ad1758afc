package ids

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"
)

// bits are those of a UUID.
type bits struct{ hi, lo uint64 }

// maker makes UUIDs of version 7: the time, and behind it randomness. Each one is
// larger than the one before, also if they are made at once.
type maker struct {
	now func() time.Time

	mu     sync.Mutex
	last   int64 // tick of the one made last
	random [64 * 8]byte
	left   int // bytes of random that were not used yet
}

// ticks are those of a millisecond: an id has twelve bits for them. Of the clock's
// there are fewer, each of 256 nanoseconds.
const ticks = 1 << 12

// setBack is how far a clock must have gone back, here a second, for ids to go back
// with it: what is made after a wrong time was set right must not be found under
// that time, and be kept until it has come and gone. By less a clock moves while it
// is adjusted, and the order is worth more.
const setBack = 1000 * ticks

func (m *maker) make() bits {
	m.mu.Lock()
	defer m.mu.Unlock()
	tick := m.tick()
	return bits{uint64(tick/ticks)<<16 | 7<<12 | uint64(tick%ticks), 1<<63 | m.word()>>2} //nolint:gosec // it is after 1970
}

// tick is the time, or the next tick behind the last one. It is read under the
// lock: who waits for that must not take an old time for a clock set back.
func (m *maker) tick() int64 {
	nano := m.now().UnixNano()
	tick := nano/1e6*ticks + nano%1e6>>8
	if ahead := m.last - tick; ahead >= 0 && ahead < setBack {
		tick = m.last + 1
	}
	m.last = tick
	return tick
}

// word is random. The kernel is asked once for 64 of them: ids are made on the
// hot path, and are names, not secrets.
func (m *maker) word() uint64 {
	if m.left == 0 {
		rand.Read(m.random[:]) //nolint:errcheck // it never fails
		m.left = len(m.random)
	}
	m.left -= 8
	return binary.BigEndian.Uint64(m.random[m.left:])
}
