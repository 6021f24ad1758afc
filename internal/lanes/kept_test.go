package lanes_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// parcel is an item that takes memory.
type parcel struct {
	id string
	_  [4 << 10]byte
}

func (p *parcel) Key() lanes.Key { return lanes.Key{Due: 1, ID: p.id} }

// parcels hands out a few at the first look, and remembers them only as long
// as others do.
type parcels struct {
	mu   sync.Mutex
	made []weak.Pointer[parcel]
	done int
}

func (s *parcels) Fetch(context.Context, string, lanes.Key, int) (b lanes.Batch[*parcel], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != nil {
		return b, nil
	}
	for i := range 16 {
		p := &parcel{id: fmt.Sprintf("%02d", i)}
		b.Items = append(b.Items, p)
		s.made = append(s.made, weak.Make(p))
	}
	return b, nil
}

func (s *parcels) Work(context.Context, string, *parcel) lanes.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	return lanes.Result{Healthy: true, Outcome: db.Written}
}

// left is how many of those that are done somebody still has.
func (s *parcels) left() (n int) {
	runtime.GC()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.made {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// TestALaneKeepsNothingThatIsDone, however long the node has it: there are
// thousands.
func TestALaneKeepsNothingThatIsDone(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &parcels{}
	r := lanes.NewRunner(d, lanes.Source[*parcel](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Linger: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	write(t, d, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, queue, map[string]time.Time{"lane": time.Now()})
	})
	eventually(t, 10*time.Second, "all of it is done and forgotten", func() bool {
		s.mu.Lock()
		done := s.done
		s.mu.Unlock()
		return done == 16 && s.left() == 0
	})
	if n := r.Stats().Lanes; n != 1 {
		t.Errorf("the node has %d lanes, and should have kept the one", n)
	}
}
