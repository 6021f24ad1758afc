package access

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"turnpike/internal/db"
)

const (
	// touchInterval is the precision of last_used_at.
	touchInterval = 5 * time.Second
	flushInterval = 2 * time.Second
)

// LastUsed records when and from where keys were used. It writes in batches: a crash loses a few seconds.
type LastUsed struct {
	db      *db.DB
	mu      sync.Mutex
	keys    map[string]use // by key ID
	secrets map[string]use // by hash
}

type use struct {
	ip string
	at time.Time
}

// NewLastUsed returns a recorder. Run writes what it records.
func NewLastUsed(d *db.DB) *LastUsed {
	return &LastUsed{db: d, keys: map[string]use{}, secrets: map[string]use{}}
}

func (l *LastUsed) touch(c *credential, ip string, now time.Time) {
	last := c.lastTouch.Load()
	if now.UnixMicro()-last < touchInterval.Microseconds() || !c.lastTouch.CompareAndSwap(last, now.UnixMicro()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[c.principal.KeyID] = use{ip, now}
	if c.hash != "" { // a key's secret, not a token
		l.secrets[c.hash] = use{ip, now}
	}
}

// Run writes records until ctx ends, and then the last ones.
func (l *LastUsed) Run(ctx context.Context) { db.FlushEvery(ctx, flushInterval, l.flush) }

func (l *LastUsed) flush(ctx context.Context) {
	l.mu.Lock()
	keys, secrets := l.keys, l.secrets
	l.keys, l.secrets = map[string]use{}, map[string]use{}
	l.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	err := l.db.Write(ctx, func(tx *db.Tx) error {
		// In a fixed order, so that two nodes can't deadlock.
		for _, id := range slices.Sorted(maps.Keys(keys)) {
			_, err := tx.Exec(ctx, `UPDATE keys SET last_used_at = $2, last_used_ip = $3
				WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`, id, keys[id].at.UnixMicro(), keys[id].ip)
			if err != nil {
				return err
			}
		}
		for _, hash := range slices.Sorted(maps.Keys(secrets)) {
			_, err := tx.Exec(ctx, "UPDATE key_secrets SET last_used_at = $2 WHERE hash = $1", hash, secrets[hash].at.UnixMicro())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		slog.Warn("failed to store when keys were last used; these records are lost", "error", err)
	}
}
