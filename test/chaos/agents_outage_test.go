package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestShutdownFinishesTheTurnInProgress stops a server during a run's tool call or
// model request. The server finishes and stores that turn. The next server continues
// from there and repeats nothing.
func TestShutdownFinishesTheTurnInProgress(t *testing.T) {
	longOnly(t, "TestGracefulShutdownFinishesRequestsInFlight, lanes.TestStoppingNodeReleasesIdleLanesFirst")
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		a := newAgentFixture(t, at)
		for _, inside := range []bool{true, false} {
			var id string
			asks := a.model.asked.Load()
			if inside {
				id = runUntilToolCall(t, a, runSpec{})
			} else {
				reached := a.model.gates[1].close()
				r, made := createUntilApproval(t, a, runSpec{})
				id = made
				a.approve(t, a.server.URL, r)
				wait(t, "the model gets the second request", reached)
			}
			if err := a.server.Terminate(); err != nil {
				t.Fatal(err)
			}
			eventually(t, promptly, "the server accepts no more requests", func() bool { return get(a.server.URL, "/healthz").status == 0 })
			a.openAll()
			if code, err := a.server.Wait(30 * time.Second); code != 0 || err != nil {
				t.Fatalf("got exit code %d (%v), want 0", code, err)
			}
			a.server = serve(t, at, a.flags...)
			a.reaches(t, id, "completed") // without another approval
			a.checkRun(t, a.server.URL, id, runSpec{})
			if n := a.model.asked.Load() - asks; n != 2 {
				t.Errorf("the model was asked %d times", n)
			}
			if n := a.tool.callCount(id + ":call_1_0"); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		}
		wantNoRepeats(t, a.audit(t, a.server))
	})
}

// TestRunsSurviveADatabaseOutage cuts off PostgreSQL, or its responses to commits,
// during runs. The server keeps unwritten results in memory. A repeated tool call needs
// a new approval, and each run ends once and costs what the log says.
func TestRunsSurviveADatabaseOutage(t *testing.T) {
	longOnly(t, "TestDatabaseOutageReturns503AndRecovers, agents.TestRunSurvivesCrashesDecisionsAndTimeoutsInAnyOrder")
	t.Parallel()
	rounds, runs := 1, 15
	if full {
		rounds, runs = 8, 100
	}
	endure := func(t *testing.T, c *agentCluster, away func(t *testing.T)) {
		t.Helper()
		c.model.delay = func() time.Duration { return 5*time.Millisecond + rand.N(60*time.Millisecond) }
		c.tool.delay = c.model.delay
		all := c.createRuns(t, runs)
		done := c.approveAll(t)
		for n := range rounds {
			part := 3 * runs / (rounds + 1)
			eventually(t, time.Minute, "the runs make progress", func() bool { return int(c.model.asked.Load())+c.tool.callCount("") >= n*part+part/2 })
			away(t)
		}
		// The server retries a model request that it couldn't record.
		c.allEnd(t, len(all), time.Minute)
		done()
		for id, o := range all {
			c.checkRun(t, c.server.URL, id, o)
		}
		c.audit(t, c.server)
		t.Logf("%d runs asked the model %d times and the tool %d times", len(all), c.model.asked.Load(), c.tool.callCount(""))
	}
	t.Run("postgres restarts", func(t *testing.T) {
		t.Parallel()
		cluster, err := dbtest.StartCluster()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.Stop(); err != nil {
				t.Error(err)
			}
		})
		at := program.Place{Dir: t.TempDir(), DatabaseURL: cluster.URL()}
		endure(t, singleNode(t, newAgentFixture(t, at)), func(t *testing.T) {
			t.Helper()
			if err := cluster.Restart(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("postgres commits and cannot say so", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		wire, address := dropResponses(t, at.DatabaseURL)
		wire.hangUp(true)
		a := newAgentFixture(t, program.Place{Dir: at.Dir, DatabaseURL: address})
		endure(t, singleNode(t, a), func(t *testing.T) {
			t.Helper()
			lost := wire.dropped()
			if err := wire.begin(); err != nil {
				t.Fatal(err)
			}
			eventually(t, returnTime, "commit responses are dropped", func() bool { return wire.dropped() >= lost+3 })
			if err := wire.end(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// singleNode returns a cluster of one node.
func singleNode(t *testing.T, a *agentFixture) *agentCluster {
	t.Helper()
	return &agentCluster{agentFixture: a, nodes: []*node{{a.server, newestNode(t, a.d)}}}
}
