package api_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
)

// waitsForRoom waits until a run is postponed.
func (l *agentClient) waitsForRoom(t *testing.T, path string) {
	t.Helper()
	l.Eventually(t, func() bool {
		return l.number(t, "SELECT COUNT(*) FROM agent_runs WHERE id = $1 AND due_at > $2", idOf(path), l.Clock.Now().UnixMicro()) == 1
	})
}

// repeatedCalls returns n calls of the tool.
func repeatedCalls(n int, tool string) reply {
	var list []toolCall
	for range n {
		list = append(list, toolCall{tool, ok})
	}
	return calls(list...)
}

// neighbor is another workspace of the same server.
func (l *agentClient) neighbor(t *testing.T) *agentClient {
	t.Helper()
	out := *l
	out.client = newClient(t, l.Server, accounts.Live)
	return &out
}

func TestToolRequestsWaitForTheWorkspaceLimit(t *testing.T) {
	limit := func(cfg *config.Config) {
		cfg.Agents.RequestsPerMinute, cfg.Agents.TestToolsDefault = 3, "real"
		cfg.Agents.Concurrency, cfg.Agents.PerWorkspace = 1, 1
	}
	eachAgents(t, sqlite, limit, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		tools := []any{webTool("stock", stockTool.URL)}
		sandbox := l.inSandbox(t)
		tested := sandbox.startRun(t, scripted("tool:stock+tool:stock+tool:stock+tool:stock;text:Done.", tools))
		sandbox.waitsForRoom(t, tested)
		stockTool.wait(t, l.client, 3)

		path := l.startRun(t, runBody(l.model.addScript("five", repeatedCalls(5, "stock"), reply{text: "Done."}), tools))
		l.waitsForRoom(t, path)
		if r := l.get(t, path); r.Text("status") != "in_progress" || stockTool.count() != 6 {
			t.Fatalf("the run is %s after %d requests, want it to wait after 6", r.Body, stockTool.count())
		}
		ready := 0
		for _, c := range called(l.steps(t, path)[0]) {
			if c["status"] == "ready" {
				ready++
			}
		}
		if ready != 2 {
			t.Errorf("%d calls are ready, want 2", ready)
		}
		other := l.neighbor(t)
		other.waitForEnd(t, other.startRun(t, runBody(l.model.addScript("one", repeatedCalls(1, "stock"), reply{text: "Done."}), tools)), "completed")
		if stockTool.count() != 7 {
			t.Errorf("there were %d requests, want 7", stockTool.count())
		}
		l.advance(t, time.Minute)
		sandbox.waitForEnd(t, tested, "completed")
		l.waitForEnd(t, path, "completed")
		for _, c := range called(l.steps(t, path)[0]) {
			if c["output"] != "3" || c["is_error"] != false {
				t.Errorf("call is %v, want the tool's output", c)
			}
		}
		if stockTool.count() != 10 {
			t.Errorf("there were %d requests, want 10", stockTool.count())
		}
	})
}

func TestToolRequestsPerHostAreLimited(t *testing.T) {
	limit := func(cfg *config.Config) {
		cfg.Agents.HostRequestsPerMinute, cfg.Agents.UnlimitedHosts = 3, []string{"LocalHost"}
	}
	eachAgents(t, sqlite, limit, func(t *testing.T, l *agentClient) {
		stockTool, payTool := newTool(t, l, "3"), newTool(t, l, "4")
		first := l.startRun(t, runBody(l.model.addScript("two", repeatedCalls(2, "stock"), reply{text: "Done."}), []any{webTool("stock", stockTool.URL)}))
		l.waitForEnd(t, first, "completed")
		other := l.neighbor(t)
		second := other.startRun(t, runBody(l.model.addScript("three", repeatedCalls(3, "pay"), reply{text: "Done."}), []any{webTool("pay", payTool.URL)}))
		other.waitsForRoom(t, second)
		if stockTool.count() != 2 || payTool.count() != 1 {
			t.Errorf("there were %d and %d requests, want 2 and 1", stockTool.count(), payTool.count())
		}
		own := strings.Replace(stockTool.URL, "127.0.0.1", "localhost", 1)
		l.waitForEnd(t, l.startRun(t, runBody(l.model.addScript("own", repeatedCalls(4, "stock"), reply{text: "Done."}), []any{webTool("stock", own)})), "completed")
		l.advance(t, time.Minute)
		other.waitForEnd(t, second, "completed")
	})
}

func TestMCPRequestsCountTowardTheLimit(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) { cfg.Agents.RequestsPerMinute = 2 }, func(t *testing.T, l *agentClient) {
		server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
		mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil, nil
		})
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
		var mu sync.Mutex
		var sent []string
		docs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			sent = append(sent, r.Method+" "+string(body))
			mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(docs.Close)
		got := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(sent, "\n")
		}
		path := l.startRun(t, runBody(l.model.addScript("search", calls(toolCall{"docs__search", "{}"}), reply{text: "Done."}),
			[]any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": docs.URL, "require_approval": "never"}}))
		l.waitsForRoom(t, path)
		if sent := got(); !strings.Contains(sent, "tools/list") || strings.Contains(sent, "tools/call") {
			t.Errorf("the server got %s, want a list and no call", sent)
		}
		if r := l.get(t, path); r.Text("status") != "in_progress" {
			t.Errorf("the run is %s, want in_progress", r.Body)
		}
		for range 3 { // also waits for the requests beyond the limit
			l.advance(t, time.Minute)
		}
		l.waitForEnd(t, path, "completed")
		if sent := got(); strings.Count(sent, "tools/call") != 1 {
			t.Errorf("the server got %s, want one call", sent)
		}
	})
}

func TestChecksWaitForTheRequestLimit(t *testing.T) {
	eachAgents(t, sqlite, func(cfg *config.Config) { cfg.Agents.RequestsPerMinute = 1 }, func(t *testing.T, l *agentClient) {
		stockTool, checker := newTool(t, l, "3"), newTool(t, l, `{"passed":true}`)
		check := map[string]any{"type": "http", "url": checker.URL}
		path := l.startRun(t, runBody(l.model.addScript("checked", repeatedCalls(1, "stock"), reply{text: "Done."}), []any{webTool("stock", stockTool.URL)},
			"output", map[string]any{"checks": []any{check, check}}))
		l.waitForStatus(t, path, "verifying")
		l.waitsForRoom(t, path)
		if checker.count() != 0 {
			t.Errorf("the check was asked %d times, want none", checker.count())
		}
		l.advance(t, time.Minute)
		if r := l.waitForEnd(t, path, "completed"); r.At("result.verified") != true || r.At("result.verification.simulated") != false || checker.count() != 2 {
			t.Errorf("the run is %s after %d checks, want it verified by 2", r.Body, checker.count())
		}
		// Both count: the next minute's limit is used up.
		path = l.startRun(t, runBody(l.model.addScript("again", repeatedCalls(1, "stock"), reply{text: "Done."}), []any{webTool("stock", stockTool.URL)}))
		l.waitsForRoom(t, path)
		l.advance(t, time.Minute)
		l.waitsForRoom(t, path)
		l.advance(t, 2*time.Minute)
		l.waitForEnd(t, path, "completed")
	})
}

func TestToolCallsPerStepAndRunAreLimited(t *testing.T) {
	limit := func(cfg *config.Config) { cfg.Agents.ToolCallsPerStep, cfg.Agents.ToolCallsPerRun = 2, 5 }
	eachAgents(t, sqlite, limit, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		tools := []any{webTool("stock", stockTool.URL), function("own")}
		step := repeatedCalls(3, "stock")
		step.calls = append(step.calls, toolCall{"own", ok}, toolCall{"own", ok}, toolCall{"own", ok})
		path := l.startRun(t, runBody(l.model.addScript("many", step, repeatedCalls(2, "stock"), repeatedCalls(2, "stock"), reply{text: "Never."}), tools))
		want := l.waitForAction(t, path, "requires_action")
		if len(want) != 3 {
			t.Fatalf("the run waits for %v, want 3 outputs", want)
		}
		for _, w := range want {
			l.output(t, path, w["call_id"].(string), "x").Want(t, 200, "")
		}
		l.waitForFailure(t, path, "max_tool_calls_exceeded")
		if stockTool.count() != 4 {
			t.Errorf("the tool was called %d times, want 4", stockTool.count())
		}
		steps := l.steps(t, path)
		if c := called(steps[0])[2]; c["is_error"] != true || c["started_at"] != nil || !strings.Contains(c["output"].(string), "at most 2 tool calls") {
			t.Errorf("the third call is %v, want it skipped", c)
		}
		for _, c := range called(steps[2]) {
			if c["is_error"] != true || c["started_at"] != nil {
				t.Errorf("the call is %v, want it skipped", c)
			}
		}
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["type"] != "agent.run.failed" {
			t.Errorf("got events %v", e)
		}
	})
}
