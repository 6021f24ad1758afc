package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/mail"
)

const (
	// maxArguments limits the bytes of arguments in a notification. The dashboard shows all of them.
	maxArguments = 2 << 10
	// approvalsPerHour limits the notifications of a workspace, in live and in test, so that an agent in a loop
	// doesn't fill mailboxes.
	approvalsPerHour = 100
)

// Approval is a request for a person's decision about tool calls.
type Approval struct {
	accounts.Tenant
	ID          string // makes the notification unique
	By          string // the run, or the MCP server, whose call waits
	RunID       string // empty for a call of an MCP client
	Calls       []ApprovalCall
	RequestedAt time.Time
	ExpiresAt   time.Time
	Page        string // in the dashboard, below the environment
}

// ApprovalCall is a tool call that waits for a decision.
type ApprovalCall struct {
	ID        string // of the approval
	Tool      string
	Arguments string
	Roles     []accounts.Role // that may decide; empty for all that can approve
}

// reminder is the body of a row that reminds people of an approval.
type reminder struct {
	Approval
	Reminder bool
}

func (s *Service) notifyApproval(ctx context.Context, tx *db.Tx, n *notice) error {
	var run events.AgentRun
	if err := n.decode(&run); err != nil {
		return err
	}
	a := Approval{Tenant: n.Tenant, ID: n.ID, By: "Run " + run.ID, RunID: run.ID, RequestedAt: n.CreatedAt, Page: "runs/" + run.ID}
	for _, action := range run.RequiredActions {
		if action.Type != "approval" {
			continue
		}
		a.Calls = append(a.Calls, ApprovalCall{ID: action.ID, Tool: action.Tool, Arguments: action.Arguments, Roles: action.Roles})
		if expires := time.Unix(action.ExpiresAt, 0); a.ExpiresAt.IsZero() || expires.Before(a.ExpiresAt) {
			a.ExpiresAt = expires
		}
	}
	if len(a.Calls) == 0 {
		return nil
	}
	return s.RequestApproval(ctx, tx, a)
}

// RequestApproval tells people about an approval in the transaction that requests it, and again when half of
// its time is over.
func (s *Service) RequestApproval(ctx context.Context, tx *db.Tx, a Approval) error {
	limit := accounts.ExpiringLimit{ID: "notifications/" + a.Path(), Max: approvalsPerHour, Granularity: time.Minute}
	err := limit.Add(ctx, tx, s.Now().Add(time.Hour), s.Now())
	var full *accounts.LimitReachedError
	if errors.As(err, &full) {
		slog.Warn("too many approvals to notify people about each; the dashboard lists them", "workspace", a.WorkspaceID, "until", full.Until)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.announce(ctx, tx, reminder{Approval: a}); err != nil {
		return err
	}
	half := a.RequestedAt.Add(a.ExpiresAt.Sub(a.RequestedAt) / 2)
	return s.enqueue(ctx, tx, row{ID: ids.New(ids.Notification), WorkspaceID: a.WorkspaceID, Kind: kindReminder, DueAt: half}, reminder{a, true})
}

// remind notifies people again about calls that still wait for a decision.
func (s *Service) remind(ctx context.Context, r *row, body []byte) error {
	var about reminder
	if err := json.Unmarshal(body, &about); err != nil {
		return fmt.Errorf("decode reminder: %w", err)
	}
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM notifications WHERE id = $1", r.ID)
		if err != nil || n == 0 {
			return db.Wrap(err, "delete reminder") // another node has sent it
		}
		var waiting []ApprovalCall
		for _, c := range about.Calls {
			pending, err := s.Pending(ctx, tx, about.RunID, c.ID)
			if err != nil {
				return err
			}
			if pending {
				waiting = append(waiting, c)
			}
		}
		if about.Calls = waiting; len(waiting) == 0 || !s.Now().Before(about.ExpiresAt) {
			return nil
		}
		return s.announce(ctx, tx, about)
	})
}

// announce stores the emails and the message about an approval.
func (s *Service) announce(ctx context.Context, tx *db.Tx, about reminder) error {
	w, err := accounts.GetWorkspace(ctx, tx, about.WorkspaceID)
	if err != nil {
		return err
	}
	set, err := s.ReadSettings(ctx, tx, about.WorkspaceID)
	if err != nil {
		return err
	}
	calls := describeCalls(about.Calls, set.OmitArguments)
	page := fmt.Sprintf("%s/dashboard/w/%s/%s/%s", s.PublicURL, about.WorkspaceID, about.Environment, about.Page)
	people, err := accounts.ListUsers(ctx, tx, about.WorkspaceID)
	if err != nil {
		return err
	}
	var messages []mail.Message
	for _, p := range people {
		if !about.concerns(p.Role) {
			continue
		}
		messages = append(messages, mail.Message{WorkspaceID: about.WorkspaceID, To: p.Email, Once: fmt.Sprintf("%s %v", about.ID, about.Reminder), Data: mail.ApprovalRequested{
			Workspace: w.Name, Environment: string(about.Environment), By: about.By, Tools: about.tools(), Calls: calls, Reminder: about.Reminder, ExpiresAt: about.ExpiresAt, Page: page}})
	}
	if err := s.Outbox.Enqueue(ctx, tx, messages...); err != nil {
		return err
	}
	m := &Message{Type: string(events.AgentRunAwaitingApproval), Title: "Approval needed: " + about.tools(),
		Text: fmt.Sprintf("%s in %s (%s) waits for a decision until %s.", about.By, w.Name, about.Environment, about.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC")),
		Code: strings.Join(calls, "\n"), URL: page, WorkspaceID: about.WorkspaceID, Environment: about.Environment}
	if about.Reminder {
		m.Type, m.Title = "approval.reminder", "Reminder: approval needed: "+about.tools()
	}
	return s.post(ctx, tx, m)
}

// concerns reports whether members with the role hear about the approval: those that may decide, or owners
// and admins if all that can approve may.
func (a *Approval) concerns(role accounts.Role) bool {
	for _, c := range a.Calls {
		if len(c.Roles) == 0 && (role == accounts.Owner || role == accounts.Admin) || slices.Contains(c.Roles, role) {
			return true
		}
	}
	return false
}

// tools names the tools of the calls.
func (a *Approval) tools() string {
	var names []string
	for _, c := range a.Calls {
		if !slices.Contains(names, c.Tool) {
			names = append(names, c.Tool)
		}
	}
	if more := len(names) - 3; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), more)
	}
	return strings.Join(names, ", ")
}

// describeCalls returns a line for each call, with its arguments as they are. Together they have at most maxArguments
// bytes of arguments.
func describeCalls(calls []ApprovalCall, omitArguments bool) []string {
	var lines []string
	left := maxArguments
	for _, c := range calls {
		switch {
		case omitArguments:
			lines = append(lines, c.Tool)
		case left <= 0:
			return append(lines, "… see the dashboard for the other calls")
		case len(c.Arguments) > left:
			lines = append(lines, c.Tool+" "+strings.ToValidUTF8(c.Arguments[:left], "")+"… (cut: see the dashboard)")
			left = 0
		default:
			lines = append(lines, c.Tool+" "+c.Arguments)
			left -= len(c.Arguments)
		}
	}
	return lines
}
