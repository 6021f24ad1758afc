package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
	"turnpike/test/harness"
)

func TestApprovalRulesOfRegisteredServerAreChecked(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		good := map[string]any{"conditions": []any{map[string]any{"path": "/q", "operator": "eq", "value": "x"}}}
		server := c.register(t, "docs", docs.URL, "approval_rules", good)
		if got := server.At("approval_rules.conditions.0.path"); got != "/q" {
			t.Errorf("the rules are shown as %s", server.Body)
		}
		path := "/v1/tool_servers/" + server.Text("id")
		refused := func(rules map[string]any, param string) {
			t.Helper()
			body := map[string]any{"label": "other", "url": docs.URL, "approval_rules": rules}
			for method, at := range map[string]string{"POST": "/v1/tool_servers", "PATCH": path} {
				if r := c.ask(t, method, at, body); r.Status != 400 || r.Text("error.param") != "approval_rules."+param {
					t.Errorf("%s %v: got %d %s, want 400 about %s", method, rules, r.Status, r.Body, param)
				}
			}
		}
		refused(map[string]any{"roles": []string{"admin"}}, "roles") // the workspace has no members
		c.withPeople(t)
		refused(map[string]any{"roles": []string{"viewer"}}, "roles")
		refused(map[string]any{"roles": []string{"admin"}, "approvers": 2}, "approvers")
		refused(map[string]any{"approvers": 3}, "approvers")
		refused(map[string]any{"on_expiry": "wait"}, "on_expiry")
		refused(map[string]any{"conditions": []any{map[string]any{"path": "/q", "operator": "gt", "value": "x"}}}, "conditions[0].value")
		refused(map[string]any{"color": "red"}, "color")
		for _, bad := range []map[string]any{{"approvers": 3}, {"roles": []string{"viewer"}}} {
			r := c.ask(t, "PATCH", path, map[string]any{"tool_settings": map[string]any{"search": map[string]any{"approval_rules": bad}}})
			if param := r.Text("error.param"); r.Status != 400 || !strings.HasPrefix(param, "tool_settings.search.approval_rules.") {
				t.Errorf("rules %v of a tool: got %d %s", bad, r.Status, r.Body)
			}
		}
		if after := c.get(t, path); string(after.Body) != string(server.Body) || c.rows(t, "tool_servers") != 1 {
			t.Errorf("refused changes left %s", after.Body)
		}
		if got := c.ask(t, "PATCH", path, map[string]any{"approval_rules": nil}).Want(t, 200, ""); got.At("approval_rules") != nil {
			t.Errorf("removed rules are shown as %s", got.Body)
		}
	})
}

func TestApprovalRulesOfRegisteredServerApplyToMCPCalls(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		c.withPeople(t)
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL, "require_approval", "always", "approval_rules", map[string]any{"roles": []string{"owner", "admin", "developer"}, "approvers": 2, "exclude_creator": true,
			"conditions": []any{map[string]any{"path": "/q", "operator": "eq", "value": "x"}}})
		owner, developer := c.person("usr_owner", accounts.Owner), c.person("usr_developer", accounts.Developer)
		session := c.connectMCP(t, "/mcp", c.keyOf(t, "usr_creator"), nil)
		if got := <-toolCallInBackground(t.Context(), session, "docs__search", map[string]any{"q": "y"}); !strings.Contains(got, "found") {
			t.Errorf("a call that meets no condition returned %q", got)
		}
		done := toolCallInBackground(t.Context(), session, "docs__search", map[string]any{"q": "x"})
		a := c.waitingApproval(t)
		approve := toolservers.Decision{Approve: true}
		for name, refused := range map[string]error{
			"a viewer":    c.decideToolAs(t, c.person("usr_viewer", accounts.Viewer), a, approve),
			"the creator": c.decideToolAs(t, c.person("usr_creator", accounts.Owner), a, approve),
		} {
			if !fault.Is(refused, fault.InsufficientScope) {
				t.Errorf("%s: %v, want insufficient_scope", name, refused)
			}
		}
		if err := c.decideToolAs(t, owner, a, toolservers.Decision{Approve: true, Response: "No."}); !fault.Is(err, fault.InvalidParameter) {
			t.Errorf("a response with two approvers: %v, want invalid_parameter", err)
		}
		for range 2 { // the same person twice is one approval
			if err := c.decideToolAs(t, owner, a, approve); err != nil {
				t.Fatal(err)
			}
		}
		if still := c.waitingApproval(t); fmt.Sprint(still.ApprovedBy) != "[usr_owner]" || len(docs.called()) != 1 {
			t.Fatalf("after one approval: %+v and calls %q", still, docs.called())
		}
		if err := c.decideToolAs(t, developer, a, approve); err != nil {
			t.Fatal(err)
		}
		if got := <-done; !strings.Contains(got, "found") || len(docs.called()) != 2 {
			t.Errorf("the result is %q after calls %q", got, docs.called())
		}
		// One denial is enough.
		done = toolCallInBackground(t.Context(), session, "docs__search", map[string]any{"q": "x"})
		if err := c.decideToolAs(t, developer, c.waitingApproval(t), toolservers.Decision{Reason: "No."}); err != nil {
			t.Fatal(err)
		}
		if got := <-done; !strings.Contains(got, "denied") || len(docs.called()) != 2 {
			t.Errorf("the result is %q after calls %q", got, docs.called())
		}
	})
}

func TestCallThatNoOneCanApproveFailsImmediately(t *testing.T) {
	eachMCP(t, sqlite, nil, func(t *testing.T, c *client) { // without members
		docs := newToolUpstream(t)
		refused := c.ask(t, "POST", "/v1/tool_servers", map[string]any{"label": "docs", "url": docs.URL, "approval_rules": map[string]any{"approvers": 2}}).Want(t, 400, "invalid_parameter")
		if refused.Text("error.param") != "approval_rules.approvers" {
			t.Errorf("a server that only one key could approve for: %s", refused.Body)
		}
		c.newKey(t, liveKey("agents.runs:approve")) // can approve calls of runs only
		c.register(t, "docs", docs.URL, "require_approval", "always", "approval_rules", map[string]any{"approvers": 2})
		if got := <-toolCallInBackground(t.Context(), c.connectMCP(t, "/mcp", c.key, nil), "docs__search", map[string]any{"q": "x"}); !strings.Contains(got, "approval_rules") || len(docs.called()) != 0 {
			t.Errorf("the result is %q after calls %q", got, docs.called())
		}
	})
}

func TestApprovalRulesOfOneToolReplaceThoseOfItsServer(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		c.withPeople(t)
		docs := newToolUpstream(t)
		never := map[string]any{"conditions": []any{map[string]any{"path": "/q", "operator": "eq", "value": "never"}}}
		server := c.register(t, "docs", docs.URL, "require_approval", "always", "approval_rules", never,
			"tool_settings", map[string]any{"search": map[string]any{"approval_rules": map[string]any{"roles": []string{"owner"}}}})
		if got := server.At("tool_settings.search.approval_rules.roles.0"); got != "owner" {
			t.Errorf("the rules are shown as %s", server.Body)
		}
		owner, developer := c.person("usr_owner", accounts.Owner), c.person("usr_developer", accounts.Developer)
		session := c.connectMCP(t, "/mcp", c.key, nil)
		search := toolCallInBackground(t.Context(), session, "docs__search", map[string]any{"q": "y"})
		a := c.waitingApproval(t)
		if err := c.decideToolAs(t, developer, a, toolservers.Decision{Approve: true}); !fault.Is(err, fault.InsufficientScope) {
			t.Errorf("a developer decides: %v, want insufficient_scope", err)
		}
		if err := c.decideToolAs(t, owner, a, toolservers.Decision{Approve: true}); err != nil {
			t.Fatal(err)
		}
		if got := <-search; !strings.Contains(got, "found") {
			t.Errorf("the approved call returned %q", got)
		}
		// Without its own rules, the tool has the server's.
		c.ownerChanges(t, server.Text("id"), func(s *toolservers.Server) { s.ToolRules = nil })
		if got := <-toolCallInBackground(t.Context(), session, "docs__search", map[string]any{"q": "y"}); !strings.Contains(got, "found") {
			t.Errorf("a call that meets no condition returned %q", got)
		}
	})
}

// ownerChanges changes a server as an owner does in the dashboard.
func (c *client) ownerChanges(t *testing.T, id string, apply func(*toolservers.Server)) {
	t.Helper()
	c.write(t, func(tx *db.Tx) error {
		_, err := c.approver(t).Change(t.Context(), tx, toolservers.ServerChange{By: c.person("usr_owner", accounts.Owner), Visibility: visibility.Filter{Tenant: c.workspace.In(c.env)}, ID: id,
			Decide: func(*toolservers.Server) (toolservers.Change, error) { return toolservers.Change{Apply: apply}, nil }})
		return err
	})
}

// N7: a key that may edit servers can't remove the rules that stop it.
func TestKeyCannotLoosenApprovalRules(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		c.withPeople(t)
		docs := newToolUpstream(t)
		path := "/v1/tool_servers/" + c.register(t, "docs", docs.URL, "require_approval", "always", "approval_rules", map[string]any{"roles": []string{"owner"}}).Text("id")
		before := c.get(t, path)
		narrow, _ := c.newKey(t, liveKey("tool_servers:write", "mcp.tools:call"))
		for _, key := range []string{narrow, c.key} {
			for _, change := range []map[string]any{{"require_approval": "never", "approval_rules": map[string]any{}}, {"approval_rules": nil},
				{"require_approval": map[string]any{"never": map[string]any{"tool_names": []string{"search"}}}},
				{"tool_settings": map[string]any{"search": map[string]any{"approval_rules": map[string]any{}}}}} {
				c.Do(t, harness.Request{Method: "PATCH", Path: path, Key: key, Body: change}).Want(t, 403, "insufficient_scope")
			}
		}
		if after := c.get(t, path); string(after.Body) != string(before.Body) {
			t.Errorf("refused changes left %s", after.Body)
		}
		// What makes rules stricter, or has nothing to do with them, needs only the scope to edit.
		for _, change := range []map[string]any{{"description": "Papers"}, {"approval_rules": map[string]any{"roles": []string{"owner"}, "exclude_creator": false, "on_expiry": "report"}},
			{"tool_settings": map[string]any{"search": map[string]any{"approval_rules": map[string]any{"roles": []string{"owner"}, "on_expiry": "report"}}}}} {
			c.Do(t, harness.Request{Method: "PATCH", Path: path, Key: narrow, Body: change}).Want(t, 200, "")
		}
		// Default rules can be satisfied by a key that may approve calls.
		open := "/v1/tool_servers/" + c.register(t, "open", docs.URL, "require_approval", "always").Text("id")
		c.Do(t, harness.Request{Method: "PATCH", Path: open, Key: narrow, Body: map[string]any{"require_approval": "never"}}).Want(t, 403, "insufficient_scope")
		c.ask(t, "PATCH", open, map[string]any{"require_approval": "never"}).Want(t, 200, "")
	})
}

func TestApprovalRulesOfRegisteredServerApplyToRuns(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		l.withPeople(t)
		docs := newToolUpstream(t)
		// Rules of the tool replace those of the server.
		id := l.register(t, "docs", docs.URL, "require_approval", "always", "approval_rules", map[string]any{"approvers": 2},
			"tool_settings", map[string]any{"search": map[string]any{"approval_rules": map[string]any{"roles": []string{"owner"}, "on_expiry": "report",
				"conditions": []any{map[string]any{"path": "/q", "operator": "eq", "value": "x"}}}}}).Text("id")
		tool := func(more ...any) []any {
			spec := map[string]any{"type": "mcp", "server_label": "docs"}
			for i := 0; i < len(more); i += 2 {
				spec[more[i].(string)] = more[i+1]
			}
			return []any{spec}
		}
		free := l.model.addScript("free", calls(toolCall{"docs__search", `{"q":"y"}`}), reply{text: "Done."})
		l.waitForEnd(t, l.startRun(t, runBody(free, tool())), "completed")
		// The run can ask for a decision about every call, and can't send its own rules.
		path := l.startRun(t, runBody(free, tool("require_approval", "always")))
		l.waitForAction(t, path, "awaiting_approval")
		if r := l.ask(t, "POST", runs, runBody("x", tool("approval_rules", map[string]any{"approvers": 1}))); r.Status != 400 || r.Text("error.param") != "tools[0].approval_rules" {
			t.Errorf("rules in a run: %d %s", r.Status, r.Body)
		}
		late := l.model.addScript("late", calls(toolCall{"docs__search", `{"q":"x"}`}), reply{text: "Never mind."})
		path = l.startRun(t, runBody(late, tool(), "approval_timeout_seconds", 100))
		asked := l.waitForAction(t, path, "awaiting_approval")[0]
		l.decide(t, path, asked["id"].(string), "approve").Want(t, 403, "insufficient_scope") // keys have no role
		// A run keeps the rules of its start.
		l.ownerChanges(t, id, func(s *toolservers.Server) { s.Rules, s.ToolRules = tools.ApprovalRules{}, nil })
		l.decide(t, path, asked["id"].(string), "approve").Want(t, 403, "insufficient_scope")
		l.advance(t, 100*time.Second)
		l.waitForEnd(t, path, "completed")
		told := l.model.requests("late")
		if last := told[len(told)-1].last(); !strings.Contains(last, "no one decided about it in time") || len(docs.called()) != 1 {
			t.Errorf("the model got %q after calls %q", last, docs.called())
		}
	})
}
