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
