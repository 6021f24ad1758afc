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

// agentCluster is a set of nodes on one database.
type agentCluster struct {
	*agentFixture
	mu    sync.Mutex
	nodes []*node
}

func newAgentCluster(t *testing.T) *agentCluster {
	t.Helper()
	at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	return singleNode(t, newAgentFixture(t, at))
}

func (c *agentCluster) join(t *testing.T) *node {
	t.Helper()
	s := serve(c.owner, program.Place{Dir: t.TempDir(), DatabaseURL: c.at.DatabaseURL}, c.flags...)
	n := &node{s, newestNode(t, c.d)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	c.server = c.nodes[0].Server
	return n
}

// leave removes a node from the set, before it dies.
func (c *agentCluster) leave(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = slices.DeleteFunc(c.nodes, func(other *node) bool { return other == n })
	c.server = c.nodes[0].Server
}

func (c *agentCluster) anyNode() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[rand.IntN(len(c.nodes))]
}

// busyNode returns a node with a model request in progress, or any node if there is
// none.
func (c *agentCluster) busyNode(t *testing.T) *node {
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
	return c.anyNode()
}

// ownerOf returns the node that owns a run's lane.
func (c *agentCluster) ownerOf(t *testing.T, run string) *node {
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
	t.Fatalf("got owner %s of the run, want a node of the cluster", owner)
	return nil
}

// TestAnotherNodeFinishesRunsOfADeadNode kills a run's node in the middle of a step, or
// freezes it for longer than its lease. Another node continues the run and ignores
// later results of the first one.
func TestAnotherNodeFinishesRunsOfADeadNode(t *testing.T) {
	longOnly(t, "agents.TestRunSurvivesCrashesDecisionsAndTimeoutsInAnyOrder, lanes.TestTwoNodesRunEveryItemOnce")
	t.Parallel()
	c := newAgentCluster(t)
	c.join(t)
	for _, part := range []struct {
		name  string
		tool  bool // during the tool call instead of a model request
		still bool // freeze the node instead of killing it
	}{
		{"killed during a model call", false, false},
		{"killed during the tool's call", true, false},
		{"standing still during a model call", false, true},
		{"standing still during the tool's call", true, true},
	} {
		if part.still && !full {
			continue // needs a real lease to expire
		}
		var id string
		if part.tool {
			id = runUntilToolCall(t, c.agentFixture, runSpec{})
		} else {
			reached := c.model.gates[1].close()
			var r events.AgentRun
			r, id = createUntilApproval(t, c.agentFixture, runSpec{})
			c.approve(t, c.server.URL, r)
			wait(t, "the model gets the second request", reached)
			waitUntilLogged(t, c.agentFixture, id)
		}
		n := c.ownerOf(t, id)
		c.leave(n)
		patience := promptly
		begun := time.Now()
		if part.still {
			n.signal(t, syscall.SIGSTOP)
		} else {
			n.Kill()
		}
		if full {
			// Other nodes wait for the lease, and one more minute before they recover
			// the requests.
			patience += 2*time.Minute + leaseTime
		} else {
			evictAndExpire(t, c.d, c.at, n.id)
			c.join(t) // recovers the dead node's requests when it starts
		}
		if part.tool {
			eventually(t, patience, "the other node asks for a new approval", func() bool { return c.run(t, id).Status == "awaiting_approval" })
			checkAsksAgain(t, c.agentFixture, id)
		} else {
			eventually(t, patience, "the other node repeats the model request", func() bool {
				return count(t, c.d, "SELECT count(*) FROM requests WHERE NOT settled AND path = $1 AND node_id <> $2", "/v1/agents/runs/"+id, n.id) == 1
			})
		}
		t.Logf("%s: taken over after %v", part.name, time.Since(begun).Round(time.Millisecond))
		if part.still {
			n.signal(t, syscall.SIGCONT)
		}
		c.openAll()
		c.finish(t, id)
		c.checkRun(t, c.server.URL, id, runSpec{late: part.still && !part.tool})
		if made, want := c.tool.callCount(id+":call_1_0"), map[bool]int{false: 1, true: 2}[part.tool]; made != want {
			t.Errorf("%s: got %d tool calls, want %d", part.name, made, want)
		}
		if part.still { // it may have rejoined with another ID
			if err := n.Terminate(); err != nil {
				t.Error(err)
			}
		}
		for len(c.nodes) < 2 {
			c.join(t)
		}
	}
	c.audit(t, c.servers()...)
}

func (c *agentCluster) servers() (list []*program.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		list = append(list, n.Server)
	}
	return list
}

// TestConcurrentRunsSurviveRandomKills kills one of two nodes repeatedly while fifty
// runs are in progress and their tool calls get approved.
func TestConcurrentRunsSurviveRandomKills(t *testing.T) {
	longOnly(t, "TestRunSurvivesKill9")
	t.Parallel()
	kills, runs := 4, 50
	if full {
		kills, runs = 20, 200
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newAgentCluster(t)
	c.join(t)
	c.model.delay = func() time.Duration { return 20*time.Millisecond + rand.N(150*time.Millisecond) }
	c.tool.delay = c.model.delay
	all := c.createRuns(t, runs)
	done := c.approveAll(t)
	for n := range kills {
		// Spread the kills over the work: a run makes two model requests and one tool
		// call.
		part := 3 * runs / (kills + 1)
		at := n*part + part/2 + random.IntN(part/2)
		eventually(t, time.Minute, "the runs make progress", func() bool { return int(c.model.asked.Load())+c.tool.callCount("") >= at })
		victim := c.busyNode(t)
		c.leave(victim)
		victim.Kill()
		c.kills++
		evictAndExpire(t, c.d, c.at, victim.id)
		c.join(t)
	}
	c.allEnd(t, len(all), time.Minute)
	done()
	again := 0
	for id, o := range all {
		c.checkRun(t, c.server.URL, id, o)
		if n := c.tool.callCount(id + ":call_1_0"); n > 1 {
			again++
		}
	}
	cut := count(t, c.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered'")
	repeats := c.audit(t, c.servers()...)
	t.Logf("%d kills over %d runs: %d tools were called again by a new approval or as idempotent, %d model calls were recovered, %d deliveries were repeated",
		c.kills, len(all), again, cut, len(repeats))
	if again+cut == 0 {
		t.Error("got no interrupted work, want some: the kills came at the wrong moments to show anything")
	}
}

// createRuns creates n runs. Every third has an idempotent tool.
func (c *agentCluster) createRuns(t *testing.T, n int) map[string]runSpec {
	t.Helper()
	all := map[string]runSpec{}
	for i := range n {
		o := runSpec{idempotent: i%3 == 2}
		all[c.create(t, c.anyNode().URL, o)] = o
	}
	return all
}

// approveAll approves every tool call until stop is called.
func (c *agentCluster) approveAll(t *testing.T) (stop func()) {
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

// approveSome approves the tool calls that a node lists. The node may die meanwhile.
func (c *agentCluster) approveSome() {
	url := c.anyNode().URL
	o := call(url, request{mark: "waiting", method: "GET", path: "/v1/agents/runs?status=awaiting_approval&limit=20", key: c.account.admin})
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

// allEnd waits until n runs have ended. The database may be down meanwhile.
func (a *agentFixture) allEnd(t *testing.T, n int, patience time.Duration) {
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

// showRuns logs the runs that haven't ended.
func (a *agentFixture) showRuns(t *testing.T) {
	t.Helper()
	rows, err := a.d.Query(context.WithoutCancel(t.Context()), `SELECT r.id, r.status, r.turn, r.tries, COALESCE(r.due_at, 0), COALESCE(l.owner, 'nobody'), COALESCE(l.lease_until, 0), COALESCE(l.due_at, 0)
		FROM agent_runs r LEFT JOIN lanes l ON l.queue = 'agents' AND l.id = r.lane WHERE r.completed_at IS NULL ORDER BY r.id LIMIT 10`)
	err = db.Each(rows, err, func(r db.Row) error {
		var id, status, owner string
		var turn, tries, due, until, next int64
		err := r.Scan(&id, &status, &turn, &tries, &due, &owner, &until, &next)
		t.Logf("open: %s is %s after %d turns, %d of them failed, and due at %s; its lane is due at %s and %s has it until %s", id, status, turn, tries,
			formatTime(time.UnixMicro(due)), formatTime(time.UnixMicro(next)), owner, formatTime(time.UnixMicro(until)))
		return err
	})
	if err != nil {
		t.Logf("runs cannot be shown: %v", err)
	}
}
