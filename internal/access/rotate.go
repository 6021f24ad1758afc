package access

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// Rotation asks for a new secret. Grace is how long the old one still works.
type Rotation struct {
	Grace time.Duration
	Force bool // even inside the grace of an earlier rotation
}

// Rotate gives the key, read by GetLocked, a second secret and returns it. The
// key keeps its id, scopes, budget and usage.
func (m *Keys) Rotate(ctx context.Context, tx *db.Tx, by Caller, k *Key, r Rotation) (value string, err error) {
	now := m.now()
	if s := k.Status(now); s == "revoked" || s == "expired" {
		return "", fault.New(fault.InvalidState, "the key is %s, so it cannot be rotated; create a new one", s)
	}
	if r.Grace < 0 || r.Grace > accounts.MaxRotationGrace {
		return "", fault.Invalid("grace_period_seconds", "grace_period_seconds must be from 0 to %d", accounts.MaxRotationGrace/time.Second)
	}
	if err := by.covers(k); err != nil {
		return "", err
	}
	if k.Previous != nil && !r.Force {
		return "", fault.New(fault.InvalidState, "the key was rotated a moment ago and its old secret still works; end its grace first, or send force: true to end it now")
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
	value = newSecret(k.Prefix)
	if err := m.addSecret(ctx, tx, k.ID, value, now); err != nil {
		return "", err
	}
	tx.Signal(SignalKey, k.ID)
	return value, m.log(ctx, tx, by, k, "key.rotated", map[string]any{
		"key_hint": k.Prefix + "…" + lastFour(value), "previous_hint": k.Hint(), "grace_period_seconds": int64(r.Grace / time.Second)})
}

// EndGrace makes the previous secret stop working now.
func (m *Keys) EndGrace(ctx context.Context, tx *db.Tx, by Caller, k *Key) error {
	if err := by.covers(k); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, "DELETE FROM key_secrets WHERE key_id = $1 AND retires_at > $2", k.ID, m.now().UnixMicro())
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.InvalidState, "the key has no previous secret whose grace could be ended")
	}
	tx.Signal(SignalKey, k.ID)
	return m.log(ctx, tx, by, k, "key.grace_ended", map[string]any{"key_hint": k.Hint()})
}

// PurgeSecrets forgets secrets whose grace has ended, a batch at a time.
func (m *Keys) PurgeSecrets(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM key_secrets WHERE hash IN
		(SELECT hash FROM key_secrets WHERE retires_at <= $1 LIMIT $2)`, m.now().UnixMicro(), limit)
}
