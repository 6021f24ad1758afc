package chaos

import (
	"syscall"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// TestJoiningAndLeavingNodesRepeatNoDelivery adds and removes nodes under a stream of
// events to fifty endpoints. Each event type has its own endpoints and pauses for
// longer than a drained lane is kept, so lanes keep moving between nodes.
//
// While nodes only join and stop, nothing is delivered twice. The test would notice
// claims that don't skip claimed lanes, lanes released during an attempt, and nodes
// that work on lanes they lost.
//
// Then one node is killed, and another is frozen for longer than its lease and resumed.
// Only attempts in progress are repeated. Late results of the frozen node are recorded
// and change nothing. The test would notice leases that are never taken over, a node
// that continues with lost lanes, and outcomes that overwrite newer ones.
func TestJoiningAndLeavingNodesRepeatNoDelivery(t *testing.T) {
	longOnly(t, "lanes.TestTwoNodesRunEveryItemOnce, lanes.TestNoItemIsLostOrRunsTwice")
	t.Parallel()
	turns := 1
	if full {
		turns = 6
	}
	const (
		endpoints = 50
		each      = 8 // events per batch
	)
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	c := &webhookFixture{}
	join := func() *node {
		t.Helper()
		// Attempts that time out while their node is frozen are retried soon.
		n := &node{Server: serveHooks(t, program.Place{Dir: t.TempDir(), DatabaseURL: at.DatabaseURL}, "--webhooks-retry-schedule=1s,1s,1s,1s,1s")}
		if c.d == nil {
			c = newWebhookFixture(t, at)
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
	// Eight types, each published every four seconds.
	stream := func() func() { return c.stream(t, 4*time.Second/time.Duration(len(events.Types)), each) }
	stop := stream()
	var deaths []crash
	for range turns {
		third, fourth := join(), join()
		stopServer(t, first.Server)
		c.waitUntilShared(t, 3)
		stop()
		c.waitUntilDelivered(t, promptly)
		if len(deaths) == 0 {
			wantNoRepeats(t, c.check(t, third.URL))
		}
		stop = stream()

		d := crash{engaged: c.holdAttempts(t, second, third), killed: time.Now()}
		second.Kill()
		third.signal(t, syscall.SIGSTOP)
		c.hold(false)
		d.begun = time.Now().Add(time.Second) // data on its way is read by then
		for _, b := range c.inboxes {
			eventually(t, leaseTime+promptly, "the remaining node takes over", func() bool { return b.receivedSince(d.begun) > 0 })
		}
		t.Logf("taken over %v after the death", time.Since(d.killed).Round(time.Millisecond))
		d.resumed = time.Now()
		deaths = append(deaths, d)
		third.signal(t, syscall.SIGCONT)
		first, second = fourth, join()
		c.waitUntilShared(t, 2)
		stopServer(t, third.Server)
	}
	stop()
	c.waitUntilDelivered(t, promptly)
	repeats := c.check(t, first.URL)
	checkRepeats(t, repeats, deaths, turns*endpoints*each)
	if count(t, c.d, "SELECT count(*) FROM deliveries WHERE attempts > 1") == 0 {
		t.Error("got no delivery with two attempts: the frozen node had none in progress")
	}
	t.Logf("%d of %d deliveries were repeated after %d deaths", len(repeats), c.arrivals.Load(), 2*turns)
}

// TestNodesShareTheEndpointsOfOneWorkspace streams events to twenty endpoints of a workspace. No node leases more than
// 13 of them, and moving the others to the second node repeats and loses nothing.
func TestNodesShareTheEndpointsOfOneWorkspace(t *testing.T) {
	longOnly(t, "lanes.TestNodesShareTheLanesOfABurst")
	t.Parallel()
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	first := serveHooks(t, at)
	c := newWebhookFixture(t, at)
	for range 20 {
		c.inbox(t, first.URL)
	}
	serveHooks(t, program.Place{Dir: t.TempDir(), DatabaseURL: at.DatabaseURL})
	stop := c.stream(t, 20*time.Millisecond, 20)
	eventually(t, time.Minute, "the nodes share the endpoints", func() bool {
		const leases = "SELECT count(*) AS n FROM lanes WHERE owner IS NOT NULL GROUP BY owner"
		return count(t, c.d, "SELECT coalesce(sum(n), 0) FROM ("+leases+") AS l") == 20 && count(t, c.d, "SELECT max(n) FROM ("+leases+") AS l") <= 13
	})
	stop()
	c.waitUntilDelivered(t, promptly)
	wantNoRepeats(t, c.check(t, first.URL))
}

// node is a server and its node ID.
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

// holdAttempts returns when all inboxes hold attempts, including some from each node,
// and since when.
func (c *webhookFixture) holdAttempts(t *testing.T, nodes ...*node) (since time.Time) {
	t.Helper()
	for range 10 {
		begun := time.Now()
		c.hold(true)
		for _, b := range c.inboxes {
			eventually(t, returnTime, "all endpoints have attempts in progress", func() bool { return b.receivedSince(begun) > 0 })
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
		c.hold(false) // the other nodes were faster each time
	}
	t.Fatal("timed out waiting until every node has an attempt in progress")
	return since
}

// owners counts the nodes that own lanes.
func (c *webhookFixture) owners(t *testing.T) int {
	t.Helper()
	return count(t, c.d, "SELECT count(DISTINCT owner) FROM lanes WHERE lease_until > $1", time.Now().UnixMicro())
}

// waitUntilShared waits until the given number of nodes own lanes concurrently and each
// endpoint had a delivery.
func (c *webhookFixture) waitUntilShared(t *testing.T, nodes int) {
	t.Helper()
	begun := time.Now()
	eventually(t, time.Minute, "enough nodes own lanes", func() bool { return c.owners(t) >= nodes })
	for _, b := range c.inboxes {
		eventually(t, 2*returnTime, "each endpoint gets a delivery", func() bool { return b.receivedSince(begun) > 0 })
	}
	t.Logf("%d nodes had lanes, and all endpoints deliveries, within %v", nodes, time.Since(begun).Round(time.Millisecond))
}

func stopServer(t *testing.T, s *program.Server) {
	t.Helper()
	if err := s.Terminate(); err != nil {
		t.Fatal(err)
	}
	if code, err := s.Wait(30 * time.Second); code != 0 || err != nil {
		t.Fatalf("got exit code %d (%v), want 0", code, err)
	}
}

// TestStoppingNodeKeepsOnlyAttemptsInProgress stops a node during a long attempt while
// another node runs.
//
// If the first node let its lease expire, the other would repeat the attempt. If it
// kept all its lanes, one slow endpoint would delay all deliveries.
func TestStoppingNodeKeepsOnlyAttemptsInProgress(t *testing.T) {
	longOnly(t, "lanes.TestStoppingNodeReleasesIdleLanesFirst")
	t.Parallel()
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	first := serveHooks(t, at, "--webhooks-timeout=40s")
	c := newWebhookFixture(t, at)
	slow, other := c.inbox(t, first.URL), c.inbox(t, first.URL)
	slow.hold(true)
	begun := time.Now()
	underWay := c.publishNow(t, 1)[0]
	eventually(t, promptly, "both attempts arrive", func() bool { return slow.receivedSince(begun) == 1 && other.receivedSince(begun) == 1 })

	second := serveHooks(t, program.Place{Dir: t.TempDir(), DatabaseURL: at.DatabaseURL}, "--webhooks-timeout=40s")
	if err := first.Terminate(); err != nil {
		t.Fatal(err)
	}
	stopping := time.Now()
	e := c.publishNow(t, 1)[0]
	eventually(t, promptly, "the other endpoint gets its events", func() bool { return other.has(e.ID) })

	// Wait past the lease to show that it is renewed.
	beyond := stopping.Add(leaseTime + 2*time.Second)
	eventually(t, leaseTime+promptly, "the lease is renewed", func() bool {
		if n := slow.receivedCount(underWay.ID); n > 1 {
			t.Fatalf("another node took over an attempt in progress %v after the first was asked to stop", time.Since(stopping))
		}
		if full {
			return time.Now().After(beyond)
		}
		return count(t, c.d, "SELECT count(*) FROM lanes WHERE id = $1 AND lease_until > $2", slow.id, beyond.UnixMicro()) == 1
	})
	slow.hold(false)
	if code, err := first.Wait(30 * time.Second); code != 0 || err != nil {
		t.Fatalf("got exit code %d (%v), want 0", code, err)
	}
	c.waitUntilDelivered(t, promptly)
	wantNoRepeats(t, c.check(t, second.URL))
}

// TestServerStopsDuringADatabaseOutage stops a server that can't write the outcome of
// an attempt. It must not wait forever, or its operator kills it. The next server
// repeats the attempt.
func TestServerStopsDuringADatabaseOutage(t *testing.T) {
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
	at := program.Place{Dir: t.TempDir(), DatabaseURL: cluster.URL()}
	server := serveHooks(t, at)
	c := newWebhookFixture(t, at)
	b := c.inbox(t, server.URL)
	b.hold(true)
	c.publishNow(t, 3)
	eventually(t, promptly, "attempts are in progress", func() bool { return c.arrivals.Load() == 3 })
	d := crash{killed: time.Now()}
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
	c.waitUntilDelivered(t, leaseTime+promptly)
	checkRepeats(t, c.check(t, server.URL), []crash{d}, 3)
}
