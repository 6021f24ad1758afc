package gateway

import (
	"context"
	"fmt"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

// caps returns every account that a call is charged to, with its budget.
func (g *Gateway) caps(ctx context.Context, c Call) ([]spend.Cap, error) {
	p := c.Principal
	workspace, project, err := g.Budgets(ctx, p.Tenant, c.Project)
	if err != nil {
		return nil, err
	}
	caps := []spend.Cap{
		{Account: spend.Account{Level: spend.Workspace, ID: p.WorkspaceID}, Limit: workspace},
		{Account: spend.Account{Level: spend.Key, ID: p.KeyID}, Limit: p.MonthlyBudget},
	}
	if c.Project != "" {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Project, ID: spend.ProjectID(p.WorkspaceID, c.Project)}, Limit: project})
	}
	for _, a := range p.Ancestors {
		caps = append(caps, spend.Cap{Account: spend.Account{Level: spend.Key, ID: a.KeyID}, Limit: a.MonthlyBudget})
	}
	return caps, nil
}

type limitDetails struct {
	LimitSource spend.Level   `json:"limit_source"`
	Limit       credits.Micro `json:"limit"`
	Spent       credits.Micro `json:"spent"`
	Reserved    credits.Micro `json:"reserved"`  // for calls and jobs in progress
	ResetsAt    *int64        `json:"resets_at"` // null for a run, whose budget never resets
}

// ancestorDetails are what the owner of this key may know about an ancestor's budget.
type ancestorDetails struct {
	LimitSource string `json:"limit_source"`
	ResetsAt    int64  `json:"resets_at"`
}

func ancestorFault(r *spend.Refusal, hint string) error {
	remedy := "Raise"
	if r.Transient {
		remedy = "Retry when requests in progress have finished, raise"
	}
	f := fault.New(fault.BudgetExceeded, "A key that created this key has too little of its monthly budget left for this request. %s that budget, or %s.", remedy, hint)
	f.Details = ancestorDetails{LimitSource: "ancestor_key", ResetsAt: r.Resets.Unix()}
	return f.Because(r)
}

// refusalFault converts the refusal of a budget. The hint is what to do other than raising it. The
// settlement of the log entry publishes the event about the refusal.
func refusalFault(c Call, r *spend.Refusal, hint string) error {
	c.Record.Note(func(e *audit.Entry) { e.Hold = r })
	if r.Level == spend.Key && r.ID != c.Principal.KeyID {
		return ancestorFault(r, hint)
	}
	details := limitDetails{LimitSource: r.Level, Limit: r.Limit, Spent: r.Spent, Reserved: r.Reserved}
	if !r.Resets.IsZero() {
		at := r.Resets.Unix()
		details.ResetsAt = &at
	}
	reserved, wait := "", ""
	if r.Reserved > 0 {
		reserved = fmt.Sprintf(" and reserved %s for requests in progress", r.Reserved)
	}
	if r.Transient {
		wait = " Retry when those have finished."
	}
	var f *fault.Error
	switch r.Level {
	case spend.Workspace:
		f = fault.New(fault.InsufficientCredits, "Not enough credits: the workspace has used %s of %s this month%s, and this request could cost more than is left.%s An admin can raise the limit with PATCH /v1/billing.", r.Spent, r.Limit, reserved, wait)
	case spend.Run:
		f = fault.New(fault.BudgetExceeded, "The run has used %s of its budget of %s credits, and its next step could cost more than is left.", r.Spent, r.Limit)
	default:
		f = fault.New(fault.BudgetExceeded, "The %s has used %s of its monthly budget of %s credits%s, and this request could cost more than is left.%s Raise the budget, or %s.", r.Level, r.Spent, r.Limit, reserved, wait, hint)
	}
	f.Details = details
	return f.Because(r)
}
