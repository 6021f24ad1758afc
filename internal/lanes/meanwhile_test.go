package lanes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// slowLooks is a desk into which a look can be made to take its time.
type slowLooks struct {
	*desk
	look atomic.Pointer[func()] // what a look does before it says what it has seen
}

func (s *slowLooks) Fetch(ctx context.Context, id string, after lanes.Key, n int) (lanes.Batch[task], error) {
	b, err := s.desk.Fetch(ctx, id, after, n)
	if wait := s.look.Swap(nil); wait != nil {
		(*wait)()
	}
	return b, err
}

// TestWhatIsPutInAgainAndEndsDuringTheLookIsDoneAgain: the look has seen it as
// it is now, and its work has ended as it was.
func TestWhatIsPutInAgainAndEndsDuringTheLookIsDoneAgain(t *testing.T) {
	t.Parallel()
	s := &slowLooks{desk: &desk{d: dbtest.Open(t, dbtest.Address(t, "sqlite")), due: map[string]int64{}, begun: map[string][]time.Time{}, leave: make(chan struct{})}}
	s.r = lanes.NewRunner(s.d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Poll: time.Hour})
	goOn := make(chan struct{})
	s.does = func(i task) lanes.Result {
		if s.times(i.id) == 1 {
			<-goOn // put in again meanwhile, so that it stays
		} else {
			s.set(i.id, 0)
		}
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		close(s.leave)
		cancel()
		<-done
	})
	s.hang(t)
	s.put(t, map[string]time.Duration{"item": 0})
	eventually(t, 10*time.Second, "it is at work", func() bool { return s.times("item") == 1 })
	ended := func() {
		close(goOn)
		for s.r.Stats().InFlight > 1 { // but what hangs
			time.Sleep(time.Millisecond)
		}
	}
	s.look.Store(&ended)
	s.put(t, map[string]time.Duration{"item": 0})
	eventually(t, 10*time.Second, "it is done again", func() bool { return s.times("item") == 2 })
}
