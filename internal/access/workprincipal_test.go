package access

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
)

// TestAKeyThatWorkGoesOnFor is neither revoked nor expired, however often it
// was rotated.
func TestAKeyThatWorkGoesOnFor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		ring, err := keyring.New(make([]byte, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		keys := NewKeys(ring, func() time.Time { return f.now })
		change := func(what string, fn func(tx *db.Tx, k *Key) error) {
			t.Helper()
			err := d.Write(t.Context(), func(tx *db.Tx) error {
				k, err := keys.FindLocked(t.Context(), tx, f.key.ID)
				if err != nil {
					return err
				}
				return fn(tx, k)
			})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		lives := func(when string, want bool) *Principal {
			t.Helper()
			alive, err := KeyLives(t.Context(), d, f.key.ID, f.now)
			if err != nil || alive != want {
				t.Errorf("%s: it lives: %t %v", when, alive, err)
			}
			p, err := PrincipalOf(t.Context(), d, f.key.ID, f.now)
			if err != nil || (p != nil) != want {
				t.Errorf("%s: it is %+v %v", when, p, err)
			}
			return p
		}
		known, err := f.auth.Authenticate(t.Context(), f.value, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		p := lives("at first", true)
		if p.KeyID != known.KeyID || p.WorkspaceID != known.WorkspaceID || p.Environment != known.Environment || p.KeyHint != known.KeyHint || p.Token != nil {
			t.Errorf("it is %+v, and by its value %+v", p, known)
		}
		change("rotate", func(tx *db.Tx, k *Key) error {
			_, err := keys.Rotate(t.Context(), tx, Caller{Actor: audit.Operator}, k, Rotation{Grace: time.Hour})
			return err
		})
		if after := lives("in its grace", true); after.KeyHint == p.KeyHint {
			t.Errorf("its hint is still %s", after.KeyHint)
		}
		f.now = f.now.Add(2 * time.Hour)
		lives("after its grace", true)
		expires := f.now.Add(time.Hour)
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE keys SET expires_at = $2 WHERE id = $1", f.key.ID, expires.UnixMicro())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		f.now = expires.Add(-time.Microsecond)
		lives("before its end", true)
		f.now = expires
		lives("at its end", false)
		f.now = expires.Add(-time.Minute)
		change("revoke", func(tx *db.Tx, k *Key) error { return keys.Revoke(t.Context(), tx, Caller{Actor: audit.Operator}, k) })
		lives("revoked", false)
		if alive, err := KeyLives(t.Context(), d, "key_none", f.now); alive || err != nil {
			t.Errorf("one that never was: %t %v", alive, err)
		}
		if p, err := PrincipalOf(t.Context(), d, "key_none", f.now); p != nil || err != nil {
			t.Errorf("one that never was: %+v %v", p, err)
		}
	})
}
