package spend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
)

// RecentUsage is ReadUsage for somebody who waits: it looks at no more rows of
// the rollup than the bound, the newest. Where there are more, it returns since
// when usage is whole; that is zero when nothing is missing.
func RecentUsage(ctx context.Context, q db.Querier, u UsageQuery, bound int) (list []Usage, since time.Time, err error) {
	table := u.Bucket.rollup()
	where, args := u.where(table)
	var edge int64
	err = q.QueryRow(ctx, fmt.Sprintf("SELECT start FROM %s WHERE %s ORDER BY start DESC LIMIT 1 OFFSET %d", table.table, where, bound), args...).Scan(&edge)
	switch {
	case err == nil:
		since = time.Unix(edge, 0).UTC().Add(table.step)
		u.from = since
	case !errors.Is(err, db.ErrNotFound):
		return nil, time.Time{}, fmt.Errorf("read usage: %w", err)
	}
	list, err = ReadUsage(ctx, q, u)
	return list, since, err
}

// Steps are the starts of the buckets that a query covers.
func (u UsageQuery) Steps() []time.Time {
	var out []time.Time
	for t := u.Bucket.floor(u.Start); t.Before(u.End); t = u.Bucket.ceil(t.Add(1)) {
		out = append(out, t)
	}
	return out
}

// Add adds what other calls came to.
func (x *Usage) Add(more Usage) {
	x.Requests += more.Requests
	x.Errors += more.Errors
	x.InputTokens += more.InputTokens
	x.OutputTokens += more.OutputTokens
	x.Credits += more.Credits
	x.SimulatedCredits += more.SimulatedCredits
}
