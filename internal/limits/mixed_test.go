package limits

import (
	"errors"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
)

// A run's steps are no requests: they come with the key's limits, but for that.
var (
	callLimits = Limits{RequestsPerMinute: 6000, TokensPerMinute: 1_000_000, InFlight: 1000}
	stepLimits = Limits{TokensPerMinute: 1_000_000, InFlight: 1000}
)

// TestStepsDoNotCloseAKey that makes calls as well: an order goes by the limits
// of the call that it is for, whoever came in between.
func TestStepsDoNotCloseAKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	s := l.shard("key")
	s.mu.Lock()
	e := s.entry("key")
	call := &hold{id: "key", shard: s, limits: callLimits, entry: e}
	e.limits = stepLimits
	o := l.ask(e, call, l.nanos(c.now()))
	s.mu.Unlock()
	l.send(s, e, o)
	<-o.done
	if ahead := time.Duration(o.requests.full - o.at); o.granted.requests == 0 || ahead > time.Minute {
		t.Errorf("%d requests put the key %s ahead", o.granted.requests, ahead)
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
				t.Errorf("refused for %s", refusal.RetryAfter)
			}
			if err == nil {
				ticket.End()
			}
		})
	}
	all.Wait()
	var full int64
	if err := c.db.QueryRow(t.Context(), "SELECT requests_full FROM limit_rates WHERE id = 'key'").Scan(&full); err != nil || full > c.now().Add(time.Minute).UnixNano() {
		t.Errorf("the key is closed until %s (%v)", time.Unix(0, full), err)
	}
}

// TestWithoutALimitNothingIsCharged, whatever asks for it.
func TestWithoutALimitNothingIsCharged(t *testing.T) {
	t.Parallel()
	b := bucket{}
	if n := lease(&b, 0, 3, 5, 1000); n != 3 || b.full > 1000 {
		t.Errorf("%d were leased, and the bucket is full until %d", n, b.full)
	}
}

// TestARowFromFarAheadDoesNotCloseAKey: no number of requests that were let in
// can have brought it there.
func TestARowFromFarAheadDoesNotCloseAKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	if _, err := c.nodes[0].Begin("key", callLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	settle(c.nodes[0])
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
			t.Errorf("the next fits in %s", r.RetryAfter)
		}
		c.advance(time.Second)
	}
}

// TestATimeThatWasSetBackClosesNoKey: what was let in since then counts, and no
// more than that.
func TestATimeThatWasSetBackClosesNoKey(t *testing.T) {
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
			settle(l)
			n++
		}
		return n
	}
	if n := spend(c.nodes[0]); n < 55 {
		t.Fatalf("%d calls were let in", n)
	}
	c.advance(-time.Hour)
	if n := spend(c.nodes[1]) + spend(c.nodes[0]); n > 60+3 {
		t.Errorf("%d more calls were let in at once", n)
	}
	c.advance(2 * time.Minute)
	if n := spend(c.nodes[1]); n < 55 {
		t.Errorf("%d calls were let in two minutes later", n)
	}
}

// TestALowerLimitHoldsForWhatIsInHand: a chunk of a high limit is more than a
// low one allows in all.
func TestALowerLimitHoldsForWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	if _, err := l.Begin("key", Limits{RequestsPerMinute: 60_000, TokensPerMinute: 60_000_000}, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	settle(l)
	through := 0
	for range 100 {
		ticket, err := l.Begin("key", Limits{RequestsPerMinute: 5}, 0, c.now())
		if err == nil {
			ticket.End()
			through++
		}
	}
	if through > 5 {
		t.Errorf("%d calls went through under a limit of 5", through)
	}
}

// TestAnOrderGoesByTheLimitsOfItsCall, and not by those of another that came
// since it began.
func TestAnOrderGoesByTheLimitsOfItsCall(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	for id, others := range map[string]Limits{"lower": {RequestsPerMinute: 1}, "none": stepLimits} {
		s := l.shard(id)
		s.mu.Lock()
		e := s.entry(id)
		e.limits = others
		o := l.ask(e, &hold{id: "key", shard: s, limits: callLimits, entry: e}, l.nanos(c.now()))
		s.mu.Unlock()
		l.send(s, e, o)
		<-o.done
		if want := span(callLimits.RequestsPerMinute, o.granted.requests); o.granted.requests == 0 || o.requests.full-o.at != want {
			t.Errorf("%s: %d requests take %s", id, o.granted.requests, time.Duration(o.requests.full-o.at))
		}
	}
}

// TestAStepTakesNothingFromCalls: it says nothing about limits that it does not
// have, and what the node has in hand for calls stays there.
func TestAStepTakesNothingFromCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	l := c.nodes[0]
	hand := func() (requests, limit int64) {
		s := l.shard("key")
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.entry("key").have.requests, s.entry("key").limits.RequestsPerMinute
	}
	if _, err := l.Begin("key", callLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	settle(l)
	before, limit := hand()
	if _, err := l.Begin("key", stepLimits, 10, c.now()); err != nil {
		t.Fatal(err)
	}
	settle(l)
	if after, now := hand(); before == 0 || after != before || now != limit {
		t.Errorf("of %d requests in hand %d are left, and the limit of %d is %d", before, after, limit, now)
	}
}
