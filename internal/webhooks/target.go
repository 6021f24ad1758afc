package webhooks

import (
	"fmt"
	"sync"
	"time"

	"turnpike/internal/keyring"
)

// target is an endpoint with its secrets in the clear, as attempts need it.
type target struct {
	*Endpoint
	secret    string
	oldSecret string
	read      time.Time
}

// secrets to sign with, the one of Service-Signature first.
func (t *target) secrets(now time.Time) []string {
	if t.oldSecret != "" && t.inGrace(now) {
		return []string{t.oldSecret, t.secret}
	}
	return []string{t.secret}
}

// targetTTL is how old a target may be when an attempt starts: that is how
// long a change by another node, whose signal was lost, may go unnoticed.
const (
	targetTTL  = 250 * time.Millisecond
	maxTargets = maxLanes / 4 // as few lanes are worked within that
)

// targets remembers endpoints between attempts for a moment.
type targets struct {
	ring *keyring.Ring
	mu   sync.Mutex
	m    map[string]*target
}

// get returns the endpoint if it was read a moment ago.
func (t *targets) get(id string) *target {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.m[id]; found != nil && time.Since(found.read) < targetTTL {
		return found
	}
	return nil
}

// put opens the secrets of an endpoint that was just read. A mirroring tunnel
// has those of its origin.
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
		plain, err := t.ring.Open(open.sealed, place(origin.ID))
		if err != nil {
			return nil, fmt.Errorf("open the secret of %s: %w", origin.ID, err)
		}
		*open.into = string(plain)
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

// forget is called when an endpoint changed; empty means any. A mirror goes
// with its origin.
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
