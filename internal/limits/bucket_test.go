package limits

import (
	"flag"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMain runs more sequences per property than the default: few of them come
// near the limit.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "1000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const second = int64(time.Second)

// admissions records which charges passed and when.
type admissions []struct{ at, n int64 }

// check asserts that no period d passes more than limit × (1 + d/minute).
// Charges round down to a nanosecond, so each may add one.
func (p admissions) check(rt *rapid.T, limit int64) {
	for i := range p {
		sum := int64(0)
		for j := i; j < len(p); j++ {
			sum += p[j].n
			d := p[j].at - p[i].at
			if sum > limit+units(limit, d+int64(j-i+1))+1 {
				rt.Fatalf("got %d in %v, want at most %d per minute and burst", sum, time.Duration(d), limit)
			}
		}
	}
}

func TestBucketAdmitsExactlyTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(1, 10_000_000).Draw(rt, "limit")
		now := int64(0)
		var b bucket
		var through admissions
		for range rapid.IntRange(1, 100).Draw(rt, "calls") {
			now += rapid.Int64Range(0, window/4).Draw(rt, "pause")
			n := rapid.Int64Range(1, max(1, limit/3)).Draw(rt, "n")
			wait := b.wait(limit, n, now)
			if wait > 0 {
				if b.wait(limit, n, now+wait) != 0 || b.wait(limit, n, now+wait-1) == 0 {
					rt.Fatalf("got a wait of %v, which is not when it fits", time.Duration(wait))
				}
				continue
			}
			if n > b.available(limit, now) {
				rt.Fatalf("%d fit, but only %d are available", n, b.available(limit, now))
			}
			b.charge(limit, n, now)
			through = append(through, struct{ at, n int64 }{now, n})
		}
		through.check(rt, limit)
	})
}

// Requests that reserve more than they use and end in any order stay within the
// rate.
func TestRefundsNeverExceedTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(1, 10_000).Draw(rt, "limit")
		l := newLocal(func() time.Time { return time.Unix(0, 0) })
		now := l.start
		type call struct {
			*Ticket
			used int
		}
		var open []call
		var used admissions
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, window/3).Draw(rt, "pause")))
			if len(open) > 0 && rapid.Bool().Draw(rt, "end") {
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
				c := open[i]
				actual := rapid.SampledFrom([]int64{0, c.holds[0].tokens / 2, c.holds[0].tokens}).Draw(rt, "real")
				used[c.used].n = actual
				c.Adjust(actual, now)
				c.End()
				open = append(open[:i], open[i+1:]...)
				continue
			}
			n := rapid.SampledFrom([]int64{1, limit / 3, limit}).Draw(rt, "estimate")
			if ticket, err := l.Begin("key", Limits{TokensPerMinute: limit}, n, now); err == nil {
				open = append(open, call{ticket, len(used)})
				used = append(used, struct{ at, n int64 }{int64(now.Sub(l.start)), n})
			}
		}
		used.check(rt, limit)
	})
}

func TestBucketRefillsWithinAMinute(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 7, 60, 999, 1_000_003} {
		var b bucket
		for i := range min(limit, 1000) {
			n := int64(1)
			if i == 999 {
				n = limit - 999
			}
			if b.wait(limit, n, 0) > 0 {
				t.Fatalf("refused after %d of %d", i, limit)
			}
			b.charge(limit, n, 0)
		}
		if b.wait(limit, 1, 0) == 0 || b.available(limit, 0) != 0 {
			t.Errorf("more than %d went through", limit)
		}
		if n := b.available(limit, window); n != limit {
			t.Errorf("got %d available after a minute, want %d", n, limit)
		}
	}
	var b bucket
	b.charge(60, 60, 0)
	if w := b.wait(60, 1, 0); w != second {
		t.Errorf("wait %v", time.Duration(w))
	}
	if s := b.state(60, 0, 0); s != (State{60, 0, time.Minute}) {
		t.Errorf("%+v", s)
	}
	if s := b.state(60, 0, 30*second); s != (State{60, 30, 30 * time.Second}) {
		t.Errorf("%+v", s)
	}
	// A request above the limit passes once, and delays the next ones.
	b = bucket{}
	if b.wait(60, 600, 0) != 0 {
		t.Error("a request above the limit was refused by an idle bucket")
	}
	b.charge(60, 600, 0)
	if w := b.wait(60, 1, 0); w < 9*window {
		t.Errorf("got a wait of %v after a request of ten minutes, want at least nine", time.Duration(w))
	}
}

func TestHugeChargesAreCapped(t *testing.T) {
	t.Parallel()
	var b bucket
	b.charge(1, 1<<62, 0)
	b.charge(1, 1_000_000, 0)
	b.charge(1<<62, 1<<62, 0)
	if b.full != 2*maxCharge+window {
		t.Errorf("full at %v", time.Duration(b.full))
	}
	if n := (&bucket{}).available(1<<62, 0); n != 1<<62 {
		t.Errorf("got %d available, want %d", n, int64(1<<62))
	}
}
