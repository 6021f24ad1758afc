package access

import (
	"context"
	"slices"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

const (
	// playgroundTokenLifetime is how long a token of the playground works. The page requests another one
	// before it expires.
	playgroundTokenLifetime = 5 * time.Minute
	// playgroundMetadata is the same for all tokens, so that they see each other's jobs.
	playgroundMetadata = `{"source":"playground"}`
)

// playgroundScopes are the scopes of the playground's keys, as far as the member's role has them.
var playgroundScopes = []Scope{ChatCompletionsCreate, ImagesCreate, VoiceCreate}

// MintForPlayground stores a short-lived token of a member's playground key and returns its secret. It
// creates the key, one per member and environment, at the first use. The caller's principal is the
// member, whose role the transaction has checked and locked.
func (m *Tokens) MintForPlayground(ctx context.Context, tx *db.Tx, by Caller, name string) (*Token, string, error) {
	k, err := m.playgroundKey(ctx, tx, by, "Playground · "+name)
	if err != nil {
		return nil, "", err
	}
	parent, _, err := k.principal(ctx, tx)
	if err != nil {
		return nil, "", err
	}
	t := &Token{Scopes: k.Scopes, Metadata: []byte(playgroundMetadata)}
	value, err := m.Mint(ctx, tx, &parent, t, playgroundTokenLifetime)
	return t, value, err
}

// playgroundKey returns the member's key with the current name and scopes.
func (m *Tokens) playgroundKey(ctx context.Context, tx *db.Tx, by Caller, name string) (*Key, error) {
	person := by.Principal
	if err := person.Require(ChatCompletionsCreate); err != nil {
		return nil, err
	}
	scopes := namesOf(func(s Scope) bool { return slices.Contains(playgroundScopes, s) && person.Grant.Allows(s) })
	var k Key
	err := scanKeyColumns(tx.QueryRow(ctx, "SELECT "+keyColumns+", s.last_four"+` FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL
		WHERE k.workspace_id = $1 AND k.member_id = $2 AND k.environment = $3 AND k.revoked_at IS NULL`, person.WorkspaceID, person.UserID, string(person.Environment)), &k, &k.LastFour)
	if db.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		k = Key{Tenant: person.Tenant, Name: name, Scopes: scopes}
		return &k, m.createPlaygroundKey(ctx, tx, by, &k)
	}
	if k.Name == name && slices.Equal(k.Scopes, scopes) {
		return &k, nil
	}
	before := k.row()
	k.Name, k.Scopes = name, scopes
	_, err = keyTable.Update(ctx, tx, before, k.row()) // only these: the member's row is locked, and decides them
	tx.Signal(SignalKey, k.ID)
	return &k, err
}

// createPlaygroundKey stores the key with a secret that no one learns.
func (m *Tokens) createPlaygroundKey(ctx context.Context, tx *db.Tx, by Caller, k *Key) error {
	now := m.now()
	k.ID, k.Prefix = ids.New(ids.Key), KindOf(k.Environment).Prefix()
	secret := keyring.NewSecret(KindOf(k.Environment))
	k.LastFour, k.CreatedAt, k.CreatedBy = lastFour(secret), now, by.Actor.Name
	_, err := tx.Exec(ctx, db.Insert("keys", "id, workspace_id, environment, name, prefix, scopes, allowed_ips, created_at, created_by, member_id"),
		k.ID, k.WorkspaceID, string(k.Environment), k.Name, k.Prefix, db.JSON(k.Scopes), "[]", now.UnixMicro(), k.CreatedBy, by.Principal.UserID)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO key_secrets (hash, key_id, last_four, created_at) VALUES ($1, $2, $3, $4)",
		hashOf(m.ring, secret), k.ID, k.LastFour, now.UnixMicro()); err != nil {
		return err
	}
	return by.Actor.Log(ctx, tx, audit.Action{Tenant: k.Tenant, Action: "playground_key.created", Target: k.ID}, map[string]any{"name": k.Name, "scopes": k.Scopes}, now)
}

// RevokePlaygroundKeys revokes the playground keys of a member whose role changes or ends, and with
// them their tokens.
func RevokePlaygroundKeys(ctx context.Context, tx *db.Tx, workspaceID, userID string, now time.Time) error {
	revoked, err := db.List(ctx, tx, db.Value[string], `UPDATE keys SET revoked_at = $3
		WHERE workspace_id = $1 AND member_id = $2 AND revoked_at IS NULL RETURNING id`, workspaceID, userID, now.UnixMicro())
	for _, id := range revoked {
		tx.Signal(SignalKey, id)
	}
	return db.Wrap(err, "revoke playground keys")
}

// IsPlayground reports whether a visible key belongs to someone's playground.
func (m *Keys) IsPlayground(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM keys WHERE id = $1 AND workspace_id = $2 AND environment = $3 AND member_id IS NOT NULL)",
		id, vis.WorkspaceID, string(vis.Environment)))
}
