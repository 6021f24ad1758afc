package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/logsearch"
	"turnpike/internal/spend"
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

// usageGroup is the usage of one key, project, model or provider, or of a pair of them.
type usageGroup struct {
	ID   string
	Then string // the ID in the second dimension
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
	if a.Latencies { // which are as many columns again
		bound /= 2
	}
	list, since, err := spend.RecentUsage(req.Context(), req.usage(), a.UsageQuery, bound)
	if err != nil {
		return nil, err
	}
	sum := &usageSum{steps: a.Steps(), Since: since}
	sum.total.steps = map[int]spend.Usage{}
	at := make(map[int64]int, len(sum.steps))
	for i, step := range sum.steps {
		at[step.Unix()] = i
	}
	groups := map[[2]string]*usageGroup{}
	for _, u := range list {
		i, ok := at[u.Start.Unix()]
		if !ok {
			continue // a bucket that has started since
		}
		id := [2]string{groupID(u, a.Group), groupID(u, a.Then)}
		g := groups[id]
		if g == nil {
			g = &usageGroup{ID: id[0], Then: id[1], steps: map[int]spend.Usage{}}
			groups[id] = g
			sum.groups = append(sum.groups, g)
		}
		g.add(i, u)
		sum.total.add(i, u)
	}
	slices.SortFunc(sum.groups, func(x, y *usageGroup) int {
		return cmp.Or(cmp.Compare(a.Metric.of(y.Usage), a.Metric.of(x.Usage)), cmp.Compare(y.Requests, x.Requests), strings.Compare(x.ID, y.ID), strings.Compare(x.Then, y.Then))
	})
	return sum, nil
}

// nameGroups sets the names and links of groups.
func (req *request) nameGroups(a usageFilter, list []*usageGroup) error {
	var keys []string
	for _, g := range list {
		keys = append(keys, map[bool]string{true: g.ID, false: g.Then}[a.Group == "key"])
	}
	names := map[string]string{}
	if a.Group == "key" || a.Then == "key" {
		var err error
		if names, err = req.keyNames(keys); err != nil {
			return err
		}
	}
	name := func(dimension, id string) string {
		switch {
		case id == "":
			return "no " + dimension
		case dimension == "key":
			return cmp.Or(names[id], id)
		}
		return id
	}
	for _, g := range list {
		g.Name = name(a.Group, g.ID)
		if a.Then != "" {
			g.Name += " · " + name(a.Then, g.Then)
		}
		switch {
		case g.ID == "":
		case a.Group == "key" && names[g.ID] != "":
			g.Link = req.to("keys/" + g.ID)
		case a.Group == "project":
			g.Link = req.to("projects/" + url.PathEscape(g.ID))
		case a.Group == "provider", a.Group == "model":
			g.Link = req.requestsBetween(a, g, a.Start, a.End)
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

var stepLayouts = map[spend.Bucket]string{spend.ByMinute: "15:04", spend.ByHour: "Jan 2 15:00", spend.ByDay: "Jan 2", spend.ByMonth: "Jan 2006"}

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
	Budget  float64 // a line in the chart, or 0
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
		if err := req.nameGroups(a, d.Rows); err != nil {
			return nil, err
		}
	}
	if isMonth := a.Range == "month" || a.Range == "last_month"; a.Sum && a.Metric.Name == "credits" && isMonth {
		if d.Budget, err = req.monthlyCredits(); err != nil {
			return nil, err
		}
	}
	d.draw(req, sum)
	return shown, nil
}

// draw adds the chart, and the table with the same values.
func (d *usageData) draw(req *request, sum *usageSum) {
	metric := d.Ask.Metric
	parts := sum.parts(d.Ask.Group != "")
	d.BarSize = barSize(d.Ask.Bucket, len(sum.steps), len(parts))
	spec := chartSpec{Title: metric.Title + " by " + string(d.Ask.Bucket), Ratio: !metric.kind.additive(), Sparse: metric.kind == durations, Show: metric.axis, Exact: metric.exact, Budget: d.Budget}
	for i := 0; i < len(sum.steps); i += d.BarSize {
		start, end := sum.steps[i], d.Ask.End
		if i+d.BarSize < len(sum.steps) {
			end = sum.steps[i+d.BarSize]
		}
		spec.Slots = append(spec.Slots, start.Format(stepLayouts[d.Ask.Bucket]))
		if d.Ask.Bucket == spend.ByMinute || d.Ask.Bucket == spend.ByHour {
			spec.Times = append(spec.Times, start)
		}
		spec.Links = append(spec.Links, req.requestsBetween(d.Ask, nil, start, end))
	}
	totals := sum.total.bars(len(sum.steps), d.BarSize)
	d.Bars = make([]usageBar, len(spec.Slots))
	for i, slot := range spec.Slots {
		d.Bars[i] = usageBar{Name: slot, Usage: totals[i]}
		spec.Totals = append(spec.Totals, metric.of(totals[i]))
	}
	for _, p := range parts {
		s := chartSeries{Name: clip(p.Name, 40).Text}
		if p.ID != "" {
			s.Link, s.Term = req.requestsBetween(d.Ask, p, d.From, d.Ask.End), searchText(d.Ask.termsOf(p)...)
		}
		if d.Ask.Group != "" {
			d.Series = append(d.Series, s.Name)
		}
		sofar := 0.0
		for i, u := range p.bars(len(sum.steps), d.BarSize) {
			value := metric.of(u)
			d.Bars[i].Parts = append(d.Bars[i].Parts, d.Metric(u))
			if d.Ask.Sum {
				sofar += value
				value = sofar
			}
			s.Values = append(s.Values, value)
		}
		spec.Series = append(spec.Series, s)
	}
	slices.Reverse(d.Bars)
	d.Chart = newChart(spec)
}

// requestsBetween returns the URL of the requests that usage was added up from: those of a group, or all, and only the
// failed ones if the metric counts those.
func (req *request) requestsBetween(a usageFilter, g *usageGroup, start, end time.Time) string {
	terms := []string{"from", start.UTC().Format(timeLayout), "until", end.UTC().Format(timeLayout)}
	if a.KeyID != "" {
		terms = append(terms, "key", a.KeyID)
	}
	if a.Project != "" {
		terms = append(terms, "project", a.Project)
	}
	if g != nil {
		terms = append(terms, a.termsOf(g)...)
	}
	if a.Metric.countsFailures() {
		terms = append(terms, "status", logsearch.Failed)
	}
	return req.logLink(terms...)
}

// termsOf returns the fields of the log, each with its value, that select the requests of a group.
func (a usageFilter) termsOf(g *usageGroup) (terms []string) {
	if g.ID != "" {
		terms = append(terms, a.Group, g.ID)
	}
	if g.Then != "" {
		terms = append(terms, a.Then, g.Then)
	}
	return terms
}

// monthlyCredits returns the workspace's credits per month, or 0 if there is no limit or
// the person can't see it.
func (req *request) monthlyCredits() (float64, error) {
	if !req.principal.Grant.Allows(access.BillingRead) {
		return 0, nil
	}
	b, err := spend.ReadBilling(req.Context(), req.ledger(), req.workspace.ID, req.now())
	if err != nil || b.Workspace.MonthlyCredits == nil {
		return 0, err
	}
	return b.Workspace.MonthlyCredits.Float(), nil
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

// Credits returns the credits of some usage if the selected metric is an amount of credits, or nil.
func (d *usageData) Credits(u spend.Usage) *credits.Micro {
	if d.Ask.Metric.kind != amounts {
		return nil
	}
	cost := costOf(d.Ask.Environment, u)
	return &cost
}

// Metric formats the selected metric of some usage.
func (d *usageData) Metric(u spend.Usage) string {
	switch m := d.Ask.Metric; m.kind {
	case amounts:
		return showCredits(costOf(d.Ask.Environment, u))
	default:
		return m.exact(m.of(u))
	}
}

// ledger returns the database with the charges of requests that this node has just served.
func (req *request) ledger() db.Querier {
	req.s.Settler.CatchUp(req.Context())
	return req.s.DB
}

// usage is ledger for the rollups and the request log, which may come from the replica.
func (req *request) usage() db.Querier {
	req.s.Settler.CatchUp(req.Context())
	return req.history()
}

// history is where lists are read that grow with traffic: the replica, if there is
// one. The page after an action reads from the primary, so that it shows the
// result.
func (req *request) history() db.Querier {
	if req.flash.Notice != "" {
		return req.s.DB
	}
	return req.s.DB.Replica()
}
