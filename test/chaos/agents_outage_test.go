package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestAStoppingServerFinishesItsTurn stops a server while a run's tool, or its
// model, is at work. What is under way ends and is written, and the next server
// goes on from there: nothing is asked or called again.
func TestAStoppingServerFinishesItsTurn(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		a := newAgency(t, at)
		for _, inside := range []bool{true, false} {
			var id string
			asks := a.mind.asked.Load()
			if inside {
				id = inTool(t, a, order{})
			} else {
				reached := a.mind.gates[1].close()
				r, made := asked(t, a, order{})
				id = made
				a.approve(t, a.server.URL, r)
				wait(t, "the model is asked again", reached)
			}
			if err := a.server.Terminate(); err != nil {
				t.Fatal(err)
			}
			eventually(t, promptly, "the server takes no more calls", func() bool { return get(a.server.URL, "/healthz").status == 0 })
			a.openAll()
			if code, err := a.server.Wait(30 * time.Second); code != 0 || err != nil {
				t.Fatalf("the server ended with %d, %v", code, err)
			}
			a.server = serve(t, at, a.flags...)
			a.reaches(t, id, "completed") // nobody is asked
			a.checkRun(t, a.server.URL, id, order{})
			if n := a.mind.asked.Load() - asks; n != 2 {
				t.Errorf("the model was asked %d times", n)
			}
			if n := a.tool.made(id + ":call_1_0"); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		}
		noRepeats(t, a.audit(t, a.server))
	})
}

// TestRunsSurviveAStorageOutage takes PostgreSQL away, or its answers to
// commits, while runs go on. The server lives, so what it could not write is
// not forgotten: a tool is called again only by a new approval, each run ends
// once, and costs what the log says.
func TestRunsSurviveAStorageOutage(t *testing.T) {
	t.Parallel()
	rounds, runs := 1, 15
	if full {
		rounds, runs = 8, 100
	}
	endure := func(t *testing.T, c *team, away func(t *testing.T)) {
		t.Helper()
		c.mind.delay = func() time.Duration { return 5*time.Millisecond + rand.N(60*time.Millisecond) }
		c.tool.delay = c.mind.delay
		all := c.crowd(t, runs)
		done := c.approveAll(t)
		for n := range rounds {
			part := 3 * runs / (rounds + 1)
			eventually(t, time.Minute, "the runs go on", func() bool { return int(c.mind.asked.Load())+c.tool.made("") >= n*part+part/2 })
			away(t)
		}
		// A model call that could not be written down is tried again after a while.
		c.allEnd(t, len(all), time.Minute)
		done()
		for id, o := range all {
			c.checkRun(t, c.server.URL, id, o)
		}
		c.audit(t, c.server)
		t.Logf("%d runs asked the model %d times and the tool %d times", len(all), c.mind.asked.Load(), c.tool.made(""))
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
		at := program.Place{Folder: t.TempDir(), DatabaseURL: cluster.URL()}
		endure(t, alone(t, newAgency(t, at)), func(t *testing.T) {
			t.Helper()
			if err := cluster.Restart(); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("postgres commits and cannot say so", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
		wire, address := swallow(t, at.DatabaseURL)
		wire.hangUp(true)
		a := newAgency(t, program.Place{Folder: at.Folder, DatabaseURL: address})
		endure(t, alone(t, a), func(t *testing.T) {
			t.Helper()
			lost := wire.swallowed()
			if err := wire.begin(); err != nil {
				t.Fatal(err)
			}
			eventually(t, returnTime, "commits are not answered", func() bool { return wire.swallowed() >= lost+3 })
			if err := wire.end(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// alone is a team of one.
func alone(t *testing.T, a *agency) *team {
	t.Helper()
	return &team{agency: a, nodes: []*node{{a.server, newestNode(t, a.d)}}}
}
