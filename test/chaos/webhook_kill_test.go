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
	// leaseTime is how long others wait for a node that may be dead.
	leaseTime = 15 * time.Second
	// promptly is what a busy machine may need for what happens at once.
	promptly = 8 * time.Second
)

// TestEveryEventIsDeliveredThoughTheServerIsKilled kills the server in the
// middle of its deliveries, again and again.
//
// Nothing of a delivery may live in memory alone: an event that is fanned out
// in another transaction than it is taken in would be lost, as would one that
// is taken off its lane before the outcome is written. A delivery that got a
// new id at the restart would come as two. Without freeing the lanes at the
// start SQLite would wait for a lease that nobody holds; without taking over
// expired ones PostgreSQL would wait for ever.
func TestEveryEventIsDeliveredThoughTheServerIsKilled(t *testing.T) {
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
		c := newCustomer(t, at)
		for range endpoints {
			c.inbox(t, server.URL)
		}
		published := c.burst(t, amount)
		var deaths []death
		for n := range kills {
			// Somewhere in the n-th part of what is to come; repeats come on top.
			part := amount * endpoints / (kills + 1)
			killAt := max(int64(n*part+part/4+random.IntN(part)), c.arrivals.Load()+1)
			killed := make(chan time.Time)
			var once sync.Once
			watch := func(arrived int64) {
				if arrived >= killAt {
					// This one will never have been answered.
					once.Do(func() {
						moment := time.Now()
						server.Kill()
						killed <- moment
					})
				}
			}
			c.watch.Store(&watch)
			var d death
			select {
			case d.killed = <-killed:
			case <-time.After(time.Minute):
				t.Fatalf("arrival %d does not come; there were %d", killAt, c.arrivals.Load())
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
			c.goOn(t, begun, patience)
			t.Logf("killed at arrival %d; deliveries went on %v after the start", killAt, time.Since(begun).Round(time.Millisecond))
		}
		published()
		c.settle(t, 2*time.Minute)
		repeats := c.check(t, server.URL)
		excused(t, repeats, deaths, kills*(endpoints*perEndpoint+unwritten))
		if len(repeats) == 0 {
			t.Error("nothing came twice: the kills came at the wrong moments to show anything")
		}
		t.Logf("%d of %d deliveries came again", len(repeats), amount*endpoints)
	})
}

// goOn waits until each inbox got something since the moment, unless all was
// delivered before.
func (c *customer) goOn(t *testing.T, begun time.Time, patience time.Duration) {
	t.Helper()
	for _, b := range c.inboxes {
		eventually(t, patience, "deliveries go on", func() bool { return b.came(begun) > 0 || c.open(t) == 0 })
	}
}

// expireLeases ages all leases. TestNodesShareDeliveries waits for a real one.
func (c *customer) expireLeases(t *testing.T) {
	t.Helper()
	err := c.d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE lanes SET lease_until = lease_until - $1 WHERE owner IS NOT NULL", leaseTime.Microseconds())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoppingServerRepeatsNothing stops a server in the middle of its
// deliveries and starts another.
//
// A server that went before its attempts were answered and written down would
// have them made again, and one that kept its lanes would have the next one
// wait for the lease.
func TestStoppingServerRepeatsNothing(t *testing.T) {
	t.Parallel()
	stops, amount := 2, 300
	if full {
		stops, amount = 10, 3000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		const endpoints = 3
		server := serveHooks(t, at)
		c := newCustomer(t, at)
		for range endpoints {
			c.inbox(t, server.URL)
		}
		published := c.burst(t, amount)
		for n := range stops {
			target := max(int64((2*n+1)*amount*endpoints/(2*stops)), c.arrivals.Load())
			eventually(t, time.Minute, "deliveries come", func() bool { return c.arrivals.Load() >= target })
			// What is under way from here on ends when the server is stopping.
			c.hold(true)
			before := c.arrivals.Load()
			c.happen(t, perEndpoint)
			eventually(t, time.Minute, "attempts are under way", func() bool { return c.arrivals.Load() > before })
			if err := server.Terminate(); err != nil {
				t.Fatal(err)
			}
			eventually(t, promptly, "the server takes no more calls", func() bool { return get(server.URL, "/healthz").status == 0 })
			c.hold(false)
			if code, err := server.Wait(30 * time.Second); code != 0 || err != nil {
				t.Fatalf("the server ended with %d, %v", code, err)
			}
			c.happen(t, 1) // for the next one, should the burst be over
			server = serveHooks(t, at)
			begun := time.Now()
			c.goOn(t, begun, promptly)
			t.Logf("deliveries went on %v after the start", time.Since(begun).Round(time.Millisecond))
		}
		published()
		c.settle(t, time.Minute)
		noRepeats(t, c.check(t, server.URL))
	})
}
