package conversations

import (
	"context"
	"sync"
	"time"

	"turnpike/internal/accounts"
)

// usageAge is how old a node's count of the stored bytes may be. It adds its own writes to the count.
const usageAge = time.Minute

type usageCache struct {
	mu    sync.Mutex
	known map[string]*usage
}

type usage struct {
	bytes int64
	at    time.Time
}

func (c *usageCache) add(workspaceID string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.known[workspaceID]; u != nil {
		u.bytes += n
	}
}

// HasRoom reports whether the workspace may store more. It is usually served from memory.
func (s *Store) HasRoom(ctx context.Context, workspaceID string) (bool, error) {
	now := s.now()
	s.usage.mu.Lock()
	u := s.usage.known[workspaceID]
	s.usage.mu.Unlock()
	if u != nil && now.Sub(u.at) < usageAge {
		s.usage.mu.Lock()
		defer s.usage.mu.Unlock()
		return u.bytes < s.MaxBytes.Load(), nil
	}
	stored, err := accounts.StoredBytes(ctx, s.db, workspaceID)
	if err != nil {
		return false, err
	}
	s.usage.mu.Lock()
	defer s.usage.mu.Unlock()
	if s.usage.known == nil {
		s.usage.known = map[string]*usage{}
	}
	s.usage.known[workspaceID] = &usage{bytes: stored, at: now}
	return stored < s.MaxBytes.Load(), nil
}
