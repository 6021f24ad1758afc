package access

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

const (
	// cacheTTL limits how long a node that misses signals accepts a revoked key. If the database is
	// unavailable, it rejects the key after that.
	cacheTTL  = 10 * time.Second
	cacheSize = 100_000

	// loadTimeout is how long a request waits for the database.
	loadTimeout = 4 * time.Second
)

// Authenticator authenticates bearer secrets: by format and checksum, then in memory, then in the
// database.
type Authenticator struct {
	db    *db.DB
	ring  *keyring.Ring
	now   func() time.Time
	used  *LastUsed
	cache *otter.Cache[[32]byte, *credential]
	// known are keys that were valid at their last lookup. Unlike the cache it survives changes, and it
	// grants no access.
	known *otter.Cache[[32]byte, struct{}]

	// mu orders stores and invalidations, so that a read from before a revocation can't cache the key
	// after it.
	mu         sync.RWMutex
	generation int64
}

// credential is a bearer secret that was valid when it was loaded.
type credential struct {
	principal Principal
	hash      string
	loadedAt  time.Time
	ends      time.Time // when it expires; zero for never
	lastTouch atomic.Int64
}

// NewAuthenticator returns an authenticator that follows changes on any node.
func NewAuthenticator(d *db.DB, ring *keyring.Ring, used *LastUsed, now func() time.Time) (*Authenticator, error) {
	cache, err := otter.New(&otter.Options[[32]byte, *credential]{MaximumSize: cacheSize})
	if err != nil {
		return nil, fmt.Errorf("key cache: %w", err)
	}
	known, err := otter.New(&otter.Options[[32]byte, struct{}]{MaximumSize: cacheSize})
	if err != nil {
		return nil, fmt.Errorf("known keys: %w", err)
	}
	a := &Authenticator{db: d, ring: ring, now: now, used: used, cache: cache, known: known}
	d.OnSignal(SignalKey, a.invalidate)
	return a, nil
}

func (a *Authenticator) invalidate(keyID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generation++
	if keyID == "" {
		a.cache.InvalidateAll()
		return
	}
	for hash, c := range a.cache.All() {
		if c.principal.dependsOn(keyID) {
			a.cache.Invalidate(hash)
		}
	}
}

// errUnauthenticated is the same for every cause, so that it reveals nothing about a key.
func errUnauthenticated() error {
	return fault.New(fault.Authentication, "Missing or invalid API key. Send one as: Authorization: Bearer tp_live_… (or tp_test_… for the sandbox).")
}

// Authenticate returns the principal of a bearer secret and records ip as the key's last address.
func (a *Authenticator) Authenticate(ctx context.Context, bearer, ip string) (*Principal, error) {
	kind, ok := ParseSecret(bearer)
	if !ok || kind == keyring.AdminKey { // which belongs to no workspace
		return nil, errUnauthenticated()
	}
	hash := a.ring.Hash(bearer)
	now := a.now()
	c, ok := a.cache.GetIfPresent(hash)
	if !ok || now.Sub(c.loadedAt) >= cacheTTL {
		var err error
		if c, err = a.load(ctx, kind, hash, now); err != nil {
			return nil, err
		}
	}
	if !c.ends.IsZero() && !now.Before(c.ends) {
		return nil, errUnauthenticated()
	}
	a.used.touch(c, ip, now)
	return &c.principal, nil
}

// IsKnown reports from memory whether the bearer secret was valid at its last lookup on this node.
func (a *Authenticator) IsKnown(bearer string) bool {
	if _, ok := ParseSecret(bearer); !ok {
		return false
	}
	_, ok := a.known.GetIfPresent(a.ring.Hash(bearer))
	return ok
}

func (a *Authenticator) load(ctx context.Context, kind keyring.Kind, hash [32]byte, now time.Time) (*credential, error) {
	a.mu.RLock()
	generation := a.generation
	a.mu.RUnlock()
	read := a.loadKey
	if kind == keyring.ScopedToken {
		read = a.loadToken
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := read(ctx, hex.EncodeToString(hash[:]))
	if errors.Is(err, db.ErrNotFound) {
		a.known.Invalidate(hash)
		return nil, errUnauthenticated()
	}
	if err != nil {
		return nil, fmt.Errorf("look up key: %w", err)
	}
	a.known.Set(hash, struct{}{})
	c.loadedAt = now
	a.store(hash, c, generation)
	return c, nil
}

// store caches what was read, unless something changed since the read started.
func (a *Authenticator) store(hash [32]byte, c *credential, generation int64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if generation == a.generation {
		a.cache.Set(hash, c)
	}
}

func (a *Authenticator) loadKey(ctx context.Context, hash string) (*credential, error) {
	var k Key
	var retires *time.Time
	err := scanKeyColumns(a.db.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four, s.retires_at
		FROM key_secrets s JOIN keys k ON k.id = s.key_id WHERE s.hash = $1`, hash), &k, &k.LastFour, &retires)
	if err != nil {
		return nil, err
	}
	if k.RevokedAt != nil {
		return nil, db.ErrNotFound
	}
	p, ends, err := k.principal(ctx, a.db)
	if err != nil {
		return nil, err
	}
	return &credential{principal: p, hash: hash, ends: earliest(ends, retires)}, nil
}

func (a *Authenticator) loadToken(ctx context.Context, hash string) (*credential, error) {
	var k Key
	var token TokenIdentity
	var scopes []string
	var project string
	var ends, revoked *time.Time
	err := scanKeyColumns(a.db.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four,
		t.id, t.scopes, t.project, t.metadata, t.metadata_hash, t.expires_at, t.revoked_at, t.allowed_models, t.allowed_providers, t.end_user_id
		FROM scoped_tokens t JOIN keys k ON k.id = t.key_id JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL
		WHERE t.hash = $1`, hash),
		&k, &k.LastFour, &token.ID, &scopes, &project, &token.Metadata, &token.MetadataHash, &ends, &revoked, &token.Allowed.Models, &token.Allowed.Providers, &token.EndUserID)
	if err != nil {
		return nil, err
	}
	if k.RevokedAt != nil || revoked != nil {
		return nil, db.ErrNotFound
	}
	p, keyEnds, err := k.principal(ctx, a.db)
	if err != nil {
		return nil, err
	}
	_, grant, err := ParseScopes(scopes)
	if err != nil {
		return nil, err
	}
	p.Token = &token
	p.limitByToken(p.TokenLimits())
	p.Scopes = scopes
	p.Grant &= grant   // the token's scopes that its parent has now
	p.AllowedIPs = nil // token clients may use any address
	for i := range p.Ancestors {
		p.Ancestors[i].AllowedIPs = nil
	}
	if p.Project == "" { // the parent's pin applies to its tokens
		p.Project = project
	}
	return &credential{principal: p, ends: earliest(keyEnds, ends)}, nil
}

// principal returns the key's principal within the bounds of its ancestors, and when the first of them
// expires.
func (k *Key) principal(ctx context.Context, q db.Querier) (p Principal, ends *time.Time, err error) {
	scopes, grant, err := ParseScopes(k.Scopes)
	if err != nil {
		return Principal{}, nil, fmt.Errorf("key %s: %w", k.ID, err)
	}
	p = Principal{Tenant: k.Tenant, KeyID: k.ID, KeyHint: k.Hint(), Scopes: scopes, Grant: grant,
		Project: k.Project, AllowedIPs: k.AllowedIPs, MonthlyBudget: k.MonthlyBudget, Raise: k.Raise, Limits: k.Limits, RateLimit: k.RateLimit, AllowedTools: k.AllowedTools, ExpiresAt: k.ExpiresAt, ContentDays: k.ContentDays, ContentOptOut: k.ContentOptOut}
	p.limitModels(LimitOfKey, k.Allowed)
	if k.ParentID == "" {
		return p, k.ExpiresAt, nil
	}
	ancestors, err := ancestorsOf(ctx, q, k)
	if err != nil {
		return Principal{}, nil, fmt.Errorf("ancestors of key %s: %w", k.ID, err)
	}
	ends, err = p.inherit(ancestors)
	return p, ends, err
}

// earliest returns the first of the times, ignoring nil.
func earliest(times ...*time.Time) time.Time {
	var first time.Time
	for _, m := range times {
		if m != nil && (first.IsZero() || m.Before(first)) {
			first = *m
		}
	}
	return first
}

// PrincipalOf returns the principal of a key for work that it or one of its tokens started, or nil if the
// key is revoked or expired. limits are those of the token.
func PrincipalOf(ctx context.Context, q db.Querier, keyID string, limits *TokenLimits, now time.Time) (*Principal, error) {
	var k Key
	err := scanKeyColumns(q.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four
		FROM keys k JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL WHERE k.id = $1`, keyID), &k, &k.LastFour)
	if errors.Is(err, db.ErrNotFound) || err == nil && k.RevokedAt != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, ends, err := k.principal(ctx, q)
	if err != nil || ends != nil && !now.Before(*ends) {
		return nil, err
	}
	p.limitByToken(limits)
	return &p, nil
}
