package batches

import (
	"context"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

const (
	// maxLogDelay is how long a write of a dead node may take to reach the log.
	maxLogDelay  = 3 * time.Second
	logDelayPoll = 200 * time.Millisecond
	// unsettledDelay is how long a line waits for another look at a request that
	// a dead node has not settled.
	unsettledDelay = 2 * time.Second
)

// interrupted looks up the last request of a line that has no result: its node died or stopped, or
// the result could not be written. It returns how long to wait until the log has the request. The
// next start of the line refunds it.
func (s *Service) interrupted(ctx context.Context, b *Batch, l *line) (wait time.Duration, err error) {
	e, err := audit.Get(ctx, s.DB, visibility.Filter{Tenant: b.Tenant}, l.RequestID)
	switch {
	case fault.Is(err, fault.NotFound) && mayStillBeLogged(l.RequestID):
		return logDelayPoll, nil
	case fault.Is(err, fault.NotFound): // the provider wasn't called
		return 0, nil
	case err != nil:
		return 0, err
	case !e.Settled:
		return unsettledDelay, nil
	}
	return 0, nil
}

// mayStillBeLogged reports whether a request was made so recently that its log entry may be on its
// way. It is false for IDs from a clock that was ahead.
func mayStillBeLogged(requestID string) bool {
	now := time.Now()
	return requestID > ids.Floor(ids.Request, now.Add(-maxLogDelay)) && requestID < ids.Floor(ids.Request, now.Add(maxLogDelay))
}
