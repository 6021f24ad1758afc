package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/mail"
	"turnpike/internal/operators"
	"turnpike/internal/spend"
)

// notices says how to notify people about events. Other events have none.
var notices = map[events.Type]func(*Service, context.Context, *db.Tx, *notice) error{
	events.BudgetThresholdReached: (*Service).notifyBudget,
	events.BudgetWasExceeded:      (*Service).notifyBudget,
	events.BillingCreditsLow:      (*Service).notifyCredits,
	events.BillingUnbilledLimit:   (*Service).notifyUnbilled,

	events.AgentRunAwaitingApproval: (*Service).notifyApproval,
}

// notice is an event that people are notified about.
type notice struct {
	events.Pending
	workspace *accounts.Workspace
	data      json.RawMessage // of the event
}

// decode reads the event's data.
func (n *notice) decode(into any) error {
	if err := json.Unmarshal(n.data, into); err != nil {
		return fmt.Errorf("data of %s: %w", n.ID, err)
	}
	return nil
}

// page returns the URL of a page in the dashboard.
func (s *Service) page(n *notice, path string) string {
	return fmt.Sprintf("%s/dashboard/w/%s/%s/%s", s.PublicURL, n.WorkspaceID, n.Environment, path)
}

// Notify stores the notifications about events, in the transaction that fans them out.
func (s *Service) Notify(ctx context.Context, tx *db.Tx, list []events.Pending) error {
	for _, e := range list {
		notify := notices[e.Type]
		if notify == nil || e.Sample {
			continue
		}
		n, err := readNotice(ctx, tx, e)
		if fault.Is(err, fault.NotFound) {
			continue // the workspace was deleted
		}
		if err != nil {
			return err
		}
		if err := notify(s, ctx, tx, n); err != nil {
			return fmt.Errorf("notify about %s: %w", e.ID, err)
		}
	}
	return nil
}

func readNotice(ctx context.Context, tx *db.Tx, e events.Pending) (*notice, error) {
	if e.Body == "" {
		if err := db.Scan(tx.QueryRow(ctx, "SELECT body FROM events WHERE id = $1", e.ID), &e.Body); err != nil {
			return nil, db.Wrap(err, "read event")
		}
	}
	n := &notice{Pending: e}
	var body struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(e.Body), &body); err != nil {
		return nil, fmt.Errorf("body of %s: %w", e.ID, err)
	}
	n.data = body.Data
	var err error
	n.workspace, err = accounts.GetWorkspace(ctx, tx, e.WorkspaceID)
	return n, err
}

// budgetPages are the pages of the owners of budgets in the dashboard.
var budgetPages = map[string]string{string(spend.Key): "keys/", string(spend.Project): "projects/", string(spend.EndUser): "users/", string(spend.Workspace): "billing"}

func (s *Service) notifyBudget(ctx context.Context, tx *db.Tx, n *notice) error {
	var b events.BudgetThreshold // budget.exceeded has no threshold
	if err := n.decode(&b); err != nil {
		return err
	}
	if b.LimitSource == string(spend.EndUser) {
		if n.workspace.Users.AlertThresholds == nil {
			return nil // there can be a million users, so the workspace asks for their alerts
		}
		users, err := endusers.ByID(ctx, tx, []string{b.ID})
		if err != nil {
			return err
		}
		if u := users[b.ID]; u != nil {
			b.Name = u.Name // which the event doesn't contain
		}
	}
	page := budgetPages[b.LimitSource]
	if b.LimitSource != string(spend.Workspace) {
		page += url.PathEscape(b.ID)
	}
	data := mail.BudgetAlert{Workspace: n.workspace.Name, Level: b.LimitSource, ID: b.ID, Name: b.Name, Budget: b.Budget.String(), Spent: b.Spent.String(),
		Threshold: b.Threshold, Period: b.Period, Page: s.page(n, page)}
	resets := "The budget doesn't reset."
	if b.ResetsAt != nil {
		data.ResetsAt = time.Unix(*b.ResetsAt, 0)
		resets = "The budget resets on " + data.ResetsAt.UTC().Format("2 January 2006") + "."
	}
	if err := s.Outbox.EnqueueAdmins(ctx, tx, n.WorkspaceID, n.ID, func(string) mail.Data { return data }); err != nil {
		return err
	}
	if b.LimitSource == string(spend.Key) {
		if err := s.emailKeyContact(ctx, tx, n, b.ID, data); err != nil {
			return err
		}
	}
	m := &Message{Type: string(n.Type), Title: fmt.Sprintf("%s has used %d%% of its budget", data.Subject(), b.Threshold),
		Text:        fmt.Sprintf("%s of %s credits are spent. %s", b.Spent, b.Budget, resets),
		URL:         data.Page,
		WorkspaceID: n.WorkspaceID, Environment: n.Environment, Data: n.data}
	if b.Threshold == 0 {
		m.Title = data.Subject() + " has too little budget left"
		m.Text = fmt.Sprintf("%s of %s credits are spent, and requests that could cost more than is left fail with 402. %s", b.Spent, b.Budget, resets)
	}
	return s.post(ctx, tx, m)
}

// emailKeyContact sends a key's alert to its alert_email. The event doesn't contain the address.
func (s *Service) emailKeyContact(ctx context.Context, tx *db.Tx, n *notice, keyID string, data mail.Data) error {
	k, err := access.BudgetOf(ctx, tx, keyID)
	if fault.Is(err, fault.NotFound) || err == nil && k.AlertEmail == "" {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Outbox.Enqueue(ctx, tx, mail.Message{WorkspaceID: n.WorkspaceID, To: k.AlertEmail, Once: n.ID, Data: data})
}

func (s *Service) notifyCredits(ctx context.Context, tx *db.Tx, n *notice) error {
	var low events.CreditsLow
	if err := n.decode(&low); err != nil {
		return err
	}
	resets := spend.Period(low.Period).End()
	data := mail.CreditsLow{Workspace: n.workspace.Name, Remaining: low.Remaining.String(), Threshold: low.Threshold.String(), MonthlyCredits: low.MonthlyCredits.String(),
		ResetsAt: resets, Page: s.page(n, "billing")}
	if err := s.Outbox.EnqueueAdmins(ctx, tx, n.WorkspaceID, n.ID, func(string) mail.Data { return data }); err != nil {
		return err
	}
	return s.post(ctx, tx, &Message{Type: string(n.Type), Title: "Credits are running low in " + n.workspace.Name,
		Text: fmt.Sprintf("%s of %s monthly credits are left, below the threshold of %s. The month ends on %s.", low.Remaining, low.MonthlyCredits, low.Threshold, resets.UTC().Format("2 January 2006")),
		URL:  data.Page, WorkspaceID: n.WorkspaceID, Environment: n.Environment, Data: n.data})
}

// notifyUnbilled emails the operators, who can reset the limit.
func (s *Service) notifyUnbilled(ctx context.Context, tx *db.Tx, n *notice) error {
	var reached events.UnbilledLimitReached
	if err := n.decode(&reached); err != nil {
		return err
	}
	list, err := operators.List(ctx, tx)
	if err != nil {
		return err
	}
	data := mail.UnbilledLimit{Workspace: n.workspace.Name, WorkspaceID: n.WorkspaceID, Unbilled: reached.Unbilled.String(), Limit: reached.Limit.String(),
		ResetsAt: time.Unix(reached.ResetsAt, 0)}
	for _, o := range list {
		if err := s.Outbox.Enqueue(ctx, tx, mail.Message{WorkspaceID: n.WorkspaceID, To: o.Email, Once: n.ID, Data: data}); err != nil {
			return err
		}
	}
	return nil
}
