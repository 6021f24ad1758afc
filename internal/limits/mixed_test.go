package limits

import (
	"errors"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
)

// Steps of a run have the key's limits, except for requests.
var (
	callLimits = Limits{RequestsPerMinute: 6000, TokensPerMinute: 1_000_000, InFlight: 1000}
	stepLimits = Limits{TokensPerMinute: 1_000_000, InFlight: 1000}
)

// A lease uses the limits of the request it is for, even if others came in between.
func TestRunStepsDoNotBlockRequestsOfTheSameKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	s := l.shard("key")
	s.mu.Lock()
	e := s.entry("key")
	call := &hold{id: "key", shard: s, limits: callLimits, entry: e}
	e.limits = stepLimits
	o := l.newLease(e, call, l.nanos(c.now()))
	s.mu.Unlock()
	l.send(s, e, o)
	<-o.done
	if ahead := time.Duration(o.requests.full - o.at); o.granted.requests == 0 || ahead > time.Minute {
		t.Errorf("got %d requests that put the key %s ahead, want some and at most a minute", o.granted.requests, ahead)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			limits := callLimits
			if i%2 == 0 {
				limits = stepLimits
			}
			ticket, err := c.nodes[i%4/2].Begin("key", limits, 10, c.now())
			var refusal *Refusal
			if errors.As(err, &refusal) && refusal.RetryAfter > time.Minute {
				t.Errorf("got a refusal for %s, want at most a minute", refusal.RetryAfter)
			}
			if err == nil {
				ticket.End()
			}
		})
	}
	all.Wait()
	var full int64
	if err := c.db.QueryRow(t.Context(), "SELECT requests_full FROM limit_rates WHERE id = 'key'").Scan(&full); err != nil || full > c.now().Add(time.Minute).UnixNano() {
		t.Errorf("the key is blocked until %s (%v), want at most a minute", time.Unix(0, full), err)
	}
}

func TestUnlimitedLeaseChargesNothing(t *testing.T) {
	t.Parallel()
	b := bucket{}
	if n := lease(&b, 0, 3, 5, 1000); n != 3 || b.full > 1000 {
		t.Errorf("got %d units and a bucket that is full until %d, want 3 and no charge", n, b.full)
	}
}

// Admitted requests can't have moved the row that far.
func TestCorruptRowBlocksAKeyForALimitedTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	if _, err := c.nodes[0].Begin("key", callLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	waitForStore(c.nodes[0])
	err := c.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE limit_rates SET requests_full = $1, tokens_full = $1", c.now().Add(900*time.Hour).UnixNano())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fresh := node(t, c.db, &c.clock, "node_new")
	for _, wait := range []struct {
		limits Limits
		most   time.Duration
	}{{Limits{RequestsPerMinute: 6000}, 2 * time.Minute}, {Limits{TokensPerMinute: 6000}, 24 * time.Hour}} {
		_, err := fresh.Begin("key", wait.limits, 10, c.now())
		if r := refused(t, nil, err); r.RetryAfter > wait.most {
			t.Errorf("got a wait of %s, want at most %s", r.RetryAfter, wait.most)
		}
		c.advance(time.Second)
	}
}

// Requests admitted since then still count.
func TestClockSetBackBlocksNoKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	limits := Limits{RequestsPerMinute: 60, TokensPerMinute: 6000}
	spend := func(l *Limiter) (n int) {
		for range 200 {
			ticket, err := l.Begin("key", limits, 100, c.now())
			if err != nil {
				break
			}
			ticket.End()
			waitForStore(l)
			n++
		}
		return n
	}
	if n := spend(c.nodes[0]); n < 55 {
		t.Fatalf("got %d requests, want at least 55", n)
	}
	c.advance(-time.Hour)
	if n := spend(c.nodes[1]) + spend(c.nodes[0]); n > 60+3 {
		t.Errorf("got %d more requests immediately, want at most 63", n)
	}
	c.advance(2 * time.Minute)
	if n := spend(c.nodes[1]); n < 55 {
		t.Errorf("got %d requests two minutes later, want at least 55", n)
	}
}

// A chunk of a high limit can exceed a low limit.
func TestLowerLimitAppliesToLeasedUnits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	if _, err := l.Begin("key", Limits{RequestsPerMinute: 60_000, TokensPerMinute: 60_000_000}, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	waitForStore(l)
	through := 0
	for range 100 {
		ticket, err := l.Begin("key", Limits{RequestsPerMinute: 5}, 0, c.now())
		if err == nil {
			ticket.End()
			through++
		}
	}
	if through > 5 {
		t.Errorf("got %d requests, want at most 5", through)
	}
}

func TestLeaseUsesTheLimitsOfItsOwnRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	for id, others := range map[string]Limits{"lower": {RequestsPerMinute: 1}, "none": stepLimits} {
		s := l.shard(id)
		s.mu.Lock()
		e := s.entry(id)
		e.limits = others
		o := l.newLease(e, &hold{id: "key", shard: s, limits: callLimits, entry: e}, l.nanos(c.now()))
		s.mu.Unlock()
		l.send(s, e, o)
		<-o.done
		if want := span(callLimits.RequestsPerMinute, o.granted.requests); o.granted.requests == 0 || o.requests.full-o.at != want {
			t.Errorf("%s: %d requests take %s", id, o.granted.requests, time.Duration(o.requests.full-o.at))
		}
	}
}

// A zero limit leaves the recorded limit and the leased units alone.
func TestRunStepKeepsLeasedRequests(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	leased := func() (requests, limit int64) {
		s := l.shard("key")
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.entry("key").leased.requests, s.entry("key").limits.RequestsPerMinute
	}
	if _, err := l.Begin("key", callLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	waitForStore(l)
	before, limit := leased()
	if _, err := l.Begin("key", stepLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	waitForStore(l)
	if after, now := leased(); before == 0 || after != before || now != limit {
		t.Errorf("got %d leased requests and a limit of %d, want %d and %d", after, now, before, limit)
	}
}
