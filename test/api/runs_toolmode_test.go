package api_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
)

// inSandbox returns the client with a test key.
func (l *agentClient) inSandbox(t *testing.T) *agentClient {
	t.Helper()
	out := *l
	out.client = l.client.withTestKey(t)
	return &out
}

// scripted returns a run of a test key that follows the script's steps.
func scripted(steps string, tools []any, more ...any) map[string]any {
	return runBody("[[sim:script="+steps+"]]", tools, append([]any{"model", "gpt-4o"}, more...)...)
}

// setTestTools changes the workspace's setting, like the operator.
func (l *agentClient) setTestTools(t *testing.T, mode accounts.ToolMode) {
	t.Helper()
	l.ChangeWorkspace(t, l.workspace.ID, func(w *accounts.Workspace) { w.TestTools = mode })
}

func TestTestKeysSimulateTools(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		sink := newTool(t, l, "real")
		l = l.inSandbox(t)
		tools := []any{webTool("stock", sink.URL), approved("pay", sink.URL),
			map[string]any{"type": "mcp", "server_label": "docs", "server_url": sink.URL, "require_approval": "never"},
			map[string]any{"type": "mcp", "server_label": "few", "server_url": sink.URL, "allowed_tools": []string{"a.b", "close", "close"}, "require_approval": map[string]any{"never": map[string]any{"tool_names": []string{"close"}}}}}
		path := l.startRun(t, scripted(`tool:stock{"q":"<x>"}+tool:docs__echo{"any":[1]}+tool:few__close;tool:pay{"q":"y"};text:Done.`, tools,
			"output", map[string]any{"checks": []any{map[string]any{"type": "http", "url": sink.URL}}}))
		want := l.waitForAction(t, path, "awaiting_approval")
		if len(want) != 1 || want[0]["tool"] != "pay" {
			t.Fatalf("required_actions is %v, want an approval of pay", want)
		}
		l.decide(t, path, want[0]["id"].(string), "approve").Want(t, 200, "")
		r := l.waitForEnd(t, path, "completed")
		if r.At("result.verified") != nil || r.At("result.verification.simulated") != true || r.At("result.verification.checks.0.simulated") != true {
			t.Errorf("result is %v, want an unverified one with a simulated check", r.At("result"))
		}
		var outputs []string
		for _, step := range l.steps(t, path) {
			for _, c := range called(step) {
				if c["simulated"] != true || c["is_error"] != false {
					t.Errorf("call is %v, want a simulated one", c)
				}
				outputs = append(outputs, c["output"].(string))
			}
		}
		expected := []string{`{"simulated":true,"tool":"stock","arguments":{"q":"<x>"}}`, `{"simulated":true,"tool":"docs__echo","arguments":{"any":[1]}}`,
			`{"simulated":true,"tool":"few__close","arguments":{}}`, `{"simulated":true,"tool":"pay","arguments":{"q":"y"}}`}
		if !slices.Equal(outputs, expected) {
			t.Errorf("outputs are %q, want %q", outputs, expected)
		}
		var marked, verified int
		for _, e := range objects(l.get(t, path+"/events"), "data") {
			data := e["data"].(map[string]any)
			if e["type"] == "tool_call.completed" && data["simulated"] == true {
				marked++
			}
			if e["type"] == "run.verified" && data["simulated"] == true {
				verified++
			}
		}
		if marked != 4 || verified != 1 {
			t.Errorf("the log marks %d calls and %d verifications as simulated, want 4 and 1", marked, verified)
		}
		published := l.eventsOf(t, idOf(path))
		if got := fmt.Sprint(published[0]["data"].(map[string]any)["result"].(map[string]any)["verification"]); !strings.Contains(got, "simulated:true") {
			t.Errorf("the event says %s, want simulated", got)
		}

		// The input can set what calls return.
		path = l.startRun(t, runBody("[[sim:tool_result=[1,2]]][[sim:script=tool:stock+tool:docs__echo;text:Done.]]", tools, "model", "gpt-4o"))
		l.waitForEnd(t, path, "completed")
		for _, c := range called(l.steps(t, path)[0]) {
			if c["output"] != "[1,2]" || c["simulated"] != true {
				t.Errorf("call is %v, want the set output", c)
			}
		}
		// A failed schema check is reported even if tools are simulated.
		path = l.startRun(t, scripted("invalid*2", nil, "output", map[string]any{"schema": map[string]any{"type": "object"}, "checks": []any{map[string]any{"type": "http", "url": sink.URL}}}))
		l.waitForFailure(t, path, "verification_failed")
		if n := sink.count(); n != 0 {
			t.Errorf("the server got %d requests, want none", n)
		}
	})
}

func TestWorkspaceSettingEnablesRealToolsForTestKeys(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		sink := newTool(t, l, "real")
		l = l.inSandbox(t)
		begin := func() (path, approval string) {
			path = l.startRun(t, scripted("tool:pay;text:Done.", []any{approved("pay", sink.URL)}))
			return path, l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		}
		check := func(path, approval string, simulated bool) {
			t.Helper()
			before := sink.count()
			l.decide(t, path, approval, "approve").Want(t, 200, "")
			l.waitForEnd(t, path, "completed")
			requests := map[bool]int{true: 0, false: 1}[simulated]
			if c := called(l.steps(t, path)[0])[0]; c["simulated"] != simulated || sink.count() != before+requests {
				t.Errorf("call is %v with %d requests, want simulated %v", c, sink.count()-before, simulated)
			}
		}
		simulated, first := begin()
		l.setTestTools(t, accounts.ToolsReal)
		check(simulated, first, true)
		path, approval := begin()
		check(path, approval, false)
		path, approval = begin()
		l.setTestTools(t, accounts.ToolsSimulated)
		check(path, approval, true)
	})
}

func TestServerSettingIsTheDefaultForTestTools(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) { cfg.Agents.TestToolsDefault = "real" }, func(t *testing.T, l *agentClient) {
		sink := newTool(t, l, "real")
		l = l.inSandbox(t)
		run := func() map[string]any {
			path := l.startRun(t, scripted("tool:stock;text:Done.", []any{webTool("stock", sink.URL)}))
			l.waitForEnd(t, path, "completed")
			return called(l.steps(t, path)[0])[0]
		}
		if c := run(); c["output"] != "real" || c["simulated"] != false {
			t.Errorf("call is %v, want a real one", c)
		}
		l.setTestTools(t, accounts.ToolsSimulated)
		if c := run(); c["simulated"] != true || sink.count() != 1 {
			t.Errorf("call is %v after %d requests, want a simulated one", c, sink.count())
		}
	})
}

func TestLiveKeysCallRealTools(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		sink := newTool(t, l, "real")
		l.setTestTools(t, accounts.ToolsSimulated)
		path := l.startRun(t, runBody(l.model.addScript("live", calls(toolCall{"stock", ok}), reply{text: "Done."})+" [[sim:tool_result=fake]]", []any{webTool("stock", sink.URL)}))
		l.waitForEnd(t, path, "completed")
		if c := called(l.steps(t, path)[0])[0]; c["output"] != "real" || c["simulated"] != false {
			t.Errorf("call is %v, want a real one", c)
		}
	})
}

func TestKeysCannotChangeTheTestToolSetting(t *testing.T) {
	reference, err := os.ReadFile("../../internal/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(reference), "test_tools:") {
		t.Error("the reference has a field test_tools")
	}
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		for _, r := range []struct{ method, path string }{{"PATCH", "/v1/billing"}, {"POST", "/v1/projects"}, {"POST", "/v1/keys"}, {"POST", runs}} {
			if got := l.ask(t, r.method, r.path, map[string]any{"test_tools": "real"}); got.Status != 400 {
				t.Errorf("%s %s returned %d, want 400", r.method, r.path, got.Status)
			}
		}
		for _, path := range []string{"/v1/workspace", "/v1/workspaces/" + l.workspace.ID, "/v1/settings"} {
			l.ask(t, "PATCH", path, map[string]any{"test_tools": "real"}).Want(t, 404, "not_found")
		}
	})
}
