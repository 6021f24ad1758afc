package limits

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// waitForStore waits for all pending lease requests.
func waitForStore(l *Limiter) {
	for i := range l.shards {
		s := &l.shards[i]
		var open []*leaseRequest
		s.mu.Lock()
		for _, e := range s.entries {
			if e.pending != nil {
				open = append(open, e.pending)
			}
		}
		s.mu.Unlock()
		for _, o := range open {
			<-o.done
		}
	}
}

// cluster is several nodes with one database and one clock.
type cluster struct {
	clock
	t     *testing.T
	db    *db.DB
	nodes []*Limiter
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{t: t}
	c.nanos.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	c.db = dbtest.Open(t, dbtest.Address(t, "postgres"))
	for i := range n {
		c.nodes = append(c.nodes, node(t, c.db, &c.clock, fmt.Sprint("node_", i)))
	}
	c.heartbeat() // now every node knows all others
	return c
}

func (c *cluster) heartbeat() {
	for _, l := range c.nodes {
		l.runOnce(c.t.Context())
		waitForStore(l)
	}
}

// run advances the clock in small steps, with a heartbeat per second. step gets
// the time since the start.
func (c *cluster) run(d time.Duration, step func(at time.Duration)) {
	const pace = 20 * time.Millisecond
	for at := time.Duration(0); at < d; at += pace {
		if at%time.Second == 0 {
			c.heartbeat()
		}
		step(at)
		c.advance(pace)
	}
}

// After the initial burst, every load pattern gets the limit ± 5% per minute.
func TestNodesTogetherEnforceTheRequestLimit(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]struct {
		nodes int
		on    func(node int, at time.Duration) bool
	}{
		"even":   {3, func(int, time.Duration) bool { return true }},
		"uneven": {2, func(n int, at time.Duration) bool { return n == 0 || at < time.Second }},
		"shifting": {3, func(n int, at time.Duration) bool {
			return int(at/(5*time.Second))%3 == n
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, load.nodes)
			const limit = 1200
			through, drained := 0, 0
			c.run(70*time.Second, func(at time.Duration) {
				if at == 10*time.Second {
					drained = through
				}
				for n, l := range c.nodes {
					for load.on(n, at) {
						ticket, err := l.Begin("key", Limits{RequestsPerMinute: limit}, 0, c.now())
						if err != nil {
							break
						}
						ticket.End()
						through++
					}
				}
			})
			t.Logf("%d in the minute, %d before", through-drained, drained)
			if n := through - drained; n < limit*95/100 || n > limit*105/100 {
				t.Errorf("got %d in a minute, want %d ± 5%%", n, limit)
			}
			if most := limit + limit*70/60 + limit*5/100; through > most {
				t.Errorf("got %d in all, want at most %d", through, most)
			}
		})
	}
}

// Small limits have no chunks.
func TestSmallLimitsAreExactOnSeveralNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	const limit = 30
	through := 0
	c.run(40*time.Second, func(at time.Duration) {
		for _, l := range c.nodes {
			if ticket, err := l.Begin("key", Limits{RequestsPerMinute: limit, TokensPerMinute: 1_000_000}, 10, c.now()); err == nil {
				ticket.End()
				through++
			}
		}
		if most := limit + int(at*limit/time.Minute); through > most {
			t.Fatalf("%d after %v of %d a minute", through, at, limit)
		}
	})
	if through < limit+limit*40/60-2 {
		t.Errorf("%d in 40 s of %d a minute", through, limit)
	}
}

// Requests take a second and use 1,500 tokens. Most reserve 6,000, one in ten
// 1,000.
func TestNodesTogetherEnforceTheTokenLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	const limit = 600_000
	type call struct {
		*Ticket
		ends time.Duration
		real int64
	}
	var open []call
	used, warm, made := int64(0), int64(0), int64(0)
	c.run(130*time.Second, func(at time.Duration) {
		if at == 70*time.Second {
			warm = used
		}
		for len(open) > 0 && open[0].ends <= at {
			open[0].Adjust(open[0].real, c.now())
			open[0].End()
			used += open[0].real
			open = open[1:]
		}
		for _, l := range c.nodes {
			for range 2 {
				made++
				estimate := int64(6000)
				if made%10 == 0 {
					estimate = 1000
				}
				ticket, err := l.Begin("key", Limits{TokensPerMinute: limit}, estimate, c.now())
				if err != nil {
					break
				}
				open = append(open, call{ticket, at + time.Second, 1500})
			}
		}
	})
	t.Logf("%d used in the minute, %d before", used-warm, warm)
	if n := used - warm; n < limit*95/100 || n > limit*105/100 {
		t.Errorf("got %d in a minute, want %d ± 5%%", n, limit)
	}
}

func TestConcurrentRequestsOnThreeNodesGetTheLimitOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, limit := range []int64{50, 1000} {
		var through atomic.Int64
		var all sync.WaitGroup
		for _, l := range c.nodes {
			for range 20 {
				all.Go(func() {
					for range limit / 20 {
						if ticket, err := l.Begin(fmt.Sprint(limit), Limits{RequestsPerMinute: limit}, 0, c.now()); err == nil {
							through.Add(1)
							ticket.End()
						}
					}
				})
			}
		}
		all.Wait()
		if n := through.Load(); n > limit || n < limit*95/100 {
			t.Errorf("got %d requests, want %d or up to 5%% fewer", n, limit)
		}
	}
}

// The slots in use never exceed the limit, and idle slots move to the node that
// needs them.
func TestNodesShareSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	const limit = 60
	open := make([][]*Ticket, 3)
	total := 0
	fill := func(n, most int) {
		for range most {
			ticket, err := c.nodes[n].Begin("key", Limits{InFlight: limit}, 0, c.now())
			if err != nil {
				return
			}
			open[n] = append(open[n], ticket)
			if total++; total > limit {
				t.Fatalf("%d in flight of %d", total, limit)
			}
		}
	}
	end := func(n, count int) {
		for _, ticket := range open[n][:count] {
			ticket.End()
			total--
		}
		open[n] = open[n][count:]
	}
	for n := range c.nodes {
		fill(n, limit)
	}
	if total < limit*95/100 {
		t.Errorf("%d in flight of %d", total, limit)
	}
	// The whole load moves to the last node within two seconds.
	end(0, len(open[0]))
	end(1, len(open[1]))
	for range 20 {
		c.advance(100 * time.Millisecond)
		fill(2, limit)
	}
	c.heartbeat()
	c.advance(time.Second)
	fill(2, limit)
	if total < limit*95/100 {
		t.Errorf("%d in flight of %d after the load moved", total, limit)
	}
	// Then it moves between nodes at random.
	for i := range 300 {
		n := i * 7 % 11 % 3
		fill(n, i%13)
		end(n, len(open[n])*(i%5)/5)
		c.advance(50 * time.Millisecond)
		if i%20 == 0 {
			c.heartbeat()
		}
	}
}

func TestReleasedSlotIsAvailableDespiteARecentRefusal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	begin := func() *Ticket {
		t.Helper()
		ticket, err := c.nodes[0].Begin("key", Limits{InFlight: 1}, 0, c.now())
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	ticket := begin()
	if _, err := c.nodes[0].Begin("key", Limits{InFlight: 1}, 0, c.now()); err == nil {
		t.Fatal("got two requests in flight, want one")
	}
	ticket.End()
	c.heartbeat() // the refused request wants the slot
	begin()
}

func TestSlotsOfADeadNodeAreReassigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	limits := Limits{InFlight: 10}
	for range 10 {
		ticket, err := c.nodes[0].Begin("key", limits, 0, c.now())
		mustAdmit(t, ticket, err)
	}
	alive := c.nodes[1]
	for range 4 {
		c.heartbeat()
		c.advance(time.Second)
		ticket, err := alive.Begin("key", limits, 0, c.now())
		if r := refused(t, ticket, err); r.Kind != InFlight {
			t.Errorf("%+v", r)
		}
	}
	for range 6 { // the other node is silent
		c.advance(time.Second)
		alive.runOnce(t.Context())
	}
	for range 10 {
		ticket, err := alive.Begin("key", limits, 0, c.now())
		mustAdmit(t, ticket, err)
	}
	if n := alive.nodes.Load(); n != 1 {
		t.Errorf("got %d nodes, want 1", n)
	}
}

func TestStoppedNodeReleasesItsSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	limits := Limits{InFlight: 10}
	for range 10 {
		ticket, err := c.nodes[0].Begin("key", limits, 0, c.now())
		mustAdmit(t, ticket, err).End()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.nodes[0].Run(ctx)
	var rows int64
	if err := c.db.QueryRow(t.Context(), "SELECT count(*) FROM limit_places").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("got %d rows, want 0 (%v)", rows, err)
	}
	ticket, err := c.nodes[1].Begin("key", limits, 0, c.now())
	mustAdmit(t, ticket, err)
}

func TestNodeEnforcesItsPartWithoutTheStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	limits := Limits{RequestsPerMinute: 20, InFlight: 100}
	ticket, err := l.Begin("key", limits, 0, c.now())
	mustAdmit(t, ticket, err)
	hold, free := make(chan struct{}), make(chan error)
	go func() {
		free <- c.db.Write(context.Background(), func(tx *db.Tx) error {
			if _, err := tx.Exec(context.Background(), "LOCK TABLE limit_rates"); err != nil {
				return err
			}
			hold <- struct{}{}
			<-hold
			return nil
		})
	}()
	<-hold
	l.StoreTimeout = 50 * time.Millisecond
	n, asked := 0, 0
	for range 40 {
		if l.shared() {
			asked++
		}
		if ticket, err := l.Begin("key", limits, 0, c.now()); err == nil {
			n++
			defer ticket.End()
		}
	}
	if asked != 1 {
		t.Errorf("%d of 40 requests waited for an unavailable store, want only the first", asked)
	}
	// 19 of 20 were left by the store's last reply. This node gets half.
	if n != 9 {
		t.Errorf("got %d requests, want 9", n)
	}
	hold <- struct{}{}
	if err := <-free; err != nil {
		t.Fatal(err)
	}
	l.StoreTimeout = time.Minute
	waitForStore(l)
	l.runOnce(t.Context())
	if !l.shared() {
		t.Error("the node still decides alone, want the store")
	}
	ticket, err = l.Begin("key", limits, 0, c.now())
	mustAdmit(t, ticket, err)
}

// Unused leases add to the burst of a full bucket, within the 5%.
func TestUnusedLeasesStayWithinFivePercent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	limits := Limits{RequestsPerMinute: 1200, TokensPerMinute: 120_000}
	begin := func(l *Limiter) *Ticket {
		ticket, _ := l.Begin("key", limits, 100, c.now())
		return ticket
	}
	for _, l := range c.nodes {
		t := begin(l)
		t.Adjust(10, c.now())
		t.End()
		waitForStore(l)
	}
	c.advance(55 * time.Second)
	n := 0
	for i := 0; ; i++ {
		ticket := begin(c.nodes[i%3])
		if ticket == nil {
			break
		}
		ticket.End()
		n++
	}
	for _, l := range c.nodes {
		for begin(l) != nil {
			n++
		}
	}
	if n < 1200 || n > 1260 {
		t.Errorf("got a burst of %d, want 1200 to 1260", n)
	}
}

// A refund on one node is available on another, and a charge beyond the
// estimate isn't.
func TestTokenAdjustmentsReachOtherNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.nodes[0], c.nodes[1]
	limits := Limits{TokensPerMinute: 100_000}
	ticket, err := a.Begin("key", limits, 100_000, c.now())
	large := mustAdmit(t, ticket, err)
	ticket, err = b.Begin("key", limits, 50_000, c.now())
	refused(t, ticket, err)
	large.Adjust(10_000, c.now())
	large.End()
	waitForStore(a)
	c.advance(time.Duration(refusalTTL))
	ticket, err = b.Begin("key", limits, 50_000, c.now())
	small := mustAdmit(t, ticket, err)
	small.Adjust(150_000, c.now())
	small.End()
	waitForStore(b)
	ticket, err = a.Begin("key", limits, 10_000, c.now())
	refused(t, ticket, err)
	c.advance(30 * time.Second)
	ticket, err = a.Begin("key", limits, 10_000, c.now())
	refused(t, ticket, err)
}

// The node corrects the slot count that the store recorded.
func TestLostReplyLosesNoSlots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	a, b := c.nodes[0], c.nodes[1]
	limits := Limits{InFlight: 10}
	s := a.shard("key")
	s.mu.Lock()
	e := s.entry("key")
	e.limits, e.used = limits, a.nanos(c.now())
	o := a.newLease(e, &hold{limits: limits}, a.nanos(c.now()))
	o.want.slots = 10
	s.mu.Unlock()
	if err := a.store.leases.Add(o).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.applyReply(s, e, o, false)
	ticket, err := b.Begin("key", limits, 0, c.now())
	refused(t, ticket, err)
	c.heartbeat()
	c.advance(time.Duration(refusalTTL))
	ticket, err = b.Begin("key", limits, 0, c.now())
	mustAdmit(t, ticket, err)
}

func TestMostRequestsDoNotAskTheStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	var asked atomic.Int64
	l.store.leases = db.NewQueue(l.store.group, false, func(ctx context.Context, tx *db.Tx, requests []*leaseRequest) error {
		asked.Add(int64(len(requests)))
		return l.store.processLeases(ctx, tx, requests)
	})
	begin := func() (*Ticket, error) {
		return l.Begin("key", Limits{RequestsPerMinute: 10_000, InFlight: 200}, 0, c.now())
	}
	for range 10_000 {
		ticket, err := begin()
		mustAdmit(t, ticket, err).End()
	}
	admitted := asked.Load()
	if admitted > 2*chunksPerLimit+2 {
		t.Errorf("10,000 requests asked %d times", admitted)
	}
	for range 1000 {
		ticket, err := begin()
		refused(t, ticket, err)
		c.advance(time.Microsecond)
	}
	if n := asked.Load() - admitted; n > 1 {
		t.Errorf("1,000 refused requests within a millisecond asked %d times, want at most once", n)
	}
}

func TestUnusedRowsArePurged(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := newLocal(c.now)
		l.store = newStore(d, "a") // on both engines, since the SQL is the same
		t.Cleanup(l.store.group.Stop)
		l.StoreTimeout = time.Minute
		l.runOnce(t.Context())
		begin := func(id string) {
			ticket, err := l.Begin(id, Limits{RequestsPerMinute: 10, InFlight: 10}, 0, c.now())
			mustAdmit(t, ticket, err)
		}
		for i := range 5 {
			begin(fmt.Sprint("old_", i))
			if i > 0 {
				continue
			}
			// PostgreSQL plans for a table with one row.
			if err := d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "ANALYZE limit_rates")
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(62 * time.Minute)
		begin("new")
		purge := func(limit int64) (n int64) {
			err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				n, err = Purge(t.Context(), tx, c.now(), limit)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := purge(3); n != 3 {
			t.Errorf("got %d rows, want 3", n)
		}
		// Two IDs, the node's six slot rows and the node itself.
		if n := purge(100); n != 2+6+1 {
			t.Errorf("got %d rows, want 9", n)
		}
		var left string
		if err := d.QueryRow(t.Context(), "SELECT id FROM limit_rates").Scan(&left); err != nil || left != "new" {
			t.Errorf("got %q, want only \"new\" (%v)", left, err)
		}
	})
}

// BenchmarkAsk measures a request that has to lease, because its limit is too
// small for chunks.
func BenchmarkAsk(b *testing.B) {
	d := dbtest.Open(b, dbtest.Address(b, "postgres"))
	l := New(d, "a", time.Now)
	b.Cleanup(l.store.group.Stop)
	l.runOnce(b.Context())
	start := time.Now()
	for i := 0; b.Loop(); i++ {
		t, err := l.Begin("key", Limits{RequestsPerMinute: 60}, 0, start.Add(time.Duration(i)*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		t.End()
	}
}
