package agents

import (
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
)

// bill is what a call has used and cost, as the request log has it: providers
// do not always count, and of a call that was broken off they cannot.
type bill struct {
	input, output int64
	cost          credits.Micro
}

func billOf(r *audit.Record) (b bill) {
	b.input, b.output = r.Tokens()
	b.cost = r.Charged()
	return b
}

func billIn(e *audit.Entry) bill {
	b := bill{cost: e.Credits}
	if e.InputTokens != nil {
		b.input = *e.InputTokens
	}
	if e.OutputTokens != nil {
		b.output = *e.OutputTokens
	}
	return b
}

// pay adds a call's bill to the run's.
func (r *Run) pay(b bill) {
	r.InputTokens += b.input
	r.OutputTokens += b.output
	r.Credits += b.cost
}

// pay adds a call's bill to the step's, which may have taken several.
func (p *Step) pay(b bill) {
	p.InputTokens += b.input
	p.OutputTokens += b.output
	p.Credits += b.cost
}

// late remembers a call whose entry in the request log is on its way there for
// longer than a step waits. Those that have arrived are forgotten.
func (s *Service) late(requestID string, r *audit.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range s.unlogged {
		if !other.Writing() {
			delete(s.unlogged, id)
		}
	}
	s.unlogged[requestID] = r
}

// latePoll is how often a run looks for an entry that is late.
const latePoll = time.Second

// writing waits a while for the entry of a call of this node's to be in the
// log, and reports whether it is still on its way.
func (s *Service) writing(requestID string) bool {
	s.mu.Lock()
	r := s.unlogged[requestID]
	s.mu.Unlock()
	if r == nil || !r.Writing() {
		return false
	}
	_ = r.Settled(latePoll) // what came of it is read from the log
	return true
}
