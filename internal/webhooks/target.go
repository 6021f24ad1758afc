package webhooks

import (
	"fmt"
	"sync"
	"time"

	"turnpike/internal/keyring"
)

// target is an endpoint with its decrypted secrets and headers.
type target struct {
	*Endpoint
	secret    string
	oldSecret string
	headers   map[string]string
	read      time.Time
}

// secrets returns the secrets to sign with, the one for Service-Signature first.
func (t *target) secrets(now time.Time) []string {
	if t.oldSecret != "" && t.inGrace(now) {
		return []string{t.oldSecret, t.secret}
	}
	return []string{t.secret}
}

// targetTTL is the maximum age of a target when an attempt starts. A change by another
// node whose signal was lost goes unnoticed for that long.
const (
	targetTTL  = 250 * time.Millisecond
	maxTargets = maxLanes / 4 // few lanes have attempts within targetTTL
)

// targets caches endpoints between attempts.
type targets struct {
	ring *keyring.Ring
	mu   sync.Mutex
	m    map[string]*target
}

// get returns the endpoint if it was read within targetTTL.
func (t *targets) get(id string) *target {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.m[id]; found != nil && time.Since(found.read) < targetTTL {
		return found
	}
	return nil
}

// put decrypts the secrets of an endpoint that was just read. A mirror uses those of
// its origin.
func (t *targets) put(e, origin *Endpoint) (*target, error) {
	made := &target{Endpoint: e, read: time.Now()}
	if origin == nil {
		origin = e
	}
	for _, open := range []struct {
		sealed string
		into   *string
	}{{origin.secret, &made.secret}, {origin.oldSecret, &made.oldSecret}} {
		if open.sealed == "" {
			continue
		}
		plain, err := t.ring.Open(open.sealed, secretContext(origin.ID))
		if err != nil {
			return nil, fmt.Errorf("decrypt the secret of %s: %w", origin.ID, err)
		}
		*open.into = string(plain)
	}
	made.headers = make(map[string]string, len(e.headers))
	for name, sealed := range e.headers {
		plain, err := t.ring.Open(sealed, headerContext(e.ID, name))
		if err != nil {
			return nil, fmt.Errorf("decrypt the header %s of %s: %w", name, e.ID, err)
		}
		made.headers[name] = string(plain)
	}
	if origin != e {
		shown := *e
		shown.OldSecretUntil = origin.OldSecretUntil
		made.Endpoint = &shown
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil || len(t.m) >= maxTargets {
		t.m = map[string]*target{}
	}
	t.m[e.ID] = made
	return made, nil
}

// forget removes an endpoint that changed, and its mirrors. An empty ID means all.
func (t *targets) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if id == "" {
		t.m = nil
		return
	}
	delete(t.m, id)
	for key, found := range t.m {
		if found.Mirrors == id {
			delete(t.m, key)
		}
	}
}
