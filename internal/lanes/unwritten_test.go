package lanes_test

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/lanes"
)

// TestWhatCouldNotBeWrittenIsDoneAgain: the store has the item as it was, and
// whatever its work had in mind for it is not so.
func TestWhatCouldNotBeWrittenIsDoneAgain(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, meant := range map[string]lanes.Result{"over": {Healthy: true, Done: true}, "due later": {Healthy: true, Due: &later}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDesk(t, time.Hour)
			g := db.NewGroup(s.d)
			t.Cleanup(g.Stop)
			refused := db.NewQueue(g, true, func(context.Context, *db.Tx, []task) error { return db.ErrData })
			s.does = func(i task) lanes.Result {
				if s.times(i.id) == 1 {
					out := meant
					out.Outcome = refused.Add(i)
					return out
				}
				s.set(i.id, 0)
				return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
			}
			s.hang(t)
			s.put(t, map[string]time.Duration{"item": 0})
			eventually(t, 10*time.Second, "it is done again", func() bool { return s.times("item") == 2 })
		})
	}
}
