package chaos

import (
	"testing"
	"time"

	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// killPoint is a moment at which the server is killed.
type killPoint struct {
	name string
	spec runSpec
	// reach brings a run to this point. Gates that it closes open after the restart.
	reach func(t *testing.T, a *agentFixture) (run string)
	// then checks the state after the restart, before anything else happens.
	then     func(t *testing.T, a *agentFixture, run string)
	minCalls int // tool calls at the end
	maxCalls int
}

// wait fails the test if a gate isn't reached in time.
func wait(t *testing.T, what string, reached <-chan struct{}) {
	t.Helper()
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatalf("timed out after %v waiting until %s", patience, what)
	}
}

// createUntilApproval creates a run and waits until its tool call needs approval.
func createUntilApproval(t *testing.T, a *agentFixture, o runSpec) (events.AgentRun, string) {
	t.Helper()
	id := a.create(t, a.server.URL, o)
	return a.reaches(t, id, "awaiting_approval"), id
}

// waitUntilLogged waits until a request in progress is in the log, so that the next
// server can recover its cost.
func waitUntilLogged(t *testing.T, a *agentFixture, run string) {
	t.Helper()
	eventually(t, patience, "the request is in the log", func() bool {
		return count(t, a.d, "SELECT count(*) FROM requests WHERE NOT settled AND path = $1", "/v1/agents/runs/"+run) == 1
	})
}

// checkRecovered checks that the run left one request open when its server died.
func checkRecovered(t *testing.T, a *agentFixture, run string) {
	t.Helper()
	if n := count(t, a.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND path = $1", "/v1/agents/runs/"+run); n != 1 {
		t.Errorf("got %d recovered requests of the run, want 1", n)
	}
}

// checkAsksAgain checks that a run with an unknown tool result asks for a second
// approval.
func checkAsksAgain(t *testing.T, a *agentFixture, run string) {
	t.Helper()
	r := a.reaches(t, run, "awaiting_approval")
	if len(r.RequiredActions) != 1 || r.RequiredActions[0].Note == "" {
		t.Errorf("got required actions %+v, want one with a note", r.RequiredActions)
	}
	if n := a.tool.callCount(run + ":call_1_0"); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
	eventually(t, patience, "a second approval event is stored", func() bool {
		n := 0
		for _, kind := range a.runEvents(t, run) {
			if kind == events.AgentRunAwaitingApproval {
				n++
			}
		}
		return n == 2
	})
}

var killPoints = []killPoint{
	{name: "nothing dies", minCalls: 1, maxCalls: 1},
	{name: "after the creation", minCalls: 1, maxCalls: 1, reach: func(t *testing.T, a *agentFixture) string {
		return a.create(t, a.server.URL, runSpec{})
	}},
	{name: "during the first model call", minCalls: 1, maxCalls: 1, then: checkRecovered, reach: func(t *testing.T, a *agentFixture) string {
		reached := a.model.gates[0].close()
		id := a.create(t, a.server.URL, runSpec{})
		wait(t, "the model gets a request", reached)
		waitUntilLogged(t, a, id)
		return id
	}},
	{name: "right after a step is written", minCalls: 1, maxCalls: 1, reach: func(t *testing.T, a *agentFixture) string {
		// Poll without a pause. The step's cost is in the run by now and must not be
		// replaced by the reserved amount.
		id := a.create(t, a.server.URL, runSpec{})
		for deadline := time.Now().Add(patience); count(t, a.d, "SELECT count(*) FROM agent_steps WHERE run_id = $1 AND status = 'completed'", id) == 0; {
			if time.Now().After(deadline) {
				t.Fatal("timed out waiting until the step is stored")
			}
		}
		return id
	}},
	{name: "before the event is delivered", minCalls: 1, maxCalls: 1, reach: func(t *testing.T, a *agentFixture) string {
		before := a.arrivals.Load()
		a.inbox.hold(true)
		_, id := createUntilApproval(t, a, runSpec{})
		eventually(t, patience, "the event's delivery starts", func() bool { return a.arrivals.Load() > before })
		return id
	}},
	{name: "while it waits for the approval", minCalls: 1, maxCalls: 1, reach: func(t *testing.T, a *agentFixture) string {
		_, id := createUntilApproval(t, a, runSpec{})
		return id
	}},
	{name: "right after the approval", minCalls: 1, maxCalls: 2, reach: func(t *testing.T, a *agentFixture) string {
		r, id := createUntilApproval(t, a, runSpec{})
		a.approve(t, a.server.URL, r)
		return id
	}},
	{name: "during the tool's call", minCalls: 2, maxCalls: 2, then: checkAsksAgain, reach: func(t *testing.T, a *agentFixture) string {
		return runUntilToolCall(t, a, runSpec{})
	}},
	{name: "during an idempotent tool's call", spec: runSpec{idempotent: true}, minCalls: 2, maxCalls: 2, reach: func(t *testing.T, a *agentFixture) string {
		return runUntilToolCall(t, a, runSpec{idempotent: true})
	}, then: func(t *testing.T, a *agentFixture, run string) {
		// No second approval is needed.
		a.reaches(t, run, "completed")
		if n := len(a.runEvents(t, run)); n != 2 {
			t.Errorf("got %d events of the run, want 2", n)
		}
	}},
	{name: "after the tool has answered", minCalls: 1, maxCalls: 2, reach: func(t *testing.T, a *agentFixture) string {
		left := make(chan struct{}, 1)
		tell := func() { left <- struct{}{} }
		a.tool.answered.Store(&tell)
		defer a.tool.answered.Store(nil)
		r, id := createUntilApproval(t, a, runSpec{})
		a.approve(t, a.server.URL, r)
		wait(t, "the tool responds", left)
		return id
	}},
	{name: "during the second model call", minCalls: 1, maxCalls: 1, then: checkRecovered, reach: func(t *testing.T, a *agentFixture) string {
		reached := a.model.gates[1].close()
		r, id := createUntilApproval(t, a, runSpec{})
		a.approve(t, a.server.URL, r)
		wait(t, "the model gets the second request", reached)
		waitUntilLogged(t, a, id)
		return id
	}},
	{name: "during the verification", spec: runSpec{check: true}, minCalls: 1, maxCalls: 1, reach: func(t *testing.T, a *agentFixture) string {
		reached := a.checker.close()
		r, id := createUntilApproval(t, a, runSpec{check: true})
		a.approve(t, a.server.URL, r)
		wait(t, "the check is called", reached)
		return id
	}, then: func(t *testing.T, a *agentFixture, run string) {
		a.reaches(t, run, "completed")
		if keys := a.checker.keys(run); len(keys) != 1 || a.checker.callCount(keys[0]) != 2 {
			t.Errorf("got check calls with keys %v, want two calls with one key", keys)
		}
	}},
	{name: "during a judge's call", spec: runSpec{judge: true}, minCalls: 1, maxCalls: 1, then: checkRecovered, reach: func(t *testing.T, a *agentFixture) string {
		reached := a.model.gates[2].close()
		r, id := createUntilApproval(t, a, runSpec{judge: true})
		a.approve(t, a.server.URL, r)
		wait(t, "the judge gets a request", reached)
		waitUntilLogged(t, a, id)
		return id
	}},
}

// runUntilToolCall creates a run and waits until its tool call is in progress.
func runUntilToolCall(t *testing.T, a *agentFixture, o runSpec) string {
	t.Helper()
	reached := a.tool.close()
	r, id := createUntilApproval(t, a, o)
	a.approve(t, a.server.URL, r)
	wait(t, "the tool is called", reached)
	return id
}

// TestRunSurvivesKill9 runs an agent with an approved tool call and a verified result,
// and kills the server at each step. Only idempotent calls repeat without a new
// approval. The end is reported once, and each request is charged once.
func TestRunSurvivesKill9(t *testing.T) {
	t.Parallel()
	rounds := 1
	if full {
		rounds = 5
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		a := newAgentFixture(t, at)
		for round := range rounds {
			for _, m := range killPoints {
				if m.reach == nil && round > 0 {
					continue
				}
				if !t.Run(m.name, func(t *testing.T) { a.killAt(t, m) }) {
					return
				}
			}
		}
		repeats := a.audit(t, a.server)
		t.Logf("%d kills; %d deliveries were repeated", a.kills, len(repeats))
	})
}

// killAt kills the server at the given point and checks the run after it has ended.
func (a *agentFixture) killAt(t *testing.T, m killPoint) {
	begun := time.Now()
	var id string
	if m.reach == nil {
		id = a.completeByEvents(t)
	} else {
		id = m.reach(t, a)
		a.kill(t)
		a.openAll()
		if m.then != nil {
			m.then(t, a, id)
		}
		a.finish(t, id)
	}
	a.checkRun(t, a.server.URL, id, m.spec)
	if n := a.tool.callCount(id + ":call_1_0"); n < m.minCalls || n > m.maxCalls {
		t.Errorf("got %d tool calls, want %d to %d", n, m.minCalls, m.maxCalls)
	}
	for _, kind := range []events.Type{events.AgentRunAwaitingApproval, events.AgentRunCompleted} {
		eventually(t, patience, "the receiver has "+string(kind), func() bool { return a.delivered(kind, id) != nil })
	}
	t.Logf("%v", time.Since(begun).Round(time.Millisecond))
}

// completeByEvents completes a run with nothing but the events that its owner receives.
func (a *agentFixture) completeByEvents(t *testing.T) string {
	t.Helper()
	id := a.create(t, a.server.URL, runSpec{})
	var event *events.AgentRun
	eventually(t, patience, "the receiver gets the approval event", func() bool {
		event = a.delivered(events.AgentRunAwaitingApproval, id)
		return event != nil
	})
	if a.tool.callCount("") != 0 {
		t.Fatal("got a tool call before the approval, want none")
	}
	a.approve(t, a.server.URL, *event)
	eventually(t, patience, "the receiver has the result", func() bool {
		event = a.delivered(events.AgentRunCompleted, id)
		return event != nil
	})
	if event.Result == nil || event.Result.OutputText != finalText || event.Result.Verified == nil || !*event.Result.Verified {
		t.Errorf("got result %+v in the event, want the verified final text", event.Result)
	}
	return id
}
