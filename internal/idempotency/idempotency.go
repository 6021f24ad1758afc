// Package idempotency stores the responses to requests with an Idempotency-Key,
// so that a retry gets the first response and isn't executed again.
package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

const (
	// Kept is how long a response is stored.
	Kept   = 24 * time.Hour
	maxKey = 255
)

// ErrTaken means that another node has already responded to the same request.
var ErrTaken = errors.New("the idempotency key was taken by another node")

// Request identifies a request by principal, method, path and key. A retry must
// have the same body.
type Request struct {
	Principal string
	Method    string
	PathHash  string // a path may exceed the size of an index entry
	Key       string
	BodyHash  string
	Account   string // the workspace and environment that the limit applies to
}

// NewRequest validates the key and hashes path and body.
func NewRequest(principal, method, path, key string, body []byte) (Request, error) {
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return Request{}, fault.Invalid("Idempotency-Key", "The Idempotency-Key must have 1 to %d printable ASCII characters.", maxKey)
	}
	if keyring.ContainsSecret(key) {
		return Request{}, fault.Invalid("Idempotency-Key", "This looks like an API key. An Idempotency-Key must not contain a secret.")
	}
	return Request{Principal: principal, Method: method, PathHash: hash([]byte(path)), Key: key, BodyHash: hash(body)}, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (r Request) sealContext() string {
	return strings.Join([]string{"idempotency", r.Principal, r.Method, r.PathHash, r.Key}, "\x00")
}

// Answer is a stored response.
type Answer struct {
	Status int
	Body   []byte
}

// Store stores responses. It encrypts them, because some contain a secret that
// is shown only once.
type Store struct {
	// Max limits the stored responses per account; 0 means unlimited. Set it
	// before the store is used.
	Max atomic.Int64

	ring *keyring.Ring
	now  func() time.Time

	mu      sync.Mutex
	running map[Request]struct{}
}

// New creates a store.
func New(ring *keyring.Ring, now func() time.Time) *Store {
	return &Store{ring: ring, now: now, running: map[Request]struct{}{}}
}

// Claim rejects a second request with the same key while the first runs on this
// node. On another node, the second waits for the first's commit and then finds
// its response. The caller must call release at least once.
func (s *Store) Claim(r Request) (release func(), err error) {
	at := r
	at.BodyHash = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.running[at]; busy {
		return nil, fault.Param(fault.Conflict, "Idempotency-Key", "The first request with this Idempotency-Key is still in progress. Retry shortly.")
	}
	s.running[at] = struct{}{}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, at)
	}), nil
}

// Find returns the stored response, or nil. It rejects the same key with a
// different body.
func (s *Store) Find(ctx context.Context, q db.Querier, r Request) (*Answer, error) {
	var hash, sealed string
	var status int64
	err := q.QueryRow(ctx, `SELECT body_hash, status, answer FROM idempotency
		WHERE principal = $1 AND method = $2 AND path_hash = $3 AND idem_key = $4 AND created_at > $5`,
		r.Principal, r.Method, r.PathHash, r.Key, s.now().Add(-Kept).UnixMicro()).Scan(&hash, &status, &sealed)
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up idempotency key: %w", err)
	}
	if hash != r.BodyHash {
		return nil, fault.Param(fault.IdempotencyKeyReused, "Idempotency-Key", "This Idempotency-Key was used with another request body. Use a new one for a new request.")
	}
	body, err := s.ring.Open(sealed, r.sealContext())
	if err != nil {
		return nil, fmt.Errorf("remembered answer: %w", err)
	}
	return &Answer{int(status), body}, nil
}

// Remember stores the response in the transaction that executes the request, so
// that neither exists without the other. On ErrTaken the caller must roll back.
func (s *Store) Remember(ctx context.Context, tx *db.Tx, r Request, a Answer) error {
	now := s.now()
	n, err := tx.Exec(ctx, `INSERT INTO idempotency (principal, method, path_hash, idem_key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (principal, method, path_hash, idem_key) DO UPDATE SET
		body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
		WHERE idempotency.created_at <= $9`,
		r.Principal, r.Method, r.PathHash, r.Key, r.BodyHash, int64(a.Status), s.ring.Seal(a.Body, r.sealContext()),
		now.UnixMicro(), now.Add(-Kept).UnixMicro())
	if err == nil && n == 0 {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	// A response counts for at most an hour after it expires.
	limit := accounts.ExpiringLimit{ID: "idempotency/" + r.Account, Max: s.Max.Load(), Granularity: time.Hour}
	err = limit.Add(ctx, tx, now.Add(Kept), now)
	if full, ok := errors.AsType[*accounts.LimitReachedError](err); ok {
		f := fault.Param(fault.RateLimitExceeded, "Idempotency-Key", "This workspace has %d remembered responses to requests with an Idempotency-Key, which is the limit. Send the request without one, or retry after %s.",
			full.Max, full.Until.UTC().Format(time.RFC3339))
		f.RetryAfter = full.Until.Sub(now)
		return f.Because(full)
	}
	return err
}

// Purge deletes at most limit expired responses.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM idempotency WHERE (principal, method, path_hash, idem_key) IN
		(SELECT principal, method, path_hash, idem_key FROM idempotency WHERE created_at <= $1 LIMIT $2)`,
		s.now().Add(-Kept).UnixMicro(), limit)
}
