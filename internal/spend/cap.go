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
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/credits"
)

// Level is whose budget a cap is.
type Level string

// The levels.
const (
	Workspace Level = "workspace"
	Project   Level = "project"
	Key       Level = "key" // the request's key or one of its ancestors
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

// compare is the one order in which lines are acquired and locked, so that no
// two requests wait for each other.
func compare(a, b line) int {
	return cmp.Or(strings.Compare(string(a.Level), string(b.Level)), strings.Compare(a.ID, b.ID), strings.Compare(string(a.Period), string(b.Period)))
}

// encodeLines writes lines as the log stores them: a JSON array of
// [level, ID, period].
func encodeLines(lines []line) json.RawMessage {
	rows := make([][3]string, len(lines))
	for i, l := range lines {
		rows[i] = [3]string{string(l.Level), l.ID, string(l.Period)}
	}
	out, _ := json.Marshal(rows) // strings always marshal
	return out
}

func decodeLines(stored json.RawMessage) ([]line, error) {
	var rows [][3]string
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil, fmt.Errorf("charged accounts: %w", err)
	}
	lines := make([]line, len(rows))
	for i, r := range rows {
		lines[i] = line{Account{Level(r[0]), r[1]}, Period(r[2])}
	}
	return lines, nil
}
