package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

const (
	// MaxTokenLifetime is the longest lifetime of a scoped token.
	MaxTokenLifetime = 900 * time.Second
	maxTokenMetadata = 4 << 10
	// tokenRetention is how long records are kept after expiry, for readers of the request log.
	tokenRetention = 30 * 24 * time.Hour
)

// Token is a scoped token, without its secret.
type Token struct {
	ID    string
	KeyID string
	accounts.Tenant
	Scopes    []string
	Project   string
	Metadata  json.RawMessage
	Allowed   catalog.Allowed
	EndUserID string // or empty
	CreatedAt time.Time
	ExpiresAt time.Time
	RevokedAt *time.Time
}

// Tokens manages scoped tokens.
type Tokens struct {
	// Max limits the unexpired tokens of an environment; 0 for no limit.
	Max atomic.Int64

	ring *keyring.Ring
	now  func() time.Time
}

// NewTokens returns a manager of tokens.
func NewTokens(ring *keyring.Ring, now func() time.Time) *Tokens {
	return &Tokens{ring: ring, now: now}
}

// Mint stores a token of a key and returns its secret, which is shown only once. It reads Scopes, Project,
// Metadata, Allowed and EndUserID of t and sets the rest.
func (m *Tokens) Mint(ctx context.Context, tx *db.Tx, parent *Principal, t *Token, lifetime time.Duration) (value string, err error) {
	if parent.Token != nil {
		return "", fault.New(fault.ScopedTokenNotAllowed, "A scoped token cannot mint another. Call this from your backend with a key.")
	}
	names, err := CheckTokenScopes(parent, "scopes", t.Scopes)
	if err != nil {
		return "", err
	}
	if lifetime < time.Second || lifetime > MaxTokenLifetime {
		return "", fault.Invalid("expires_in", "expires_in must be from 1 to %d seconds.", MaxTokenLifetime/time.Second)
	}
	if err := cmp.Or(t.Allowed.Check(), parent.CheckTokenModels(t.Allowed)); err != nil {
		return "", err
	}
	canonical, err := canonicalMetadata(t.Metadata)
	if err != nil {
		return "", err
	}
	now := m.now()
	value = keyring.NewSecret(keyring.ScopedToken)
	t.ID = ids.New(ids.ScopedToken)
	t.KeyID, t.Tenant = parent.KeyID, parent.Tenant
	t.Scopes = names
	t.CreatedAt, t.ExpiresAt = now, now.Add(lifetime)
	_, err = tx.Exec(ctx, db.Insert("scoped_tokens", tokenColumns+", hash, metadata_hash"),
		t.ID, t.KeyID, t.WorkspaceID, t.Environment, db.JSON(t.Scopes), db.OrNull(t.Project), string(t.Metadata),
		now.UnixMicro(), t.ExpiresAt.UnixMicro(), nil, db.NullList(t.Allowed.Models), db.NullList(t.Allowed.Providers), db.OrNull(t.EndUserID), hashOf(m.ring, value), hashText(canonical))
	if err != nil {
		return "", err
	}
	err = m.unexpired(t).Add(ctx, tx, t.ExpiresAt, now)
	var full *accounts.LimitReachedError
	if errors.As(err, &full) {
		return "", fault.New(fault.LimitReached, "This workspace has %d unexpired scoped tokens in the %s environment, which is the limit. Mint fewer, give them a shorter expires_in, or revoke some. The next ones expire by %s.",
			full.Max, t.Environment, full.Until.UTC().Format(time.RFC3339))
	}
	return value, err
}

// CheckTokenScopes returns the scopes without duplicates if tokens of the key can have them.
func CheckTokenScopes(parent *Principal, param string, scopes []string) ([]string, error) {
	names, requested, err := ParseScopes(scopes)
	if err != nil {
		return nil, err
	}
	if extra := requested &^ delegable; extra != 0 {
		return nil, fault.Param(fault.ScopedTokenNotAllowed, param, "A scoped token cannot have the scope %s.", extra.first())
	}
	if lacking := requested &^ parent.Grant; lacking != 0 {
		return nil, fault.Param(fault.InsufficientScope, param, "The key does not have the scope %s, so its tokens cannot have it.", lacking.first())
	}
	return names, nil
}

// unexpired returns the limit on a workspace's unexpired tokens. A token counts
// for up to a minute after it expires.
func (m *Tokens) unexpired(t *Token) accounts.ExpiringLimit {
	return accounts.ExpiringLimit{ID: "scoped_tokens/" + t.Path(), Max: m.Max.Load(), Granularity: time.Minute}
}

// canonicalMetadata checks the metadata and returns its canonical form. Numbers stay as written: RFC 8785
// would round them to 64-bit floats and merge users with long IDs.
func canonicalMetadata(raw json.RawMessage) ([]byte, error) {
	if len(raw) > maxTokenMetadata {
		return nil, fault.Invalid("metadata", "metadata may have at most %d bytes of JSON.", maxTokenMetadata)
	}
	canonical := jsontext.Value(raw).Clone()
	if canonical.Kind() != '{' {
		return nil, fault.Invalid("metadata", "metadata must be a JSON object.")
	}
	if err := canonical.Format(jsontext.ReorderRawObjects(true)); err != nil {
		return nil, fault.Invalid("metadata", "metadata must be a JSON object without duplicate names.")
	}
	// The request log shows the metadata.
	if keyring.ContainsSecret(string(canonical)) {
		return nil, fault.Invalid("metadata", "metadata contains something that looks like an API key, which must not be stored. Remove it.")
	}
	return canonical, nil
}

func hashText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Revoke revokes a token. Revoking it again changes nothing.
func (m *Tokens) Revoke(ctx context.Context, tx *db.Tx, by Caller, vis visibility.Filter, id string) (*Token, error) {
	t, err := m.Get(ctx, tx, vis, id)
	if err != nil || t.RevokedAt != nil {
		return t, err
	}
	now := m.now()
	if _, err := tx.Exec(ctx, "UPDATE scoped_tokens SET revoked_at = $2, hash = NULL WHERE id = $1", id, now.UnixMicro()); err != nil {
		return nil, err
	}
	if err := m.unexpired(t).Remove(ctx, tx, t.ExpiresAt, now); err != nil {
		return nil, err
	}
	t.RevokedAt = &now
	tx.Signal(SignalKey, t.KeyID)
	return t, by.Actor.Log(ctx, tx, audit.Action{Tenant: t.Tenant, Project: t.Project,
		Action: "scoped_token.revoked", Target: id}, map[string]any{"key_id": t.KeyID}, now)
}

const tokenColumns = "id, key_id, workspace_id, environment, scopes, project, metadata, created_at, expires_at, revoked_at, allowed_models, allowed_providers, end_user_id"

var scanToken = db.Scanner(func(t *Token) []any {
	return []any{&t.ID, &t.KeyID, &t.WorkspaceID, &t.Environment, &t.Scopes, &t.Project, &t.Metadata, &t.CreatedAt, &t.ExpiresAt, &t.RevokedAt, &t.Allowed.Models, &t.Allowed.Providers, &t.EndUserID}
})

// Status returns active, expired or revoked.
func (t *Token) Status(now time.Time) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !now.Before(t.ExpiresAt):
		return "expired"
	}
	return "active"
}

// Get returns a visible token.
func (m *Tokens) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Token, error) {
	t, err := db.FindOne(ctx, q, db.Search{Table: "scoped_tokens", Columns: tokenColumns, Where: vis.Rows()}, id, scanToken)
	return t, db.OrNoSuch(err, "scoped token", id)
}

// ListByKey returns a page of the tokens that a key minted, newest first by default.
func (m *Tokens) ListByKey(ctx context.Context, q db.Querier, keyID string, page db.Page) ([]*Token, bool, error) {
	search := db.Search{Table: "scoped_tokens", Columns: tokenColumns}
	search.Where.Add("key_id =", keyID)
	found, err := db.Find(ctx, q, search, page, db.Record[*Token]{Scan: scanToken, ID: func(t *Token) string { return t.ID }})
	if err != nil {
		return nil, false, err
	}
	return found.Rows, found.More, nil
}

// PurgeHashes deletes the hashes of a batch of expired tokens, so that not even a stolen master key can
// verify them.
func (m *Tokens) PurgeHashes(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, `UPDATE scoped_tokens SET hash = NULL WHERE id IN
		(SELECT id FROM scoped_tokens WHERE hash IS NOT NULL AND expires_at <= $1 LIMIT $2)`, m.now().UnixMicro(), limit)
}

// Purge deletes a batch of records after their retention.
func (m *Tokens) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	before := ids.Floor(ids.ScopedToken, m.now().Add(-tokenRetention))
	return tx.Exec(ctx, `DELETE FROM scoped_tokens WHERE id IN
		(SELECT id FROM scoped_tokens WHERE id < $1 ORDER BY id LIMIT $2)`, before, limit)
}
