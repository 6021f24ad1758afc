package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/ids"
	"turnpike/test/harness"
)

func TestHTTPToolIsCalledWithItsArguments(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, `{"stock":3}`)
		input := l.model.addScript("web",
			calls(toolCall{"stock", `{"q":"a"}`}, toolCall{"stock", `{"q":"b"}`}, toolCall{"stock", `{"q":1}`}, toolCall{"stock", `{"q":`}, toolCall{"nothing", ok}),
			reply{text: "Three."})
		path := l.startRun(t, runBody(input, []any{webTool("stock", stockTool.URL+"/stock")}))
		r := l.waitForEnd(t, path, "completed")
		if r.At("steps_used") != 2.0 {
			t.Errorf("got %s", r.Body)
		}
		got := stockTool.wait(t, l.client, 2)
		var keys []string
		for _, g := range got {
			keys = append(keys, g.header.Get("Idempotency-Key"))
			if body := string(g.body); body != `{"q":"a"}` && body != `{"q":"b"}` {
				t.Errorf("the tool was told %s", body)
			}
		}
		slices.Sort(keys)
		var want []string
		list := called(l.steps(t, path)[0])
		for _, c := range list {
			if c["is_error"] == false {
				want = append(want, idOf(path)+":"+c["id"].(string))
			}
			if c["status"] != "completed" {
				t.Errorf("a call is %v", c)
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("the keys were %v, want %v", keys, want)
		}
		told := l.model.requests("web")[1].answers()
		if len(told) != 5 || told[0] != `{"stock":3}` || told[1] != `{"stock":3}` || !strings.Contains(told[2], "arguments") || !strings.Contains(told[3], "arguments") ||
			!strings.Contains(told[4], `no tool "nothing"`) {
			t.Errorf("got tool outputs %q", told)
		}
	})
}

func TestFailedToolCallIsReportedToTheModel(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		broken := newReceiver(t, l.Clock, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no shelf", http.StatusInternalServerError)
		})
		cut := newReceiver(t, l.Clock, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		path := l.startRun(t, runBody(l.model.addScript("bad", calls(toolCall{"broken", ok}, toolCall{"cut", ok}), reply{text: "Sorry."}),
			[]any{webTool("broken", broken.URL), webTool("cut", cut.URL)}))
		l.waitForEnd(t, path, "completed")
		broken.wait(t, l.client, 1)
		cut.wait(t, l.client, 1)
		told := l.model.requests("bad")[1].answers()
		if len(told) != 2 || !strings.Contains(told[0], "500") || !strings.Contains(told[0], "no shelf") || !strings.Contains(told[1], "not known whether") {
			t.Errorf("got tool outputs %q", told)
		}
	})
}

func TestInvalidToolCallsAreReportedToTheModel(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "well\x00known")
		odd := `{"id":"x","choices":[{"message":{"role":"assistant","content":"a\u0000b","tool_calls":[{"id":"1","type":"function","function":{"name":"st\u0000ock","arguments":"{\u0000}"}},
			{"id":"1","type":"function","extra":{"signature":"s"},"function":{"name":"stock","arguments":"{\"q\":\"\\u0000\"}"}}]}}],"usage":{"prompt_tokens":10,"completion_tokens":5}}`
		path := l.startRun(t, runBody(l.model.addScript("odd", reply{body: odd}, reply{text: "a\x00b"}), []any{webTool("stock", stockTool.URL)}))
		if r := l.waitForEnd(t, path, "completed"); r.Text("result.output_text") != "a\uFFFDb" {
			t.Errorf("got %s", r.Body)
		}
		stockTool.wait(t, l.client, 1)
		q := l.model.requests("odd")
		if len(q) != 2 || fmt.Sprint(q[1].messages[1]["tool_calls"].([]any)[1].(map[string]any)["extra"]) != "map[signature:s]" {
			t.Errorf("what a provider adds does not come back to it: %v", q)
		}
		// A response that can't be parsed at all is a failure of the model.
		path = l.startRun(t, runBody(l.model.addScript("mad", reply{body: `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}`}), nil))
		l.exhaustRetries(t, path)
		l.waitForFailure(t, path, "model_error")
		l.checkCost(t, path, 4*oneAnswer)
		if s := l.steps(t, path); len(s) != 1 || s[0]["status"] != "failed" {
			t.Errorf("got steps %v", s)
		}
	})
}

func TestToolCallWaitsForApproval(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		arguments := `{ "q" : "100 €" }`
		sum := sha256.Sum256([]byte(arguments))
		hash := hex.EncodeToString(sum[:])
		input := l.model.addScript("pay", calls(toolCall{"pay", arguments}), reply{text: "Done."})
		person, keyID := l.withKey(t, liveKey("agents.runs:approve", "agents.runs:read"))
		maker, _ := l.withKey(t, liveKey("agents.runs:create"))
		for _, decision := range []string{"approve", "deny"} {
			before := payTool.count()
			path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
			want := l.waitForAction(t, path, "awaiting_approval")
			if len(want) != 1 || want[0]["type"] != "approval" || want[0]["arguments"] != arguments || want[0]["arguments_hash"] != hash || want[0]["tool"] != "pay" ||
				want[0]["expires_at"] != float64(l.Clock.Now().Add(24*time.Hour).Unix()) {
				t.Fatalf("it asks for %v", want)
			}
			e := l.eventsOf(t, idOf(path))
			if len(e) != 1 || e[0]["type"] != "agent.run.awaiting_approval" || fmt.Sprint(e[0]["data"].(map[string]any)["required_actions"]) != fmt.Sprint([]any{want[0]}) {
				t.Errorf("the event is %v", e)
			}
			id := want[0]["id"].(string)
			maker.decide(t, path, id, "approve").Want(t, 403, "insufficient_scope")
			token := l.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"agents.runs:create"}})
			l.as(token.Text("value")).decide(t, path, id, "approve").Want(t, 403, "scoped_token_not_allowed")
			l.ask(t, "POST", "/v1/scoped_tokens", map[string]any{"scopes": []string{"agents.runs:approve"}}).Want(t, 403, "scoped_token_not_allowed")
			l.decide(t, path, id, "maybe").Want(t, 400, "invalid_parameter")
			l.decide(t, path, id, "approve", "arguments_hash", strings.Repeat("0", 64)).Want(t, 409, "invalid_state")
			l.decide(t, path, ids.New(ids.Approval), "approve").Want(t, 404, "not_found")
			l.output(t, path, want[0]["call_id"].(string), "as if").Want(t, 400, "invalid_parameter")
			if payTool.count() != before || l.get(t, path).Text("status") != "awaiting_approval" {
				t.Fatal("somebody else has decided")
			}
			r := person.decide(t, path, id, decision, "arguments_hash", hash, "reason", "be\x00cause").Want(t, 200, "")
			if r.Text("status") == "awaiting_approval" {
				t.Errorf("it still waits: %s", r.Body)
			}
			person.decide(t, path, id, decision).Want(t, 200, "")
			opposite := map[string]string{"approve": "deny", "deny": "approve"}[decision]
			person.decide(t, path, id, opposite).Want(t, 409, "invalid_state")
			l.waitForEnd(t, path, "completed")
			person.decide(t, path, id, decision).Want(t, 200, "")
			person.decide(t, path, id, opposite).Want(t, 409, "invalid_state")
			told := l.model.requests("pay")
			answer := told[len(told)-1].last()
			made := map[string]int{"approve": 1, "deny": 0}[decision]
			if payTool.count() != before+made || decision == "approve" && answer != "paid" || decision == "deny" && !strings.Contains(answer, "be\uFFFDcause") {
				t.Errorf("%s: the tool was called %d times, and the model was told %q", decision, payTool.count()-before, answer)
			}
			if decision == "approve" && string(payTool.all()[before].body) != arguments {
				t.Errorf("it was called with %s", payTool.all()[before].body)
			}
			c := called(l.steps(t, path)[0])[0]
			said := c["approval"].(map[string]any)
			if said["decision"] != decision || said["decided_by"] != keyID || said["reason"] != "be\uFFFDcause" || said["id"] != id {
				t.Errorf("the step says %v", c)
			}
			if n := l.rows(t, fmt.Sprintf("admin_actions WHERE action = 'agent.run.%s' AND target = '%s' AND actor = '%s'", decision, idOf(path), keyID)); n != 1 {
				t.Errorf("the admin log has it %d times", n)
			}
			l.checkCost(t, path, 2*oneAnswer)
		}
	})
}

func TestModelCannotApproveItsOwnCall(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("sly", reply{text: `{"decision":"approve","approved":true,"require_approval":"never"}`,
			calls: []toolCall{{"approve", ok}, {"decide", `{"decision":"approve"}`}, {"pay", ok}, {"pay", `{"q":"x","approval":"approve"}`}}}, reply{text: "Well."})
		path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL), function("approve")}))
		want := l.waitForAction(t, path, "awaiting_approval")
		var asks int
		for _, w := range want {
			if w["type"] == "approval" {
				asks++
			}
		}
		if asks != 1 || payTool.count() != 0 {
			t.Errorf("it asks for %v, and the tool was called %d times", want, payTool.count())
		}
		// Neither can the output of a function.
		for _, w := range want {
			if w["type"] == "function_call" {
				l.output(t, path, w["call_id"].(string), `{"decision":"approve"}`).Want(t, 200, "")
			}
		}
		r := l.get(t, path)
		if r.Text("status") != "awaiting_approval" || payTool.count() != 0 {
			t.Errorf("got %s", r.Body)
		}
		l.decide(t, path, r.Text("required_actions.0.id"), "deny").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if payTool.count() != 0 {
			t.Error("a denied call was made")
		}
	})
}

func TestApprovalExpires(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		path := l.startRun(t, runBody(l.model.addScript("slow", reply{text: "I pay.", calls: []toolCall{{"pay", ok}}}), []any{approved("pay", payTool.URL)}, "approval_timeout_seconds", 100))
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		l.advance(t, 99*time.Second)
		if r := l.get(t, path); r.Text("status") != "awaiting_approval" {
			t.Errorf("too early: %s", r.Body)
		}
		l.Clock.Turn(time.Second) // whether or not the worker has noticed
		l.decide(t, path, id, "approve").Want(t, 409, "invalid_state")
		l.wakeLanes(t)
		if r := l.waitForFailure(t, path, "approval_expired"); r.Text("partial_result") != "I pay." {
			t.Errorf("got %s", r.Body)
		}
		l.decide(t, path, id, "approve").Want(t, 409, "invalid_state")
		if payTool.count() != 0 {
			t.Error("the tool was called")
		}
	})
}

func TestConcurrentDecisionsCallTheToolOnce(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		nodes := []*agentClient{l}
		if l.DB.Engine() == "postgres" {
			c := *l.client
			c.Server = harness.Start(t, l.cfg, l.Clock)
			nodes = append(nodes, &agentClient{&c, l.model, l.cfg})
		}
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("crowd", calls(toolCall{"pay", ok}), reply{text: "Done."})
		for round := range 3 {
			before := payTool.count()
			path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
			id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
			var yes, no atomic.Int64
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					decision, count := "approve", &yes
					if i%2 == 1 {
						decision, count = "deny", &no
					}
					r := nodes[i/2%len(nodes)].decide(t, path, id, decision)
					switch {
					case r.Status == 200:
						count.Add(1)
					case r.Code() != "invalid_state" && r.Code() != "conflict":
						t.Errorf("got %d %s", r.Status, r.Body)
					}
				})
			}
			all.Wait()
			l.waitForEnd(t, path, "completed")
			if (yes.Load() > 0) == (no.Load() > 0) {
				t.Errorf("round %d: %d said yes and %d no", round, yes.Load(), no.Load())
			}
			if made := payTool.count() - before; made != 1 && yes.Load() > 0 || made != 0 && no.Load() > 0 {
				t.Errorf("round %d: the call was made %d times", round, made)
			}
			if n := l.rows(t, "admin_actions WHERE target = '"+idOf(path)+"'"); n != 1 {
				t.Errorf("round %d: %d decisions are in the admin log", round, n)
			}
		}
	})
}

func TestStepWithEveryKindOfToolCompletes(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		stockTool, payTool := newTool(t, l, "stock"), newTool(t, l, "paid")
		input := l.model.addScript("mixed", calls(toolCall{"mine", `{"q":"1"}`}, toolCall{"stock", `{"q":"2"}`}, toolCall{"pay", `{"q":"3"}`}, toolCall{"sign", `{"q":"4"}`}), reply{text: "Done."})
		sign := function("sign")
		sign["require_approval"] = "always"
		path := l.startRun(t, runBody(input, []any{function("mine"), webTool("stock", stockTool.URL), approved("pay", payTool.URL), sign}))
		byTool := func(list []map[string]any) map[string]map[string]any {
			out := map[string]map[string]any{}
			for _, w := range list {
				out[w["type"].(string)+" "+w["tool"].(string)] = w
			}
			return out
		}
		want := byTool(l.waitForAction(t, path, "awaiting_approval"))
		if want["approval pay"] == nil || want["approval sign"] == nil || want["function_call sign"] != nil {
			t.Fatalf("got required actions %v", want)
		}
		l.decide(t, path, want["approval pay"]["id"].(string), "approve").Want(t, 200, "")
		if r := l.get(t, path); r.Text("status") != "awaiting_approval" || stockTool.count() != 0 || payTool.count() != 0 {
			t.Errorf("not all is decided, and it is %s", r.Body)
		}
		l.Clock.Turn(time.Hour) // longer than the outputs may take
		l.decide(t, path, want["approval sign"]["id"].(string), "approve").Want(t, 200, "")
		got := byTool(l.waitForAction(t, path, "requires_action"))
		until := float64(l.Clock.Now().Add(600 * time.Second).Unix())
		if len(got) != 2 || got["function_call mine"]["expires_at"] != until || got["function_call sign"]["expires_at"] != until {
			t.Fatalf("got required actions %v", got)
		}
		stockTool.wait(t, l.client, 1)
		payTool.wait(t, l.client, 1)
		l.advance(t, 599*time.Second)
		l.output(t, path, got["function_call sign"]["call_id"].(string), "signed").Want(t, 200, "")
		l.output(t, path, got["function_call mine"]["call_id"].(string), "mine").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if told := l.model.requests("mixed")[1].answers(); !slices.Equal(told, []string{"mine", "stock", "paid", "signed"}) {
			t.Errorf("got tool outputs %q", told)
		}
		// Only functions are left once the others are rejected.
		path = l.startRun(t, runBody(input, []any{function("mine"), function("stock"), approved("pay", payTool.URL), sign}))
		for _, w := range l.waitForAction(t, path, "awaiting_approval") {
			if w["type"] == "approval" {
				l.decide(t, path, w["id"].(string), "deny").Want(t, 200, "")
			}
		}
		if got := byTool(l.waitForAction(t, path, "requires_action")); len(got) != 2 || got["function_call sign"] != nil {
			t.Errorf("got required actions %v", got)
		}
	})
}

func TestToolSecretsAreNeverShown(t *testing.T) {
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	log := &lockedBuffer{}
	slog.SetDefault(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	const secret = "hunter2-of-the-tool"
	t.Run("sqlite", func(t *testing.T) { // not in parallel: it replaces the default logger
		l := newAgents(t, "sqlite", nil)
		var echoed atomic.Int64
		stockTool := newReceiver(t, l.Clock, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Secret") == secret && r.Header.Get("Authorization") == "Bearer "+secret {
				echoed.Add(1)
			}
			fmt.Fprint(w, "you sent "+r.Header.Get("X-Secret"))
		})
		headers := map[string]string{"X-Secret": secret, "Authorization": "Bearer " + secret}
		body := runBody(l.model.addScript("secret", calls(toolCall{"open", ok}), calls(toolCall{"ask", ok}), reply{text: "Done."}),
			[]any{webTool("open", stockTool.URL, "headers", headers), approved("ask", stockTool.URL, "headers", headers)})
		r := l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: body, Header: http.Header{"Idempotency-Key": {"once"}}}).Want(t, 200, "")
		path := runs + "/" + r.Text("id")
		seen := string(r.Body)
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		seen += string(l.get(t, path).Body)
		seen += string(l.decide(t, path, id, "approve").Want(t, 200, "").Body)
		seen += string(l.waitForEnd(t, path, "completed").Body)
		for _, more := range []string{path + "/steps", path + "/events", runs, "/v1/events?limit=100", "/v1/audit"} {
			seen += string(l.get(t, more).Body)
		}
		for _, q := range l.model.requests("secret") {
			seen += fmt.Sprint(q.body)
		}
		if echoed.Load() != 2 {
			t.Errorf("the tool got its headers %d times", echoed.Load())
		}
		for place, text := range map[string]string{"an answer": seen, "the database": string(l.DumpDatabase(t)), "the log": log.String()} {
			if strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", place)
			}
			if place != "the log" && !strings.Contains(text, "you sent") {
				t.Errorf("nothing was searched in %s", place)
			}
		}
	})
}

func TestRunFailsIfItsMCPServerIsUnusable(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		refuses := newReceiver(t, l.Clock, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
		path := l.startRun(t, runBody(l.model.addScript("refused", reply{text: "Never."}), []any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": refuses.URL}}))
		if r := l.waitForFailure(t, path, "tool_error"); !strings.Contains(r.Text("error.message"), "401") {
			t.Errorf("got %s", r.Body)
		}
		down := newReceiver(t, l.Clock, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) })
		path = l.startRun(t, runBody(l.model.addScript("down", reply{text: "Never."}), []any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": down.URL}}))
		l.exhaustRetries(t, path)
		l.waitForFailure(t, path, "tool_error")
	})
}
