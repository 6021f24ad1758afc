package access

import (
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
)

func TestWorkContinuesOnlyForActiveKeys(t *testing.T) {
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
		check := func(when string, want bool) *Principal {
			t.Helper()
			active, err := IsKeyActive(t.Context(), d, f.key.ID, f.now)
			if err != nil || active != want {
				t.Errorf("%s: got active %t, want %t (%v)", when, active, want, err)
			}
			p, err := PrincipalOf(t.Context(), d, f.key.ID, f.now)
			if err != nil || (p != nil) != want {
				t.Errorf("%s: got principal %+v (%v)", when, p, err)
			}
			return p
		}
		known, err := f.auth.Authenticate(t.Context(), f.value, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		p := check("at first", true)
		if p.KeyID != known.KeyID || p.WorkspaceID != known.WorkspaceID || p.Environment != known.Environment || p.KeyHint != known.KeyHint || p.Token != nil {
			t.Errorf("got %+v, want %+v as authenticated", p, known)
		}
		change("rotate", func(tx *db.Tx, k *Key) error {
			_, err := keys.Rotate(t.Context(), tx, Caller{Actor: audit.Operator}, k, Rotation{Grace: time.Hour})
			return err
		})
		if after := check("in its grace", true); after.KeyHint == p.KeyHint {
			t.Errorf("got the old hint %s", after.KeyHint)
		}
		f.now = f.now.Add(2 * time.Hour)
		check("after its grace", true)
		expires := f.now.Add(time.Hour)
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE keys SET expires_at = $2 WHERE id = $1", f.key.ID, expires.UnixMicro())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		f.now = expires.Add(-time.Microsecond)
		check("before its end", true)
		f.now = expires
		check("at its end", false)
		f.now = expires.Add(-time.Minute)
		change("revoke", func(tx *db.Tx, k *Key) error { return keys.Revoke(t.Context(), tx, Caller{Actor: audit.Operator}, k) })
		check("revoked", false)
		if alive, err := IsKeyActive(t.Context(), d, "key_none", f.now); alive || err != nil {
			t.Errorf("one that never was: %t %v", alive, err)
		}
		if p, err := PrincipalOf(t.Context(), d, "key_none", f.now); p != nil || err != nil {
			t.Errorf("one that never was: %+v %v", p, err)
		}
	})
}
