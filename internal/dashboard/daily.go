package dashboard

import (
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
)

// chartDays is how far back the pages of keys, projects and home look.
const chartDays = 30

// daily is what the last days came to, day by day. In test, credits are what
// the calls would have cost.
type daily struct {
	Chart    *chart
	Requests int64
	Errors   int64
	Credits  credits.Micro
}

// Rounded is the sum for people: to a hundredth where there is a whole credit.
func (d *daily) Rounded() credits.Micro {
	const hundredth = credits.Credit / 100
	if d.Credits < credits.Credit {
		return d.Credits
	}
	return (d.Credits + hundredth/2) / hundredth * hundredth
}

// firstDay is the beginning of the first of the days.
func firstDay(now time.Time) time.Time {
	return now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-chartDays)
}

// lastDays reads the usage that q selects; tenancy and times are filled in.
func (v *visit) lastDays(q spend.UsageQuery) (*daily, error) {
	q.Bucket = spend.ByDay
	list, err := v.usageSince(firstDay(v.now()), q)
	return newDaily(v.env, v.now(), list), err
}

// usageSince reads the tenant's usage from a moment until now.
func (v *visit) usageSince(start time.Time, q spend.UsageQuery) ([]spend.Usage, error) {
	q.WorkspaceID, q.Environment, q.Start, q.End = v.workspace.ID, string(v.env), start, v.now()
	return spend.ReadUsage(v.ctx(), v.s.DB, q)
}

// costOf is what was charged, or would have been in live.
func costOf(env accounts.Environment, u spend.Usage) credits.Micro {
	if env == accounts.Test {
		return u.SimulatedCredits
	}
	return u.Credits
}

// newDaily draws what was spent, or the calls where they cost nothing.
func newDaily(env accounts.Environment, now time.Time, list []spend.Usage) *daily {
	d := &daily{}
	first := firstDay(now)
	slots, spent, calls := make([]string, chartDays), make([]float64, chartDays), make([]float64, chartDays)
	for i := range slots {
		slots[i] = first.AddDate(0, 0, i).Format("2 Jan")
	}
	for _, u := range list {
		cost := costOf(env, u)
		d.Requests += u.Requests
		d.Errors += u.Errors
		d.Credits += cost
		if day := int(u.Start.Sub(first) / (24 * time.Hour)); day >= 0 && day < chartDays {
			spent[day] += cost.Float()
			calls[day] += float64(u.Requests)
		}
	}
	title, values := "Spend by day", spent
	switch {
	case d.Credits == 0:
		title, values = "Calls by day", calls
	case env == accounts.Test:
		title = "Simulated spend by day"
	}
	d.Chart = newChart(title, slots, []chartSeries{{Values: values}}, shortNumber)
	return d
}
