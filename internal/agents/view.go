package agents

import (
	"turnpike/internal/agents/tools"
	"turnpike/internal/events"
)

// Object returns the run as the API and its events show it.
func Object(r *Run, calls []*Call) events.AgentRun {
	o := events.AgentRun{ID: r.ID, Object: "agent.run", Status: string(r.Status), Model: r.Model, MaxSteps: int(r.MaxSteps), StepsUsed: int(r.StepsUsed),
		Usage:           events.AgentUsage{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, Credits: r.Credits},
		RequiredActions: requiredActions(r, calls), Error: r.Error, Metadata: r.Metadata, CreatedAt: r.CreatedAt.Unix(), StartedAt: events.Unix(r.StartedAt),
		CompletedAt: events.Unix(r.CompletedAt)}
	if r.Budget != nil {
		o.Budget = &events.AgentBudget{MaxCredits: *r.Budget}
	}
	switch {
	case r.Status == Completed:
		o.Result = r.Result
	case r.Answer != "":
		o.PartialResult = &r.Answer
	}
	return o
}

// requiredActions lists the decisions and outputs that a run waits for.
func requiredActions(r *Run, calls []*Call) []events.RequiredAction {
	list := []events.RequiredAction{}
	if !r.NeedsAction() {
		return list
	}
	for _, c := range calls {
		a := events.RequiredAction{CallID: c.ID, Tool: c.Tool, Arguments: c.Arguments}
		if c.ExpiresAt != nil {
			a.ExpiresAt = c.ExpiresAt.Unix()
		}
		switch {
		case c.Status == callAwaitingApproval:
			a.Type, a.ID, a.ArgumentsHash, a.Note = "approval", c.ApprovalID, c.Hash, c.Note
			a.Roles = r.rulesFor(c).Roles
		case c.Status == callAwaitingOutput && c.Kind == tools.Function:
			a.Type, a.Arguments = "function_call", c.effectiveArguments()
		default:
			continue
		}
		list = append(list, a)
	}
	return list
}
