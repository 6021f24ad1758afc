package spend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
)

// RecentUsage is ReadUsage with limited latency: it reads only the newest rows
// of the rollup, up to the bound, but at least one whole step. If older usage
// is missing, it returns since when usage is complete, otherwise zero.
func RecentUsage(ctx context.Context, q db.Querier, u UsageQuery, bound int) (list []Usage, since time.Time, err error) {
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
		list, err = ReadUsage(ctx, q, u)
		return list, time.Time{}, err
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read usage: %w", err)
	}
	newest, err := startOf(0)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read usage: %w", err)
	}
	// The oldest step is incomplete, so it is omitted unless it is the only
	// one.
	if since = edge.Add(table.step); since.After(newest) {
		since = newest
	}
	u.from = since
	list, err = ReadUsage(ctx, q, u)
	return list, since, err
}

// Steps returns the starts of the buckets that a query covers.
func (u UsageQuery) Steps() []time.Time {
	var out []time.Time
	for t := u.Bucket.floor(u.Start); t.Before(u.End); t = u.Bucket.ceil(t.Add(1)) {
		out = append(out, t)
	}
	return out
}

// Add adds the usage of other requests.
func (x *Usage) Add(more Usage) {
	x.Requests += more.Requests
	x.Errors += more.Errors
	x.InputTokens += more.InputTokens
	x.OutputTokens += more.OutputTokens
	x.Credits += more.Credits
	x.SimulatedCredits += more.SimulatedCredits
}
