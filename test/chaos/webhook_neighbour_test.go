package chaos

import (
	"net"
	"sync"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// mute returns the address of a host that takes connections and says nothing.
func mute(t *testing.T) string {
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

// nobody returns an address where connections are refused.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	return ln.Addr().String()
}

// TestDeadEndpointsDelayNobody has every event go to twenty endpoints that
// are well and to three that are dead, each in its own way. The well ones have
// theirs before the first attempt to a dead one has even timed out. A queue
// that takes deliveries in their order, without a lane for each endpoint,
// would have filled all its slots with the dead ones' by then.
func TestDeadEndpointsDelayNobody(t *testing.T) {
	t.Parallel()
	amount, patience := 150, promptly
	if full {
		amount, patience = 500, 4*promptly
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serveHooks(t, at, "--webhooks-concurrency=64") // as many as two of the dead ones could use up
		c := newCustomer(t, at)
		var dead []string
		for _, address := range []string{mute(t), nobody(t), blackHole(t)} {
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
			eventually(t, patience, "the well ones have everything", func() bool { return b.came(begun) >= amount })
		}
		t.Logf("%d events took %v to be stored, and %v more to come to 20 endpoints beside 3 dead ones",
			amount, stored.Sub(begun).Round(time.Millisecond), time.Since(stored).Round(time.Millisecond))
		if full {
			for _, id := range dead {
				eventually(t, 2*promptly, "the dead ones fail", func() bool {
					return count(t, c.d, "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status = 'retrying'", id) > 0
				})
			}
		}
		if n := count(t, c.d, "SELECT count(*) FROM deliveries WHERE status = 'succeeded'"); n > amount*len(c.inboxes) {
			t.Errorf("%d deliveries succeeded: the dead ones were not", n)
		}
	})
}

// TestHangingEndpointsLeaveRoom has three times as many endpoints that hang
// than the server has slots. At first it cannot know; when it does, an
// endpoint that is well gets its events at once, whether the hanging ones have
// more to do all the time or come back after a while. Without the share of
// slots that is kept from slow lanes, or if the server forgot who is slow as
// soon as there is nothing to do for it, the well one would wait behind
// attempt after attempt.
func TestHangingEndpointsLeaveRoom(t *testing.T) {
	t.Parallel()
	if full {
		eachEngine(t, leaveRoom)
	} else {
		leaveRoom(t, program.Place{Folder: t.TempDir()})
	}
}

func leaveRoom(t *testing.T, at program.Place) {
	const hanging = 200
	server := serveHooks(t, at, "--webhooks-concurrency=64", "--webhooks-timeout=1s", "--webhooks-retry-schedule=10m,10m,10m")
	c := newCustomer(t, at)
	address := mute(t)
	for range hanging {
		c.endpoint(t, server.URL, "http://"+address+"/")
	}
	well := c.inbox(t, server.URL) // behind all of them
	probe := func(what string) {
		t.Helper()
		begun := time.Now()
		e := c.happen(t, 1)[0]
		// Unknown, the hanging ones would keep it waiting for three seconds.
		eventually(t, 2500*time.Millisecond, "the well endpoint gets its event "+what, func() bool { return well.has(e.ID) })
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	c.happen(t, 1)
	eventually(t, time.Minute, "every hanging endpoint is known to hang", func() bool {
		return count(t, c.d, "SELECT count(DISTINCT endpoint_id) FROM deliveries WHERE status = 'retrying'") == hanging
	})
	probe("when the hanging ones are known")
	probe("beside hanging ones that have much to do")
	eventually(t, time.Minute, "the hanging ones' lanes are given back", func() bool {
		return count(t, c.d, "SELECT count(*) FROM lanes WHERE owner IS NOT NULL") == 0
	})
	probe("beside hanging ones that come back")
}
