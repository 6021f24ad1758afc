package agents

import (
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
)

// usage is the tokens and the cost of model calls according to the request log.
// Providers don't always count, and can't for an interrupted call.
type usage struct {
	InputTokens  int64
	OutputTokens int64
	Credits      credits.Micro
}

func usageOf(e *audit.Entry) usage {
	u := usage{Credits: e.Credits}
	if e.InputTokens != nil {
		u.InputTokens = *e.InputTokens
	}
	if e.OutputTokens != nil {
		u.OutputTokens = *e.OutputTokens
	}
	return u
}

func (u *usage) add(more usage) {
	u.InputTokens += more.InputTokens
	u.OutputTokens += more.OutputTokens
	u.Credits += more.Credits
}

// trackUnlogged remembers a request whose log entry is late, and forgets those
// whose entries were written.
func (s *Service) trackUnlogged(requestID string, r *audit.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range s.unlogged {
		if !other.Writing() {
			delete(s.unlogged, id)
		}
	}
	s.unlogged[requestID] = r
}

// entryWait is how long a turn waits for a log entry that is late.
const entryWait = time.Second

// awaitEntry waits a while for the log entry of a request of this node, and
// reports whether it was still being written.
func (s *Service) awaitEntry(requestID string) bool {
	s.mu.Lock()
	r := s.unlogged[requestID]
	s.mu.Unlock()
	if r == nil || !r.Writing() {
		return false
	}
	_ = r.Settled(entryWait) // the caller reads the result from the log
	return true
}
