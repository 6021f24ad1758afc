package chaos

import (
	"testing"
	"time"

	"turnpike/internal/events"
	"turnpike/test/chaos/program"
)

// moment is where a server dies.
type moment struct {
	name  string
	order order
	// reach brings a run to the moment. What is kept waiting by then is let go
	// after the restart.
	reach func(t *testing.T, a *agency) (run string)
	// then is what must be so after the restart, before anybody does anything.
	then  func(t *testing.T, a *agency, run string)
	least int // calls of the tool at the end
	most  int
}

// wait fails the test when a gate is not reached.
func wait(t *testing.T, what string, reached <-chan struct{}) {
	t.Helper()
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatalf("within %v it did not happen that %s", patience, what)
	}
}

// asked creates a run and waits until the customer is asked about its tool.
func asked(t *testing.T, a *agency, o order) (events.AgentRun, string) {
	t.Helper()
	id := a.create(t, a.server.URL, o)
	return a.reaches(t, id, "awaiting_approval"), id
}

// known waits until a call that is under way is in the log, so that the next
// server finds out what it cost.
func known(t *testing.T, a *agency, run string) {
	t.Helper()
	eventually(t, patience, "the call is in the log", func() bool {
		return count(t, a.d, "SELECT count(*) FROM requests WHERE NOT settled AND path = $1", "/v1/agents/runs/"+run) == 1
	})
}

// recovered are a run's calls that a server left open when it died.
func recovered(t *testing.T, a *agency, run string) {
	t.Helper()
	if n := count(t, a.d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered' AND path = $1", "/v1/agents/runs/"+run); n != 1 {
		t.Errorf("%d calls of the run were recovered", n)
	}
}

// asksAgain is a run that does not know what came of its tool's call.
func asksAgain(t *testing.T, a *agency, run string) {
	t.Helper()
	r := a.reaches(t, run, "awaiting_approval")
	if len(r.RequiredActions) != 1 || r.RequiredActions[0].Note == "" {
		t.Errorf("the run asks for %+v", r.RequiredActions)
	}
	if n := a.tool.made(run + ":call_1_0"); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
	eventually(t, patience, "a second event asks for the approval", func() bool {
		n := 0
		for _, kind := range a.told(t, run) {
			if kind == events.AgentRunAwaitingApproval {
				n++
			}
		}
		return n == 2
	})
}

var moments = []moment{
	{name: "nothing dies", least: 1, most: 1},
	{name: "after the creation", least: 1, most: 1, reach: func(t *testing.T, a *agency) string {
		return a.create(t, a.server.URL, order{})
	}},
	{name: "during the first model call", least: 1, most: 1, then: recovered, reach: func(t *testing.T, a *agency) string {
		reached := a.mind.gates[0].close()
		id := a.create(t, a.server.URL, order{})
		wait(t, "the model is asked", reached)
		known(t, a, id)
		return id
	}},
	{name: "right after a step is written", least: 1, most: 1, reach: func(t *testing.T, a *agency) string {
		// Looked at without a pause: what the step cost is in the run by now,
		// and must not become what was reserved for it.
		id := a.create(t, a.server.URL, order{})
		for deadline := time.Now().Add(patience); count(t, a.d, "SELECT count(*) FROM agent_steps WHERE run_id = $1 AND status = 'completed'", id) == 0; {
			if time.Now().After(deadline) {
				t.Fatal("the step is never written")
			}
		}
		return id
	}},
	{name: "before the event is delivered", least: 1, most: 1, reach: func(t *testing.T, a *agency) string {
		before := a.arrivals.Load()
		a.inbox.hold(true)
		_, id := asked(t, a, order{})
		eventually(t, patience, "the event is on its way", func() bool { return a.arrivals.Load() > before })
		return id
	}},
	{name: "while it waits for the approval", least: 1, most: 1, reach: func(t *testing.T, a *agency) string {
		_, id := asked(t, a, order{})
		return id
	}},
	{name: "right after the approval", least: 1, most: 2, reach: func(t *testing.T, a *agency) string {
		r, id := asked(t, a, order{})
		a.approve(t, a.server.URL, r)
		return id
	}},
	{name: "during the tool's call", least: 2, most: 2, then: asksAgain, reach: func(t *testing.T, a *agency) string {
		return inTool(t, a, order{})
	}},
	{name: "during an idempotent tool's call", order: order{idempotent: true}, least: 2, most: 2, reach: func(t *testing.T, a *agency) string {
		return inTool(t, a, order{idempotent: true})
	}, then: func(t *testing.T, a *agency, run string) {
		// Nobody is asked.
		a.reaches(t, run, "completed")
		if n := len(a.told(t, run)); n != 2 {
			t.Errorf("the run was told of %d times", n)
		}
	}},
	{name: "after the tool has answered", least: 1, most: 2, reach: func(t *testing.T, a *agency) string {
		left := make(chan struct{}, 1)
		tell := func() { left <- struct{}{} }
		a.tool.answered.Store(&tell)
		defer a.tool.answered.Store(nil)
		r, id := asked(t, a, order{})
		a.approve(t, a.server.URL, r)
		wait(t, "the tool answers", left)
		return id
	}},
	{name: "during the second model call", least: 1, most: 1, then: recovered, reach: func(t *testing.T, a *agency) string {
		reached := a.mind.gates[1].close()
		r, id := asked(t, a, order{})
		a.approve(t, a.server.URL, r)
		wait(t, "the model is asked again", reached)
		known(t, a, id)
		return id
	}},
	{name: "during the verification", order: order{check: true}, least: 1, most: 1, reach: func(t *testing.T, a *agency) string {
		reached := a.checker.close()
		r, id := asked(t, a, order{check: true})
		a.approve(t, a.server.URL, r)
		wait(t, "the check is asked", reached)
		return id
	}, then: func(t *testing.T, a *agency, run string) {
		a.reaches(t, run, "completed")
		if keys := a.checker.keys(run); len(keys) != 1 || a.checker.made(keys[0]) != 2 {
			t.Errorf("the check was asked with the keys %v, and not twice with the same", keys)
		}
	}},
	{name: "during a judge's call", order: order{judge: true}, least: 1, most: 1, then: recovered, reach: func(t *testing.T, a *agency) string {
		reached := a.mind.gates[2].close()
		r, id := asked(t, a, order{judge: true})
		a.approve(t, a.server.URL, r)
		wait(t, "the judge is asked", reached)
		known(t, a, id)
		return id
	}},
}

// inTool brings a run into the call of its tool.
func inTool(t *testing.T, a *agency, o order) string {
	t.Helper()
	reached := a.tool.close()
	r, id := asked(t, a, o)
	a.approve(t, a.server.URL, r)
	wait(t, "the tool is called", reached)
	return id
}

// TestARunSurvivesKill9 has a run call a tool that a person approves, and come
// to a result that is verified. Then the same, with the server killed at each
// of the steps between. Nothing but an idempotent call is repeated without a
// new approval, the end is told once, and each call is paid for once.
func TestARunSurvivesKill9(t *testing.T) {
	t.Parallel()
	rounds := 1
	if full {
		rounds = 5
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		a := newAgency(t, at)
		for round := range rounds {
			for _, m := range moments {
				if m.reach == nil && round > 0 {
					continue
				}
				if !t.Run(m.name, func(t *testing.T) { a.die(t, m) }) {
					return
				}
			}
		}
		repeats := a.audit(t, a.server)
		t.Logf("%d kills; %d deliveries came again", a.kills, len(repeats))
	})
}

// die kills the server at the moment and sees the run to its end.
func (a *agency) die(t *testing.T, m moment) {
	begun := time.Now()
	var id string
	if m.reach == nil {
		id = a.show(t)
	} else {
		id = m.reach(t, a)
		a.kill(t)
		a.openAll()
		if m.then != nil {
			m.then(t, a, id)
		}
		a.finish(t, id)
	}
	a.checkRun(t, a.server.URL, id, m.order)
	if n := a.tool.made(id + ":call_1_0"); n < m.least || n > m.most {
		t.Errorf("the tool was called %d times, expected %d to %d", n, m.least, m.most)
	}
	for _, kind := range []events.Type{events.AgentRunAwaitingApproval, events.AgentRunCompleted} {
		eventually(t, patience, "the receiver has "+string(kind), func() bool { return a.delivered(kind, id) != nil })
	}
	t.Logf("%v", time.Since(begun).Round(time.Millisecond))
}

// show is the whole way by what a customer has: the events tell what to approve
// and what came of it.
func (a *agency) show(t *testing.T) string {
	t.Helper()
	id := a.create(t, a.server.URL, order{})
	var event *events.AgentRun
	eventually(t, patience, "the receiver is asked for the approval", func() bool {
		event = a.delivered(events.AgentRunAwaitingApproval, id)
		return event != nil
	})
	if a.tool.made("") != 0 {
		t.Fatal("the tool was called before the approval")
	}
	a.approve(t, a.server.URL, *event)
	eventually(t, patience, "the receiver has the result", func() bool {
		event = a.delivered(events.AgentRunCompleted, id)
		return event != nil
	})
	if event.Result == nil || event.Result.OutputText != finalText || event.Result.Verified == nil || !*event.Result.Verified {
		t.Errorf("the event has the result %+v", event.Result)
	}
	return id
}
