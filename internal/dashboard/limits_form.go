package dashboard

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

// spareLimits is how many empty rows the form of limits has.
const spareLimits = 2

// limitsForm is the part of a form with the limits of a key or a project.
type limitsForm struct {
	Rows        []limitFields
	Windows     []accounts.Window
	RaiseBudget *credits.Micro
	RaiseDay    string
}

type limitFields struct {
	accounts.Limit
	At     int
	Models string
}

// Field returns the name of an input.
func (f limitFields) Field(name string) string { return accounts.LimitParam(f.At, name) }

func newLimitsForm(limits []accounts.Limit, raise *accounts.Raise, now time.Time) limitsForm {
	f := limitsForm{Windows: accounts.Windows}
	for i := range min(len(limits)+spareLimits, accounts.MaxLimits) {
		row := limitFields{At: i}
		if i < len(limits) {
			row.Limit, row.Models = limits[i], strings.Join(limits[i].Models, ", ")
		}
		f.Rows = append(f.Rows, row)
	}
	if raise.IsActive(now) {
		f.RaiseBudget, f.RaiseDay = &raise.Budget, lastDay(raise.Until)
	}
	return f
}

// readLimits reads the limits and the temporary raise. Rows without an entry are left out. A form without
// these fields changes nothing.
func (req *request) readLimits(limits *[]accounts.Limit, raise **accounts.Raise) error {
	if !req.R.PostForm.Has("limits") {
		return nil
	}
	var list []accounts.Limit
	var invalid error
	for i := range accounts.MaxLimits {
		row, err := req.readLimit(i)
		invalid = errors.Join(invalid, err)
		if row != nil {
			list = append(list, *row)
		}
	}
	if invalid == nil {
		invalid = req.s.Gateway.CheckLimits(*limits, list)
	}
	invalid = errors.Join(invalid, req.readRaise(raise))
	if invalid == nil {
		*limits = list
	}
	return invalid
}

func (req *request) readLimit(i int) (*accounts.Limit, error) {
	l := &accounts.Limit{ID: req.form(accounts.LimitParam(i, "id"))}
	if list := words(req.form(accounts.LimitParam(i, "models"))); len(list) > 0 {
		l.Models = list
	}
	var err error
	l.Budget, err = req.formCredits(accounts.LimitParam(i, "budget"))
	invalid := err
	if l.Budget != nil {
		l.Window = accounts.Window(req.form(accounts.LimitParam(i, "window")))
	}
	for name, field := range map[string]**int64{"requests_per_minute": &l.RequestsPerMinute, "tokens_per_minute": &l.TokensPerMinute, "concurrent_requests": &l.ConcurrentRequests} {
		*field, err = req.formNumber(accounts.LimitParam(i, name))
		invalid = errors.Join(invalid, err)
	}
	if invalid != nil {
		return nil, invalid
	}
	if l.Models == nil && l.Budget == nil && l.RequestsPerMinute == nil && l.TokensPerMinute == nil && l.ConcurrentRequests == nil {
		return nil, nil
	}
	return l, nil
}

func (req *request) readRaise(raise **accounts.Raise) error {
	budget, budgetErr := req.formCredits("temporary_raise.budget")
	var before *time.Time
	if (*raise).IsActive(req.now()) {
		before = &(*raise).Until
	}
	until, err := req.formLastDay("temporary_raise.until", before)
	if err := errors.Join(budgetErr, err); err != nil {
		return err
	}
	switch {
	case budget == nil && until == nil:
		*raise = nil
	case budget == nil:
		return fault.Invalid("temporary_raise.budget", "Enter the budget until that day, or leave both fields empty.")
	case until == nil:
		return fault.Invalid("temporary_raise.until", "Enter the last day of the raise.")
	case *raise == nil || (*raise).Budget != *budget || !(*raise).Until.Equal(*until):
		*raise = &accounts.Raise{Budget: *budget, Until: *until}
	}
	return nil
}

// limitRow is a limit with its spending.
type limitRow struct {
	accounts.Limit
	Spent credits.Micro
}

// Applies says which models a limit is for.
func (l limitRow) Applies() string {
	if l.Models == nil {
		return "all models"
	}
	return strings.Join(l.Models, ", ")
}

// Per says how often the budget starts again.
func (l limitRow) Per() string {
	if l.Window == accounts.WindowLifetime {
		return "in total"
	}
	return fmt.Sprintf("per %s", l.Window)
}

// limitRows returns the limits of a key or a project with their spending in the current window.
func (req *request) limitRows(owner spend.Account, limits []accounts.Limit) ([]limitRow, error) {
	spent, err := spend.SpentUnderLimits(req.Context(), req.ledger(), []spend.Budgets{{Owner: owner, Limits: limits}}, req.now())
	rows := make([]limitRow, len(limits))
	for i, l := range limits {
		rows[i] = limitRow{l, spent[l.ID]}
	}
	return rows, err
}
