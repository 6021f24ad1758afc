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
	// expiringWithin is how far ahead home warns of expiring keys.
	expiringWithin = 7 * 24 * time.Hour
	// spendingWindow is the period whose spending predicts how long credits last.
	spendingWindow = 7 * 24 * time.Hour
	// leakWindow is how long home shows a leak report.
	leakWindow = 30 * 24 * time.Hour
	// homeRows is how many items of a kind home shows.
	homeRows = 5
)

type homeData struct {
	Money     balance
	Days      *daily
	Day       pastDay
	Troubles  issues
	Untouched bool   // there was never a request
	Example   string // a first request
}

// balance is the state of the credits, in live.
type balance struct {
	Spent     credits.Micro // this month
	Monthly   *credits.Micro
	Remaining *credits.Micro
	Low       bool
	Runway    string // how long credits last at the recent rate, or empty if unknown
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

// issues are what someone should look at.
type issues struct {
	Approvals     []*agents.Run
	MoreApprovals bool
	Endpoints     []failingEndpoint
	Keys          []keyRow
	Leaks         []*leaks.Note
}

// Any reports whether there are issues.
func (t issues) Any() bool {
	return len(t.Approvals)+len(t.Endpoints)+len(t.Keys)+len(t.Leaks) > 0
}

func homePage(req *request) (*view, error) {
	d := &homeData{Example: exampleCall(req.s.PublicURL, "$TURNPIKE_API_KEY")}
	var err error
	if d.Days, err = req.lastDays(spend.UsageQuery{}); err != nil {
		return nil, err
	}
	hours, err := req.usageSince(req.now().Add(-spendingWindow), spend.UsageQuery{Bucket: spend.ByHour})
	if err != nil {
		return nil, err
	}
	if d.Money, err = req.readBalance(hours); err != nil {
		return nil, err
	}
	if d.Day, err = req.lastDay(hours); err != nil {
		return nil, err
	}
	if d.Troubles, err = req.readIssues(); err != nil {
		return nil, err
	}
	if d.Days.Requests == 0 {
		first, err := audit.List(req.Context(), req.s.DB, req.principal.Visibility(), audit.Filter{}, db.Page{Limit: 1})
		if err != nil {
			return nil, err
		}
		d.Untouched = len(first.Rows) == 0
	}
	return &view{template: "home", title: "Home", data: d, live: true}, nil
}

func (req *request) readBalance(hours []spend.Usage) (m balance, err error) {
	if req.env == accounts.Test {
		return m, nil // test requests are free
	}
	b, err := spend.ReadBilling(req.Context(), req.s.DB, req.workspace.ID, req.now())
	if err != nil {
		return m, err
	}
	m = balance{Spent: b.Spent, Monthly: b.Workspace.MonthlyCredits, Remaining: b.Remaining(), ResetsAt: b.Period.End()}
	if m.Remaining == nil {
		return m, nil
	}
	m.Low = b.Low()
	m.Runway = runway(*m.Remaining, spentSince(hours, req.now().Add(-spendingWindow)))
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

// runway returns how long the remaining credits last at the recent rate.
func runway(remaining, spent credits.Micro) string {
	if spent <= 0 {
		return ""
	}
	const year = 365 * 24 * time.Hour
	left := float64(remaining) / float64(spent) * float64(spendingWindow)
	if left > float64(year) {
		return "more than a year"
	}
	return "about " + roughly(time.Duration(left))
}

// lastDay adds up the last 24 hours, to the hour.
func (req *request) lastDay(hours []spend.Usage) (d pastDay, err error) {
	since := req.now().Add(-24 * time.Hour)
	for _, u := range hours {
		if u.Start.After(since.Add(-time.Hour)) {
			d.Requests += u.Requests
			d.Errors += u.Errors
		}
	}
	d.Rate = rate(d.Errors, d.Requests)
	d.LookedAt = maxErrorScan
	d.Codes, err = frequentErrors(req.Context(), req.s.DB, req.workspace.In(req.env), since)
	return d, err
}

// rate returns a percentage with one decimal.
func rate(part, whole int64) string {
	if whole == 0 {
		return none
	}
	return strconv.FormatFloat(float64(part)/float64(whole)*100, 'f', 1, 64) + "%"
}

func (req *request) readIssues() (t issues, err error) {
	if t.Approvals, t.MoreApprovals, err = req.awaitingApproval(homeRows); err != nil {
		return t, err
	}
	if t.Endpoints, err = failingEndpoints(req.Context(), req.s.DB, req.workspace.In(req.env), req.now().Add(-24*time.Hour)); err != nil {
		return t, err
	}
	keys, err := req.s.Keys.EndingSoon(req.Context(), req.s.DB, req.principal.Visibility(), req.now().Add(expiringWithin), homeRows)
	if err != nil {
		return t, err
	}
	if t.Keys, err = req.keyRows(keys...); err != nil {
		return t, err
	}
	notes, _, err := leaks.List(req.Context(), req.s.DB, req.workspace.In(req.env), db.Page{Limit: homeRows})
	t.Leaks = slices.DeleteFunc(notes, func(n *leaks.Note) bool { return n.ReportedAt.Before(req.now().Add(-leakWindow)) })
	return t, err
}
