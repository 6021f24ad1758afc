package access

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

// SignalKey notifies nodes that a key or one of its tokens changed. The payload is the key's ID.
const SignalKey = "key"

const (
	maxAllowedIPs = 100
	maxRateLimit  = 100_000_000
)

// Key is an API key, without its secret.
type Key struct {
	ID string
	accounts.Tenant
	Name          string
	Prefix        string
	LastFour      string
	Scopes        []string
	MonthlyBudget *credits.Micro
	Raise         *accounts.Raise // of the monthly budget; nil for none
	Limits        []accounts.Limit
	Project       string
	AllowedIPs    []netip.Prefix
	RateLimit     *int64   // requests per minute
	AllowedTools  []string // of MCP servers; nil allows all
	Allowed       catalog.Allowed
	ContentDays   *int64 // of the content log; nil for the project's
	ContentOptOut bool   // requests can leave themselves out of the content log
	ExternalID    string // the key's ID in another system
	Metadata      map[string]string
	CreatedAt     time.Time
	CreatedBy     string
	ParentID      string // the key that created it; empty for a person or the operator
	ExpiresAt     *time.Time
	RevokedAt     *time.Time
	LastUsedAt    *time.Time
	LastUsedIP    string
	Previous      *PreviousSecret // during the grace period of a rotation

	AlertThresholds accounts.AlertThresholds // of the budget; nil for the workspace's
	AlertEmail      string                   // gets the alerts, in addition to owners and admins
}

// PreviousSecret is the replaced secret during its grace period.
type PreviousSecret struct {
	LastFour   string
	ExpiresAt  time.Time
	LastUsedAt *time.Time
}

// Hint returns the part of a key that may be shown.
func (k *Key) Hint() string { return k.Prefix + "…" + k.LastFour }

// Status returns active, rotating, revoked or expired.
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

// Keys manages API keys.
type Keys struct {
	// Max limits the active keys of an environment; 0 for no limit.
	Max atomic.Int64

	ring *keyring.Ring
	now  func() time.Time
}

// NewKeys returns a manager of keys.
func NewKeys(ring *keyring.Ring, now func() time.Time) *Keys { return &Keys{ring: ring, now: now} }

// Caller is who manages keys. Its principal limits what it may change; operators have none. The admin
// log shows the actor.
type Caller struct {
	Principal *Principal
	Actor     audit.Actor
}

// CanManage reports whether the caller may change the key.
func (c Caller) CanManage(k *Key) bool { return c.checkBounds(k) == nil }

// CanRevoke reports whether the caller may revoke the key.
func (c Caller) CanRevoke(k *Key) bool { return c.checkRevoke(k) == nil }

func (c Caller) checkBounds(k *Key) error {
	if c.Principal == nil {
		return nil
	}
	return cmp.Or(c.Principal.checkBounds(k), c.Principal.checkContentLog(k))
}

// checkRevoke is checkBounds without what the key reads or hides of the content of requests. An owner can revoke
// a key that reads content without being able to read it.
func (c Caller) checkRevoke(k *Key) error {
	if c.Principal == nil {
		return nil
	}
	rest := *k
	rest.Scopes = slices.DeleteFunc(slices.Clone(k.Scopes), func(name string) bool { return byNameOnly.Allows(Scope(name)) })
	return c.Principal.checkBounds(&rest)
}

// checkKeptLimits returns an error if a key would lose what was spent under a limit that the caller's limits
// require.
func (c Caller) checkKeptLimits(before, after *Key) error {
	if c.Principal == nil {
		return nil
	}
	if id := accounts.FirstDroppedLimit(before.Limits, after.Limits, c.Principal.Limits); id != "" {
		return tooWide(accounts.LimitsField, fmt.Sprintf("keep the limit %s for at least the same models, and send its id", id))
	}
	return nil
}

// keyTable has what changes of a key can write.
var keyTable = db.Table{Name: "keys", Key: 1, Columns: "id, name, scopes, monthly_budget, project, allowed_ips, rate_limit, expires_at, allowed_tools, allowed_models, allowed_providers, alert_thresholds, alert_email, limits, temporary_raise, external_id, metadata, content_log_days, content_log_opt_out"}

// row returns the values of keyTable.
func (k *Key) row() []any {
	return []any{k.ID, k.Name, db.JSON(k.Scopes), (*int64)(k.MonthlyBudget), db.OrNull(k.Project), db.JSON(k.AllowedIPs), k.RateLimit, db.Micros(k.ExpiresAt), db.NullList(k.AllowedTools),
		db.NullList(k.Allowed.Models), db.NullList(k.Allowed.Providers), k.AlertThresholds.Stored(), db.OrNull(k.AlertEmail), accounts.StoredLimits(k.Limits), db.JSON(k.Raise),
		db.OrNull(k.ExternalID), k.storedMetadata(), k.ContentDays, k.ContentOptOut}
}

// Create stores a new key and returns its secret, which is shown only once.
func (m *Keys) Create(ctx context.Context, tx *db.Tx, by Caller, k *Key) (value string, err error) {
	now := m.now()
	k.Prefix = KindOf(k.Environment).Prefix()
	invalid := errors.Join(accounts.CheckName("name", k.Name), k.Check(), checkExpiry(k.ExpiresAt, now), k.Raise.Check(k.MonthlyBudget, now),
		accounts.ReplaceLimits(nil, k.Limits))
	if err := cmp.Or(invalid, by.checkBounds(k)); err != nil {
		return "", err
	}
	if err := m.setParent(ctx, tx, by.Principal, k); err != nil {
		return "", err
	}
	if err := m.checkKeyLimit(ctx, tx, k, now); err != nil {
		return "", err
	}
	value = keyring.NewSecret(KindOf(k.Environment))
	k.ID = ids.New(ids.Key)
	k.LastFour = lastFour(value)
	k.CreatedAt = now
	k.CreatedBy = by.Actor.Name
	_, err = tx.Exec(ctx, db.Insert(keyTable.Name, keyTable.Columns+", workspace_id, environment, prefix, created_at, created_by, parent_key_id"),
		append(k.row(), k.WorkspaceID, k.Environment, k.Prefix, now.UnixMicro(), k.CreatedBy, db.OrNull(k.ParentID))...)
	if err != nil {
		return "", err
	}
	if err := m.addSecret(ctx, tx, k.ID, value, now); err != nil {
		return "", err
	}
	return value, m.log(ctx, tx, by, keyAction{"key.created", k, k.auditDetail()})
}

// checkKeyLimit checks the limit of active keys. It locks the workspace, so that concurrent requests
// can't exceed the limit.
func (m *Keys) checkKeyLimit(ctx context.Context, tx *db.Tx, k *Key, now time.Time) error {
	most := m.Max.Load()
	if most <= 0 {
		return nil
	}
	if err := accounts.LockWorkspace(ctx, tx, k.WorkspaceID); err != nil {
		return err
	}
	n, err := db.Value[int64](tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM keys WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND expires_at IS NULL)
		+ (SELECT count(*) FROM keys WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND expires_at > $3)
		- (SELECT count(*) FROM keys WHERE workspace_id = $1 AND environment = $2 AND revoked_at IS NULL AND member_id IS NOT NULL)`,
		k.WorkspaceID, k.Environment, now.UnixMicro()))
	if err != nil {
		return fmt.Errorf("count keys: %w", err)
	}
	if n >= most {
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

// KeyRules are what follows from a change of a key.
var KeyRules accounts.Rules[Key]

// Change is what a caller changes in a key, or in a record that belongs to one. Apply gets the record as it is under
// its lock, and changes only what was asked.
type Change[T any] struct {
	By    Caller
	Apply func(*T) error
}

// Change changes a key. The key must be within the caller's bounds both before and after, so that no key widens
// itself or narrows a wider one. Operators, who have no principal, change keys of any workspace.
func (m *Keys) Change(ctx context.Context, tx *db.Tx, id string, c Change[Key]) (*Key, error) {
	before, err := m.lockFor(ctx, tx, c.By, id)
	if err != nil {
		return nil, err
	}
	after := *before
	if err := c.Apply(&after); err != nil {
		return nil, err
	}
	if err := m.checkChange(ctx, tx, c.By, accounts.Changed[Key]{Before: before, After: &after, At: m.now()}); err != nil {
		return nil, err
	}
	if _, err := keyTable.Update(ctx, tx, before.row(), after.row()); err != nil {
		return nil, err
	}
	tx.Signal(SignalKey, id)
	if err := KeyRules.Follow(ctx, tx, accounts.Changed[Key]{Before: before, After: &after, At: m.now()}); err != nil {
		return nil, err
	}
	return &after, m.log(ctx, tx, c.By, keyAction{"key.updated", &after, after.auditDetail()})
}

func (m *Keys) lockFor(ctx context.Context, tx *db.Tx, by Caller, id string) (*Key, error) {
	if by.Principal == nil {
		return m.FindLocked(ctx, tx, id)
	}
	return m.GetLocked(ctx, tx, by.Principal.Visibility(), id)
}

func (m *Keys) checkChange(ctx context.Context, tx *db.Tx, by Caller, c accounts.Changed[Key]) error {
	before, after := c.Before, c.After
	if before.RevokedAt != nil {
		return fault.New(fault.InvalidState, "The key is revoked and cannot be changed.")
	}
	var invalid error
	if after.Name != before.Name {
		invalid = accounts.CheckName("name", after.Name)
	}
	invalid = errors.Join(invalid, after.Check())
	if after.ExpiresAt != before.ExpiresAt {
		invalid = errors.Join(invalid, checkExpiry(after.ExpiresAt, c.At))
	}
	if after.Raise != before.Raise {
		invalid = errors.Join(invalid, after.Raise.Check(after.MonthlyBudget, c.At))
	}
	invalid = errors.Join(invalid, accounts.ReplaceLimits(before.Limits, after.Limits))
	if err := cmp.Or(invalid, by.checkBounds(before), by.checkBounds(after), by.checkKeptLimits(before, after)); err != nil {
		return err
	}
	if before.Status(c.At) == "expired" && after.Status(c.At) != "expired" {
		return m.checkKeyLimit(ctx, tx, after, c.At)
	}
	return nil
}

// Revoke revokes a key and its scoped tokens. Keys that it created keep
// working. Revoking a revoked key changes nothing.
func (m *Keys) Revoke(ctx context.Context, tx *db.Tx, by Caller, k *Key) error {
	if err := by.checkRevoke(k); err != nil {
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
	return m.log(ctx, tx, by, keyAction{"key.revoked", k, detail})
}

// auditDetail returns everything about the key for the admin log, so that two entries show a change.
func (k *Key) auditDetail() map[string]any {
	detail := map[string]any{"key_hint": k.Hint(), "name": k.Name, "scopes": k.Scopes, "monthly_budget": k.MonthlyBudget,
		"allowed_ips": k.AllowedIPs, "rate_limit": k.RateLimit, "allowed_tools": k.AllowedTools, "allowed_models": k.Allowed.Models, "allowed_providers": k.Allowed.Providers, "alert_thresholds": k.AlertThresholds, "alert_email": k.AlertEmail,
		"temporary_raise": k.Raise, "limits": k.Limits, "project": nil, "expires_at": nil, "content_log_days": k.ContentDays, "content_log_opt_out": k.ContentOptOut}
	if k.AllowedIPs == nil {
		detail["allowed_ips"] = []netip.Prefix{}
	}
	if k.Project != "" {
		detail["project"] = k.Project
	}
	if k.ExpiresAt != nil {
		detail["expires_at"] = k.ExpiresAt.Unix()
	}
	if k.ExternalID != "" {
		detail["external_id"] = k.ExternalID
	}
	if len(k.Metadata) > 0 {
		detail["metadata"] = k.Metadata
	}
	return detail
}

// keyAction is an action on a key for the admin log.
type keyAction struct {
	name   string
	key    *Key
	detail map[string]any
}

func (m *Keys) log(ctx context.Context, tx *db.Tx, by Caller, a keyAction) error {
	k := a.key
	return by.Actor.Log(ctx, tx, audit.Action{
		Tenant: k.Tenant, Project: k.Project, Action: a.name, Target: k.ID}, a.detail, m.now())
}

// Check validates all but the name and the expiry, which may be invalid by now in a stored key. It
// returns the errors of all fields.
func (k *Key) Check() error {
	scopes, _, invalid := ParseScopes(k.Scopes)
	if invalid == nil {
		k.Scopes = scopes
	}
	if k.Project != "" {
		invalid = errors.Join(invalid, accounts.CheckProjectID("project", k.Project))
	}
	if len(k.AllowedIPs) > maxAllowedIPs {
		invalid = errors.Join(invalid, fault.Invalid("allowed_ips", "allowed_ips may have at most %d entries.", maxAllowedIPs))
	}
	if k.RateLimit != nil && (*k.RateLimit < 1 || *k.RateLimit > maxRateLimit) {
		invalid = errors.Join(invalid, fault.Invalid("rate_limit", "rate_limit must be from 1 to %d requests per minute, or null.", maxRateLimit))
	}
	return errors.Join(invalid, checkTools(k.AllowedTools), k.Allowed.Check(), k.AlertThresholds.Check(), accounts.CheckEmail("alert_email", k.AlertEmail),
		checkExternalID(k.ExternalID), accounts.CheckMetadata(k.Metadata), accounts.CheckContentDays(k.ContentDays))
}

func checkExpiry(expires *time.Time, now time.Time) error {
	if expires != nil && !expires.After(now) {
		return fault.Invalid("expires_at", "expires_at must be a Unix time in the future.")
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
			return nil, fault.Invalid("allowed_ips", "%q is neither an IP address nor a CIDR range such as 10.0.0.0/8.", s)
		}
		out = append(out, n.Masked())
	}
	return out, nil
}

// PinToProject pins a key that is about to be stored to a project, which it
// creates if needed. It checks the caller's pin first, so that callers learn
// nothing about other projects.
func (m *Keys) PinToProject(ctx context.Context, tx *db.Tx, by Caller, k *Key, project string) error {
	if by.Principal != nil {
		if err := by.Principal.checkProject(project); err != nil {
			return err
		}
	}
	k.Project = project
	p := &accounts.Project{Tenant: k.Tenant, ID: project}
	_, err := accounts.EnsureProject(ctx, tx, accounts.ProjectUse{By: by.Actor, Project: p, Param: "project"}, m.now())
	return err
}
