package limits

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// clock is a manually advanced clock.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// refused returns the refusal, and fails the test if the request was admitted.
func refused(t *testing.T, ticket *Ticket, err error) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || ticket != nil {
		t.Fatalf("got a ticket %v and %v, want a refusal", ticket != nil, err)
	}
	return r
}

func mustAdmit(t *testing.T, ticket *Ticket, err error) *Ticket {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// node creates a limiter with a manual clock and a store timeout that is never
// reached.
func node(t *testing.T, d *db.DB, c *clock, name string) *Limiter {
	t.Helper()
	l := New(d, name, c.now)
	l.StoreTimeout = time.Minute
	if l.store != nil {
		t.Cleanup(l.store.group.Stop)
	}
	l.runOnce(t.Context())
	return l
}

func TestRefusedRequestTakesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		limits := Limits{RequestsPerMinute: 3, TokensPerMinute: 100, InFlight: 2}
		begin := func(tokens int64) (*Ticket, error) {
			c.advance(time.Duration(refusalTTL))
			return l.Begin("key", limits, tokens, c.now())
		}
		ticket, err := begin(90)
		one := mustAdmit(t, ticket, err)
		ticket, err = begin(20)
		if r := refused(t, ticket, err); r.Kind != Tokens || r.Limit != 100 || r.Requests.Remaining != 2 {
			t.Errorf("%+v", r)
		}
		ticket, err = begin(10)
		two := mustAdmit(t, ticket, err)
		ticket, err = begin(0)
		if r := refused(t, ticket, err); r.Kind != InFlight || r.Limit != 2 || r.RetryAfter != slotRetry || r.Requests.Remaining != 1 {
			t.Errorf("%+v", r)
		}
		one.End()
		one.End()
		ticket, err = begin(0)
		mustAdmit(t, ticket, err)
		ticket, err = begin(0)
		if r := refused(t, ticket, err); r.Kind != Requests || r.Limit != 3 || r.RetryAfter > 20*time.Second || r.RetryAfter < 19*time.Second {
			t.Errorf("%+v", r)
		}
		two.End()
		// Refused requests took nothing: after 20 seconds one more fits.
		c.advance(20 * time.Second)
		ticket, err = begin(0)
		mustAdmit(t, ticket, err)
		ticket, err = l.Begin("another", limits, 100, c.now())
		mustAdmit(t, ticket, err)
		ticket, err = l.Begin("unlimited", Limits{}, 1<<40, c.now())
		mustAdmit(t, ticket, err).End()
	})
}

func TestEndFreesASlotOnlyOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		ticket, err := l.Begin("key", Limits{InFlight: 2}, 0, c.now())
		mustAdmit(t, ticket, err).End()
		ticket.End()
		for range 2 {
			ticket, err = l.Begin("key", Limits{InFlight: 2}, 0, c.now())
			mustAdmit(t, ticket, err)
		}
		ticket, err = l.Begin("key", Limits{InFlight: 2}, 0, c.now())
		refused(t, ticket, err)
	})
}

func TestAdjustCorrectsTheChargedTokens(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		limits := Limits{TokensPerMinute: 6000}
		begin := func(tokens int64) (*Ticket, error) {
			waitForStore(l)
			c.advance(time.Duration(refusalTTL))
			return l.Begin("key", limits, tokens, c.now())
		}
		ticket, err := begin(6000)
		big := mustAdmit(t, ticket, err)
		ticket, err = begin(1000)
		refused(t, ticket, err)
		big.Adjust(1000, c.now())
		ticket, err = begin(4900)
		more := mustAdmit(t, ticket, err)
		big.Adjust(1000, c.now())
		big.End()
		big.Adjust(0, c.now()) // too late
		ticket, err = begin(1000)
		refused(t, ticket, err)
		// It used a minute's worth more than estimated, so the next requests wait.
		more.Adjust(4900+6000, c.now())
		more.End()
		c.advance(50 * time.Second)
		ticket, err = begin(1000)
		refused(t, ticket, err)
		c.advance(25 * time.Second)
		ticket, err = begin(1000)
		mustAdmit(t, ticket, err)

		// The part that has already refilled isn't refunded.
		c.advance(time.Hour)
		ticket, err = begin(6000)
		long := mustAdmit(t, ticket, err)
		c.advance(119 * time.Second)
		ticket, err = begin(6000)
		mustAdmit(t, ticket, err)
		long.Adjust(0, c.now())
		ticket, err = begin(1000)
		refused(t, ticket, err)
	})
}

func TestConcurrentRequestsGetExactlyTheLimit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		var in, most, calls atomic.Int64
		crowd := func(id string, limits Limits) {
			in.Store(0)
			most.Store(0)
			calls.Store(0)
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					for range 20 {
						ticket, err := l.Begin(id, limits, 10, c.now())
						if err != nil {
							continue
						}
						calls.Add(1)
						n := in.Add(1)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						time.Sleep(10 * time.Microsecond)
						in.Add(-1)
						ticket.End()
					}
				})
			}
			all.Wait()
		}
		crowd("requests", Limits{RequestsPerMinute: 300, TokensPerMinute: 100_000, InFlight: 1000})
		if calls.Load() != 300 {
			t.Errorf("got %d requests, want 300", calls.Load())
		}
		crowd("tokens", Limits{RequestsPerMinute: 10_000, TokensPerMinute: 3000})
		if calls.Load() != 300 {
			t.Errorf("got %d requests of 10 tokens, want 300", calls.Load())
		}
		crowd("slots", Limits{InFlight: 7})
		if most.Load() > 7 || calls.Load() < 7 {
			t.Errorf("got %d in flight and %d in all, want at most 7 in flight", most.Load(), calls.Load())
		}
	})
}

func TestHeadersReportLimitsAndRetryAfter(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newLocal(c.now)
	limits := Limits{RequestsPerMinute: 60, TokensPerMinute: 150_000}
	ticket, err := l.Begin("key", limits, 16, c.now())
	h := http.Header{}
	mustAdmit(t, ticket, err).Headers(h)
	for name, want := range map[string]string{
		"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "1s",
		"x-ratelimit-limit-tokens": "150000", "x-ratelimit-remaining-tokens": "149984", "x-ratelimit-reset-tokens": "7ms",
		"retry-after": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	ticket, err = l.Begin("key", limits, 150_000-16, c.now())
	mustAdmit(t, ticket, err)
	ticket, err = l.Begin("key", limits, 50, c.now())
	r := refused(t, ticket, err)
	h = http.Header{}
	r.Headers(h)
	if h.Get("Retry-After") != "1" || h.Get("Retry-After-Ms") != "20" || h.Get("x-ratelimit-remaining-tokens") != "0" ||
		h.Get("x-ratelimit-reset-tokens") != "1m0s" || h.Get("x-ratelimit-remaining-requests") != "58" {
		t.Errorf("%v", h)
	}
	if r.Error() != "the limit of 150000 tokens per minute is reached; the next fits in 20ms" {
		t.Error(r)
	}
	h = http.Header{}
	(&Refusal{Kind: InFlight, Limit: 2, RetryAfter: slotRetry}).Headers(h)
	if len(h) != 2 || h.Get("Retry-After") != "1" {
		t.Errorf("%v", h)
	}
	for d, want := range map[time.Duration]string{0: "0s", 1: "1ms", 20 * time.Millisecond: "20ms", 1500 * time.Millisecond: "1.5s",
		time.Second: "1s", 6 * time.Minute: "6m0s", 90 * time.Second: "1m30s"} {
		if got := formatDuration(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}

func TestIdleIDsAreDroppedFromMemory(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		limits := Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, InFlight: 10}
		var open *Ticket
		for i := range 100 {
			ticket, err := l.Begin(fmt.Sprint("key_", i), limits, 1000, c.now())
			if mustAdmit(t, ticket, err); i == 50 {
				open = ticket
			} else {
				ticket.End()
			}
		}
		count := func() (n int) {
			for i := range l.shards {
				n += len(l.shards[i].entries)
			}
			return n
		}
		step := func(d time.Duration) {
			c.advance(d)
			for range 2 { // the first releases slots
				l.runOnce(t.Context())
				waitForStore(l)
			}
		}
		step(30 * time.Second)
		if n := count(); n != 100 {
			t.Errorf("got %d IDs in memory before they are idle, want 100", n)
		}
		step(31 * time.Second)
		if n := count(); n != 1 {
			t.Errorf("got %d IDs in memory, want 1: the one with a request in flight", n)
		}
		open.End()
		step(time.Second)
		if n := count(); n != 0 {
			t.Errorf("got %d IDs in memory, want 0", n)
		}
	})
}

func BenchmarkBeginEnd(b *testing.B) {
	limits := Limits{RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 50, InFlight: 1 << 30}
	names := make([]string, 1024)
	for i := range names {
		names[i] = fmt.Sprintf("key_%026d", i)
	}
	for _, n := range []int{1, 1024} {
		b.Run(fmt.Sprintf("ids=%d", n), func(b *testing.B) {
			l := newLocal(time.Now)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				now := time.Now()
				for i := 0; pb.Next(); i++ {
					t, err := l.Begin(names[i%n], limits, 100, now)
					if err != nil {
						b.Error(err)
						return
					}
					t.Adjust(90, now)
					t.End()
				}
			})
		})
	}
}
