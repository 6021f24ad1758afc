package chaos

import (
	"net"
	"sync"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// silentHost returns the address of a host that accepts connections and never responds.
func silentHost(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		ln.Close()
		all.Wait()
		for _, conn := range conns {
			conn.Close()
		}
	})
	return ln.Addr().String()
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	return ln.Addr().String()
}

// TestDeadEndpointsDelayNoOthers sends every event to twenty healthy endpoints and to
// three that are dead in different ways. The healthy ones receive all events before the
// first attempt to a dead one times out. Without a lane per endpoint, the dead ones
// would occupy all slots by then.
func TestDeadEndpointsDelayNoOthers(t *testing.T) {
	longOnly(t, "lanes.TestLanesThatTurnSlowLeaveSlots, api.TestRetryDoesNotWaitForAHangingDelivery")
	t.Parallel()
	amount, patience := 150, promptly
	if full {
		amount, patience = 500, 4*promptly
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serveHooks(t, at, "--webhooks-concurrency=64") // as many as two of the dead endpoints could use
		c := newWebhookFixture(t, at)
		var dead []string
		for _, address := range []string{silentHost(t), closedPort(t), blackHole(t)} {
			id, _ := c.endpoint(t, server.URL, "http://"+address+"/")
			dead = append(dead, id)
		}
		for range 20 {
			c.inbox(t, server.URL)
		}
		begun := time.Now()
		c.burst(t, amount)()
		stored := time.Now()
		for _, b := range c.inboxes {
			eventually(t, patience, "the healthy endpoints have all events", func() bool { return b.receivedSince(begun) >= amount })
		}
		t.Logf("%d events took %v to be stored, and %v more to come to 20 endpoints beside 3 dead ones",
			amount, stored.Sub(begun).Round(time.Millisecond), time.Since(stored).Round(time.Millisecond))
		if full {
			for _, id := range dead {
				eventually(t, 2*promptly, "the deliveries to the dead endpoints fail", func() bool {
					return count(t, c.d, "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status = 'retrying'", id) > 0
				})
			}
		}
		if n := count(t, c.d, "SELECT count(*) FROM deliveries WHERE status = 'succeeded'"); n > amount*len(c.inboxes) {
			t.Errorf("got %d successful deliveries: the dead endpoints were not dead", n)
		}
	})
}

// TestHangingEndpointsLeaveSlots has three times as many hanging endpoints as slots.
// Once the server has noticed them, a healthy endpoint gets its events immediately. It
// doesn't matter whether the hanging ones always have deliveries or only now and then.
// Without slots reserved for healthy lanes, or if idle lanes lost their slow mark, the
// healthy endpoint would wait behind every attempt.
func TestHangingEndpointsLeaveSlots(t *testing.T) {
	longOnly(t, "lanes.TestLanesThatTurnSlowLeaveSlots")
	t.Parallel()
	if full {
		eachEngine(t, checkHangingEndpoints)
	} else {
		checkHangingEndpoints(t, program.Place{Dir: t.TempDir()})
	}
}

func checkHangingEndpoints(t *testing.T, at program.Place) {
	const hanging = 200
	server := serveHooks(t, at, "--webhooks-concurrency=64", "--webhooks-timeout=1s", "--webhooks-retry-schedule=10m,10m,10m")
	c := newWebhookFixture(t, at)
	address := silentHost(t)
	for range hanging {
		c.endpoint(t, server.URL, "http://"+address+"/")
	}
	well := c.inbox(t, server.URL) // created last
	probe := func(what string) {
		t.Helper()
		begun := time.Now()
		e := c.publishNow(t, 1)[0]
		// If the hanging endpoints were unknown, they would delay it by three seconds.
		eventually(t, 2500*time.Millisecond, "the healthy endpoint gets its event "+what, func() bool { return well.has(e.ID) })
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	c.publishNow(t, 1)
	eventually(t, time.Minute, "every hanging endpoint is known to hang", func() bool {
		return count(t, c.d, "SELECT count(DISTINCT endpoint_id) FROM deliveries WHERE status = 'retrying'") == hanging
	})
	probe("when the hanging ones are known")
	probe("beside hanging ones that have much to do")
	eventually(t, time.Minute, "the lanes of the hanging endpoints are released", func() bool {
		return count(t, c.d, "SELECT count(*) FROM lanes WHERE owner IS NOT NULL") == 0
	})
	probe("beside hanging ones that come back")
}
