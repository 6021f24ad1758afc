package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// testClock is a clock that several nodes share.
type testClock struct{ time.Time }

func (c *testClock) now() time.Time { return c.Time }

func (c *testClock) advance(d time.Duration) { c.Time = c.Add(d) }

func join(t testing.TB, d *db.DB, now func() time.Time) *Node {
	t.Helper()
	n, err := Join(t.Context(), d, now)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// run advances the clock, with a heartbeat of each node every interval.
func (c *testClock) run(t *testing.T, duration time.Duration, nodes ...*Node) {
	t.Helper()
	for range duration / heartbeatInterval {
		c.advance(heartbeatInterval)
		for _, n := range nodes {
			if err := n.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func evict(t *testing.T, by *Node) int64 {
	t.Helper()
	n, err := by.EvictStale(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func isMember(t *testing.T, n *Node) bool {
	t.Helper()
	list, err := List(t.Context(), n.db)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(d Description) bool { return d.ID == n.ID })
}

func postgres(t *testing.T) *db.DB {
	t.Helper()
	return dbtest.Open(t, dbtest.Address(t, "postgres"))
}

func TestOnlyStaleNodesAreEvicted(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	steady, dead, alive := join(t, d, c.now), join(t, d, c.now), join(t, d, c.now)
	c.run(t, staleAfter, steady, alive)
	if n := evict(t, steady); n != 0 {
		t.Errorf("evicted %d nodes whose last heartbeat is %v old, want 0", n, staleAfter)
	}
	c.run(t, heartbeatInterval, steady, alive)
	if n := evict(t, steady); n != 1 || isMember(t, dead) || !isMember(t, alive) {
		t.Errorf("evicted %d, dead is a member: %t, alive is a member: %t; want 1, false, true", n, isMember(t, dead), isMember(t, alive))
	}
}

func TestEmbeddedDatabaseHasOneMember(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	before, now := join(t, d, time.Now), join(t, d, time.Now)
	if n := evict(t, now); n != 1 || isMember(t, before) || !isMember(t, now) {
		t.Errorf("a new process evicted %d nodes, want 1, the one before it", n)
	}
}

// TestDatabaseOutageEvictsNoNode covers 90 seconds without a database. Every
// heartbeat is stale then, and the first node to return must not evict the
// others.
func TestDatabaseOutageEvictsNoNode(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	all := []*Node{join(t, d, c.now), join(t, d, c.now), join(t, d, c.now)}
	c.run(t, 5*time.Minute, all...)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 90 * time.Second / heartbeatInterval {
		c.advance(heartbeatInterval)
		for _, n := range all {
			if err := n.Heartbeat(ended); err == nil {
				t.Fatal("a heartbeat was stored during the outage")
			}
		}
	}
	// The first node returns immediately, the second after 30 seconds, the
	// third after 55. Each tries to evict after every heartbeat.
	for since := time.Duration(0); since <= 3*time.Minute; since += heartbeatInterval {
		for i, back := range []time.Duration{0, 30 * time.Second, 55 * time.Second} {
			if since < back {
				continue
			}
			if err := all[i].Heartbeat(t.Context()); err != nil {
				t.Fatalf("node %d, %v after the outage: %v", i, since, err)
			}
			if n := evict(t, all[i]); n != 0 {
				t.Fatalf("node %d evicted %d nodes %v after the outage, want 0", i, n, since)
			}
		}
		c.advance(heartbeatInterval)
	}
}

// TestInterruptedNodeEvictsNone covers a process that was suspended: none of its
// heartbeats failed.
func TestInterruptedNodeEvictsNone(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	suspended, other := join(t, d, c.now), join(t, d, c.now)
	c.run(t, 2*time.Minute, suspended, other)
	c.advance(2 * time.Minute)
	if n := evict(t, suspended); n != 0 {
		t.Errorf("evicted %d nodes without a heartbeat of its own, want 0", n)
	}
	c.run(t, steadyAfter, suspended)
	if n := evict(t, suspended); n != 0 {
		t.Errorf("evicted %d nodes within a minute, want 0", n)
	}
	c.run(t, heartbeatInterval, suspended)
	if n := evict(t, suspended); n != 1 {
		t.Errorf("evicted %d nodes after a minute of heartbeats, want 1", n)
	}
}

// TestClockDifferencesEvictNoNode joins from machines whose clocks differ by
// more than staleAfter.
func TestClockDifferencesEvictNoNode(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	var all []*Node
	for _, ahead := range []time.Duration{0, 2 * staleAfter, -2 * staleAfter, 40 * 24 * time.Hour} {
		local := func() time.Time { return time.Now().Round(0).Add(ahead) } // without a monotonic reading
		d, err := db.OpenWithClock(t.Context(), address, local)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if got := d.ClockSkew(); (got + ahead).Abs() > time.Second {
			t.Errorf("got a clock %v behind the database's, want %v", got, -ahead)
		}
		all = append(all, join(t, d, local))
	}
	for _, n := range all {
		n.steadySince = n.steadySince.Add(-steadyAfter)
		if evicted := evict(t, n); evicted != 0 {
			t.Errorf("evicted %d live nodes, want 0", evicted)
		}
	}
}

// TestEvictedNodeCannotWrite checks every way in which a node learns that it was
// evicted, and that it never becomes a member again.
func TestEvictedNodeCannotWrite(t *testing.T) {
	t.Parallel()
	d, c := postgres(t), &testClock{time.Now()}
	steady, evicted := join(t, d, c.now), join(t, d, c.now)
	running := make(chan error, 1)
	go func() { running <- evicted.Run(t.Context()) }()
	c.run(t, staleAfter+heartbeatInterval, steady)
	if n := evict(t, steady); n != 1 {
		t.Fatalf("evicted %d nodes, want 1", n)
	}
	if !evicted.LeaseValid() {
		t.Fatal("the node notices by its clock, which this test must rule out")
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error { return evicted.AssertAlive(tx) })
	if !errors.Is(err, ErrEvicted) || !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("AssertAlive: got %v, want ErrEvicted", err)
	}
	if err := <-running; !errors.Is(err, ErrEvicted) {
		t.Errorf("Run: got %v, want ErrEvicted", err)
	}
	if err := evicted.Heartbeat(t.Context()); !errors.Is(err, ErrEvicted) || isMember(t, evicted) {
		t.Errorf("Heartbeat: got %v, member %t; want ErrEvicted, false", err, isMember(t, evicted))
	}
}

// TestEvictionWaitsForTransactionsOfTheNode checks that a transaction that
// passed AssertAlive commits before the eviction.
func TestEvictionWaitsForTransactionsOfTheNode(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	d, c := dbtest.Open(t, address), &testClock{time.Now()}
	steady, slow := join(t, d, c.now), join(t, dbtest.Open(t, address), c.now)
	c.run(t, staleAfter+heartbeatInterval, steady)
	evicted := make(chan error, 1)
	err := slow.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := slow.AssertAlive(tx); err != nil {
			return err
		}
		if _, err := db.Value[int64](tx.QueryRow(t.Context(), "SELECT count(*) FROM nodes")); err != nil { // sends the assertion
			return err
		}
		go func() {
			_, err := steady.EvictStale(t.Context())
			evicted <- err
		}()
		dbtest.AwaitBlocked(t, d, tx)
		if !isMember(t, slow) {
			t.Error("not a member during its transaction")
		}
		return nil
	})
	if err := errors.Join(err, <-evicted); err != nil {
		t.Fatal(err)
	}
	if isMember(t, slow) {
		t.Error("still a member after its transaction")
	}
}

func TestLeaseEndsWithoutHeartbeats(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := join(t, d, time.Now)
		if !n.LeaseValid() {
			t.Error("no valid lease after joining")
		}
		n.renewed = n.renewed.Add(-leaseDuration)
		// No other server can evict the one on an embedded database.
		if valid, want := n.LeaseValid(), n.exclusive(); valid != want {
			t.Errorf("without a heartbeat: got %t, want %t", valid, want)
		}
		if err := n.Heartbeat(t.Context()); err != nil || !n.LeaseValid() {
			t.Errorf("after another heartbeat: %v, valid %t", err, n.LeaseValid())
		}
	})
}

// TestOnlySteadyNodesEvict lets nodes fail and return at random. It compares the
// members, and who may evict, with a model.
func TestOnlySteadyNodesEvict(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := &testClock{time.Now()}
		type modeled struct {
			*Node
			seen   time.Time
			steady time.Duration // of uninterrupted heartbeats
			up     bool
			member bool
		}
		var all []*modeled
		for range 3 {
			all = append(all, &modeled{Node: join(t, d, c.now), seen: c.Time, up: true, member: true})
		}
		defer func() {
			for _, n := range all {
				_ = n.Leave(t.Context())
			}
		}()
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			for _, n := range all {
				if rapid.IntRange(0, 9).Draw(rt, "toggle") == 0 {
					n.up = !n.up
				}
			}
			c.advance(heartbeatInterval)
			for i, n := range all {
				if !n.up {
					continue
				}
				if err := n.Heartbeat(t.Context()); errors.Is(err, ErrEvicted) == n.member {
					rt.Fatalf("node %d is a member: %t, its heartbeat got %v", i, n.member, err)
				} else if err != nil {
					n.steady = 0
					continue
				}
				if gap := c.Sub(n.seen); gap > maxGap {
					n.steady = 0
				} else {
					n.steady += gap
				}
				n.seen = c.Time
				var want int64
				for _, other := range all {
					if n.steady >= steadyAfter && other.member && c.Sub(other.seen) > staleAfter {
						other.member = false
						want++
					}
				}
				if got := evict(t, n.Node); got != want {
					rt.Fatalf("node %d, steady for %v, evicted %d; want %d", i, n.steady, got, want)
				}
			}
		}
	})
}

func TestNodesReportTheHashOfTheirSettings(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		one, two, old := join(t, d, time.Now), join(t, d, time.Now), join(t, d, time.Now)
		one.SetConfigHash("aa")
		two.SetConfigHash("bb")
		for _, n := range []*Node{one, two, old} {
			if err := n.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ConfigHashes(t.Context(), d, d.Now())
		if want := map[string]string{one.ID: "aa", two.ID: "bb"}; err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v (%v), want %v", got, err, want)
		}
	})
}
