package access

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

const keyColumns = `k.id, k.workspace_id, k.environment, k.name, k.prefix, k.scopes, k.monthly_budget, k.project, k.allowed_ips,
	k.rate_limit, k.allowed_tools, k.allowed_models, k.allowed_providers, k.created_at, k.created_by, k.parent_key_id, k.expires_at, k.revoked_at, k.last_used_at, k.last_used_ip, k.alert_thresholds, k.alert_email,
	k.limits, k.temporary_raise, k.external_id, k.metadata, k.content_log_days, k.content_log_opt_out`

// keyFrom joins a key with its current secret, and with the previous one during its grace period. $1 is
// now.
const keyFrom = ` FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL
	LEFT JOIN key_secrets p ON p.key_id = k.id AND p.retires_at > $1 AND k.revoked_at IS NULL`

const keySelect = "SELECT " + keyColumns + ", s.last_four, p.last_four, p.retires_at, p.last_used_at" + keyFrom

// scanKeyColumns reads keyColumns into k, and further columns into more.
func scanKeyColumns(r db.Row, k *Key, more ...any) error {
	return db.Scan(r, append([]any{&k.ID, &k.WorkspaceID, &k.Environment, &k.Name, &k.Prefix, &k.Scopes, &k.MonthlyBudget, &k.Project, &k.AllowedIPs,
		&k.RateLimit, &k.AllowedTools, &k.Allowed.Models, &k.Allowed.Providers, &k.CreatedAt, &k.CreatedBy, &k.ParentID, &k.ExpiresAt, &k.RevokedAt, &k.LastUsedAt, &k.LastUsedIP, &k.AlertThresholds, &k.AlertEmail,
		&k.Limits, &k.Raise, &k.ExternalID, &k.Metadata, &k.ContentDays, &k.ContentOptOut}, more...)...)
}

func scanKey(r db.Row) (*Key, error) {
	var k Key
	var previous PreviousSecret
	err := scanKeyColumns(r, &k, &k.LastFour, &previous.LastFour, &previous.ExpiresAt, &previous.LastUsedAt)
	if previous.LastFour != "" {
		k.Previous = &previous
	}
	return &k, err
}

// Get returns a visible key.
func (m *Keys) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Key, error) {
	k, err := scanKey(q.QueryRow(ctx, keySelect+" WHERE k.id = $2 AND k.workspace_id = $3 AND k.environment = $4 AND ($5 = '' OR k.project = $5) AND k.member_id IS NULL",
		m.now().UnixMicro(), id, vis.WorkspaceID, vis.Environment, vis.Project))
	return k, db.OrNoSuch(err, "key", id)
}

// GetLocked returns a visible key and locks it until the transaction ends. It never locks or waits for
// other keys.
func (m *Keys) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Key, error) {
	return m.lock(ctx, tx, id, " AND workspace_id = $2 AND environment = $3 AND ($4 = '' OR project = $4) AND member_id IS NULL", vis.WorkspaceID, vis.Environment, vis.Project)
}

// FindLocked is GetLocked in any workspace, for operators.
func (m *Keys) FindLocked(ctx context.Context, tx *db.Tx, id string) (*Key, error) {
	return m.lock(ctx, tx, id, "")
}

// lock locks the key and then reads it in a second statement. Otherwise it could read secrets as they
// were before it waited for the lock.
func (m *Keys) lock(ctx context.Context, tx *db.Tx, id, condition string, args ...any) (*Key, error) {
	_, err := db.Value[string](tx.QueryRow(ctx, "SELECT id FROM keys WHERE id = $1"+condition+tx.Lock("keys"), append([]any{id}, args...)...))
	if err != nil {
		return nil, db.OrNoSuch(err, "key", id)
	}
	k, err := scanKey(tx.QueryRow(ctx, keySelect+" WHERE k.id = $2", m.now().UnixMicro(), id))
	return k, db.OrNoSuch(err, "key", id)
}

// States are the values of Status.
var States = []string{"active", "rotating", "revoked", "expired"}

// stateConditions are the SQL conditions of each Status. $1 is now.
var stateConditions = map[string]string{
	"active":   "k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $1) AND p.key_id IS NULL",
	"rotating": "k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $1) AND p.key_id IS NOT NULL",
	"revoked":  "k.revoked_at IS NOT NULL",
	"expired":  "k.revoked_at IS NULL AND k.expires_at <= $1",
}

// List returns a page of the visible keys, newest first by default.
func (m *Keys) List(ctx context.Context, q db.Querier, vis visibility.Filter, page db.Page) ([]*Key, bool, error) {
	return m.Search(ctx, q, vis, KeyFilter{}, page)
}

// Search returns a page of the visible keys that match a filter.
func (m *Keys) Search(ctx context.Context, q db.Querier, vis visibility.Filter, f KeyFilter, page db.Page) ([]*Key, bool, error) {
	query := keySelect + " WHERE k.workspace_id = $2 AND k.environment = $3 AND k.member_id IS NULL"
	args := []any{m.now().UnixMicro(), vis.WorkspaceID, vis.Environment, int64(page.Limit + 1)}
	if condition := stateConditions[f.State]; condition != "" {
		query += " AND " + condition
	}
	order := f.Sort.order()
	conditions := append(f.conditions(), keyCondition{"k.project = ?", vis.Project}, keyCondition{order.after(page), page.After})
	for _, c := range conditions {
		if c.value != "" {
			args = append(args, c.value)
			query += " AND " + strings.ReplaceAll(c.sql, "?", fmt.Sprintf("$%d", len(args)))
		}
	}
	list, err := db.List(ctx, q, scanKey, query+" ORDER BY "+order.by(page)+" LIMIT $4", args...)
	list, more := db.Cut(page, list)
	return list, more, err
}

// EndingSoon returns the keys of an environment that expire, or whose grace period ends, before a time.
// The soonest comes first.
func (m *Keys) EndingSoon(ctx context.Context, q db.Querier, vis visibility.Filter, before time.Time, limit int) ([]*Key, error) {
	return db.List(ctx, q, scanKey, keySelect+` WHERE k.workspace_id = $2 AND k.environment = $3 AND k.revoked_at IS NULL
		AND (k.expires_at IS NULL OR k.expires_at > $1) AND (k.expires_at <= $4 OR p.retires_at <= $4)
		ORDER BY CASE WHEN k.expires_at IS NULL OR p.retires_at < k.expires_at THEN p.retires_at ELSE k.expires_at END, k.id LIMIT $5`,
		m.now().UnixMicro(), vis.WorkspaceID, vis.Environment, before.UnixMicro(), int64(limit))
}

// Names returns the names of keys of one environment by ID. Other keys are left out.
func (m *Keys) Names(ctx context.Context, q db.Querier, t accounts.Tenant, ids []string) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	err := db.ByIDs(ctx, q, db.InQuery{SQL: "SELECT id, name FROM keys WHERE workspace_id = $1 AND environment = $2 AND id IN", Args: []any{t.WorkspaceID, t.Environment}}, ids, func(r db.Row) error {
		var id, name string
		err := r.Scan(&id, &name)
		out[id] = name
		return err
	})
	return out, db.Wrap(err, "names of keys")
}
