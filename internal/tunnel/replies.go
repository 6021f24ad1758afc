package tunnel

import "sync"

// maxReplies is how many results a client remembers, of at most 32 KiB each. The server
// resends a delivery without a result immediately, so far fewer are needed.
const maxReplies = 1000

// replies holds the results of forwarded deliveries.
type replies struct {
	mu       sync.Mutex
	byID     map[attempt]*reply
	finished []attempt // oldest first
}

// reply is the result of a delivery that is being forwarded, or was.
type reply struct {
	finished chan struct{}
	result   *result // set when finished is closed
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
	c.result = r
	close(c.finished)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished = append(m.finished, t); len(m.finished) > maxReplies {
		delete(m.byID, m.finished[0])
		m.finished = m.finished[1:]
	}
}

// wait returns the result once it is finished.
func (c *reply) wait() *result {
	<-c.finished
	return c.result
}
