package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// TestBudgetIsKeptThroughKill9 kills a node that spends, again and again, on
// PostgreSQL beside one that goes on. What it had under way is charged as it
// was reserved, what it had set aside beyond that is everybody's again, and at
// no moment is more spent than the limit.
func TestBudgetIsKeptThroughKill9(t *testing.T) {
	t.Parallel()
	kills := 3
	if full {
		kills = 20
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		settings := metered(t, at, upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return 5*time.Millisecond + rand.N(50*time.Millisecond) }))
		s := &spending{at: at, settings: settings}
		if at.DatabaseURL != "" {
			s.survivor = serve(t, at, settings)
		}
		s.mortal = serve(t, at, settings)
		s.d = open(t, at)
		s.payer = newPayer(t, at, s.mortal.URL)
		for n := 0; n < kills && !t.Failed(); n++ {
			s.round(t, n, 5+random.IntN(80))
		}
		if s.recovered == 0 {
			t.Error("nothing was ever recovered: the kills came at the wrong moments to show anything")
		}
		stop(t, s.servers()...)
		checkBooks(t, s.d)
	})
}

// spending is the state of the test on one engine.
type spending struct {
	at        program.Place
	settings  string
	d         *db.DB
	mortal    *program.Server // is killed and started again
	survivor  *program.Server // nil on the embedded database
	payer     *payer
	limit     credits.Micro
	outcomes  []*outcome
	recovered int
}

func (s *spending) servers() []*program.Server {
	if s.survivor == nil {
		return []*program.Server{s.mortal}
	}
	return []*program.Server{s.survivor, s.mortal}
}

// roundCalls is for how many calls at their bound each round has room. They
// cost half of that, and there are many more than twice as many: the limit is
// reached, before or after the kill.
const roundCalls = 60

// round raises the limit, calls, kills, starts again and looks.
func (s *spending) round(t *testing.T, n, killAt int) {
	t.Helper()
	s.limit += roundCalls * callBound
	s.payer.setCredits(t, s.mortal.URL, s.limit)
	watched := s.watch(t)
	dead := s.newest(t)
	outcomes := s.load(n, killAt)
	looks := watched()
	s.outcomes = append(s.outcomes, outcomes...)

	if s.at.DatabaseURL != "" {
		evict(t, s.d, dead) // other nodes would do so after a minute
	}
	s.mortal = serve(t, s.at, s.settings)
	s.check(t, dead)
	served := 0
	for _, o := range outcomes {
		if o.status == http.StatusOK {
			served++
		}
	}
	t.Logf("kill %d at answer %d: %d of %d calls served, %s of %s spent, %d recovered so far, %d looks at billing",
		n+1, killAt, served, len(outcomes), total(t, s.d), s.limit, s.recovered, looks)
}

// newest is the node that started last, which is the mortal one: ids are in
// the order of time.
func (s *spending) newest(t *testing.T) (id string) {
	t.Helper()
	if err := s.d.QueryRow(t.Context(), "SELECT max(id) FROM nodes").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// watch asks all the time how much is used, until what it returns is called.
func (s *spending) watch(t *testing.T) (looks func() int) {
	t.Helper()
	servers, limit := s.servers(), s.limit
	var n atomic.Int64
	quit := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		c := newClient(servers[0].URL)
		defer c.close()
		for {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
			used, reserved, ok := s.payer.used(c)
			if !ok {
				continue
			}
			n.Add(1)
			if used+reserved > limit {
				t.Errorf("%s are used and %s reserved of %s", used, reserved, limit)
				return
			}
		}
	})
	return sync.OnceValue(func() int {
		close(quit)
		watcher.Wait()
		return int(n.Load())
	})
}

// load calls on many connections and kills the mortal node when so many calls
// were served. Its callers end with it, the others a moment later.
func (s *spending) load(n, killAt int) []*outcome {
	const conns = 40
	var mu sync.Mutex
	var outcomes []*outcome
	var served atomic.Int64
	var over atomic.Bool
	var workers sync.WaitGroup
	servers := s.servers()
	for w := range conns {
		workers.Go(func() {
			c := newClient(servers[w%len(servers)].URL)
			defer c.close()
			for i := 0; !over.Load(); i++ {
				o := c.do(s.payer.pay(fmt.Sprintf("budget/%d/%d/%d", n, w, i), w%8 >= 6), nil)
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
				switch {
				case o.err != nil:
					return
				case o.status == http.StatusOK:
					if served.Add(1) == int64(killAt) {
						s.mortal.Kill()
						time.AfterFunc(100*time.Millisecond, func() { over.Store(true) })
					}
				case o.status == http.StatusPaymentRequired:
					time.Sleep(20 * time.Millisecond) // who has no credits does not hammer
				}
			}
		})
	}
	workers.Wait()
	return outcomes
}

// check holds the log against what the callers saw, and looks for what the
// dead node may have left.
func (s *spending) check(t *testing.T, dead string) {
	t.Helper()
	log := export(t, s.mortal.URL, s.payer.admin)
	checkLogged(t, s.outcomes, log, answered)
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range s.outcomes {
		if o.whole && o.status != http.StatusOK && o.status != http.StatusPaymentRequired {
			wrong.add("neither served nor refused: %v\n%s", o, o.body)
		}
	}
	if n := count(t, s.d, "SELECT count(*) FROM requests WHERE NOT settled AND node_id = $1", dead); n > 0 {
		wrong.add("%d entries of a dead node are open", n)
	}
	if n := count(t, s.d, "SELECT count(*) FROM spend_leases WHERE node_id = $1", dead); n > 0 {
		wrong.add("a dead node has %d leases", n)
	}
	if n := count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND credits <> reserved"); n > 0 {
		wrong.add("%d recovered calls are not charged as they were reserved", n)
	}
	if spent := total(t, s.d); spent > s.limit {
		wrong.add("%s of %s credits are spent", spent, s.limit)
	}
	s.recovered = count(t, s.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND credits = reserved AND credits > 0")
}
