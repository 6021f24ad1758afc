package dashboard

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

const (
	// monthsShown is how many months are listed.
	monthsShown = 24
	// spendersShown is how many of the top spenders are listed.
	spendersShown = 10
)

type billingData struct {
	*spend.Billing
	Seen     string // the fingerprint of the form's values
	ResetsAt time.Time
	AlertAt  *credits.Micro // the threshold in credits, or nil without a limit
	Low      bool           // below the threshold
	Months   []spend.Month  // newest first

	// Of the selected month.
	Month    spend.Period
	Present  bool // it is the current one
	Total    credits.Micro
	Ledger   []requestRow
	Looked   *scanned // nil if the search is complete
	Next     pager
	Keys     []spender
	Projects []spender
	Export   string
}

func billingPage(req *request) (*view, error) {
	if req.env != accounts.Live {
		return &view{template: "billing_test", title: "Billing"}, nil
	}
	b, err := spend.ReadBilling(req.Context(), req.ledger(), req.workspace.ID, req.now())
	if err != nil {
		return nil, err
	}
	d := billingData{Billing: b, Seen: billingFingerprint(b.Workspace), ResetsAt: b.Period.End(), Month: b.Period}
	if limit := b.Workspace.MonthlyCredits; limit != nil {
		alert := b.Workspace.Alert.Of(*limit)
		d.AlertAt, d.Low = &alert, b.Low()
	}
	if chosen := spend.Period(req.query("month")); chosen.Window() == accounts.WindowMonth {
		d.Month = chosen
	}
	d.Present = d.Month == b.Period
	if d.Months, err = spend.Months(req.Context(), req.ledger(), spend.Account{Level: spend.Workspace, ID: req.workspace.ID}, monthsShown); err != nil {
		return nil, err
	}
	if err := req.readMonth(&d); err != nil {
		return nil, err
	}
	return &view{template: "billing", title: "Billing", data: d}, nil
}

func (req *request) readMonth(d *billingData) error {
	balance, err := spend.ReadBalance(req.Context(), req.ledger(), spend.Account{Level: spend.Workspace, ID: req.workspace.ID}, d.Month)
	if err != nil {
		return err
	}
	d.Total = balance.Spent
	page := req.page(ids.Request)
	f := audit.Filter{Since: d.Month.Start(), Until: d.Month.End(), Charged: true}
	found, err := req.s.Archive.List(req.Context(), req.s.DB, req.principal.Visibility(), f, page)
	if err != nil {
		return err
	}
	d.Next = req.pager(page, found.More, func() string { return found.Cursor })
	d.Looked = scanLimit(found, d.Next)
	if d.Ledger, err = req.requestRows(found.Rows); err != nil {
		return err
	}
	d.Export = req.to("requests/export.csv?" + url.Values{"q": {"is:" + charged + " from:" + f.Since.Format(time.DateOnly) + " until:" + lastDay(f.Until)}}.Encode())
	if d.Keys, err = keySpenders(req.Context(), req.s.DB, req.workspace.ID, d.Month); err != nil {
		return err
	}
	d.Projects, err = projectSpenders(req.Context(), req.s.DB, req.workspace.ID, d.Month)
	return err
}

func changeBilling(req *request) (*view, error) {
	if req.env != accounts.Live {
		return nil, fault.New(fault.InvalidState, "Test requests are free, so there is nothing to limit. Switch to live.")
	}
	alert := accounts.DefaultAlert
	limit, invalid := req.formCredits("monthly_credits")
	if text := ungrouped(strings.ReplaceAll(req.form("alert_threshold"), " ", "")); text != "" {
		var err error
		alert, err = accounts.ParseThreshold(text)
		invalid = errors.Join(invalid, err)
	}
	thresholds, err := req.formThresholds()
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	return req.changeWorkspace("billing", "Monthly credits saved.", func(w *accounts.Workspace) error {
		before := billingFingerprint(w)
		w.MonthlyCredits, w.Alert, w.AlertThresholds = limit, alert, thresholds
		return req.checkEditConflict(before, billingFingerprint(w))
	})
}
