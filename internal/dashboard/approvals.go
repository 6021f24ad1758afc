package dashboard

import (
	"cmp"
	"slices"

	"turnpike/internal/agents"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/web"
)

// maxPendingShown is how many waiting calls the page shows.
const maxPendingShown = 50

// pendingToolCalls returns the newest calls of MCP clients that need a decision.
func (req *request) pendingToolCalls() ([]*toolservers.Approval, error) {
	return req.toolCalls.get(func() ([]*toolservers.Approval, error) { return req.newestToolCalls(waitingShown) })
}

func (req *request) newestToolCalls(limit int) ([]*toolservers.Approval, error) {
	found, err := req.s.ToolServers.Approvals(req.Context(), req.s.DB, req.principal.Visibility(), toolservers.Pending, db.Page{Limit: limit})
	if err != nil {
		return nil, err
	}
	return found.Rows, nil
}

type approvalRow struct {
	*toolservers.Approval
	State   toolservers.ApprovalStatus
	Decider string // a person's name

	FirstApprover string // if two must approve
	Refused       bool   // its form was rejected and is shown again
}

// Exactly returns the arguments with every character visible.
func (a approvalRow) Exactly() string { return escapeInvisible(a.Arguments) }

// Indented returns them with line breaks, or an empty string if that is the same.
func (a approvalRow) Indented() string {
	if s := escapeInvisible(showJSON(a.Arguments)); s != a.Exactly() {
		return s
	}
	return ""
}

type approvalsData struct {
	Pending []approvalRow
	Rows    []approvalRow
	Next    pager
}

func approvalsPage(req *request) (*view, error) {
	pending, err := req.newestToolCalls(maxPendingShown)
	if err != nil {
		return nil, err
	}
	page := req.page(ids.Approval)
	found, err := req.s.ToolServers.Approvals(req.Context(), req.s.DB, req.principal.Visibility(), "", page)
	if err != nil {
		return nil, err
	}
	var people []string
	for _, a := range slices.Concat(pending, found.Rows) {
		people = append(append(people, a.DecidedBy), a.ApprovedBy...)
	}
	names, err := req.peopleNames(people...)
	if err != nil {
		return nil, err
	}
	row := func(a *toolservers.Approval) approvalRow {
		r := approvalRow{Approval: a, State: a.Status(req.now()), Decider: cmp.Or(names[a.DecidedBy], a.DecidedBy), Refused: req.problem != nil && req.id() == a.ID}
		if len(a.ApprovedBy) > 0 {
			r.FirstApprover = cmp.Or(names[a.ApprovedBy[0]], a.ApprovedBy[0])
		}
		return r
	}
	d := approvalsData{Pending: web.Map(pending, row), Rows: web.Map(found.Rows, row), Next: req.pager(page, found.More, func() string { return found.Cursor })}
	return &view{template: "approvals", title: "Approvals", data: d, live: true}, nil
}

// decideToolCall approves or denies a call of an MCP client with the arguments that the person saw.
func decideToolCall(req *request) (*view, error) {
	decision := agents.Verdict(req.form("decision"))
	d := toolservers.Decision{ApprovalID: req.id(), Approve: decision != agents.Deny, Reason: req.form("reason"), Hash: req.form("arguments_hash")}
	switch decision {
	case agents.Approve, agents.Deny:
	case agents.Edit:
		if d.Edited = req.form("arguments"); d.Edited == "" {
			return nil, fault.Missing("arguments", "Enter the arguments as a JSON object.")
		}
	case agents.Respond:
		if d.Response = req.form("response"); d.Response == "" {
			return nil, fault.Missing("response", "Enter the answer that the client gets.")
		}
	default:
		return nil, fault.Invalid("decision", "Approve or deny the call.")
	}
	var a *toolservers.Approval
	if err := req.write(func(tx *db.Tx) (err error) {
		a, err = req.s.ToolServers.Decide(req.Context(), tx, req.decider(), d)
		return err
	}); err != nil {
		return nil, err
	}
	notice := "The call is " + decisionVerbs[decision] + "."
	if a.Status(req.now()) == toolservers.Pending {
		notice = "You approved the call. Someone else must approve it, too."
	}
	return req.redirect(req.to("approvals"), flash{Notice: notice})
}
