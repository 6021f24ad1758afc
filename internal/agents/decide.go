package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// Decision is what a person says about a call.
type Decision struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	// Hash is that of the arguments which were looked at; empty for whichever.
	Hash string `json:"arguments_hash"`
}

const maxReason = 2000

// approvalDecided is a decision in the run's log.
const approvalDecided = "approval.decided"

// Decide approves or denies a call. The run goes on when all of its calls are
// decided about.
func (s *Service) Decide(ctx context.Context, tx *db.Tx, p *access.Principal, by audit.Actor, runID, approvalID string, d Decision) (*Run, []*Call, error) {
	if d.Decision != Approve && d.Decision != Deny {
		return nil, nil, fault.Invalid("decision", "decision must be approve or deny")
	}
	if utf8.RuneCountInString(d.Reason) > maxReason {
		return nil, nil, fault.Invalid("reason", "reason must have at most %d characters", maxReason)
	}
	r, calls, err := lockRun(ctx, tx, p, runID)
	if err != nil {
		return nil, nil, err
	}
	var c *Call
	for _, have := range calls {
		if have.ApprovalID == approvalID {
			c = have
		}
	}
	if c == nil {
		return r, calls, repeated(ctx, tx, r, calls, approvalID, d)
	}
	now := s.now()
	switch {
	case d.Hash != "" && d.Hash != c.Hash:
		return nil, nil, otherArguments()
	case c.Decision == d.Decision:
		return r, calls, nil // a second time changes nothing
	case c.Decision != "":
		return nil, nil, alreadyDecided(c.Decision)
	case r.Status != AwaitingApproval || c.Status != callAsking:
		return nil, nil, fault.New(fault.InvalidState, "the run does not wait for this decision: it is %s", r.Status)
	case c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
		return nil, nil, fault.New(fault.InvalidState, "the time for the decision is over")
	}
	o := begin(r)
	o.calls = ofStep(calls, r.StepsUsed)
	d.Reason = storable(d.Reason)
	c.Decision, c.DecidedBy, c.DecidedAt, c.Reason = d.Decision, by.Name, &now, d.Reason
	switch {
	case d.Decision == Deny:
		c.Status, c.IsError, c.FinishedAt = callDenied, true, &now
		c.Output = "A person denied this call."
		if d.Reason != "" {
			c.Output += " The reason: " + d.Reason
		}
	case c.Kind == tools.Function:
		c.await(r, now)
	default:
		c.Status = callReady
	}
	o.say(approvalDecided, map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "decision": d.Decision, "decided_by": by.Name, "reason": d.Reason})
	if err := audit.LogAction(ctx, tx, by, audit.Action{ID: ids.New(ids.AdminAction), WorkspaceID: r.WorkspaceID, Environment: string(r.Environment), Project: r.Project,
		Action: "agent.run." + d.Decision, Target: r.ID}, map[string]any{"approval": c.ApprovalID, "tool": c.Tool, "arguments_hash": c.Hash}, now); err != nil {
		return nil, nil, err
	}
	if err := goesOn(o, now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

// repeated is a decision about a call that somebody was asked about again since,
// after a crash. The run's log has what was decided the first time.
func repeated(ctx context.Context, tx *db.Tx, r *Run, calls []*Call, approvalID string, d Decision) error {
	rows, err := tx.Query(ctx, "SELECT data FROM agent_events WHERE run_id = $1 AND type = $2", r.ID, approvalDecided)
	list, err := db.All(rows, err, func(row db.Row) (data string, err error) {
		err = row.Scan(&data)
		return data, err
	})
	if err != nil {
		return fmt.Errorf("read decisions: %w", err)
	}
	for _, data := range list {
		var said struct {
			Approval string `json:"approval_id"`
			Call     string `json:"call_id"`
			Decision string `json:"decision"`
		}
		if err := json.Unmarshal([]byte(data), &said); err != nil {
			return fmt.Errorf("read decisions: %w", err)
		}
		if said.Approval != approvalID {
			continue
		}
		switch c := callOf(calls, said.Call); {
		case d.Hash != "" && (c == nil || d.Hash != c.Hash):
			return otherArguments()
		case said.Decision != d.Decision:
			return alreadyDecided(said.Decision)
		}
		return nil
	}
	return fault.NoSuch("approval", approvalID)
}

func otherArguments() error {
	return fault.Param(fault.InvalidState, "arguments_hash", "the decision is about other arguments than the call has")
}

func alreadyDecided(decision string) error {
	return fault.New(fault.InvalidState, "the call was decided about already: %s", decision)
}

// goesOn takes a run on that waited, if it need not wait any more.
func goesOn(o *outcome, now time.Time) error {
	asking, waiting, ready := o.standing()
	switch {
	case asking != nil:
		o.run.DueAt = asking
		return nil
	case !ready && waiting != nil && o.run.Status == RequiresAction:
		o.run.DueAt = waiting
		return nil
	case !ready && waiting != nil:
		return o.handOver(now)
	}
	o.again(now)
	return o.move(Queued)
}

// lockRun holds a run and returns the calls of its present step.
func lockRun(ctx context.Context, tx *db.Tx, p *access.Principal, id string) (*Run, []*Call, error) {
	r, err := get(ctx, tx, p, id, tx.Lock("agent_runs"))
	if err != nil {
		return nil, nil, err
	}
	calls, err := callsOf(ctx, tx, r.ID, 1, r.StepsUsed)
	return r, current(calls, r.StepsUsed), err
}

// current are a step's calls, and those of others that were decided about or
// were the customer's: a decision or an output may come twice.
func current(calls []*Call, step int64) (out []*Call) {
	for _, c := range calls {
		if c.Step == step || c.Decision != "" || c.Kind == tools.Function {
			out = append(out, c)
		}
	}
	return out
}

// ofStep are the calls that can still change: those of others are over, and
// are not written again with all that came of them.
func ofStep(calls []*Call, step int64) (out []*Call) {
	for _, c := range calls {
		if c.Step == step {
			out = append(out, c)
		}
	}
	return out
}

// apply writes an outcome in a transaction that holds the run.
func (s *Service) apply(ctx context.Context, tx *db.Tx, o *outcome) error {
	if err := s.writeOutcomes(ctx, tx, []*outcome{o}); err != nil {
		return err
	}
	if o.run.DueAt == nil {
		return nil
	}
	return wake(ctx, tx, o.run.Lane, *o.run.DueAt)
}

// ToolOutput is what came of a call that the customer has executed.
type ToolOutput struct {
	CallID  string `json:"call_id"`
	Output  string `json:"output"`
	IsError bool   `json:"is_error"`
}

const maxOutput = 256 << 10

// Outputs takes the outputs of the customer's tools, some or all of them. The
// run goes on when all are there.
func (s *Service) Outputs(ctx context.Context, tx *db.Tx, p *access.Principal, runID string, list []ToolOutput) (*Run, []*Call, error) {
	if len(list) == 0 {
		return nil, nil, fault.Missing("tool_outputs", "tool_outputs must have at least one output")
	}
	r, calls, err := lockRun(ctx, tx, p, runID)
	if err != nil {
		return nil, nil, err
	}
	now := s.now()
	o := begin(r)
	o.calls = ofStep(calls, r.StepsUsed)
	news := false
	for i, out := range list {
		place := fmt.Sprintf("tool_outputs[%d]", i)
		if len(out.Output) > maxOutput {
			return nil, nil, fault.Invalid(place+".output", "output must have at most %d bytes", maxOutput)
		}
		out.Output = storable(out.Output)
		c := callOf(calls, out.CallID)
		switch {
		case c == nil || c.Kind != tools.Function:
			return nil, nil, fault.Invalid(place+".call_id", "the run has no call %q that waits for an output", out.CallID)
		case c.Status == callDone && c.Output == out.Output && c.IsError == out.IsError:
			continue // a second time changes nothing
		case c.Status != callWaiting:
			return nil, nil, fault.New(fault.InvalidState, "the call %s does not wait for an output: it is %s", out.CallID, c.Status)
		case r.Status == RequiresAction && c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
			return nil, nil, fault.New(fault.InvalidState, "the time for the output of %s is over", out.CallID)
		}
		c.finish(out.Output, out.IsError, now)
		o.sayDone(c)
		news = true
	}
	if !news {
		return r, calls, nil
	}
	if r.Status != RequiresAction && r.Status != AwaitingApproval {
		return nil, nil, fault.New(fault.InvalidState, "the run does not wait for outputs: it is %s", r.Status)
	}
	if err := goesOn(o, now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

func callOf(calls []*Call, id string) *Call {
	for _, c := range calls {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Cancel stops a run. One that is worked at the moment is stopped as soon as
// its turn is over.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, p *access.Principal, runID string) (*Run, []*Call, error) {
	r, calls, err := lockRun(ctx, tx, p, runID)
	if err != nil {
		return nil, nil, err
	}
	now := s.now()
	switch {
	case r.Status == Cancelling || r.Status == Cancelled:
		return r, calls, nil
	case r.Status.Ended():
		return nil, nil, fault.New(fault.InvalidState, "the run has ended already: it is %s", r.Status)
	case r.Status == InProgress || r.Status == Verifying:
		// Not a turn of its own: the one that is worked goes on, and is heeded.
		r.Status, r.DueAt = Cancelling, &now
		r.Logged++
		if _, err := tx.Exec(ctx, "UPDATE agent_runs SET status = $2, due_at = $3, logged = $4 WHERE id = $1", r.ID, string(Cancelling), now.UnixMicro(), r.Logged); err != nil {
			return nil, nil, fmt.Errorf("cancel: %w", err)
		}
		if _, err := insertEntries.Write(ctx, tx, [][]any{{r.ID, r.Logged, "run.cancelling", `{"status":"cancelling"}`, now.UnixMicro()}}); err != nil {
			return nil, nil, fmt.Errorf("cancel: %w", err)
		}
		tx.OnCommit(func() { s.watchers.wake(r.ID) })
		tx.Signal(signalCancel, r.ID)
		return r, calls, wake(ctx, tx, r.Lane, now)
	}
	o := begin(r)
	o.calls = ofStep(calls, r.StepsUsed)
	if err := o.end(Cancelled, errCancelled, now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}
