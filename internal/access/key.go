package access

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

// SignalKey tells nodes that a key or one of its tokens changed; the payload
// is the key's id.
const SignalKey = "key"

const (
	maxAllowedIPs = 100
	maxRateLimit  = 100_000_000
)

// Key is the record of an API key. Its secret is not in it.
type Key struct {
	ID            string
	WorkspaceID   string
	Environment   accounts.Environment
	Name          string
	Prefix        string
	LastFour      string
	Scopes        []string
	MonthlyBudget *credits.Micro
	Project       string
	AllowedIPs    []netip.Prefix
	RateLimit     *int64 // requests per minute
	CreatedAt     time.Time
	CreatedBy     string
	ParentID      string // the key that created it; empty when a person or the operator did
	ExpiresAt     *time.Time
	RevokedAt     *time.Time
	LastUsedAt    *time.Time
	LastUsedIP    string
	Previous      *PreviousSecret // during a rotation's grace
}

// PreviousSecret is the secret that a rotation replaced, while it still works.
type PreviousSecret struct {
	LastFour   string
	ExpiresAt  time.Time
	LastUsedAt *time.Time
}

// Hint is the part of a key that may be shown.
func (k *Key) Hint() string { return k.Prefix + "…" + k.LastFour }

// Status is active, rotating, revoked or expired.
func (k *Key) Status(now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked"
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return "expired"
	case k.Previous != nil && now.Before(k.Previous.ExpiresAt):
		return "rotating"
	}
	return "active"
}

// Keys manages key records. Whoever acts is a Caller: the principal bounds
// what it may touch, the actor is what the admin log shows.
type Keys struct {
	// Max is how many keys a workspace may have in use in each environment; 0 is
	// no limit. It must be set before the manager is used.
	Max int64

	ring *keyring.Ring
	now  func() time.Time
}

// NewKeys makes a manager.
func NewKeys(ring *keyring.Ring, now func() time.Time) *Keys { return &Keys{ring: ring, now: now} }

// Caller is who manages keys. An operator has no principal and no bounds.
type Caller struct {
	Principal *Principal
	Actor     audit.Actor
}

// Manages reports whether the caller may change the key, so that a page offers
// only what can be done.
func (c Caller) Manages(k *Key) bool { return c.covers(k) == nil }

func (c Caller) covers(k *Key) error {
	if c.Principal == nil {
		return nil
	}
	return c.Principal.covers(k)
}

// Create stores a new key and returns its value, which is shown this once.
func (m *Keys) Create(ctx context.Context, tx *db.Tx, by Caller, k *Key) (value string, err error) {
	now := m.now()
	k.Prefix = PrefixOf(k.Environment)
	if err := accounts.CheckName("name", k.Name); err != nil {
		return "", err
	}
	if err := k.check(); err != nil {
		return "", err
	}
	if err := checkExpiry(k.ExpiresAt, now); err != nil {
		return "", err
	}
	if err := by.covers(k); err != nil {
		return "", err
	}
	if err := m.adopt(ctx, tx, by.Principal, k); err != nil {
		return "", err
	}
	if err := m.checkRoom(ctx, tx, k, now); err != nil {
		return "", err
	}
	value = newSecret(k.Prefix)
	k.ID = ids.New(ids.Key)
	k.LastFour = lastFour(value)
	k.CreatedAt = now
	k.CreatedBy = by.Actor.Name
	scopes, ips := k.listsAsJSON()
	_, err = tx.Exec(ctx, `INSERT INTO keys (id, workspace_id, environment, name, prefix, scopes, monthly_budget, project,
		allowed_ips, rate_limit, created_at, created_by, parent_key_id, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		k.ID, k.WorkspaceID, string(k.Environment), k.Name, k.Prefix, scopes, (*int64)(k.MonthlyBudget), db.OrNull(k.Project),
		ips, k.RateLimit, now.UnixMicro(), k.CreatedBy, db.OrNull(k.ParentID), db.Micros(k.ExpiresAt))
	if err != nil {
		return "", err
	}
	if err := m.addSecret(ctx, tx, k.ID, value, now); err != nil {
		return "", err
	}
	return value, m.log(ctx, tx, by, k, "key.created", k.bounds())
}

// checkRoom refuses a key that is about to be in use if the workspace has as
// many as it may. It locks the workspace, so that two keys at once can't both
// take the last slot.
func (m *Keys) checkRoom(ctx context.Context, tx *db.Tx, k *Key, now time.Time) error {
	if m.Max <= 0 {
		return nil
	}
	if err := accounts.LockWorkspace(ctx, tx, k.WorkspaceID); err != nil {
		return err
	}
	var n int64
	err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM keys WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND expires_at IS NULL)
		+ (SELECT count(*) FROM keys WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND expires_at > $3)`,
		k.WorkspaceID, string(k.Environment), now.UnixMicro()).Scan(&n)
	if err != nil {
		return fmt.Errorf("count keys: %w", err)
	}
	if n >= m.Max {
		return fault.New(fault.LimitReached, "This workspace has %d keys in the %s environment, which is the limit. Revoke a key that you no longer need, or ask the operator to raise limits.keys.",
			n, k.Environment)
	}
	return nil
}

func (m *Keys) addSecret(ctx context.Context, tx *db.Tx, keyID, value string, now time.Time) error {
	_, err := tx.Exec(ctx, "INSERT INTO key_secrets (hash, key_id, last_four, created_at) VALUES ($1, $2, $3, $4)",
		hashOf(m.ring, value), keyID, lastFour(value), now.UnixMicro())
	return err
}

func hashOf(ring *keyring.Ring, secret string) string {
	h := ring.Hash(secret)
	return hex.EncodeToString(h[:])
}

// Update stores the changed fields of a key read by GetLocked. Both what the key was and what it
// becomes must be within the caller's bounds, so nobody widens itself or
// narrows its betters.
func (m *Keys) Update(ctx context.Context, tx *db.Tx, by Caller, before, after *Key) error {
	if before.RevokedAt != nil {
		return fault.New(fault.InvalidState, "the key is revoked, so it cannot be changed")
	}
	if after.Name != before.Name {
		if err := accounts.CheckName("name", after.Name); err != nil {
			return err
		}
	}
	if err := after.check(); err != nil {
		return err
	}
	if after.ExpiresAt != before.ExpiresAt {
		if err := checkExpiry(after.ExpiresAt, m.now()); err != nil {
			return err
		}
	}
	if err := by.covers(before); err != nil {
		return err
	}
	if err := by.covers(after); err != nil {
		return err
	}
	now := m.now()
	if before.Status(now) == "expired" && after.Status(now) != "expired" {
		if err := m.checkRoom(ctx, tx, after, now); err != nil {
			return err
		}
	}
	scopes, ips := after.listsAsJSON()
	_, err := tx.Exec(ctx, `UPDATE keys SET name = $2, scopes = $3, monthly_budget = $4, project = $5, allowed_ips = $6,
		rate_limit = $7, expires_at = $8 WHERE id = $1`,
		after.ID, after.Name, scopes, (*int64)(after.MonthlyBudget), db.OrNull(after.Project), ips, after.RateLimit, db.Micros(after.ExpiresAt))
	if err != nil {
		return err
	}
	tx.Signal(SignalKey, after.ID)
	return m.log(ctx, tx, by, after, "key.updated", after.bounds())
}

// Revoke revokes a key and its scoped tokens. Keys that it created keep
// working. Revoking a revoked key changes nothing.
func (m *Keys) Revoke(ctx context.Context, tx *db.Tx, by Caller, k *Key) error {
	if err := by.covers(k); err != nil {
		return err
	}
	return m.revoke(ctx, tx, by, k, map[string]any{"key_hint": k.Hint()})
}

func (m *Keys) revoke(ctx context.Context, tx *db.Tx, by Caller, k *Key, detail map[string]any) error {
	if k.RevokedAt != nil {
		return nil
	}
	now := m.now()
	if _, err := tx.Exec(ctx, "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL", k.ID, now.UnixMicro()); err != nil {
		return err
	}
	k.RevokedAt = &now
	k.Previous = nil
	tx.Signal(SignalKey, k.ID)
	return m.log(ctx, tx, by, k, "key.revoked", detail)
}

// bounds is all that a key is and may do, for the admin log: two entries in a
// row show what a change was.
func (k *Key) bounds() map[string]any {
	detail := map[string]any{"key_hint": k.Hint(), "name": k.Name, "scopes": k.Scopes, "monthly_budget": k.MonthlyBudget,
		"allowed_ips": k.AllowedIPs, "rate_limit": k.RateLimit, "project": nil, "expires_at": nil}
	if k.AllowedIPs == nil {
		detail["allowed_ips"] = []netip.Prefix{}
	}
	if k.Project != "" {
		detail["project"] = k.Project
	}
	if k.ExpiresAt != nil {
		detail["expires_at"] = k.ExpiresAt.Unix()
	}
	return detail
}

func (m *Keys) log(ctx context.Context, tx *db.Tx, by Caller, k *Key, action string, detail map[string]any) error {
	return audit.LogAction(ctx, tx, by.Actor, audit.Action{
		WorkspaceID: k.WorkspaceID, Environment: string(k.Environment), Project: k.Project, Action: action, Target: k.ID}, detail, m.now())
}

// check validates what a caller set, but for the name and the expiry: a key
// that was right when they were set can still be changed.
func (k *Key) check() error {
	scopes, _, err := ParseScopes(k.Scopes)
	if err != nil {
		return err
	}
	k.Scopes = scopes
	if k.Project != "" {
		if err := accounts.CheckProjectID("project", k.Project); err != nil {
			return err
		}
	}
	if len(k.AllowedIPs) > maxAllowedIPs {
		return fault.Invalid("allowed_ips", "allowed_ips may have at most %d entries", maxAllowedIPs)
	}
	if k.RateLimit != nil && (*k.RateLimit < 1 || *k.RateLimit > maxRateLimit) {
		return fault.Invalid("rate_limit", "the rate limit is a number of requests per minute from 1 to %d, or none", maxRateLimit)
	}
	return nil
}

func checkExpiry(expires *time.Time, now time.Time) error {
	if expires != nil && !expires.After(now) {
		return fault.Invalid("expires_at", "expires_at must be a Unix time in the future")
	}
	return nil
}

// ParseAllowedIPs reads addresses and CIDR ranges.
func ParseAllowedIPs(list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(list))
	for _, s := range list {
		if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		n, err := netip.ParsePrefix(s)
		if err != nil || n.Addr().Is4In6() {
			return nil, fault.Invalid("allowed_ips", "%q is neither an IP address nor a CIDR range such as 10.0.0.0/8", s)
		}
		out = append(out, n.Masked())
	}
	return out, nil
}

func (k *Key) listsAsJSON() (scopes, ips string) {
	// Neither can fail: strings and text marshalers.
	a, _ := json.Marshal(k.Scopes)
	list := k.AllowedIPs
	if list == nil {
		list = []netip.Prefix{}
	}
	b, _ := json.Marshal(list)
	return string(a), string(b)
}

const keyColumns = `k.id, k.workspace_id, k.environment, k.name, k.prefix, k.scopes, k.monthly_budget, k.project, k.allowed_ips,
	k.rate_limit, k.created_at, k.created_by, k.parent_key_id, k.expires_at, k.revoked_at, k.last_used_at, k.last_used_ip`

// keyFrom joins a key with its current secret and with the previous one while
// its grace lasts. $1 is now.
const keyFrom = ` FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL
	LEFT JOIN key_secrets p ON p.key_id = k.id AND p.retires_at > $1 AND k.revoked_at IS NULL`

const keySelect = "SELECT " + keyColumns + ", s.last_four, p.last_four, p.retires_at, p.last_used_at" + keyFrom

// scanKeyColumns reads keyColumns into k and whatever else follows them.
func scanKeyColumns(r db.Row, k *Key, more ...any) error {
	var env, scopes, ips string
	var project, usedIP, parent *string
	var budget, expires, revoked, used *int64
	var created int64
	dest := append([]any{&k.ID, &k.WorkspaceID, &env, &k.Name, &k.Prefix, &scopes, &budget, &project, &ips,
		&k.RateLimit, &created, &k.CreatedBy, &parent, &expires, &revoked, &used, &usedIP}, more...)
	if err := r.Scan(dest...); err != nil {
		return err
	}
	k.Environment = accounts.Environment(env)
	k.MonthlyBudget = (*credits.Micro)(budget)
	k.CreatedAt = time.UnixMicro(created)
	k.ExpiresAt, k.RevokedAt, k.LastUsedAt = db.Time(expires), db.Time(revoked), db.Time(used)
	k.Project, k.LastUsedIP, k.ParentID = db.Text(project), db.Text(usedIP), db.Text(parent)
	return errors.Join(json.Unmarshal([]byte(scopes), &k.Scopes), json.Unmarshal([]byte(ips), &k.AllowedIPs))
}

func scanKey(r db.Row) (*Key, error) {
	var k Key
	var prevFour *string
	var prevEnds, prevUsed *int64
	if err := scanKeyColumns(r, &k, &k.LastFour, &prevFour, &prevEnds, &prevUsed); err != nil {
		return nil, err
	}
	if prevFour != nil {
		k.Previous = &PreviousSecret{LastFour: *prevFour, ExpiresAt: time.UnixMicro(*prevEnds), LastUsedAt: db.Time(prevUsed)}
	}
	return &k, nil
}

// Get returns a visible key.
func (m *Keys) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Key, error) {
	k, err := scanKey(q.QueryRow(ctx, keySelect+" WHERE k.id = $2 AND k.workspace_id = $3 AND k.environment = $4 AND ($5 = '' OR k.project = $5)",
		m.now().UnixMicro(), id, vis.WorkspaceID, vis.Environment, vis.Project))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("key", id)
	}
	return k, err
}

// GetLocked is Get for a change: the key stays as it was read until the
// transaction ends. Another's is neither locked nor waited for.
func (m *Keys) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Key, error) {
	return m.lock(ctx, tx, id, " AND workspace_id = $2 AND environment = $3 AND ($4 = '' OR project = $4)", vis.WorkspaceID, vis.Environment, vis.Project)
}

// FindLocked is GetLocked for operators, who reach every workspace.
func (m *Keys) FindLocked(ctx context.Context, tx *db.Tx, id string) (*Key, error) {
	return m.lock(ctx, tx, id, "")
}

// lock locks the key and then reads it, in a statement of its own: secrets that
// a transaction before us changed would otherwise be read as they were when we
// began to wait.
func (m *Keys) lock(ctx context.Context, tx *db.Tx, id, of string, tenant ...any) (*Key, error) {
	var locked string
	err := tx.QueryRow(ctx, "SELECT id FROM keys WHERE id = $1"+of+tx.Lock("keys"), append([]any{id}, tenant...)...).Scan(&locked)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("key", id)
	}
	if err != nil {
		return nil, err
	}
	k, err := scanKey(tx.QueryRow(ctx, keySelect+" WHERE k.id = $2", m.now().UnixMicro(), id))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("key", id)
	}
	return k, err
}

// States are what Status can be.
var States = []string{"active", "rotating", "revoked", "expired"}

// stateIs finds by SQL what Status says. $1 is now.
var stateIs = map[string]string{
	"active":   "k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $1) AND p.key_id IS NULL",
	"rotating": "k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $1) AND p.key_id IS NOT NULL",
	"revoked":  "k.revoked_at IS NOT NULL",
	"expired":  "k.revoked_at IS NULL AND k.expires_at <= $1",
}

// KeyFilter selects keys; what is empty selects all.
type KeyFilter struct {
	State   string // of States
	Project string // that they are pinned to
}

// List returns a page of the visible keys, newest first unless asked otherwise.
func (m *Keys) List(ctx context.Context, q db.Querier, vis visibility.Filter, page db.Page) ([]*Key, bool, error) {
	return m.Search(ctx, q, vis, KeyFilter{}, page)
}

// Search is List of the keys that a filter selects.
func (m *Keys) Search(ctx context.Context, q db.Querier, vis visibility.Filter, f KeyFilter, page db.Page) ([]*Key, bool, error) {
	query := keySelect + " WHERE k.workspace_id = $2 AND k.environment = $3"
	args := []any{m.now().UnixMicro(), vis.WorkspaceID, vis.Environment, int64(page.Limit + 1)}
	if condition := stateIs[f.State]; condition != "" {
		query += " AND " + condition
	}
	for _, by := range []struct{ comparison, value string }{{"k.project =", vis.Project}, {"k.project =", f.Project}, {"k.id " + page.Past(), page.After}} {
		if by.value != "" {
			args = append(args, by.value)
			query += fmt.Sprintf(" AND %s $%d", by.comparison, len(args))
		}
	}
	rows, err := q.Query(ctx, query+" ORDER BY k.id "+page.Order()+" LIMIT $4", args...)
	list, err := db.All(rows, err, scanKey)
	list, more := db.Cut(page, list)
	return list, more, err
}

// Ending returns keys whose life, or whose previous secret's, ends before a
// time, the soonest first.
func (m *Keys) Ending(ctx context.Context, q db.Querier, workspaceID string, env accounts.Environment, before time.Time, limit int) ([]*Key, error) {
	rows, err := q.Query(ctx, keySelect+` WHERE k.workspace_id = $2 AND k.environment = $3 AND k.revoked_at IS NULL
		AND (k.expires_at IS NULL OR k.expires_at > $1) AND (k.expires_at <= $4 OR p.retires_at <= $4)
		ORDER BY CASE WHEN k.expires_at IS NULL OR p.retires_at < k.expires_at THEN p.retires_at ELSE k.expires_at END, k.id LIMIT $5`,
		m.now().UnixMicro(), workspaceID, string(env), before.UnixMicro(), int64(limit))
	return db.All(rows, err, scanKey)
}
