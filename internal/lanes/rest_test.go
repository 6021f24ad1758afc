package lanes_test

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/lanes"
)

// TestALaneIsLookedIntoBeforeItRests: an item that somebody has changed without
// a word while it was at work is not over, although its work says so.
func TestALaneIsLookedIntoBeforeItRests(t *testing.T) {
	t.Parallel()
	const poll = 20 * time.Millisecond
	s := newDesk(t, poll)
	goOn := make(chan struct{})
	s.does = func(i task) lanes.Result {
		if <-goOn; s.times(i.id) > 1 {
			s.set(i.id, 0)
		}
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	}
	s.put(t, map[string]time.Duration{"deaf": 0})
	eventually(t, 10*time.Second, "it is at work", func() bool { return s.times("deaf") == 1 })
	s.rests(t, poll)
	close(goOn)
	eventually(t, 10*time.Second, "it is done as it is now", func() bool { return s.times("deaf") == 2 })
}
