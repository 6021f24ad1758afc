package api

import (
	"encoding/json"
	"strconv"
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
)

// billingObject is how the workspace stands in the present month.
type billingObject struct {
	Object         string         `json:"object"`
	MonthlyCredits *credits.Micro `json:"monthly_credits"`
	Used           credits.Micro  `json:"used"`
	Reserved       credits.Micro  `json:"reserved"`
	Remaining      *credits.Micro `json:"remaining"`
	AlertThreshold any            `json:"alert_threshold"`
	Period         spend.Period   `json:"period"`
	ResetsAt       int64          `json:"resets_at"`
}

func newBillingObject(b *spend.Billing) *billingObject {
	o := &billingObject{Object: "billing", MonthlyCredits: b.Workspace.MonthlyCredits, Used: b.Spent, Reserved: b.Reserved, Remaining: b.Remaining(),
		Period: b.Period, ResetsAt: b.Period.Ends().Unix()}
	if t := b.Workspace.Alert; t.Credits != nil {
		o.AlertThreshold = *t.Credits
	} else {
		o.AlertThreshold = strconv.FormatInt(t.Percent, 10) + "%"
	}
	return o
}

func (c *Call) liveOnly() error {
	if c.Principal.Environment == accounts.Live {
		return nil
	}
	return fault.New(fault.InvalidState, "test calls are free, so that test keys have no credits; use a live key")
}

func getBilling(c *Call) (any, error) {
	if err := c.liveOnly(); err != nil {
		return nil, err
	}
	b, err := spend.ReadBilling(c.Context(), c.s.DB, c.Principal.WorkspaceID, c.s.Now())
	if err != nil {
		return nil, err
	}
	return newBillingObject(b), nil
}

type updateBillingRequest struct {
	MonthlyCredits jsonbody.Optional[credits.Micro]   `json:"monthly_credits"`
	AlertThreshold jsonbody.Optional[json.RawMessage] `json:"alert_threshold"`
}

func updateBilling(c *Call, tx *db.Tx, in updateBillingRequest) (any, error) {
	if err := c.liveOnly(); err != nil {
		return nil, err
	}
	w, err := accounts.GetWorkspaceLocked(c.Context(), tx, c.Principal.WorkspaceID)
	if err != nil {
		return nil, err
	}
	if in.MonthlyCredits.Set {
		w.MonthlyCredits = in.MonthlyCredits.Pointer()
	}
	if in.AlertThreshold.Set {
		if w.Alert, err = readThreshold(in.AlertThreshold); err != nil {
			return nil, err
		}
	}
	if err := spend.SetBilling(c.Context(), tx, w, c.s.Now()); err != nil {
		return nil, err
	}
	b, err := spend.ReadBilling(c.Context(), tx, w.ID, c.s.Now())
	if err != nil {
		return nil, err
	}
	o := newBillingObject(b)
	return o, audit.LogAction(c.Context(), tx, c.Actor(), audit.Action{WorkspaceID: w.ID, Environment: string(c.Principal.Environment),
		Action: "billing.updated", Target: w.ID}, map[string]any{"monthly_credits": o.MonthlyCredits, "alert_threshold": o.AlertThreshold}, c.s.Now())
}

// readThreshold takes credits as a number, or a share such as "20%".
func readThreshold(in jsonbody.Optional[json.RawMessage]) (accounts.Threshold, error) {
	if in.Null {
		return accounts.DefaultAlert, nil
	}
	bad := fault.Invalid("alert_threshold", `alert_threshold must be a number of credits, or a share from "0%%" to "100%%"`)
	var share string
	if json.Unmarshal(in.Value, &share) == nil {
		digits, isShare := strings.CutSuffix(share, "%")
		n, err := strconv.ParseUint(digits, 10, 8)
		if !isShare || err != nil || n > 100 {
			return accounts.Threshold{}, bad
		}
		return accounts.Threshold{Percent: int64(n)}, nil
	}
	amount, err := credits.Parse(string(in.Value))
	if err != nil || amount < 0 {
		return accounts.Threshold{}, bad
	}
	return accounts.Threshold{Credits: &amount}, nil
}
