package agents

import (
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
)

// usage is the tokens and the cost of a model call according to the request log.
// Providers don't always count, and can't for an interrupted call.
type usage struct {
	input, output int64
	cost          credits.Micro
}

func usageOfRecord(r *audit.Record) (u usage) {
	u.input, u.output = r.Tokens()
	u.cost = r.Charged()
	return u
}

func usageOfEntry(e *audit.Entry) usage {
	u := usage{cost: e.Credits}
	if e.InputTokens != nil {
		u.input = *e.InputTokens
	}
	if e.OutputTokens != nil {
		u.output = *e.OutputTokens
	}
	return u
}

func (r *Run) addUsage(u usage) {
	r.InputTokens += u.input
	r.OutputTokens += u.output
	r.Credits += u.cost
}

// addUsage adds a call to the step, which may have made several.
func (p *Step) addUsage(u usage) {
	p.InputTokens += u.input
	p.OutputTokens += u.output
	p.Credits += u.cost
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
