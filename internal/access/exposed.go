package access

import (
	"context"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

// Exposed is the owner of a leaked secret. Exactly one of Key and Token is set.
type Exposed struct {
	Key      *Key
	Current  bool   // it is the key's current secret
	Previous bool   // it is the previous secret in its grace period
	Hint     string // of the secret, which may not be the key's

	Token *Token
}

// KnowsSecret reports whether a well-formed secret is stored. It doesn't write or lock.
func (m *Keys) KnowsSecret(ctx context.Context, q db.Querier, value string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM key_secrets WHERE hash = $1)
		OR EXISTS (SELECT 1 FROM scoped_tokens WHERE hash = $1)`, hashOf(m.ring, value)))
}

// FindExposed finds and locks the owner of a secret in any workspace. It returns nil for unknown secrets.
func (m *Keys) FindExposed(ctx context.Context, tx *db.Tx, value string) (*Exposed, error) {
	kind, ok := ParseSecret(value)
	if !ok {
		return nil, nil
	}
	find := m.exposedKey
	if kind == keyring.ScopedToken {
		find = m.exposedToken
	}
	e, err := find(ctx, tx, hashOf(m.ring, value))
	if err != nil {
		return nil, db.IgnoreNotFound(err)
	}
	e.Hint = keyring.SecretHint(value)
	return e, nil
}

func (m *Keys) exposedKey(ctx context.Context, tx *db.Tx, hash string) (*Exposed, error) {
	id, err := db.Value[string](tx.QueryRow(ctx, "SELECT key_id FROM key_secrets WHERE hash = $1", hash))
	if err != nil {
		return nil, err
	}
	k, err := m.FindLocked(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	// Read under the lock, because a rotation may have replaced it.
	retires, err := db.Value[time.Time](tx.QueryRow(ctx, "SELECT retires_at FROM key_secrets WHERE hash = $1", hash))
	return &Exposed{Key: k, Current: retires.IsZero(), Previous: m.now().Before(retires)}, err
}

func (m *Keys) exposedToken(ctx context.Context, tx *db.Tx, hash string) (*Exposed, error) {
	t, err := scanToken(tx.QueryRow(ctx, "SELECT "+tokenColumns+" FROM scoped_tokens WHERE hash = $1"+tx.Lock("scoped_tokens"), hash))
	return &Exposed{Token: t}, err
}
