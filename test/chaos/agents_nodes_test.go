package chaos

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// team is some nodes on one database.
type team struct {
	*agency
	mu    sync.Mutex
	nodes []*node
}

func newTeam(t *testing.T) *team {
	t.Helper()
	at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	return alone(t, newAgency(t, at))
}

func (c *team) join(t *testing.T) *node {
	t.Helper()
	s := serve(c.owner, program.Place{Folder: t.TempDir(), DatabaseURL: c.at.DatabaseURL}, c.flags...)
	n := &node{s, newestNode(t, c.d)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	c.server = c.nodes[0].Server
	return n
}

// leave takes a node off the list, before it dies.
func (c *team) leave(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = slices.DeleteFunc(c.nodes, func(other *node) bool { return other == n })
	c.server = c.nodes[0].Server
}

// any is a node that lives, as far as is known.
func (c *team) any() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[rand.IntN(len(c.nodes))]
}

// busy is a node that has asked the model something, if there is one at the
// moment.
func (c *team) busy(t *testing.T) *node {
	t.Helper()
	owners := map[string]bool{}
	rows, err := c.d.Query(t.Context(), "SELECT DISTINCT node_id FROM requests WHERE NOT settled AND path LIKE '/v1/agents/runs/%'")
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		err := r.Scan(&id)
		owners[id] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if owners[n.id] {
			return n
		}
	}
	return c.any()
}

// workedBy finds the node that has a run's lane.
func (c *team) workedBy(t *testing.T, run string) *node {
	t.Helper()
	var owner string
	if err := c.d.QueryRow(t.Context(), "SELECT l.owner FROM lanes l JOIN agent_runs r ON r.lane = l.id WHERE l.queue = 'agents' AND r.id = $1", run).Scan(&owner); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if n.id == owner {
			return n
		}
	}
	t.Fatalf("the run is worked by %s, who is not here", owner)
	return nil
}

// TestAnotherNodeFinishesARun kills the node that works a run in the middle of
// a step, or has it stand still for longer than its lease. The other one goes
// on with the run, and what the first one has to say later counts for nothing.
func TestAnotherNodeFinishesARun(t *testing.T) {
	t.Parallel()
	c := newTeam(t)
	c.join(t)
	for _, part := range []struct {
		name  string
		tool  bool // in the tool's call, and not the model's
		still bool // the node does not die, but stands still
	}{
		{"killed during a model call", false, false},
		{"killed during the tool's call", true, false},
		{"standing still during a model call", false, true},
		{"standing still during the tool's call", true, true},
	} {
		if part.still && !full {
			continue // its lease must really run out
		}
		var id string
		if part.tool {
			id = inTool(t, c.agency, order{})
		} else {
			reached := c.mind.gates[1].close()
			var r events.AgentRun
			r, id = asked(t, c.agency, order{})
			c.approve(t, c.server.URL, r)
			wait(t, "the model is asked again", reached)
			known(t, c.agency, id)
		}
		n := c.workedBy(t, id)
		c.leave(n)
		patience := promptly
		begun := time.Now()
		if part.still {
			n.signal(t, syscall.SIGSTOP)
		} else {
			n.Kill()
		}
		if full {
			// Others wait for the lease, and a minute more for the books.
			patience += 2*time.Minute + leaseTime
		} else {
			bury(t, c.d, c.at, n.id)
			c.join(t) // which closes the books of the dead one at its start
		}
		if part.tool {
			eventually(t, patience, "the other asks for a new approval", func() bool { return c.run(t, id).Status == "awaiting_approval" })
			asksAgain(t, c.agency, id)
		} else {
			eventually(t, patience, "the other asks the model again", func() bool {
				return count(t, c.d, "SELECT count(*) FROM requests WHERE NOT settled AND path = $1 AND node_id <> $2", "/v1/agents/runs/"+id, n.id) == 1
			})
		}
		t.Logf("%s: taken over after %v", part.name, time.Since(begun).Round(time.Millisecond))
		if part.still {
			n.signal(t, syscall.SIGCONT)
			c.mu.Lock()
			c.nodes = append(c.nodes, n)
			c.mu.Unlock()
		}
		c.openAll()
		c.finish(t, id)
		c.checkRun(t, c.server.URL, id, order{late: part.still && !part.tool})
		if made, want := c.tool.made(id+":call_1_0"), map[bool]int{false: 1, true: 2}[part.tool]; made != want {
			t.Errorf("%s: the tool was called %d times, expected %d", part.name, made, want)
		}
		for len(c.nodes) < 2 {
			c.join(t)
		}
	}
	c.audit(t, c.servers()...)
}

func (c *team) servers() (list []*program.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		list = append(list, n.Server)
	}
	return list
}

// TestFiftyRunsSurviveRandomKills kills one of two nodes now and then, while
// fifty runs go on and somebody approves what they ask for.
func TestFiftyRunsSurviveRandomKills(t *testing.T) {
	t.Parallel()
	kills, runs := 4, 50
	if full {
		kills, runs = 20, 200
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newTeam(t)
	c.join(t)
	c.mind.delay = func() time.Duration { return 20*time.Millisecond + rand.N(150*time.Millisecond) }
	c.tool.delay = c.mind.delay
	all := c.crowd(t, runs)
	done := c.approveAll(t)
	for n := range kills {
		// Each part of the work has its kill: a run asks the model twice and
		// the tool once.
		part := 3 * runs / (kills + 1)
		at := n*part + part/2 + random.IntN(part/2)
		eventually(t, time.Minute, "the runs go on", func() bool { return int(c.mind.asked.Load())+c.tool.made("") >= at })
		victim := c.busy(t)
		c.leave(victim)
		victim.Kill()
		c.kills++
		bury(t, c.d, c.at, victim.id)
		c.join(t)
	}
	c.allEnd(t, len(all), time.Minute)
	done()
	again := 0
	for id, o := range all {
		c.checkRun(t, c.server.URL, id, o)
		if n := c.tool.made(id + ":call_1_0"); n > 1 {
			again++
		}
	}
	cut := count(t, c.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered'")
	repeats := c.audit(t, c.servers()...)
	t.Logf("%d kills over %d runs: %d tools were called again by a new approval or as idempotent, %d model calls were recovered, %d deliveries came again",
		c.kills, len(all), again, cut, len(repeats))
	if again+cut == 0 {
		t.Error("nothing was ever cut short: the kills came at the wrong moments to show anything")
	}
}

// crowd makes runs, every third with a tool that is idempotent.
func (c *team) crowd(t *testing.T, n int) map[string]order {
	t.Helper()
	all := map[string]order{}
	for i := range n {
		o := order{idempotent: i%3 == 2}
		all[c.create(t, c.any().URL, o)] = o
	}
	return all
}

// approveAll says yes to whatever is asked for, until it is told to stop.
func (c *team) approveAll(t *testing.T) (stop func()) {
	t.Helper()
	quit := make(chan struct{})
	var approver sync.WaitGroup
	approver.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
			c.approveSome()
		}
	})
	stop = sync.OnceFunc(func() {
		close(quit)
		approver.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// approveSome asks a node what is to be approved. It may die over that.
func (c *team) approveSome() {
	url := c.any().URL
	o := call(url, request{mark: "waiting", method: "GET", path: "/v1/agents/runs?status=awaiting_approval&limit=20", key: c.payer.admin})
	var page struct{ Data []events.AgentRun }
	if o.status != http.StatusOK || json.Unmarshal(o.body, &page) != nil {
		return
	}
	for _, r := range page.Data {
		for _, action := range r.RequiredActions {
			c.decide(url, r.ID, action)
		}
	}
}

// allEnd waits until so many runs have ended. The store may be away meanwhile.
func (a *agency) allEnd(t *testing.T, n int, patience time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			a.showRuns(t)
		}
	})
	eventually(t, patience, "all runs end", func() bool {
		var ended int
		err := a.d.QueryRow(t.Context(), "SELECT count(*) FROM agent_runs WHERE status IN ('completed', 'failed', 'cancelled')").Scan(&ended)
		return err == nil && ended == n
	})
}

// showRuns logs where the runs stand that have not ended.
func (a *agency) showRuns(t *testing.T) {
	t.Helper()
	rows, err := a.d.Query(context.WithoutCancel(t.Context()), `SELECT r.id, r.status, r.turn, r.tries, COALESCE(r.due_at, 0), COALESCE(l.owner, 'nobody'), COALESCE(l.lease_until, 0), COALESCE(l.due_at, 0)
		FROM agent_runs r LEFT JOIN lanes l ON l.queue = 'agents' AND l.id = r.lane WHERE r.completed_at IS NULL ORDER BY r.id LIMIT 10`)
	err = db.Each(rows, err, func(r db.Row) error {
		var id, status, owner string
		var turn, tries, due, until, next int64
		err := r.Scan(&id, &status, &turn, &tries, &due, &owner, &until, &next)
		t.Logf("open: %s is %s after %d turns, %d of them failed, and due at %s; its lane is due at %s and %s has it until %s", id, status, turn, tries,
			clock(time.UnixMicro(due)), clock(time.UnixMicro(next)), owner, clock(time.UnixMicro(until)))
		return err
	})
	if err != nil {
		t.Logf("runs cannot be shown: %v", err)
	}
}
