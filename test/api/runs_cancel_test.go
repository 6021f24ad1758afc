package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/ids"
)

// cancelled checks how a cancelled run looks, and that it was told of once.
func (l *lab) cancelled(t *testing.T, path string) {
	t.Helper()
	r := l.ended(t, path, "cancelled")
	if r.Text("error.code") != "cancelled" || r.At("result") != nil || r.At("completed_at") == nil || len(objects(r, "required_actions")) != 0 {
		t.Errorf("it came to %s", r.Body)
	}
	var told []map[string]any
	for _, e := range l.eventsOf(t, idOf(path)) {
		if e["type"] != "agent.run.awaiting_approval" {
			told = append(told, e)
		}
	}
	if len(told) != 1 || told[0]["type"] != "agent.run.failed" || told[0]["data"].(map[string]any)["status"] != "cancelled" {
		t.Errorf("the events are %v", told)
	}
	if history := l.history(t, path); history[len(history)-1] != "run.cancelled" || slices.Contains(history, "run.completed") {
		t.Errorf("its log is %v", history)
	}
	l.post(t, path+"/cancel", nil) // a second time changes nothing
	// What it has cost is known, however it was stopped.
	l.paid(t, path, amount(t, r, "usage.credits"))
	for _, s := range l.steps(t, path) {
		if s["status"] == "started" {
			t.Errorf("a step is left: %v", s)
		}
	}
}

// occupied makes runs while all of their lanes are another node's, so that
// nobody works them before free is called.
func (l *lab) occupied(t *testing.T) (free func()) {
	t.Helper()
	for shard := range 16 {
		l.exec(t, "INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ('agents', $1, NULL, 1, 'nobody')",
			fmt.Sprintf("%s.%s.%d", l.workspace.ID, l.env, shard))
	}
	return func() {
		l.exec(t, "UPDATE lanes SET pinned_to = NULL WHERE queue = 'agents' AND pinned_to = 'nobody'")
		l.wake(t)
	}
}

// TestCancel in every state.
func TestCancel(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		hangs := newReceiver(t, l.Clock, nil)
		never := make(chan struct{})
		hangs.become(hangs.held(never, 200))
		checks := []any{judge(l.brain.learn("slow judge", saying{gate: "never"}))}
		tools := []any{function("mine"), approved("pay", bank.URL), webTool("hang", hangs.URL)}
		receiver := newReceiver(t, l.Clock, answering(204))
		endpoint, _ := l.endpoint(t, receiver.URL, "agent.run.failed")

		free := l.occupied(t)
		queued := l.begin(t, task(l.brain.learn("queued", saying{text: "x"}), nil))
		if r := l.post(t, queued+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("queued: %s", r.Body)
		}
		free()
		l.cancelled(t, queued)
		l.deliveries(t, endpoint, 1)
		if got := receiver.wait(t, l.customer, 1); bodyStatus(t, got[0].body) != "cancelled" {
			t.Errorf("delivered was %s", got[0].body)
		}

		asking := l.begin(t, task(l.brain.learn("asking", calls(toolCall{"pay", ok})), tools))
		id := l.waits(t, asking, "awaiting_approval")[0]["id"].(string)
		if r := l.post(t, asking+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("awaiting approval: %s", r.Body)
		}
		l.decide(t, asking, id, "approve").Want(t, 409, "invalid_state")
		l.cancelled(t, asking)

		waiting := l.begin(t, task(l.brain.learn("waiting", calls(toolCall{"mine", ok})), tools))
		call := l.waits(t, waiting, "requires_action")[0]["call_id"].(string)
		if r := l.post(t, waiting+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("requires action: %s", r.Body)
		}
		l.output(t, waiting, call, "x").Want(t, 409, "invalid_state")
		l.cancelled(t, waiting)

		thinking := l.begin(t, task(l.brain.learn("thinking", saying{gate: "never"}), nil))
		l.Eventually(t, func() bool { return len(l.brain.questions("thinking")) == 1 })
		if r := l.post(t, thinking+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("in progress: %s", r.Body)
		}
		l.post(t, thinking+"/cancel", nil)
		l.cancelled(t, thinking)
		if got := strings.Join(l.history(t, thinking), " "); !strings.HasSuffix(got, "step.started run.cancelling run.cancelled") {
			t.Errorf("its log is %s", got)
		}

		acting := l.begin(t, task(l.brain.learn("acting", calls(toolCall{"hang", ok}), saying{text: "x"}), tools))
		l.Eventually(t, func() bool { return hangs.count() == 1 })
		if r := l.post(t, acting+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("at its tools: %s", r.Body)
		}
		l.cancelled(t, acting)

		verifying := l.begin(t, task(l.brain.learn("verifying", saying{text: "x"}), nil, "output", map[string]any{"checks": checks}))
		l.Eventually(t, func() bool { return len(l.brain.questions("slow judge")) == 1 })
		if r := l.post(t, verifying+"/cancel", nil); r.Text("status") != "cancelling" {
			t.Errorf("verifying: %s", r.Body)
		}
		l.cancelled(t, verifying)

		// Between two tries nobody works it.
		down := l.begin(t, task(l.brain.learn("down", saying{status: 503}), nil))
		l.Eventually(t, func() bool { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(down)) == 1 })
		l.post(t, down+"/cancel", nil)
		l.cancelled(t, down)

		done := l.begin(t, task(l.brain.learn("done", saying{text: "x"}), nil))
		l.ended(t, done, "completed")
		l.ask(t, "POST", done+"/cancel", nil).Want(t, 409, "invalid_state")
		l.ask(t, "POST", runs+"/"+ids.New(ids.Run)+"/cancel", nil).Want(t, 404, "not_found")
		if bank.count() != 0 || hangs.count() != 1 || len(l.brain.questions("queued")) != 0 || len(l.brain.questions("acting")) != 1 {
			t.Error("what was cancelled went on")
		}
	})
}

// TestCancelIsHeededByTheTurnUnderWay: what it came to is kept, but not its end.
func TestCancelIsHeededByTheTurnUnderWay(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		// Nobody is told, as if the signal were lost: the node that works it
		// hears of it when it writes.
		path := l.begin(t, task(l.brain.learn("deaf", saying{text: "The end.", gate: "g"}), nil))
		l.Eventually(t, func() bool { return len(l.brain.questions("deaf")) == 1 })
		l.exec(t, "UPDATE agent_runs SET status = 'cancelling', due_at = $2 WHERE id = $1", idOf(path), l.Clock.Now().UnixMicro())
		l.brain.open("g")
		l.cancelled(t, path)
		if r := l.get(t, path); r.Text("partial_result") != "The end." {
			t.Errorf("it came to %s", r.Body)
		}
		l.paid(t, path, oneAnswer)
	})
}

// pinned has nobody work the run's lane until free is called.
func (l *lab) pinned(t *testing.T, path string) (free func()) {
	t.Helper()
	lane := "(SELECT lane FROM agent_runs WHERE id = '" + idOf(path) + "')"
	l.exec(t, "UPDATE lanes SET pinned_to = 'nobody' WHERE queue = 'agents' AND id = "+lane)
	l.Eventually(t, func() bool { return l.rows(t, "lanes WHERE queue = 'agents' AND owner IS NULL AND id = "+lane) == 1 })
	return func() {
		l.exec(t, "UPDATE lanes SET pinned_to = NULL WHERE queue = 'agents' AND pinned_to = 'nobody'")
		l.wake(t)
	}
}

func bodyStatus(t *testing.T, body []byte) string {
	t.Helper()
	var in struct{ Data struct{ Status string } }
	decode(t, body, &in)
	return in.Data.Status
}

// TestADecisionAgainAfterACrash: that there is another question by now takes
// nothing from the answer to the first.
func TestADecisionAgainAfterACrash(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		path := l.begin(t, task(l.brain.learn("twice asked", calls(toolCall{"pay", ok}), saying{text: "Done."}), []any{approved("pay", bank.URL)}))
		first := l.waits(t, path, "awaiting_approval")[0]
		old := first["id"].(string)
		free := l.pinned(t, path)
		l.decide(t, path, old, "approve").Want(t, 200, "")
		l.exec(t, "UPDATE agent_calls SET status = 'started', started_at = 1 WHERE run_id = $1", idOf(path))
		l.exec(t, "UPDATE agent_runs SET status = 'in_progress', turn = turn + 1 WHERE id = $1", idOf(path))
		free()
		again := l.waits(t, path, "awaiting_approval")[0]["id"].(string)
		if again == old {
			t.Fatal("nobody was asked again")
		}
		if r := l.decide(t, path, old, "approve", "arguments_hash", first["arguments_hash"]).Want(t, 200, ""); r.Text("status") != "awaiting_approval" {
			t.Errorf("the old leave is one for doing it twice: %s", r.Body)
		}
		l.decide(t, path, old, "deny").Want(t, 409, "invalid_state")
		l.decide(t, path, old, "approve", "arguments_hash", strings.Repeat("0", 64)).Want(t, 409, "invalid_state")
		l.decide(t, path, again, "deny").Want(t, 200, "")
		l.ended(t, path, "completed")
		l.decide(t, path, old, "approve").Want(t, 200, "")
		if bank.count() != 0 {
			t.Errorf("it was done %d times", bank.count())
		}
	})
}
