package agents

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// think calls the model for the next step. The checkpoint before the call stores
// the request ID that the call will have in the request log. If this node dies,
// another one looks up the cost there.
func (s *Service) think(ctx context.Context, r *Run, p *access.Principal, calls []*Call) (*outcome, error) {
	o := newOutcome(r)
	o.run.Tools, o.run.Resolved = r.Tools, true
	step, wait, err := s.recoverInFlight(ctx, o)
	if err != nil || wait {
		return o, err
	}
	now := s.Now()
	if step != nil {
		// The step's last call did not finish, so the same step calls again.
		if r.Status == InProgress {
			if err := o.transition(Queued, now); err != nil {
				return nil, err
			}
		}
	} else {
		if r.StepsUsed >= r.MaxSteps {
			return o, o.end(Failed, runError("max_steps_exceeded", "The run used all of its %d steps without a result.", r.MaxSteps), now)
		}
		for _, c := range calls { // of the previous step
			o.messages = append(o.messages, c.message())
		}
		o.run.StepsUsed++
		step = &Step{RunID: r.ID, Number: o.run.StepsUsed, ID: ids.New(ids.Step), Status: stepStarted, CreatedAt: now}
	}
	step.RequestID = ids.New(ids.Request)
	o.step = step
	if o.run.StartedAt == nil {
		o.run.StartedAt = &now
	}
	if err := o.transition(InProgress, now); err != nil {
		return nil, err
	}
	o.logEvent("step.started", map[string]any{"step": step.Number, "step_id": step.ID})
	if err := s.checkpoint(ctx, o); err != nil {
		return nil, err
	}
	return s.callModel(ctx, o.run, p, step)
}

// lastCommitWait is how long a turn whose context has ended waits for a write
// that it has queued. A commit takes milliseconds.
const lastCommitWait = 10 * time.Second

// checkpoint writes an outcome and waits until it is durable. A queued outcome is
// written in any case, so checkpoint waits for it even if ctx ends.
func (s *Service) checkpoint(ctx context.Context, o *outcome) error {
	written := s.outcomes.Add(o)
	err := written.Wait(ctx)
	if ctx.Err() != nil {
		err = written.WaitFor(lastCommitWait)
	}
	if err != nil {
		return err
	}
	if o.stale || o.run.Status == Cancelling { // the next turn ends a canceled run
		return errStale
	}
	return nil
}

// callModel makes the step's model call and plans what its answer requests.
func (s *Service) callModel(ctx context.Context, r *Run, p *access.Principal, started *Step) (*outcome, error) {
	o := newOutcome(r)
	step := *started
	o.step, o.waitingSince = &step, step.CreatedAt
	body, err := s.prompt(ctx, r)
	if err != nil {
		return nil, err
	}
	a, err := s.chat(ctx, r, p, step.RequestID, body)
	o.run.usage.add(a.usage)
	step.usage.add(a.usage)
	now := s.Now()
	if err != nil {
		return s.modelFailed(ctx, o, err)
	}
	step.Status, step.CompletedAt = stepCompleted, &now
	step.Model, step.Provider, step.Text = a.model, a.provider, a.text
	o.run.Tries = 0
	if a.text != "" || len(a.calls) == 0 {
		o.run.Answer = a.text
	}
	o.messages = append(o.messages, a.message(r.StepsUsed))
	o.logEvent("step.completed", map[string]any{"step": step.Number, "step_id": step.ID, "text": a.text, "credits": a.Credits})
	if len(a.calls) > 0 {
		return o, s.planCalls(o, a, now)
	}
	if a.truncated {
		o.run.CutStep = o.run.StepsUsed
	}
	return o, s.finishAnswer(o, now)
}

// modelFailed retries the step or ends the run. A call that was interrupted has
// no outcome: the next turn looks up its cost in the log.
func (s *Service) modelFailed(ctx context.Context, o *outcome, err error) (*outcome, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, errUnlogged) {
		return nil, err
	}
	step, now := o.step, s.Now()
	step.Error = runError("model_error", "The model did not respond.")
	if f, ok := fault.As(err); ok {
		step.Error.Message = f.Message
	}
	if o, err = s.retry(ctx, o, "model_error", err); err != nil {
		return o, err
	}
	if o.run.Status.Ended() {
		step.Status, step.CompletedAt = stepFailed, &now
	} else {
		step.RequestID = "" // its cost is counted; the retry gets another ID
	}
	return o, nil
}

// finishAnswer handles an answer without tool calls: it is the result unless it
// must be checked.
func (s *Service) finishAnswer(o *outcome, now time.Time) error {
	r := o.run
	if err := o.transition(Verifying, now); err != nil {
		return err
	}
	if len(r.Config.Schema) > 0 || len(r.Config.Checks) > 0 {
		o.schedule(now, 0)
		return nil
	}
	r.Result = &events.AgentResult{OutputText: r.Answer, Truncated: r.Truncated()}
	return o.end(Completed, nil, now)
}
