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

// waitsForRoom waits until a run is put off.
func (l *lab) waitsForRoom(t *testing.T, path string) {
	t.Helper()
	l.Eventually(t, func() bool {
		return l.number(t, "SELECT COUNT(*) FROM agent_runs WHERE id = $1 AND due_at > $2", idOf(path), l.Clock.Now().UnixMicro()) == 1
	})
}

// several are n calls of the tool.
func several(n int, tool string) saying {
	var list []toolCall
	for range n {
		list = append(list, toolCall{tool, ok})
	}
	return calls(list...)
}

// neighbor is another workspace of the same server.
func (l *lab) neighbor(t *testing.T) *lab {
	t.Helper()
	out := *l
	out.customer = newCustomer(t, l.Server, accounts.Live)
	return &out
}

// TestToolRequestsWaitForTheWorkspaceLimit: a run over the limit fails no call
// and holds no worker. Neither another workspace nor the other environment waits.
func TestToolRequestsWaitForTheWorkspaceLimit(t *testing.T) {
	t.Parallel()
	limit := func(cfg *config.Config) {
		cfg.Agents.RequestsPerMinute, cfg.Agents.TestToolsDefault = 3, "real"
		cfg.Agents.Concurrency, cfg.Agents.PerWorkspace = 1, 1
	}
	eachLab(t, limit, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		tools := []any{webTool("stock", shop.URL)}
		sandbox := l.inSandbox(t)
		tested := sandbox.begin(t, scripted("tool:stock+tool:stock+tool:stock+tool:stock;text:Done.", tools))
		sandbox.waitsForRoom(t, tested)
		shop.wait(t, l.customer, 3)

		path := l.begin(t, task(l.brain.learn("five", several(5, "stock"), saying{text: "Done."}), tools))
		l.waitsForRoom(t, path)
		if r := l.get(t, path); r.Text("status") != "in_progress" || shop.count() != 6 {
			t.Fatalf("the run is %s after %d requests, want it to wait after 6", r.Body, shop.count())
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
		other.ended(t, other.begin(t, task(l.brain.learn("one", several(1, "stock"), saying{text: "Done."}), tools)), "completed")
		if shop.count() != 7 {
			t.Errorf("there were %d requests, want 7", shop.count())
		}
		l.later(t, time.Minute)
		sandbox.ended(t, tested, "completed")
		l.ended(t, path, "completed")
		for _, c := range called(l.steps(t, path)[0]) {
			if c["output"] != "3" || c["is_error"] != false {
				t.Errorf("call is %v, want the tool's output", c)
			}
		}
		if shop.count() != 10 {
			t.Errorf("there were %d requests, want 10", shop.count())
		}
	})
}

// TestToolRequestsToAHostAreLimited for all workspaces together and whatever
// the port, except for the operator's own hosts.
func TestToolRequestsToAHostAreLimited(t *testing.T) {
	t.Parallel()
	limit := func(cfg *config.Config) {
		cfg.Agents.HostRequestsPerMinute, cfg.Agents.UnlimitedHosts = 3, []string{"LocalHost"}
	}
	eachLab(t, limit, func(t *testing.T, l *lab) {
		shop, bank := tellAll(t, l, "3"), tellAll(t, l, "4")
		first := l.begin(t, task(l.brain.learn("two", several(2, "stock"), saying{text: "Done."}), []any{webTool("stock", shop.URL)}))
		l.ended(t, first, "completed")
		other := l.neighbor(t)
		second := other.begin(t, task(l.brain.learn("three", several(3, "pay"), saying{text: "Done."}), []any{webTool("pay", bank.URL)}))
		other.waitsForRoom(t, second)
		if shop.count() != 2 || bank.count() != 1 {
			t.Errorf("there were %d and %d requests, want 2 and 1", shop.count(), bank.count())
		}
		own := strings.Replace(shop.URL, "127.0.0.1", "localhost", 1)
		l.ended(t, l.begin(t, task(l.brain.learn("own", several(4, "stock"), saying{text: "Done."}), []any{webTool("stock", own)})), "completed")
		l.later(t, time.Minute)
		other.ended(t, second, "completed")
	})
}

// TestMCPRequestsCount: all of a session's, not only the call.
func TestMCPRequestsCount(t *testing.T) {
	t.Parallel()
	eachLab(t, func(cfg *config.Config) { cfg.Agents.RequestsPerMinute = 2 }, func(t *testing.T, l *lab) {
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
		path := l.begin(t, task(l.brain.learn("search", calls(toolCall{"docs__search", "{}"}), saying{text: "Done."}),
			[]any{map[string]any{"type": "mcp", "server_label": "docs", "server_url": docs.URL, "require_approval": "never"}}))
		l.waitsForRoom(t, path)
		if sent := got(); !strings.Contains(sent, "tools/list") || strings.Contains(sent, "tools/call") {
			t.Errorf("the server got %s, want a list and no call", sent)
		}
		if r := l.get(t, path); r.Text("status") != "in_progress" {
			t.Errorf("the run is %s, want in_progress", r.Body)
		}
		for range 3 { // what the list took beyond the limit is waited for, too
			l.later(t, time.Minute)
		}
		l.ended(t, path, "completed")
		if sent := got(); strings.Count(sent, "tools/call") != 1 {
			t.Errorf("the server got %s, want one call", sent)
		}
	})
}

// TestChecksWaitForTheRequestLimit before a judge is paid.
func TestChecksWaitForTheRequestLimit(t *testing.T) {
	t.Parallel()
	eachLab(t, func(cfg *config.Config) { cfg.Agents.RequestsPerMinute = 1 }, func(t *testing.T, l *lab) {
		shop, checker := tellAll(t, l, "3"), tellAll(t, l, `{"passed":true}`)
		check := map[string]any{"type": "http", "url": checker.URL}
		path := l.begin(t, task(l.brain.learn("checked", several(1, "stock"), saying{text: "Done."}), []any{webTool("stock", shop.URL)},
			"output", map[string]any{"checks": []any{check, check}}))
		l.becomes(t, path, "verifying")
		l.waitsForRoom(t, path)
		if checker.count() != 0 {
			t.Errorf("the check was asked %d times, want none", checker.count())
		}
		l.later(t, time.Minute)
		if r := l.ended(t, path, "completed"); r.At("result.verified") != true || r.At("result.verification.simulated") != false || checker.count() != 2 {
			t.Errorf("the run is %s after %d checks, want it verified by 2", r.Body, checker.count())
		}
		// Both count: the next minute is used up.
		path = l.begin(t, task(l.brain.learn("again", several(1, "stock"), saying{text: "Done."}), []any{webTool("stock", shop.URL)}))
		l.waitsForRoom(t, path)
		l.later(t, time.Minute)
		l.waitsForRoom(t, path)
		l.later(t, 2*time.Minute)
		l.ended(t, path, "completed")
	})
}

// TestToolCallsPerStepAndRun are limited. Functions don't count: the customer
// executes them.
func TestToolCallsPerStepAndRun(t *testing.T) {
	t.Parallel()
	limit := func(cfg *config.Config) { cfg.Agents.ToolCallsPerStep, cfg.Agents.ToolCallsPerRun = 2, 5 }
	eachLab(t, limit, func(t *testing.T, l *lab) {
		shop := tellAll(t, l, "3")
		tools := []any{webTool("stock", shop.URL), function("own")}
		step := several(3, "stock")
		step.calls = append(step.calls, toolCall{"own", ok}, toolCall{"own", ok}, toolCall{"own", ok})
		path := l.begin(t, task(l.brain.learn("many", step, several(2, "stock"), several(2, "stock"), saying{text: "Never."}), tools))
		want := l.waits(t, path, "requires_action")
		if len(want) != 3 {
			t.Fatalf("the run waits for %v, want 3 outputs", want)
		}
		for _, w := range want {
			l.output(t, path, w["call_id"].(string), "x").Want(t, 200, "")
		}
		l.failed(t, path, "max_tool_calls_exceeded")
		if shop.count() != 4 {
			t.Errorf("the tool was called %d times, want 4", shop.count())
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
			t.Errorf("the events are %v", e)
		}
	})
}
