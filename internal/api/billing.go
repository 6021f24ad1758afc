package api

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
)

type billingObject struct {
	Object         string             `json:"object"`
	MonthlyCredits *credits.Micro     `json:"monthly_credits"`
	Used           credits.Micro      `json:"used"`
	Reserved       credits.Micro      `json:"reserved"`
	Remaining      *credits.Micro     `json:"remaining"`
	AlertThreshold accounts.Threshold `json:"alert_threshold"`
	Period         spend.Period       `json:"period"`
	ResetsAt       int64              `json:"resets_at"`

	AlertThresholds accounts.AlertThresholds `json:"alert_thresholds"`
	Forecast        *forecastObject          `json:"forecast"`
}

// forecastObject is the spending of the current month at its pace so far.
type forecastObject struct {
	Spent       credits.Micro `json:"spent"`
	ExhaustedAt *int64        `json:"exhausted_at"`
}

func newForecastObject(spent credits.Micro, limit *credits.Micro, now time.Time) *forecastObject {
	f := spend.ForecastOf(spent, limit, spend.PeriodOf(now), now)
	if f == nil {
		return nil
	}
	return &forecastObject{f.Total, unix(f.ExhaustedAt)}
}

func (c *Call) newBillingObject(b *spend.Billing) *billingObject {
	return &billingObject{Object: "billing", MonthlyCredits: b.Workspace.MonthlyCredits, Used: b.Spent, Reserved: b.Reserved, Remaining: b.Remaining(),
		AlertThreshold: b.Workspace.Alert, Period: b.Period, ResetsAt: b.Period.End().Unix(),
		AlertThresholds: b.Workspace.AlertThresholds.Or(accounts.DefaultAlertThresholds), Forecast: newForecastObject(b.Spent, b.Workspace.MonthlyCredits, c.s.Now())}
}

// checkBillingAccess rejects test keys, which have no credits, and pinned keys,
// because credits belong to the whole workspace.
func (c *Call) checkBillingAccess() error {
	if p := c.Principal.Project; p != "" {
		return fault.New(fault.ProjectNotAllowed, "This key is pinned to project %q, and credits belong to the whole workspace. Use a key that is not pinned, or GET /v1/projects/%s for the project's budget.", p, p)
	}
	if c.Principal.Environment == accounts.Live {
		return nil
	}
	return fault.New(fault.InvalidState, "Test requests are free, so test keys have no credits. Use a live key.")
}

func getBilling(ctx context.Context, c *Call) (any, error) {
	if err := c.checkBillingAccess(); err != nil {
		return nil, err
	}
	b, err := spend.ReadBilling(ctx, c.s.DB, c.Principal.WorkspaceID, c.s.Now())
	return show(b, err, c.newBillingObject)
}

type updateBillingRequest struct {
	MonthlyCredits jsonbody.Optional[credits.Micro]   `json:"monthly_credits"`
	AlertThreshold jsonbody.Optional[json.RawMessage] `json:"alert_threshold"`

	AlertThresholds jsonbody.Optional[accounts.AlertThresholds] `json:"alert_thresholds"`
}

func updateBilling(ctx context.Context, c *Call, tx *db.Tx, in updateBillingRequest) (any, error) {
	if err := c.checkBillingAccess(); err != nil {
		return nil, err
	}
	alert, err := readThreshold(in.AlertThreshold)
	if err != nil {
		return nil, err
	}
	_, err = c.changeWorkspace(ctx, tx, func(w *accounts.Workspace) error {
		setNullable(&w.MonthlyCredits, in.MonthlyCredits)
		if in.AlertThreshold.Set {
			w.Alert = alert
		}
		set(&w.AlertThresholds, in.AlertThresholds)
		return nil
	})
	if err != nil {
		return nil, err
	}
	b, err := spend.ReadBilling(ctx, tx, c.Principal.WorkspaceID, c.s.Now())
	return show(b, err, c.newBillingObject)
}

// changeWorkspace changes the caller's workspace.
func (c *Call) changeWorkspace(ctx context.Context, tx *db.Tx, apply func(*accounts.Workspace) error) (*accounts.Workspace, error) {
	return accounts.ChangeWorkspace(ctx, tx, c.Principal.WorkspaceID, accounts.Change[accounts.Workspace]{By: c.Actor(), At: c.s.Now(), Apply: apply})
}

// readThreshold reads a number of credits, or a percentage such as "20%".
func readThreshold(in jsonbody.Optional[json.RawMessage]) (accounts.Threshold, error) {
	if !in.Set || in.Null {
		return accounts.DefaultAlert, nil
	}
	text := string(in.Value)
	var share string
	if json.Unmarshal(in.Value, &share) == nil {
		if text = share; !strings.HasSuffix(share, "%") {
			text = "" // an amount is a number
		}
	}
	t, err := accounts.ParseThreshold(text)
	if err != nil {
		return t, fault.Invalid("alert_threshold", `alert_threshold must be a number of credits, or a percentage from "0%%" to "100%%".`)
	}
	return t, nil
}
