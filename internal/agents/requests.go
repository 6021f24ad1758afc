package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/limits"
)

// reserve reserves requests to the URLs. It returns nil if there are none or if
// tools are simulated.
func (s *Service) reserve(r *Run, mode accounts.ToolMode, urls ...string) (*tools.Reservation, error) {
	if mode == accounts.ToolsSimulated || len(urls) == 0 {
		return nil, nil
	}
	return s.settings.Load().Requests.Reserve(r.Tenant, urls...)
}

type admittedCall struct {
	*Call
	requests  *tools.Reservation
	price     credits.Micro      // 0 if it is free
	allowance *gateway.Allowance // what is left of the run's budget; nil without one
	charge    credits.Micro      // what it has cost in this turn
}

// admit returns the calls that the request limits allow, and a refusal if there
// are others.
func (s *Service) admit(r *Run, mode accounts.ToolMode, calls []*Call) (list []*admittedCall, refused *limits.Refusal, err error) {
	for _, c := range calls {
		var urls []string
		if t, found := toolOf(r, c.Tool); found && t.Spec >= 0 && t.Spec < len(r.Specs) {
			urls = append(urls, r.Specs[t.Spec].Destination())
		}
		requests, err := s.reserve(r, mode, urls...)
		if errors.As(err, &refused) {
			continue
		}
		if err != nil {
			releaseAll(list)
			return nil, nil, err
		}
		list = append(list, &admittedCall{Call: c, requests: requests})
	}
	return list, refused, nil
}

func releaseAll(list []*admittedCall) {
	for _, c := range list {
		c.requests.Release()
	}
}

// postpone schedules the run for when the request limits may allow its calls. It
// holds no worker. A run that keeps waiting retries less and less often.
func (o *outcome) postpone(refused *limits.Refusal, now time.Time) {
	o.schedule(now, max(refused.RetryAfter, o.backoff(now)))
}

// limitStepCalls skips the calls beyond the limit of a step. The model can make
// them in its next step.
func (s *Service) limitStepCalls(o *outcome, now time.Time) {
	planned, allowed := 0, s.settings.Load().CallsPerStep
	for _, c := range o.calls {
		if !c.serverExecutes() {
			continue
		}
		if planned++; planned > allowed {
			c.skip(fmt.Sprintf("The call was not made: a step can make at most %d tool calls. Make the others in the next step.", allowed), now)
		}
	}
}

// exceedsRunCalls reports whether the step's calls are more than the run may
// still make, and skips them in that case.
func (s *Service) exceedsRunCalls(o *outcome, now time.Time) bool {
	planned := int64(0)
	for _, c := range o.calls {
		if c.serverExecutes() {
			planned++
		}
	}
	if planned == 0 || o.run.ToolCalls+planned <= s.settings.Load().CallsPerRun {
		return false
	}
	for _, c := range o.calls {
		if !c.finished() {
			c.skip("The call was not made: the run has no tool calls left.", now)
		}
	}
	return true
}

// serverExecutes reports whether the server is going to make the call, after an
// approval if it needs one.
func (c *Call) serverExecutes() bool { return !c.finished() && c.Kind != tools.Function }

// toolMode returns how the run calls its tools from now on. A change of the
// workspace's setting can switch a run from real to simulated but never back: the
// tools of simulated MCP servers may not exist.
func (s *Service) toolMode(ctx context.Context, r *Run) (accounts.ToolMode, error) {
	if r.Config.ToolMode == accounts.ToolsSimulated {
		return accounts.ToolsSimulated, nil
	}
	return s.environmentToolMode(ctx, s.DB, r)
}

// environmentToolMode returns the mode of a run that is created now in the same
// workspace and environment.
func (s *Service) environmentToolMode(ctx context.Context, q db.Querier, r *Run) (accounts.ToolMode, error) {
	return accounts.ToolModeOf(ctx, q, r.Tenant, s.settings.Load().TestTools)
}

// simulatedResult returns the output that the run's conversation sets for its
// simulated calls, or nil.
func (s *Service) simulatedResult(ctx context.Context, r *Run) (*string, error) {
	messages, err := s.conversation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if result, found := s.ToolResult(messages); found {
		return &result, nil
	}
	return nil, nil
}
