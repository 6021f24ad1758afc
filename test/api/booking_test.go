package api_test

import (
	"sync"
	"testing"

	"turnpike/internal/access"
	"turnpike/test/harness"
)

// TestCallsAndJobsOfManyKeysAreBookedSideBySide: on several nodes, none of them
// waits for another in a circle, which PostgreSQL ends after a second by
// refusing one, and nobody is told 503.
func TestCallsAndJobsOfManyKeysAreBookedSideBySide(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		s.credits(t, 100_000)
		nodes := []*harness.Server{s.Server}
		if s.DB.Engine() == "postgres" {
			nodes = append(nodes, harness.Start(t, s.cfg, s.Clock))
		}
		before := s.deadlocks(t)
		const keys, rounds = 6, 4
		var all sync.WaitGroup
		for range keys {
			c, _ := s.keyed(t, access.Key{})
			all.Go(func() {
				for i := range rounds {
					on := nodes[i%len(nodes)]
					on.Do(t, harness.Request{Method: "POST", Path: batches, Key: c.key, Body: batch("p")}).Want(t, 200, "")
					on.Do(t, harness.Request{Method: "POST", Path: "/v1/images/generations", Key: c.key, Body: map[string]any{"model": "pic", "prompt": "p"}}).Want(t, 200, "")
				}
			})
		}
		all.Wait()
		s.Eventually(t, func() bool { return s.rows(t, "media_jobs WHERE completed_at IS NULL") == 0 })
		s.Eventually(t, func() bool { return s.rows(t, "requests WHERE NOT settled") == 0 })
		if n := s.deadlocks(t) - before; n != 0 {
			t.Errorf("there were %d deadlocks", n)
		}
	})
}

// deadlocks is how many the database has seen.
func (c *customer) deadlocks(t *testing.T) (n int) {
	t.Helper()
	if c.DB.Engine() != "postgres" {
		return 0
	}
	if err := c.DB.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
