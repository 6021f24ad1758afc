package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestACrash: what a node leaves behind is taken over, and nothing that had an
// effect is done again without leave.
func TestACrash(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		for _, idempotent := range []bool{true, false} {
			for _, decision := range []string{"approve", "deny"} {
				if idempotent && decision == "deny" {
					continue
				}
				before := bank.count()
				name := fmt.Sprint(decision, idempotent)
				path := l.begin(t, task(l.brain.learn(name, calls(toolCall{"pay", ok}, toolCall{"mine", ok}), saying{text: "Done."}),
					[]any{approved("pay", bank.URL, "idempotent", idempotent), function("mine")}))
				first := l.waits(t, path, "awaiting_approval")
				old := first[0]["id"].(string)
				// Somebody approved it, and a node began it and died.
				l.exec(t, "UPDATE agent_calls SET status = 'started', decision = 'approve', started_at = 1 WHERE run_id = $1 AND approval_id = $2", idOf(path), old)
				l.exec(t, "UPDATE agent_runs SET status = 'in_progress', due_at = 1, turn = turn + 1 WHERE id = $1", idOf(path))
				l.wake(t)
				if !idempotent {
					var again map[string]any
					for _, w := range l.waits(t, path, "awaiting_approval") {
						if w["type"] == "approval" {
							again = w
						}
					}
					if again == nil || again["id"] == old || again["note"] == nil || again["arguments_hash"] != first[0]["arguments_hash"] || bank.count() != before {
						t.Fatalf("it asks for %v", again)
					}
					if e := l.eventsOf(t, idOf(path)); len(e) != 2 {
						t.Errorf("it was told of %d times", len(e))
					}
					// The old leave is not one for doing it twice.
					if r := l.decide(t, path, old, "approve"); r.Status != 404 && r.Status != 409 {
						t.Errorf("the old approval answers %d", r.Status)
					}
					l.later(t, time.Minute)
					if bank.count() != before {
						t.Fatal("it was done again without leave")
					}
					l.decide(t, path, again["id"].(string), decision).Want(t, 200, "")
				}
				w := l.waits(t, path, "requires_action")
				want := before + 1
				if decision == "deny" {
					want = before
				}
				if bank.count() != want || len(w) != 1 {
					t.Errorf("%s: it was done %d times, and the run waits for %v", name, bank.count()-before, w)
				}
				if want > before {
					if key := bank.all()[before].header.Get("Idempotency-Key"); key != idOf(path)+":"+first[0]["call_id"].(string) {
						t.Errorf("its key is %s", key)
					}
				}
				l.output(t, path, w[0]["call_id"].(string), "x").Want(t, 200, "")
				l.ended(t, path, "completed")
				if bank.count() != want {
					t.Errorf("%s: it was done %d times", name, bank.count()-before)
				}
			}
		}
	})
}

// TestAStepThatANodeDiedOver is the same step again, and what it cost the
// first time is counted, once, when that is known.
func TestAStepThatANodeDiedOver(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		for _, end := range []string{"completed", "cancelled"} {
			path := l.begin(t, task(l.brain.learn("died "+end, calls(toolCall{"mine", ok}), saying{text: "Done."}), []any{function("mine")}))
			call := l.waits(t, path, "requires_action")[0]["call_id"].(string)
			free := l.pinned(t, path)
			l.output(t, path, call, "x").Want(t, 200, "")
			request, step := ids.New(ids.Request), ids.New(ids.Step)
			l.exec(t, `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id, created_at, settled, reserved, credits, simulated_credits)
				VALUES ($1, $2, 'live', 'k', '', '127.0.0.1', 'POST', $3, 'Turnpike agent run', 'node_dead', $4, FALSE, 77000, 0, 0)`, request, l.workspace.ID, path, l.Clock.Now().UnixMicro())
			l.exec(t, `INSERT INTO agent_messages (run_id, position, message) SELECT id, messages, '{"role":"tool","tool_call_id":"call_1_0","content":"x"}' FROM agent_runs WHERE id = $1`, idOf(path))
			l.exec(t, `INSERT INTO agent_steps (run_id, number, id, request_id, status, input_tokens, output_tokens, credits, created_at) VALUES ($1, 2, $2, $3, 'started', 0, 0, 0, 1)`, idOf(path), step, request)
			l.exec(t, "UPDATE agent_runs SET status = 'in_progress', steps_used = 2, messages = messages + 1, turn = turn + 1 WHERE id = $1", idOf(path))
			if end == "cancelled" {
				l.post(t, path+"/cancel", nil)
			}
			free()
			// Its books are not closed: it waits.
			l.Eventually(t, func() bool {
				return l.number(t, "SELECT due_at FROM agent_runs WHERE id = $1", idOf(path)) > l.Clock.Now().UnixMicro()
			})
			if n := len(l.brain.questions("died " + end)); n != 1 {
				t.Fatalf("the model was asked %d times", n)
			}
			l.exec(t, "UPDATE requests SET settled = TRUE, status = 500, credits = 77000, usage_source = 'recovered' WHERE id = $1", request)
			l.later(t, 5*time.Second)
			want := oneAnswer + 77000
			if end == "completed" {
				l.ended(t, path, "completed")
				want += oneAnswer
			} else {
				l.cancelled(t, path)
			}
			l.paid(t, path, want)
			s := l.steps(t, path)
			if len(s) != 2 || s[1]["id"] != step {
				t.Errorf("the steps are %v", s)
			}
		}
		q := l.brain.questions("died completed")
		if got := q[len(q)-1].answers(); len(q) != 2 || !slices.Equal(got, []string{"x"}) {
			t.Errorf("the model was told %q", got)
		}
	})
}

// TestAJudgeThatANodeDiedOver: what it cost is counted, once.
func TestAJudgeThatANodeDiedOver(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		checks := []any{judge(l.brain.learn("rubric", judged(true, "fine")))}
		path := l.begin(t, task(l.brain.learn("judged", calls(toolCall{"mine", ok})), []any{function("mine")}, "output", map[string]any{"checks": checks}))
		l.waits(t, path, "requires_action")
		free := l.pinned(t, path)
		request := ids.New(ids.Request)
		l.exec(t, `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id, created_at, settled, status, reserved, credits, simulated_credits)
			VALUES ($1, $2, 'live', 'k', '', '127.0.0.1', 'POST', $3, 'Turnpike agent run', 'node_dead', $4, TRUE, 500, 77000, 77000, 0)`, request, l.workspace.ID, path, l.Clock.Now().UnixMicro())
		l.exec(t, `INSERT INTO agent_events (run_id, seq, type, data, created_at) SELECT id, logged + 1, 'check.started', '{"request_id":"`+request+`"}', 1 FROM agent_runs WHERE id = $1`, idOf(path))
		l.exec(t, "UPDATE agent_runs SET status = 'verifying', answer = 'Fine.', logged = logged + 1, turn = turn + 1, due_at = 1 WHERE id = $1", idOf(path))
		free()
		l.ended(t, path, "completed")
		l.paid(t, path, 2*oneAnswer+77000)
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
