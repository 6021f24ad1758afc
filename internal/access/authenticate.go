package access

import (
	"context"
	"encoding/hex"
	"encoding/json"
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
	// cacheTTL is the promise of last resort: a node that hears of nothing
	// asks the store again after this long, and refuses when it cannot.
	cacheTTL  = 10 * time.Second
	cacheSize = 100_000

	// loadPatience is how long a caller waits for the store to say who it is.
	loadPatience = 4 * time.Second
)

// Authenticator turns a bearer value into a Principal: shape and checksum,
// then memory, then the store.
type Authenticator struct {
	db    *db.DB
	ring  *keyring.Ring
	now   func() time.Time
	used  *LastUsed
	cache *otter.Cache[[32]byte, *credential]
	// known are keys that were valid when they were last looked up. Unlike the
	// cache it outlives changes, and lets no one in.
	known *otter.Cache[[32]byte, struct{}]

	// mu orders filling the cache against invalidating it: a read that began
	// before a revocation must not put the key back after it.
	mu         sync.RWMutex
	generation int64
}

// credential is a bearer value that was valid when it was loaded, with every
// moment at which it stops being so.
type credential struct {
	principal Principal
	hash      string
	loadedAt  time.Time
	ends      time.Time // zero: never
	lastTouch atomic.Int64
}

// NewAuthenticator makes an authenticator that follows changes on any node.
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
	d.OnSignal(SignalKey, a.forget)
	return a, nil
}

func (a *Authenticator) forget(keyID string) {
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

// errRefused is the one answer for every cause: what was wrong with a key is
// nobody's business but its owner's.
func errRefused() error {
	return fault.New(fault.Authentication, "no valid API key was given; send one as: Authorization: Bearer tp_live_… (or tp_test_… for the sandbox)")
}

// Authenticate returns who the bearer value belongs to. ip is recorded as the
// key's last address.
func (a *Authenticator) Authenticate(ctx context.Context, bearer, ip string) (*Principal, error) {
	prefix, ok := ParseSecret(bearer)
	if !ok {
		return nil, errRefused()
	}
	hash := a.ring.Hash(bearer)
	now := a.now()
	c, ok := a.cache.GetIfPresent(hash)
	if !ok || now.Sub(c.loadedAt) >= cacheTTL {
		var err error
		if c, err = a.load(ctx, prefix, hash, now); err != nil {
			return nil, err
		}
	}
	if !c.ends.IsZero() && !now.Before(c.ends) {
		return nil, errRefused()
	}
	a.used.touch(c, ip, now)
	return &c.principal, nil
}

// Remembers reports whether the bearer value was valid when this node last
// looked it up, without asking the store. Authenticate decides whether it still is.
func (a *Authenticator) Remembers(bearer string) bool {
	if _, ok := ParseSecret(bearer); !ok {
		return false
	}
	_, ok := a.known.GetIfPresent(a.ring.Hash(bearer))
	return ok
}

func (a *Authenticator) load(ctx context.Context, prefix string, hash [32]byte, now time.Time) (*credential, error) {
	a.mu.RLock()
	generation := a.generation
	a.mu.RUnlock()
	read := a.loadKey
	if prefix == PrefixScoped {
		read = a.loadToken
	}
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	c, err := read(ctx, hex.EncodeToString(hash[:]))
	if errors.Is(err, db.ErrNotFound) {
		a.known.Invalidate(hash)
		return nil, errRefused()
	}
	if err != nil {
		return nil, fmt.Errorf("look up key: %w", err)
	}
	a.known.Set(hash, struct{}{})
	c.loadedAt = now
	a.remember(hash, c, generation)
	return c, nil
}

// remember caches what was read, unless something changed since the reading began.
func (a *Authenticator) remember(hash [32]byte, c *credential, generation int64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if generation == a.generation {
		a.cache.Set(hash, c)
	}
}

func (a *Authenticator) loadKey(ctx context.Context, hash string) (*credential, error) {
	var k Key
	var retires *int64
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
	return &credential{principal: p, hash: hash, ends: earliest(ends, db.Time(retires))}, nil
}

func (a *Authenticator) loadToken(ctx context.Context, hash string) (*credential, error) {
	var k Key
	var token TokenIdentity
	var scopes, metadata string
	var project *string
	var expires int64
	var revoked *int64
	err := scanKeyColumns(a.db.QueryRow(ctx, "SELECT "+keyColumns+`, s.last_four,
		t.id, t.scopes, t.project, t.metadata, t.metadata_hash, t.expires_at, t.revoked_at
		FROM scoped_tokens t JOIN keys k ON k.id = t.key_id JOIN key_secrets s ON s.key_id = k.id AND s.retires_at IS NULL
		WHERE t.hash = $1`, hash),
		&k, &k.LastFour, &token.ID, &scopes, &project, &metadata, &token.MetadataHash, &expires, &revoked)
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
	var own []string
	if err := json.Unmarshal([]byte(scopes), &own); err != nil {
		return nil, err
	}
	_, grant, err := ParseScopes(own)
	if err != nil {
		return nil, err
	}
	token.Metadata = json.RawMessage(metadata)
	ends := time.UnixMicro(expires)
	p.Token = &token
	p.Scopes = own
	p.Grant &= grant   // what it may do is its own scopes and its parent's, now
	p.AllowedIPs = nil // browsers and phones are anywhere
	for i := range p.Ancestors {
		p.Ancestors[i].AllowedIPs = nil
	}
	if p.Project == "" { // the parent's pin, if it has one by now, holds for its tokens
		p.Project = db.Text(project)
	}
	return &credential{principal: p, ends: earliest(keyEnds, &ends)}, nil
}

// principal returns the key's rights within those of its ancestors, and when
// the first of them expires.
func (k *Key) principal(ctx context.Context, q db.Querier) (p Principal, ends *time.Time, err error) {
	scopes, grant, err := ParseScopes(k.Scopes)
	if err != nil {
		return Principal{}, nil, fmt.Errorf("key %s: %w", k.ID, err)
	}
	p = Principal{WorkspaceID: k.WorkspaceID, Environment: k.Environment, KeyID: k.ID, KeyHint: k.Hint(), Scopes: scopes, Grant: grant,
		Project: k.Project, AllowedIPs: k.AllowedIPs, MonthlyBudget: k.MonthlyBudget, RateLimit: k.RateLimit, ExpiresAt: k.ExpiresAt}
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

// earliest returns the first of the moments, or zero when there is none.
func earliest(moments ...*time.Time) time.Time {
	var first time.Time
	for _, m := range moments {
		if m != nil && (first.IsZero() || m.Before(first)) {
			first = *m
		}
	}
	return first
}
