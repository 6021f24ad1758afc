package lanes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// desk is a source with one lane in memory, something of which hangs: "slow"
// is at work until the test is over.
type desk struct {
	d *db.DB
	r *lanes.Runner[task]

	mu     sync.Mutex
	due    map[string]int64
	begun  map[string][]time.Time // when items were worked
	looks  int
	broken bool // looks fail
	does   func(i task) lanes.Result

	leave chan struct{}
}

const (
	lane  = "lane"
	hangs = "slow"
)

// newDesk has a node whose lane is busy with what hangs.
func newDesk(t *testing.T, poll time.Duration) *desk {
	t.Helper()
	s := &desk{d: dbtest.Open(t, dbtest.Address(t, "sqlite")), due: map[string]int64{}, begun: map[string][]time.Time{}, leave: make(chan struct{})}
	s.does = func(i task) lanes.Result {
		s.set(i.id, 0)
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	}
	s.r = lanes.NewRunner(s.d, lanes.Source[task](s), lanes.Options{Queue: queue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Poll: poll})
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
	return s
}

// hang has the lane busy for as long as the test lasts.
func (s *desk) hang(t *testing.T) {
	t.Helper()
	s.put(t, map[string]time.Duration{hangs: 0})
	eventually(t, 10*time.Second, "something hangs", func() bool { return s.times(hangs) == 1 })
}

// put stores items that are due after the delays, in one commit.
func (s *desk) put(t *testing.T, delays map[string]time.Duration) {
	t.Helper()
	now := time.Now()
	due := now.Add(time.Hour)
	for id, delay := range delays {
		at := now.Add(delay)
		s.set(id, at.UnixMicro())
		if at.Before(due) {
			due = at
		}
	}
	write(t, s.d, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, queue, map[string]time.Time{lane: due})
	})
}

// set makes an item due, or not at all with zero.
func (s *desk) set(id string, due int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.due, id); due != 0 {
		s.due[id] = due
	}
}

func (s *desk) times(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.begun[id])
}

func (s *desk) looked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// rests waits until the lane has not been looked into for many polls.
func (s *desk) rests(t *testing.T, poll time.Duration) {
	t.Helper()
	eventually(t, 10*time.Second, "the lane is left alone", func() bool {
		n := s.looked()
		time.Sleep(10 * poll)
		return s.looked() == n
	})
}

func (s *desk) Fetch(_ context.Context, _ string, after lanes.Key, n int) (b lanes.Batch[task], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks++; s.broken {
		return b, errors.New("broken")
	}
	now := time.Now().UnixMicro()
	next := int64(0)
	for id, due := range s.due {
		switch {
		case due > now && (next == 0 || due < next):
			next = due
		case due > now || due < after.Due || due == after.Due && id <= after.ID:
		default:
			b.Items = append(b.Items, task{due, id})
		}
	}
	slices.SortFunc(b.Items, func(a, b task) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) })
	b.Items = b.Items[:min(n, len(b.Items))]
	if len(b.Items) == 0 && next != 0 {
		b.Next = time.UnixMicro(next)
	}
	return b, nil
}

func (s *desk) Work(_ context.Context, _ string, i task) lanes.Result {
	s.mu.Lock()
	s.begun[i.id] = append(s.begun[i.id], time.Now())
	s.mu.Unlock()
	if i.id == hangs {
		<-s.leave
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	}
	return s.does(i)
}

// TestABusyLaneGoesOnWithWhatIsDueAgain: the next part of an item does not wait
// until its neighbours are done.
func TestABusyLaneGoesOnWithWhatIsDueAgain(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{"told when": true, "not told when": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDesk(t, time.Hour)
			const parts = 20
			s.does = func(i task) lanes.Result {
				if s.times(i.id) == parts {
					s.set(i.id, 0)
					return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
				}
				now := time.Now()
				s.set(i.id, now.UnixMicro())
				if !tells {
					return lanes.Result{Healthy: true, Outcome: db.Written}
				}
				return lanes.Result{Healthy: true, Due: &now, Outcome: db.Written}
			}
			s.hang(t)
			s.put(t, map[string]time.Duration{"parts": 0})
			eventually(t, 10*time.Second, "all parts are done", func() bool { return s.times("parts") == parts })
			time.Sleep(50 * time.Millisecond)
			if n := s.times("parts"); n != parts {
				t.Errorf("it was worked %d times", n)
			}
			if n := s.looked(); n > 2*parts {
				t.Errorf("%d looks for %d parts", n, parts)
			}
		})
	}
}

// TestABusyLaneKeepsTime: what was put off is done when its time has come,
// whoever put it off.
func TestABusyLaneKeepsTime(t *testing.T) {
	t.Parallel()
	const poll, delay = 50 * time.Millisecond, 400 * time.Millisecond
	punctual := func(t *testing.T, s *desk, id string, n int, due time.Time) {
		t.Helper()
		eventually(t, 10*time.Second, id+" is done", func() bool { return s.times(id) == n })
		s.mu.Lock()
		defer s.mu.Unlock()
		if late := s.begun[id][n-1].Sub(due); late < 0 || late > 3*time.Second {
			t.Errorf("it was worked %v late", late)
		}
	}
	t.Run("before it was claimed", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, poll)
		due := time.Now().Add(delay)
		s.set("timer", due.UnixMicro())
		s.hang(t)
		punctual(t, s, "timer", 1, due)
	})
	t.Run("before something else was put in", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, time.Second) // the first comes after all of it
		due := time.Now().Add(delay)
		s.set("timer", due.UnixMicro())
		s.hang(t)
		time.Sleep(time.Until(due))
		write(t, s.d, func(tx *db.Tx) error {
			now := time.Now()
			return s.r.EnqueueNow(t.Context(), tx, map[string][]task{lane: {{now.UnixMicro(), "other"}}}, now)
		})
		punctual(t, s, "timer", 1, due)
	})
	t.Run("from elsewhere", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, poll)
		s.hang(t)
		due := time.Now().Add(delay)
		s.put(t, map[string]time.Duration{"timer": delay, "other": 0})
		punctual(t, s, "timer", 1, due)
	})
	t.Run("the item itself", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, poll)
		s.hang(t)
		put, goOn := make(chan time.Time, 1), make(chan struct{})
		s.does = func(i task) lanes.Result {
			<-goOn
			if s.times(i.id) > 1 {
				s.set(i.id, 0)
				return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
			}
			due := time.Now().Add(delay)
			s.set(i.id, due.UnixMicro())
			put <- due
			return lanes.Result{Healthy: true, Due: &due, Outcome: db.Written}
		}
		s.put(t, map[string]time.Duration{"retry": 0})
		eventually(t, 10*time.Second, "it is at work", func() bool { return s.times("retry") == 1 })
		s.rests(t, poll)
		close(goOn)
		punctual(t, s, "retry", 2, <-put)
	})
}

// TestABusyLaneIsNotLookedIntoForNothing: once it is known what comes next,
// nothing is asked until then, however much waits.
func TestABusyLaneIsNotLookedIntoForNothing(t *testing.T) {
	t.Parallel()
	const poll = 2 * time.Millisecond
	s := newDesk(t, poll)
	for i := range 10_000 {
		s.set(fmt.Sprintf("far-%d", i), time.Now().Add(time.Hour).UnixMicro())
	}
	s.hang(t)
	s.put(t, map[string]time.Duration{"other": 0, "later": time.Hour})
	eventually(t, 10*time.Second, "the other is done", func() bool { return s.times("other") == 1 })
	time.Sleep(100 * poll)
	if n := s.looked(); n > 8 {
		t.Errorf("%d looks in %v", n, 100*poll)
	}
	s.rests(t, poll)

	// Nor more often than there are parts of something that takes a while.
	const parts = 10
	s.does = func(i task) lanes.Result {
		time.Sleep(20 * poll)
		if s.times(i.id) == parts {
			s.set(i.id, 0)
			return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
		}
		now := time.Now()
		s.set(i.id, now.UnixMicro())
		return lanes.Result{Healthy: true, Due: &now, Outcome: db.Written}
	}
	looks := s.looked()
	s.put(t, map[string]time.Duration{"parts": 0})
	eventually(t, 10*time.Second, "all parts are done", func() bool { return s.times("parts") == parts })
	if n := s.looked() - looks; n > parts+4 {
		t.Errorf("%d looks for %d parts", n, parts)
	}
}

// TestABusyLaneSeesWhatLiesBehindIt: what is put in may be due before what was
// seen already. Commits are not made in the order of the times in them, and
// clocks differ.
func TestABusyLaneSeesWhatLiesBehindIt(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, time.Hour) // at once: no poll is waited for
		s.hang(t)
		s.put(t, map[string]time.Duration{"early": -time.Minute})
		eventually(t, 10*time.Second, "it is done", func() bool { return s.times("early") == 1 })
	})
	t.Run("among others", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, 50*time.Millisecond)
		s.hang(t)
		s.put(t, map[string]time.Duration{"early": -time.Minute, "other": 0})
		eventually(t, 10*time.Second, "both are done", func() bool { return s.times("early") == 1 && s.times("other") == 1 })
	})
	t.Run("while looks keep finding others", func(t *testing.T) {
		t.Parallel()
		s := newDesk(t, 50*time.Millisecond)
		s.does = func(i task) lanes.Result {
			time.Sleep(time.Millisecond)
			s.set(i.id, 0)
			return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
		}
		s.hang(t)
		const many = 20_000
		all := make(map[string]time.Duration, many)
		for i := range many {
			all[fmt.Sprintf("%05d", i)] = 0
		}
		s.put(t, all)
		eventually(t, 10*time.Second, "it is on its way", func() bool { return s.times("00100") == 1 })
		s.put(t, map[string]time.Duration{"early": -time.Minute})
		eventually(t, 10*time.Second, "it is done", func() bool { return s.times("early") == 1 })
		if last := fmt.Sprintf("%05d", many-1); s.times(last) > 0 {
			t.Error("it was done behind all the others")
		}
	})
}

// TestWhatIsPutInAgainWhileItIsAtWorkIsDoneAgain, although its work says that
// nothing is left: it began before.
func TestWhatIsPutInAgainWhileItIsAtWorkIsDoneAgain(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]map[string]time.Duration{"now": {"twice": 0}, "since long ago": {"twice": -time.Minute}, "as it was": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			poll := time.Hour // at once: no poll is waited for
			if len(put) == 0 {
				poll = 50 * time.Millisecond
			}
			s := newDesk(t, poll)
			goOn := make(chan struct{})
			s.does = func(i task) lanes.Result {
				if s.times(i.id) == 1 {
					<-goOn // and what was put in again stays as it is
				} else {
					s.set(i.id, 0)
				}
				return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
			}
			s.hang(t)
			s.put(t, map[string]time.Duration{"twice": 0})
			eventually(t, 10*time.Second, "it is at work", func() bool { return s.times("twice") == 1 })
			looks := s.looked()
			s.put(t, put)
			eventually(t, 10*time.Second, "the lane is looked into", func() bool { return s.looked() > looks })
			time.Sleep(10 * time.Millisecond) // until the look is over
			close(goOn)
			eventually(t, 10*time.Second, "it is worked again", func() bool { return s.times("twice") == 2 })
		})
	}
}

// TestABusyLaneIsLookedIntoAgainAfterAFailure of the store, for the same.
func TestABusyLaneIsLookedIntoAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	const poll = 50 * time.Millisecond
	s := newDesk(t, poll)
	breaks := func(broken bool) (looks int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.broken = broken
		return s.looks
	}
	before, goOn := make(chan int, 1), make(chan struct{})
	s.does = func(i task) lanes.Result {
		<-goOn
		if s.times(i.id) > 1 {
			s.set(i.id, 0)
			return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
		}
		due := time.Now().Add(-time.Minute)
		s.set(i.id, due.UnixMicro())
		before <- breaks(true)
		return lanes.Result{Healthy: true, Due: &due, Outcome: db.Written}
	}
	s.hang(t)
	s.put(t, map[string]time.Duration{"parts": 0})
	eventually(t, 10*time.Second, "it is at work", func() bool { return s.times("parts") == 1 })
	s.rests(t, poll)
	close(goOn)
	looks := <-before
	eventually(t, 10*time.Second, "a look fails", func() bool { return s.looked() > looks })
	breaks(false)
	eventually(t, 10*time.Second, "it goes on", func() bool { return s.times("parts") == 2 })
}
