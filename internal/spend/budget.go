// Package spend enforces budgets: how much a workspace, a project and a key may
// spend in a month.
//
// Before a request, LeaseCache reserves its maximum cost against every budget it
// counts toward. Afterwards Settler charges the real cost to the Ledger, in the
// transaction that settles the request's log entry. Reservations are in memory: a
// node leases a chunk of the remaining budget from the ledger, spends it and
// releases the rest. So no budget is ever overspent, on any number of nodes, and
// most reservations don't need the database.
//
// A lease in the cache (leaseState):
//
//	           acquire               refill begins
//	empty ───────────────▶ held ─────────────────────▶ refilling
//	│   ▲                  │  ▲                        │  │
//	│   │  shrunk to zero  │  │      refill ends       │  │
//	│   └──────────────────┘  └────────────────────────┘  │
//	│   └─────────────────────────────────────────────────┘
//	│ drop                              shrunk to zero
//	▼
//	dropped
//
// In held and refilling the ledger holds at least the granted credits. It may hold
// more if the result of a commit was lost. Only after a shrink to zero are both
// certain to agree.
package spend

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/credits"
)

// Level is the kind of a budget's owner.
type Level string

// The kinds of owners.
const (
	Workspace Level = "workspace"
	Project   Level = "project"
	Key       Level = "key" // the request's key or one of its ancestors
	Run       Level = "run"
)

// Account is the owner of a budget. Test requests are free and have no account.
type Account struct {
	Level Level
	ID    string
}

// ProjectID qualifies a project's ID, which is unique only in its workspace.
func ProjectID(workspaceID, project string) string { return workspaceID + "/" + project }

// Period is a calendar month in UTC, as YYYY-MM.
type Period string

// PeriodOf returns the month of a time.
func PeriodOf(t time.Time) Period { return Period(t.UTC().Format("2006-01")) }

// Start returns the month's first moment, or zero if p isn't a month.
func (p Period) Start() time.Time {
	t, _ := time.Parse("2006-01", string(p))
	return t
}

// End returns when the next month starts.
func (p Period) End() time.Time {
	t := p.Start()
	if t.IsZero() {
		return t
	}
	return t.AddDate(0, 1, 0)
}

// Cap is the budget of an account. A nil limit means no limit.
type Cap struct {
	Account
	Limit *credits.Micro
}

// accountMonth is an account in a month: the key of a row in the ledger.
type accountMonth struct {
	Account
	Period Period
}

func (k accountMonth) String() string {
	return strings.Join([]string{string(k.Level), k.ID, string(k.Period)}, " ")
}

// compare is the order in which accounts are leased and locked, so that
// requests can't deadlock.
func compare(a, b accountMonth) int {
	return cmp.Or(strings.Compare(string(a.Level), string(b.Level)), strings.Compare(a.ID, b.ID), strings.Compare(string(a.Period), string(b.Period)))
}

// encodeAccounts returns the accounts as the log stores them: a JSON array of
// [level, ID, period].
func encodeAccounts(keys []accountMonth) json.RawMessage {
	out := []byte{'['}
	for i, k := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '[')
		for j, text := range [...]string{string(k.Level), k.ID, string(k.Period)} {
			if j > 0 {
				out = append(out, ',')
			}
			out, _ = jsontext.AppendQuote(out, text) // fails only on invalid UTF-8
		}
		out = append(out, ']')
	}
	return append(out, ']')
}

func decodeAccounts(stored json.RawMessage) ([]accountMonth, error) {
	var rows [][3]string
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil, fmt.Errorf("charged accounts: %w", err)
	}
	keys := make([]accountMonth, len(rows))
	for i, r := range rows {
		keys[i] = accountMonth{Account{Level(r[0]), r[1]}, Period(r[2])}
	}
	return keys, nil
}
