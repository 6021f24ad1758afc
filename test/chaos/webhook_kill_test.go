package chaos

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

const (
	// leaseTime is how long other nodes wait before they take over a lane.
	leaseTime = 15 * time.Second
	// promptly is the time that an immediate action may take on a busy machine.
	promptly = 8 * time.Second
)

// TestEveryEventIsDeliveredDespiteKill9 repeatedly kills the server during deliveries.
//
// No delivery may exist only in memory. An event would be lost if its fan-out had a
// separate transaction, or if it left its lane before the outcome is written. A new ID
// after the restart would create a duplicate. SQLite would wait for an unused lease if
// lanes weren't released at the start. PostgreSQL would wait forever if expired leases
// weren't taken over.
func TestEveryEventIsDeliveredDespiteKill9(t *testing.T) {
	t.Parallel()
	kills, amount := 3, 600
	if full {
		kills, amount = 10, 5000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		const endpoints = 3
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		server := serveHooks(t, at)
		c := newWebhookFixture(t, at)
		for range endpoints {
			c.inbox(t, server.URL)
		}
		published := c.burst(t, amount)
		var deaths []crash
		for n := range kills {
			// Within part n of the expected deliveries. Repeats come on top.
			part := amount * endpoints / (kills + 1)
			killAt := max(int64(n*part+part/4+random.IntN(part)), c.arrivals.Load()+1)
			killed := make(chan time.Time)
			var once sync.Once
			watch := func(arrived int64) {
				if arrived >= killAt {
					// This request never gets a response.
					once.Do(func() {
						moment := time.Now()
						server.Kill()
						killed <- moment
					})
				}
			}
			c.watch.Store(&watch)
			var d crash
			select {
			case d.killed = <-killed:
			case <-time.After(time.Minute):
				t.Fatalf("timed out waiting for arrival %d, got %d", killAt, c.arrivals.Load())
			}
			c.watch.Store(nil)
			patience := promptly
			switch {
			case at.DatabaseURL != "" && full:
				patience += leaseTime
			case at.DatabaseURL != "":
				c.expireLeases(t)
			}
			server = serveHooks(t, at)
			begun := time.Now()
			d.begun = begun
			deaths = append(deaths, d)
			c.waitForProgress(t, begun, patience)
			t.Logf("killed at arrival %d; deliveries went on %v after the start", killAt, time.Since(begun).Round(time.Millisecond))
		}
		published()
		c.waitUntilDelivered(t, 2*time.Minute)
		repeats := c.check(t, server.URL)
		checkRepeats(t, repeats, deaths, kills*(endpoints*perEndpoint+unwritten))
		if len(repeats) == 0 {
			t.Error("got no repeated delivery, want some: the kills came at the wrong moments to show anything")
		}
		t.Logf("%d of %d deliveries were repeated", len(repeats), amount*endpoints)
	})
}

// waitForProgress waits until each inbox received a delivery since the given time,
// unless everything was delivered before.
func (c *webhookFixture) waitForProgress(t *testing.T, begun time.Time, patience time.Duration) {
	t.Helper()
	for _, b := range c.inboxes {
		eventually(t, patience, "deliveries continue", func() bool { return b.receivedSince(begun) > 0 || c.undelivered(t) == 0 })
	}
}

// expireLeases expires all leases. TestJoiningAndLeavingNodesRepeatNoDelivery waits for
// a real one.
func (c *webhookFixture) expireLeases(t *testing.T) {
	t.Helper()
	err := c.d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE lanes SET lease_until = lease_until - $1 WHERE owner IS NOT NULL", leaseTime.Microseconds())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestShutdownRepeatsNoDelivery stops a server during deliveries and starts another.
//
// If the server stopped before its attempts were recorded, they would be repeated. If
// it kept its lanes, the next server would have to wait for the lease.
func TestShutdownRepeatsNoDelivery(t *testing.T) {
	longOnly(t, "TestEveryEventIsDeliveredDespiteKill9, lanes.TestNoItemIsLostOrRunsTwice")
	t.Parallel()
	stops, amount := 2, 300
	if full {
		stops, amount = 10, 3000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		const endpoints = 3
		server := serveHooks(t, at)
		c := newWebhookFixture(t, at)
		for range endpoints {
			c.inbox(t, server.URL)
		}
		published := c.burst(t, amount)
		for n := range stops {
			target := max(int64((2*n+1)*amount*endpoints/(2*stops)), c.arrivals.Load())
			eventually(t, time.Minute, "deliveries arrive", func() bool { return c.arrivals.Load() >= target })
			// Attempts that start now end while the server is stopping.
			c.hold(true)
			before := c.arrivals.Load()
			c.publishNow(t, perEndpoint)
			eventually(t, time.Minute, "attempts are in progress", func() bool { return c.arrivals.Load() > before })
			if err := server.Terminate(); err != nil {
				t.Fatal(err)
			}
			eventually(t, promptly, "the server accepts no more requests", func() bool { return get(server.URL, "/healthz").status == 0 })
			c.hold(false)
			if code, err := server.Wait(30 * time.Second); code != 0 || err != nil {
				t.Fatalf("got exit code %d (%v), want 0", code, err)
			}
			c.publishNow(t, 1) // for the next server, in case the burst is over
			server = serveHooks(t, at)
			begun := time.Now()
			c.waitForProgress(t, begun, promptly)
			t.Logf("deliveries went on %v after the start", time.Since(begun).Round(time.Millisecond))
		}
		published()
		c.waitUntilDelivered(t, time.Minute)
		wantNoRepeats(t, c.check(t, server.URL))
	})
}
