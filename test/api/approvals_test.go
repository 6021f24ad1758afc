package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/mail"
	"turnpike/internal/notifications"
	"turnpike/internal/safehttp"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func TestApprovalCanEditArgumentsOrRespond(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("pay", calls(toolCall{"pay", `{"q":"100"}`}), reply{text: "Done."})
		person, _ := l.withKey(t, liveKey("agents.runs:approve", "agents.runs:read"))

		path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
		asked := l.waitForAction(t, path, "awaiting_approval")[0]
		id, hash := asked["id"].(string), asked["arguments_hash"].(string)
		for _, c := range []struct {
			param string
			more  []any
		}{
			{"arguments_hash", []any{"arguments", map[string]any{"q": "5"}}},
			{"arguments", []any{"arguments_hash", hash}},
			{"arguments", []any{"arguments_hash", hash, "arguments", map[string]any{"q": 5}}},
			{"arguments", []any{"arguments_hash", hash, "arguments", `{"q":`}},
			{"arguments", []any{"arguments_hash", hash, "arguments", []any{}}},
			{"response", []any{"arguments_hash", hash, "arguments", map[string]any{"q": "5"}, "response", "x"}},
		} {
			if r := person.decide(t, path, id, "edit", c.more...); r.Status != 400 || r.Text("error.param") != c.param {
				t.Errorf("%v: got %d %s, want 400 about %s", c.more, r.Status, r.Body, c.param)
			}
		}
		person.decide(t, path, id, "edit", "arguments_hash", strings.Repeat("0", 64), "arguments", map[string]any{"q": "5"}).Want(t, 409, "invalid_state")
		person.decide(t, path, id, "approve", "arguments", map[string]any{"q": "5"}).Want(t, 400, "invalid_parameter")
		person.decide(t, path, id, "respond").Want(t, 400, "missing_parameter")
		if payTool.count() != 0 || l.get(t, path).Text("status") != "awaiting_approval" {
			t.Fatal("an invalid decision had an effect")
		}
		edit := []any{"arguments_hash", hash, "arguments", map[string]any{"q": "5"}}
		person.decide(t, path, id, "edit", edit...).Want(t, 200, "")
		person.decide(t, path, id, "edit", "arguments_hash", hash, "arguments", ` { "q" : "5" } `).Want(t, 200, "")
		person.decide(t, path, id, "edit", "arguments_hash", hash, "arguments", map[string]any{"q": "6"}).Want(t, 409, "invalid_state")
		for _, other := range []string{"approve", "deny"} {
			person.decide(t, path, id, other).Want(t, 409, "invalid_state")
		}
		l.waitForEnd(t, path, "completed")
		if got := payTool.all(); len(got) != 1 || string(got[0].body) != `{"q":"5"}` {
			t.Errorf("the tool got %v", got)
		}
		told := l.model.requests("pay")
		if last := told[len(told)-1].last(); !strings.Contains(last, `A person changed the arguments of this call to {"q":"5"}`) || !strings.Contains(last, "paid") {
			t.Errorf("the model got %q", last)
		}
		call := called(l.steps(t, path)[0])[0]
		if said := call["approval"].(map[string]any); call["arguments"] != `{"q":"100"}` || said["edited_arguments"] != `{"q":"5"}` || said["decision"] != "edit" {
			t.Errorf("got call %v", call)
		}

		path = l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
		id = l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		person.decide(t, path, id, "respond", "response", "Paid yesterday.").Want(t, 200, "")
		person.decide(t, path, id, "respond", "response", "Paid yesterday.").Want(t, 200, "")
		person.decide(t, path, id, "respond", "response", "Paid today.").Want(t, 409, "invalid_state")
		person.decide(t, path, id, "approve").Want(t, 409, "invalid_state")
		l.waitForEnd(t, path, "completed")
		told = l.model.requests("pay")
		if last := told[len(told)-1].last(); last != "Paid yesterday." || payTool.count() != 1 {
			t.Errorf("the model got %q, and the tool was called %d times", last, payTool.count())
		}
	})
}

func TestExpiredApprovalCanBeReportedToTheModel(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("late", calls(toolCall{"pay", ok}), reply{text: "Never mind."})
		path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL, "approval_rules", map[string]any{"on_expiry": "report"})}, "approval_timeout_seconds", 100))
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		l.advance(t, 100*time.Second)
		l.waitForEnd(t, path, "completed")
		told := l.model.requests("late")
		if last := told[len(told)-1].last(); !strings.Contains(last, "no one decided about it in time") || payTool.count() != 0 {
			t.Errorf("the model got %q, and the tool was called %d times", last, payTool.count())
		}
		l.decide(t, path, id, "approve").Want(t, 409, "invalid_state")
	})
}

func TestApprovalRulesLimitWhoDecides(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		tool := func(rules map[string]any) []any { return []any{approved("pay", payTool.URL, "approval_rules", rules)} }
		rejected := func(rules map[string]any, param string) {
			t.Helper()
			if r := l.ask(t, "POST", runs, runBody("x", tool(rules))); r.Status != 400 || r.Text("error.param") != "tools[0].approval_rules."+param {
				t.Errorf("%v: got %d %s, want 400 about %s", rules, r.Status, r.Body, param)
			}
		}
		admins := []string{"admin"}
		rejected(map[string]any{"roles": admins}, "roles") // the workspace has no members
		l.withPeople(t)
		rejected(map[string]any{"roles": []string{"viewer"}}, "roles")
		rejected(map[string]any{"roles": admins, "approvers": 2}, "approvers")
		rejected(map[string]any{"approvers": 3}, "approvers")
		rejected(map[string]any{"conditions": []any{map[string]any{"path": "q", "operator": "eq", "value": 1}}}, "conditions[0].path")
		rejected(map[string]any{"color": "red"}, "color")
		// Keys have no role.
		input := l.model.addScript("rules", calls(toolCall{"pay", ok}), reply{text: "Done."})
		path := l.startRun(t, runBody(input, tool(map[string]any{"roles": []string{"owner", "admin"}, "approvers": 2})))
		asked := l.waitForAction(t, path, "awaiting_approval")[0]
		if fmt.Sprint(asked["roles"]) != "[owner admin]" {
			t.Errorf("got %v", asked)
		}
		l.decide(t, path, asked["id"].(string), "approve").Want(t, 403, "insufficient_scope")

		// Never the creator, nor a key that it created.
		path = l.startRun(t, runBody(input, tool(map[string]any{"exclude_creator": true})))
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		l.decide(t, path, id, "approve").Want(t, 403, "insufficient_scope")
		child := l.post(t, "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}})
		l.as(child.Text("value")).decide(t, path, id, "approve").Want(t, 403, "insufficient_scope")
		other, _ := l.withKey(t, liveKey("agents.runs:approve"))
		other.decide(t, path, id, "deny").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		// A call that meets no condition needs no approval.
		rule := map[string]any{"conditions": []any{map[string]any{"path": "/q", "operator": "ne", "value": "x"}}}
		l.waitForEnd(t, l.startRun(t, runBody(input, tool(rule))), "completed")
		if payTool.count() != 1 {
			t.Errorf("the tool was called %d times", payTool.count())
		}
	})
}

// keyOf creates a key as a member does in the dashboard.
func (c *client) keyOf(t *testing.T, userID string, scopes ...string) (value string) {
	t.Helper()
	if len(scopes) == 0 {
		scopes = []string{"*"}
	}
	c.write(t, func(tx *db.Tx) (err error) {
		k := &access.Key{Tenant: c.workspace.In(c.env), Name: "of " + userID, Scopes: scopes}
		value, err = access.NewKeys(c.Ring, c.Clock.Now).Create(t.Context(), tx, access.Caller{Actor: audit.Actor{Name: userID}}, k)
		return err
	})
	return value
}

func TestKeysOfOnePersonAreOneApprover(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("one person", calls(toolCall{"pay", ok}), reply{text: "Done."})
		first, second := l.as(l.keyOf(t, "usr_1")), l.as(l.keyOf(t, "usr_1"))
		child := l.as(second.post(t, "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}}).Text("value"))
		grandchild := l.as(child.post(t, "/v1/keys", map[string]any{"name": "grandchild", "scopes": []string{"*"}}).Text("value"))
		colleague := l.as(l.keyOf(t, "usr_2", "agents.runs:approve"))
		run := func(rules map[string]any) (path, approval string) {
			path = first.startRun(t, runBody(input, []any{approved("pay", payTool.URL, "approval_rules", rules)}))
			return path, l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		}

		path, id := run(map[string]any{"exclude_creator": true})
		for name, by := range map[string]*agentClient{"the key": first, "another key": second, "its child": child, "its grandchild": grandchild} {
			if r := by.decide(t, path, id, "approve"); r.Status != 403 {
				t.Errorf("%s of the creator: got %d %s, want 403", name, r.Status, r.Body)
			}
		}
		colleague.decide(t, path, id, "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		path, id = run(map[string]any{"approvers": 2})
		second.decide(t, path, id, "approve").Want(t, 200, "")
		second.decide(t, path, id, "approve").Want(t, 200, "") // repeated
		for name, by := range map[string]*agentClient{"another key": first, "a child": child, "a grandchild": grandchild} {
			if r := by.decide(t, path, id, "approve"); r.Status != 403 {
				t.Errorf("%s of the first approver: got %d %s, want 403", name, r.Status, r.Body)
			}
		}
		if payTool.count() != 1 || l.get(t, path).Text("status") != "awaiting_approval" {
			t.Fatalf("one person's keys approved the call twice")
		}
		colleague.decide(t, path, id, "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		// One denial is enough, also of someone who has approved.
		path, id = run(map[string]any{"approvers": 2})
		second.decide(t, path, id, "approve").Want(t, 200, "")
		child.decide(t, path, id, "deny").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
	})
}

func TestRuleThatNoOneCanSatisfyIsRejected(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("unsatisfiable", calls(toolCall{"pay", ok}), reply{text: "Done."})
		body := func(rules map[string]any) map[string]any {
			return runBody(input, []any{approved("pay", payTool.URL, "approval_rules", rules)})
		}
		rejected := func(rules map[string]any, param string) {
			t.Helper()
			if r := l.ask(t, "POST", runs, body(rules)); r.Status != 400 || r.Text("error.param") != "tools[0].approval_rules."+param {
				t.Errorf("%v: got %d %s, want 400 about %s", rules, r.Status, r.Body, param)
			}
		}
		two, other := map[string]any{"approvers": 2}, map[string]any{"exclude_creator": true}
		l.post(t, "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}})
		l.newKey(t, liveKey("agents.runs:create"))
		expires := l.Clock.Now().Add(time.Hour)
		l.newKey(t, access.Key{Scopes: []string{"*"}, ExpiresAt: &expires})
		l.advance(t, 2*time.Hour)
		rejected(two, "approvers")
		rejected(other, "exclude_creator")
		l.keyOf(t, "usr_1")
		l.keyOf(t, "usr_1")
		strict := map[string]any{"approvers": 2, "exclude_creator": true}
		rejected(strict, "exclude_creator")
		for _, satisfiable := range []map[string]any{two, other} {
			l.waitForAction(t, l.startRun(t, body(satisfiable)), "awaiting_approval")
		}
		l.withPeople(t)
		l.waitForAction(t, l.startRun(t, body(strict)), "awaiting_approval")
	})
}

func TestApprovalsReachPeople(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		mails, chat := smtp.Start(t), newChatTool(t)
		l := newAgents(t, engine, func(cfg *config.Config) {
			cfg.SMTP.URL, cfg.Mail.From = config.SecretURL(mails.URL()), "turnpike@example.com"
		})
		l.withPeople(t)
		l.ask(t, "PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"url": chat.URL + "/services/secret-path"}}).Want(t, 200, "")
		payTool := newTool(t, l, "paid")
		long := fmt.Sprintf(`{"q":"%s"}`, strings.Repeat("y", 3000))
		input := l.model.addScript("ask", calls(toolCall{"pay", long}), reply{text: "Done."})
		path := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}, "approval_timeout_seconds", 1000))
		id := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		link := "/live/runs/" + idOf(path)
		for _, m := range mails.Wait(t, 2) {
			text := strings.ReplaceAll(strings.ReplaceAll(string(m.Data), "=\n", ""), "=3D", "=")
			if !strings.Contains(text, "pay {") || !strings.Contains(text, link) || strings.Count(text, "y") < 2000 || strings.Count(text, "y") > 2200 {
				t.Errorf("got email %s", text)
			}
		}
		l.Eventually(t, func() bool { return len(chat.messages()) == 1 })
		if got := chat.messages()[0]; !strings.Contains(got, "Approval needed: pay") || !strings.Contains(got, link) {
			t.Errorf("got message %s", got)
		}
		// The link shows the sign-in page, and decides nothing.
		if r := l.get(t, path); r.Text("status") != "awaiting_approval" {
			t.Errorf("got %s", r.Body)
		}

		// A reminder at half of the time, without the arguments.
		l.ask(t, "PATCH", "/v1/notifications", map[string]any{"omit_arguments": true}).Want(t, 200, "")
		l.wakeNotifications(t, 501*time.Second)
		for _, m := range mails.Wait(t, 4)[2:] {
			if text := string(m.Data); !strings.Contains(text, "Reminder: approval needed") || strings.Contains(text, "yyyy") {
				t.Errorf("got email %s", text)
			}
		}
		l.Eventually(t, func() bool { return len(chat.messages()) == 2 })
		l.decide(t, path, id, "deny").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		// A decided call needs no reminder.
		path = l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}, "approval_timeout_seconds", 1000))
		id = l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		mails.Wait(t, 6)
		l.decide(t, path, id, "deny").Want(t, 200, "")
		l.Eventually(t, func() bool { return l.rows(t, "notifications WHERE kind = 'message'") == 0 })
		l.wakeNotifications(t, 501*time.Second)
		l.Eventually(t, func() bool { return l.rows(t, "notifications") == 0 })
		if n := l.rows(t, "mails"); n != 6 {
			t.Errorf("got %d emails, want 6", n)
		}
	})
}

func TestTestApprovalsDontSilenceLiveOnes(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		c := newClient(t, harness.Start(t, harness.Config(t, engine), harness.NewClock()), accounts.Live)
		s := notifications.New(notifications.Options{DB: c.DB, Ring: c.Ring, Guard: safehttp.New(safehttp.Policy{}), Outbox: mail.New(c.DB, c.Ring, nil, "", c.Clock.Now), Now: c.Clock.Now})
		request := func(env accounts.Environment, n int) {
			c.write(t, func(tx *db.Tx) error {
				for range n {
					a := notifications.Approval{Tenant: c.workspace.In(env), ID: ids.New(ids.Approval), By: "run", RequestedAt: c.Clock.Now(), ExpiresAt: c.Clock.Now().Add(24 * time.Hour),
						Calls: []notifications.ApprovalCall{{ID: "1", Tool: "pay"}}}
					if err := s.RequestApproval(t.Context(), tx, a); err != nil {
						return err
					}
				}
				return nil
			})
		}
		request(accounts.Test, 101)
		if n := c.rows(t, "notifications"); n != 100 {
			t.Errorf("%d approvals in test are announced, want 100", n)
		}
		request(accounts.Live, 1)
		if n := c.rows(t, "notifications"); n != 101 {
			t.Errorf("%d approvals are announced, want the live one as well", n)
		}
	})
}
