package chaos

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestDeliveriesSurviveAStorageOutage takes the store away under a stream of
// events. The server lives, so nothing may come twice: an attempt whose outcome
// could not be written would be made again when the store is back, unless the
// server keeps it in mind until then. A lane whose look failed and is not
// looked at again, or a lease that is not asked for again, would leave events
// lying there. An outcome that is written a second time, because nobody said
// that it was the first time, must not count twice.
func TestDeliveriesSurviveAStorageOutage(t *testing.T) {
	t.Parallel()
	t.Run("postgres dies", func(t *testing.T) {
		t.Parallel()
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
		ordeal{begin: cluster.Kill, end: cluster.Restart, blink: cluster.Restart}.endure(t, at, serveHooks(t, at))
	})
	t.Run("postgres is out of reach", func(t *testing.T) {
		t.Parallel()
		if !full {
			t.Skip("its timeouts take long: part of the long form")
		}
		at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		network, address := wire(t, at.DatabaseURL)
		server := serveHooks(t, program.Place{Folder: at.Folder, DatabaseURL: address})
		ordeal{begin: network.cut, end: network.mend}.endure(t, at, server)
	})
	t.Run("postgres commits and cannot say so", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		wire, address := swallow(t, at.DatabaseURL)
		server := serveHooks(t, program.Place{Folder: at.Folder, DatabaseURL: address})
		noticed := func() bool { return wire.swallowed() >= 3 }
		ordeal{begin: wire.begin, end: wire.end, noticed: noticed}.endure(t, at, server)
	})
	t.Run("sqlite on a full disk", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Folder: t.TempDir()}
		server := serveHooks(t, at)
		full := fullDisk(t, server.Pid())
		ordeal{begin: full.begin, end: full.end}.endure(t, at, server)
	})
}

// ordeal is a way for the store to be away.
type ordeal struct {
	begin, end func() error
	blink      func() error // is away and back again, if there is such a way
	noticed    func() bool  // by the server; nil is that it says so
}

// endure puts a server that delivers through it.
func (o ordeal) endure(t *testing.T, at program.Place, server *program.Server) {
	t.Helper()
	rounds := 1
	if full {
		rounds = 10
	}
	if o.noticed == nil {
		o.noticed = func() bool { return get(server.URL, "/readyz").status == http.StatusServiceUnavailable }
	}
	c := newCustomer(t, at)
	for range 3 {
		c.inbox(t, server.URL)
	}
	stop := c.stream(t, 20*time.Millisecond, 2)
	for round := range rounds {
		goesOn(t, c, "the stream runs", time.Now())
		if o.blink != nil {
			if err := o.blink(); err != nil {
				t.Fatal(err)
			}
			goesOn(t, c, "deliveries go on after a blink", time.Now())
		}
		// These attempts begin while the store is there and end when it is not.
		before := c.arrivals.Load()
		c.hold(true)
		eventually(t, promptly, "attempts are under way", func() bool { return c.arrivals.Load() >= before+int64(len(c.inboxes)) })
		if err := o.begin(); err != nil {
			t.Fatal(err)
		}
		c.hold(false)
		eventually(t, 2*promptly, "the server notices", o.noticed)
		if round%5 == 4 {
			<-time.After(leaseTime + time.Second) // long enough for the leases to run out
		}
		if err := o.end(); err != nil {
			t.Fatal(err)
		}
		goesOn(t, c, "deliveries go on after the outage", time.Now())
	}
	stop()
	c.settle(t, time.Minute)
	noRepeats(t, c.check(t, server.URL))
}

// goesOn waits until each inbox got several deliveries since the moment.
func goesOn(t *testing.T, c *customer, what string, since time.Time) {
	t.Helper()
	for _, b := range c.inboxes {
		eventually(t, returnTime, what, func() bool { return b.came(since) >= 20 })
	}
	t.Logf("%s: %v", what, time.Since(since).Round(time.Millisecond))
}
