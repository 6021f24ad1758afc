// Package spend keeps budgets: how much a workspace, a project and a key may
// use in a month, and how much they have.
//
// Before a call its upper bound is reserved under every cap that applies, and
// afterwards the real cost is settled. Reserving is done in memory: a node
// leases a chunk of what a cap has left from the store, spends it, and gives
// the rest back. So no cap is ever overspent, on any number of nodes, and most
// calls do not touch the store for it.
package spend

import (
	"strings"
	"time"

	"turnpike/internal/credits"
)

// Level is whose budget a cap is. The order is the one in which caps are
// taken, so that two calls never wait for each other.
type Level string

// The levels.
const (
	Workspace Level = "workspace"
	Project   Level = "project"
	Key       Level = "key"
	Run       Level = "run"
)

// Account is whose spend is counted: a level and its id. An account is in one
// environment; test calls are free and have none.
type Account struct {
	Level Level
	ID    string
}

// ProjectID makes a project's id unique: customers choose them.
func ProjectID(workspaceID, project string) string { return workspaceID + "/" + project }

// Period is a calendar month in UTC, as YYYY-MM.
type Period string

// PeriodOf is the month of a moment.
func PeriodOf(t time.Time) Period { return Period(t.UTC().Format("2006-01")) }

// Begins is the month's first moment, or zero for what is no month.
func (p Period) Begins() time.Time {
	t, err := time.Parse("2006-01", string(p))
	if err != nil {
		return time.Time{}
	}
	return t
}

// Ends is when the next one begins.
func (p Period) Ends() time.Time {
	t := p.Begins()
	if t.IsZero() {
		return t
	}
	return t.AddDate(0, 1, 0)
}

// Cap is an account with what it may spend in a month; nil for no limit.
type Cap struct {
	Account
	Limit *credits.Micro
}

// line is an account in a month: a row of the books.
type line struct {
	Account
	Period Period
}

func (l line) String() string {
	return strings.Join([]string{string(l.Level), l.ID, string(l.Period)}, " ")
}

// compare orders lines as everybody locks them.
func compare(a, b line) int { return strings.Compare(a.String(), b.String()) }
