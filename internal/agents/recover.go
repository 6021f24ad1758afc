package agents

import (
	"context"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// recoverInFlight charges a model call that did not finish: its node died, or it
// was canceled. Its cost is in the request log once it is settled there, and
// until then the run waits. It returns the step of the call, if it had one.
func (s *Service) recoverInFlight(ctx context.Context, o *outcome) (unfinished *Step, wait bool, err error) {
	step, err := getStep(ctx, s.DB, o.run.ID, o.run.StepsUsed)
	if err != nil {
		return nil, false, err
	}
	if step != nil && step.Status == stepStarted {
		u, wait, err := s.chargeFromLog(ctx, o, step.RequestID)
		if err != nil || wait {
			return nil, wait, err
		}
		step.usage.add(u)
		return step, false, nil
	}
	if step != nil && step.CompletedAt != nil {
		o.waitingSince = *step.CompletedAt // the checks of its answer began then
	}
	check, err := openCheck(ctx, s.DB, o.run.ID)
	if err != nil || check == "" {
		return nil, false, err
	}
	u, wait, err := s.chargeFromLog(ctx, o, check)
	if err != nil || wait {
		return nil, wait, err
	}
	o.logEvent(checkCompleted, judgment{RequestID: check, Credits: u.Credits})
	return nil, false, nil
}

// chargeFromLog adds the usage of a logged request to the run, or makes the run
// wait until the log has it.
func (s *Service) chargeFromLog(ctx context.Context, o *outcome, requestID string) (u usage, wait bool, err error) {
	writing := s.awaitEntry(requestID) // first: the entry may arrive in between
	e, err := audit.Get(ctx, s.DB, visibility.Filter{Tenant: o.run.Tenant}, requestID)
	switch {
	case fault.Is(err, fault.NotFound) && writing:
		o.schedule(s.Now(), 0)
		return u, true, nil
	case fault.Is(err, fault.NotFound) && s.mayStillBeLogged(requestID):
		select {
		case <-time.After(logDelayPoll):
		case <-ctx.Done():
		}
		o.schedule(s.Now(), 0)
		return u, true, nil
	case fault.Is(err, fault.NotFound): // the call was not made, or its intent could not be written
		return u, false, nil
	case err != nil:
		return u, false, err
	case !e.Settled:
		o.schedule(s.Now(), unsettledDelay)
		return u, true, nil
	}
	u = usageOf(e)
	o.run.usage.add(u)
	return u, false, nil
}

const (
	// maxLogDelay is how long a write of a dead node may take to reach the log.
	maxLogDelay  = 3 * time.Second
	logDelayPoll = 200 * time.Millisecond
	// unsettledDelay is how long a run waits for another look at a request that
	// a dead node has not settled.
	unsettledDelay = 5 * time.Second
)

// mayStillBeLogged reports whether a call was made so recently that its log
// entry may be on its way. It is false for an empty ID, and for IDs from a clock
// that was ahead.
func (s *Service) mayStillBeLogged(requestID string) bool {
	now := time.Now()
	return requestID > ids.Floor(ids.Request, now.Add(-s.logDelay)) && requestID < ids.Floor(ids.Request, now.Add(s.logDelay))
}
