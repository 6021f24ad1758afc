package lanes

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

const testQueue = "tasks"

func write(t *testing.T, d *db.DB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Write(context.WithoutCancel(t.Context()), fn); err != nil {
		t.Error(err)
	}
}

func enqueueLane(t *testing.T, d *db.DB, lane string, due time.Time) {
	t.Helper()
	write(t, d, func(tx *db.Tx) error {
		return Enqueue(t.Context(), tx, testQueue, map[string]time.Time{lane: due})
	})
}

// TestTableBehavesLikeTheModel checks the behavior of the store that the model in
// model_test.go assumes.
func TestTableBehavesLikeTheModel(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, now := t.Context(), time.Now()
		a := &table{db: d, queue: testQueue, node: "a", now: func() time.Time { return now }}
		b := &table{db: d, queue: testQueue, node: "b", now: a.now}
		names := func(list []leasedLane, err error) string {
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, l := range list {
				ids = append(ids, l.id)
			}
			slices.Sort(ids)
			return strings.Join(ids, " ")
		}
		expect := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		claimable := func(n *table, expired bool) string {
			found, err := n.claimable(ctx, expired)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(found)
		}
		release := func(n *table, lane string, seq int64, next time.Time) string {
			list, err := n.release(ctx, []releasedLane{{lane, seq, next}})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(list, " ")
		}

		enqueueLane(t, d, "due", now)
		enqueueLane(t, d, "later", now.Add(time.Minute))
		write(t, d, func(tx *db.Tx) error {
			return Pin(ctx, tx, Pinning{Queue: testQueue, Lane: "pinned", Node: "b", Now: now})
		})
		expect("a claims due lanes that aren't pinned to others", names(a.claim(ctx, 10, false)), "due")
		expect("claimable by a", claimable(a, false), "false")
		expect("claimable by b", claimable(b, false), "true")
		expect("b claims its pinned lane", names(b.claim(ctx, 10, false)), "pinned")
		expect("a renews its own lanes", names(a.renew(ctx, time.Now().Add(leaseDuration), 0)), "due")

		enqueueLane(t, d, "due", now)
		expect("a lane with new work isn't released", release(a, "due", 1, time.Time{}), "")
		expect("nor by another node", release(b, "due", 2, time.Time{}), "")
		expect("released", release(a, "due", 2, now.Add(time.Hour)), "due")
		expect("a released lane isn't due before its next item", claimable(a, false), "false")
		now = now.Add(time.Minute)
		expect("a claims a lane once it is due", names(a.claim(ctx, 10, false)), "later")
		now = now.Add(time.Hour)
		expect("and the released one", names(b.claim(ctx, 10, false)), "due")

		expect("claimable after expiry, while leases hold", claimable(b, true), "false")
		expect("renewed into the past", names(a.renew(ctx, time.Now().Add(-time.Second), 0)), "later")
		expect("claimable after expiry", claimable(b, true), "true")
		expect("b takes over the expired lane", names(b.claim(ctx, 10, true)), "later")
		expect("a has lost it", names(a.renew(ctx, time.Now().Add(leaseDuration), 0)), "")

		if err := b.handOver(ctx, []string{"later", "pinned"}); err != nil {
			t.Fatal(err)
		}
		if n, err := a.waiting(ctx, 10); err != nil || n != 1 {
			t.Errorf("waiting for a: got %d (%v), want 1", n, err)
		}
		if n, err := b.waiting(ctx, 1); err != nil || n != 1 {
			t.Errorf("waiting for b, at most 1: got %d (%v)", n, err)
		}
		expect("b claims its pinned lane again", names(b.claim(ctx, 10, false)), "later pinned")
		if err := b.give(ctx, "a", []string{"later", "pinned"}); err != nil {
			t.Fatal(err)
		}
		expect("a gets the lane that isn't pinned", names(a.renew(ctx, time.Now().Add(leaseDuration), 0)), "later")
		if err := a.handOver(ctx, []string{"later"}); err != nil {
			t.Fatal(err)
		}
		if err := b.releaseAll(ctx); err != nil {
			t.Fatal(err)
		}
		expect("a claims what b released", names(a.claim(ctx, 10, false)), "due later")
		if seq, err := a.seq(ctx, "due"); err != nil || seq != 2 {
			t.Errorf("seq: got %d (%v), want 2", seq, err)
		}
		if node, err := PinnedNode(ctx, d, testQueue, "pinned"); err != nil || node != "b" {
			t.Errorf("pinned node: got %q (%v), want b", node, err)
		}
		if err := ClearOwners(ctx, d); err != nil {
			t.Fatal(err)
		}
		expect("owners cleared", names(a.renew(ctx, time.Now(), 0)), "")
	})
}

// TestEnqueueInDifferentOrdersDoesNotDeadlock runs two transactions that
// enqueue into the same two lanes in different orders.
func TestEnqueueInDifferentOrdersDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			t.Skip("SQLite runs one transaction at a time")
		}
		enqueue := func(tx *db.Tx, id string) {
			_ = Enqueue(t.Context(), tx, testQueue, map[string]time.Time{id: time.Now()})
		}
		enqueueLane(t, d, "a", time.Now())
		enqueueLane(t, d, "b", time.Now())
		var runs atomic.Int64
		var halfway, both sync.WaitGroup
		halfway.Add(2)
		for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
			first := sync.OnceFunc(halfway.Done)
			both.Go(func() {
				write(t, d, func(tx *db.Tx) error {
					runs.Add(1)
					enqueue(tx, order[0])
					first()
					halfway.Wait()
					enqueue(tx, order[1])
					return nil
				})
			})
		}
		both.Wait()
		if n := runs.Load(); n != 2 {
			t.Errorf("2 transactions: got %d runs, want 2", n)
		}
		for _, id := range []string{"a", "b"} {
			if seq, err := (&table{db: d, queue: testQueue}).seq(t.Context(), id); err != nil || seq != 3 {
				t.Errorf("seq of %s: got %d (%v), want 3", id, seq, err)
			}
		}
	})
}

// TestFullNodeMakesRoom checks that it hands over as many lanes as wait, and no
// more.
func TestFullNodeMakesRoom(t *testing.T) {
	t.Parallel()
	const limit = 32 // of which it hands over two at a time
	type change = func(*lane[fakeItem])
	busy := func(l *lane[fakeItem]) { l.phase, l.inFlight = working, 1 }
	inScan := func(l *lane[fakeItem]) { l.phase = scanning }
	notStarted := func(l *lane[fakeItem]) { l.started = false }
	is := func(h health) change {
		return func(l *lane[fakeItem]) { l.health, l.started = h, false }
	}
	for name, c := range map[string]struct {
		waiting int
		changed map[int]change // other lanes are healthy, idle and have had a turn
		crowded bool           // unknown lanes have all their slots
		want    []string
	}{
		"none waits":                      {waiting: 0},
		"one waits":                       {waiting: 1, want: []string{"00"}},
		"many wait":                       {waiting: 9, want: []string{"00", "01"}},
		"some are busy":                   {waiting: 9, changed: map[int]change{0: busy, 2: inScan}, want: []string{"01", "03"}},
		"some had no turn":                {waiting: 9, changed: map[int]change{0: notStarted, 1: notStarted}, want: []string{"02", "03"}},
		"one is slow":                     {waiting: 9, changed: map[int]change{7: is(slow)}, want: []string{"00", "07"}},
		"unknown lanes get their turn":    {waiting: 9, changed: map[int]change{7: is(unknown)}, want: []string{"00", "01"}},
		"unknown lanes have all they may": {waiting: 9, changed: map[int]change{7: is(unknown)}, crowded: true, want: []string{"00", "07"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{rows: map[string]*row{}}
			n := &node{w: w, name: "a"}
			r := newRunner(leaseStore(n), Source[fakeItem](nil), Options{Slots: 8, MaxLanes: limit, Now: time.Now})
			for i := range limit {
				l := fakeLane(healthy, 1, 0)
				l.id, l.phase, l.claimedAt, l.started = fmt.Sprintf("%02d", i), idle, time.Now().Add(time.Duration(i)), true
				if change := c.changed[i]; change != nil {
					change(l)
				}
				r.lanes[l.id] = l
				w.rows[l.id] = &row{owner: "a"}
			}
			for i := range c.waiting {
				w.rows[fmt.Sprint("waits-", i)] = &row{due: 1}
			}
			if c.crowded {
				r.runningBy[unknown] = 6
			}
			r.makeRoom(t.Context())
			var got []string
			for id, row := range w.rows {
				if row.owner == "" && row.due > 1 {
					got = append(got, id)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("handed over %v, want %v", got, c.want)
			}
		})
	}
}

// tasks is a source over a table of the tests.
type tasks struct {
	d    *db.DB
	runs *sync.Map // of item IDs
	done *atomic.Int64
}

func (s *tasks) Fetch(ctx context.Context, lane string, after Key, n int) (b Batch[entry], err error) {
	rows, err := s.d.Query(ctx, "SELECT due_at, id FROM tasks WHERE lane = $1 AND (due_at, id) > ($2, $3) ORDER BY due_at, id LIMIT $4",
		lane, after.Due, after.ID, int64(n))
	b.Items, err = db.All(rows, err, func(r db.Row) (e entry, err error) {
		err = r.Scan(&e.due, &e.id)
		return e, err
	})
	return b, err
}

func (s *tasks) Work(ctx context.Context, _ string, e entry) Result {
	if _, again := s.runs.LoadOrStore(e.id, true); again {
		s.done.Add(1 << 32)
	}
	err := s.d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM tasks WHERE id = $1", e.id)
		return err
	})
	s.done.Add(1)
	return Result{Healthy: err == nil, Done: true, Outcome: db.Written}
}

// start runs a runner until the test ends.
func start[T Item](t *testing.T, r *Runner[T]) {
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
}

// TestTwoNodesRunEveryItemOnce runs on a real database, with nodes that drain
// and release the lanes all the time.
func TestTwoNodesRunEveryItemOnce(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		d := dbtest.Open(t, address)
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "CREATE TABLE tasks (id TEXT PRIMARY KEY, lane TEXT NOT NULL, due_at BIGINT NOT NULL)")
			return err
		})
		var runs sync.Map
		var done atomic.Int64
		for i, node := range []*db.DB{d, dbtest.Open(t, address)} {
			start(t, NewRunner(node, Source[entry](&tasks{node, &runs, &done}), Options{Queue: testQueue, Node: fmt.Sprint(i), PerLane: 8, Slots: 16,
				MaxLanes: 100, Now: time.Now, Poll: 2 * time.Millisecond, Linger: time.Nanosecond}))
		}
		const producers, rounds = 4, 60
		var all sync.WaitGroup
		for p := range producers {
			all.Go(func() {
				for i := range rounds {
					lane, now := fmt.Sprint("lane-", (p+i)%10), time.Now()
					write(t, d, func(tx *db.Tx) error {
						_, err := tx.Exec(t.Context(), "INSERT INTO tasks (id, lane, due_at) VALUES ($1, $2, $3)", fmt.Sprintf("%d-%d", p, i), lane, now.UnixMicro())
						if err != nil {
							return err
						}
						return Enqueue(t.Context(), tx, testQueue, map[string]time.Time{lane: now})
					})
				}
			})
		}
		all.Wait()
		eventually(t, "every item ran once", func() bool { return done.Load() >= producers*rounds })
		if n := done.Load(); n != producers*rounds {
			t.Errorf("%d items ran, want %d; %d ran again", n%(1<<32), producers*rounds, n>>32)
		}
	})
}

// endless is a source whose lanes always have more items. It keeps the number of the next item of each lane.
type endless struct {
	mu   *sync.Mutex
	next map[string]int
	bad  *[]string
	runs *atomic.Int64 // of this node
}

func (s *endless) Fetch(_ context.Context, lane string, after Key, n int) (b Batch[entry], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := s.next[lane]; len(b.Items) < n; i++ {
		if e := (entry{id: fmt.Sprintf("%09d", i), due: int64(1 + i)}); compareKeys(e.Key(), after) > 0 {
			b.Items = append(b.Items, e)
		}
	}
	return b, nil
}

func (s *endless) Work(_ context.Context, lane string, e entry) Result {
	s.mu.Lock()
	if want := fmt.Sprintf("%09d", s.next[lane]); e.id != want {
		*s.bad = append(*s.bad, fmt.Sprintf("%s of %s ran, want %s", e.id, lane, want))
	}
	s.next[lane]++
	s.mu.Unlock()
	s.runs.Add(1)
	runtime.Gosched()
	return Result{Healthy: true, Done: true, Outcome: db.Written}
}

// TestNodesShareTheLanesOfABurst enqueues work for twenty lanes on one of two nodes, and later on a node whose peer
// joins only then. Each node gets a fair share, and no item is repeated, lost or reordered when its lane moves.
func TestNodesShareTheLanesOfABurst(t *testing.T) {
	t.Parallel()
	for _, joinsLate := range []bool{false, true} {
		t.Run(map[bool]string{false: "both run", true: "one joins"}[joinsLate], func(t *testing.T) {
			t.Parallel()
			address := dbtest.Address(t, "postgres")
			var mu sync.Mutex
			var bad []string
			var runs [2]atomic.Int64
			next := map[string]int{}
			var runners [2]*Runner[entry]
			databases := [2]*db.DB{dbtest.Open(t, address), dbtest.Open(t, address)}
			join := func(i int) {
				runners[i] = NewRunner(databases[i], Source[entry](&endless{&mu, next, &bad, &runs[i]}),
					Options{Queue: testQueue, Node: fmt.Sprint("node-", i), PerLane: 1, Slots: 64, MaxLanes: 100, MoveBacklogs: true, Now: time.Now, Poll: 20 * time.Millisecond})
				start(t, runners[i])
			}
			knows := func(r *Runner[entry]) bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.peers) == 1 }
			join(0)
			if !joinsLate {
				join(1)
				eventually(t, "the nodes know each other", func() bool { return knows(runners[0]) && knows(runners[1]) })
			}
			due := map[string]time.Time{}
			for i := range 20 {
				due[fmt.Sprintf("lane-%02d", i)] = time.Now()
			}
			write(t, databases[0], func(tx *db.Tx) error { return Enqueue(t.Context(), tx, testQueue, due) })
			if joinsLate {
				eventually(t, "the first node has all lanes", func() bool { return runners[0].Stats().Lanes == 20 })
				join(1)
			}
			var share float64
			eventually(t, "each node runs its share of 2,000 items", func() bool {
				var before, ran [2]int64
				for i := range runs {
					before[i] = runs[i].Load()
				}
				eventually(t, "2,000 items run", func() bool {
					for i := range runs {
						ran[i] = runs[i].Load() - before[i]
					}
					return ran[0]+ran[1] >= 2000
				})
				share = float64(max(ran[0], ran[1])) / float64(ran[0]+ran[1])
				return share <= 0.65
			})
			t.Logf("the busier node ran %.2f of the items", share)
			mu.Lock()
			defer mu.Unlock()
			if len(bad) > 0 {
				t.Errorf("%d items are repeated, lost or reordered: %.3q", len(bad), bad)
			}
		})
	}
}

// eventually polls for a state that has no event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

// largeItem is an item that takes memory.
type largeItem struct {
	id string
	_  [4 << 10]byte
}

func (i *largeItem) Key() Key { return Key{Due: 1, ID: i.id} }

// largeItems returns items from its first scan, and refers to them weakly.
type largeItems struct {
	mu   sync.Mutex
	all  []weak.Pointer[largeItem]
	done int
}

func (s *largeItems) Fetch(context.Context, string, Key, int) (b Batch[*largeItem], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all != nil {
		return b, nil
	}
	for i := range 16 {
		item := &largeItem{id: fmt.Sprintf("%02d", i)}
		b.Items = append(b.Items, item)
		s.all = append(s.all, weak.Make(item))
	}
	return b, nil
}

func (s *largeItems) Work(context.Context, string, *largeItem) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	return Result{Healthy: true, Done: true, Outcome: db.Written}
}

// TestLaneRetainsNoFinishedItems checks the memory of a lane, because a node
// may lease thousands of them.
func TestLaneRetainsNoFinishedItems(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	s := &largeItems{}
	r := NewRunner(d, Source[*largeItem](s), Options{Queue: testQueue, Node: "a", PerLane: 8, Slots: 8, MaxLanes: 8, Now: time.Now, Linger: time.Hour})
	start(t, r)
	enqueueLane(t, d, "lane", time.Now())
	eventually(t, "all items are done and collected", func() bool {
		runtime.GC()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.done == 16 && !slices.ContainsFunc(s.all, func(p weak.Pointer[largeItem]) bool { return p.Value() != nil })
	})
	if n := r.Stats().Lanes; n != 1 {
		t.Errorf("leased lanes: got %d, want 1", n)
	}
}
