package chaos

import (
	"syscall"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// TestNodesShareDeliveries lets nodes on one database come and go under a
// stream of events to fifty endpoints. Each type of event goes to endpoints of
// its own and has a pause between its turns that is longer than a drained lane
// is kept, so that lanes go from hand to hand all the time.
//
// As long as nodes only join and stop nothing comes twice: claims that do not
// skip what another one claims, a lane that is given back with an attempt
// under way, or a node that works on a lane which is no longer its own would
// show.
//
// Then one node is killed, and another one stands still for longer than its
// lease and goes on. What they had under way comes again, and no more. What
// the one that stood still has to say is late: it is on record, and changes
// nothing. Without taking over leases that ran out much would never come; a
// node that went on with lanes it had once would repeat more than was under
// way; outcomes that are written over newer ones would have deliveries fail
// that came, or count fewer attempts than there are.
func TestNodesShareDeliveries(t *testing.T) {
	t.Parallel()
	turns := 1
	if full {
		turns = 6
	}
	const (
		endpoints = 50
		each      = 8 // events at a time
	)
	at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	c := &customer{}
	join := func() *node {
		t.Helper()
		// What times out because its node stands still is tried again soon.
		n := &node{Server: serveHooks(t, program.Place{Folder: t.TempDir(), DatabaseURL: at.DatabaseURL}, "--webhooks-retry-schedule=1s,1s,1s,1s,1s")}
		if c.d == nil {
			c = newCustomer(t, at)
		}
		if err := c.d.QueryRow(t.Context(), "SELECT id FROM nodes ORDER BY started_at DESC LIMIT 1").Scan(&n.id); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, second := join(), join()
	for i := range endpoints {
		c.inbox(t, first.URL, string(events.Types[i%len(events.Types)]))
	}
	// Eight types, a turn of each every four seconds.
	stream := func() func() { return c.stream(t, 4*time.Second/time.Duration(len(events.Types)), each) }
	stop := stream()
	var deaths []death
	for range turns {
		third, fourth := join(), join()
		finish(t, first.Server)
		c.shared(t, 3)
		stop()
		c.settle(t, promptly)
		if len(deaths) == 0 {
			noRepeats(t, c.check(t, third.URL))
		}
		stop = stream()

		d := death{engaged: c.engage(t, second, third), killed: time.Now()}
		second.Kill()
		third.signal(t, syscall.SIGSTOP)
		c.hold(false)
		d.begun = time.Now().Add(time.Second) // what was on its way is read by then
		for _, b := range c.inboxes {
			eventually(t, leaseTime+promptly, "the one that is left takes over", func() bool { return b.came(d.begun) > 0 })
		}
		t.Logf("taken over %v after the death", time.Since(d.killed).Round(time.Millisecond))
		d.resumed = time.Now()
		deaths = append(deaths, d)
		third.signal(t, syscall.SIGCONT)
		first, second = fourth, join()
		c.shared(t, 2)
		finish(t, third.Server)
	}
	stop()
	c.settle(t, promptly)
	repeats := c.check(t, first.URL)
	excused(t, repeats, deaths, turns*endpoints*each)
	if count(t, c.d, "SELECT count(*) FROM deliveries WHERE attempts > 1") == 0 {
		t.Error("no delivery has two attempts: the one that stood still had nothing to say")
	}
	t.Logf("%d of %d deliveries came again after %d deaths", len(repeats), c.arrivals.Load(), 2*turns)
}

// node is a server and the name that it has among the others.
type node struct {
	*program.Server
	id string
}

func (n *node) signal(t *testing.T, what syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(n.Pid(), what); err != nil {
		t.Fatal(err)
	}
}

// engage returns when all inboxes keep attempts waiting, some of each node's,
// and since when.
func (c *customer) engage(t *testing.T, nodes ...*node) (since time.Time) {
	t.Helper()
	for range 10 {
		begun := time.Now()
		c.hold(true)
		for _, b := range c.inboxes {
			eventually(t, returnTime, "all endpoints have attempts under way", func() bool { return b.came(begun) > 0 })
		}
		idle := 0
		for _, n := range nodes {
			if count(t, c.d, "SELECT count(*) FROM lanes WHERE owner = $1", n.id) == 0 {
				idle++
			}
		}
		if idle == 0 {
			return begun
		}
		c.hold(false) // others were faster each time
	}
	t.Fatal("some node never has anything to do")
	return since
}

// owners counts the nodes that have lanes.
func (c *customer) owners(t *testing.T) int {
	t.Helper()
	return count(t, c.d, "SELECT count(DISTINCT owner) FROM lanes WHERE lease_until > $1", time.Now().UnixMicro())
}

// shared waits until so many nodes have lanes at once, and each endpoint had
// its turn.
func (c *customer) shared(t *testing.T, nodes int) {
	t.Helper()
	begun := time.Now()
	eventually(t, time.Minute, "so many nodes have lanes", func() bool { return c.owners(t) >= nodes })
	for _, b := range c.inboxes {
		eventually(t, 2*returnTime, "each endpoint gets something", func() bool { return b.came(begun) > 0 })
	}
	t.Logf("%d nodes had lanes, and all endpoints deliveries, within %v", nodes, time.Since(begun).Round(time.Millisecond))
}

// finish asks a server to stop and waits until it has.
func finish(t *testing.T, s *program.Server) {
	t.Helper()
	if err := s.Terminate(); err != nil {
		t.Fatal(err)
	}
	if code, err := s.Wait(30 * time.Second); code != 0 || err != nil {
		t.Fatalf("the server ended with %d, %v", code, err)
	}
}

// TestAStoppingNodeKeepsOnlyWhatItHasUnderWay: an attempt is under way when a
// node is asked to stop, and takes long. Another node runs.
//
// If the first one let its lease run out while it waits for the answer, the
// other one would make the same attempt again. If it kept all its lanes until
// then, one slow endpoint would hold up everybody's deliveries.
func TestAStoppingNodeKeepsOnlyWhatItHasUnderWay(t *testing.T) {
	t.Parallel()
	at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	first := serveHooks(t, at, "--webhooks-timeout=40s")
	c := newCustomer(t, at)
	slow, other := c.inbox(t, first.URL), c.inbox(t, first.URL)
	slow.hold(true)
	begun := time.Now()
	underWay := c.happen(t, 1)[0]
	eventually(t, promptly, "the attempts are made", func() bool { return slow.came(begun) == 1 && other.came(begun) == 1 })

	second := serveHooks(t, program.Place{Folder: t.TempDir(), DatabaseURL: at.DatabaseURL}, "--webhooks-timeout=40s")
	if err := first.Terminate(); err != nil {
		t.Fatal(err)
	}
	stopping := time.Now()
	e := c.happen(t, 1)[0]
	eventually(t, promptly, "the other endpoint gets its events", func() bool { return other.has(e.ID) })

	// The lease is renewed on the way, or waited for to show that it was.
	beyond := stopping.Add(leaseTime + 2*time.Second)
	eventually(t, leaseTime+promptly, "the lease goes on", func() bool {
		if n := slow.times(underWay.ID); n > 1 {
			t.Fatalf("%v after the node was asked to stop, another one took over from it in the middle of an attempt", time.Since(stopping))
		}
		if full {
			return time.Now().After(beyond)
		}
		return count(t, c.d, "SELECT count(*) FROM lanes WHERE id = $1 AND lease_until > $2", slow.id, beyond.UnixMicro()) == 1
	})
	slow.hold(false)
	if code, err := first.Wait(30 * time.Second); code != 0 || err != nil {
		t.Fatalf("the node ended with %d, %v", code, err)
	}
	c.settle(t, promptly)
	noRepeats(t, c.check(t, second.URL))
}

// TestAServerStopsThoughTheStoreIsAway: what an attempt came to cannot be
// written, and the server is asked to stop. It must not wait for ever, or
// whoever runs it kills it; the attempt is made again by the next one.
func TestAServerStopsThoughTheStoreIsAway(t *testing.T) {
	t.Parallel()
	if !full {
		t.Skip("waits for a lease to run out: part of the long form")
	}
	cluster, err := dbtest.StartCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	at := program.Place{Folder: t.TempDir(), DatabaseURL: cluster.URL()}
	server := serveHooks(t, at)
	c := newCustomer(t, at)
	b := c.inbox(t, server.URL)
	b.hold(true)
	c.happen(t, 3)
	eventually(t, promptly, "attempts are under way", func() bool { return c.arrivals.Load() == 3 })
	d := death{killed: time.Now()}
	if err := cluster.Kill(); err != nil {
		t.Fatal(err)
	}
	b.hold(false)
	if err := server.Terminate(); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	if _, err := server.Wait(2*leaseTime + promptly); err != nil {
		t.Fatal(err)
	}
	t.Logf("ended after %v", time.Since(asked).Round(time.Millisecond))
	if err := cluster.Restart(); err != nil {
		t.Fatal(err)
	}
	server = serveHooks(t, at)
	d.begun = time.Now()
	c.settle(t, leaseTime+promptly)
	excused(t, c.check(t, server.URL), []death{d}, 3)
}
