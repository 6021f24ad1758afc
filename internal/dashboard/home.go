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
	Money     *spend.Billing // nil in test, where requests are free
	Runway    string         // how long credits last at the recent rate, or empty if unknown
	Days      *daily
	Day       pastDay
	Troubles  issues
	Untouched bool   // there was never a request
	Example   string // a first request
}

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
	if req.env == accounts.Live {
		if d.Money, err = spend.ReadBilling(req.Context(), req.s.DB, req.workspace.ID, req.now()); err != nil {
			return nil, err
		}
		if left := d.Money.Remaining(); left != nil {
			d.Runway = runway(*left, hours)
		}
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

// runway returns how long the remaining credits last at the rate of the hours.
func runway(remaining credits.Micro, hours []spend.Usage) string {
	var spent credits.Micro
	for _, u := range hours {
		spent += u.Credits
	}
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
	waiting, err := req.awaitingApproval(homeRows)
	if err != nil {
		return t, err
	}
	t.Approvals, t.MoreApprovals = waiting.Rows, waiting.More
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
