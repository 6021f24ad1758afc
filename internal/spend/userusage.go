package spend

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
)

// ByUser is the dimension of end users. Their usage is stored by the day, apart from other dimensions.
const ByUser = "user"

const userStep = 24 * time.Hour

// UsersKept is how long usage of end users is retained, as long as their idle accounts are.
const UsersKept = 400 * 24 * time.Hour

var addUserDays = db.NewBulk("usage_users", usageConflictOn("usage_users", "end_user_id"), "workspace_id text", "environment text", "start bigint", "end_user_id text",
	"requests bigint", "errors bigint", "input_tokens bigint", "output_tokens bigint", "cached_tokens bigint", "credits bigint", "simulated_credits bigint")

// addUserMonths adds to the cost of users in a month, by which lists are sorted.
var addUserMonths = db.NewBulk("usage_user_months", "ON CONFLICT (workspace_id, environment, end_user_id, start) DO UPDATE SET cost = "+saturatingSum("usage_user_months", "cost"),
	"workspace_id text", "environment text", "end_user_id text", "start bigint", "cost bigint")

type userKey struct {
	accounts.Tenant
	Start int64
	User  string
}

func (a userKey) compare(b userKey) int {
	return cmp.Or(strings.Compare(a.WorkspaceID, b.WorkspaceID), cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.Start, b.Start), strings.Compare(a.User, b.User))
}

// writeUsers adds the usage of end users, in the order in which all transactions lock rows.
func (t usageTotals) writeUsers(ctx context.Context, tx *db.Tx) error {
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(t.users), userKey.compare) {
		if s := t.users[k]; *s != (usageSums{}) {
			rows = append(rows, append([]any{k.WorkspaceID, string(k.Environment), k.Start, k.User}, s.columns()...))
		}
	}
	if err := addUserDays.Send(ctx, tx, rows, nil); err != nil {
		return db.Wrap(err, "add usage of users")
	}
	return t.writeUserMonths(ctx, tx)
}

// writeUserMonths adds the cost of end users, in the order in which all transactions lock rows.
func (t usageTotals) writeUserMonths(ctx context.Context, tx *db.Tx) error {
	months := map[userKey]int64{}
	for k, s := range t.users {
		k.Start = PeriodOf(time.Unix(k.Start, 0)).Start().Unix()
		months[k] = sum(months[k], sum(s.Credits, s.Simulated))
	}
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(months), userKey.compare) {
		if cost := months[k]; cost != 0 {
			rows = append(rows, []any{k.WorkspaceID, string(k.Environment), k.User, k.Start, cost})
		}
	}
	return db.Wrap(addUserMonths.Send(ctx, tx, rows, nil), "add cost of users")
}

// UserUsage is the usage of an end user in a time bucket.
type UserUsage struct {
	EndUser string // Turnpike's ID
	Usage
}

// ReadUserUsage returns the usage of end users by the day or the month.
func ReadUserUsage(ctx context.Context, q db.Querier, u UsageQuery) ([]UserUsage, error) {
	at := map[userKey]int{}
	var out []UserUsage
	rows, err := q.Query(ctx, "SELECT start, end_user_id, "+usageSum+` FROM usage_users WHERE workspace_id = $1 AND environment = $2 AND start >= $3 AND start < $4
		GROUP BY start, end_user_id`+u.limit(), u.WorkspaceID, u.Environment, u.Bucket.floor(u.Start).Unix(), u.Bucket.ceil(u.End).Unix())
	err = db.Each(rows, err, func(r db.Row) error {
		var start int64
		var x UserUsage
		if err := r.Scan(append([]any{&start, &x.EndUser}, x.sums()...)...); err != nil {
			return err
		}
		x.Start = u.Bucket.floor(time.Unix(start, 0))
		k := userKey{Start: x.Start.Unix(), User: x.EndUser}
		if i, known := at[k]; known {
			out[i].Add(x.Usage)
			return nil
		}
		if u.Most > 0 && len(out) == u.Most {
			return ErrTooMuchUsage
		}
		at[k] = len(out)
		out = append(out, x)
		return nil
	})
	slices.SortFunc(out, func(a, b UserUsage) int {
		return cmp.Or(a.Start.Compare(b.Start), strings.Compare(a.EndUser, b.EndUser))
	})
	return out, db.Wrap(err, "read usage of users")
}

// sums returns the destinations of usageSum.
func (x *Usage) sums() []any {
	return []any{&x.Requests, &x.Errors, &x.InputTokens, &x.OutputTokens, &x.CachedTokens, (*int64)(&x.Credits), (*int64)(&x.SimulatedCredits)}
}

// TopUsers returns the end users with the highest cost in the month of a time. Test requests count with what they
// would have cost. Deleted users are left out.
func TopUsers(ctx context.Context, q db.Querier, t accounts.Tenant, at time.Time, limit int) ([]*endusers.User, error) {
	top, err := db.List(ctx, q, db.Value[string], `SELECT t.end_user_id FROM usage_user_months t JOIN end_users u ON u.id = t.end_user_id
		WHERE t.workspace_id = $1 AND t.environment = $2 AND t.start = $3
		ORDER BY t.cost DESC, t.end_user_id LIMIT $4`, t.WorkspaceID, t.Environment, PeriodOf(at).Start().Unix(), int64(limit))
	if err != nil {
		return nil, db.Wrap(err, "read usage of users")
	}
	found, err := endusers.ByID(ctx, q, top)
	list := make([]*endusers.User, 0, len(top))
	for _, id := range top {
		if u := found[id]; u != nil {
			list = append(list, u)
		}
	}
	return list, err
}

// PurgeUserUsage deletes a batch of the usage of end users from before a time.
func PurgeUserUsage(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM usage_users WHERE (workspace_id, environment, start, end_user_id) IN
		(SELECT workspace_id, environment, start, end_user_id FROM usage_users WHERE start < $1 ORDER BY start LIMIT $2)`, before.Unix(), limit)
	return n, db.Wrap(err, "purge usage of users")
}

// PurgeUserMonths deletes a batch of the costs of end users in months before that of a time.
func PurgeUserMonths(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM usage_user_months WHERE (workspace_id, environment, end_user_id, start) IN
		(SELECT workspace_id, environment, end_user_id, start FROM usage_user_months WHERE start < $1 ORDER BY start LIMIT $2)`, PeriodOf(now).Start().Unix(), limit)
	return n, db.Wrap(err, "purge costs of users")
}
