package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/ids"
)

// cancelled checks the fields of a cancelled run, and that it has one event.
func (l *agentClient) cancelled(t *testing.T, path string) {
	t.Helper()
	r := l.waitForEnd(t, path, "cancelled")
	if r.Text("error.code") != "cancelled" || r.At("result") != nil || r.At("completed_at") == nil || len(objects(r, "required_actions")) != 0 {
		t.Errorf("got %s", r.Body)
	}
	var told []map[string]any
	for _, e := range l.eventsOf(t, idOf(path)) {
		if e["type"] != "agent.run.awaiting_approval" {
			told = append(told, e)
		}
	}
	if len(told) != 1 || told[0]["type"] != "agent.run.failed" || told[0]["data"].(map[string]any)["status"] != "cancelled" {
		t.Errorf("got events %v", told)
	}
	if history := l.history(t, path); history[len(history)-1] != "run.cancelled" || slices.Contains(history, "run.completed") {
		t.Errorf("got run events %v", history)
	}
	l.post(t, path+"/cancel", nil) // repeating it changes nothing
	// The cost is known, however the run was stopped.
	l.checkCost(t, path, amount(t, r, "usage.credits"))
	for _, s := range l.steps(t, path) {
		if s["status"] == "started" {
			t.Errorf("a step is left: %v", s)
		}
	}
}

// withBusyLane creates runs while another node leases all their lanes. No node
// runs them before free is called.
func (l *agentClient) withBusyLane(t *testing.T) (free func()) {
	t.Helper()
	for shard := range 16 {
		l.exec(t, "INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ('agents', $1, NULL, 1, 'nobody')",
			fmt.Sprintf("%s.%s.%d", l.workspace.ID, l.env, shard))
	}
	return func() {
		l.exec(t, "UPDATE lanes SET pinned_to = NULL WHERE queue = 'agents' AND pinned_to = 'nobody'")
		l.wakeLanes(t)
	}
}

func TestCanceledRunEndsOnceAndKeepsItsPartialResult(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		hangs := newReceiver(t, l.Clock, nil)
		never := make(chan struct{})
		hangs.respondWith(hangs.respondAfter(never, 200))
		checks := []any{judge(l.model.addScript("slow judge", reply{gate: "never"}))}
		tools := []any{function("mine"), approved("pay", payTool.URL), webTool("hang", hangs.URL)}
		receiver := newReceiver(t, l.Clock, respond(204))
		endpoint, _ := l.endpoint(t, receiver.URL, "agent.run.failed")

		free := l.withBusyLane(t)
		queued := l.startRun(t, runBody(l.model.addScript("queued", reply{text: "x"}), nil))
		if r := l.post(t, queued+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("queued: %s", r.Body)
		}
		free()
		l.cancelled(t, queued)
		l.deliveries(t, endpoint, 1)
		if got := receiver.wait(t, l.client, 1); bodyStatus(t, got[0].body) != "cancelled" {
			t.Errorf("delivered was %s", got[0].body)
		}

		asking := l.startRun(t, runBody(l.model.addScript("asking", calls(toolCall{"pay", ok})), tools))
		id := l.waitForAction(t, asking, "awaiting_approval")[0]["id"].(string)
		if r := l.post(t, asking+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("awaiting approval: %s", r.Body)
		}
		l.decide(t, asking, id, "approve").Want(t, 409, "invalid_state")
		l.cancelled(t, asking)

		waiting := l.startRun(t, runBody(l.model.addScript("waiting", calls(toolCall{"mine", ok})), tools))
		call := l.waitForAction(t, waiting, "requires_action")[0]["call_id"].(string)
		if r := l.post(t, waiting+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("requires action: %s", r.Body)
		}
		l.output(t, waiting, call, "x").Want(t, 409, "invalid_state")
		l.cancelled(t, waiting)

		thinking := l.startRun(t, runBody(l.model.addScript("thinking", reply{gate: "never"}), nil))
		l.Eventually(t, func() bool { return len(l.model.requests("thinking")) == 1 })
		if r := l.post(t, thinking+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("in progress: %s", r.Body)
		}
		l.post(t, thinking+"/cancel", nil)
		l.cancelled(t, thinking)
		if got := strings.Join(l.history(t, thinking), " "); !strings.HasSuffix(got, "step.started run.cancelling run.cancelled") {
			t.Errorf("got run events %s", got)
		}

		acting := l.startRun(t, runBody(l.model.addScript("acting", calls(toolCall{"hang", ok}), reply{text: "x"}), tools))
		l.Eventually(t, func() bool { return hangs.count() == 1 })
		if r := l.post(t, acting+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("at its tools: %s", r.Body)
		}
		l.cancelled(t, acting)

		verifying := l.startRun(t, runBody(l.model.addScript("verifying", reply{text: "x"}), nil, "output", map[string]any{"checks": checks}))
		l.Eventually(t, func() bool { return len(l.model.requests("slow judge")) == 1 })
		if r := l.post(t, verifying+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("verifying: %s", r.Body)
		}
		l.cancelled(t, verifying)

		// No worker has the run between two attempts.
		down := l.startRun(t, runBody(l.model.addScript("down", reply{status: 503}), nil))
		l.Eventually(t, func() bool { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(down)) == 1 })
		l.post(t, down+"/cancel", nil)
		l.cancelled(t, down)

		done := l.startRun(t, runBody(l.model.addScript("done", reply{text: "x"}), nil))
		l.waitForEnd(t, done, "completed")
		l.ask(t, "POST", done+"/cancel", nil).Want(t, 409, "invalid_state")
		l.ask(t, "POST", runs+"/"+ids.New(ids.Run)+"/cancel", nil).Want(t, 404, "not_found")
		if payTool.count() != 0 || hangs.count() != 1 || len(l.model.requests("queued")) != 0 || len(l.model.requests("acting")) != 1 {
			t.Error("what was cancelled went on")
		}
	})
}

func TestCancelStopsTheTurnInProgress(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		// Without the signal, the node learns of the cancellation when it
		// writes.
		path := l.startRun(t, runBody(l.model.addScript("deaf", reply{text: "The end.", gate: "g"}), nil))
		l.Eventually(t, func() bool { return len(l.model.requests("deaf")) == 1 })
		l.exec(t, "UPDATE agent_runs SET status = 'cancelling', due_at = $2 WHERE id = $1", idOf(path), l.Clock.Now().UnixMicro())
		l.model.open("g")
		l.cancelled(t, path)
		if r := l.get(t, path); r.Text("partial_result") != "The end." {
			t.Errorf("got %s", r.Body)
		}
		l.checkCost(t, path, oneAnswer)
	})
}

// pinned keeps nodes from running the lane until free is called.
func (l *agentClient) pinned(t *testing.T, path string) (free func()) {
	t.Helper()
	lane := "(SELECT lane FROM agent_runs WHERE id = '" + idOf(path) + "')"
	l.exec(t, "UPDATE lanes SET pinned_to = 'nobody' WHERE queue = 'agents' AND id = "+lane)
	l.Eventually(t, func() bool { return l.rows(t, "lanes WHERE queue = 'agents' AND owner IS NULL AND id = "+lane) == 1 })
	return func() {
		l.exec(t, "UPDATE lanes SET pinned_to = NULL WHERE queue = 'agents' AND pinned_to = 'nobody'")
		l.wakeLanes(t)
	}
}

func bodyStatus(t *testing.T, body []byte) string {
	t.Helper()
	var in struct{ Data struct{ Status string } }
	decode(t, body, &in)
	return in.Data.Status
}

func TestRepeatedDecisionAfterACrashIsIdempotent(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		path := l.startRun(t, runBody(l.model.addScript("twice asked", calls(toolCall{"pay", ok}), reply{text: "Done."}), []any{approved("pay", payTool.URL)}))
		first := l.waitForAction(t, path, "awaiting_approval")[0]
		old := first["id"].(string)
		free := l.pinned(t, path)
		l.decide(t, path, old, "approve").Want(t, 200, "")
		l.exec(t, "UPDATE agent_calls SET status = 'started', started_at = 1 WHERE run_id = $1", idOf(path))
		l.exec(t, "UPDATE agent_runs SET status = 'in_progress', turn = turn + 1 WHERE id = $1", idOf(path))
		free()
		again := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		if again == old {
			t.Fatal("nobody was asked again")
		}
		if r := l.decide(t, path, old, "approve", "arguments_hash", first["arguments_hash"]).Want(t, 200, ""); r.Text("status") != "awaiting_approval" {
			t.Errorf("the old leave is one for doing it twice: %s", r.Body)
		}
		l.decide(t, path, old, "deny").Want(t, 409, "invalid_state")
		l.decide(t, path, old, "approve", "arguments_hash", strings.Repeat("0", 64)).Want(t, 409, "invalid_state")
		l.decide(t, path, again, "deny").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		l.decide(t, path, old, "approve").Want(t, 200, "")
		if payTool.count() != 0 {
			t.Errorf("it was done %d times", payTool.count())
		}
	})
}
