package access

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Rotation are the options of Rotate. Grace is how long the old secret keeps working.
type Rotation struct {
	Grace time.Duration
	Force bool // end the grace period of an earlier rotation
}

// Rotate gives a key read by GetLocked a new secret and returns it. The key keeps its ID, scopes, budget
// and usage.
func (m *Keys) Rotate(ctx context.Context, tx *db.Tx, by Caller, k *Key, r Rotation) (value string, err error) {
	now := m.now()
	if s := k.Status(now); s == "revoked" || s == "expired" {
		return "", fault.New(fault.InvalidState, "The key is %s and cannot be rotated. Create a new one.", s)
	}
	if r.Grace < 0 || r.Grace > accounts.MaxRotationGrace {
		return "", fault.Invalid("grace_period_seconds", "grace_period_seconds must be from 0 to %d.", accounts.MaxRotationGrace/time.Second)
	}
	if err := by.checkBounds(k); err != nil {
		return "", err
	}
	if k.Previous != nil && !r.Force {
		return "", fault.New(fault.InvalidState, "The key was rotated recently, and its old secret still works. End the grace period first, or send force: true.")
	}
	if _, err := tx.Exec(ctx, "DELETE FROM key_secrets WHERE key_id = $1 AND retires_at IS NOT NULL", k.ID); err != nil {
		return "", err
	}
	ends := now.Add(r.Grace)
	if r.Grace > 0 {
		_, err = tx.Exec(ctx, "UPDATE key_secrets SET retires_at = $2 WHERE key_id = $1", k.ID, ends.UnixMicro())
	} else {
		_, err = tx.Exec(ctx, "DELETE FROM key_secrets WHERE key_id = $1", k.ID)
	}
	if err != nil {
		return "", err
	}
	value = keyring.NewSecret(KindOf(k.Environment))
	if err := m.addSecret(ctx, tx, k.ID, value, now); err != nil {
		return "", err
	}
	if err := storePrefix(ctx, tx, k.ID, value); err != nil {
		return "", err
	}
	tx.Signal(SignalKey, k.ID)
	return value, m.log(ctx, tx, by, keyAction{"key.rotated", k, map[string]any{
		"key_hint": keyring.SecretHint(value), "previous_hint": k.Hint(), "grace_period_seconds": int64(r.Grace / time.Second)}})
}

// EndGrace invalidates the previous secret immediately.
func (m *Keys) EndGrace(ctx context.Context, tx *db.Tx, by Caller, k *Key) error {
	if err := by.checkBounds(k); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "DELETE FROM key_secrets WHERE key_id = $1 AND retires_at > $2", k.ID, m.now().UnixMicro())
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.InvalidState, "The key has no previous secret in a grace period.")
	}
	tx.Signal(SignalKey, k.ID)
	return m.log(ctx, tx, by, keyAction{"key.grace_ended", k, map[string]any{"key_hint": k.Hint()}})
}

// PurgeSecrets deletes a batch of secrets whose grace period has ended.
func (m *Keys) PurgeSecrets(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM key_secrets WHERE hash IN
		(SELECT hash FROM key_secrets WHERE retires_at <= $1 LIMIT $2)`, m.now().UnixMicro(), limit)
}

// HasValue reports whether the key's current secret is the value.
func (m *Keys) HasValue(ctx context.Context, q db.Querier, keyID, value string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM key_secrets WHERE hash = $1 AND key_id = $2 AND retires_at IS NULL)", hashOf(m.ring, value), keyID))
}

// UseValue replaces the secret of a key that was just created by one that an operator has stored elsewhere.
func (m *Keys) UseValue(ctx context.Context, tx *db.Tx, k *Key, value string) error {
	if kind, ok := ParseSecret(value); !ok || kind != KindOf(k.Environment) {
		return fault.Invalid("value_file", "The file must contain a key that Turnpike created, which begins with %s.", k.Prefix)
	}
	used, err := db.Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM key_secrets WHERE hash = $1)", hashOf(m.ring, value)))
	if err != nil {
		return err
	}
	if used {
		return fault.Invalid("value_file", "The value in the file belongs to another key.")
	}
	if err := storePrefix(ctx, tx, k.ID, value); err != nil {
		return err
	}
	_, k.Prefix = keyring.KindOf(value)
	_, err = tx.Exec(ctx, "UPDATE key_secrets SET hash = $2, last_four = $3 WHERE key_id = $1 AND retires_at IS NULL", k.ID, hashOf(m.ring, value), lastFour(value))
	k.LastFour = lastFour(value)
	return err
}

// storePrefix stores the prefix of a key's new secret, which differs from that of the old one if the server's prefix has changed.
func storePrefix(ctx context.Context, tx *db.Tx, keyID, value string) error {
	_, prefix := keyring.KindOf(value)
	_, err := tx.Exec(ctx, "UPDATE keys SET prefix = $2 WHERE id = $1 AND prefix <> $2", keyID, prefix)
	return err
}
