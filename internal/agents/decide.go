package agents

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// Decision is a person's decision about a call.
type Decision struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	// Hash is the hash of the arguments that the person saw. Empty matches any.
	Hash string `json:"arguments_hash"`
}

const maxReason = 2000

const approvalDecided = "approval.decided"

// DecideParams say who decides about which call.
type DecideParams struct {
	Principal  *access.Principal
	Actor      audit.Actor
	RunID      string
	ApprovalID string
	Decision   Decision
}

// Decide approves or denies a call. The run continues once all of its calls are
// decided.
func (s *Service) Decide(ctx context.Context, tx *db.Tx, in DecideParams) (*Run, []*Call, error) {
	d := in.Decision
	if d.Decision != Approve && d.Decision != Deny {
		return nil, nil, fault.Invalid("decision", "decision must be approve or deny.")
	}
	if utf8.RuneCountInString(d.Reason) > maxReason {
		return nil, nil, fault.Invalid("reason", "reason must have at most %d characters.", maxReason)
	}
	r, calls, err := s.lockRun(ctx, tx, in.Principal, in.RunID)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(calls, func(c *Call) bool { return c.ApprovalID == in.ApprovalID })
	if i < 0 {
		return r, calls, checkReplacedApproval(ctx, tx, r, calls, in)
	}
	c := calls[i]
	now := s.Now()
	switch {
	case d.Hash != "" && d.Hash != c.Hash:
		return nil, nil, argumentsDiffer()
	case c.Decision == d.Decision:
		return r, calls, nil // repeated
	case c.Decision != "":
		return nil, nil, alreadyDecided(c.Decision)
	case r.Status != AwaitingApproval || c.Status != callAwaitingApproval:
		return nil, nil, fault.New(fault.InvalidState, "The run does not wait for this decision. Its status is %s.", r.Status)
	case c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
		return nil, nil, fault.New(fault.InvalidState, "The approval has expired.")
	}
	o := newOutcome(r)
	o.calls = callsOfStep(calls, r.StepsUsed)
	d.Reason = db.Storable(d.Reason)
	c.Decision, c.DecidedBy, c.DecidedAt, c.Reason = d.Decision, in.Actor.Name, &now, d.Reason
	switch {
	case d.Decision == Deny:
		c.Status, c.IsError, c.FinishedAt = callDenied, true, &now
		c.Output = "A person denied this call."
		if d.Reason != "" {
			c.Output += " The reason: " + d.Reason
		}
	case c.Kind == tools.Function:
		c.awaitOutput(r, now)
	default:
		c.Status = callReady
	}
	o.logEvent(approvalDecided, map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "decision": d.Decision, "decided_by": in.Actor.Name, "reason": d.Reason})
	if err := in.Actor.Log(ctx, tx, audit.Action{ID: ids.New(ids.AdminAction), Tenant: r.Tenant, Project: r.Project,
		Action: "agent.run." + d.Decision, Target: r.ID}, map[string]any{"approval": c.ApprovalID, "tool": c.Tool, "arguments_hash": c.Hash}, now); err != nil {
		return nil, nil, err
	}
	if err := o.resume(now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

// checkReplacedApproval handles a decision about an approval that another one
// replaced after a crash. The run's log has the first decision.
func checkReplacedApproval(ctx context.Context, tx *db.Tx, r *Run, calls []*Call, in DecideParams) error {
	type decision struct {
		Approval string `json:"approval_id"`
		Call     string `json:"call_id"`
		Decision string `json:"decision"`
	}
	list, err := db.List(ctx, tx, db.Value[decision], "SELECT data FROM agent_events WHERE run_id = $1 AND type = $2", r.ID, approvalDecided)
	if err != nil {
		return fmt.Errorf("read decisions: %w", err)
	}
	for _, logged := range list {
		if logged.Approval != in.ApprovalID {
			continue
		}
		switch c := callOf(calls, logged.Call); {
		case in.Decision.Hash != "" && (c == nil || in.Decision.Hash != c.Hash):
			return argumentsDiffer()
		case logged.Decision != in.Decision.Decision:
			return alreadyDecided(logged.Decision)
		}
		return nil
	}
	return fault.NoSuch("approval", in.ApprovalID)
}

func argumentsDiffer() error {
	return fault.Param(fault.InvalidState, "arguments_hash", "arguments_hash does not match the arguments of the call.")
}

func alreadyDecided(decision string) error {
	return fault.New(fault.InvalidState, "The call already has a decision: %s.", decision)
}

// resume queues a waiting run if it has nothing left to wait for.
func (o *outcome) resume(now time.Time) error {
	pending := o.pendingCalls()
	switch {
	case pending.approval != nil:
		o.run.DueAt = pending.approval
		return nil
	case !pending.ready && pending.output != nil && o.run.Status == RequiresAction:
		o.run.DueAt = pending.output
		return nil
	case !pending.ready && pending.output != nil:
		return o.requireOutputs(now)
	}
	o.schedule(now, 0)
	return o.transition(Queued, now)
}

// lockRun locks a run. It returns the calls that a decision or an output can be
// about.
func (s *Service) lockRun(ctx context.Context, tx *db.Tx, p *access.Principal, id string) (*Run, []*Call, error) {
	r, err := get(ctx, tx, p, id, tx.Lock("agent_runs"))
	if err != nil {
		return nil, nil, err
	}
	calls, err := s.Calls(ctx, tx, r.ID, 1, r.StepsUsed)
	return r, addressableCalls(calls, r.StepsUsed), err
}

// addressableCalls returns the calls of a step, and those of other steps with a
// decision or an output, which clients may repeat.
func addressableCalls(calls []*Call, step int64) []*Call {
	return slices.DeleteFunc(calls, func(c *Call) bool { return c.Step != step && c.Decision == "" && c.Kind != tools.Function })
}

// callsOfStep returns the calls of a step. Those of other steps don't change.
func callsOfStep(calls []*Call, step int64) []*Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c *Call) bool { return c.Step != step })
}

// apply writes an outcome in a transaction that holds the run's lock.
func (s *Service) apply(ctx context.Context, tx *db.Tx, o *outcome) error {
	if err := s.writeOutcomes(ctx, tx, []*outcome{o}); err != nil {
		return err
	}
	if o.run.DueAt == nil {
		return nil
	}
	return wake(ctx, tx, o.run.Lane, *o.run.DueAt)
}

// ToolOutput is the result of a call that the client executed.
type ToolOutput struct {
	CallID  string `json:"call_id"`
	Output  string `json:"output"`
	IsError bool   `json:"is_error"`
}

const maxOutput = 256 << 10

// SubmitOutputs stores outputs of the client's tools. The run continues once it
// has all of them.
func (s *Service) SubmitOutputs(ctx context.Context, tx *db.Tx, p *access.Principal, runID string, list []ToolOutput) (*Run, []*Call, error) {
	if len(list) == 0 {
		return nil, nil, fault.Missing("tool_outputs", "tool_outputs must have at least one output.")
	}
	r, calls, err := s.lockRun(ctx, tx, p, runID)
	if err != nil {
		return nil, nil, err
	}
	now := s.Now()
	o := newOutcome(r)
	o.calls = callsOfStep(calls, r.StepsUsed)
	changed := false
	for i, out := range list {
		param := fmt.Sprintf("tool_outputs[%d]", i)
		if len(out.Output) > maxOutput {
			return nil, nil, fault.Invalid(param+".output", "output must have at most %d bytes.", maxOutput)
		}
		out.Output = db.Storable(out.Output)
		c := callOf(calls, out.CallID)
		switch {
		case c == nil || c.Kind != tools.Function:
			return nil, nil, fault.Invalid(param+".call_id", "The run has no call %q that waits for an output.", out.CallID)
		case c.Status == callCompleted && c.Output == out.Output && c.IsError == out.IsError:
			continue // repeated
		case c.Status != callAwaitingOutput:
			return nil, nil, fault.New(fault.InvalidState, "The call %s does not wait for an output. Its status is %s.", out.CallID, c.Status)
		case r.Status == RequiresAction && c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
			return nil, nil, fault.New(fault.InvalidState, "The time to submit the output of %s is over.", out.CallID)
		}
		c.finish(out.Output, out.IsError, now)
		o.logCallCompleted(c)
		changed = true
	}
	if !changed {
		return r, calls, nil
	}
	if r.Status != RequiresAction && r.Status != AwaitingApproval {
		return nil, nil, fault.New(fault.InvalidState, "The run does not wait for outputs. Its status is %s.", r.Status)
	}
	if err := o.resume(now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

func callOf(calls []*Call, id string) *Call {
	if i := slices.IndexFunc(calls, func(c *Call) bool { return c.ID == id }); i >= 0 {
		return calls[i]
	}
	return nil
}

// Cancel stops a run. A turn in progress is interrupted, and the next one ends the
// run.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, p *access.Principal, runID string) (*Run, []*Call, error) {
	r, calls, err := s.lockRun(ctx, tx, p, runID)
	if err != nil {
		return nil, nil, err
	}
	now := s.Now()
	switch {
	case r.Status == Cancelling || r.Status == Cancelled:
		return r, calls, nil
	case r.Status.Ended():
		return nil, nil, fault.New(fault.InvalidState, "The run has already ended. Its status is %s.", r.Status)
	case r.Status == InProgress || r.Status == Verifying:
		r, err := s.markCancelling(ctx, tx, r, now)
		return r, calls, err
	}
	o := newOutcome(r)
	o.calls = callsOfStep(calls, r.StepsUsed)
	if err := o.end(Cancelled, errCancelled, now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

// markCancelling cancels a run whose turn may be in progress. It does not raise the
// turn, so the turn's results still count and get the cancellation applied.
func (s *Service) markCancelling(ctx context.Context, tx *db.Tx, r *Run, now time.Time) (*Run, error) {
	o := newOutcome(r)
	if err := o.transition(Cancelling, now); err != nil {
		return nil, err
	}
	r = o.run
	r.Logged++
	if _, err := tx.Exec(ctx, "UPDATE agent_runs SET status = $2, due_at = $3, logged = $4 WHERE id = $1", r.ID, string(r.Status), db.Micros(r.DueAt), r.Logged); err != nil {
		return nil, fmt.Errorf("cancel run: %w", err)
	}
	if _, err := insertEntries.Write(ctx, tx, [][]any{{r.ID, r.Logged, "run.cancelling", `{"status":"cancelling"}`, now.UnixMicro()}}); err != nil {
		return nil, fmt.Errorf("cancel run: %w", err)
	}
	tx.OnCommit(func() { s.watchers.Wake(r.ID) })
	tx.Signal(signalCancel, r.ID)
	return r, wake(ctx, tx, r.Lane, now)
}
