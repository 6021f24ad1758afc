package tunnel

import "sync"

const (
	// maxRemembered is how many answers a client remembers. The server sends
	// again at once what it has no answer to, so far fewer are ever asked for.
	maxRemembered = 10_000
	// maxRememberedBytes bounds their bodies and headers. Beyond it the oldest
	// lose those and keep their status.
	maxRememberedBytes = 32 << 20
)

// memory is what a client has forwarded and what came of it.
type memory struct {
	mu    sync.Mutex
	calls map[turn]*call
	done  []turn // finished ones, oldest first
	whole []turn // those of them that have their bodies
	bytes int
}

// call is a delivery that is being forwarded, or was.
type call struct {
	finished chan struct{}
	result   *result // once finished is closed; under the memory's lock
}

func newMemory() *memory { return &memory{calls: map[turn]*call{}} }

// begin returns the call for an attempt, and whether it is a new one: then the
// caller has to make it, and to finish it.
func (m *memory) begin(t turn) (c *call, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.calls[t]; c != nil {
		return c, false
	}
	c = &call{finished: make(chan struct{})}
	m.calls[t] = c
	return c, true
}

// finish keeps what came of a call, and forgets the oldest for it.
func (m *memory) finish(t turn, c *call, r *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.result = r
	close(c.finished)
	m.done, m.whole = append(m.done, t), append(m.whole, t)
	m.bytes += r.size()
	for m.bytes > maxRememberedBytes && len(m.whole) > 1 {
		m.strip(m.whole[0])
	}
	if len(m.done) > maxRemembered {
		oldest := m.done[0]
		if len(m.whole) > 0 && m.whole[0] == oldest {
			m.strip(oldest)
		}
		delete(m.calls, oldest)
		m.done = m.done[1:]
	}
}

// strip takes body and headers from the oldest whole result. Somebody may be
// sending it, so it becomes another.
func (m *memory) strip(t turn) {
	m.whole = m.whole[1:]
	c := m.calls[t]
	m.bytes -= c.result.size()
	bare := *c.result
	bare.Header, bare.Body = nil, nil
	c.result = &bare
}

// answer waits for a call's end.
func (m *memory) answer(c *call) *result {
	<-c.finished
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.result
}

// size is what a result takes beyond its fixed parts.
func (r *result) size() int {
	n := len(r.Body)
	for _, l := range r.Header {
		n += len(l[0]) + len(l[1])
	}
	return n
}
