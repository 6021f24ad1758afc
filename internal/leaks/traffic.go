package leaks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
)

const (
	// maxQueued is how many sightings can be queued.
	maxQueued = 256
	// seenTTL is how long a secret is not handled again: a prompt with a key is
	// usually sent several times.
	seenTTL = 10 * time.Minute
	// maxSeen limits the number of remembered secrets.
	maxSeen = 10_000
)

// Sighting holds the keys in the body of a request.
type Sighting struct {
	Secrets []string
	Report  // of each; without NotifyOnly, the key is revoked
}

// Sight handles keys in a request's body in the background, or immediately if the
// queue is full.
func (s *Service) Sight(ctx context.Context, found Sighting) {
	select {
	case s.sightings <- found:
	default:
		s.handleSighting(ctx, found)
	}
}

// Run handles sightings until ctx ends, and then those in the queue.
func (s *Service) Run(ctx context.Context) {
	for {
		select {
		case found := <-s.sightings:
			s.handleSighting(ctx, found)
		case <-ctx.Done():
			for len(s.sightings) > 0 {
				s.handleSighting(ctx, <-s.sightings)
			}
			return
		}
	}
}

func (s *Service) handleSighting(ctx context.Context, found Sighting) {
	slices.Sort(found.Secrets)
	secrets := slices.Compact(found.Secrets)
	for _, secret := range secrets[:min(len(secrets), MaxKeys)] {
		r := found.Report
		r.Secret, r.Source, r.InBody = secret, Traffic, true
		if !s.seen.first(r, s.Now()) {
			continue
		}
		if _, err := s.Revoke(ctx, r); err != nil {
			s.seen.forget(r) // the next request with it retries
			slog.Log(ctx, db.LogLevel(err), "failed to handle a key in a request body; retrying when it is sent again",
				"request_id", found.RequestID, "error", keyring.Mask(err.Error()))
		}
	}
}

// seen remembers the hashes of recently handled reports. The zero value is ready.
type seen struct {
	mu  sync.Mutex
	end map[[sha256.Size]byte]time.Time
}

// seenKey depends on NotifyOnly: a secret that was only noted may have to be revoked later.
func seenKey(r Report) [sha256.Size]byte {
	return sha256.Sum256(fmt.Append(nil, r.NotifyOnly, r.Secret))
}

// first reports whether the report is new, and remembers it.
func (l *seen) first(r Report, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := seenKey(r)
	if end, ok := l.end[key]; ok && now.Before(end) {
		return false
	}
	if l.end == nil || len(l.end) >= maxSeen {
		l.end = map[[sha256.Size]byte]time.Time{}
	}
	l.end[key] = now.Add(seenTTL)
	return true
}

func (l *seen) forget(r Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.end, seenKey(r))
}
