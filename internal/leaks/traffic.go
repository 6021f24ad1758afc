package leaks

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"slices"
	"sync"
	"time"

	"turnpike/internal/keyring"
)

const (
	// waitingSightings is how many requests with keys in them may wait.
	waitingSightings = 256
	// seenFor is how long a secret is not looked at again: a prompt that has a
	// key in it is rarely sent once.
	seenFor = 10 * time.Minute
	// maxSeen bounds what is remembered of them.
	maxSeen = 10_000
)

// Sighting is the keys that a workspace has sent in the body of a request.
type Sighting struct {
	Secrets []string
	Revoke  bool // else they are noted only
	// The request that had them, for the admin log.
	IP, RequestID string
}

// See takes keys that stood in a request's body. They are dealt with in the
// background; only when too many wait already does the request wait for its own.
func (s *Service) See(ctx context.Context, found Sighting) {
	select {
	case s.sightings <- found:
	default:
		s.dealWith(ctx, found)
	}
}

// Run deals with sightings until ctx ends, and then with those that still wait.
func (s *Service) Run(ctx context.Context) {
	for {
		select {
		case found := <-s.sightings:
			s.dealWith(ctx, found)
		case <-ctx.Done():
			for {
				select {
				case found := <-s.sightings:
					s.dealWith(ctx, found)
				default:
					return
				}
			}
		}
	}
}

func (s *Service) dealWith(ctx context.Context, found Sighting) {
	slices.Sort(found.Secrets)
	secrets := slices.Compact(found.Secrets)
	for _, secret := range secrets[:min(len(secrets), MaxKeys)] {
		if !s.seen.first(secret, found.Revoke, s.Now()) {
			continue
		}
		r := Report{Secret: secret, Source: Traffic, InBody: true, Spare: !found.Revoke, IP: found.IP, RequestID: found.RequestID}
		if _, err := s.Revoke(ctx, r); err != nil {
			s.seen.forget(secret, found.Revoke) // the next request with it is another try
			slog.Error("a key in a request's body could not be dealt with; it is tried again when it is sent again",
				"request_id", found.RequestID, "error", keyring.Mask(err.Error()))
		}
	}
}

// seen remembers, by their hashes, the secrets that were dealt with lately. The
// zero value is ready.
type seen struct {
	mu  sync.Mutex
	end map[seenKey]time.Time
}

type seenKey struct {
	hash   [sha256.Size]byte
	revoke bool // what was only noted may have to be revoked later
}

// first reports whether the secret is new, and remembers it.
func (l *seen) first(secret string, revoke bool, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := seenKey{sha256.Sum256([]byte(secret)), revoke}
	if end, ok := l.end[key]; ok && now.Before(end) {
		return false
	}
	if l.end == nil || len(l.end) >= maxSeen {
		l.end = map[seenKey]time.Time{}
	}
	l.end[key] = now.Add(seenFor)
	return true
}

func (l *seen) forget(secret string, revoke bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.end, seenKey{sha256.Sum256([]byte(secret)), revoke})
}
