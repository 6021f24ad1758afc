package agents

import (
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/agents/tools"
	"turnpike/internal/ids"
)

// planCalls decides what happens to each tool call that the model requested.
func (s *Service) planCalls(o *outcome, a answer, now time.Time) error {
	r := o.run
	for i, c := range a.calls {
		o.calls = append(o.calls, s.planCall(r, i, c, now))
	}
	if last := o.calls[len(o.calls)-1]; a.truncated && !last.finished() {
		// Its arguments may be incomplete even if they are valid.
		last.skip("The call was not made: your answer was cut off in it, as it was too long. Make fewer calls at once, or shorter ones.", now)
	}
	if r.StepsUsed >= r.MaxSteps {
		for _, c := range o.calls {
			if !c.finished() {
				c.skip("The call was not made: the run has no step left.", now)
			}
		}
	}
	s.limitStepCalls(o, now)
	exceeded := s.exceedsRunCalls(o, now)
	for _, c := range o.calls {
		o.logEvent("tool_call.requested", map[string]any{"call_id": c.ID, "tool": c.Tool, "arguments": c.Arguments})
		if c.finished() {
			o.logCallCompleted(c)
		}
	}
	if exceeded {
		return o.end(Failed, runError("max_tool_calls_exceeded", "The run can make at most %d tool calls, and its last step requested more.", s.settings.Load().CallsPerRun), now)
	}
	return o.proceed(now)
}

func (s *Service) planCall(r *Run, position int, requested toolRequest, now time.Time) *Call {
	c := &Call{RunID: r.ID, Step: r.StepsUsed, Position: int64(position), ID: callID(r.StepsUsed, position), Tool: requested.name, Arguments: requested.arguments,
		Hash: hashOf(requested.arguments)}
	t, found := toolOf(r, requested.name)
	if !found {
		c.finish(fmt.Sprintf("There is no tool %q. Use one of those that you were given.", requested.name), true, now)
		return c
	}
	c.Kind = t.Kind
	if err := tools.CheckArguments(t, json.RawMessage(requested.arguments)); err != nil {
		c.finish("The arguments were not accepted: "+err.Error(), true, now)
		return c
	}
	switch {
	case t.NeedsApproval && r.rulesOf(t).Apply(json.RawMessage(requested.arguments)):
		c.requestApproval(r, "", now)
	case t.Kind == tools.Function:
		c.awaitOutput(r, now)
	default:
		c.Status = callReady
	}
	return c
}

// requestApproval makes the call wait for a person's decision.
func (c *Call) requestApproval(r *Run, note string, now time.Time) {
	expires := now.Add(time.Duration(r.Config.ApprovalSeconds) * time.Second)
	c.Status, c.ApprovalID, c.ExpiresAt, c.Note = callAwaitingApproval, ids.New(ids.Approval), &expires, note
	c.Decision, c.DecidedBy, c.DecidedAt, c.Reason, c.ApprovedBy = "", "", nil, "", nil
}

// awaitOutput makes the call wait for the client, which executes the tool.
func (c *Call) awaitOutput(r *Run, now time.Time) {
	expires := now.Add(time.Duration(r.Config.ToolOutputSeconds) * time.Second)
	c.Status, c.ExpiresAt = callAwaitingOutput, &expires
}

// rulesOf returns the approval rules of a tool.
func (r *Run) rulesOf(t tools.Tool) *tools.ApprovalRules {
	if t.Spec < 0 || t.Spec >= len(r.Specs) {
		return &tools.ApprovalRules{}
	}
	spec := &r.Specs[t.Spec]
	if own, ok := spec.ToolRules[t.Remote]; ok {
		return &own
	}
	return &spec.Rules
}

// rulesFor returns the approval rules of a call. A tool that no longer exists has the defaults.
func (r *Run) rulesFor(c *Call) *tools.ApprovalRules {
	t, found := toolOf(r, c.Tool)
	if !found {
		return &tools.ApprovalRules{}
	}
	return r.rulesOf(t)
}

func toolOf(r *Run, name string) (tools.Tool, bool) {
	for _, t := range r.Tools {
		if t.Name == name {
			return t, true
		}
	}
	return tools.Tool{}, false
}

// callID returns an ID that is unique in its run. The IDs of models are not
// always.
func callID(step int64, position int) string { return fmt.Sprintf("call_%d_%d", step, position) }

// proceed moves the run on by the states of its calls: approvals come first,
// then the server's own calls, then the client's.
func (o *outcome) proceed(now time.Time) error {
	pending := o.pendingCalls()
	switch {
	case pending.approval != nil:
		o.run.DueAt = pending.approval
		for _, c := range o.calls {
			if c.Status == callAwaitingApproval {
				o.logEvent("approval.requested", map[string]any{"approval_id": c.ApprovalID, "call_id": c.ID, "tool": c.Tool, "arguments": c.Arguments, "arguments_hash": c.Hash})
			}
		}
		return o.transition(AwaitingApproval, now)
	case pending.output != nil && !pending.ready:
		return o.requireOutputs(now)
	}
	o.schedule(now, 0)
	return nil
}

// pending says what the calls of a step wait for.
type pending struct {
	approval, output *time.Time // when the first decision and the first output expire
	ready            bool       // some can be executed
}

func (o *outcome) pendingCalls() (p pending) {
	for _, c := range o.calls {
		switch c.Status {
		case callAwaitingApproval:
			p.approval = earliest(p.approval, c.ExpiresAt)
		case callAwaitingOutput:
			p.output = earliest(p.output, c.ExpiresAt)
		case callReady, callStarted:
			p.ready = true
		}
	}
	return p
}

// requireOutputs makes the run wait for the client's tools. Their time begins
// now, because approvals and other tools came first.
func (o *outcome) requireOutputs(now time.Time) error {
	for _, c := range o.calls {
		if c.Status == callAwaitingOutput {
			c.awaitOutput(o.run, now)
			o.run.DueAt = c.ExpiresAt
		}
	}
	return o.transition(RequiresAction, now)
}

// earliest returns the earlier of two times, ignoring nil.
func earliest(a, b *time.Time) *time.Time {
	if a == nil || b != nil && b.Before(*a) {
		return b
	}
	return a
}
