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

// again returns a script that never ends.
func again(n int) []reply {
	return slices.Repeat([]reply{{text: "So far.", calls: []toolCall{{"stock", ok}}}}, n)
}

func TestRunFailsAtItsStepLimit(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		path := l.startRun(t, runBody(l.model.addScript("endless", again(9)...), []any{webTool("stock", stockTool.URL)}, "max_steps", 3))
		r := l.waitForFailure(t, path, "max_steps_exceeded")
		if r.At("steps_used") != 3.0 || r.Text("partial_result") != "So far." || len(l.steps(t, path)) != 3 || len(l.model.requests("endless")) != 3 {
			t.Errorf("got %s", r.Body)
		}
		stockTool.wait(t, l.client, 2) // no step is left to read the result of the last call
		if c := called(l.steps(t, path)[2]); len(c) != 1 || c[0]["status"] != "completed" || c[0]["is_error"] != true || c[0]["started_at"] != nil {
			t.Errorf("the last call is %v", c)
		}
		l.checkCost(t, path, 3*oneAnswer)
		// No one is asked for an action whose result wouldn't be used.
		for name, tool := range map[string]any{"person": approved("stock", stockTool.URL), "customer": function("stock")} {
			path := l.startRun(t, runBody(l.model.addScript(name, again(1)...), []any{tool}, "max_steps", 1))
			l.waitForFailure(t, path, "max_steps_exceeded")
			if e := l.eventsOf(t, idOf(path)); len(e) != 1 {
				t.Errorf("got events %v", e)
			}
		}
		stockTool.wait(t, l.client, 2)
	})
}

func TestRunNeverExceedsItsBudget(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		for i, budget := range []string{"0", "0.4", "1.5", "2.000001", "5"} {
			name := fmt.Sprint("greedy", i)
			script := again(30)
			for j := range script {
				script[j].greedy = true
			}
			path := l.startRun(t, runBody(l.model.addScript(name, script...), []any{webTool("stock", stockTool.URL)}, "budget", map[string]any{"max_credits": json.Number(budget)}, "max_steps", 30))
			r := l.waitForFailure(t, path, "budget_exceeded")
			spent := amount(t, r, "usage.credits")
			if spent > micro(t, budget) || !strings.Contains(r.Text("error.message"), "run") {
				t.Errorf("of %s, %s were spent: %s", budget, spent, r.Body)
			}
			// The remaining budget wouldn't pay for another response.
			if asked := len(l.model.requests(name)); budget == "0" && asked != 0 || budget == "5" && (asked == 0 || spent < 3*credit) {
				t.Errorf("of %s, %s were spent in %d answers", budget, spent, asked)
			}
			l.checkCost(t, path, spent)
			s := l.steps(t, path)
			last := s[len(s)-1]
			e := settled(t, l.Server, l.key, last["request_id"].(string))
			if last["status"] != "failed" || e.At("status") != 402.0 || e.Text("error_code") != "budget_exceeded" || e.At("credits") != 0.0 {
				t.Errorf("the last step is %v, and its entry %s", last, e.Body)
			}
		}
	})
}

func TestRunsRespectKeyProjectAndWorkspaceBudgets(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		input := l.model.addScript("poor", reply{text: "Hello."})
		none := credits.Micro(0)
		poor, _ := l.withKey(t, access.Key{MonthlyBudget: &none})
		if r := l.waitForFailure(t, poor.startRun(t, runBody(input, nil)), "budget_exceeded"); !strings.Contains(r.Text("error.message"), "key") {
			t.Errorf("got %s", r.Body)
		}
		l.post(t, "/v1/projects", map[string]any{"id": "sea", "monthly_budget": 0})
		made := l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: runBody(input, nil), Header: http.Header{"Service-Project": {"sea"}}}).Want(t, 200, "")
		if r := l.waitForFailure(t, runs+"/"+made.Text("id"), "budget_exceeded"); !strings.Contains(r.Text("error.message"), "project") {
			t.Errorf("got %s", r.Body)
		}
		l.credits(t, 0)
		l.waitForFailure(t, l.startRun(t, runBody(input, nil)), "insufficient_credits")
		if n := len(l.model.requests("poor")); n != 0 {
			t.Errorf("got %d model requests", n)
		}
		l.checkLedger(t, 0)
	})
}

func TestRunTimeoutExcludesWaiting(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		path := l.startRun(t, runBody(l.model.addScript("waits", calls(toolCall{"pay", ok}), reply{text: "Done."}), []any{approved("pay", payTool.URL)}, "timeout_seconds", 60))
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		l.advance(t, time.Hour)
		l.decide(t, path, id, "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		path = l.startRun(t, runBody(l.model.addScript("hangs", calls(toolCall{"mine", ok}), reply{gate: "never"}), []any{function("mine")}, "timeout_seconds", 1))
		call := l.waitForAction(t, path, "requires_action")[0]["call_id"].(string)
		l.output(t, path, call, "x").Want(t, 200, "")
		r := l.waitForFailure(t, path, "run_timeout")
		if n := len(l.model.requests("hangs")); n != 2 || r.At("steps_used") != 2.0 {
			t.Errorf("the model was asked %d times: %s", n, r.Body)
		}
		cost := amount(t, r, "usage.credits")
		if cost <= oneAnswer {
			t.Errorf("got cost %s, want more than %s: the call that timed out is charged", cost, oneAnswer)
		}
		l.checkCost(t, path, cost)
		if s := l.steps(t, path); s[1]["status"] != "failed" || s[1]["completed_at"] == nil {
			t.Errorf("got steps %v", s)
		}
	})
}

func TestRunsOfARevokedKeyEndBeforeTheirNextStep(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("revoked", reply{text: "So far.", calls: []toolCall{{"mine", ok}}}, reply{text: "Never."})
		soon := l.Clock.Now().Add(time.Hour)
		owner, id := l.withKey(t, liveKey())
		mortal, _ := l.withKey(t, access.Key{ExpiresAt: &soon})
		revoked, expired := owner.startRun(t, runBody(input, []any{function("mine")})), mortal.startRun(t, runBody(input, []any{function("mine")}, "tool_output_timeout_seconds", 7200))
		paying := owner.startRun(t, runBody(l.model.addScript("paying", calls(toolCall{"pay", ok}), reply{text: "Never."}), []any{approved("pay", payTool.URL)}))
		call, other := l.waitForAction(t, revoked, "requires_action")[0]["call_id"].(string), l.waitForAction(t, expired, "requires_action")[0]["call_id"].(string)
		approval := l.waitForAction(t, paying, "awaiting_approval")[0]["id"].(string)
		l.ask(t, "DELETE", "/v1/keys/"+id, nil).Want(t, 200, "")
		l.output(t, revoked, call, "x").Want(t, 200, "")
		l.decide(t, paying, approval, "approve").Want(t, 200, "")
		if r := l.waitForFailure(t, revoked, "key_revoked"); r.Text("partial_result") != "So far." || len(l.steps(t, revoked)) != 1 {
			t.Errorf("got %s", r.Body)
		}
		l.waitForFailure(t, paying, "key_revoked")
		l.Clock.Turn(time.Hour)
		l.output(t, expired, other, "x").Want(t, 200, "")
		l.waitForFailure(t, expired, "key_revoked")
		if len(l.model.requests("revoked")) != 2 || len(l.model.requests("paying")) != 1 || payTool.count() != 0 {
			t.Error("a key that is no good was worked for")
		}
	})
}

func TestRateLimitsDelayRunsWithoutFailingThem(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) { cfg.Limits.LiveTokensPerMinute = 2000 }, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		rate := int64(3)
		slow, _ := l.withKey(t, access.Key{RateLimit: &rate, Scopes: []string{"agents.runs:create"}})
		path := slow.startRun(t, runBody(l.model.addScript("slow", append(again(6), reply{text: "Done."})...), []any{webTool("stock", stockTool.URL)}))
		l.waitForEnd(t, path, "completed")
		slow.startRun(t, runBody(l.model.addScript("two", reply{text: "Done."}), nil))
		slow.startRun(t, runBody(l.model.addScript("three", reply{text: "Done."}), nil))
		slow.ask(t, "POST", runs, runBody("four", nil)).Want(t, 429, "rate_limit_exceeded")

		other, _ := l.withKey(t, liveKey())
		script := append(again(2), reply{text: "Done."})
		for i := range script {
			script[i].greedy = true // a thousand tokens each
		}
		path = other.startRun(t, runBody(l.model.addScript("long", script...), []any{webTool("stock", stockTool.URL)}))
		for range 10 {
			l.Eventually(t, func() bool {
				return l.get(t, path).Text("status") == "completed" || l.rows(t, fmt.Sprintf("agent_runs WHERE id = '%s' AND due_at > %d", idOf(path), l.Clock.Now().UnixMicro())) == 1
			})
			if l.get(t, path).Text("status") == "completed" {
				break
			}
			l.advance(t, 30*time.Second)
		}
		l.waitForEnd(t, path, "completed")
		if n := l.rows(t, "requests WHERE path = '"+path+"' AND error_code = 'rate_limit_exceeded'"); n == 0 {
			t.Error("it was never slowed down")
		}
		if r := l.get(t, path); r.At("steps_used") != 3.0 || len(l.model.requests("long")) != 3 {
			t.Errorf("got %s", r.Body)
		}
		l.checkCost(t, path, 3*(10+2*1000)*1000)
	})
}

func TestStepIsRetriedWhileItsModelIsDown(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("down", reply{status: 503}), nil))
		l.exhaustRetries(t, path)
		r := l.waitForFailure(t, path, "model_error")
		s := l.steps(t, path)
		if r.At("steps_used") != 1.0 || len(s) != 1 || s[0]["status"] != "failed" || strings.Contains(string(r.Body), "as the test says") {
			t.Errorf("it came to %s with %v", r.Body, s)
		}
		path = l.startRun(t, runBody(l.model.addScript("up", reply{status: 503}), nil))
		l.Eventually(t, func() bool { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(path)) == 1 })
		l.model.addScript("up", reply{text: "Back."})
		l.advance(t, 2*time.Minute)
		if r := l.waitForEnd(t, path, "completed"); r.At("steps_used") != 1.0 {
			t.Errorf("got %s", r.Body)
		}
		l.checkCost(t, path, oneAnswer)
	})
}

func TestCreditsReservedByOthersDelayARun(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		budget := 3 * credits.Credit // one request reserves all of it until it ends
		tight, id := l.withKey(t, access.Key{MonthlyBudget: &budget})
		first := again(3)
		first[0].gate = "g"
		holder := tight.startRun(t, runBody(l.model.addScript("holder", append(first, reply{text: "Done."})...), []any{webTool("stock", stockTool.URL)}))
		l.Eventually(t, func() bool { return len(l.model.requests("holder")) == 1 })
		paths := []string{holder}
		for i := range 5 {
			paths = append(paths, tight.startRun(t, runBody(l.model.addScript(fmt.Sprint("beside", i), append(again(2), reply{text: "Done."})...), []any{webTool("stock", stockTool.URL)})))
		}
		l.Eventually(t, func() bool {
			return l.rows(t, "requests WHERE key_id = '"+id+"' AND error_code = 'budget_exceeded'") >= 5
		})
		for _, path := range paths {
			if r := l.get(t, path); r.Text("status") == "failed" {
				t.Fatalf("a call under way has ended %s", r.Body)
			}
		}
		l.model.open("g")
		for _, path := range paths {
			l.Eventually(t, func() bool {
				l.advance(t, time.Second)
				return slices.Contains([]string{"completed", "failed"}, l.get(t, path).Text("status"))
			})
			l.waitForEnd(t, path, "completed")
		}
		l.checkCost(t, holder, 4*oneAnswer)
		l.checkLedger(t, 19*oneAnswer)
		// Permanent errors end a run, with a message that the client can act
		// on.
		none := 10 * credits.Micro(1)
		poor, _ := l.withKey(t, access.Key{MonthlyBudget: &none})
		if r := l.waitForFailure(t, poor.startRun(t, runBody(l.model.addScript("poor", reply{text: "Hello."}), nil)), "budget_exceeded"); strings.Contains(r.Text("error.message"), "max_tokens") ||
			!strings.Contains(r.Text("error.message"), "key") {
			t.Errorf("got %s", r.Body)
		}
	})
}

func TestRunEndsIfItsKeyLosesScopeOrProject(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("narrowed", reply{text: "So far.", calls: []toolCall{{"mine", ok}}}, reply{text: "Never."})
		owner, id := l.withKey(t, liveKey("agents.runs:create", "models:read"))
		narrowed := owner.startRun(t, runBody(input, []any{function("mine")}))
		paying := owner.startRun(t, runBody(l.model.addScript("paying", calls(toolCall{"pay", ok}), reply{text: "Never."}), []any{approved("pay", payTool.URL)}))
		made := l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: runBody(input, []any{function("mine")}), Header: http.Header{"Service-Project": {"sea"}}}).Want(t, 200, "")
		archived := runs + "/" + made.Text("id")
		call, other := l.waitForAction(t, narrowed, "requires_action")[0]["call_id"].(string), l.waitForAction(t, archived, "requires_action")[0]["call_id"].(string)
		approval := l.waitForAction(t, paying, "awaiting_approval")[0]["id"].(string)
		l.ask(t, "PATCH", "/v1/keys/"+id, map[string]any{"scopes": []string{"models:read"}}).Want(t, 200, "")
		l.ask(t, "DELETE", "/v1/projects/sea", nil).Want(t, 200, "")
		l.output(t, narrowed, call, "x").Want(t, 200, "")
		l.decide(t, paying, approval, "approve").Want(t, 200, "")
		l.output(t, archived, other, "x").Want(t, 200, "")
		if r := l.waitForFailure(t, narrowed, "key_revoked"); !strings.Contains(r.Text("error.message"), "agents.runs:create") || r.Text("partial_result") != "So far." {
			t.Errorf("got %s", r.Body)
		}
		l.waitForFailure(t, paying, "key_revoked")
		if r := l.waitForFailure(t, archived, "unknown_project"); !strings.Contains(r.Text("error.message"), "archived") || r.Text("partial_result") != "So far." {
			t.Errorf("got %s", r.Body)
		}
		if len(l.model.requests("narrowed")) != 2 || len(l.model.requests("paying")) != 1 || payTool.count() != 0 {
			t.Error("they were worked for")
		}
	})
}
