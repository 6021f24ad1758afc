package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
	"turnpike/test/harness"
)

// toolUpstream is an MCP server that a workspace registers.
type toolUpstream struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	calls    []string // name and arguments
	token    string   // of the last request
	block    chan struct{}
}

func newToolUpstream(t *testing.T) *toolUpstream {
	t.Helper()
	u := &toolUpstream{}
	server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
	add := func(tool *mcp.Tool, result func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		tool.InputSchema = map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}}
		server.AddTool(tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			u.mu.Lock()
			u.calls = append(u.calls, r.Params.Name+string(r.Params.Arguments))
			u.mu.Unlock()
			return result(ctx, r)
		})
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	add(&mcp.Tool{Name: "search", Description: "Searches."}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		out := text("found with " + u.token)
		out.StructuredContent = json.RawMessage(`{"count":12345678901234567890}`)
		return out, nil
	})
	yes := true
	add(&mcp.Tool{Name: "drop", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("dropped"), nil })
	add(&mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		out := text("no shelf")
		out.IsError = true
		return out, nil
	})
	add(&mcp.Tool{Name: "slow"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "half"})
		<-u.block
		return text("slow"), nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	u.block = make(chan struct{})
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.requests++
		u.token = r.Header.Get("Authorization")
		u.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(u.CloseClientConnections)
	return u
}

func (u *toolUpstream) called() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.calls)
}

func (u *toolUpstream) requestCount() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests
}

// eachMCP runs fn on servers that may call tool servers on this machine.
func eachMCP(t *testing.T, engines []string, change func(cfg *config.Config), fn func(t *testing.T, c *client)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) {
		cfg := harness.Config(t, engine)
		cfg.Agents.AllowHTTP, cfg.Agents.AllowCIDRs = true, prefixes(t, "127.0.0.0/8")
		if change != nil {
			change(&cfg)
		}
		fn(t, newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Live))
	})
}

// register registers a tool server with further fields, by name and value.
func (c *client) register(t *testing.T, label, url string, more ...any) *harness.Response {
	t.Helper()
	body := map[string]any{"label": label, "url": url, "require_approval": "never"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return c.ask(t, "POST", "/v1/tool_servers", body).Want(t, 200, "")
}

type bearerTransport struct{ key string }

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// connectMCP opens a session of an MCP client with a key.
func (c *client) connectMCP(t *testing.T, path, key string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: c.URL + path, HTTPClient: &http.Client{Transport: bearerTransport{key}}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func toolNames(t *testing.T, session *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if list.CacheScope != "private" { // Claude Code rejects lists without one
		t.Errorf("the list has the cache scope %q, want private", list.CacheScope)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// useTool calls a tool and returns the text of its result, or of the error.
func useTool(t *testing.T, session *mcp.ClientSession, name string, arguments any) (text string, isError bool) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		return err.Error(), true
	}
	return r.Content[0].(*mcp.TextContent).Text, r.IsError
}

// toolEntries returns the log entries of tool calls, oldest first.
func (c *client) toolEntries(t *testing.T) []map[string]any {
	t.Helper()
	out := slices.DeleteFunc(c.entries(t), func(e map[string]any) bool { return e["provider"] != "mcp" })
	slices.Reverse(out)
	return out
}

// loggedTools returns the tool, path, status and error of each call in the log.
func (c *client) loggedTools(t *testing.T) (out []string) {
	t.Helper()
	for _, e := range c.toolEntries(t) {
		out = append(out, fmt.Sprint(e["model"], " ", e["path"], " ", e["status"], " ", e["error_code"]))
	}
	return out
}

func TestToolsOfRegisteredServersAreCalledUnderOneKey(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs, shop := newToolUpstream(t), newToolUpstream(t)
		c.register(t, "docs", docs.URL, "headers", map[string]string{"Authorization": "Bearer secret-of-docs"})
		c.register(t, "shop", shop.URL, "allowed_tools", []string{"search"})
		session := c.connectMCP(t, "/mcp", c.key, nil)
		if got, want := fmt.Sprint(toolNames(t, session)), "[docs__drop docs__fail docs__search docs__slow shop__search]"; got != want {
			t.Errorf("tools are %s, want %s", got, want)
		}
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "docs__search", Arguments: map[string]any{"q": "x"}})
		if err != nil {
			t.Fatal(err)
		}
		// The upstream gets the registered header, and the client doesn't.
		if got := r.Content[0].(*mcp.TextContent).Text; got != "found with [hidden]" {
			t.Errorf("the result is %q, want the secret hidden", got)
		}
		if docs.token != "Bearer secret-of-docs" || !slices.Equal(docs.called(), []string{`search{"q":"x"}`}) || len(shop.called()) != 0 {
			t.Errorf("docs got %q with %q, and shop %q", docs.called(), docs.token, shop.called())
		}
		if text, isError := useTool(t, session, "docs__fail", nil); text != "no shelf" || !isError {
			t.Errorf("got %q, want the tool's error", text)
		}
		if text, isError := useTool(t, session, "shop__drop", nil); !isError || !strings.Contains(text, "Unknown tool") {
			t.Errorf("a tool that isn't offered: %q, want unknown", text)
		}
		// Each server also has an endpoint with the tools' own names.
		own := c.connectMCP(t, "/mcp/shop", c.key, nil)
		if got := fmt.Sprint(toolNames(t, own)); got != "[search]" {
			t.Errorf("the tools of shop are %s, want [search]", got)
		}
		if text, isError := useTool(t, own, "search", nil); text != "found with " || isError {
			t.Errorf("got %q", text)
		}
		want := []string{"docs__search /mcp 200 <nil>", "docs__fail /mcp 200 <nil>", "shop__search /mcp/shop 200 <nil>"}
		c.Eventually(t, func() bool { return slices.Equal(c.loggedTools(t), want) })
	})
}

// The SDK of a client decodes numbers as floats, so the response itself is compared.
func TestToolResultsPassUnchanged(t *testing.T) {
	eachMCP(t, sqlite, nil, func(t *testing.T, c *client) {
		c.register(t, "docs", newToolUpstream(t).URL)
		r := c.Do(t, harness.Request{Method: "POST", Path: "/mcp", Key: c.key, Header: http.Header{"Accept": {"application/json, text/event-stream"}},
			Body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"docs__search"}}`})
		if r.Status != 200 || !strings.Contains(string(r.Body), `"count":12345678901234567890`) {
			t.Errorf("got %d %s, want the exact number", r.Status, r.Body)
		}
		c.Do(t, harness.Request{Method: "POST", Path: "/mcp", Key: c.key, Body: `[]`}).Want(t, 400, "invalid_json")
		c.Do(t, harness.Request{Method: "POST", Path: "/mcp", Key: c.key, Body: `{}`}).Want(t, 400, "invalid_parameter")
		c.Do(t, harness.Request{Method: "GET", Path: "/mcp", Key: c.key}).Want(t, 405, "method_not_allowed")
		c.Do(t, harness.Request{Method: "POST", Path: "/mcp/none", Key: c.key, Body: `{}`}).Want(t, 404, "not_found")
		c.Do(t, harness.Request{Method: "POST", Path: "/mcp", Body: `{}`}).Want(t, 401, "authentication_error")
	})
}

func TestKeysCallOnlyTheirAllowedTools(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs, shop := newToolUpstream(t), newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		c.register(t, "shop", shop.URL)
		newKey := func(by string, tools any, more ...string) *harness.Response {
			body := map[string]any{"name": "n", "scopes": append([]string{"mcp.tools:call"}, more...), "allowed_tools": tools}
			return c.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: by, Body: body})
		}
		made := newKey(c.key, []string{"docs__search", "shop__*"}, "keys:write").Want(t, 200, "")
		session := c.connectMCP(t, "/mcp", made.Text("value"), nil)
		if got, want := fmt.Sprint(toolNames(t, session)), "[docs__search shop__drop shop__fail shop__search shop__slow]"; got != want {
			t.Errorf("tools are %s, want %s", got, want)
		}
		if text, isError := useTool(t, session, "docs__fail", nil); !isError || !strings.Contains(text, "Unknown tool") || len(docs.called()) != 0 {
			t.Errorf("got %q with calls %q, want an unknown tool", text, docs.called())
		}
		if text, isError := useTool(t, c.connectMCP(t, "/mcp/docs", made.Text("value"), nil), "fail", nil); !isError || !strings.Contains(text, "Unknown tool") {
			t.Errorf("at the server's own endpoint: %q, want an unknown tool", text)
		}
		// A key can't create one that may call more, and its limits apply to its children later.
		for _, wider := range []any{nil, []string{"docs__*"}, []string{"*"}, []string{"docs__fail"}} {
			newKey(made.Text("value"), wider).Want(t, 403, "insufficient_scope")
		}
		child := newKey(made.Text("value"), []string{"shop__search", "docs__search"}).Want(t, 200, "")
		c.ask(t, "PATCH", "/v1/keys/"+made.Text("id"), map[string]any{"allowed_tools": []string{"docs__search"}}).Want(t, 200, "")
		if got := fmt.Sprint(toolNames(t, c.connectMCP(t, "/mcp", child.Text("value"), nil))); got != "[docs__search]" {
			t.Errorf("the child's tools are %s, want its parent's", got)
		}
		c.ask(t, "PATCH", "/v1/keys/"+made.Text("id"), map[string]any{"allowed_tools": []string{}}).Want(t, 200, "")
		if got := toolNames(t, session); len(got) != 0 {
			t.Errorf("tools are %s, want none", got)
		}
		newKey(c.key, []string{"a b"}).Want(t, 400, "invalid_parameter")
	})
}

func TestToolServersOfOtherTenantsAreInvisible(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		pinned, _ := c.KeyOf(t, &access.Key{Tenant: c.workspace.In(accounts.Live), Name: "pinned", Scopes: []string{"*"}, Project: "p"})
		stranger := newClient(t, c.Server, accounts.Live)
		for name, key := range map[string]string{"another workspace": stranger.key, "the test environment": c.withTestKey(t).key, "a pinned key": pinned} {
			session := c.connectMCP(t, "/mcp", key, nil)
			if got := toolNames(t, session); len(got) != 0 {
				t.Errorf("%s sees %s", name, got)
			}
			if text, isError := useTool(t, session, "docs__search", nil); !isError || !strings.Contains(text, "Unknown tool") {
				t.Errorf("%s calls: %q, want an unknown tool", name, text)
			}
			c.Do(t, harness.Request{Method: "POST", Path: "/mcp/docs", Key: key, Body: `{}`}).Want(t, 404, "not_found")
		}
		if docs.requestCount() != 0 {
			t.Errorf("the server got %d requests, want none", docs.requestCount())
		}
	})
}

func TestTestKeysCallSimulatedTools(t *testing.T) {
	eachMCP(t, sqlite, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		sandbox := c.withTestKey(t)
		made := sandbox.register(t, "docs", docs.URL, "tool_settings", map[string]any{"echo": map[string]any{"price_per_call": 2}})
		session := sandbox.connectMCP(t, "/mcp", sandbox.key, nil)
		if got := fmt.Sprint(toolNames(t, session)); got != "[docs__echo]" {
			t.Errorf("tools are %s, want [docs__echo]", got)
		}
		if text, isError := useTool(t, session, "docs__echo", map[string]any{"q": 1}); text != `{"simulated":true,"tool":"docs__echo","arguments":{"q":1}}` || isError {
			t.Errorf("got %q, want a simulated result", text)
		}
		sandbox.ask(t, "POST", "/v1/tool_servers/"+made.Text("id")+"/refresh", nil).Want(t, 409, "invalid_state")
		if docs.requestCount() != 0 {
			t.Errorf("the server got %d requests, want none", docs.requestCount())
		}
		if e := sandbox.toolEntries(t); len(e) != 1 || e[0]["credits"] != 0.0 || e[0]["simulated_credits"] != 2.0 {
			t.Errorf("the log has %v, want one free call", e)
		}
	})
}

func TestToolServerSecretsAreNeverShown(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs, other := newToolUpstream(t), newToolUpstream(t)
		path := "/v1/tool_servers/" + c.register(t, "docs", docs.URL, "headers", map[string]string{"Authorization": "Bearer secret-of-docs"}).Text("id")
		r := c.ask(t, "POST", path+"/refresh", nil).Want(t, 200, "")
		if r.At("has_headers") != true || r.Text("tools.0.listed_name") != "docs__drop" || r.At("tools.0.require_approval") != true || r.At("tools.1.require_approval") != false {
			t.Errorf("got %s", r.Body)
		}
		// A new host gets the secret only if someone who knows it says so.
		c.ask(t, "PATCH", path, map[string]any{"url": other.URL}).Want(t, 400, "missing_parameter")
		if docs.token == "" || other.requestCount() != 0 {
			t.Errorf("the other host got %d requests", other.requestCount())
		}
		c.ask(t, "PATCH", path, map[string]any{"url": other.URL, "headers": nil}).Want(t, 200, "")
		c.ask(t, "POST", path+"/refresh", nil).Want(t, 200, "")
		if other.token != "" {
			t.Errorf("the other host got %q, want no header", other.token)
		}
		other.Close()
		r = c.ask(t, "POST", path+"/refresh", nil).Want(t, 200, "")
		if r.Text("problem") == "" || len(r.At("tools").([]any)) != 4 {
			t.Errorf("got %s, want the problem and the previous tools", r.Body)
		}
		c.ask(t, "POST", "/v1/tool_servers", map[string]any{"label": "docs", "url": docs.URL}).Want(t, 400, "invalid_parameter")
		for _, bad := range []map[string]any{{"label": "a__b"}, {"label": "turnpike"}, {"label": ""}, {"require_approval": "maybe"}, {"timeout_seconds": 0}, {"headers": map[string]string{"Host": "x"}},
			{"tool_settings": map[string]any{"search": map[string]any{"price_per_call": -1}}}, {"allowed_tools": []string{}}} {
			body := map[string]any{"label": "x", "url": docs.URL}
			for name, value := range bad {
				body[name] = value
			}
			if r := c.ask(t, "POST", "/v1/tool_servers", body); r.Status != 400 {
				t.Errorf("%v: %d %s, want 400", bad, r.Status, r.Body)
			}
		}
		if dump := string(c.DumpDatabase(t)); strings.Contains(dump, "secret-of-docs") {
			t.Error("the database contains a secret")
		}
	})
}

func TestProgressOfToolsReachesTheClient(t *testing.T) {
	eachMCP(t, sqlite, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		progress := make(chan string, 1)
		session := c.connectMCP(t, "/mcp", c.key, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Message
		}})
		done := make(chan string, 1)
		go func() {
			params := &mcp.CallToolParams{Name: "docs__slow"}
			params.SetProgressToken("mine")
			r, err := session.CallTool(t.Context(), params)
			if err != nil {
				done <- err.Error()
				return
			}
			done <- r.Content[0].(*mcp.TextContent).Text
		}()
		if got := <-progress; got != "half" { // before the result
			t.Errorf("progress is %q, want half", got)
		}
		close(docs.block)
		if got := <-done; got != "slow" {
			t.Errorf("the result is %q, want slow", got)
		}
	})
}

func TestCancelledToolCallEnds(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		defer close(docs.block)
		c.register(t, "docs", docs.URL)
		ctx, cancel := context.WithCancel(t.Context())
		session := c.connectMCP(t, "/mcp", c.key, nil)
		done := make(chan error, 1)
		go func() {
			_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "docs__slow"})
			done <- err
		}()
		c.Eventually(t, func() bool { return len(docs.called()) == 1 })
		cancel()
		<-done
		c.Eventually(t, func() bool {
			e := c.toolEntries(t)
			return len(e) == 1 && e[0]["status"] != nil
		})
	})
}

// setToolPrice changes the price of a tool.
func (c *client) setToolPrice(t *testing.T, id, tool string, price any) {
	t.Helper()
	c.ask(t, "PATCH", "/v1/tool_servers/"+id, map[string]any{"tool_settings": map[string]any{tool: map[string]any{"price_per_call": price}}}).Want(t, 200, "")
}

func TestToolPricesAreChargedExactly(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		id := c.register(t, "docs", docs.URL, "tool_settings", map[string]any{"search": map[string]any{"price_per_call": 0.3}, "fail": map[string]any{"price_per_call": 0.3}}).Text("id")
		made := c.ask(t, "POST", "/v1/keys", map[string]any{"name": "n", "scopes": []string{"mcp.tools:call"}, "monthly_budget": 1}).Want(t, 200, "")
		session := c.connectMCP(t, "/mcp", made.Text("value"), nil)
		useTool(t, session, "docs__fail", nil) // tools that fail are free
		for i := range 4 {
			if text, isError := useTool(t, session, "docs__search", nil); isError != (i == 3) || isError != strings.Contains(text, "budget") {
				t.Errorf("call %d: got %q, want a budget for three", i, text)
			}
		}
		if n := len(docs.called()); n != 4 {
			t.Errorf("%d calls were made, want 4", n)
		}
		spent := func() any {
			return c.get(t, "/v1/keys/"+made.Text("id")).At("spent_this_month")
		}
		c.Eventually(t, func() bool { return spent() == 0.9 })
		if r := c.get(t, "/v1/billing"); r.At("used") != 0.9 || r.At("reserved") != 0.0 {
			t.Errorf("billing is %s, want 0.9 used", r.Body)
		}
		credits, blocked := 0.0, 0
		for _, e := range c.toolEntries(t) {
			credits += e["credits"].(float64)
			if e["error_code"] == "budget_exceeded" {
				blocked++
			}
		}
		if fmt.Sprintf("%.6f", credits) != "0.900000" || blocked != 1 {
			t.Errorf("the log has %v credits and %d refusals, want 0.9 and 1", credits, blocked)
		}
		// Another price applies to the next call.
		c.setToolPrice(t, id, "search", 0.1)
		if text, isError := useTool(t, session, "docs__search", nil); isError {
			t.Errorf("got %q, want a call for the rest of the budget", text)
		}
		if text, isError := useTool(t, session, "docs__search", nil); !isError || !strings.Contains(text, "budget") {
			t.Errorf("got %q, want no budget left", text)
		}
		c.Eventually(t, func() bool { return spent() == 1.0 })
	})
}

// A crash between the call and its result must not lose the charge.
func TestInterruptedToolCallIsChargedAsReserved(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		defer close(docs.block)
		c.register(t, "docs", docs.URL, "tool_settings", map[string]any{"slow": map[string]any{"price_per_call": 0.5}})
		session := c.connectMCP(t, "/mcp", c.key, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _, _ = session.CallTool(ctx, &mcp.CallToolParams{Name: "docs__slow"}) }()
		c.Eventually(t, func() bool { return len(docs.called()) == 1 })
		reserved, err := db.Value[int64](c.DB.QueryRow(t.Context(), "SELECT reserved FROM requests WHERE provider = 'mcp' AND NOT settled"))
		if err != nil || reserved != 500_000 {
			t.Errorf("the open log entry has %d reserved (%v), want 500000", reserved, err)
		}
		cancel()
		c.Eventually(t, func() bool {
			e := c.toolEntries(t)
			return len(e) == 1 && e[0]["credits"] == 0.5 // the call may have had an effect
		})
	})
}

// approver decides about calls and changes servers as the dashboard does.
func (c *client) approver(t *testing.T) *toolservers.Service {
	t.Helper()
	guard := safehttp.New(safehttp.Policy{AllowHTTP: true, AllowCIDRs: prefixes(t, "127.0.0.0/8")})
	return toolservers.New(toolservers.Options{DB: c.DB, Ring: c.Ring, Guard: guard, Now: c.Clock.Now,
		TestTools: func() accounts.ToolMode { return accounts.ToolsReal }})
}

// waitingApproval returns the only call that waits for a decision.
func (c *client) waitingApproval(t *testing.T) *toolservers.Approval {
	t.Helper()
	var found []*toolservers.Approval
	c.Eventually(t, func() bool {
		page, err := c.approver(t).Approvals(t.Context(), c.DB, visibility.Filter{Tenant: c.workspace.In(c.env)}, toolservers.Pending, db.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		found = page.Rows
		return len(found) > 0
	})
	if len(found) != 1 {
		t.Fatalf("%d calls wait, want 1", len(found))
	}
	return found[0]
}

func (c *client) decideTool(t *testing.T, a *toolservers.Approval, approve bool, reason string) error {
	t.Helper()
	return c.decideToolAs(t, c.person("usr_1", accounts.Owner), a, toolservers.Decision{Approve: approve, Reason: reason})
}

// person returns a member who decides in the dashboard.
func (c *client) person(id string, role accounts.Role) tools.Decider {
	return tools.Decider{Principal: access.PersonPrincipal(id, role, c.workspace.In(c.env)), Actor: audit.Actor{Name: id}, Role: role}
}

// decideToolAs makes a decision about a call and the arguments in a.
func (c *client) decideToolAs(t *testing.T, by tools.Decider, a *toolservers.Approval, d toolservers.Decision) error {
	t.Helper()
	d.ApprovalID, d.Hash = a.ID, a.Hash
	return c.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := c.approver(t).Decide(t.Context(), tx, by, d)
		return err
	})
}

// toolCallInBackground makes a call that may wait, and sends the text of its result.
func toolCallInBackground(ctx context.Context, session *mcp.ClientSession, name string, arguments any) <-chan string {
	done := make(chan string, 1)
	go func() {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		params.SetProgressToken("mine")
		r, err := session.CallTool(ctx, params)
		if err != nil {
			done <- "error: " + err.Error()
			return
		}
		done <- r.Content[0].(*mcp.TextContent).Text
	}()
	return done
}

func TestMCPCallWaitsForApproval(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		progress := make(chan string, 100)
		session := c.connectMCP(t, "/mcp", c.key, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- r.Params.Message
		}})
		done := toolCallInBackground(t.Context(), session, "docs__drop", map[string]any{"b": 1, "a": 2}) // destructive, so "never" doesn't apply
		a := c.waitingApproval(t)
		if a.Tool != "docs__drop" || a.Arguments != `{"a":2,"b":1}` || a.Status(c.Clock.Now()) != toolservers.Pending {
			t.Errorf("the approval is %+v", a)
		}
		if got := <-progress; !strings.Contains(got, "/approvals") {
			t.Errorf("progress is %q, want where to decide", got)
		}
		if len(docs.called()) != 0 {
			t.Fatalf("the server got %q before the decision", docs.called())
		}
		wrong := *a
		wrong.Hash = "other"
		if err := c.decideTool(t, &wrong, true, ""); !fault.Is(err, fault.InvalidState) {
			t.Errorf("a decision about other arguments: %v, want invalid_state", err)
		}
		if err := errors.Join(c.decideTool(t, a, true, ""), c.decideTool(t, a, true, "")); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "dropped" {
			t.Errorf("the result is %q, want dropped", got)
		}
		if err := c.decideTool(t, a, false, ""); !fault.Is(err, fault.InvalidState) {
			t.Errorf("a second decision: %v, want invalid_state", err)
		}
		// An approval is used once, and a denial is final.
		done = toolCallInBackground(t.Context(), session, "docs__drop", map[string]any{"a": 2, "b": 1})
		if err := c.decideTool(t, c.waitingApproval(t), false, "Not on a Friday."); err != nil {
			t.Fatal(err)
		}
		if got := <-done; !strings.Contains(got, "denied") || !strings.Contains(got, "Friday") {
			t.Errorf("the result is %q, want the denial and its reason", got)
		}
		if got := docs.called(); len(got) != 1 {
			t.Errorf("the server got %q, want one call", got)
		}
		want := []string{"docs__drop /mcp 200 <nil>", "docs__drop /mcp 200 approval_denied"}
		c.Eventually(t, func() bool { return slices.Equal(c.loggedTools(t), want) })
		if dump := string(c.DumpTables(t, []string{"tool_approvals"})); strings.Contains(dump, `"b":1`) {
			t.Error("the arguments are stored in plain text")
		}
	})
}

func TestMCPApprovalCanEditArgumentsOrRespond(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		session := c.connectMCP(t, "/mcp", c.key, nil)
		decide := func(a *toolservers.Approval, d toolservers.Decision) error {
			d.Approve = true
			return c.decideToolAs(t, c.person("usr_1", accounts.Owner), a, d)
		}
		done := toolCallInBackground(t.Context(), session, "docs__drop", map[string]any{"a": 1})
		a := c.waitingApproval(t)
		if err := decide(a, toolservers.Decision{Edited: "[]"}); !fault.Is(err, fault.InvalidParameter) {
			t.Errorf("arguments that are not an object: %v", err)
		}
		if err := decide(a, toolservers.Decision{Response: "Dropped yesterday."}); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "Dropped yesterday." || len(docs.called()) != 0 {
			t.Errorf("the result is %q after calls %q", got, docs.called())
		}
		for _, other := range []toolservers.Decision{{}, {Response: "Dropped today."}, {Edited: `{"a":2}`}} {
			if err := decide(a, other); !fault.Is(err, fault.InvalidState) {
				t.Errorf("%+v after a response: %v, want invalid_state", other, err)
			}
		}
		done = toolCallInBackground(t.Context(), session, "docs__drop", map[string]any{"a": 1})
		if err := decide(c.waitingApproval(t), toolservers.Decision{Edited: `{ "a": 2 }`}); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "dropped" || len(docs.called()) != 1 {
			t.Errorf("the result is %q after calls %q", got, docs.called())
		}
		if dump := string(c.DumpTables(t, []string{"tool_approvals"})); strings.Contains(dump, "yesterday") {
			t.Error("the response is stored in plain text")
		}
	})
}

func TestApprovalIsUsedByOneIdenticalRetry(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		key, _ := c.Key(t, c.workspace, accounts.Live)
		session, other := c.connectMCP(t, "/mcp", c.key, nil), c.connectMCP(t, "/mcp", key, nil)
		leave := func() *toolservers.Approval { // the client leaves while its call waits
			ctx, cancel := context.WithCancel(t.Context())
			done := toolCallInBackground(ctx, session, "docs__drop", map[string]any{"q": "x"})
			a := c.waitingApproval(t)
			cancel()
			<-done
			return a
		}
		a := leave()
		if err := c.decideTool(t, a, true, ""); err != nil {
			t.Fatal(err)
		}
		if len(docs.called()) != 0 {
			t.Fatalf("the server got %q, want nothing: the client had left", docs.called())
		}
		// It is bound to the key, the tool and the arguments.
		ctx, cancel := context.WithCancel(t.Context())
		for _, strange := range []<-chan string{toolCallInBackground(ctx, other, "docs__drop", map[string]any{"q": "x"}), toolCallInBackground(ctx, session, "docs__drop", map[string]any{"q": "y"})} {
			c.Eventually(t, func() bool {
				page, err := c.approver(t).Approvals(t.Context(), c.DB, visibility.Filter{Tenant: c.workspace.In(c.env)}, toolservers.Pending, db.Page{Limit: 10})
				return err == nil && len(page.Rows) == 2
			})
			select {
			case got := <-strange:
				t.Errorf("another call was made: %q", got)
			default:
			}
		}
		cancel()
		if text, isError := useTool(t, session, "docs__drop", map[string]any{"q": "x"}); text != "dropped" || isError {
			t.Errorf("the retry: %q, want dropped", text)
		}
		if got := docs.called(); !slices.Equal(got, []string{`drop{"q":"x"}`}) {
			t.Errorf("the server got %q, want one call", got)
		}
		// After ten minutes, it needs a new one; without a decision, the call ends when its time is over.
		c.Clock.Turn(2 * time.Hour)
		if err := c.decideTool(t, leave(), true, ""); err != nil {
			t.Fatal(err)
		}
		c.Clock.Turn(10 * time.Minute)
		done := toolCallInBackground(t.Context(), session, "docs__drop", map[string]any{"q": "x"})
		a = c.waitingApproval(t)
		c.Clock.Turn(time.Hour)
		if got := <-done; !strings.Contains(got, "in time") {
			t.Errorf("the result is %q, want that the time is over", got)
		}
		if err := c.decideTool(t, a, true, ""); !fault.Is(err, fault.InvalidState) {
			t.Errorf("a late decision: %v, want invalid_state", err)
		}
		if got := docs.called(); len(got) != 1 {
			t.Errorf("the server got %q, want one call", got)
		}
	})
}

func TestIdenticalCallsShareOneApproval(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		session := c.connectMCP(t, "/mcp", c.key, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan string, 4)
		for range 4 {
			go func() { done <- <-toolCallInBackground(ctx, session, "docs__drop", nil) }()
		}
		if err := c.decideTool(t, c.waitingApproval(t), true, ""); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "dropped" {
			t.Errorf("the result is %q, want dropped", got)
		}
		c.waitingApproval(t) // the others wait for another one
		if got := docs.called(); len(got) != 1 {
			t.Errorf("the server got %q, want one call", got)
		}
	})
}

func TestRevokedKeyMakesNoApprovedCall(t *testing.T) {
	eachMCP(t, sqlite, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		c.register(t, "docs", docs.URL)
		key, id := c.Key(t, c.workspace, accounts.Live)
		done := toolCallInBackground(t.Context(), c.connectMCP(t, "/mcp", key, nil), "docs__drop", nil)
		a := c.waitingApproval(t)
		c.RevokeAsOperator(t, id)
		c.Eventually(t, func() bool { return c.Do(t, models(key)).Status == 401 })
		if err := c.decideTool(t, a, true, ""); err != nil {
			t.Fatal(err)
		}
		// The response ends within a second of the revocation, which may be before the decision.
		if got := <-done; !strings.Contains(got, "invalid API key") && !strings.Contains(got, "terminated without response") {
			t.Errorf("the result is %q, want an invalid key or the end of the response", got)
		}
		if got := docs.called(); len(got) != 0 {
			t.Errorf("the server got %q, want no call", got)
		}
	})
}

func TestTurnpikesOwnToolsOnlyRead(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		made := c.ask(t, "POST", "/v1/keys", map[string]any{"name": "shown", "scopes": []string{"mcp.tools:call", "keys:read", "usage:read", "webhooks:read"},
			"allowed_tools": []string{"turnpike__list_keys", "turnpike__get_key", "turnpike__list_deliveries"}}).Want(t, 200, "")
		stranger := newClient(t, c.Server, accounts.Live)
		session := c.connectMCP(t, "/mcp/turnpike", made.Text("value"), nil)
		// By its scopes and its allowed tools.
		if got, want := fmt.Sprint(toolNames(t, session)), "[get_key list_deliveries list_keys]"; got != want {
			t.Errorf("tools are %s, want %s", got, want)
		}
		text, isError := useTool(t, session, "list_keys", map[string]any{"limit": 100})
		if isError || !strings.Contains(text, `"name":"shown"`) || strings.Contains(text, `"value"`) || strings.Contains(text, made.Text("value")) {
			t.Errorf("got %q, want the keys without their values", text)
		}
		if text, isError := useTool(t, session, "get_key", map[string]any{"id": made.Text("id")}); isError || !strings.Contains(text, made.Text("id")) {
			t.Errorf("got %q, want the key", text)
		}
		other := c.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: stranger.key}).Text("data.0.id")
		for arguments, problem := range map[string]string{`{"id":"` + other + `"}`: "not_found", `{"id":"../usage"}`: "not_found", `{}`: "id is required", `{"id":"x","more":1}`: "Unknown argument"} {
			if text, isError := useTool(t, session, "get_key", json.RawMessage(arguments)); !isError || !strings.Contains(text, problem) {
				t.Errorf("%s: got %q, want %s", arguments, text, problem)
			}
		}
		if text, isError := useTool(t, session, "get_usage", nil); !isError || !strings.Contains(text, "Unknown tool") {
			t.Errorf("a tool that the key may not call: %q", text)
		}
		all := c.connectMCP(t, "/mcp/turnpike", c.key, nil)
		for _, name := range toolNames(t, all) {
			if !strings.HasPrefix(name, "get_") && !strings.HasPrefix(name, "list_") {
				t.Errorf("the tool %s doesn't only read", name)
			}
		}
		if text, isError := useTool(t, all, "get_usage", nil); isError || !strings.Contains(text, `"object"`) {
			t.Errorf("usage: %q", text)
		}
		c.Eventually(t, func() bool { return slices.Contains(c.loggedTools(t), "turnpike__list_keys /mcp/turnpike 200 <nil>") })
	})
}

func TestRunsUseRegisteredServers(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		docs := newToolUpstream(t)
		id := l.register(t, "docs", docs.URL, "headers", map[string]string{"Authorization": "Bearer secret-of-docs"}).Text("id")
		docsTool := map[string]any{"type": "mcp", "server_label": "docs"}
		path := l.startRun(t, runBody(l.model.addScript("search", calls(toolCall{"docs__search", `{"q":"x"}`}), reply{text: "Done."}), []any{docsTool}))
		l.waitForEnd(t, path, "completed")
		if !slices.Equal(docs.called(), []string{`search{"q":"x"}`}) || docs.token != "Bearer secret-of-docs" {
			t.Errorf("the server got %q with %q, want one call with its header", docs.called(), docs.token)
		}
		if told := l.model.requests("search")[1].answers(); len(told) != 1 || strings.Contains(told[0], "secret-of-docs") {
			t.Errorf("the model was told %q, want no secret", told)
		}
		// The rules of the registry and of the key apply to runs in progress.
		path = l.startRun(t, runBody(l.model.addScript("drop", calls(toolCall{"docs__drop", `{}`}), reply{text: "Done."}), []any{docsTool}))
		want := l.waitForAction(t, path, "awaiting_approval") // destructive, so "never" doesn't apply
		l.ask(t, "PATCH", "/v1/tool_servers/"+id, map[string]any{"allowed_tools": []string{"search", "fail"}}).Want(t, 200, "")
		l.decide(t, path, want[0]["id"].(string), "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if told := l.model.requests("drop")[1].answers(); len(told) != 1 || !strings.Contains(told[0], "no longer offers") || len(docs.called()) != 1 {
			t.Errorf("the model was told %q after calls %q, want that the tool isn't offered", told, docs.called())
		}
		limited, _ := l.withKey(t, access.Key{Scopes: []string{"*"}, AllowedTools: []string{"docs__search"}})
		path = limited.startRun(t, runBody(l.model.addScript("limited", calls(toolCall{"docs__fail", `{}`}), reply{text: "Done."}),
			[]any{map[string]any{"type": "mcp", "server_label": "docs", "allowed_tools": []string{"search", "fail"}}}))
		limited.waitForEnd(t, path, "completed")
		if told := l.model.requests("limited")[1].answers(); len(told) != 1 || !strings.Contains(told[0], `no tool "docs__fail"`) {
			t.Errorf("the model was told %q, want no such tool", told)
		}
		for problem, tool := range map[string]map[string]any{
			"server_url":       {"type": "mcp", "server_label": "none"},
			"require_approval": {"type": "mcp", "server_label": "docs", "require_approval": "never"},
			"headers":          {"type": "mcp", "server_label": "docs", "headers": map[string]any{"X-A": "b"}},
		} {
			if r := l.ask(t, "POST", runs, runBody("x", []any{tool})); r.Status != 400 || !strings.Contains(string(r.Body), problem) {
				t.Errorf("%v: %d %s, want 400 about %s", tool, r.Status, r.Body, problem)
			}
		}
		if len(docs.called()) != 1 {
			t.Errorf("the server got %q, want one call", docs.called())
		}
	})
}

// N8: runs are no way around the scope that /mcp requires.
func TestRunsOfRegisteredServersNeedTheScopeToCallTools(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		docs := newToolUpstream(t)
		l.register(t, "docs", docs.URL)
		body := func(script string) map[string]any {
			return runBody(l.model.addScript(script, calls(toolCall{"docs__search", `{"q":"x"}`}), reply{text: "Done."}), []any{map[string]any{"type": "mcp", "server_label": "docs"}})
		}
		narrow, _ := l.withKey(t, access.Key{Scopes: []string{"agents.runs:create", "scoped_tokens:create"}})
		token := narrow.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"agents.runs:create"}, "expires_in": 60}).Text("value")
		for key, code := range map[string]string{narrow.key: "insufficient_scope", token: "scoped_token_not_allowed"} {
			l.Do(t, harness.Request{Method: "POST", Path: runs, Key: key, Body: body("refused")}).Want(t, 403, code)
		}
		// A run in progress ends with the scope.
		wide, id := l.withKey(t, access.Key{Scopes: []string{"agents.runs:create", "mcp.tools:call"}})
		path := wide.startRun(t, runBody(l.model.addScript("drop", calls(toolCall{"docs__drop", `{}`}), reply{text: "Done."}), []any{map[string]any{"type": "mcp", "server_label": "docs"}}))
		want := l.waitForAction(t, path, "awaiting_approval")
		l.ask(t, "PATCH", "/v1/keys/"+id, map[string]any{"scopes": []string{"agents.runs:create"}}).Want(t, 200, "")
		l.decide(t, path, want[0]["id"].(string), "approve").Want(t, 200, "")
		if ended := l.waitForEnd(t, path, "failed"); ended.Text("error.code") != "key_revoked" || len(docs.called()) != 0 {
			t.Errorf("the run ended as %s after calls %q", ended.Body, docs.called())
		}
	})
}

func TestToolServersGetOAuthTokens(t *testing.T) {
	eachMCP(t, both, nil, func(t *testing.T, c *client) {
		docs := newToolUpstream(t)
		var issued atomic.Int32
		issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, secret, _ := r.BasicAuth()
			if r.FormValue("grant_type") != "client_credentials" || id != "turnpike" || secret != "oauth-secret" || r.FormValue("scope") != "read write" {
				http.Error(w, `{"error":"invalid_client","error_description":"oauth-secret"}`, http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"access-token-%d","token_type":"Bearer","expires_in":3600}`, issued.Add(1))
		}))
		t.Cleanup(issuer.Close)
		oauth := map[string]any{"token_url": issuer.URL, "client_id": "turnpike", "client_secret": "oauth-secret", "scope": "read write"}
		id := c.register(t, "docs", docs.URL, "oauth", oauth).Text("id")
		session := c.connectMCP(t, "/mcp", c.key, nil)
		for range 2 {
			if text, isError := useTool(t, session, "docs__search", nil); text != "found with [hidden]" || isError {
				t.Errorf("got %q, want a result without the token", text)
			}
		}
		if docs.token != "Bearer access-token-1" || issued.Load() != 1 {
			t.Errorf("the server got %q after %d tokens, want one token", docs.token, issued.Load())
		}
		// A wrong secret is reported without it.
		oauth["client_secret"] = "oauth-secret-2"
		path := "/v1/tool_servers/" + id
		c.ask(t, "PATCH", path, map[string]any{"oauth": oauth}).Want(t, 200, "")
		if r := c.ask(t, "POST", path+"/refresh", nil).Want(t, 200, ""); !strings.Contains(r.Text("problem"), "401") || strings.Contains(string(r.Body), "oauth-secret") {
			t.Errorf("got %s, want the status without the secret", r.Body)
		}
		c.ask(t, "PATCH", path, map[string]any{"url": issuer.URL}).Want(t, 400, "missing_parameter")
		if dump := string(c.DumpDatabase(t)); strings.Contains(dump, "oauth-secret") || strings.Contains(dump, "access-token") {
			t.Error("the database contains a secret")
		}
	})
}

func TestRunsChargeForTools(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		docs := newToolUpstream(t)
		l.register(t, "docs", docs.URL, "tool_settings", map[string]any{"search": map[string]any{"price_per_call": 30}, "fail": map[string]any{"price_per_call": 30}})
		search, fail := toolCall{"docs__search", `{"q":"x"}`}, toolCall{"docs__fail", `{}`}
		// run executes a run that makes the calls in one step. It returns what the model was told, and checks that the run
		// costs what the log says.
		run := func(l *agentClient, name string, budget float64, list ...toolCall) (told []string, tools float64) {
			t.Helper()
			body := runBody(l.model.addScript(name, calls(list...), reply{text: "Done."}), []any{map[string]any{"type": "mcp", "server_label": "docs"}})
			body["budget"] = map[string]any{"max_credits": budget}
			path := l.startRun(t, body)
			ended := l.waitForEnd(t, path, "completed")
			total := 0.0
			for _, e := range l.entries(t) {
				if e["path"] != path || e["method"] != "POST" {
					continue
				}
				total += e["credits"].(float64)
				if e["provider"] == "mcp" {
					tools += e["credits"].(float64)
				}
			}
			if got := ended.At("usage.credits").(float64); fmt.Sprintf("%.6f", got) != fmt.Sprintf("%.6f", total) || got > budget {
				t.Errorf("%s: the run cost %v of %v, and its requests %v", name, got, budget, total)
			}
			return l.model.requests(name)[1].answers(), math.Round(tools*1e6) / 1e6
		}
		if told, cost := run(l, "plain", 1000, search, fail, search); cost != 60 || len(docs.called()) != 3 || !strings.Contains(told[1], "no shelf") {
			t.Errorf("the tools cost %v after calls %q, want 60: a tool that fails is free", cost, docs.called())
		}
		refused := func(told []string) (n int) {
			for _, text := range told {
				if strings.Contains(text, "The call was not made") && strings.Contains(text, "budget") {
					n++
				}
			}
			return n
		}
		// The budget of the run, of which its step has used some.
		if told, cost := run(l, "run budget", 100, search, search, search, search, search); cost != 90 || refused(told) != 2 || len(docs.called()) != 6 {
			t.Errorf("the tools cost %v after %d calls, and the model was told %q; want 3 calls", cost, len(docs.called())-3, told)
		}
		// The budget of the key.
		limit := 70 * credits.Credit
		limited, _ := l.withKey(t, access.Key{Scopes: []string{"*"}, MonthlyBudget: &limit})
		if told, cost := run(limited, "key budget", 1000, search, search, search, search); cost != 60 || refused(told) != 2 || len(docs.called()) != 8 {
			t.Errorf("the tools cost %v after %d calls, and the model was told %q; want 2 calls", cost, len(docs.called())-6, told)
		}
		if r := l.get(t, "/v1/billing"); r.At("reserved") != 0.0 {
			t.Errorf("billing is %s, want nothing reserved", r.Body)
		}
	})
}
