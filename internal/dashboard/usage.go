package dashboard

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

const (
	// maxUsageRows is how many rollup rows a page reads, so that it takes a tenth of
	// a second: SQLite adds up a million rows per second in index order, and a third
	// of that otherwise. The page omits the oldest rows beyond that, and says so.
	maxUsageRows    = 50_000
	maxUnsortedRows = 20_000
	// topGroups have their own color; the others share one.
	topGroups = maxSeries - 1
	// groupsShown are in the table. The export has all of them.
	groupsShown = 50
	// maxBars and maxParts limit the chart: a bar of seven parts is about a kilobyte.
	maxBars  = 124
	maxParts = 62 * maxSeries
)

type usageMetric struct {
	Name, Title string
	of          func(spend.Usage) float64
}

// usageMetrics returns the metrics of an environment. Test requests are free, but have
// simulated costs.
func usageMetrics(env accounts.Environment) []usageMetric {
	list := []usageMetric{
		{"requests", "Requests", func(u spend.Usage) float64 { return float64(u.Requests) }},
		{"errors", "Errors", func(u spend.Usage) float64 { return float64(u.Errors) }},
		{"input_tokens", "Input tokens", func(u spend.Usage) float64 { return float64(u.InputTokens) }},
		{"output_tokens", "Output tokens", func(u spend.Usage) float64 { return float64(u.OutputTokens) }},
		{"cached_tokens", "Cached tokens", func(u spend.Usage) float64 { return float64(u.CachedTokens) }},
	}
	if env == accounts.Live {
		return append(list, usageMetric{"credits", "Credits", func(u spend.Usage) float64 { return u.Credits.Float() }})
	}
	return append(list, usageMetric{"simulated_credits", "Simulated credits", func(u spend.Usage) float64 { return u.SimulatedCredits.Float() }})
}

// usageRange is a time range that ends now, or with a month.
type usageRange struct {
	Name, Title string
	bucket      spend.Bucket // default
	from        func(now time.Time) time.Time
	to          func(now time.Time) time.Time // nil means now
}

func ago(d time.Duration) func(time.Time) time.Time {
	return func(now time.Time) time.Time { return now.Add(-d) }
}

func monthOf(now time.Time, months int) time.Time {
	now = now.UTC()
	return time.Date(now.Year(), now.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

var usageRanges = []usageRange{
	{"1h", "Hour", spend.ByMinute, ago(59 * time.Minute), nil},
	{"24h", "24 hours", spend.ByHour, ago(23 * time.Hour), nil},
	{"7d", "7 days", spend.ByDay, ago(6 * 24 * time.Hour), nil},
	{"30d", "30 days", spend.ByDay, ago(29 * 24 * time.Hour), nil},
	{"month", "This month", spend.ByDay, func(now time.Time) time.Time { return monthOf(now, 0) }, nil},
	{"last_month", "Last month", spend.ByDay, func(now time.Time) time.Time { return monthOf(now, -1) }, func(now time.Time) time.Time { return monthOf(now, 0) }},
	{"12m", "12 months", spend.ByMonth, func(now time.Time) time.Time { return monthOf(now, -11) }, nil},
}

// defaultRange is the range without a query.
const defaultRange = "7d"

// usageFilter is what the query selects.
type usageFilter struct {
	spend.UsageQuery
	Range  string // empty for custom days
	Metric usageMetric
	Group  string // of spend.Dimensions, or empty
	Notes  []string
}

var usageParams = []string{"range", "start", "end", "metric", "group", "bucket"}

// usageFilter reads the query. If it returns an error, the metric and group are set
// nevertheless, for the filters.
func (req *request) usageFilter() (a usageFilter, err error) {
	a.Tenant, a.Group = req.workspace.In(req.env), req.query("group")
	metrics := usageMetrics(req.env)
	a.Metric = metrics[0]
	if name := req.query("metric"); strings.HasSuffix(name, "credits") {
		a.Metric = metrics[len(metrics)-1] // the URL may be from the other environment
	} else if i := slices.IndexFunc(metrics, func(m usageMetric) bool { return m.Name == name }); i >= 0 {
		a.Metric = metrics[i]
	}
	if err := req.readUsageTime(&a); err != nil {
		return a, err
	}
	if b := spend.Bucket(req.query("bucket")); slices.Contains(spend.Buckets, b) {
		a.Bucket = b
	} else if b != "" {
		return a, fault.Invalid("bucket", "Choose minute, hour, day or month.")
	}
	if a.Group != "" {
		if !slices.Contains(spend.Dimensions, a.Group) {
			return a, fault.Invalid("group", "Choose one of %s.", strings.Join(spend.Dimensions, ", "))
		}
		a.GroupBy = []string{a.Group}
	}
	a.fit(req.now())
	return a, nil
}

// readUsageTime reads a first and last day, or a range by name.
func (req *request) readUsageTime(a *usageFilter) error {
	now := req.now().UTC()
	start, end := req.query("start"), req.query("end")
	if start == "" && end == "" {
		i := slices.IndexFunc(usageRanges, func(r usageRange) bool { return r.Name == req.query("range") })
		if i < 0 {
			i = slices.IndexFunc(usageRanges, func(r usageRange) bool { return r.Name == defaultRange })
		}
		r := usageRanges[i]
		a.Range, a.Bucket, a.Start, a.End = r.Name, r.bucket, r.from(now), now
		if r.to != nil {
			a.End = r.to(now)
		}
		return nil
	}
	a.Start, a.End = now.AddDate(0, 0, -29), now
	var err error
	if end != "" {
		if a.End, err = time.Parse(time.DateOnly, end); err != nil {
			return fault.Invalid("end", "Enter a day as 2006-01-31.")
		}
		a.End = a.End.AddDate(0, 0, 1)
		a.Start = a.End.AddDate(0, 0, -30)
	}
	if start != "" {
		if a.Start, err = time.Parse(time.DateOnly, start); err != nil {
			return fault.Invalid("start", "Enter a day as 2006-01-31.")
		}
	}
	if !a.Start.Before(a.End) {
		return fault.Invalid("start", "The first day cannot be after the last.")
	}
	switch days := a.End.Sub(a.Start).Hours() / 24; {
	case days <= 2:
		a.Bucket = spend.ByHour
	case days <= 100:
		a.Bucket = spend.ByDay
	default:
		a.Bucket = spend.ByMonth
	}
	return nil
}

// fit shortens the range to what the bucket allows, and notes it.
func (a *usageFilter) fit(now time.Time) {
	if most := a.Bucket.Longest(); a.End.Sub(a.Start) > most {
		a.Start = a.End.Add(-most)
		a.Notes = append(a.Notes, fmt.Sprintf("With bucket %s, the page shows at most the last %s.", a.Bucket, countdown(most)))
	}
	if a.Bucket == spend.ByMinute && a.Start.Before(now.Add(-spend.MinutesKept)) {
		a.Notes = append(a.Notes, "Usage by minute is kept for 7 days. Older usage is available by hour.")
	}
}

// usageGroup is the usage of one key, project, model or provider.
type usageGroup struct {
	ID   string
	Name string
	Link string // or empty
	spend.Usage
	steps map[int]spend.Usage // by bucket; most groups have few
}

func (g *usageGroup) add(step int, u spend.Usage) {
	g.Add(u)
	sum := g.steps[step]
	sum.Add(u)
	g.steps[step] = sum
}

// usageSum is the result, with the largest groups first.
type usageSum struct {
	steps  []time.Time
	groups []*usageGroup
	total  usageGroup
	Since  time.Time // start of the complete data, or zero if all is complete
}

func groupID(u spend.Usage, group string) string {
	switch group {
	case "key":
		return u.KeyID
	case "project":
		return u.Project
	case "model":
		return u.Model
	case "provider":
		return u.Provider
	}
	return ""
}

func (req *request) readUsage(a usageFilter) (*usageSum, error) {
	bound := maxUnsortedRows
	if a.Group == "" || a.Group == "key" { // the order of the rollup
		bound = maxUsageRows
	}
	list, since, err := spend.RecentUsage(req.Context(), req.s.DB, a.UsageQuery, bound)
	if err != nil {
		return nil, err
	}
	sum := &usageSum{steps: a.Steps(), Since: since}
	sum.total.steps = map[int]spend.Usage{}
	at := make(map[int64]int, len(sum.steps))
	for i, step := range sum.steps {
		at[step.Unix()] = i
	}
	groups := map[string]*usageGroup{}
	for _, u := range list {
		i, ok := at[u.Start.Unix()]
		if !ok {
			continue // a bucket that has started since
		}
		id := groupID(u, a.Group)
		g := groups[id]
		if g == nil {
			g = &usageGroup{ID: id, steps: map[int]spend.Usage{}}
			groups[id] = g
			sum.groups = append(sum.groups, g)
		}
		g.add(i, u)
		sum.total.add(i, u)
	}
	slices.SortFunc(sum.groups, func(x, y *usageGroup) int {
		return cmp.Or(cmp.Compare(a.Metric.of(y.Usage), a.Metric.of(x.Usage)), cmp.Compare(y.Requests, x.Requests), strings.Compare(x.ID, y.ID))
	})
	return sum, nil
}

func (req *request) nameGroups(group string, list []*usageGroup) error {
	var names map[string]string
	if group == "key" {
		var err error
		if names, err = req.keyNames(web.Map(list, func(g *usageGroup) string { return g.ID })); err != nil {
			return err
		}
	}
	for _, g := range list {
		g.Name = g.ID
		switch {
		case g.ID == "":
			g.Name = "no " + group
		case group == "key" && names[g.ID] != "":
			g.Name, g.Link = names[g.ID], req.to("keys/"+g.ID)
		case group == "project":
			g.Link = req.to("projects/" + url.PathEscape(g.ID))
		case group == "model":
			g.Link = req.to("requests?model=" + url.QueryEscape(g.ID))
		}
	}
	return nil
}

// barSizes are how many buckets may be one bar.
var barSizes = map[spend.Bucket][]int{
	spend.ByMinute: {1, 2, 5, 10, 15, 30, 60}, spend.ByHour: {1, 2, 3, 4, 6, 12, 24}, spend.ByDay: {1, 2, 7, 14}, spend.ByMonth: {1, 2, 3, 6}}

// barSize returns how many buckets are one bar.
func barSize(b spend.Bucket, steps, series int) int {
	most := min(maxBars, maxParts/max(1, series))
	sizes := barSizes[b]
	for _, n := range sizes {
		if (steps+n-1)/n <= most {
			return n
		}
	}
	return sizes[len(sizes)-1]
}

// bars merges buckets.
func (g *usageGroup) bars(steps, size int) []spend.Usage {
	out := make([]spend.Usage, (steps+size-1)/size)
	for i, u := range g.steps {
		out[i/size].Add(u)
	}
	return out
}

var stepLayouts = map[spend.Bucket]string{spend.ByMinute: "15:04", spend.ByHour: "2 Jan 15:00", spend.ByDay: "2 Jan", spend.ByMonth: "Jan 2006"}

type usageBar struct {
	Name  string
	Parts []string // by series
	spend.Usage
}

// rangeLink is a link to a range, with the other parameters unchanged.
type rangeLink struct {
	usageRange
	URL string
}

func (req *request) rangeLinks() []rangeLink {
	var out []rangeLink
	for _, r := range usageRanges {
		q := req.R.URL.Query()
		for _, name := range []string{"start", "end", "bucket"} { // which may not fit the range
			q.Del(name)
		}
		q.Set("range", r.Name)
		out = append(out, rangeLink{r, req.R.URL.Path + "?" + q.Encode()})
	}
	return out
}

type usageData struct {
	Metrics []usageMetric
	Ranges  []rangeLink
	Buckets []spend.Bucket
	Groups  []string
	Ask     usageFilter
	Chosen  spend.Bucket // selected, or empty
	From    time.Time    // start of the first bucket
	Since   time.Time    // start of the complete data, or zero if all is complete

	Chart   *chart
	BarSize int
	Series  []string
	Bars    []usageBar // newest first
	Rows    []*usageGroup
	Others  int // that aren't in the table
	Other   spend.Usage
	Total   spend.Usage
	Export  string
}

func usagePage(req *request) (*view, error) {
	a, wrong := req.usageFilter()
	d := usageData{Metrics: usageMetrics(req.env), Ranges: req.rangeLinks(), Buckets: spend.Buckets, Groups: spend.Dimensions, Ask: a, Chosen: spend.Bucket(req.query("bucket")),
		Export: req.to("usage/export.csv") + req.queryString(usageParams)}
	shown := &view{template: "usage", title: "Usage", data: &d}
	if wrong != nil {
		return req.withFilterError(shown, wrong)
	}
	sum, err := req.readUsage(a)
	if err != nil {
		return nil, err
	}
	d.From, d.Since, d.Total = sum.steps[0], sum.Since, sum.total.Usage
	if a.Group != "" {
		d.Rows = sum.groups[:min(len(sum.groups), groupsShown)]
		for _, g := range sum.groups[len(d.Rows):] {
			d.Others++
			d.Other.Add(g.Usage)
		}
		if err := req.nameGroups(a.Group, d.Rows); err != nil {
			return nil, err
		}
	}
	d.draw(sum)
	return shown, nil
}

// draw adds the chart, and the table with the same values.
func (d *usageData) draw(sum *usageSum) {
	parts := sum.parts(d.Ask.Group != "")
	d.BarSize = barSize(d.Ask.Bucket, len(sum.steps), len(parts))
	var slots []string
	for some := range slices.Chunk(sum.steps, d.BarSize) {
		slots = append(slots, some[0].Format(stepLayouts[d.Ask.Bucket]))
	}
	totals := sum.total.bars(len(sum.steps), d.BarSize)
	d.Bars = make([]usageBar, len(slots))
	for i, slot := range slots {
		d.Bars[i] = usageBar{Name: slot, Usage: totals[i]}
	}
	series := make([]chartSeries, len(parts))
	for n, p := range parts {
		series[n] = chartSeries{Name: clip(p.Name, 40).Text}
		if d.Ask.Group != "" {
			d.Series = append(d.Series, series[n].Name)
		}
		for i, u := range p.bars(len(sum.steps), d.BarSize) {
			series[n].Values = append(series[n].Values, d.Ask.Metric.of(u))
			d.Bars[i].Parts = append(d.Bars[i].Parts, d.Metric(u))
		}
	}
	slices.Reverse(d.Bars)
	d.Chart = newChart(d.Ask.Metric.Title+" by "+string(d.Ask.Bucket), slots, series, shortNumber)
}

// parts returns the series of the chart: the total, or the largest groups and the rest.
func (s *usageSum) parts(grouped bool) []*usageGroup {
	if !grouped {
		return []*usageGroup{&s.total}
	}
	if len(s.groups) <= maxSeries {
		return s.groups
	}
	other := &usageGroup{Name: "other", steps: map[int]spend.Usage{}}
	for _, g := range s.groups[topGroups:] {
		for i, u := range g.steps {
			other.add(i, u)
		}
	}
	return append(slices.Clone(s.groups[:topGroups]), other)
}

// Metric formats the selected metric of some usage.
func (d *usageData) Metric(u spend.Usage) string {
	if value := d.Ask.Metric.of(u); !strings.HasSuffix(d.Ask.Metric.Name, "credits") {
		return showCount(int64(value))
	}
	return showCredits(costOf(d.Ask.Environment, u))
}

// usagePart is how many rows are sent at a time.
const usagePart = 1000

// exportUsage sends the usage of the page as a file, with a row for each bucket and
// group with usage. Unlike the page it omits nothing.
func exportUsage(req *request) (*view, error) {
	a, err := req.usageFilter()
	if err != nil {
		return nil, err
	}
	list, err := spend.ReadUsage(req.Context(), req.s.DB, a.UsageQuery)
	if err != nil {
		return nil, err
	}
	var names map[string]string
	if a.Group == "key" {
		if names, err = req.keyNames(web.Map(list, func(u spend.Usage) string { return u.KeyID })); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write(usageHeader(a.Group)) // into memory: cannot fail
	for some := range slices.Chunk(list, usagePart) {
		for _, u := range some {
			_ = w.Write(audit.SafeCells(usageCells(a.Group, u, names)))
		}
		w.Flush()
		req.sendCSV("usage.csv", out.Bytes())
		out.Reset()
	}
	w.Flush()
	req.sendCSV("usage.csv", out.Bytes())
	return nil, nil
}

func usageHeader(group string) []string {
	header := []string{"start"}
	switch group {
	case "":
	case "key":
		header = append(header, "key_id", "key_name")
	default:
		header = append(header, group)
	}
	return append(header, "requests", "errors", "input_tokens", "output_tokens", "cached_tokens", "credits", "simulated_credits")
}

func usageCells(group string, u spend.Usage, names map[string]string) []string {
	row := []string{u.Start.Format(time.RFC3339)}
	switch group {
	case "":
	case "key":
		row = append(row, u.KeyID, cmp.Or(names[u.KeyID], u.KeyID))
	default:
		row = append(row, groupID(u, group))
	}
	for _, n := range []int64{u.Requests, u.Errors, u.InputTokens, u.OutputTokens, u.CachedTokens} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	return append(row, u.Credits.String(), u.SimulatedCredits.String())
}
