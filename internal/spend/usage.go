package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// Usage is the usage of one group of requests in a time bucket.
type Usage struct {
	Start            time.Time
	KeyID            string
	Project          string
	Model            string
	Provider         string
	Requests         int64
	Errors           int64
	InputTokens      int64
	OutputTokens     int64
	CachedTokens     int64 // the part of InputTokens that providers read from their caches
	Credits          credits.Micro
	SimulatedCredits credits.Micro
	Latencies        Latencies // of successful requests, if the query asks for them
}

// usageConflict returns the clause that adds to an existing row.
func usageConflict(table string) string {
	latencies := latencyColumns("%[1]s = CASE WHEN excluded.%[1]s IS NULL THEN " + table + ".%[1]s ELSE COALESCE(" + table + ".%[1]s, 0) + excluded.%[1]s END")
	return usageConflictOn(table, "key_id, project, model, provider") + ", " + strings.Join(latencies, ", ")
}

// usageConflictOn is usageConflict for a table with other dimensions.
func usageConflictOn(table, dimensions string) string {
	var set []string
	for _, column := range []string{"requests", "errors", "input_tokens", "output_tokens", "cached_tokens", "credits", "simulated_credits"} {
		set = append(set, column+" = "+saturatingSum(table, column))
	}
	return "ON CONFLICT (workspace_id, environment, start, " + dimensions + ") DO UPDATE SET " + strings.Join(set, ", ")
}

var usageColumns = []string{"workspace_id text", "environment text", "start bigint", "key_id text", "project text", "model text", "provider text",
	"requests bigint", "errors bigint", "input_tokens bigint", "output_tokens bigint", "cached_tokens bigint", "credits bigint", "simulated_credits bigint"}

// rollup is a table of usage with a fixed time step.
type rollup struct {
	table string
	step  time.Duration
	add   *db.Bulk
}

func newRollup(table string, step time.Duration) rollup {
	return rollup{table, step, db.NewBulk(table, usageConflict(table), slices.Concat(usageColumns, latencyColumns("%s bigint"))...)}
}

var (
	minutes = newRollup("usage_minutes", time.Minute)
	hours   = newRollup("usage_hours", time.Hour)
	days    = newRollup("usage_days", 24*time.Hour)
)

// rollup returns the coarsest table that the bucket can be computed from.
func (b Bucket) rollup() rollup {
	switch b {
	case ByMinute:
		return minutes
	case ByHour:
		return hours
	}
	return days
}

type usageKey struct {
	accounts.Tenant
	Key      string `json:",omitempty"`
	Project  string `json:",omitempty"`
	Model    string `json:",omitempty"`
	Provider string `json:",omitempty"`
	Start    int64
}

func (a usageKey) compare(b usageKey) int {
	return cmp.Or(strings.Compare(a.WorkspaceID, b.WorkspaceID), cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.Start, b.Start),
		strings.Compare(a.Key, b.Key), strings.Compare(a.Project, b.Project), strings.Compare(a.Model, b.Model), strings.Compare(a.Provider, b.Provider))
}

type usageSums struct {
	Requests  int64 `json:",omitempty"`
	Errors    int64 `json:",omitempty"`
	Input     int64 `json:",omitempty"`
	Output    int64 `json:",omitempty"`
	Cached    int64 `json:",omitempty"`
	Credits   int64 `json:",omitempty"`
	Simulated int64 `json:",omitempty"`

	Latencies Latencies `json:",omitzero"` // only of models
}

// sumsOf returns the usage of one entry.
func sumsOf(e *audit.Entry) usageSums {
	s := usageSums{Requests: 1, Credits: sum(0, int64(e.Credits)), Simulated: sum(0, int64(e.SimulatedCredits))}
	if e.Status >= 400 {
		s.Errors = 1
	} else if e.Latency > 0 {
		s.Latencies = latenciesOf(e.Latency)
	}
	count := func(to *int64, n *int64) {
		if n != nil {
			*to = sum(0, *n)
		}
	}
	count(&s.Input, e.InputTokens)
	count(&s.Output, e.OutputTokens)
	count(&s.Cached, e.CachedTokens)
	return s
}

func (s *usageSums) add(o usageSums) {
	s.Requests, s.Errors = sum(s.Requests, o.Requests), sum(s.Errors, o.Errors)
	s.Input, s.Output, s.Cached = sum(s.Input, o.Input), sum(s.Output, o.Output), sum(s.Cached, o.Cached)
	s.Credits, s.Simulated = sum(s.Credits, o.Credits), sum(s.Simulated, o.Simulated)
	s.Latencies.add(o.Latencies, 1)
}

func (s usageSums) negative() usageSums {
	n := usageSums{Requests: -s.Requests, Errors: -s.Errors, Input: -s.Input, Output: -s.Output, Cached: -s.Cached, Credits: -s.Credits, Simulated: -s.Simulated}
	n.Latencies.add(s.Latencies, -1)
	return n
}

func (s *usageSums) columns() []any {
	return []any{s.Requests, s.Errors, s.Input, s.Output, s.Cached, s.Credits, s.Simulated}
}

// usageMap is usage by a key.
type usageMap[K comparable] map[K]*usageSums

// at returns the sums of a key, to add to them.
func (m usageMap[K]) at(key K) *usageSums {
	s := m[key]
	if s == nil {
		s = &usageSums{}
		m[key] = s
	}
	return s
}

// usageTotals is the usage of a number of entries.
type usageTotals struct {
	models usageMap[usageKey] // by the minute
	users  usageMap[userKey]  // by the day
}

// modelUsage and userUsage are stored in the journal.
type modelUsage struct {
	usageKey
	usageSums
}

type userUsage struct {
	userKey
	usageSums
}

func newUsageTotals() usageTotals {
	return usageTotals{usageMap[usageKey]{}, usageMap[userKey]{}}
}

func (t usageTotals) isEmpty() bool { return len(t.models) == 0 && len(t.users) == 0 }

// count adds an entry in place of its earlier settlement. Only model requests count.
func (t usageTotals) count(b audit.Settlement) {
	if b.Entry.Model == "" {
		return
	}
	t.add(b.Entry, sumsOf(b.Entry))
	if b.Previous != nil {
		t.add(b.Previous, sumsOf(b.Previous).negative())
	}
}

func (t usageTotals) add(e *audit.Entry, sums usageSums) {
	t.models.at(usageKey{Tenant: e.Tenant, Key: e.KeyID, Project: e.Project, Model: e.Model, Provider: e.Provider,
		Start: e.CreatedAt.Truncate(minutes.step).Unix()}).add(sums)
	if e.EndUser != "" {
		sums.Latencies = Latencies{}
		t.users.at(userKey{e.Tenant, e.CreatedAt.Truncate(userStep).Unix(), e.EndUser}).add(sums)
	}
}

// write adds the totals to the rollups.
func (t usageTotals) write(ctx context.Context, tx *db.Tx) error {
	for _, r := range []rollup{minutes, hours, days} {
		if err := r.write(ctx, tx, t.models); err != nil {
			return err
		}
	}
	return t.writeUsers(ctx, tx)
}

// write adds usage by the minute to the rollup, in the order in which all transactions lock rows.
func (r rollup) write(ctx context.Context, tx *db.Tx, byMinute usageMap[usageKey]) error {
	sums := byMinute
	if r.step > minutes.step {
		sums = usageMap[usageKey]{}
		for k, s := range byMinute {
			k.Start -= k.Start % int64(r.step/time.Second)
			sums.at(k).add(*s)
		}
	}
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(sums), usageKey.compare) {
		if s := sums[k]; *s != (usageSums{}) {
			rows = append(rows, append([]any{k.WorkspaceID, string(k.Environment), k.Start, k.Key, k.Project, k.Model, k.Provider}, slices.Concat(s.columns(), s.Latencies.columns())...))
		}
	}
	err := r.add.Send(ctx, tx, rows, nil)
	return db.Wrap(err, "add usage")
}

// Bucket is the time step of a usage query.
type Bucket string

// The time steps.
const (
	ByMinute Bucket = "minute"
	ByHour   Bucket = "hour"
	ByDay    Bucket = "day"
	ByMonth  Bucket = "month"
)

// Buckets lists all buckets.
var Buckets = []Bucket{ByMinute, ByHour, ByDay, ByMonth}

// Longest returns the longest time that one response may cover.
func (b Bucket) Longest() time.Duration {
	const day = 24 * time.Hour
	switch b {
	case ByMinute:
		return day
	case ByHour:
		return 31 * day
	case ByDay:
		return 400 * day
	}
	return 10 * 366 * day
}

// MinutesKept is how long usage by the minute is retained.
const MinutesKept = 7 * 24 * time.Hour

// Dimensions are the names that usage can be grouped by.
var Dimensions = []string{"key", "project", "model", "provider"}

var dimensionColumns = map[string]string{"key": "key_id", "project": "project", "model": "model", "provider": "provider"}

// UsageQuery selects usage of a tenant.
type UsageQuery struct {
	accounts.Tenant
	Start, End time.Time
	Bucket     Bucket
	GroupBy    []string // a subset of Dimensions
	KeyID      string   // only this key; empty for all
	Project    string   // only this project; empty for all
	Most       int      // more rows fail with ErrTooMuchUsage; 0 for no limit
	Latencies  bool     // reads Usage.Latencies

	from time.Time // excludes earlier usage, however wide a bucket is
}

// floor returns the start of the bucket that contains the time.
func (b Bucket) floor(t time.Time) time.Time {
	if t = t.UTC(); b == ByMonth {
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	return t.Truncate(b.rollup().step)
}

// ceil returns the end of the bucket that contains the time, or the time itself
// if a bucket ends there.
func (b Bucket) ceil(t time.Time) time.Time {
	start := b.floor(t)
	switch {
	case start.Equal(t):
		return start
	case b == ByMonth:
		return start.AddDate(0, 1, 0)
	}
	return start.Add(b.rollup().step)
}

// usageSum sums the columns. The casts are for PostgreSQL, whose sums of
// bigints have another type.
const usageSum = `CAST(sum(requests) AS BIGINT), CAST(sum(errors) AS BIGINT), CAST(sum(input_tokens) AS BIGINT),
	CAST(sum(output_tokens) AS BIGINT), CAST(sum(cached_tokens) AS BIGINT), CAST(sum(credits) AS BIGINT), CAST(sum(simulated_credits) AS BIGINT)`

// ErrTooMuchUsage is returned if a query matches more rows than it may return.
var ErrTooMuchUsage = errors.New("there are more rows of usage than were asked for")

// ReadUsage returns usage ordered by bucket and group. Start and End are
// widened to whole buckets.
func ReadUsage(ctx context.Context, q db.Querier, u UsageQuery) ([]Usage, error) {
	table := u.Bucket.rollup()
	// Select only the grouped columns, in the order of the table's key. Then
	// groups are adjacent and need no sorting.
	columns, groups := make([]string, len(Dimensions)), []string{"start"}
	for i, d := range Dimensions {
		columns[i] = "''"
		if slices.Contains(u.GroupBy, d) {
			columns[i] = dimensionColumns[d]
			groups = append(groups, columns[i])
		}
	}
	// Sum months and sort here, because the two databases compute dates and
	// compare strings differently.
	where, args := u.where(table)
	sums := usageSum
	if u.Latencies {
		sums += latencySum
	}
	rows, err := q.Query(ctx, `SELECT start, `+strings.Join(columns, ", ")+`, `+sums+`
		FROM `+table.table+` WHERE `+where+` GROUP BY `+strings.Join(groups, ", ")+u.limit(), args...)
	at := map[usageKey]int{}
	var out []Usage
	err = db.Each(rows, err, func(r db.Row) error {
		var start int64
		var x Usage
		to := append([]any{&start, &x.KeyID, &x.Project, &x.Model, &x.Provider}, x.sums()...)
		for i := range x.Latencies {
			if u.Latencies {
				to = append(to, &x.Latencies[i])
			}
		}
		if err := r.Scan(to...); err != nil {
			return err
		}
		x.Start = u.Bucket.floor(time.Unix(start, 0))
		k := usageKey{Start: x.Start.Unix(), Key: x.KeyID, Project: x.Project, Model: x.Model, Provider: x.Provider}
		i, known := at[k]
		if !known {
			if u.Most > 0 && len(out) == u.Most {
				return ErrTooMuchUsage
			}
			at[k] = len(out)
			out = append(out, x)
			return nil
		}
		out[i].Add(x)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	slices.SortFunc(out, func(a, b Usage) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.KeyID, b.KeyID), strings.Compare(a.Project, b.Project),
			strings.Compare(a.Model, b.Model), strings.Compare(a.Provider, b.Provider))
	})
	return out, nil
}

// limit returns one row more than allowed, to detect an excess without reading
// everything.
func (u UsageQuery) limit() string {
	switch {
	case u.Most == 0:
		return ""
	case u.Bucket == ByMonth: // summed from its days
		return fmt.Sprintf(" LIMIT %d", 31*u.Most+1)
	}
	return fmt.Sprintf(" LIMIT %d", u.Most+1)
}

// maxStarts is how many time steps a statement lists: a month of hours, plus
// the rest of a day at both ends.
const maxStarts = 33 * 24

// where selects the rows. In the index a key's rows are spread over all time
// steps. Listing the steps finds them without scanning other keys.
func (u UsageQuery) where(table rollup) (string, []any) {
	start, end := u.Bucket.floor(u.Start), u.Bucket.ceil(u.End)
	if start.Before(u.from) {
		start = u.from
	}
	where, args := "workspace_id = $1 AND environment = $2", []any{u.WorkspaceID, u.Environment}
	add := func(value any) string {
		args = append(args, value)
		return "$" + strconv.Itoa(len(args))
	}
	if n := int(end.Sub(start) / table.step); u.KeyID != "" && n > 0 && n <= maxStarts {
		places := make([]string, n)
		for i := range places {
			places[i] = add(start.Add(time.Duration(i) * table.step).Unix())
		}
		where += " AND start IN (" + strings.Join(places, ", ") + ")"
	} else {
		where += " AND start >= " + add(start.Unix()) + " AND start < " + add(end.Unix())
	}
	if u.KeyID != "" {
		where += " AND key_id = " + add(u.KeyID)
	}
	if u.Project != "" {
		where += " AND project = " + add(u.Project)
	}
	return where, args
}

// PurgeUsage deletes usage by the minute past its retention.
func PurgeUsage(ctx context.Context, tx *db.Tx, before time.Time, n int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM usage_minutes WHERE (workspace_id, environment, start, key_id, project, model, provider) IN
		(SELECT workspace_id, environment, start, key_id, project, model, provider FROM usage_minutes WHERE start < $1 ORDER BY start LIMIT $2)`, before.Unix(), n)
}

// RecentUsage is ReadUsage with limited latency: see Bound.
func RecentUsage(ctx context.Context, q db.Querier, u UsageQuery, bound int) (list []Usage, since time.Time, err error) {
	if since, err = u.Bound(ctx, q, bound); err != nil {
		return nil, time.Time{}, err
	}
	list, err = ReadUsage(ctx, q, u)
	return list, since, err
}

// Bound limits the query to the newest rows of the rollup, up to the bound, but to at least one
// whole step. If older usage is left out, it returns since when usage is complete, otherwise zero.
func (u *UsageQuery) Bound(ctx context.Context, q db.Querier, bound int) (since time.Time, err error) {
	table := u.Bucket.rollup()
	where, args := u.where(table)
	// startOf returns the time step of the row after a number of newer ones.
	startOf := func(newer int) (t time.Time, err error) {
		var start int64
		err = q.QueryRow(ctx, fmt.Sprintf("SELECT start FROM %s WHERE %s ORDER BY start DESC LIMIT 1 OFFSET %d", table.table, where, newer), args...).Scan(&start)
		return time.Unix(start, 0).UTC(), err
	}
	edge, err := startOf(bound)
	if errors.Is(err, db.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read usage: %w", err)
	}
	newest, err := startOf(0)
	if err != nil {
		return time.Time{}, fmt.Errorf("read usage: %w", err)
	}
	// The oldest step is incomplete, so it is omitted unless it is the only
	// one.
	if since = edge.Add(table.step); since.After(newest) {
		since = newest
	}
	u.from = since
	return since, nil
}

// TopUsage returns the groups with the most requests in the whole range, the largest first. The query has
// one dimension.
func TopUsage(ctx context.Context, q db.Querier, u UsageQuery, n int) ([]Usage, error) {
	table := u.Bucket.rollup()
	column := dimensionColumns[u.GroupBy[0]]
	where, args := u.where(table)
	rows, err := q.Query(ctx, fmt.Sprintf(`SELECT %[1]s, %[2]s FROM %[3]s WHERE %[4]s GROUP BY %[1]s ORDER BY 2 DESC, 1 LIMIT %[5]d`, column, usageSum, table.table, where, n), args...)
	out, err := db.All(rows, err, func(r db.Row) (x Usage, err error) {
		to := map[string]*string{"key": &x.KeyID, "project": &x.Project, "model": &x.Model, "provider": &x.Provider}[u.GroupBy[0]]
		err = r.Scan(append([]any{to}, x.sums()...)...)
		return x, err
	})
	return out, db.Wrap(err, "read top usage")
}

// Steps returns the starts of the buckets that a query covers.
func (u UsageQuery) Steps() []time.Time {
	var out []time.Time
	for t := u.Bucket.floor(u.Start); t.Before(u.End); t = u.Bucket.ceil(t.Add(1)) {
		out = append(out, t)
	}
	return out
}

// CachedShare returns the part of the input that providers read from their caches, in percent.
func (x Usage) CachedShare() string {
	if x.InputTokens <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(x.CachedTokens)/float64(x.InputTokens), 'f', 0, 64) + "%"
}

// Add adds the usage of other requests.
func (x *Usage) Add(more Usage) {
	x.Requests += more.Requests
	x.Errors += more.Errors
	x.InputTokens += more.InputTokens
	x.OutputTokens += more.OutputTokens
	x.CachedTokens += more.CachedTokens
	x.Credits += more.Credits
	x.SimulatedCredits += more.SimulatedCredits
	x.Latencies.add(more.Latencies, 1)
}
