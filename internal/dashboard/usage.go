package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

const (
	// usageBound is how many rows of the rollup a page looks at, so that it is
	// there in a tenth of a second: SQLite adds up a million a second where
	// they lie in order, and a third of that where they do not. Where there are
	// more, the oldest are left out, and the page says so.
	usageBound         = 50_000
	usageBoundUnsorted = 20_000
	// topGroups have a colour of their own; the others share one.
	topGroups = maxSeries - 1
	// groupsShown are in the table. The file has all of them.
	groupsShown = 50
	// maxBars and maxParts bound the picture, and with it the page: a bar of
	// seven parts is about a kilobyte.
	maxBars  = 124
	maxParts = 62 * maxSeries
)

// usageMetric is what is counted.
type usageMetric struct {
	Name, Title string
	of          func(spend.Usage) float64
}

// usageMetrics are what can be counted: test calls are free, and what they would
// have cost is known.
func usageMetrics(env accounts.Environment) []usageMetric {
	list := []usageMetric{
		{"requests", "Requests", func(u spend.Usage) float64 { return float64(u.Requests) }},
		{"errors", "Errors", func(u spend.Usage) float64 { return float64(u.Errors) }},
		{"input_tokens", "Input tokens", func(u spend.Usage) float64 { return float64(u.InputTokens) }},
		{"output_tokens", "Output tokens", func(u spend.Usage) float64 { return float64(u.OutputTokens) }},
	}
	if env == accounts.Live {
		return append(list, usageMetric{"credits", "Credits", func(u spend.Usage) float64 { return u.Credits.Float() }})
	}
	return append(list, usageMetric{"simulated_credits", "Simulated credits", func(u spend.Usage) float64 { return u.SimulatedCredits.Float() }})
}

// usageRange is a stretch of time that ends now, or with a month.
type usageRange struct {
	Name, Title string
	bucket      spend.Bucket // that fits it
	from        func(now time.Time) time.Time
	to          func(now time.Time) time.Time // nil is now
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

// usualRange is what a newcomer sees.
const usualRange = "7d"

// usageAsk is what the address asks for.
type usageAsk struct {
	spend.UsageQuery
	Range  string // empty for days of the reader's own
	Metric usageMetric
	Group  string // of spend.Dimensions, or empty
	Notes  []string
}

// usageParams are what the address can say.
var usageParams = []string{"range", "start", "end", "metric", "group", "bucket"}

// usageAsked reads the address. What it does not say is what is usual. What is
// counted and how it is grouped is there with an error, too, for the filters.
func (v *visit) usageAsked() (a usageAsk, err error) {
	a.WorkspaceID, a.Environment, a.Group = v.workspace.ID, string(v.env), v.query("group")
	metrics := usageMetrics(v.env)
	a.Metric = metrics[0]
	if name := v.query("metric"); strings.HasSuffix(name, "credits") {
		a.Metric = metrics[len(metrics)-1] // an address that was copied from the other environment
	} else if i := slices.IndexFunc(metrics, func(m usageMetric) bool { return m.Name == name }); i >= 0 {
		a.Metric = metrics[i]
	}
	if err := v.readUsageTime(&a); err != nil {
		return a, err
	}
	if b := spend.Bucket(v.query("bucket")); slices.Contains(spend.Buckets, b) {
		a.Bucket = b
	} else if b != "" {
		return a, fault.Invalid("bucket", "usage is shown by minute, hour, day or month")
	}
	if a.Group != "" {
		if !slices.Contains(spend.Dimensions, a.Group) {
			return a, fault.Invalid("group", "usage is grouped by %s", strings.Join(spend.Dimensions, ", "))
		}
		a.GroupBy = []string{a.Group}
	}
	a.fit(v.now())
	return a, nil
}

// readUsageTime reads days, of which the last one counts, or a range by name.
func (v *visit) readUsageTime(a *usageAsk) error {
	now := v.now().UTC()
	start, end := v.query("start"), v.query("end")
	if start == "" && end == "" {
		i := slices.IndexFunc(usageRanges, func(r usageRange) bool { return r.Name == v.query("range") })
		if i < 0 {
			i = slices.IndexFunc(usageRanges, func(r usageRange) bool { return r.Name == usualRange })
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
			return fault.Invalid("end", "a day is written as 2006-01-31")
		}
		a.End = a.End.AddDate(0, 0, 1)
		a.Start = a.End.AddDate(0, 0, -30)
	}
	if start != "" {
		if a.Start, err = time.Parse(time.DateOnly, start); err != nil {
			return fault.Invalid("start", "a day is written as 2006-01-31")
		}
	}
	if !a.Start.Before(a.End) {
		return fault.Invalid("start", "the first day must not be after the last")
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

// fit shortens the time to what the bucket allows, and says so.
func (a *usageAsk) fit(now time.Time) {
	if most := a.Bucket.Longest(); a.End.Sub(a.Start) > most {
		a.Start = a.End.Add(-most)
		a.Notes = append(a.Notes, fmt.Sprintf("By %s, at most %s are shown at once: these are the last of them.", a.Bucket, countdown(most)))
	}
	if a.Bucket == spend.ByMinute && a.Start.Before(now.Add(-spend.MinutesKept)) {
		a.Notes = append(a.Notes, "Usage by the minute is kept for 7 days; what is older is known by the hour.")
	}
}

// usageGroup is what the calls of one key, project, model or provider came to.
type usageGroup struct {
	ID   string
	Name string
	Link string // of its page, or empty
	spend.Usage
	steps map[int]spend.Usage // by bucket; most groups are in few of them
}

func (g *usageGroup) add(step int, u spend.Usage) {
	g.Add(u)
	sum := g.steps[step]
	sum.Add(u)
	g.steps[step] = sum
}

// usageSum is the answer: groups with the largest first.
type usageSum struct {
	steps  []time.Time
	groups []*usageGroup
	total  usageGroup
	Since  time.Time // of what is whole, or zero when all is
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

func (v *visit) readUsage(a usageAsk) (*usageSum, error) {
	bound := usageBoundUnsorted
	if a.Group == "" || a.Group == "key" { // which is how the rollup is ordered
		bound = usageBound
	}
	list, since, err := spend.RecentUsage(v.ctx(), v.s.DB, a.UsageQuery, bound)
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
		i, known := at[u.Start.Unix()]
		if !known {
			continue // of a bucket that has begun since
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

// nameGroups says what groups are called, and where more is to be seen.
func (v *visit) nameGroups(group string, list []*usageGroup) error {
	var names map[string]string
	if group == "key" {
		wanted := make([]string, len(list))
		for i, g := range list {
			wanted[i] = g.ID
		}
		var err error
		if names, err = v.keyNames(wanted); err != nil {
			return err
		}
	}
	for _, g := range list {
		g.Name = g.ID
		switch {
		case g.ID == "":
			g.Name = "no " + group
		case group == "key" && names[g.ID] != "":
			g.Name, g.Link = names[g.ID], v.to("keys/"+g.ID)
		case group == "project":
			g.Link = v.to("projects/" + url.PathEscape(g.ID))
		case group == "model":
			g.Link = v.to("requests?model=" + url.QueryEscape(g.ID))
		}
	}
	return nil
}

// together is how many buckets may be one bar, by what people count in.
var together = map[spend.Bucket][]int{
	spend.ByMinute: {1, 2, 5, 10, 15, 30, 60}, spend.ByHour: {1, 2, 3, 4, 6, 12, 24}, spend.ByDay: {1, 2, 7, 14}, spend.ByMonth: {1, 2, 3, 6}}

// barSize is how many buckets are one bar, so that the picture stays small.
func barSize(b spend.Bucket, steps, series int) int {
	most := min(maxBars, maxParts/max(1, series))
	sizes := together[b]
	for _, n := range sizes {
		if (steps+n-1)/n <= most {
			return n
		}
	}
	return sizes[len(sizes)-1]
}

// bars puts buckets together.
func (g *usageGroup) bars(steps, size int) []spend.Usage {
	out := make([]spend.Usage, (steps+size-1)/size)
	for i, u := range g.steps {
		out[i/size].Add(u)
	}
	return out
}

var stepLayouts = map[spend.Bucket]string{spend.ByMinute: "15:04", spend.ByHour: "2 Jan 15:00", spend.ByDay: "2 Jan", spend.ByMonth: "Jan 2006"}

// usageBar is a row of the table of times.
type usageBar struct {
	Name  string
	Parts []string // by series
	spend.Usage
}

// rangeLink leads to a range by name, with everything else as it is.
type rangeLink struct {
	usageRange
	URL string
}

func (v *visit) rangeLinks() []rangeLink {
	var out []rangeLink
	for _, r := range usageRanges {
		q := v.r.URL.Query()
		for _, name := range []string{"start", "end", "bucket"} { // which may not fit it
			q.Del(name)
		}
		q.Set("range", r.Name)
		out = append(out, rangeLink{r, v.r.URL.Path + "?" + q.Encode()})
	}
	return out
}

type usageData struct {
	Metrics []usageMetric
	Ranges  []rangeLink
	Buckets []spend.Bucket
	Groups  []string
	Ask     usageAsk
	Chosen  spend.Bucket // by the reader, or empty
	From    time.Time    // where the first bucket begins
	Since   time.Time    // of what is whole, or zero when all is

	Chart   *chart
	BarSize int
	Series  []string
	Bars    []usageBar // the newest first
	Rows    []*usageGroup
	Others  int // that are not in the table by name
	Other   spend.Usage
	Total   spend.Usage
	Export  string
}

func usagePage(v *visit) (*view, error) {
	a, wrong := v.usageAsked()
	d := usageData{Metrics: usageMetrics(v.env), Ranges: v.rangeLinks(), Buckets: spend.Buckets, Groups: spend.Dimensions, Ask: a, Chosen: spend.Bucket(v.query("bucket")),
		Export: v.to("usage/export.csv") + v.kept(usageParams)}
	shown := &view{template: "usage", title: "Usage", data: &d}
	if wrong != nil {
		return v.misread(shown, wrong)
	}
	sum, err := v.readUsage(a)
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
		if err := v.nameGroups(a.Group, d.Rows); err != nil {
			return nil, err
		}
	}
	d.draw(sum)
	return shown, nil
}

// draw makes the picture, and the table that says the same.
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

// parts are the series of the picture: everything, or the largest groups and
// what is left.
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

// Metric writes what is counted of some usage.
func (d *usageData) Metric(u spend.Usage) string {
	switch d.Ask.Metric.Name {
	case "errors":
		return showCount(u.Errors)
	case "input_tokens":
		return showCount(u.InputTokens)
	case "output_tokens":
		return showCount(u.OutputTokens)
	case "credits":
		return showCredits(u.Credits)
	case "simulated_credits":
		return showCredits(u.SimulatedCredits)
	}
	return showCount(u.Requests)
}
