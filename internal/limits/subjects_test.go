package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// admissible counts how many more requests an ID is given at the moment.
func admissible(l *Limiter, c *clock, id string, limits Limits) (n int64) {
	for {
		ticket, err := l.Begin(id, limits, 0, c.now())
		if err != nil {
			return n
		}
		ticket.End()
		n++
	}
}

func TestRefusalNamesTheSubjectAndTakesNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		key := Subject{"key", Limits{RequestsPerMinute: 10, TokensPerMinute: 1000, InFlight: 5}}
		workspace := Subject{"workspace", Limits{RequestsPerMinute: 3, InFlight: 2}}
		begin := func(tokens int64) (*Ticket, error) {
			waitForStore(l)
			c.advance(time.Duration(refusalTTL))
			return l.BeginAll([]Subject{key, workspace}, tokens, c.now())
		}
		one, err := begin(100)
		mustAdmit(t, one, err)
		if one.Requests.Limit != 3 || one.Requests.Remaining != 2 || one.Tokens.Limit != 1000 || one.Tokens.Remaining != 900 {
			t.Errorf("got %+v, %+v, want the tightest of both subjects", one.Requests, one.Tokens)
		}
		two, err := begin(100)
		mustAdmit(t, two, err)
		ticket, err := begin(100)
		if r := refused(t, ticket, err); r.ID != "workspace" || r.Kind != InFlight || r.Limit != 2 {
			t.Errorf("got %+v, want the workspace's slots", r)
		}
		ticket, err = begin(900)
		if r := refused(t, ticket, err); r.ID != "key" || r.Kind != Tokens {
			t.Errorf("got %+v, want the longest wait, which is the key's for tokens", r)
		}
		one.End()
		one.End()
		three, err := begin(100)
		mustAdmit(t, three, err)
		two.End()
		ticket, err = begin(100)
		if r := refused(t, ticket, err); r.ID != "workspace" || r.Kind != Requests || r.Limit != 3 {
			t.Errorf("got %+v, want the workspace's requests", r)
		}
		three.End()
		waitForStore(l)
		if n := admissible(l, c, "key", key.Limits); n != 7 {
			t.Errorf("got %d more requests of the key, want 7: refused ones took nothing", n)
		}
		for i := range l.shards {
			for _, e := range l.shards[i].entries {
				if e.inUse != 0 {
					t.Errorf("%s: got %d in flight, want 0", e.id, e.inUse)
				}
			}
		}
	})
}

func TestAdjustReachesEverySubject(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		child := Subject{"child", Limits{TokensPerMinute: 6000}}
		parent := Subject{"parent", Limits{TokensPerMinute: 3000}}
		root := Subject{"root", Limits{TokensPerMinute: 9000, RequestsPerMinute: 100}}
		begin := func(tokens int64, subjects ...Subject) (*Ticket, error) {
			waitForStore(l)
			c.advance(time.Duration(refusalTTL))
			return l.BeginAll(subjects, tokens, c.now())
		}
		big, err := begin(3000, child, parent, root)
		mustAdmit(t, big, err)
		ticket, err := begin(100, child, parent, root)
		if r := refused(t, ticket, err); r.ID != "parent" || r.Kind != Tokens {
			t.Errorf("got %+v, want the parent's tokens", r)
		}
		big.Adjust(1000, c.now())
		big.End()
		ticket, err = begin(1900, child, parent, root)
		mustAdmit(t, ticket, err)
		ticket.Adjust(1900+3000, c.now())
		ticket.End()
		ticket, err = begin(100, parent)
		refused(t, ticket, err)
		ticket, err = begin(2900, root)
		mustAdmit(t, ticket, err)
		ticket, err = begin(900, root)
		refused(t, ticket, err)
		ticket, err = begin(100, Subject{ID: "unlimited"})
		mustAdmit(t, ticket, err).End()
	})
}

// TestUndoReturnsEverythingTaken covers refusals that a node learns of only after it
// has taken from an earlier subject.
func TestUndoReturnsEverythingTaken(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{20, 10_000} { // without and with chunks
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				c := newClock()
				l := node(t, d, c, "a")
				limits := Limits{RequestsPerMinute: limit, TokensPerMinute: 100 * limit, InFlight: 100}
				for range 3 * limit {
					h := &hold{id: "key", shard: l.shard("key"), limits: limits, tokens: 100}
					at := l.nanos(c.now())
					if r := l.take(h, at); r != nil {
						t.Fatalf("got %v, want what was returned before", r)
					}
					l.undo(h, at)
				}
				waitForStore(l)
				if n := admissible(l, c, "key", Limits{RequestsPerMinute: limit}); n != limit {
					t.Errorf("got %d requests, want %d", n, limit)
				}
				c.advance(time.Hour)
				l.runOnce(t.Context())
				waitForStore(l)
				if n := admissible(l, c, "key", Limits{RequestsPerMinute: limit}); n < limit || n > limit+limit/20 {
					t.Errorf("got %d requests after a rest, want %d", n, limit)
				}
			})
		})
	}
}

// TestWorkspaceRefusalsTakeNothingFromKeys checks that requests refused by a workspace leave
// their keys what they had.
func TestWorkspaceRefusalsTakeNothingFromKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := newClock()
		l := node(t, d, c, "a")
		key, workspace := Limits{RequestsPerMinute: 100, InFlight: 100}, Limits{RequestsPerMinute: 300, InFlight: 1000}
		var admitted [10]atomic.Int64
		var all sync.WaitGroup
		for k := range admitted {
			for range 5 {
				all.Go(func() {
					for range 20 {
						ticket, err := l.BeginAll([]Subject{{fmt.Sprint("key_", k), key}, {"workspace", workspace}}, 0, c.now())
						if err == nil {
							admitted[k].Add(1)
							ticket.End()
						}
					}
				})
			}
		}
		all.Wait()
		total := int64(0)
		for k := range admitted {
			n := admitted[k].Load()
			total += n
			waitForStore(l)
			c.advance(time.Duration(refusalTTL))
			rest := admissible(l, c, fmt.Sprint("key_", k), key)
			if n+rest < 100 || n+rest > 100+int64(k)+2 { // what the clock brought meanwhile
				t.Errorf("key %d: got %d admitted and %d left, want 100 in all", k, n, rest)
			}
		}
		if total != 300 {
			t.Errorf("got %d requests of the workspace, want 300", total)
		}
	})
}

// TestSubjectsAreSharedByNodes checks the bound of both subjects on two nodes,
// and that a workspace's refusal costs a key nothing on any node.
func TestSubjectsAreSharedByNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	for _, limit := range []int64{30, 3000} {
		workspace := Subject{fmt.Sprint("workspace_", limit), Limits{RequestsPerMinute: limit}}
		key := Subject{fmt.Sprint("key_", limit), Limits{RequestsPerMinute: 2 * limit}}
		admitted := int64(0)
		for i := range 3 * limit {
			ticket, err := c.nodes[i%2].BeginAll([]Subject{key, workspace}, 0, c.now())
			if err != nil {
				if r := refused(t, ticket, err); r.ID != workspace.ID {
					t.Fatalf("got a refusal by %s, want by %s", r.ID, workspace.ID)
				}
				continue
			}
			ticket.End()
			admitted++
		}
		if admitted > limit || admitted < limit*95/100 {
			t.Errorf("got %d admitted, want %d or up to 5%% fewer", admitted, limit)
		}
		for _, l := range c.nodes { // tells the store what was returned
			l.runOnce(t.Context())
			waitForStore(l)
		}
		c.advance(time.Duration(refusalTTL))
		rest := admissible(c.nodes[0], &c.clock, key.ID, key.Limits)
		if all := admitted + rest; all > 2*limit+2*limit/500+1 || all < 2*limit*95/100 {
			t.Errorf("got %d requests of the key in all, want %d or up to 5%% fewer", all, 2*limit)
		}
	}
}

func BenchmarkBeginAll(b *testing.B) {
	limits := Limits{RequestsPerMinute: 1 << 40, TokensPerMinute: 1 << 50, InFlight: 1 << 30}
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("subjects=%d", n), func(b *testing.B) {
			l := newLocal(time.Now)
			var subjects []Subject
			for i := range n {
				subjects = append(subjects, Subject{fmt.Sprintf("key_%026d", i), limits})
			}
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				t, err := l.BeginAll(subjects, 100, now)
				if err != nil {
					b.Fatal(err)
				}
				t.Adjust(90, now)
				t.End()
			}
		})
	}
}
