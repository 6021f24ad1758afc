package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

const (
	day = 24 * time.Hour
	// spendingDays is the period whose spending predicts how long credits last.
	spendingDays = 7
	// maxHourlyUsage limits the rows of usage that home adds up.
	maxHourlyUsage = 10_000
	// topRows is how many models, keys and error codes home shows.
	topRows = 5
	// topDays is the period of the top models and keys.
	topDays = 7
	// maxTopUsage limits the rows of usage that the top models and keys are found in.
	maxTopUsage = 5000
)

type homeData struct {
	Start     *checklist // nil if it is finished or dismissed
	Attention []attention
	Money     *spend.Billing // nil in test, where requests are free
	Runway    time.Duration  // how long credits last at the recent rate, or 0 if unknown
	Stats     []homeStat
	Since     string // what the numbers cover: "last 24 hours"
	TopSince  string // what the top models and keys cover: "last 7 days"
	Models    []topRow
	Keys      []topRow
	Errors    *recentErrors
	Days      *daily

	hours *hourlyUsage
	req   *request
}

// Unused reports whether there is nothing to show but the first steps.
func (d *homeData) Unused() bool { return d.Start != nil && d.Start.Open() }

// First returns the items that are visible at first.
func (d *homeData) First() []attention { return d.Attention[:min(len(d.Attention), attentionShown)] }

// Others returns the items behind a click.
func (d *homeData) Others() []attention { return d.Attention[len(d.First()):] }

// ErrorLink returns the requests of a day with an error code.
func (d *homeData) ErrorLink(code string) string { return d.req.logLink("error", code, "last", "24h") }

// homeStat is a number with its course over the day.
type homeStat struct {
	Title   string
	Value   string
	Dollars string // the value, if it is credits
	More    string // a second value beside it
	Badge   string
	Link    string // or empty
	Note    string
	Change  *change // since the day before; nil if unknown
	Spark   []sparkLine
}

// change is the difference to the day before.
type change struct {
	Text string
	Kind string // good, bad or empty
}

// topRow is a row of the models and keys that are used most.
type topRow struct {
	Name     string
	Link     string
	Log      string // the requests that are counted
	Usage    string // the page with the cost
	Requests int64
	Cost     credits.Micro
	Spend    string // the cost as its column shows it
	Share    int64  // of the requests, in percent
}

func homePage(req *request) (*view, error) {
	d := &homeData{req: req}
	days, err := req.usageSince(firstDay(req.now()), spend.UsageQuery{Bucket: spend.ByDay})
	if err != nil {
		return nil, err
	}
	d.Days = req.newDaily(spend.UsageQuery{}, days)
	if d.hours, err = req.hourlyUsage(); err != nil {
		return nil, err
	}
	if req.env == accounts.Live {
		if d.Money, err = spend.ReadBilling(req.Context(), req.ledger(), req.workspace.ID, req.now()); err != nil {
			return nil, err
		}
		if left := d.Money.Remaining(); left != nil {
			d.Runway = runway(*left, days, req.now())
		}
	}
	if d.Errors, err = readRecentErrors(req.Context(), req.history(), req.workspace.In(req.env), req.now()); err != nil {
		return nil, err
	}
	if d.Start, err = req.checklist(d.Days.Requests > 0); err != nil {
		return nil, err
	}
	if d.Attention, err = req.readAttention(d); err != nil {
		return nil, err
	}
	if err := req.readStats(d); err != nil {
		return nil, err
	}
	return &view{template: "home", title: "Home", data: d, live: true}, nil
}

// runway returns how long the remaining credits last at the rate of the last days, or 0 without spending.
func runway(remaining credits.Micro, days []spend.Usage, now time.Time) time.Duration {
	start := now.UTC().Truncate(day).AddDate(0, 0, 1-spendingDays)
	var spent credits.Micro
	for _, u := range days {
		if !u.Start.Before(start) {
			spent += u.Credits
		}
	}
	if spent <= 0 {
		return 0
	}
	return time.Duration(min(float64(remaining)/float64(spent)*float64(now.Sub(start)), float64(longRunway)))
}

// longRunway is the longest time that is worth a number.
const longRunway = 365 * day

// ShowRunway formats how long the credits last.
func (d *homeData) ShowRunway() string {
	if d.Runway >= longRunway {
		return "more than a year"
	}
	return "about " + roughly(d.Runway)
}

// RunsOut reports whether the credits are spent before the month ends if spending goes on as in the last days.
func (d *homeData) RunsOut() bool {
	return d.Runway > 0 && d.req.now().Add(d.Runway).Before(d.Money.Period.End())
}

// rate returns a percentage with one decimal.
func rate(part, whole int64) string {
	if whole == 0 {
		return none
	}
	return strconv.FormatFloat(float64(part)/float64(whole)*100, 'f', 1, 64) + "%"
}

// hourlyUsage is the usage of two days by the hour. Index 0 is the hour that has just begun, 1 the
// one before.
type hourlyUsage struct {
	hours    [48]spend.Usage
	elapsed  float64 // of the first hour
	complete int     // how many hours are complete, if there is too much usage to read
}

// hourlyUsage reads the environment's usage of two days.
func (req *request) hourlyUsage() (*hourlyUsage, error) {
	now := req.now().UTC()
	first := now.Truncate(time.Hour)
	h := &hourlyUsage{elapsed: now.Sub(first).Hours()}
	h.complete = len(h.hours)
	u := spend.UsageQuery{Tenant: req.workspace.In(req.env), Start: first.Add(time.Duration(1-len(h.hours)) * time.Hour), End: now, Bucket: spend.ByHour, Latencies: true}
	list, since, err := spend.RecentUsage(req.Context(), req.usage(), u, maxHourlyUsage)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		h.complete = min(h.complete, int(first.Sub(since)/time.Hour)+1)
	}
	for _, x := range list {
		if age := int(first.Sub(x.Start) / time.Hour); age >= 0 && age < len(h.hours) {
			h.hours[age].Add(x)
		}
	}
	return h, nil
}

// shown returns how many hours the numbers cover: a day, or less if there is too much usage to read.
func (h *hourlyUsage) shown() int { return min(24, h.complete) }

// sum adds up the hours from one age to another.
func (h *hourlyUsage) sum(from, to int) (sum spend.Usage) {
	for _, x := range h.hours[from:to] {
		sum.Add(x)
	}
	return sum
}

// last adds up the newest hours.
func (h *hourlyUsage) last(n int) spend.Usage { return h.sum(0, n) }

// change compares a metric with the same hours of the day before. It is nil if those aren't known.
func (h *hourlyUsage) change(of func(spend.Usage) float64) *change {
	if h.complete < len(h.hours) {
		return nil
	}
	// As much of its last hour counts as has passed of the present one.
	before := of(h.sum(25, 48)) + of(h.hours[24])*h.elapsed
	return changeOf(of(h.last(24)), before)
}

// spark draws a metric by the hour.
func (h *hourlyUsage) spark(of func(spend.Usage) float64) []sparkLine {
	return sparkline(h.byHour(of), false)
}

// byHour returns a metric of the hours that are shown, the oldest first.
func (h *hourlyUsage) byHour(of func(spend.Usage) float64) []float64 {
	values := make([]float64, h.shown())
	for i := range values {
		values[len(values)-1-i] = of(h.hours[i])
	}
	return values
}

// sparkLine is a part of a small line, in a square of 1,000.
type sparkLine struct {
	Points   string
	From, To int // where it begins and ends
}

// sparkline returns a line, or nil if there is nothing to draw. In a sparse one, 0 is a gap. A single value is a
// line of no length, which is drawn as a dot.
func sparkline(values []float64, sparse bool) (out []sparkLine) {
	if len(values) < 2 {
		return nil
	}
	top := slices.Max(values)
	if top <= 0 {
		return nil
	}
	x := func(i int) int { return 1000 * i / (len(values) - 1) }
	for _, run := range runs(values, sparse) {
		var points []string
		for i := run.from; i < run.to; i++ {
			points = append(points, fmt.Sprintf("%d,%d", x(i), int(1000-950*values[i]/top)))
		}
		if len(points) == 1 {
			points = append(points, points[0])
		}
		out = append(out, sparkLine{strings.Join(points, " "), x(run.from), x(run.to - 1)})
	}
	return out
}

// changeOf formats the difference of two numbers in percent.
func changeOf(now, before float64) *change {
	if before <= 0 {
		return nil
	}
	percent := math.Round((now - before) / before * 100)
	switch {
	case percent == 0:
		return &change{Text: "±0%"}
	case percent > 999:
		return &change{Text: "+999% or more"}
	case percent > 0:
		return &change{Text: "+" + strconv.FormatFloat(percent, 'f', 0, 64) + "%"}
	}
	return &change{Text: "−" + strconv.FormatFloat(-percent, 'f', 0, 64) + "%"}
}

// judged says whether more is worse.
func (c *change) judged() *change {
	if c != nil && c.Text[0] == '+' {
		c.Kind = "bad"
	} else if c != nil && c.Text != "±0%" {
		c.Kind = "good"
	}
	return c
}

func (req *request) readStats(d *homeData) error {
	h := d.hours
	d.Since = "last 24 hours"
	if h.shown() < 24 {
		d.Since = "last " + strconv.Itoa(h.shown()) + " h"
	}
	sum := h.last(h.shown())
	requests := func(u spend.Usage) float64 { return float64(u.Requests) }
	cost := func(u spend.Usage) float64 { return costOf(req.env, u).Float() }
	money := req.moneyStat(d, sum)
	money.Change, money.Spark = h.change(cost), h.spark(cost)
	if money.Change != nil {
		money.Change.Text += " spend"
	}
	d.Stats = append(d.Stats, money,
		homeStat{Title: "Model requests", Value: showCount(sum.Requests), Note: shortNumber(float64(sum.InputTokens+sum.OutputTokens)) + " tokens", Link: req.logLink("last", "24h"), Change: h.change(requests), Spark: h.spark(requests)},
		req.failedStat(d.Errors), req.latencyStat(h))
	return req.readTops(d)
}

// failedStat returns the failed requests of the last day, or of the newest requests if the day has too many.
func (req *request) failedStat(e *recentErrors) homeStat {
	hours := min(24, e.complete)
	sum := e.sum(0, 24)
	s := homeStat{Title: "Failed requests", Value: showCount(sum.Failed), Link: req.logLink("status", "failed", "last", "24h")}
	if sum.Requests > 0 {
		s.Note = rate(sum.Failed, sum.Requests) + " of requests"
	}
	if hours < 24 {
		s.Note = rate(sum.Failed, sum.Requests) + " of the newest " + showCount(sum.Requests) + " requests"
		return s
	}
	failed := make([]float64, hours)
	for i := range failed {
		failed[len(failed)-1-i] = float64(e.hours[i].Failed)
	}
	s.Spark = sparkline(failed, false)
	if e.complete == len(e.hours) {
		s.Change = changeOf(float64(sum.Failed), float64(e.sum(24, 48).Failed)).judged()
	}
	return s
}

// moneyStat returns the credits that are left, or the spending.
func (req *request) moneyStat(d *homeData, sum spend.Usage) homeStat {
	spentToday := showRounded(costOf(req.env, sum))
	if req.env == accounts.Test {
		return homeStat{Title: "Simulated spend", Value: spentToday, Dollars: req.dollars(costOf(req.env, sum)), Note: "Test requests are free.", Link: req.to("usage?metric=simulated_credits")}
	}
	s := homeStat{Title: "Spent this month", Value: showRounded(d.Money.Spent), Dollars: req.dollars(d.Money.Spent), Note: spentToday + " in the " + d.Since + ", no limit", Link: req.to("billing")}
	if left := d.Money.Remaining(); left != nil {
		s.Title, s.Value, s.Dollars = "Credits left", showRounded(*left), req.dollars(*left)
		s.Note = "of " + showCredits(*d.Money.Workspace.MonthlyCredits)
		if d.Runway > 0 {
			s.Note += ", enough for " + d.ShowRunway()
		}
		if d.Money.Low() || d.RunsOut() {
			s.Badge = "low"
		}
	}
	if !req.principal.Grant.Allows(access.BillingRead) {
		s.Link = ""
	}
	return s
}

// latencyStat returns the latency of successful model requests.
func (req *request) latencyStat(h *hourlyUsage) homeStat {
	s := homeStat{Title: "Latency", Value: none, Link: req.logLink("last", "24h")}
	today := h.last(h.shown()).Latencies
	p95 := today.Quantile(0.95)
	if p95 == 0 {
		return s
	}
	s.Value, s.More, s.Note = showDuration(today.Quantile(0.5)), "p50", showDuration(p95)+" p95"
	s.Link = req.logLink("latency", ">"+strconv.FormatInt(p95.Milliseconds(), 10)+"ms", "last", "24h")
	if h.complete == len(h.hours) {
		s.Change = changeOf(float64(p95), float64(h.sum(24, 48).Latencies.Quantile(0.95))).judged()
		if s.Change != nil {
			s.Change.Text += " p95"
		}
	}
	s.Spark = sparkline(h.byHour(func(u spend.Usage) float64 { return float64(u.Latencies.Quantile(0.5)) }), true)
	return s
}

// readTops reads the models and keys with the most requests of the last days. The days are in a
// rollup of their own, which has far fewer rows than the hours of one day.
func (req *request) readTops(d *homeData) error {
	now := req.now().UTC()
	u := spend.UsageQuery{Tenant: req.workspace.In(req.env), Start: now.Truncate(day).AddDate(0, 0, 1-topDays), End: now, Bucket: spend.ByDay}
	since, err := u.Bound(req.Context(), req.usage(), maxTopUsage)
	if err != nil {
		return err
	}
	d.TopSince = "last " + strconv.Itoa(topDays) + " days"
	if !since.IsZero() {
		d.TopSince = "since " + since.Format("Jan 2")
	}
	if d.Models, err = req.top(u, "model"); err != nil {
		return err
	}
	for i, m := range d.Models {
		d.Models[i].Log = req.logLink("model", m.Name, "last", "7d")
		d.Models[i].Link = d.Models[i].Log
	}
	if d.Keys, err = req.top(u, "key"); err != nil {
		return err
	}
	var ids []string
	for _, k := range d.Keys {
		ids = append(ids, k.Name)
	}
	names, err := req.keyNames(ids)
	for i, k := range d.Keys {
		d.Keys[i].Name, d.Keys[i].Log = cmp.Or(names[k.Name], k.Name), req.logLink("key", k.Name, "last", "7d")
		if names[k.Name] != "" && req.principal.Grant.Allows(access.KeysRead) {
			d.Keys[i].Link = req.to("keys/" + k.Name)
		}
	}
	return err
}

func (req *request) top(u spend.UsageQuery, dimension string) ([]topRow, error) {
	u.GroupBy = []string{dimension}
	list, err := spend.TopUsage(req.Context(), req.usage(), u, topRows)
	rows := make([]topRow, len(list))
	for i, u := range list {
		rows[i] = topRow{Name: groupID(u, dimension), Usage: req.to("usage?range=7d&metric=credits&group=" + dimension), Requests: u.Requests, Cost: costOf(req.env, u), Share: percent(u.Requests, list[0].Requests)}
	}
	for i, text := range req.spendColumn(web.Map(rows, func(r topRow) credits.Micro { return r.Cost })) {
		rows[i].Spend = text
	}
	return rows, err
}
