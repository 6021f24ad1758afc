package lanes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
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

func (s *staged) Work(context.Context, string, task) lanes.Result {
	s.works.Add(1)
	<-s.finish
	return lanes.Result{Healthy: true, Outcome: db.Written}
}

// TestAnItemThatFinishesDuringALookIsNotWorkedAgain, although the look has
// seen it as it was before.
func TestAnItemThatFinishesDuringALookIsNotWorkedAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &staged{finish: make(chan struct{})}
	r := lanes.NewRunner(d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now})
	s.over = func() bool { return r.Stats().InFlight == 0 }
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
	eventually(t, 10*time.Second, "the lane is at rest", func() bool { return s.looks.Load() > 3 && r.Stats().InFlight == 0 })
	if n := s.works.Load(); n != 1 {
		t.Errorf("the item was worked %d times", n)
	}
}

// TestPutNeedsNoLook into a lane that this node has, and what was put off is
// found all the same while more is put in.
func TestPutNeedsNoLook(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &counted{later: make(chan task, 1)}
	r := lanes.NewRunner(d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Linger: time.Hour})
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
	put := func(id string) {
		write(t, d, func(tx *db.Tx) error {
			now := time.Now()
			return r.EnqueueNow(t.Context(), tx, map[string][]task{"lane": {{id: id, due: now.UnixMicro()}}}, now)
		})
	}
	put("unseen") // nobody has the lane: it is claimed and looked into, where nothing is
	eventually(t, 10*time.Second, "the lane is at rest", func() bool { return s.looks.Load() > 0 && r.Stats().InFlight == 0 && r.Stats().Lanes == 1 })
	looks := s.looks.Load()
	for i := range 5 {
		put(string(rune('a' + i)))
		eventually(t, 10*time.Second, "it is worked", func() bool { return s.works.Load() == int64(i+1) && r.Stats().InFlight == 0 })
	}
	if n := s.looks.Load(); n != looks {
		t.Errorf("%d looks for items that were handed over", n-looks)
	}

	// One fails and is to be done in a moment; others keep coming meanwhile.
	s.again.Store(true)
	put("late")
	eventually(t, 10*time.Second, "what was put off is done", func() bool {
		put(ids.New("x_"))
		return s.lateDone.Load()
	})
}

// counted has one lane whose items are all handed over, except those that were
// put off.
type counted struct {
	looks, works atomic.Int64
	again        atomic.Bool
	lateDone     atomic.Bool
	later        chan task
}

func (s *counted) Fetch(_ context.Context, _ string, _ lanes.Key, _ int) (b lanes.Batch[task], err error) {
	s.looks.Add(1)
	select {
	case i := <-s.later:
		if time.UnixMicro(i.due).After(time.Now()) {
			b.Next = time.UnixMicro(i.due)
			s.later <- i
		} else {
			b.Items = []task{i}
		}
	default:
	}
	return b, nil
}

func (s *counted) Work(_ context.Context, _ string, i task) lanes.Result {
	s.works.Add(1)
	if i.id == "late" {
		if s.again.CompareAndSwap(true, false) {
			s.later <- task{id: "late", due: time.Now().Add(300 * time.Millisecond).UnixMicro()}
			return lanes.Result{Healthy: true, Outcome: db.Written}
		}
		s.lateDone.Store(true)
	}
	return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
}

// TestPutDoesNotHideWhatOthersPutIn before it: their signal comes later, and
// names a seq that this node must not believe to have seen.
func TestPutDoesNotHideWhatOthersPutIn(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &counted{later: make(chan task, 1)}
	r := lanes.NewRunner(d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Linger: time.Hour})
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
	now := time.Now()
	due := map[string]time.Time{"lane": now}
	write(t, d, func(tx *db.Tx) error { return lanes.Enqueue(t.Context(), tx, queue, due) })
	eventually(t, 10*time.Second, "the lane is at rest", func() bool { return s.looks.Load() > 0 && r.Stats().InFlight == 0 && r.Stats().Lanes == 1 })
	s.later <- task{id: "late", due: now.UnixMicro()} // only a look finds it
	write(t, d, func(tx *db.Tx) error {
		if err := lanes.Enqueue(t.Context(), tx, queue, due); err != nil {
			return err
		}
		return r.EnqueueNow(t.Context(), tx, map[string][]task{"lane": {{id: "own", due: now.UnixMicro()}}}, now)
	})
	eventually(t, 10*time.Second, "what another put in is done", s.lateDone.Load)
}
