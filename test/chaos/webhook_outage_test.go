package chaos

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestDeliveriesSurviveADatabaseOutage cuts off the database under a stream of events.
// The server keeps running, so nothing may be delivered twice: it keeps unwritten
// outcomes in memory until the database is back. It must retry failed lane scans and
// lease renewals, or events stay undelivered. An outcome that is written twice after a
// lost commit response must count once.
func TestDeliveriesSurviveADatabaseOutage(t *testing.T) {
	longOnly(t, "TestDatabaseOutageReturns503AndRecovers, TestEveryEventIsDeliveredDespiteKill9")
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
		at := program.Place{Dir: t.TempDir(), DatabaseURL: cluster.URL()}
		outageTest{begin: cluster.Kill, end: cluster.Restart, blink: cluster.Restart}.run(t, at, serveHooks(t, at))
	})
	t.Run("postgres is out of reach", func(t *testing.T) {
		t.Parallel()
		if !full {
			t.Skip("its timeouts take long: part of the long form")
		}
		at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		network, address := newNetwork(t, at.DatabaseURL)
		server := serveHooks(t, program.Place{Dir: at.Dir, DatabaseURL: address})
		outageTest{begin: network.cut, end: network.restore}.run(t, at, server)
	})
	t.Run("postgres commits and cannot say so", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		wire, address := dropResponses(t, at.DatabaseURL)
		server := serveHooks(t, program.Place{Dir: at.Dir, DatabaseURL: address})
		noticed := func() bool { return wire.dropped() >= 3 }
		outageTest{begin: wire.begin, end: wire.end, noticed: noticed}.run(t, at, server)
	})
	t.Run("sqlite on a full disk", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Dir: t.TempDir()}
		server := serveHooks(t, at)
		full := fullDisk(t, server.Pid())
		outageTest{begin: full.begin, end: full.end}.run(t, at, server)
	})
}

// outageTest is a way to cut off the database.
type outageTest struct {
	begin, end func() error
	blink      func() error // cuts it off briefly; optional
	noticed    func() bool  // whether the server has noticed; default: it reports unhealthy
}

// run checks a delivering server during and after the outage.
func (o outageTest) run(t *testing.T, at program.Place, server *program.Server) {
	t.Helper()
	rounds := 1
	if full {
		rounds = 10
	}
	if o.noticed == nil {
		o.noticed = func() bool { return get(server.URL, "/readyz").status == http.StatusServiceUnavailable }
	}
	c := newWebhookFixture(t, at)
	for range 3 {
		c.inbox(t, server.URL)
	}
	stop := c.stream(t, 20*time.Millisecond, 2)
	for round := range rounds {
		waitForDeliveries(t, c, "the stream runs", time.Now())
		if o.blink != nil {
			if err := o.blink(); err != nil {
				t.Fatal(err)
			}
			waitForDeliveries(t, c, "deliveries go on after a blink", time.Now())
		}
		// These attempts start before the outage and end during it.
		before := c.arrivals.Load()
		c.hold(true)
		eventually(t, promptly, "attempts are in progress", func() bool { return c.arrivals.Load() >= before+int64(len(c.inboxes)) })
		if err := o.begin(); err != nil {
			t.Fatal(err)
		}
		c.hold(false)
		eventually(t, 2*promptly, "the server notices the outage", o.noticed)
		if round%5 == 4 {
			<-time.After(leaseTime + time.Second) // until the leases have expired
		}
		if err := o.end(); err != nil {
			t.Fatal(err)
		}
		waitForDeliveries(t, c, "deliveries go on after the outage", time.Now())
	}
	stop()
	c.waitUntilDelivered(t, time.Minute)
	wantNoRepeats(t, c.check(t, server.URL))
}

// waitForDeliveries waits until each inbox received several deliveries since the given
// time.
func waitForDeliveries(t *testing.T, c *webhookFixture, what string, since time.Time) {
	t.Helper()
	for _, b := range c.inboxes {
		eventually(t, returnTime, what, func() bool { return b.receivedSince(since) >= 20 })
	}
	t.Logf("%s: %v", what, time.Since(since).Round(time.Millisecond))
}
