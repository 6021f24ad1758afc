package idempotency_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/idempotency"
	"turnpike/internal/keyring"
)

func TestConcurrentRequestWithTheSameKeyIsRejected(t *testing.T) {
	t.Parallel()
	s := idempotency.New(nil, time.Now)
	first, err := idempotency.NewRequest("key_1", "POST", "/v1/keys", "k", []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	other, _ := idempotency.NewRequest("key_1", "POST", "/v1/keys", "k", []byte("b"))
	release, err := s.Claim(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []idempotency.Request{first, other} {
		if _, err := s.Claim(r); !fault.Is(err, fault.Conflict) {
			t.Errorf("second claim: got %v, want a conflict", err)
		}
	}
	release()
	if _, err := s.Claim(first); err != nil {
		t.Errorf("claim after release: got %v, want success", err)
	}
}

func TestResponseIsEncryptedAndStoredOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ring, err := keyring.New(make([]byte, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		s := idempotency.New(ring, time.Now)
		r, err := idempotency.NewRequest("key_1", "POST", "/"+strings.Repeat("x", 10_000), "k", []byte("a"))
		if err != nil {
			t.Fatal(err)
		}
		remember := func() error {
			return d.Write(t.Context(), func(tx *db.Tx) error {
				return s.Remember(t.Context(), tx, r, idempotency.Answer{Status: 200, Body: []byte("the secret")})
			})
		}
		if err := remember(); err != nil {
			t.Fatal(err)
		}
		if err := remember(); !errors.Is(err, idempotency.ErrTaken) {
			t.Errorf("second response: got %v, want ErrTaken", err)
		}
		var stored string
		if err := d.QueryRow(t.Context(), "SELECT answer FROM idempotency").Scan(&stored); err != nil || strings.Contains(stored, "secret") {
			t.Errorf("stored as %q, want no plaintext (%v)", stored, err)
		}
		if a, err := s.Find(t.Context(), d, r); err != nil || string(a.Body) != "the secret" {
			t.Errorf("found %v, %v", a, err)
		}
	})
}
