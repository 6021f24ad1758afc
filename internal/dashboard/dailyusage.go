package dashboard

import (
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
)

// chartDays is how many days the charts of keys, projects and home show.
const chartDays = 30

// daily is the usage of the last days, by day. In test, credits are simulated.
type daily struct {
	Chart    *chart
	Month    *chart // the spending of the month against its budget; nil without one
	Requests int64
	Errors   int64
	Credits  credits.Micro

	Log      string // the requests
	Failures string // the failed requests
	Usage    string // the page with the cost
}

func firstDay(now time.Time) time.Time {
	return now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-chartDays)
}

// lastDays reads the daily usage of q, whose monthly budget is nil if it has none. It fills in the workspace, environment
// and times.
func (req *request) lastDays(q spend.UsageQuery, budget *credits.Micro) (*daily, error) {
	q.Bucket = spend.ByDay
	first, month := firstDay(req.now()), monthOf(req.now(), 0)
	if month.Before(first) {
		first = month // the 31st day
	}
	list, err := req.usageSince(first, q)
	if err != nil {
		return nil, err
	}
	d := req.newDaily(q, slices.DeleteFunc(slices.Clone(list), func(u spend.Usage) bool { return u.Start.Before(firstDay(req.now())) }))
	if budget != nil && req.env == accounts.Live {
		d.Month = req.monthChart(q, list, *budget)
	}
	return d, nil
}

// monthChart shows how the month's spending adds up, with a line for its budget.
func (req *request) monthChart(q spend.UsageQuery, list []spend.Usage, budget credits.Micro) *chart {
	month := monthOf(req.now(), 0)
	days := int(req.now().Sub(month)/day) + 1
	metrics := usageMetrics(req.env)
	spec := chartSpec{Title: "Spend this month", Unit: " credits", Show: shortNumber, Exact: metrics[len(metrics)-1].exact, Budget: budget.Float()}
	spent := make([]float64, days)
	for _, u := range list {
		if !u.Start.Before(month) {
			spent[min(int(u.Start.Sub(month)/day), days-1)] += u.Credits.Float()
		}
	}
	for i := range spent {
		if i > 0 {
			spent[i] += spent[i-1]
		}
		start := month.AddDate(0, 0, i)
		spec.Slots = append(spec.Slots, start.Format("Jan 2"))
		spec.Links = append(spec.Links, req.requestsBetween(usageFilter{UsageQuery: q}, nil, start, start.AddDate(0, 0, 1)))
	}
	spec.Series = []chartSeries{{Values: spent}}
	return newChart(spec)
}

// usageSince reads the environment's usage from start until now.
func (req *request) usageSince(start time.Time, q spend.UsageQuery) ([]spend.Usage, error) {
	q.Tenant, q.Start, q.End = req.workspace.In(req.env), start, req.now()
	return spend.ReadUsage(req.Context(), req.usage(), q)
}

// costOf returns the charged credits, or the simulated ones in test.
func costOf(env accounts.Environment, u spend.Usage) credits.Micro {
	if env == accounts.Test {
		return u.SimulatedCredits
	}
	return u.Credits
}

// newDaily adds up usage. Its chart shows the spending, or the requests if they cost
// nothing. A bar leads to the day's requests.
func (req *request) newDaily(q spend.UsageQuery, list []spend.Usage) *daily {
	search := []string{"last", "30d"}
	usage := "usage?range=30d&metric=credits"
	if q.KeyID != "" {
		search, usage = append(search, "key", q.KeyID), usage+"&group=key"
	} else if q.Project != "" {
		search, usage = append(search, "project", q.Project), usage+"&group=project"
	}
	d := &daily{Log: req.logLink(search...), Failures: req.logLink(append(search, "status", "failed")...), Usage: req.to(usage)}
	first := firstDay(req.now())
	spec := chartSpec{Show: shortNumber}
	of := usageFilter{UsageQuery: q}
	spent, requests := make([]float64, chartDays), make([]float64, chartDays)
	for i := range chartDays {
		day := first.AddDate(0, 0, i)
		spec.Slots = append(spec.Slots, day.Format("Jan 2"))
		spec.Links = append(spec.Links, req.requestsBetween(of, nil, day, day.AddDate(0, 0, 1)))
	}
	for _, u := range list {
		cost := costOf(req.env, u)
		d.Requests += u.Requests
		d.Errors += u.Errors
		d.Credits += cost
		if day := int(u.Start.Sub(first) / (24 * time.Hour)); day >= 0 && day < chartDays {
			spent[day] += cost.Float()
			requests[day] += float64(u.Requests)
		}
	}
	metrics := usageMetrics(req.env)
	metric, values := metrics[len(metrics)-1], spent
	spec.Title = "Spend by day"
	switch {
	case d.Credits == 0:
		spec.Title, metric, values = "Requests by day", metrics[0], requests
	case req.env == accounts.Test:
		spec.Title = "Simulated spend by day"
	}
	spec.Unit, spec.Exact, spec.Series = " "+strings.ToLower(metric.Title), metric.exact, []chartSeries{{Values: values}}
	d.Chart = newChart(spec)
	return d
}
