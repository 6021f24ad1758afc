package tunnel

import "sync"

const (
	// maxReplies is how many replies a client remembers. The server resends a delivery
	// without a result immediately, so far fewer are needed.
	maxReplies = 10_000
	// maxReplyBytes limits their bodies and headers. Beyond it the oldest replies keep
	// only their status.
	maxReplyBytes = 32 << 20
)

// replies holds the results of forwarded deliveries.
type replies struct {
	mu       sync.Mutex
	byID     map[attempt]*reply
	finished []attempt // oldest first
	whole    []attempt // the finished ones with bodies
	bytes    int
}

// reply is the result of a delivery that is being forwarded, or was.
type reply struct {
	finished chan struct{}
	result   *result // set when finished is closed; under the lock of replies
}

func newReplies() *replies { return &replies{byID: map[attempt]*reply{}} }

// begin returns the reply of an attempt, and whether it is new: then the caller has
// to forward the delivery and call finish.
func (m *replies) begin(t attempt) (c *reply, created bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.byID[t]; c != nil {
		return c, false
	}
	c = &reply{finished: make(chan struct{})}
	m.byID[t] = c
	return c, true
}

// finish stores the result of an attempt, and forgets the oldest one.
func (m *replies) finish(t attempt, c *reply, r *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.result = r
	close(c.finished)
	m.finished, m.whole = append(m.finished, t), append(m.whole, t)
	m.bytes += r.size()
	for m.bytes > maxReplyBytes && len(m.whole) > 1 {
		m.strip(m.whole[0])
	}
	if len(m.finished) > maxReplies {
		oldest := m.finished[0]
		if len(m.whole) > 0 && m.whole[0] == oldest {
			m.strip(oldest)
		}
		delete(m.byID, oldest)
		m.finished = m.finished[1:]
	}
}

// strip removes body and headers of the oldest whole result. It replaces the result,
// which may be in use.
func (m *replies) strip(t attempt) {
	m.whole = m.whole[1:]
	c := m.byID[t]
	m.bytes -= c.result.size()
	bare := *c.result
	bare.Header, bare.Body = nil, nil
	c.result = &bare
}

// wait returns the result once it is finished.
func (m *replies) wait(c *reply) *result {
	<-c.finished
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.result
}

// size is the size of the body and the headers.
func (r *result) size() int {
	n := len(r.Body)
	for _, l := range r.Header {
		n += len(l[0]) + len(l[1])
	}
	return n
}
