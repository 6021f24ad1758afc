package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

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
