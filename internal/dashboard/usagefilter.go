package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type usageMetric struct {
	Name, Title string
	kind        metricKind
	of          func(spend.Usage) float64
}

// metricKind says how values of a metric are shown and whether they can be added up.
type metricKind int

const (
	counted   metricKind = iota // whole numbers
	amounts                     // credits
	percents                    // of something else
	durations                   // in milliseconds
)

// additive reports whether the values of groups and times can be added up.
func (k metricKind) additive() bool { return k == counted || k == amounts }

// usageMetrics returns the metrics of an environment. Test requests are free, but have
// simulated costs.
func usageMetrics(env accounts.Environment) []usageMetric {
	list := []usageMetric{
		{"requests", "Requests", counted, func(u spend.Usage) float64 { return float64(u.Requests) }},
		{"errors", "Errors", counted, func(u spend.Usage) float64 { return float64(u.Errors) }},
		{"error_rate", "Error rate", percents, func(u spend.Usage) float64 { return share(u.Errors, u.Requests) }},
		{"input_tokens", "Input tokens", counted, func(u spend.Usage) float64 { return float64(u.InputTokens) }},
		{"output_tokens", "Output tokens", counted, func(u spend.Usage) float64 { return float64(u.OutputTokens) }},
		{"cached_tokens", "Cached tokens", counted, func(u spend.Usage) float64 { return float64(u.CachedTokens) }},
		{"latency_p50", "Latency p50", durations, latencyQuantile(0.5)},
		{"latency_p95", "Latency p95", durations, latencyQuantile(0.95)},
		{"cached_share", "Cached share of input", percents, func(u spend.Usage) float64 { return share(u.CachedTokens, u.InputTokens) }},
	}
	if env == accounts.Live {
		return append(list, usageMetric{"credits", "Credits", amounts, func(u spend.Usage) float64 { return u.Credits.Float() }})
	}
	return append(list, usageMetric{"simulated_credits", "Simulated credits", amounts, func(u spend.Usage) float64 { return u.SimulatedCredits.Float() }})
}

// latencyQuantile returns the latency that a share of the successful requests doesn't exceed.
func latencyQuantile(share float64) func(spend.Usage) float64 {
	return func(u spend.Usage) float64 { return float64(u.Latencies.Quantile(share)) / float64(time.Millisecond) }
}

// share returns a part in percent.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// countsFailures reports whether the metric is about failed requests.
func (m usageMetric) countsFailures() bool { return m.Name == "errors" || m.Name == "error_rate" }

// axis formats a value of the metric for an axis.
func (m usageMetric) axis(v float64) string {
	switch {
	case m.kind == percents:
		return shortNumber(v) + "%"
	case m.kind == durations && v < 1000:
		return shortNumber(v) + " ms"
	case m.kind == durations:
		return shortNumber(v/1000) + " s"
	}
	return shortNumber(v)
}

// exact formats a value of the metric for a tooltip.
func (m usageMetric) exact(v float64) string {
	switch m.kind {
	case percents:
		return strconv.FormatFloat(v, 'f', 1, 64) + "%"
	case durations:
		return showDuration(time.Duration(v * float64(time.Millisecond)))
	case amounts:
		return web.GroupThousands(strconv.FormatFloat(v, 'f', 2, 64))
	}
	return showCount(int64(v))
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
	Then   string // the second dimension of the groups, or empty
	Sum    bool   // bars show the sum since the start of the range
	Notes  []string
}

var usageParams = []string{"range", "start", "end", "metric", "group", "then", "bucket", "sum"}

// usageFilter reads the query. If it returns an error, the metric and group are set
// nevertheless, for the filters.
func (req *request) usageFilter() (a usageFilter, err error) {
	a.Tenant, a.Group, a.Then = req.workspace.In(req.env), req.query("group"), req.query("then")
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
	a.Sum = req.query("sum") != "" && a.Metric.kind.additive()
	a.Latencies = a.Metric.kind == durations
	for name, dimension := range map[string]string{"group": a.Group, "then": a.Then} {
		if dimension != "" && !slices.Contains(spend.Dimensions, dimension) {
			return a, fault.Invalid(name, "Choose one of %s.", strings.Join(spend.Dimensions, ", "))
		}
	}
	if a.Group == "" || a.Then == a.Group {
		a.Then = ""
	}
	for _, dimension := range []string{a.Group, a.Then} {
		if dimension != "" {
			a.GroupBy = append(a.GroupBy, dimension)
		}
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
