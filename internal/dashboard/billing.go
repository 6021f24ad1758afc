package dashboard

import (
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

const (
	// monthsShown is how far back the months go that are listed.
	monthsShown = 24
	// spendersShown is how many of those who spent most are listed.
	spendersShown = 10
)

type billingData struct {
	*spend.Billing
	Seen     string // the mark of what the form begins with
	Now      time.Time
	ResetsAt time.Time
	AlertAt  *credits.Micro // the threshold in credits, or nil without a limit
	Low      bool           // less is left than the threshold
	Months   []spend.Month  // the newest first

	// Of the month that is looked at.
	Month    spend.Period
	Present  bool // it is this one
	Total    credits.Micro
	Ledger   []requestRow
	Looked   *looked // nil when the page is whole
	Next     pager
	Keys     []spender
	Projects []spender
	Export   string
}

func billingPage(v *visit) (*view, error) {
	if v.env != accounts.Live {
		return &view{template: "billing_test", title: "Billing"}, nil
	}
	b, err := spend.ReadBilling(v.ctx(), v.s.DB, v.workspace.ID, v.now())
	if err != nil {
		return nil, err
	}
	d := billingData{Billing: b, Seen: billingMark(b.Workspace), Now: v.now(), ResetsAt: b.Period.End(), Month: b.Period}
	if limit := b.Workspace.MonthlyCredits; limit != nil {
		alert := b.Workspace.Alert.Of(*limit)
		d.AlertAt, d.Low = &alert, b.Low()
	}
	if chosen := spend.Period(v.query("month")); !chosen.Start().IsZero() {
		d.Month = chosen
	}
	d.Present = d.Month == b.Period
	if d.Months, err = spend.Months(v.ctx(), v.s.DB, spend.Account{Level: spend.Workspace, ID: v.workspace.ID}, monthsShown); err != nil {
		return nil, err
	}
	if err := v.readMonth(&d); err != nil {
		return nil, err
	}
	return &view{template: "billing", title: "Billing", data: d}, nil
}

// readMonth reads what was charged in a month, and to whom.
func (v *visit) readMonth(d *billingData) error {
	balance, err := spend.ReadBalance(v.ctx(), v.s.DB, spend.Account{Level: spend.Workspace, ID: v.workspace.ID}, d.Month)
	if err != nil {
		return err
	}
	d.Total = balance.Spent
	page := v.page(ids.Request)
	f := audit.Filter{Since: d.Month.Start(), Until: d.Month.End(), Charged: true}
	found, err := audit.List(v.ctx(), v.s.DB, v.principal.Visibility(), f, page)
	if err != nil {
		return err
	}
	d.Next = v.pager(page, found.More, func() string { return found.Cursor })
	d.Looked = lookedThrough(found, d.Next)
	if d.Ledger, err = v.requestRows(found.Rows); err != nil {
		return err
	}
	d.Export = v.to("requests/export.csv?charged=yes&start=" + f.Since.Format(time.DateOnly) + "&end=" + f.Until.Format(time.DateOnly))
	if d.Keys, err = keySpenders(v.ctx(), v.s.DB, v.workspace.ID, d.Month); err != nil {
		return err
	}
	d.Projects, err = projectSpenders(v.ctx(), v.s.DB, v.workspace.ID, d.Month)
	return err
}

// changeBilling sets the month's credits and the threshold.
func changeBilling(v *visit) (*view, error) {
	if v.env != accounts.Live {
		return nil, fault.New(fault.InvalidState, "test calls are free, so that there is nothing to limit; change it in live")
	}
	limit, err := v.formCredits("monthly_credits")
	if err != nil {
		return nil, err
	}
	alert := accounts.DefaultAlert
	if text := ungrouped(strings.ReplaceAll(v.form("alert_threshold"), " ", "")); text != "" {
		if alert, err = accounts.ParseThreshold(text); err != nil {
			return nil, err
		}
	}
	err = v.write(func(tx *db.Tx) error {
		_, err := spend.ChangeBilling(v.ctx(), tx, v.actor(), v.workspace.ID, func(w *accounts.Workspace) error {
			was := billingMark(w)
			w.MonthlyCredits, w.Alert = limit, alert
			return v.overtaken(was, billingMark(w))
		}, v.now())
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("billing"), flash{Notice: "The month's credits were changed."})
	return nil, nil
}
