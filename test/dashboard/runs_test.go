package dashboard_test

import (
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// runTest is a workspace whose agents call a tool on this machine.
type runTest struct {
	*jobClient
	tool *httptest.Server

	mu   sync.Mutex
	came []string // bodies of the tool's calls
}

func withRunTest(t *testing.T, fn func(t *testing.T, o *runTest)) {
	t.Helper()
	o := &runTest{}
	o.tool = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		o.mu.Lock()
		o.came = append(o.came, string(body))
		o.mu.Unlock()
		_, _ = io.WriteString(w, "paid"+script)
	}))
	t.Cleanup(o.tool.Close)
	cfg := harness.Config(t, "sqlite")
	cfg.Agents.AllowHTTP = true
	cfg.Agents.TestToolsDefault = "real"
	cfg.Agents.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o.jobClient = newJobClient(t, harness.Start(t, cfg, harness.NewClock()))
	fn(t, o)
}

// calls returns the bodies of the tool's calls.
func (o *runTest) calls() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.came...)
}

// begin starts a run and returns its ID when it has the status. The tool pay needs
// approval, and ask is a function tool.
func (o *runTest) begin(t *testing.T, steps, status string, more ...any) string {
	t.Helper()
	body := map[string]any{"model": "gpt-4o", "input": "Pay it." + script + " [[sim:script=" + steps + "]]", "metadata": map[string]string{"for": script}, "tools": []any{
		map[string]any{"type": "http", "name": "pay", "url": o.tool.URL, "require_approval": "always"}, map[string]any{"type": "function", "name": "ask"}}}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	id := o.create(t, "/v1/agents/runs", body).Text("id")
	o.waitFor(t, "/v1/agents/runs/"+id, status)
	return id
}

// asked returns the action of the first approval form and its arguments hash.
func asked(t *testing.T, b *browser, id string) (path, hash string) {
	t.Helper()
	page := b.get(t, b.in(accounts.Test, "runs/"+id)).is(t, 200)
	return page.find(t, `action="([^"]+/approvals/[^"]+)"`), page.find(t, `name="arguments_hash" value="([0-9a-f]{64})"`)
}

func TestRunPageShowsSimulatedTools(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		o.s.ChangeWorkspace(t, o.workspace.ID, func(w *accounts.Workspace) { w.TestTools = accounts.ToolsSimulated })
		id := o.begin(t, `tool:pay{"to":"x"};text:Done.`, "awaiting_approval", "output", map[string]any{"checks": []any{map[string]any{"type": "http", "url": o.tool.URL}}})
		path, hash := asked(t, o.browser, id)
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "HTTP and MCP tools are simulated")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "The check was simulated.", "&#34;simulated&#34;: true")
		if n := strings.Count(page.body, `>simulated</span>`); n != 2 {
			t.Errorf("the page has %d badges, want one for the call and one for the check", n)
		}
		if calls := o.calls(); len(calls) != 0 {
			t.Errorf("the tool got %v, want nothing", calls)
		}
	})
}

func TestApprovedCallRunsWithShownArguments(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		o.get(t, o.in(accounts.Test, "runs")).shows(t, "No test runs yet")
		id := o.begin(t, `tool:pay{"to":"`+"\u202e"+`moc.live","sum":"<script>alert(1)</script>"};text:Done.`, "awaiting_approval")
		o.get(t, o.in(accounts.Test, "runs")).shows(t, id, "awaiting approval", `<span class="badge warn">1</span>`, "1 of 20")
		o.get(t, o.in(accounts.Test, "runs"+query("status:awaiting_approval"))).shows(t, id)
		o.get(t, o.in(accounts.Test, "runs"+query("status:completed"))).shows(t, "No runs match this search").hides(t, id)
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Approve call of <code>pay</code>?", "Pay it.").harmless(t)
		// Invisible characters of the arguments are shown.
		arguments := html.UnescapeString(strings.ReplaceAll(page.find(t, `<pre class="words" id="arguments-[^>]+>(.+)</pre>`), "<wbr>", ""))
		if arguments != `{"to":"\u202emoc.live","sum":"<script>alert(1)</script>"}` {
			t.Errorf("the arguments are shown as %s", arguments)
		}
		path, hash := asked(t, o.browser, id)
		if len(o.calls()) != 0 {
			t.Fatal("nobody has approved it")
		}
		o.post(t, path, url.Values{"decision": {"approve"}}).rejects(t, 400, "Reload the page")
		o.post(t, path, url.Values{"decision": {"maybe"}, "arguments_hash": {hash}}).rejects(t, 400, "approve, deny")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {strings.Repeat("0", 64)}}).rejects(t, 409, "does not match the arguments")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}, "reason": {"fine" + script}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		r := o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		if calls := o.calls(); len(calls) != 1 || !strings.Contains(calls[0], "moc.live") || r.Text("result.output_text") != "Done." {
			t.Errorf("the tool was told %v, and the result is %s", calls, r.Body)
		}
		steps := o.s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + id + "/steps", Key: o.key}).Want(t, 200, "")
		if by := steps.Text("data.0.tool_calls.0.approval.decided_by"); by != o.person.ID {
			t.Errorf("it was decided by %s", by)
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "The call is approved.", "completed", "Done.", "Approved by The owner", "Reason: fine", "paid&#34;&gt;", "2 of 20").harmless(t).
			hides(t, "Approve call of")
		o.get(t, o.in(accounts.Test, "runs")).shows(t, id, "completed").hides(t, `badge warn`)
		if acts := o.loggedActions(t, id); len(acts) != 1 || acts[0] != "agent.run.approve "+o.person.ID {
			t.Errorf("the admin log has %v", acts)
		}
	})
}

func TestDeniedCallIsNotRun(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		id := o.begin(t, `tool:pay{}`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		o.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}, "reason": {"too much"}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		r := o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		if len(o.calls()) != 0 || !strings.Contains(r.Text("result.output_text"), "too much") {
			t.Errorf("the tool was called %d times, and the model says %s", len(o.calls()), r.Body)
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "The call is denied.", "Denied by The owner", "Reason: too much")
	})
}

func TestPartialOutputIsNotShownAsResult(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		for input, truncated := range map[string]bool{"Say it. [[sim:finish=length]]": true, "Say nothing. [[sim:text=]] [[sim:finish=length]]": true, "Say it.": false} {
			id := o.begin(t, "", "completed", "input", input)
			page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Result")
			if truncated {
				page.shows(t, "It is incomplete")
			} else {
				page.hides(t, "It is incomplete")
			}
		}
	})
}

func TestFirstDecisionWins(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		second := member(t, o.s, o.workspace, accounts.Developer)
		id := o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		answers := make([]*response, 2)
		var both sync.WaitGroup
		both.Go(func() { answers[0] = o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}) })
		both.Go(func() { answers[1] = second.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}) })
		both.Wait()
		winner, loser, late := answers[0], answers[1], "already has a decision: approve"
		if answers[1].status == http.StatusSeeOther {
			winner, loser, late = answers[1], answers[0], "already has a decision: deny"
		}
		winner.redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		loser.rejects(t, 409, late)
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")

		// Repeating a decision changes nothing.
		id = o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash = asked(t, o.browser, id)
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		to := second.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		second.get(t, to).shows(t, "The call is approved", "Approved by The owner")
		o.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}).rejects(t, 409, "already has a decision: approve")
	})
}

func TestApprovalRulesNameWhoDecides(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		admin, developer := member(t, o.s, o.workspace, accounts.Admin), member(t, o.s, o.workspace, accounts.Developer)
		tool := map[string]any{"type": "http", "name": "pay", "url": o.tool.URL, "require_approval": "always", "approval_rules": map[string]any{"roles": []string{"owner", "admin"}, "approvers": 2}}
		id := o.begin(t, `tool:pay{"to":"x"};text:Done.`, "awaiting_approval", "tools", []any{tool})
		path, hash := asked(t, o.browser, id)
		approve := url.Values{"decision": {"approve"}, "arguments_hash": {hash}}
		developer.post(t, path, approve).rejects(t, 403, "owner, admin")
		o.post(t, path, url.Values{"decision": {"respond"}, "arguments_hash": {hash}, "response": {"No."}}).rejects(t, 400, "two approvers")
		for range 2 { // the same person counts once
			o.post(t, path, approve).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "One of two approvers has approved the call.", "owner, admin")
		if len(o.calls()) != 0 {
			t.Fatal("the call was made after one approval")
		}
		admin.post(t, path, approve).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		if calls := o.calls(); len(calls) != 1 {
			t.Errorf("the tool got %v, want one call", calls)
		}

		id = o.begin(t, `tool:pay{"to":"x"};text:Done.`, "awaiting_approval")
		path, hash = asked(t, o.browser, id)
		o.post(t, path, url.Values{"decision": {"edit"}, "arguments_hash": {hash}, "arguments": {"{"}}).rejects(t, 400, "must be a JSON object")
		o.post(t, path, url.Values{"decision": {"edit"}, "arguments_hash": {hash}, "arguments": {`{"to":"y"}`}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		if calls := o.calls(); len(calls) != 2 || !strings.Contains(calls[1], `"y"`) {
			t.Errorf("the tool got %v", calls)
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Approved with other arguments by The owner", `{&#34;to&#34;:&#34;y&#34;}`)
	})
}

func TestRejectedReasonStaysWithItsCall(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		id := o.begin(t, `tool:pay{}+tool:pay{}`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		again := o.post(t, path, url.Values{"decision": {"perhaps"}, "arguments_hash": {hash}, "reason": {"too much"}}).rejects(t, 400, "approve, deny")
		if forms, kept := strings.Count(again.body, `/approvals/`), strings.Count(again.body, `value="too much"`); forms != 6 || kept != 1 {
			t.Errorf("of %d forms %d have the reason of one", forms, kept)
		}
	})
}

func TestStaleApprovalIsRejected(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		id := o.begin(t, `tool:pay{};tool:pay{};text:Done.`, "awaiting_approval")
		first, hash := asked(t, o.browser, id)
		o.post(t, first, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		var second string
		o.s.Eventually(t, func() bool {
			page := o.get(t, o.in(accounts.Test, "runs/"+id))
			if !strings.Contains(page.body, "/approvals/") {
				return false
			}
			second = page.find(t, `action="([^"]+/approvals/[^"]+)"`)
			return second != first
		})
		o.post(t, first, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}).rejects(t, 409, "already has a decision: approve")
		o.post(t, first, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.post(t, o.in(accounts.Test, "runs/"+id+"/approvals/"+ids.New(ids.Approval)), url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).rejects(t, 404, "approval")
		o.post(t, o.in(accounts.Test, "runs/"+id+"/approvals/nonsense"), url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).rejects(t, 404, "approval")
		if len(o.calls()) != 1 {
			t.Errorf("the tool was called %d times", len(o.calls()))
		}
		o.waitFor(t, "/v1/agents/runs/"+id, "awaiting_approval")
	})
}

func TestRolesLimitDecisionsAboutRuns(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		viewer := member(t, o.s, o.workspace, accounts.Viewer)
		other := member(t, o.s, o.s.Workspace(t, "other"), accounts.Owner)
		id := o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		viewer.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Approve call of", "Your role can't approve").hides(t, "<form method=\"post\" class=\"stack\"", "/cancel")
		yes := url.Values{"decision": {"approve"}, "arguments_hash": {hash}}
		viewer.post(t, path, yes).rejects(t, 403, "agents.runs:approve")
		viewer.post(t, o.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).rejects(t, 403, "agents.runs:create")
		other.get(t, other.in(accounts.Test, "runs/"+id)).is(t, 404)
		other.post(t, strings.Replace(path, o.workspace.ID, other.workspace.ID, 1), yes).is(t, 404)
		other.post(t, other.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).is(t, 404)
		other.get(t, o.in(accounts.Test, "runs/"+id)).is(t, 404)
		o.post(t, strings.Replace(path, "/test/", "/live/", 1), yes).is(t, 404)
		o.get(t, o.in(accounts.Live, "runs/"+id)).is(t, 404)
		o.waitFor(t, "/v1/agents/runs/"+id, "awaiting_approval")

		o.post(t, o.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).redirectsTo(t, o.in(accounts.Test, "runs/"+id))
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Run canceled.", "The run was canceled.").hides(t, "Approve call of", "/cancel")
		o.post(t, path, yes).rejects(t, 409, "Its status is cancelled")
		if acts := o.loggedActions(t, id); len(acts) != 1 || acts[0] != "agent.run.cancelled "+o.person.ID || len(o.calls()) != 0 {
			t.Errorf("the admin log has %v, the tool %v", acts, o.calls())
		}
		done := o.begin(t, "text:Done.", "completed")
		o.post(t, o.in(accounts.Test, "runs/"+done+"/cancel"), url.Values{}).rejects(t, 409, "has already ended")
	})
}

func TestRunStepsArePaged(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		id := o.begin(t, `tool:ask{"q":"<script>alert(1)</script>"};text:`+script+`;answer`, "requires_action", "instructions", "Be kind."+script)
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Your code must run <code>ask</code>", "/v1/agents/runs/"+id+"/tool_outputs", "Be kind.").harmless(t).hides(t, "/approvals/")
		o.get(t, o.in(accounts.Test, "runs")).hides(t, "badge warn\">1<")
		call := o.waitFor(t, "/v1/agents/runs/"+id, "requires_action").Text("required_actions.0.call_id")
		long := strings.Repeat(script, 8000) + "the end"
		o.create(t, "/v1/agents/runs/"+id+"/tool_outputs", map[string]any{"tool_outputs": []any{map[string]any{"call_id": call, "output": long}}})
		o.waitFor(t, "/v1/agents/runs/"+id, "completed")
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Step 1", "Step 2", "more characters").hides(t, "the end").harmless(t).small(t)
		o.get(t, o.in(accounts.Test, "runs/"+id+"?step=1")).shows(t, "Step 1", "the end").hides(t, "Step 2", "more characters").harmless(t)
		o.get(t, o.in(accounts.Test, "runs/"+id+"?step=3")).is(t, 404)

		// The last steps are shown first, and all can be reached.
		id = o.begin(t, `unknown:nothing*25;text:Done.`, "completed", "max_steps", 30)
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "26 of 30", "Step 17<", "Step 26<", "Earlier steps").hides(t, "Step 16<", "Later steps")
		page = o.get(t, page.find(t, `href="([^"#]+)#steps">Earlier`)).shows(t, "Step 7<", "Step 16<", "Later steps").hides(t, "Step 6<", "Step 17<")
		o.get(t, page.find(t, `href="([^"#]+)#steps">Earlier`)).shows(t, "Step 1<", "Step 6<").hides(t, "Earlier steps", "Step 7<")
		o.get(t, page.find(t, `href="([^"#]+)#steps">Later`)).shows(t, "Step 17<", "Step 26<")
	})
}

func TestRunResultIsShown(t *testing.T) {
	t.Parallel()
	withRunTest(t, func(t *testing.T, o *runTest) {
		output := map[string]any{"max_revisions": 2, "schema": map[string]any{"type": "object", "required": []string{"n"}, "additionalProperties": false,
			"properties": map[string]any{"n": map[string]any{"type": "integer"}}}}
		id := o.begin(t, `invalid;text:{"n":7}`, "completed", "output", output, "budget", map[string]any{"max_credits": 5})
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "{\n  &#34;n&#34;: 7\n}", "Checks", "passed", "schema", "revised its output 1 time", "of 5")
		id = o.begin(t, `text:`+script, "failed", "output", map[string]any{"max_revisions": 0, "schema": output["schema"]})
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "verification_failed", "it is not valid JSON", "Partial output (not a result)").harmless(t)
	})
}
