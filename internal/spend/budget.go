// Package spend enforces budgets: how much a workspace, a project and a key may
// spend in a month or another window.
//
// Before a request, LeaseCache reserves its maximum cost against every budget it
// counts toward. Afterwards Settler records the real cost in the node's journal, in the
// transaction that settles the request's log entry, and posts the journal to the Ledger
// once per second. Reservations are in memory: a
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
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
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
	EndUser   Level = "user"

	// One of the limits of a key or a project, with its own window. The ID is the
	// owner's, a slash and the limit's.
	KeyLimit     Level = "key_limit"
	ProjectLimit Level = "project_limit"
)

// Account is the owner of a budget. Test requests are free and have no account.
type Account struct {
	Level Level
	ID    string
}

// LimitAccount returns the account of one of the limits of a key or a project.
func LimitAccount(owner Level, ownerID, limitID string) Account {
	level := KeyLimit
	if owner == Project {
		level = ProjectLimit
	}
	return Account{level, ownerID + "/" + limitID}
}

// ProjectID qualifies a project's ID, which is unique only in its workspace.
func ProjectID(workspaceID, project string) string { return workspaceID + "/" + project }

// Period is one occurrence of a window: 2026-11-18, 2026-W47, 2026-11 or
// lifetime. It is the key of the ledger's rows, so its form must not change.
type Period string

const (
	dayLayout   = "2006-01-02"
	monthLayout = "2006-01"
	lifetime    = Period(accounts.WindowLifetime)
)

// PeriodOf returns the month of a time.
func PeriodOf(t time.Time) Period { return PeriodIn(accounts.WindowMonth, t) }

// PeriodIn returns the period of a window that contains the time. Weeks have
// their ISO 8601 number.
func PeriodIn(w accounts.Window, t time.Time) Period {
	if w == accounts.WindowLifetime {
		return lifetime
	}
	p := periodsOf(t)
	switch w {
	case accounts.WindowDay:
		return p.day
	case accounts.WindowWeek:
		return p.week
	}
	return p.month
}

// periods are those that contain a day.
type periods struct {
	unixDay          int64
	day, week, month Period
}

// lastPeriods are those of the last call, which are usually today's. Each request needs several.
var lastPeriods atomic.Pointer[periods]

func periodsOf(t time.Time) *periods {
	t = t.UTC()
	unixDay := t.Truncate(24 * time.Hour).Unix()
	if p := lastPeriods.Load(); p != nil && p.unixDay == unixDay {
		return p
	}
	year, week := t.ISOWeek()
	p := &periods{unixDay: unixDay, day: Period(t.Format(dayLayout)), week: Period(fmt.Sprintf("%04d-W%02d", year, week)), month: Period(t.Format(monthLayout))}
	lastPeriods.Store(p)
	return p
}

// Window returns the window of which p is a period, or an empty string if p isn't one.
func (p Period) Window() accounts.Window {
	w, _ := p.parse()
	return w
}

// Start returns the period's first moment, or zero for a lifetime.
func (p Period) Start() time.Time {
	_, start := p.parse()
	return start
}

// End returns when the next period starts, or zero for a lifetime.
func (p Period) End() time.Time {
	switch w, start := p.parse(); w {
	case accounts.WindowDay:
		return start.AddDate(0, 0, 1)
	case accounts.WindowWeek:
		return start.AddDate(0, 0, daysPerWeek)
	case accounts.WindowMonth:
		return start.AddDate(0, 1, 0)
	}
	return time.Time{}
}

const daysPerWeek = 7

func (p Period) parse() (accounts.Window, time.Time) {
	if p == lifetime {
		return accounts.WindowLifetime, time.Time{}
	}
	if t, err := time.Parse(monthLayout, string(p)); err == nil {
		return accounts.WindowMonth, t
	}
	if t, err := time.Parse(dayLayout, string(p)); err == nil {
		return accounts.WindowDay, t
	}
	var year, week int
	if n, err := fmt.Sscanf(string(p), "%4d-W%2d", &year, &week); err != nil || n != 2 {
		return "", time.Time{}
	}
	first := time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC) // always in week 1
	monday := first.AddDate(0, 0, -(int(first.Weekday())+daysPerWeek-1)%daysPerWeek)
	start := monday.AddDate(0, 0, daysPerWeek*(week-1))
	if PeriodIn(accounts.WindowWeek, start) != p {
		return "", time.Time{}
	}
	return accounts.WindowWeek, start
}

// Cap is the budget of an account in a window; an empty window is a month. A nil
// limit means no limit: the account is charged only.
type Cap struct {
	Account
	Window accounts.Window
	Limit  *credits.Micro
}

// accountPeriod is an account in a period: the key of a row in the ledger.
type accountPeriod struct {
	Account
	Period Period
}

func (k accountPeriod) String() string {
	return strings.Join([]string{string(k.Level), k.ID, string(k.Period)}, " ")
}

// compare is the order in which accounts are leased and locked, so that
// requests can't deadlock.
func compare(a, b accountPeriod) int {
	return cmp.Or(strings.Compare(string(a.Level), string(b.Level)), strings.Compare(a.ID, b.ID), strings.Compare(string(a.Period), string(b.Period)))
}

// encodeAccounts returns the accounts as the log stores them: a JSON array of
// [level, ID, period].
func encodeAccounts(holds []hold) json.RawMessage {
	out := append(make([]byte, 0, 80*len(holds)+2), '[')
	for i, h := range holds {
		if i > 0 {
			out = append(out, ',')
		}
		if h.lease != nil {
			out = append(out, h.lease.stored...)
		} else {
			out = h.key.appendTo(out)
		}
	}
	return append(out, ']')
}

func (k accountPeriod) appendTo(out []byte) []byte {
	out = append(out, '[')
	for i, text := range [...]string{string(k.Level), k.ID, string(k.Period)} {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, text) // fails only on invalid UTF-8
	}
	return append(out, ']')
}

func decodeAccounts(stored json.RawMessage) ([]hold, error) {
	var rows [][3]string
	if err := json.Unmarshal(stored, &rows); err != nil {
		return nil, fmt.Errorf("charged accounts: %w", err)
	}
	holds := make([]hold, len(rows))
	for i, r := range rows {
		holds[i].key = accountPeriod{Account{Level(r[0]), r[1]}, Period(r[2])}
	}
	return holds, nil
}
