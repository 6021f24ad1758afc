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

// staged is a source whose third look reads the only item as due while it is
// at work, and comes back when that is over.
type staged struct {
	looks  atomic.Int64
	works  atomic.Int64
	finish chan struct{}
	over   func() bool
}

func (s *staged) Fetch(context.Context, string, lanes.Key, int) (b lanes.Batch[task], err error) {
	one := []task{{due: 1, id: "one"}}
	switch s.looks.Add(1) {
	case 1:
		b.Items = one
	case 3:
		close(s.finish)
		for !s.over() {
			time.Sleep(time.Millisecond)
		}
		b.Items = one
	}
	return b, nil
}

func (s *staged) Work(context.Context, string, task) (bool, *db.Pending) {
	s.works.Add(1)
	<-s.finish
	return true, db.Written
}

// TestAnItemThatFinishesDuringALookIsNotWorkedAgain, although the look has
// seen it as it was before.
func TestAnItemThatFinishesDuringALookIsNotWorkedAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &staged{finish: make(chan struct{})}
	r := lanes.NewRunner(d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", Cap: 8, Slots: 8, Lanes: 8, Now: time.Now})
	s.over = func() bool { return r.Stats().Open == 0 }
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
	for look := range int64(3) {
		write(t, d, func(tx *db.Tx) error {
			return lanes.Enqueue(t.Context(), tx, queue, map[string]time.Time{"lane": time.Now()})
		})
		eventually(t, 10*time.Second, "the lane is looked into", func() bool { return s.looks.Load() > look })
		if look == 0 {
			eventually(t, 10*time.Second, "the item is at work", func() bool { return s.works.Load() == 1 })
		}
	}
	eventually(t, 10*time.Second, "the lane is at rest", func() bool { return s.looks.Load() > 3 && r.Stats().Open == 0 })
	if n := s.works.Load(); n != 1 {
		t.Errorf("the item was worked %d times", n)
	}
}
