package access

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

type fixture struct {
	db    *db.DB
	auth  *Authenticator
	now   time.Time
	value string
	key   *Key
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{db: d, now: time.Now()}
	clock := func() time.Time { return f.now }
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		t.Fatal(err)
	}
	if f.auth, err = NewAuthenticator(d, ring, NewLastUsed(d), clock); err != nil {
		t.Fatal(err)
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		w := &accounts.Workspace{Name: "acme"}
		if err := accounts.CreateWorkspace(t.Context(), tx, w, f.now); err != nil {
			return err
		}
		f.key = &Key{Tenant: w.In(accounts.Test), Name: "n", Scopes: []string{"*"}}
		f.value, err = NewKeys(ring, clock).Create(t.Context(), tx, Caller{Actor: audit.Operator}, f.key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) accepted(t *testing.T) bool {
	t.Helper()
	_, err := f.auth.Authenticate(t.Context(), f.value, "127.0.0.1")
	if err != nil && !fault.Is(err, fault.Authentication) {
		t.Fatal(err)
	}
	return err == nil
}

// revokeSilently revokes the key without a signal.
func (f *fixture) revokeSilently(t *testing.T) {
	t.Helper()
	err := f.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE keys SET revoked_at = 1 WHERE id = $1", f.key.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCachedKeyIsReloadedAfterTenSeconds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.auth.invalidate("") // so that a late first signal can't invalidate the key later
		if !f.accepted(t) {
			t.Fatal("a valid key is rejected")
		}
		f.revokeSilently(t)
		f.now = f.now.Add(cacheTTL)
		if f.accepted(t) {
			t.Error("a revoked key is accepted after cacheTTL")
		}
	})
}

func TestReadFromBeforeRevocationIsNotCached(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		hash := f.auth.ring.Hash(f.value)
		f.auth.mu.RLock()
		generation := f.auth.generation
		f.auth.mu.RUnlock()
		read, err := f.auth.loadKey(t.Context(), hashOf(f.auth.ring, f.value))
		if err != nil {
			t.Fatal(err)
		}
		read.loadedAt = f.now
		f.revokeSilently(t)
		f.auth.invalidate(f.key.ID) // the revocation's signal overtakes the read
		f.auth.store(hash, read, generation)
		if f.accepted(t) {
			t.Error("a revoked key is cached")
		}
	})
}

func BenchmarkAuthenticateCached(b *testing.B) {
	d := dbtest.Open(b, dbtest.Address(b, "sqlite"))
	ring, err := keyring.New(make([]byte, keyring.Size))
	if err != nil {
		b.Fatal(err)
	}
	auth, err := NewAuthenticator(d, ring, NewLastUsed(d), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	var value string
	err = d.Write(b.Context(), func(tx *db.Tx) error {
		w := &accounts.Workspace{Name: "acme"}
		if err := accounts.CreateWorkspace(b.Context(), tx, w, time.Now()); err != nil {
			return err
		}
		value, err = NewKeys(ring, time.Now).Create(b.Context(), tx, Caller{Actor: audit.Operator},
			&Key{Tenant: w.In(accounts.Test), Name: "n", Scopes: []string{"*"}})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := auth.Authenticate(b.Context(), value, "127.0.0.1"); err != nil {
			b.Fatal(err)
		}
	}
}

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
			p, err := PrincipalOf(t.Context(), d, f.key.ID, nil, f.now)
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
		if p, err := PrincipalOf(t.Context(), d, "key_none", nil, f.now); p != nil || err != nil {
			t.Errorf("one that never was: %+v %v", p, err)
		}
	})
}
