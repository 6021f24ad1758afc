package dashboard

import (
	"slices"
	"strconv"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/leaks"
	"turnpike/internal/spend"
)

const (
	// soon is how far ahead home looks for keys that end.
	soon = 7 * 24 * time.Hour
	// pace is over how long spending is averaged to say how long credits last.
	pace = 7 * 24 * time.Hour
	// leaksShown is for how long a leak report stays on the first page.
	leaksShown = 30 * 24 * time.Hour
	// fewRows is how many things of a kind the first page names.
	fewRows = 5
)

// homeData is the first look at how things are.
type homeData struct {
	Now       time.Time
	Money     money
	Days      *daily
	Day       pastDay
	Troubles  troubles
	Untouched bool   // nothing was ever called
	Example   string // a first call
}

// money is what there is to spend in live.
type money struct {
	Spent     credits.Micro // this month
	Monthly   *credits.Micro
	Remaining *credits.Micro
	Low       bool
	Runway    string // how long it lasts at the pace of the last days; empty if that cannot be said
	ResetsAt  time.Time
}

// pastDay is the last 24 hours.
type pastDay struct {
	Requests int64
	Errors   int64
	Rate     string // of errors
	Codes    []errorCount
	LookedAt int
}

// troubles are what somebody should look at.
type troubles struct {
	Approvals     []*agents.Run
	MoreApprovals bool
	Endpoints     []failingEndpoint
	Keys          []keyRow
	Leaks         []*leaks.Note
}

// Any reports whether there are any.
func (t troubles) Any() bool {
	return len(t.Approvals)+len(t.Endpoints)+len(t.Keys)+len(t.Leaks) > 0
}

func homePage(v *visit) (*view, error) {
	d := &homeData{Now: v.now(), Example: exampleCall(v.s.PublicURL, "$TURNPIKE_API_KEY")}
	var err error
	if d.Days, err = v.lastDays(spend.UsageQuery{}); err != nil {
		return nil, err
	}
	hours, err := v.usageSince(v.now().Add(-pace), spend.UsageQuery{Bucket: spend.ByHour})
	if err != nil {
		return nil, err
	}
	if d.Money, err = v.readMoney(hours); err != nil {
		return nil, err
	}
	if d.Day, err = v.lastDay(hours); err != nil {
		return nil, err
	}
	if d.Troubles, err = v.readTroubles(); err != nil {
		return nil, err
	}
	if d.Days.Requests == 0 {
		first, err := audit.List(v.ctx(), v.s.DB, v.principal.Visibility(), audit.Filter{}, db.Page{Limit: 1})
		if err != nil {
			return nil, err
		}
		d.Untouched = len(first.Rows) == 0
	}
	return &view{template: "home", title: "Home", data: d, live: true}, nil
}

func (v *visit) readMoney(hours []spend.Usage) (m money, err error) {
	if v.env == accounts.Test {
		return m, nil // it is free
	}
	b, err := spend.ReadBilling(v.ctx(), v.s.DB, v.workspace.ID, v.now())
	if err != nil {
		return m, err
	}
	m = money{Spent: b.Spent, Monthly: b.Workspace.MonthlyCredits, Remaining: b.Remaining(), ResetsAt: b.Period.End()}
	if m.Remaining == nil {
		return m, nil
	}
	m.Low = b.Low()
	m.Runway = runway(*m.Remaining, spentSince(hours, v.now().Add(-pace)))
	return m, nil
}

func spentSince(hours []spend.Usage, since time.Time) (sum credits.Micro) {
	for _, u := range hours {
		if !u.Start.Before(since.Truncate(time.Hour)) {
			sum += u.Credits
		}
	}
	return sum
}

// runway is for how long the remaining credits last when they go on being
// spent as they were.
func runway(remaining, spent credits.Micro) string {
	if spent <= 0 {
		return ""
	}
	const year = 365 * 24 * time.Hour
	left := float64(remaining) / float64(spent) * float64(pace)
	if left > float64(year) {
		return "more than a year"
	}
	return "about " + roughly(time.Duration(left))
}

// lastDay adds up the last 24 hours, to the hour.
func (v *visit) lastDay(hours []spend.Usage) (d pastDay, err error) {
	since := v.now().Add(-24 * time.Hour)
	for _, u := range hours {
		if u.Start.After(since.Add(-time.Hour)) {
			d.Requests += u.Requests
			d.Errors += u.Errors
		}
	}
	d.Rate = rate(d.Errors, d.Requests)
	d.LookedAt = maxErrorLook
	d.Codes, err = frequentErrors(v.ctx(), v.s.DB, v.workspace.ID, v.env, since)
	return d, err
}

// rate is a share in percent, to a tenth.
func rate(part, whole int64) string {
	if whole == 0 {
		return none
	}
	return strconv.FormatFloat(float64(part)/float64(whole)*100, 'f', 1, 64) + " %"
}

func (v *visit) readTroubles() (t troubles, err error) {
	if t.Approvals, t.MoreApprovals, err = v.awaitingApproval(fewRows); err != nil {
		return t, err
	}
	if t.Endpoints, err = failingEndpoints(v.ctx(), v.s.DB, v.workspace.ID, v.env, v.now().Add(-24*time.Hour)); err != nil {
		return t, err
	}
	keys, err := v.s.Keys.EndingSoon(v.ctx(), v.s.DB, v.principal.Visibility(), v.now().Add(soon), fewRows)
	if err != nil {
		return t, err
	}
	if t.Keys, err = v.keyRows(keys...); err != nil {
		return t, err
	}
	notes, _, err := leaks.List(v.ctx(), v.s.DB, v.workspace.ID, string(v.env), db.Page{Limit: fewRows})
	t.Leaks = slices.DeleteFunc(notes, func(n *leaks.Note) bool { return n.ReportedAt.Before(v.now().Add(-leaksShown)) })
	return t, err
}
