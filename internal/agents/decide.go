package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
)

// Decision is a person's decision about a call.
type Decision struct {
	Decision Verdict `json:"decision"`
	Reason   string  `json:"reason,omitzero"`
	// Hash is the hash of the arguments that the person saw. Empty matches any, except for an edit.
	Hash string `json:"arguments_hash,omitzero"`
	// Arguments are the new arguments of an edit: a JSON object, or a string with one.
	Arguments jsontext.Value `json:"arguments,omitzero"`
	// Response is the answer of respond, which the model gets instead of the tool's output.
	Response string `json:"response,omitzero"`
}

const maxReason = 2000

const approvalDecided = "approval.decided"

// DecideParams say who decides about which call.
type DecideParams struct {
	tools.Decider
	RunID      string
	ApprovalID string
	Decision   Decision
}

// check validates a decision without the call, and brings edited arguments into one form.
func (d *Decision) check() error {
	if !slices.Contains(Verdicts, d.Decision) {
		return fault.Invalid("decision", "decision must be approve, deny, edit or respond.")
	}
	if utf8.RuneCountInString(d.Reason) > maxReason {
		return fault.Invalid("reason", "reason must have at most %d characters.", maxReason)
	}
	d.Reason, d.Response = db.Storable(d.Reason), db.Storable(d.Response)
	switch {
	case d.Decision != Respond && d.Response != "":
		return fault.Invalid("response", "response is only for the decision respond.")
	case d.Decision == Respond && d.Response == "":
		return fault.Missing("response", "response is required. It is the answer that the model gets instead of the tool's output.")
	case len(d.Response) > maxOutput:
		return fault.Invalid("response", "response must have at most %d bytes.", maxOutput)
	case d.Decision != Edit && len(d.Arguments) > 0:
		return fault.Invalid("arguments", "arguments are only for the decision edit.")
	case d.Decision != Edit:
		return nil
	case d.Hash == "":
		return fault.Missing("arguments_hash", "arguments_hash is required for an edit. Send the hash of the arguments that you saw.")
	case len(d.Arguments) > maxOutput:
		return fault.Invalid("arguments", "arguments must have at most %d bytes.", maxOutput)
	}
	if d.Arguments.Kind() == jsontext.KindString {
		text, err := jsontext.AppendUnquote(nil, d.Arguments)
		if err != nil {
			return fault.Invalid("arguments", "arguments must be a JSON object.")
		}
		d.Arguments = text
	}
	if err := d.Arguments.Compact(); err != nil || d.Arguments.Kind() != jsontext.KindBeginObject {
		return fault.Invalid("arguments", "arguments must be a JSON object.")
	}
	d.Arguments = jsontext.Value(db.Storable(string(d.Arguments)))
	return nil
}

// repeats reports whether the call already has this decision.
func (d *Decision) repeats(c *Call) bool {
	return c.Decision == d.Decision && (d.Decision != Edit || c.Edited == string(d.Arguments)) && (d.Decision != Respond || c.Output == d.Response)
}

// Decide decides about a call. The run continues once all of its calls are decided.
func (s *Service) Decide(ctx context.Context, tx *db.Tx, in DecideParams) (*Run, []*Call, error) {
	if err := in.Decision.check(); err != nil {
		return nil, nil, err
	}
	d := in.Decision
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
	case d.repeats(c), c.Decision == "" && d.Decision == Approve && slices.Contains(c.ApprovedBy, in.Actor.Name):
		return r, calls, nil // repeated
	case c.Decision != "":
		return nil, nil, alreadyDecided(c.Decision)
	case r.Status != AwaitingApproval || c.Status != callAwaitingApproval:
		return nil, nil, fault.New(fault.InvalidState, "The run does not wait for this decision. Its status is %s.", r.Status)
	case c.ExpiresAt != nil && !now.Before(*c.ExpiresAt):
		return nil, nil, fault.New(fault.InvalidState, "The approval has expired.")
	}
	rules := r.rulesFor(c)
	simple := d.Decision == Approve || d.Decision == Deny
	vote := tools.Vote{KeyID: r.KeyID, ApprovedBy: c.ApprovedBy, Approve: d.Decision == Approve, Simple: simple}
	if err := rules.AllowDecision(ctx, tx, in.Decider, vote); err != nil {
		return nil, nil, err
	}
	o := newOutcome(r)
	o.calls = callsOfStep(calls, r.StepsUsed)
	if err := o.decide(c, rules, in, now); err != nil {
		return nil, nil, err
	}
	detail := map[string]any{"approval": c.ApprovalID, "tool": c.Tool, "arguments_hash": c.Hash}
	if c.Edited != "" {
		detail["edited_arguments_hash"] = hashOf(c.Edited)
	}
	if err := in.Actor.Log(ctx, tx, audit.Action{ID: ids.New(ids.AdminAction), Tenant: r.Tenant, Project: r.Project,
		Action: "agent.run." + string(d.Decision), Target: r.ID}, detail, now); err != nil {
		return nil, nil, err
	}
	if err := o.resume(now); err != nil {
		return nil, nil, err
	}
	return o.run, calls, s.apply(ctx, tx, o)
}

// decide applies a decision to a call, or records the first of two approvals.
func (o *outcome) decide(c *Call, rules *tools.ApprovalRules, in DecideParams, now time.Time) error {
	d := in.Decision
	if rules.Approvers > 1 && d.Decision == Approve {
		if c.ApprovedBy = append(c.ApprovedBy, in.Actor.Name); int64(len(c.ApprovedBy)) < rules.Approvers {
			o.logEvent("approval.approved", map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "approved_by": in.Actor.Name, "approvals": len(c.ApprovedBy), "approvers": rules.Approvers})
			return nil
		}
	}
	entry := map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "decision": d.Decision, "decided_by": in.Actor.Name, "reason": d.Reason}
	c.Decision, c.DecidedBy, c.DecidedAt, c.Reason = d.Decision, in.Actor.Name, &now, d.Reason
	switch d.Decision {
	case Deny:
		if err := c.decided(callDenied); err != nil {
			return err
		}
		c.IsError, c.FinishedAt = true, &now
		c.Output = "A person denied this call."
		if d.Reason != "" {
			c.Output += " The reason: " + d.Reason
		}
	case Respond:
		if err := c.decided(callCompleted); err != nil {
			return err
		}
		c.finish(d.Response, false, now)
	case Edit:
		t, found := toolOf(o.run, c.Tool)
		if !found {
			return fault.New(fault.InvalidState, "The tool %s no longer exists. Deny the call.", c.Tool)
		}
		if err := tools.CheckArguments(t, json.RawMessage(d.Arguments)); err != nil {
			return fault.Invalid("arguments", "%s.", capitalized(err.Error()))
		}
		c.Edited, entry["arguments"], entry["edited_arguments"] = string(d.Arguments), c.Arguments, string(d.Arguments)
	}
	if d.Decision == Approve || d.Decision == Edit {
		next := callReady
		if c.Kind == tools.Function {
			next = callAwaitingOutput
		}
		if err := c.decided(next); err != nil {
			return err
		}
		if next == callAwaitingOutput {
			c.awaitOutput(o.run, now)
		}
	}
	o.logEvent(approvalDecided, entry)
	if d.Decision == Respond {
		o.logCallCompleted(c)
	}
	return nil
}

func capitalized(s string) string { return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") }

// checkApprovers rejects a run with approval rules that no one can satisfy.
func checkApprovers(ctx context.Context, tx *db.Tx, r *Run, now time.Time) error {
	for i, spec := range r.Specs {
		param := fmt.Sprintf("tools[%d].approval_rules", i)
		for _, rules := range append(slices.Collect(maps.Values(spec.ToolRules)), spec.Rules) {
			if err := rules.CheckSatisfiable(ctx, tx, param, tools.Approvers{Tenant: r.Tenant, KeyID: r.KeyID, Now: now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// expireApprovals ends the wait for decisions that are overdue. The run fails, unless the tools of all overdue calls
// report that to the model.
func (s *Service) expireApprovals(ctx context.Context, o *outcome, now time.Time) error {
	calls, err := s.Calls(ctx, s.DB, o.run.ID, o.run.StepsUsed, o.run.StepsUsed)
	if err != nil {
		return err
	}
	o.calls = calls
	for _, c := range calls {
		if c.Status != callAwaitingApproval || c.ExpiresAt == nil || now.Before(*c.ExpiresAt) {
			continue
		}
		if o.run.rulesFor(c).OnExpiry != tools.ExpiryReports {
			o.calls = nil
			return o.end(Failed, runError("approval_expired", "No one decided about the tool call in time."), now)
		}
		if err := c.decided(callCompleted); err != nil {
			return err
		}
		c.finish("The call was not made: no one decided about it in time.", true, now)
		o.logEvent("approval.expired", map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID})
		o.logCallCompleted(c)
	}
	return o.resume(now)
}

// PendingApproval reports whether an approval of a run waits for a decision.
func PendingApproval(ctx context.Context, q db.Querier, runID, approvalID string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM agent_calls c JOIN agent_runs r ON r.id = c.run_id
		WHERE c.run_id = $1 AND c.approval_id = $2 AND c.status = $3 AND r.status = $4)`, runID, approvalID, string(callAwaitingApproval), string(AwaitingApproval)))
}

// checkReplacedApproval handles a decision about an approval that another one
// replaced after a crash. The run's log has the first decision.
func checkReplacedApproval(ctx context.Context, tx *db.Tx, r *Run, calls []*Call, in DecideParams) error {
	type decision struct {
		Approval string  `json:"approval_id"`
		Call     string  `json:"call_id"`
		Decision Verdict `json:"decision"`
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

func alreadyDecided(decision Verdict) error {
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

// addressableCalls returns the calls of a step, and those of other steps with an
// approval or an output, which clients may repeat.
func addressableCalls(calls []*Call, step int64) []*Call {
	return slices.DeleteFunc(calls, func(c *Call) bool { return c.Step != step && c.ApprovalID == "" && c.Kind != tools.Function })
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
