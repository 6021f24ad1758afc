package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// think asks the model for the next step. That it is asked is written down
// first, with the name under which the call will be in the request log: should
// this node die meanwhile, the next one finds there what the call has cost.
func (s *Service) think(ctx context.Context, r *Run, p *access.Principal, calls []*Call) (*outcome, error) {
	o := begin(r)
	o.run.Tools, o.run.Resolved = r.Tools, true
	step, wait, err := s.takeOver(ctx, o)
	if err != nil || wait {
		return o, err
	}
	if step != nil {
		// A node died over it, or could not ask. It is the same step.
		if r.Status == InProgress {
			if err := o.move(Queued); err != nil {
				return nil, err
			}
		}
	} else {
		if r.StepsUsed >= r.MaxSteps {
			return o, o.end(Failed, failure("max_steps_exceeded", "the run used all of its %d steps without a result", r.MaxSteps), s.now())
		}
		for _, c := range calls { // what came of the step before
			m, err := c.answer()
			if err != nil {
				return nil, err
			}
			o.messages = append(o.messages, m)
		}
		o.run.StepsUsed++
		step = &Step{RunID: r.ID, Number: o.run.StepsUsed, ID: ids.New(ids.Step), Status: stepStarted, CreatedAt: s.now()}
	}
	step.RequestID = ids.New(ids.Request)
	o.step = step
	if o.run.StartedAt == nil {
		now := s.now()
		o.run.StartedAt = &now
	}
	if err := o.move(InProgress); err != nil {
		return nil, err
	}
	o.say("step.started", map[string]any{"step": step.Number, "step_id": step.ID})
	if err := s.checkpoint(ctx, o); err != nil {
		return nil, err
	}
	return s.ask(ctx, o.run, p, step)
}

// lastWait is how long a turn waits for what it has written when its time is
// over or the server stops: a commit takes milliseconds.
const lastWait = 10 * time.Second

// checkpoint writes an outcome and waits until it is durable. What was handed
// over is written in any case, so that the end of the turn's time is no reason
// not to know of it.
func (s *Service) checkpoint(ctx context.Context, o *outcome) error {
	written := s.outcomes.Add(o)
	err := written.Wait(ctx)
	if ctx.Err() != nil {
		err = written.WaitFor(lastWait)
	}
	if err != nil {
		return err
	}
	if o.lost {
		return errLost
	}
	if o.run.Status == Cancelling {
		return errLost // the next turn ends it
	}
	return nil
}

// takeOver counts what a call has cost that nobody saw the end of: a node died
// over it, or it was cancelled. It is in the request log, once it is settled
// there; until then the run waits. It returns the step that the call was for,
// if it was for one.
func (s *Service) takeOver(ctx context.Context, o *outcome) (dead *Step, wait bool, err error) {
	step, err := getStep(ctx, s.db, o.run.ID, o.run.StepsUsed)
	if err != nil {
		return nil, false, err
	}
	if step != nil && step.Status == stepStarted {
		var b bill
		if b, wait, err = s.costOf(ctx, o, step.RequestID); err != nil || wait {
			return nil, wait, err
		}
		step.pay(b)
		return step, false, nil
	}
	if step != nil && step.CompletedAt != nil {
		o.since = *step.CompletedAt // the checks of its answer began then
	}
	check, err := openCheck(ctx, s.db, o.run.ID)
	if err != nil || check == "" {
		return nil, false, err
	}
	b, wait, err := s.costOf(ctx, o, check)
	if err != nil || wait {
		return nil, wait, err
	}
	o.say(checkCompleted, judgment{RequestID: check, Credits: b.cost})
	return nil, false, nil
}

// costOf adds what a call has cost to the run, or has the run wait for it.
func (s *Service) costOf(ctx context.Context, o *outcome, requestID string) (b bill, wait bool, err error) {
	writing := s.writing(requestID) // asked first: it may arrive meanwhile
	e, err := audit.Get(ctx, s.db, visibility.Filter{WorkspaceID: o.run.WorkspaceID, Environment: string(o.run.Environment)}, requestID)
	switch {
	case fault.Is(err, fault.NotFound) && writing:
		o.again(s.now())
		return b, true, nil
	case fault.Is(err, fault.NotFound) && fresh(requestID):
		select {
		case <-time.After(lastWritesPoll):
		case <-ctx.Done():
		}
		o.again(s.now())
		return b, true, nil
	case fault.Is(err, fault.NotFound): // it was not asked at all, or nobody could write that it was
		return b, false, nil
	case err != nil:
		return b, false, err
	case !e.Settled:
		o.again(s.now().Add(unsettledPause))
		return b, true, nil
	}
	b = billIn(e)
	o.run.pay(b)
	return b, false, nil
}

// What a node that died has sent to its database may come through a moment
// later: nobody takes a call for not made before that, and looks now and then.
const (
	lastWrites     = 3 * time.Second
	lastWritesPoll = 200 * time.Millisecond
)

// fresh reports whether a call may have been made within lastWrites. It may have no
// name yet, and one of the future is from before a clock was set back.
func fresh(requestID string) bool {
	now := time.Now()
	return requestID > ids.Floor(ids.Request, now.Add(-lastWrites)) && requestID < ids.Floor(ids.Request, now.Add(lastWrites))
}

// unsettledPause is how long a run waits for the books of a node that died.
const unsettledPause = 5 * time.Second

// ask makes the call, and decides what follows from its answer.
func (s *Service) ask(ctx context.Context, r *Run, p *access.Principal, step *Step) (*outcome, error) {
	o := begin(r)
	finished := *step
	o.step, o.since = &finished, step.CreatedAt
	body, err := s.prompt(ctx, r)
	if err != nil {
		return nil, err
	}
	said, err := s.chat(ctx, r, p, step.RequestID, body)
	o.run.pay(said.bill)
	finished.pay(said.bill)
	now := s.now()
	if err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, errUnlogged) {
			return nil, err // what it cost is found in the log
		}
		finished.Error = failure("model_error", "the model did not answer")
		if f, ok := fault.As(err); ok {
			finished.Error.Message = f.Message
		}
		if o, err = s.retry(ctx, o, "model_error", err); err == nil && o.run.Status.Ended() {
			finished.Status, finished.CompletedAt = stepFailed, &now
		}
		// One that is tried again stays open: its next try is the same step,
		// under another name in the request log, so what it cost counts now.
		if err == nil && !o.run.Status.Ended() {
			finished.RequestID = ""
		}
		return o, err
	}
	finished.Status, finished.CompletedAt = stepCompleted, &now
	finished.Model, finished.Provider, finished.Text = said.model, said.provider, said.text
	o.run.Tries = 0
	if said.text != "" || len(said.calls) == 0 {
		o.run.Answer = said.text
	}
	o.messages = append(o.messages, said.message(r.StepsUsed))
	o.say("step.completed", map[string]any{"step": finished.Number, "step_id": finished.ID, "text": said.text, "credits": said.cost})
	if len(said.calls) == 0 {
		if said.cut {
			o.run.CutStep = o.run.StepsUsed
		}
		return o, s.answered(o, now)
	}
	for i, c := range said.calls {
		o.calls = append(o.calls, s.plan(r, i, c, now))
	}
	if last := o.calls[len(o.calls)-1]; said.cut && !last.over() {
		// Its arguments may not be whole, even if they are all right as they are.
		last.skip("The call was not made: your answer was cut off in it, as it was too long. Make fewer calls at once, or shorter ones.", now)
	}
	if r.StepsUsed >= r.MaxSteps {
		// No step is left to read what would come of them.
		for _, c := range o.calls {
			if !c.over() {
				c.skip("The call was not made: the run has no step left.", now)
			}
		}
	}
	s.limitStepCalls(o, now)
	exceeded := s.exceedsRunCalls(o, now)
	for _, c := range o.calls {
		o.say("tool_call.requested", map[string]any{"call_id": c.ID, "tool": c.Tool, "arguments": c.Arguments})
		if c.over() { // it cannot be made
			o.sayDone(c)
		}
	}
	if exceeded {
		return o, o.end(Failed, failure("max_tool_calls_exceeded", "The run can make at most %d tool calls, and its last step asked for more.", s.callsPerRun), now)
	}
	return o, s.proceed(o, now)
}

// answered is an answer without calls: the result, unless it is to be checked.
func (s *Service) answered(o *outcome, now time.Time) error {
	r := o.run
	if err := o.move(Verifying); err != nil {
		return err
	}
	if len(r.Orders.Schema) > 0 || len(r.Orders.Checks) > 0 {
		o.again(now)
		return nil
	}
	r.Result = &events.AgentResult{OutputText: r.Answer, Truncated: r.Truncated()}
	return o.end(Completed, nil, now)
}

// plan says what is to be done with a call that the model wants.
func (s *Service) plan(r *Run, position int, wanted wantedCall, now time.Time) *Call {
	c := &Call{RunID: r.ID, Step: r.StepsUsed, Position: int64(position), ID: callID(r.StepsUsed, position), Tool: wanted.name, Arguments: wanted.arguments,
		Hash: hashOf(wanted.arguments)}
	t, found := toolOf(r, wanted.name)
	if !found {
		c.finish(fmt.Sprintf("There is no tool %q. Use one of those that you were given.", wanted.name), true, now)
		return c
	}
	c.Kind = t.Kind
	if err := tools.CheckArguments(t, json.RawMessage(wanted.arguments)); err != nil {
		c.finish("The arguments were not accepted: "+err.Error(), true, now)
		return c
	}
	switch {
	case t.NeedsApproval:
		s.askFor(r, c, "", now)
	case t.Kind == tools.Function:
		c.await(r, now)
	default:
		c.Status = callReady
	}
	return c
}

// askFor has a person decide about a call.
func (s *Service) askFor(r *Run, c *Call, note string, now time.Time) {
	expires := now.Add(time.Duration(r.Orders.ApprovalSeconds) * time.Second)
	c.Status, c.ApprovalID, c.ExpiresAt, c.Note = callAsking, ids.New(ids.Approval), &expires, note
	c.Decision, c.DecidedBy, c.DecidedAt, c.Reason = "", "", nil, ""
}

// await has the customer execute a call.
func (c *Call) await(r *Run, now time.Time) {
	expires := now.Add(time.Duration(r.Orders.ToolOutputSeconds) * time.Second)
	c.Status, c.ExpiresAt = callWaiting, &expires
}

func toolOf(r *Run, name string) (tools.Tool, bool) {
	for _, t := range r.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return tools.Tool{}, false
}

// callID is unique in its run, which the ids of models are not always.
func callID(step int64, position int) string { return fmt.Sprintf("call_%d_%d", step, position) }

// proceed takes a run on by where its calls stand: approvals come first, then
// what is executed here, then what the customer executes.
func (s *Service) proceed(o *outcome, now time.Time) error {
	asking, waiting, ready := o.standing()
	switch {
	case asking != nil:
		o.run.DueAt, o.tell = asking, true
		for _, c := range o.calls {
			if c.Status == callAsking {
				o.say("approval.requested", map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "tool": c.Tool, "arguments": c.Arguments, "arguments_hash": c.Hash})
			}
		}
		return o.move(AwaitingApproval)
	case ready:
		o.again(now)
		return nil
	case waiting != nil:
		return o.handOver(now)
	}
	o.again(now)
	return nil
}

// standing is where a run's calls stand: until when decisions and the
// customer's outputs are waited for, and whether something is to be executed.
func (o *outcome) standing() (asking, waiting *time.Time, ready bool) {
	for _, c := range o.calls {
		switch c.Status {
		case callAsking:
			asking = earliest(asking, c.ExpiresAt)
		case callWaiting:
			waiting = earliest(waiting, c.ExpiresAt)
		case callReady, callStarted:
			ready = true
		}
	}
	return asking, waiting, ready
}

// handOver has the run wait for the customer's tools. Their time begins now:
// approvals and other tools came first.
func (o *outcome) handOver(now time.Time) error {
	for _, c := range o.calls {
		if c.Status == callWaiting {
			c.await(o.run, now)
			o.run.DueAt = c.ExpiresAt
		}
	}
	return o.move(RequiresAction)
}

func earliest(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
