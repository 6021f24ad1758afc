package dashboard_test

import (
	"context"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/accounts"
	"turnpike/internal/dashboard"
	"turnpike/test/fakes/oauth"
	"turnpike/test/harness"
)

// mcpRequest returns a message of an MCP client that calls a tool.
func mcpRequest(key, tool, arguments string) harness.Request {
	return harness.Request{Method: "POST", Path: "/mcp", Key: key, Header: http.Header{"Accept": {"application/json, text/event-stream"}},
		Body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`}
}

// follow opens the page that an action redirects to.
func (b *browser) follow(t testing.TB, a *response) *response {
	t.Helper()
	return b.get(t, a.redirectsTo(t, dashboard.Home+"*"))
}

func TestToolServerIsRegisteredAndItsCallsAreApproved(t *testing.T) {
	t.Parallel()
	var called atomic.Int32
	upstream := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	for _, name := range []string{"pay", "look"} {
		upstream.AddTool(&mcp.Tool{Name: name, Description: "It is " + name + script, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			called.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done " + name}}}, nil
		})
	}
	shop := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, nil))
	t.Cleanup(shop.Close)
	cfg := harness.Config(t, "sqlite")
	cfg.Agents.AllowHTTP, cfg.Agents.TestToolsDefault = true, "real"
	cfg.Agents.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o := newJobClient(t, harness.Start(t, cfg, harness.NewClock()))

	o.get(t, o.in(accounts.Test, "tools")).shows(t, "No test tool servers yet")
	form := url.Values{"label": {"shop"}, "url": {shop.URL}, "headers": {"Authorization: Bearer secret-of-shop"}, "require_approval": {"always"}, "description": {script},
		"timeout_seconds": {"30"}, "approval_timeout_seconds": {"600"}}
	o.post(t, o.in(accounts.Test, "tools/new"), url.Values{"label": {"a b"}, "url": {shop.URL}}).rejects(t, 400, "label")
	page := o.follow(t, o.post(t, o.in(accounts.Test, "tools/new"), form))
	page.shows(t, "Tool server registered.", "shop__look", "shop__pay", "every call").hides(t, "secret-of-shop").harmless(t)
	server := page.find(t, `<dt>ID</dt><dd><code>([^<]+)</code>`)
	path := o.in(accounts.Test, "tools/"+server)
	o.get(t, o.in(accounts.Test, "tools")).shows(t, "shop").harmless(t)

	// Set the approval and the price of each tool.
	o.follow(t, o.post(t, path+"/tools", url.Values{"tool": {"look", "pay"}, "approval": {"pay"}, "price_pay": {"2.5"}, "price_look": {""}})).shows(t, "Tools saved.", `value="2.5"`, "by tool")
	if body := string(o.s.Do(t, mcpRequest(o.key, "shop__look", `{}`)).Body); !strings.Contains(body, "done look") {
		t.Errorf("got %s, want a call without an approval", body)
	}
	done := make(chan string, 1)
	go func() { done <- string(o.s.Do(t, mcpRequest(o.key, "shop__pay", `{"to":"\u202emoc"}`)).Body) }()
	approvals := o.in(accounts.Test, "approvals")
	o.s.Eventually(t, func() bool {
		return strings.Contains(o.get(t, approvals).body, "Approve call of <code>shop__pay</code>?")
	})
	o.get(t, o.in(accounts.Test, "tools")).shows(t, "1 call waits")
	page = o.get(t, approvals)
	if shown := html.UnescapeString(page.find(t, `<pre class="words" id="arguments-[^>]+>([^<]+)</pre>`)); shown != `{"to":"\u202emoc"}` {
		t.Errorf("the arguments are shown as %s", shown)
	}
	action, hash := page.find(t, `action="([^"]+/approvals/[^"]+)"`), page.find(t, `name="arguments_hash" value="([0-9a-f]{64})"`)
	o.get(t, o.in(accounts.Test, "runs")+query(action[strings.LastIndexByte(action, '/')+1:])).redirectsTo(t, approvals)
	o.post(t, action, url.Values{"decision": {"approve"}, "arguments_hash": {strings.Repeat("0", 64)}}).rejects(t, 409, "Reload")
	o.post(t, action, url.Values{"decision": {"maybe"}, "arguments_hash": {hash}}).rejects(t, 400, "Approve or deny")
	if called.Load() != 1 {
		t.Fatal("nobody has approved it")
	}
	o.post(t, action, url.Values{"decision": {"approve"}, "arguments_hash": {hash}, "reason": {"fine" + script}}).redirectsTo(t, approvals)
	if got := <-done; !strings.Contains(got, "done pay") || called.Load() != 2 {
		t.Errorf("got %s after %d calls, want the result of pay", got, called.Load())
	}
	o.get(t, approvals).shows(t, "No calls await approval", "approved and made", "The owner").harmless(t)
	if acts := o.loggedActions(t, action[strings.LastIndex(action, "/")+1:]); !slices.Equal(acts, []string{"tool_call.approved " + o.person.ID}) {
		t.Errorf("the admin log has %v", acts)
	}

	o.follow(t, o.post(t, path+"/edit", url.Values{"label": {"store"}, "url": {shop.URL}, "require_approval": {"lists"}, "timeout_seconds": {"5"}, "approval_timeout_seconds": {"60"}})).
		shows(t, "Tool server saved.", "store__pay", "<dd>5 s</dd>")
	rules := url.Values{"label": {"store"}, "url": {shop.URL}, "require_approval": {"always"}, "timeout_seconds": {"5"}, "approval_timeout_seconds": {"60"},
		"approval_roles": {"owner", "admin"}, "exclude_creator": {"yes"}, "conditions": {"/amount gt 100\r\n/to ne shop"}, "on_expiry": {"report"}}
	o.follow(t, o.post(t, path+"/edit", rules)).shows(t, "Tool server saved.", "decided by owner or admin, not the creator, only if /amount gt 100 or /to ne", "reported to the model")
	o.get(t, path+"/edit").shows(t, `value="admin" checked`, "/amount gt 100", `name="exclude_creator" value="yes" checked`).hides(t, `value="developer" checked`, `name="two_approvers" value="yes" checked`)
	if body := string(o.s.Do(t, mcpRequest(o.key, "store__pay", `{"amount":5,"to":"shop"}`)).Body); !strings.Contains(body, "done pay") {
		t.Errorf("got %s, want a call without an approval", body)
	}
	o.follow(t, o.post(t, path+"/refresh", nil)).shows(t, "Tools read.")
	o.follow(t, o.post(t, path+"/delete", nil)).shows(t, "Tool server deleted.", "No test tool servers yet")
}

func TestApprovalRulesOfSingleToolsAreEdited(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		o := newJobClient(t, s)
		register := func(label string) string {
			return o.in(accounts.Test, "tools/"+s.Do(t, harness.Request{Method: "POST", Path: "/v1/tool_servers", Key: o.key, Body: map[string]any{
				"label": label, "url": "https://shop.example/mcp", "allowed_tools": []string{"pay", "look"}, "approval_rules": map[string]any{"roles": []string{"owner"}}}}).Want(t, 200, "").Text("id"))
		}
		path := register("shop")
		pay := path + "/rules/shop__pay"
		o.get(t, path).find(t, `href="`+pay+`"`)
		o.get(t, path+"/rules/shop__nothing").is(t, http.StatusNotFound)
		page := o.get(t, pay).shows(t, "Approval rules of shop__pay", "The rules of the server apply", `value="owner" checked`).hides(t, "Use the server", "at the moment")

		// All errors are next to their fields, and what was typed stays.
		wrong := url.Values{"approval_roles": {"boss"}, "two_approvers": {"yes"}, "conditions": {"amount gt 100\r\n/a like 1\r\n/b eq 2"}, "on_expiry": {"report"}}
		o.post(t, pay, wrong).fieldErrors(t,
			[2]string{"approval_roles", "The roles must have different roles: owner, admin or developer."},
			[2]string{"conditions", "Condition 1: The path must be a JSON Pointer to a value in the arguments, such as /amount. Condition 2: The operator must be eq, ne, gt, gte, lt or lte."},
		).hides(t, `value="owner" checked`).find(t, `name="two_approvers" value="yes" checked(?s:.*)amount gt 100\s+/a like 1(?s:.*)value="report" selected`)
		o.post(t, pay, url.Values{"approval_roles": {"owner"}, "two_approvers": {"yes"}, "conditions": {"?"}}).fieldErrors(t,
			[2]string{"two_approvers", "The number of approvers must be at most 1, because only that many members with these roles may approve calls."},
			[2]string{"conditions", "Enter one condition in each line: a path, an operator and a value, as in /amount gt 100."})
		o.post(t, pay, url.Values{"approval_roles": {"developer"}}).fieldErrors(t, [2]string{"approval_roles", "The roles must include the role of a member who may approve calls."})
		o.get(t, path).hides(t, "Approval rules of this tool:")

		seen := page.find(t, `name="seen" value="([0-9a-f]+)"`)
		own := url.Values{"approval_roles": {"owner"}, "exclude_creator": {"yes"}, "conditions": {"/amount gt 100"}, "on_expiry": {"report"}, "seen": {seen}}
		o.follow(t, o.post(t, pay, own)).shows(t, "Approval rules saved.", "Approval rules of this tool: decided by owner, not the creator, only if /amount gt 100, reported to the model if no one decides")
		got := s.Do(t, harness.Request{Method: "GET", Path: "/v1/tool_servers/" + path[strings.LastIndex(path, "/")+1:], Key: o.key}).Want(t, 200, "")
		if got.At("tool_settings.pay.approval_rules.conditions.0.path") != "/amount" || got.At("tool_settings.look") != nil || got.At("approval_rules.conditions") != nil {
			t.Errorf("got %s, want rules of pay only", got.Body)
		}
		o.get(t, path+"/rules/shop__look").shows(t, "The rules of the server apply")
		o.get(t, pay).shows(t, "These rules replace those of the server.", "/amount gt 100", `name="exclude_creator" value="yes" checked`)

		// Someone else has changed the rules since the page was opened.
		own.Set("conditions", "/amount gt 5")
		o.post(t, pay, own).is(t, http.StatusConflict).find(t, `Someone changed this(?s:.*)/amount gt 100</textarea>`)
		// Other changes keep the rules.
		o.follow(t, o.post(t, path+"/tools", url.Values{"tool": {"look", "pay"}, "approval": {"pay"}})).shows(t, "Tools saved.", "Approval rules of this tool: decided by owner")
		o.get(t, path+"/rules/shop__look").shows(t, "need no approval at the moment")

		o.follow(t, o.post(t, pay+"/remove", nil)).shows(t, "The rules of the server apply.").hides(t, "Approval rules of this tool:")
	})
}

// N7: developers may edit tool servers, but not remove rules that they don't satisfy.
func TestDeveloperCannotLoosenApprovalRules(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		o := newJobClient(t, s)
		dev := member(t, s, o.workspace, accounts.Developer)
		path := o.in(accounts.Test, "tools/"+s.Do(t, harness.Request{Method: "POST", Path: "/v1/tool_servers", Key: o.key, Body: map[string]any{
			"label": "shop", "url": "https://shop.example/mcp", "allowed_tools": []string{"pay"}, "approval_rules": map[string]any{"roles": []string{"owner"}}}}).Want(t, 200, "").Text("id"))
		form := url.Values{"label": {"shop"}, "url": {"https://shop.example/mcp"}, "allowed_tools": {"pay"}, "require_approval": {"never"}, "timeout_seconds": {"5"}, "approval_timeout_seconds": {"60"}}
		const refused = "Only owners and members with these roles may loosen the approval rules, in the dashboard: owner."
		dev.post(t, path+"/edit", form).rejects(t, 403, refused)
		dev.post(t, path+"/tools", url.Values{"tool": {"pay"}}).rejects(t, 403, refused)
		dev.post(t, path+"/rules/shop__pay", url.Values{"approval_roles": {"developer", "owner"}, "on_expiry": {"fail"}}).rejects(t, 403, refused)
		dev.follow(t, dev.post(t, path+"/rules/shop__pay", url.Values{"approval_roles": {"owner"}, "exclude_creator": {"yes"}, "on_expiry": {"fail"}})).shows(t, "Approval rules saved.")
		dev.post(t, path+"/rules/shop__pay/remove", nil).rejects(t, 403, refused)
		o.get(t, path).shows(t, "every call", "decided by owner, not the creator")
		o.follow(t, o.post(t, path+"/edit", form)).shows(t, "Tool server saved.")
	})
}

func TestToolServerFormsShowAllErrors(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		o := newJobClient(t, s)
		create := o.in(accounts.Test, "tools/new")
		wrong := url.Values{"label": {"a b"}, "url": {"ftp://x"}, "headers": {"nonsense"}, "require_approval": {"always"}, "approval_roles": {"developer"}, "conditions": {"/a"}, "timeout_seconds": {"soon"},
			"approval_timeout_seconds": {"100000"}, "description": {strings.Repeat("x", 501)}}
		fields := func(page *response) {
			t.Helper()
			page.is(t, http.StatusBadRequest).hides(t, `class="problem"`)
			for _, name := range []string{"label", "url", "headers", "approval_roles", "conditions", "timeout_seconds", "approval_timeout_seconds", "description"} {
				page.find(t, `aria-describedby="error-`+name+`"`)
				page.find(t, `<small class="field-error" id="error-`+name+`">`)
			}
			page.find(t, `value="a b"(?s:.*)value="developer" checked(?s:.*)value="soon"`)
		}
		fields(o.post(t, create, wrong))
		o.get(t, o.in(accounts.Test, "tools")).shows(t, "No test tool servers yet")

		path := o.in(accounts.Test, "tools/"+s.Do(t, harness.Request{Method: "POST", Path: "/v1/tool_servers", Key: o.key, Body: map[string]any{
			"label": "shop", "url": "https://shop.example/mcp", "allowed_tools": []string{"pay", "look"}}}).Want(t, 200, "").Text("id"))
		fields(o.post(t, path+"/edit", wrong))
		o.post(t, path+"/tools", url.Values{"tool": {"look", "pay"}, "approval": {"pay"}, "price_pay": {"much"}, "price_look": {"-"}}).fieldErrors(t,
			[2]string{"price_pay", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."},
			[2]string{"price_look", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."},
		).hides(t, `aria-label="shop__look needs approval" checked`).find(t, `aria-label="shop__pay needs approval" checked(?s:.*)value="much"`)
	})
}

func TestMemberConnectsToolServerWithOAuth(t *testing.T) {
	t.Parallel()
	issuer := oauth.New(t, "", "", "")
	upstream := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	upstream.AddTool(&mcp.Tool{Name: "look", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
	})
	resource := ""
	shop := httptest.NewServer(issuer.Protect(func() string { return resource }, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return upstream }, nil)))
	t.Cleanup(shop.Close)
	resource = shop.URL + "/mcp"
	cfg := harness.Config(t, "sqlite")
	cfg.Agents.AllowHTTP, cfg.Agents.TestToolsDefault = true, "real"
	cfg.Agents.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o := newJobClient(t, harness.Start(t, cfg, harness.NewClock()))

	form := url.Values{"label": {"shop"}, "url": {resource}, "require_approval": {"never"}, "timeout_seconds": {"30"}, "approval_timeout_seconds": {"600"}}
	with := func(fields ...string) url.Values {
		out := maps.Clone(form)
		for i := 0; i < len(fields); i += 2 {
			out.Set(fields[i], fields[i+1])
		}
		return out
	}
	create := o.in(accounts.Test, "tools/new")
	o.post(t, create, with("oauth_scope", "tools")).rejects(t, 400, "Select how")
	o.post(t, create, with("oauth", "password")).rejects(t, 400, "The grant must be authorization_code")
	o.post(t, create, with("oauth", "authorization_code", "oauth_client_secret", "lonely-secret")).rejects(t, 400, "client ID").hides(t, "lonely-secret")
	o.post(t, create, with("oauth", "client_credentials", "oauth_client_id", "a")).rejects(t, 400, "token URL")
	page := o.follow(t, o.post(t, create, with("oauth", "authorization_code")))
	page.shows(t, "Connect it to read its tools.", "needs authorization", o.s.URL+o.in(accounts.Test, "tools/callback"))
	path := o.in(accounts.Test, "tools/"+page.find(t, `<dt>ID</dt><dd><code>([^<]+)</code>`))
	o.get(t, o.in(accounts.Test, "tools")).shows(t, "needs authorization")

	// A viewer can't connect it, and a page of another site can't complete anything.
	viewer := newBrowser(t, o.s)
	viewer.workspace, viewer.person = o.workspace, addMember(t, o.s, o.workspace, "viewer@example.com", accounts.Viewer)
	viewer.signIn(t)
	viewer.post(t, path+"/connect", nil).is(t, http.StatusForbidden)
	o.follow(t, o.get(t, o.in(accounts.Test, "tools/callback?code=a"))).shows(t, `<p class="warning" role="status">This authorization`, "Connect the server again").hides(t, `class="notice"`)

	allow := func() string {
		t.Helper()
		a := o.post(t, path+"/connect", nil).shows(t, "Connect shop", "Go to the authorization server")
		address := html.UnescapeString(a.find(t, `href="(http[^"]+/authorize[^"]*)"`))
		if refresh := a.header.Get("Refresh"); refresh != "0; url="+address {
			t.Errorf("the page goes on to %q, and its link to %q", refresh, address)
		}
		resp, err := o.client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return strings.TrimPrefix(resp.Header.Get("Location"), o.s.URL)
	}
	back := allow()
	if !strings.HasPrefix(back, o.in(accounts.Test, "tools/callback?")) {
		t.Fatalf("the authorization server redirects to %s", back)
	}
	developer := newBrowser(t, o.s)
	developer.workspace, developer.person = o.workspace, addMember(t, o.s, o.workspace, "developer@example.com", accounts.Developer)
	developer.signIn(t)
	developer.follow(t, developer.get(t, back)).shows(t, "another session", "needs authorization")
	viewer.get(t, back).is(t, http.StatusForbidden)
	o.follow(t, o.get(t, back)).shows(t, "Tool server connected.", "shop__look", "connected")
	o.follow(t, o.get(t, back)).shows(t, "Connect the server again")
	if body := string(o.s.Do(t, mcpRequest(o.key, "shop__look", `{}`)).Body); !strings.Contains(body, "done") {
		t.Errorf("got %s, want the result", body)
	}
	if dump := string(o.s.DumpDatabase(t)); strings.Contains(dump, "access-") || strings.Contains(dump, "refresh-") || strings.Contains(dump, "registered-") {
		t.Error("the database contains a token or a secret")
	}

	o.follow(t, o.post(t, path+"/disconnect", nil)).shows(t, "Tool server disconnected.", "needs authorization")
	if body := string(o.s.Do(t, mcpRequest(o.key, "shop__look", `{}`)).Body); !strings.Contains(body, "needs authorization") {
		t.Errorf("got %s, want an error about the authorization", body)
	}
	if status := o.s.Do(t, harness.Request{Method: "GET", Path: "/v1/tool_servers/" + path[strings.LastIndex(path, "/")+1:], Key: o.key}).Want(t, 200, "").Text("oauth_status"); status != "needs_authorization" {
		t.Errorf("the API reports %q, want needs_authorization", status)
	}
	o.follow(t, o.get(t, allow())).shows(t, "Tool server connected.")
	// Other settings keep the connection, and removing the client ends it.
	o.follow(t, o.post(t, path+"/edit", with("allowed_tools", "look"))).shows(t, "Tool server saved.", "connected")
	o.follow(t, o.post(t, path+"/edit", with("remove_headers", "yes"))).shows(t, "Tool server saved.").hides(t, "connected")
}
