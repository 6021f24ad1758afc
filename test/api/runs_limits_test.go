package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/harness"
)

// again is a script that never comes to an end.
func again(n int) []saying {
	return slices.Repeat([]saying{{text: "So far.", calls: []toolCall{{"stock", ok}}}}, n)
}

// TestStepsAreLimited: what was done is kept.
func TestStepsAreLimited(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		path := l.begin(t, task(l.brain.learn("endless", again(9)...), []any{webTool("stock", shop.URL)}, "max_steps", 3))
		r := l.failed(t, path, "max_steps_exceeded")
		if r.At("steps_used") != 3.0 || r.Text("partial_result") != "So far." || len(l.steps(t, path)) != 3 || len(l.brain.questions("endless")) != 3 {
			t.Errorf("it came to %s", r.Body)
		}
		shop.wait(t, l.customer, 2) // no step is left to read what the last call would bring
		if c := called(l.steps(t, path)[2]); len(c) != 1 || c[0]["status"] != "completed" || c[0]["is_error"] != true || c[0]["started_at"] != nil {
			t.Errorf("the last call is %v", c)
		}
		l.paid(t, path, 3*oneAnswer)
		// Nor is anybody asked for what nobody would read.
		for name, tool := range map[string]any{"person": approved("stock", shop.URL), "customer": function("stock")} {
			path := l.begin(t, task(l.brain.learn(name, again(1)...), []any{tool}, "max_steps", 1))
			l.failed(t, path, "max_steps_exceeded")
			if e := l.eventsOf(t, idOf(path)); len(e) != 1 {
				t.Errorf("the events are %v", e)
			}
		}
		shop.wait(t, l.customer, 2)
	})
}

// TestARunNeverCostsMoreThanItsBudget, with a model that uses up whatever it may.
func TestARunNeverCostsMoreThanItsBudget(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		for i, budget := range []string{"0", "0.4", "1.5", "2.000001", "5"} {
			name := fmt.Sprint("greedy", i)
			script := again(30)
			for j := range script {
				script[j].greedy = true
			}
			path := l.begin(t, task(l.brain.learn(name, script...), []any{webTool("stock", shop.URL)}, "budget", map[string]any{"max_credits": json.Number(budget)}, "max_steps", 30))
			r := l.failed(t, path, "budget_exceeded")
			spent := amount(t, r, "usage.credits")
			if spent > micro(t, budget) || !strings.Contains(r.Text("error.message"), "run") {
				t.Errorf("of %s, %s were spent: %s", budget, spent, r.Body)
			}
			// And what is left would not have paid for another answer.
			if asked := len(l.brain.questions(name)); budget == "0" && asked != 0 || budget == "5" && (asked == 0 || spent < 3*credit) {
				t.Errorf("of %s, %s were spent in %d answers", budget, spent, asked)
			}
			l.paid(t, path, spent)
			s := l.steps(t, path)
			last := s[len(s)-1]
			e := settled(t, l.Server, l.key, last["request_id"].(string))
			if last["status"] != "failed" || e.At("status") != 402.0 || e.Text("error_code") != "budget_exceeded" || e.At("credits") != 0.0 {
				t.Errorf("the last step is %v, and its entry %s", last, e.Body)
			}
		}
	})
}

// TestABudgetCountsEveryAnswer: exactly as many as it pays for are asked for.
func TestABudgetCountsEveryAnswer(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		path := l.begin(t, task(l.brain.learn("frugal", append(again(5), saying{text: "Done."})...), []any{webTool("stock", shop.URL)}, "budget", map[string]any{"max_credits": 20}))
		r := l.ended(t, path, "completed")
		if r.At("budget.max_credits") != 20.0 {
			t.Errorf("it came to %s", r.Body)
		}
		l.paid(t, path, 6*oneAnswer)
		l.balanced(t, 6*oneAnswer)
		l.settledDown(t)
	})
}

// TestOtherBudgetsHoldForRuns: the workspace's, the project's and the key's.
func TestOtherBudgetsHoldForRuns(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		input := l.brain.learn("poor", saying{text: "Hello."})
		none := credits.Micro(0)
		poor, _ := l.keyed(t, access.Key{MonthlyBudget: &none})
		if r := l.failed(t, poor.begin(t, task(input, nil)), "budget_exceeded"); !strings.Contains(r.Text("error.message"), "key") {
			t.Errorf("it came to %s", r.Body)
		}
		l.post(t, "/v1/projects", map[string]any{"id": "sea", "monthly_budget": 0})
		made := l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: task(input, nil), Header: http.Header{"Service-Project": {"sea"}}}).Want(t, 200, "")
		if r := l.failed(t, runs+"/"+made.Text("id"), "budget_exceeded"); !strings.Contains(r.Text("error.message"), "project") {
			t.Errorf("it came to %s", r.Body)
		}
		l.credits(t, 0)
		l.failed(t, l.begin(t, task(input, nil)), "insufficient_credits")
		if n := len(l.brain.questions("poor")); n != 0 {
			t.Errorf("the model was asked %d times", n)
		}
		l.balanced(t, 0)
	})
}

// TestTheTimeOfARun is that at work, and not that of waiting.
func TestTheTimeOfARun(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		path := l.begin(t, task(l.brain.learn("waits", calls(toolCall{"pay", ok}), saying{text: "Done."}), []any{approved("pay", bank.URL)}, "timeout_seconds", 60))
		id := l.waits(t, path, "awaiting_approval")[0]["id"].(string)
		l.later(t, time.Hour)
		l.decide(t, path, id, "approve").Want(t, 200, "")
		l.ended(t, path, "completed")

		path = l.begin(t, task(l.brain.learn("hangs", calls(toolCall{"mine", ok}), saying{gate: "never"}), []any{function("mine")}, "timeout_seconds", 1))
		call := l.waits(t, path, "requires_action")[0]["call_id"].(string)
		l.output(t, path, call, "x").Want(t, 200, "")
		r := l.failed(t, path, "run_timeout")
		if n := len(l.brain.questions("hangs")); n != 2 || r.At("steps_used") != 2.0 {
			t.Errorf("the model was asked %d times: %s", n, r.Body)
		}
		l.paid(t, path, amount(t, r, "usage.credits"))
		if s := l.steps(t, path); s[1]["status"] != "failed" || s[1]["completed_at"] == nil {
			t.Errorf("its steps are %v", s)
		}
	})
}

// TestARunOutOfTimePaysForItsCall: the provider was asked, and does not know
// that nobody waits any more.
func TestARunOutOfTimePaysForItsCall(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		// Long enough for a busy machine to ask.
		path := l.begin(t, task(l.brain.learn("late", saying{text: "Never.", gate: "never"}), nil, "timeout_seconds", 3))
		r := l.failed(t, path, "run_timeout")
		cost := amount(t, r, "usage.credits")
		if cost == 0 {
			t.Error("its call was free")
		}
		l.paid(t, path, cost)
		if step := l.steps(t, path)[0]; step["status"] != "failed" || step["usage"].(map[string]any)["credits"] != r.At("usage.credits") {
			t.Errorf("its step is %v", step)
		}
	})
}

// TestARevokedKeysRuns end before their next step.
func TestARevokedKeysRuns(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		input := l.brain.learn("revoked", saying{text: "So far.", calls: []toolCall{{"mine", ok}}}, saying{text: "Never."})
		soon := l.Clock.Now().Add(time.Hour)
		owner, id := l.keyed(t, liveKey())
		mortal, _ := l.keyed(t, access.Key{ExpiresAt: &soon})
		revoked, expired := owner.begin(t, task(input, []any{function("mine")})), mortal.begin(t, task(input, []any{function("mine")}, "tool_output_timeout_seconds", 7200))
		paying := owner.begin(t, task(l.brain.learn("paying", calls(toolCall{"pay", ok}), saying{text: "Never."}), []any{approved("pay", bank.URL)}))
		call, other := l.waits(t, revoked, "requires_action")[0]["call_id"].(string), l.waits(t, expired, "requires_action")[0]["call_id"].(string)
		approval := l.waits(t, paying, "awaiting_approval")[0]["id"].(string)
		l.ask(t, "DELETE", "/v1/keys/"+id, nil).Want(t, 200, "")
		l.output(t, revoked, call, "x").Want(t, 200, "")
		l.decide(t, paying, approval, "approve").Want(t, 200, "")
		if r := l.failed(t, revoked, "key_revoked"); r.Text("partial_result") != "So far." || len(l.steps(t, revoked)) != 1 {
			t.Errorf("it came to %s", r.Body)
		}
		l.failed(t, paying, "key_revoked")
		l.Clock.Turn(time.Hour)
		l.output(t, expired, other, "x").Want(t, 200, "")
		l.failed(t, expired, "key_revoked")
		if len(l.brain.questions("revoked")) != 2 || len(l.brain.questions("paying")) != 1 || bank.count() != 0 {
			t.Error("a key that is no good was worked for")
		}
	})
}

// TestRateLimitsOnlyDelayARun: its steps are no requests, and their tokens
// count when there is room for them.
func TestRateLimitsOnlyDelayARun(t *testing.T) {
	t.Parallel()
	eachLab(t, func(cfg *config.Config) { cfg.Limits.LiveTokensPerMinute = 2000 }, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		rate := int64(3)
		slow, _ := l.keyed(t, access.Key{RateLimit: &rate, Scopes: []string{"agents.runs:create"}})
		path := slow.begin(t, task(l.brain.learn("slow", append(again(6), saying{text: "Done."})...), []any{webTool("stock", shop.URL)}))
		l.ended(t, path, "completed")
		slow.begin(t, task(l.brain.learn("two", saying{text: "Done."}), nil))
		slow.begin(t, task(l.brain.learn("three", saying{text: "Done."}), nil))
		slow.ask(t, "POST", runs, task("four", nil)).Want(t, 429, "rate_limit_exceeded")

		other, _ := l.keyed(t, liveKey())
		script := append(again(2), saying{text: "Done."})
		for i := range script {
			script[i].greedy = true // a thousand tokens each
		}
		path = other.begin(t, task(l.brain.learn("long", script...), []any{webTool("stock", shop.URL)}))
		for range 10 {
			l.Eventually(t, func() bool {
				return l.get(t, path).Text("status") == "completed" || l.rows(t, fmt.Sprintf("agent_runs WHERE id = '%s' AND due_at > %d", idOf(path), l.Clock.Now().UnixMicro())) == 1
			})
			if l.get(t, path).Text("status") == "completed" {
				break
			}
			l.later(t, 30*time.Second)
		}
		l.ended(t, path, "completed")
		if n := l.rows(t, "requests WHERE path = '"+path+"' AND error_code = 'rate_limit_exceeded'"); n == 0 {
			t.Error("it was never slowed down")
		}
		if r := l.get(t, path); r.At("steps_used") != 3.0 || len(l.brain.questions("long")) != 3 {
			t.Errorf("it came to %s", r.Body)
		}
		l.paid(t, path, 3*(10+2*1000)*1000)
	})
}

// TestAModelThatIsDownForAWhile: the step is tried again, and is one step.
func TestAModelThatIsDownForAWhile(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		path := l.begin(t, task(l.brain.learn("down", saying{status: 503}), nil))
		l.exhausts(t, path)
		r := l.failed(t, path, "model_error")
		s := l.steps(t, path)
		if r.At("steps_used") != 1.0 || len(s) != 1 || s[0]["status"] != "failed" || strings.Contains(string(r.Body), "as the test says") {
			t.Errorf("it came to %s with %v", r.Body, s)
		}
		path = l.begin(t, task(l.brain.learn("up", saying{status: 503}), nil))
		l.Eventually(t, func() bool { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(path)) == 1 })
		l.brain.learn("up", saying{text: "Back."})
		l.later(t, 2*time.Minute)
		if r := l.ended(t, path, "completed"); r.At("steps_used") != 1.0 {
			t.Errorf("it came to %s", r.Body)
		}
		l.paid(t, path, oneAnswer)
	})
}

// TestCallsUnderWayOnlyDelayARun: what is set aside for others is there again
// when they have ended, and was never spent.
func TestCallsUnderWayOnlyDelayARun(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		budget := 3 * credits.Credit // one call takes all of it until it ends
		tight, id := l.keyed(t, access.Key{MonthlyBudget: &budget})
		first := again(3)
		first[0].gate = "g"
		holder := tight.begin(t, task(l.brain.learn("holder", append(first, saying{text: "Done."})...), []any{webTool("stock", shop.URL)}))
		l.Eventually(t, func() bool { return len(l.brain.questions("holder")) == 1 })
		paths := []string{holder}
		for i := range 5 {
			paths = append(paths, tight.begin(t, task(l.brain.learn(fmt.Sprint("beside", i), append(again(2), saying{text: "Done."})...), []any{webTool("stock", shop.URL)})))
		}
		l.Eventually(t, func() bool {
			return l.rows(t, "requests WHERE key_id = '"+id+"' AND error_code = 'budget_exceeded'") >= 5
		})
		for _, path := range paths {
			if r := l.get(t, path); r.Text("status") == "failed" {
				t.Fatalf("a call under way has ended %s", r.Body)
			}
		}
		l.brain.open("g")
		for _, path := range paths {
			l.Eventually(t, func() bool {
				l.later(t, time.Second)
				return slices.Contains([]string{"completed", "failed"}, l.get(t, path).Text("status"))
			})
			l.ended(t, path, "completed")
		}
		l.paid(t, holder, 4*oneAnswer)
		l.balanced(t, 19*oneAnswer)
		// What will not come back ends a run, in words that a run can act on.
		none := 10 * credits.Micro(1)
		poor, _ := l.keyed(t, access.Key{MonthlyBudget: &none})
		if r := l.failed(t, poor.begin(t, task(l.brain.learn("poor", saying{text: "Hello."}), nil)), "budget_exceeded"); strings.Contains(r.Text("error.message"), "max_tokens") ||
			!strings.Contains(r.Text("error.message"), "key") {
			t.Errorf("it came to %s", r.Body)
		}
	})
}

// TestARunLosesWhatItsKeyLoses: the scope that runs need, and a project that
// was archived.
func TestARunLosesWhatItsKeyLoses(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		bank := tellAll(t, l, "paid")
		input := l.brain.learn("narrowed", saying{text: "So far.", calls: []toolCall{{"mine", ok}}}, saying{text: "Never."})
		owner, id := l.keyed(t, liveKey("agents.runs:create", "models:read"))
		narrowed := owner.begin(t, task(input, []any{function("mine")}))
		paying := owner.begin(t, task(l.brain.learn("paying", calls(toolCall{"pay", ok}), saying{text: "Never."}), []any{approved("pay", bank.URL)}))
		made := l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: task(input, []any{function("mine")}), Header: http.Header{"Service-Project": {"sea"}}}).Want(t, 200, "")
		archived := runs + "/" + made.Text("id")
		call, other := l.waits(t, narrowed, "requires_action")[0]["call_id"].(string), l.waits(t, archived, "requires_action")[0]["call_id"].(string)
		approval := l.waits(t, paying, "awaiting_approval")[0]["id"].(string)
		l.ask(t, "PATCH", "/v1/keys/"+id, map[string]any{"scopes": []string{"models:read"}}).Want(t, 200, "")
		l.ask(t, "DELETE", "/v1/projects/sea", nil).Want(t, 200, "")
		l.output(t, narrowed, call, "x").Want(t, 200, "")
		l.decide(t, paying, approval, "approve").Want(t, 200, "")
		l.output(t, archived, other, "x").Want(t, 200, "")
		if r := l.failed(t, narrowed, "key_revoked"); !strings.Contains(r.Text("error.message"), "agents.runs:create") || r.Text("partial_result") != "So far." {
			t.Errorf("it came to %s", r.Body)
		}
		l.failed(t, paying, "key_revoked")
		if r := l.failed(t, archived, "unknown_project"); !strings.Contains(r.Text("error.message"), "archived") || r.Text("partial_result") != "So far." {
			t.Errorf("it came to %s", r.Body)
		}
		if len(l.brain.questions("narrowed")) != 2 || len(l.brain.questions("paying")) != 1 || bank.count() != 0 {
			t.Error("they were worked for")
		}
	})
}
