package access

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
)

// Exposed is what a secret that strangers have seen belongs to. Exactly one of
// Key and Token is set.
type Exposed struct {
	Key      *Key
	Current  bool   // it is the key's secret now
	Previous bool   // it is the one that a rotation replaced, in its grace
	Hint     string // of the secret, which may not be the key's

	Token *Token
}

// KnowsSecret reports whether a secret of a valid shape is stored at all. It
// writes nothing and locks nothing.
func (m *Keys) KnowsSecret(ctx context.Context, q db.Querier, value string) (bool, error) {
	var one int64
	err := q.QueryRow(ctx, `SELECT 1 FROM key_secrets WHERE hash = $1
		UNION ALL SELECT 1 FROM scoped_tokens WHERE hash = $1`, hashOf(m.ring, value)).Scan(&one)
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// FindExposed finds what a secret of a valid shape belongs to, in whatever
// workspace, and locks it. Nil is nobody's.
func (m *Keys) FindExposed(ctx context.Context, tx *db.Tx, value string) (*Exposed, error) {
	prefix, ok := ParseSecret(value)
	if !ok {
		return nil, nil
	}
	find := m.exposedKey
	if prefix == PrefixScoped {
		find = m.exposedToken
	}
	e, err := find(ctx, tx, hashOf(m.ring, value))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e.Hint = prefix + "…" + lastFour(value)
	return e, nil
}

func (m *Keys) exposedKey(ctx context.Context, tx *db.Tx, hash string) (*Exposed, error) {
	var id string
	if err := tx.QueryRow(ctx, "SELECT key_id FROM key_secrets WHERE hash = $1", hash).Scan(&id); err != nil {
		return nil, err
	}
	k, err := m.FindLocked(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	// Under the lock: a rotation may have made it the previous one meanwhile.
	var retires *int64
	if err := tx.QueryRow(ctx, "SELECT retires_at FROM key_secrets WHERE hash = $1", hash).Scan(&retires); err != nil {
		return nil, err
	}
	return &Exposed{Key: k, Current: retires == nil, Previous: retires != nil && m.now().Before(time.UnixMicro(*retires))}, nil
}

func (m *Keys) exposedToken(ctx context.Context, tx *db.Tx, hash string) (*Exposed, error) {
	var t Token
	var env string
	var expires int64
	var revoked *int64
	err := tx.QueryRow(ctx, `SELECT id, key_id, workspace_id, environment, expires_at, revoked_at FROM scoped_tokens
		WHERE hash = $1`+tx.Lock("scoped_tokens"), hash).Scan(&t.ID, &t.KeyID, &t.WorkspaceID, &env, &expires, &revoked)
	if err != nil {
		return nil, err
	}
	t.Environment = accounts.Environment(env)
	t.ExpiresAt, t.RevokedAt = time.UnixMicro(expires), db.Time(revoked)
	return &Exposed{Token: &t}, nil
}
