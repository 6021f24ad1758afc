// Package idempotency remembers the answers to requests that carry an
// Idempotency-Key, so that a retry gets the first answer instead of doing the
// thing again.
package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

const (
	// Kept is how long an answer is remembered.
	Kept   = 24 * time.Hour
	maxKey = 255
)

// ErrTaken says that another node has answered the same request meanwhile.
var ErrTaken = errors.New("the idempotency key was taken by another node")

// Request identifies what is being repeated: the same principal, method, path
// and key. The body must be the same too.
type Request struct {
	Principal string
	Method    string
	PathHash  string // a path may be longer than an index can hold
	Key       string
	BodyHash  string
	Account   string // the workspace and environment whose answers are counted together
}

// NewRequest checks the key and hashes path and body.
func NewRequest(principal, method, path, key string, body []byte) (Request, error) {
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return Request{}, fault.Invalid("Idempotency-Key", "an Idempotency-Key is 1 to %d printable ASCII characters", maxKey)
	}
	if keyring.ContainsSecret(key) {
		return Request{}, fault.Invalid("Idempotency-Key", "this looks like an API key; an Idempotency-Key is no secret")
	}
	return Request{Principal: principal, Method: method, PathHash: hash([]byte(path)), Key: key, BodyHash: hash(body)}, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (r Request) place() string {
	return strings.Join([]string{"idempotency", r.Principal, r.Method, r.PathHash, r.Key}, "\x00")
}

// Answer is what is remembered.
type Answer struct {
	Status int
	Body   []byte
}

// Store remembers answers, sealed, because some hold a secret that is
// otherwise shown once.
type Store struct {
	// Max is how many answers are remembered for an account; 0 is no limit. It
	// must be set before the store is used.
	Max int64

	ring *keyring.Ring
	now  func() time.Time

	mu      sync.Mutex
	running map[Request]struct{}
}

// New makes a store.
func New(ring *keyring.Ring, now func() time.Time) *Store {
	return &Store{ring: ring, now: now, running: map[Request]struct{}{}}
}

// Claim keeps a second request with the same key from running beside the
// first on this node. (On another node it waits for the first's commit and
// then finds its answer.) The caller calls release when it is done, at least
// once.
func (s *Store) Claim(r Request) (release func(), err error) {
	at := r
	at.BodyHash = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.running[at]; busy {
		return nil, fault.Param(fault.Conflict, "Idempotency-Key", "the first request with this Idempotency-Key is still running; try again in a moment")
	}
	s.running[at] = struct{}{}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, at)
	}), nil
}

// Find returns the remembered answer, or nil when there is none. The same key
// with another body is refused.
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
		return nil, fault.Param(fault.IdempotencyKeyReused, "Idempotency-Key", "this Idempotency-Key was used with another request body; use a new one for a new request")
	}
	body, err := s.ring.Open(sealed, r.place())
	if err != nil {
		return nil, fmt.Errorf("remembered answer: %w", err)
	}
	return &Answer{int(status), body}, nil
}

// Remember stores the answer in the transaction that did the thing, so that
// there is never one without the other. ErrTaken says that another node
// was faster: then this transaction must not happen.
func (s *Store) Remember(ctx context.Context, tx *db.Tx, r Request, a Answer) error {
	now := s.now()
	n, err := tx.Exec(ctx, `INSERT INTO idempotency (principal, method, path_hash, idem_key, body_hash, status, answer, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (principal, method, path_hash, idem_key) DO UPDATE SET
		body_hash = excluded.body_hash, status = excluded.status, answer = excluded.answer, created_at = excluded.created_at
		WHERE idempotency.created_at <= $9`,
		r.Principal, r.Method, r.PathHash, r.Key, r.BodyHash, int64(a.Status), s.ring.Seal(a.Body, r.place()),
		now.UnixMicro(), now.Add(-Kept).UnixMicro())
	if err == nil && n == 0 {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	err = s.remembered(r).Add(ctx, tx, now.Add(Kept), now)
	var full *accounts.LimitReachedError
	if errors.As(err, &full) {
		f := fault.Param(fault.RateLimitExceeded, "Idempotency-Key", "This workspace has %d remembered responses to requests with an Idempotency-Key, which is the limit. Send the request without one, or retry after %s.",
			full.Max, full.Until.UTC().Format(time.RFC3339))
		f.RetryAfter = full.Until.Sub(now)
		return f.Because(full)
	}
	return err
}

// remembered counts an account's answers. One stops counting at most an hour
// after it was forgotten.
func (s *Store) remembered(r Request) accounts.ExpiringLimit {
	return accounts.ExpiringLimit{ID: "idempotency/" + r.Account, Max: s.Max, Granularity: time.Hour}
}

// Purge deletes forgotten answers, a batch at a time.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM idempotency WHERE (principal, method, path_hash, idem_key) IN
		(SELECT principal, method, path_hash, idem_key FROM idempotency WHERE created_at <= $1 LIMIT $2)`,
		s.now().Add(-Kept).UnixMicro(), limit)
}
