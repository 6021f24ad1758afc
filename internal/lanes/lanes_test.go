package lanes_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
)

// task is an item of the tests' own table.
type task struct {
	due int64
	id  string
}

func (i task) Key() lanes.Key { return lanes.Key{Due: i.due, ID: i.id} }

// tasks is a source over that table.
type tasks struct {
	d      *db.DB
	work   func(lane string, i task) bool
	hectic bool // lanes are given back the moment they are drained
	lanes  int  // that a node has at most; zero is plenty
	poll   time.Duration
}

const queue = "tasks"

func newTasks(t *testing.T, d *db.DB) *tasks {
	t.Helper()
	s := &tasks{d: d, work: func(string, task) bool { return true }}
	write(t, d, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TABLE tasks (id TEXT PRIMARY KEY, lane TEXT NOT NULL, due_at BIGINT, done BIGINT NOT NULL)")
		return err
	})
	return s
}

func write(t *testing.T, d *db.DB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Write(context.WithoutCancel(t.Context()), fn); err != nil {
		t.Error(err)
	}
}

func (s *tasks) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (b lanes.Batch[task], err error) {
	now := time.Now().UnixMicro()
	rows, err := s.d.Query(ctx, "SELECT due_at, id FROM tasks WHERE lane = $1 AND due_at <= $2 AND (due_at, id) > ($3, $4) ORDER BY due_at, id LIMIT $5",
		lane, now, after.Due, after.ID, int64(n))
	b.Items, err = db.All(rows, err, func(r db.Row) (i task, err error) {
		err = r.Scan(&i.due, &i.id)
		return i, err
	})
	if err != nil || len(b.Items) > 0 {
		return b, err
	}
	var next *int64
	err = s.d.QueryRow(ctx, "SELECT min(due_at) FROM tasks WHERE lane = $1 AND due_at > $2", lane, now).Scan(&next)
	if at := db.Time(next); at != nil {
		b.Next = *at
	}
	return b, err
}

func (s *tasks) Work(ctx context.Context, lane string, i task) lanes.Result {
	well := s.work(lane, i)
	err := s.d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE tasks SET due_at = NULL, done = done + 1 WHERE id = $1", i.id)
		return err
	})
	return lanes.Result{Healthy: well && err == nil, Outcome: db.Written}
}

// put stores tasks that are due after the delay.
func (s *tasks) put(t *testing.T, lane string, delay time.Duration, names ...string) {
	t.Helper()
	at := time.Now().Add(delay)
	write(t, s.d, func(tx *db.Tx) error {
		for _, id := range names {
			if _, err := tx.Exec(t.Context(), "INSERT INTO tasks (id, lane, due_at, done) VALUES ($1, $2, $3, 0)", id, lane, at.UnixMicro()); err != nil {
				return err
			}
		}
		return lanes.Enqueue(t.Context(), tx, queue, map[string]time.Time{lane: at})
	})
}

func (s *tasks) open(t *testing.T) (n int) {
	t.Helper()
	if err := s.d.QueryRow(t.Context(), "SELECT count(*) FROM tasks WHERE done = 0").Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

// run starts a node and returns the way to stop it.
func (s *tasks) run(t *testing.T, node string, slots int) (r *lanes.Runner[task], stop func()) {
	t.Helper()
	return s.runOn(t, s.d, node, slots)
}

func (s *tasks) runOn(t *testing.T, d *db.DB, node string, slots int) (r *lanes.Runner[task], stop func()) {
	t.Helper()
	o := lanes.Options{Queue: queue, Node: node, PerLane: 8, Slots: slots, MaxLanes: cmp.Or(s.lanes, 100), Now: time.Now, Poll: s.poll}
	if s.hectic {
		o.Poll, o.Linger = 2*time.Millisecond, time.Nanosecond
	}
	r = lanes.NewRunner(d, lanes.Source[task](&tasks{d: d, work: func(lane string, i task) bool { return s.work(lane, i) }}), o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return r, stop
}

func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", limit, what)
}

// TestNothingPutInIsOverlooked puts tasks into lanes that two nodes drain and
// give back all the time: without the guard on seq, or with a release that
// does not look at it, some would lie there for ever.
func TestNothingPutInIsOverlooked(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		d := dbtest.Open(t, address)
		s := newTasks(t, d)
		s.hectic = true
		var worked sync.Map
		var twice atomic.Int64
		s.work = func(_ string, i task) bool {
			if _, again := worked.LoadOrStore(i.id, true); again {
				twice.Add(1)
			}
			return true
		}
		s.run(t, "a", 16)
		s.runOn(t, dbtest.Open(t, address), "b", 16)
		const producers, rounds = 4, 60
		var all sync.WaitGroup
		for p := range producers {
			all.Go(func() {
				for i := range rounds {
					s.put(t, fmt.Sprintf("lane-%d", rand.N(10)), time.Duration(rand.N(3))*time.Millisecond, fmt.Sprintf("%d-%d", p, i))
					time.Sleep(time.Duration(rand.N(40)) * time.Millisecond)
				}
			})
		}
		all.Wait()
		eventually(t, 10*time.Second, "every task is done", func() bool { return s.open(t) == 0 })
		if n := twice.Load(); n > 0 {
			t.Errorf("%d tasks were worked twice although no node died", n)
		}
	})
}

// TestALaneThatHangsDelaysNobody: everything of one lane hangs.
func TestALaneThatHangsDelaysNobody(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		release := make(chan struct{})
		s.work = func(lane string, _ task) bool {
			if lane == "hanging" {
				<-release
				return false
			}
			return true
		}
		for i := range 200 {
			s.put(t, "hanging", -time.Second, fmt.Sprintf("h%d", i))
		}
		for lane := range 20 {
			names := make([]string, 20)
			for i := range names {
				names[i] = fmt.Sprintf("w%d-%d", lane, i)
			}
			s.put(t, fmt.Sprintf("well-%d", lane), 0, names...)
		}
		begun := time.Now()
		s.run(t, "a", 16)
		t.Cleanup(func() { close(release) }) // before the run is waited for
		eventually(t, 15*time.Second, "the well lanes are done", func() bool { return s.open(t) <= 200 })
		t.Logf("400 tasks beside a hanging lane took %v", time.Since(begun))
	})
}

// TestSlowLanesLeaveRoom: there are more lanes that turned out to be slow than
// there are slots, and all of them have work.
func TestSlowLanesLeaveRoom(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := newTasks(t, d)
	release := make(chan struct{})
	var known sync.Map
	s.work = func(lane string, _ task) bool {
		if lane[:4] == "slow" {
			if _, again := known.LoadOrStore(lane, true); again {
				<-release
			}
			return false // the first time it fails at once, and is known from then on
		}
		return true
	}
	r, _ := s.run(t, "a", 8)
	t.Cleanup(func() { close(release) }) // before the run is waited for
	for i := range 20 {
		s.put(t, fmt.Sprintf("slow-%d", i), 0, fmt.Sprintf("first-%d", i))
	}
	eventually(t, 10*time.Second, "all slow lanes are known to be", func() bool { return s.open(t) == 0 })
	for i := range 20 {
		s.put(t, fmt.Sprintf("slow-%d", i), 0, fmt.Sprintf("second-%d", i))
	}
	eventually(t, 10*time.Second, "slow lanes have all they may have", func() bool { return r.Stats().Slow == 4 })
	s.put(t, "well", 0, "w")
	eventually(t, 5*time.Second, "the well lane is done", func() bool { return s.open(t) == 20 })
}

// TestADeadNodesLanesAreTakenOver when its leases have run out.
func TestADeadNodesLanesAreTakenOver(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		s.put(t, "lane", 0, "1", "2", "3")
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE lanes SET owner = 'dead', lease_until = $1, due_at = NULL", time.Now().Add(3*time.Second).UnixMicro())
			return err
		})
		begun := time.Now()
		s.run(t, "b", 4)
		eventually(t, 10*time.Second, "b does what the dead one left", func() bool { return s.open(t) == 0 })
		if took := time.Since(begun); took < 2900*time.Millisecond {
			t.Errorf("the lane was taken %v before its lease ended", 3*time.Second-took)
		}
	})
}

// TestANodeThatLostItsLeaseStops: it was slow, not dead, and must not go on.
func TestANodeThatLostItsLeaseStops(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		stuck := make(chan struct{})
		var worked atomic.Int64
		s.work = func(string, task) bool {
			worked.Add(1)
			<-stuck // it stands still in the middle of its first task
			return true
		}
		a, stop := s.run(t, "a", 1)
		unstick := sync.OnceFunc(func() { close(stuck) })
		t.Cleanup(unstick)
		s.put(t, "lane", 0, "1", "2", "3")
		eventually(t, 5*time.Second, "a is at work", func() bool { return a.Stats().Running == 1 })
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE lanes SET owner = 'b', lease_until = $1", time.Now().Add(time.Hour).UnixMicro())
			return err
		})
		eventually(t, 10*time.Second, "a has noticed", func() bool { return a.Stats().Lanes == 0 })
		unstick()
		stop()
		if n := worked.Load(); n != 1 {
			t.Errorf("a worked %d tasks of a lane that is another's", n-1)
		}
	})
}

// TestAPinnedLaneIsWorkedThere: whoever else runs.
func TestAPinnedLaneIsWorkedThere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		a, _ := s.run(t, "a", 4)
		s.put(t, "free", 0, "1")
		write(t, d, func(tx *db.Tx) error {
			return lanes.Pin(t.Context(), tx, lanes.Pinning{Queue: queue, Lane: "pinned", Node: "b", Now: time.Now()})
		})
		s.put(t, "pinned", 0, "2")
		eventually(t, 5*time.Second, "the free one is done", func() bool { return s.open(t) == 1 })
		eventually(t, 10*time.Second, "a gave the free one back", func() bool { return a.Stats().Lanes == 0 })
		if s.open(t) != 1 {
			t.Error("a lane that is pinned to b was worked by a")
		}
		s.run(t, "b", 4)
		eventually(t, 5*time.Second, "b does it", func() bool { return s.open(t) == 0 })
	})
}

// TestWorkWaitsForItsTime and is found when it has come, by a lane that was
// given back meanwhile.
func TestWorkWaitsForItsTime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		at := make(chan time.Time, 1)
		s.work = func(string, task) bool {
			at <- time.Now()
			return true
		}
		r, _ := s.run(t, "a", 4)
		due := time.Now().Add(4 * time.Second)
		s.put(t, "lane", 4*time.Second, "later")
		select {
		case got := <-at:
			if got.Before(due) {
				t.Errorf("worked %v early", due.Sub(got))
			}
		case <-time.After(15 * time.Second):
			t.Error("never worked", r.Stats())
		}
	})
}
