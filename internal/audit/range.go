package audit

import (
	"context"
	"errors"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

// Totals are the sums over entries, by which two copies of the log are compared.
type Totals struct {
	Rows             int64         `json:"rows"`
	Credits          credits.Micro `json:"credit_micros"`
	UnbilledCredits  credits.Micro `json:"unbilled_credit_micros"`
	SimulatedCredits credits.Micro `json:"simulated_credit_micros"`
	InputTokens      int64         `json:"input_tokens"`
	OutputTokens     int64         `json:"output_tokens"`
	CachedTokens     int64         `json:"cached_tokens"`
}

// Count adds an entry.
func (t *Totals) Count(e *Entry) {
	t.Add(Totals{1, e.Credits, e.UnbilledCredits, e.SimulatedCredits, orZero(e.InputTokens), orZero(e.OutputTokens), orZero(e.CachedTokens)})
}

// Add adds other totals.
func (t *Totals) Add(o Totals) {
	t.Rows += o.Rows
	t.Credits += o.Credits
	t.UnbilledCredits += o.UnbilledCredits
	t.SimulatedCredits += o.SimulatedCredits
	t.InputTokens += o.InputTokens
	t.OutputTokens += o.OutputTokens
	t.CachedTokens += o.CachedTokens
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// IDRange is a range of IDs, without its end. An empty end is open.
type IDRange struct{ From, To string }

func (r IDRange) includes(id string) bool { return id >= r.From && (r.To == "" || id < r.To) }

// Sum returns the totals of the settled entries in a range. It reads the whole range.
func Sum(ctx context.Context, q db.Querier, r IDRange) (t Totals, err error) {
	err = q.QueryRow(ctx, `SELECT count(*), COALESCE(sum(credits), 0), COALESCE(sum(unbilled_credits), 0), COALESCE(sum(simulated_credits), 0),
		COALESCE(sum(input_tokens), 0), COALESCE(sum(output_tokens), 0), COALESCE(sum(cached_tokens), 0) FROM requests WHERE id >= $1 AND id < $2 AND settled`, r.From, r.To).
		Scan(&t.Rows, &t.Credits, &t.UnbilledCredits, &t.SimulatedCredits, &t.InputTokens, &t.OutputTokens, &t.CachedTokens)
	return t, db.Wrap(err, "sum the request log")
}

// ReadRange returns the first settled entries of a tenant in a range, in the
// order of their IDs.
func ReadRange(ctx context.Context, q db.Querier, t visibility.Tenant, r IDRange, limit int64) ([]*Entry, error) {
	list, err := db.List(ctx, q, scanEntry, "SELECT "+entryColumns+" FROM requests WHERE workspace_id = $1 AND environment = $2 AND id >= $3 AND id < $4 AND settled ORDER BY id LIMIT $5",
		t.WorkspaceID, string(t.Environment), r.From, r.To, limit)
	return list, db.Wrap(err, "read the request log")
}

// ReadAll returns the first entries of all tenants in a range, in the order of their IDs, whether or not they are settled.
func ReadAll(ctx context.Context, q db.Querier, r IDRange, limit int64) ([]*Entry, error) {
	list, err := db.List(ctx, q, scanEntry, "SELECT "+entryColumns+" FROM requests WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3", r.From, r.To, limit)
	return list, db.Wrap(err, "read the request log")
}

// NextTenant returns the first tenant with entries after another one, or nil.
func NextTenant(ctx context.Context, q db.Querier, after visibility.Tenant) (*visibility.Tenant, error) {
	var t visibility.Tenant
	err := q.QueryRow(ctx, `SELECT workspace_id, environment FROM requests WHERE (workspace_id, environment) > ($1, $2) ORDER BY workspace_id, environment LIMIT 1`,
		after.WorkspaceID, string(after.Environment)).Scan(&t.WorkspaceID, &t.Environment)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return &t, db.Wrap(err, "read the request log")
}

// FirstID returns the smallest ID from an ID on, or an empty string.
func FirstID(ctx context.Context, q db.Querier, from string) (string, error) {
	id, err := db.Value[string](q.QueryRow(ctx, "SELECT id FROM requests WHERE id >= $1 ORDER BY id LIMIT 1", from))
	return id, db.Wrap(db.IgnoreNotFound(err), "read the request log")
}

// FirstOpen returns the smallest ID of an entry that isn't settled, or an empty
// string.
func FirstOpen(ctx context.Context, q db.Querier) (string, error) {
	id, err := db.Value[*string](q.QueryRow(ctx, "SELECT min(id) FROM requests WHERE NOT settled"))
	return db.Text(id), db.Wrap(err, "read the request log")
}

// Delete deletes entries and returns those that existed.
func Delete(ctx context.Context, tx *db.Tx, requestIDs []string) ([]*Entry, error) {
	places, args := db.Places(nil, requestIDs)
	list, err := db.List(ctx, tx, scanEntry, "DELETE FROM requests WHERE id IN "+places+" RETURNING "+entryColumns, args...)
	return list, db.Wrap(err, "delete from the request log")
}
