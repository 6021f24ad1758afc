package harness

import (
	"sync"
	"testing"
	"time"
)

// Clock is a clock that stands still until a test moves it.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

func NewClock() *Clock { return &Clock{now: time.Now()} }

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Turn moves the clock forward.
func (c *Clock) Turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Run lets the clock run until the test ends, for jobs that take several steps.
func (c *Clock) Run(t testing.TB) {
	t.Helper()
	const step = 10 * time.Millisecond
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case now := <-tick.C:
				c.Turn(now.Sub(last))
				last = now
			case <-t.Context().Done():
				return
			}
		}
	})
	t.Cleanup(running.Wait)
}
