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
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// office is a workspace whose agents call a tool on this machine, and whose
// people watch them.
type office struct {
	*jobMaker
	tool *httptest.Server

	mu   sync.Mutex
	came []string // bodies of the tool's calls
}

func eachOffice(t *testing.T, fn func(t *testing.T, o *office)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			o := &office{}
			o.tool = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				o.mu.Lock()
				o.came = append(o.came, string(body))
				o.mu.Unlock()
				_, _ = io.WriteString(w, "paid"+script)
			}))
			t.Cleanup(o.tool.Close)
			cfg := harness.Config(t, engine)
			cfg.Agents.AllowHTTP = true
			cfg.Agents.TestToolsDefault = "real"
			cfg.Agents.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			o.jobMaker = newJobMaker(t, harness.Start(t, cfg, harness.NewClock()))
			fn(t, o)
		})
	}
}

// calls are what the tool was told so far.
func (o *office) calls() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.came...)
}

// begin makes a run of the steps, and returns its id when it has come to the
// state. The tool pay asks for approval, and ask is the customer's own.
func (o *office) begin(t *testing.T, steps, status string, more ...any) string {
	t.Helper()
	body := map[string]any{"model": "gpt-4o", "input": "Pay it." + script + " [[sim:script=" + steps + "]]", "metadata": map[string]string{"for": script}, "tools": []any{
		map[string]any{"type": "http", "name": "pay", "url": o.tool.URL, "require_approval": "always"}, map[string]any{"type": "function", "name": "ask"}}}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	id := o.order(t, "/v1/agents/runs", body).Text("id")
	o.ends(t, "/v1/agents/runs/"+id, status)
	return id
}

// asked are where the first form of a run's page is sent to, and the hash in it.
func asked(t *testing.T, b *browser, id string) (path, hash string) {
	t.Helper()
	page := b.get(t, b.in(accounts.Test, "runs/"+id)).is(t, 200)
	return page.find(t, `action="([^"]+/approvals/[^"]+)"`), page.find(t, `name="arguments_hash" value="([0-9a-f]{64})"`)
}

func TestRunPageShowsSimulatedTools(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		o.workspace.TestTools = accounts.ToolsSimulated
		if err := o.s.DB.Write(t.Context(), func(tx *db.Tx) error { return accounts.UpdateWorkspace(t.Context(), tx, o.workspace) }); err != nil {
			t.Fatal(err)
		}
		id := o.begin(t, `tool:pay{"to":"x"};text:Done.`, "awaiting_approval", "output", map[string]any{"checks": []any{map[string]any{"type": "http", "url": o.tool.URL}}})
		path, hash := asked(t, o.browser, id)
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "HTTP and MCP tools are simulated")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		o.ends(t, "/v1/agents/runs/"+id, "completed")
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "The check was simulated.", "&#34;simulated&#34;:true")
		if n := strings.Count(page.body, `>simulated</span>`); n != 2 {
			t.Errorf("the page has %d badges, want one for the call and one for the check", n)
		}
		if calls := o.calls(); len(calls) != 0 {
			t.Errorf("the tool got %v, want nothing", calls)
		}
	})
}

func TestAPersonApprovesACall(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		o.get(t, o.in(accounts.Test, "runs")).shows(t, "There are no test runs")
		id := o.begin(t, `tool:pay{"to":"`+"\u202e"+`moc.live","sum":"<script>alert(1)</script>"};text:Done.`, "awaiting_approval")
		o.get(t, o.in(accounts.Test, "runs")).shows(t, id, "awaiting approval", `<span class="badge warn">1</span>`, "1 of 20")
		o.get(t, o.in(accounts.Test, "runs?status=awaiting_approval")).shows(t, id)
		o.get(t, o.in(accounts.Test, "runs?status=completed")).shows(t, "There are no such runs here").hides(t, id)
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Approve the call of <code>pay</code>?", "Pay it.").harmless(t)
		// Nothing hides in what is approved.
		arguments := html.UnescapeString(page.find(t, `<pre class="words" id="arguments-[^"]+">([^<]+)</pre>`))
		if arguments != `{"to":"\u202emoc.live","sum":"<script>alert(1)</script>"}` {
			t.Errorf("the arguments are shown as %s", arguments)
		}
		path, hash := asked(t, o.browser, id)
		if len(o.calls()) != 0 {
			t.Fatal("nobody has approved it")
		}
		o.post(t, path, url.Values{"decision": {"approve"}}).refuses(t, 400, "load the page again")
		o.post(t, path, url.Values{"decision": {"maybe"}, "arguments_hash": {hash}}).refuses(t, 400, "approve or deny")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {strings.Repeat("0", 64)}}).refuses(t, 409, "does not match the arguments")
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}, "reason": {"fine" + script}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		r := o.ends(t, "/v1/agents/runs/"+id, "completed")
		if calls := o.calls(); len(calls) != 1 || !strings.Contains(calls[0], "moc.live") || r.Text("result.output_text") != "Done." {
			t.Errorf("the tool was told %v, and the result is %s", calls, r.Body)
		}
		steps := o.s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + id + "/steps", Key: o.key}).Want(t, 200, "")
		if by := steps.Text("data.0.tool_calls.0.approval.decided_by"); by != o.person.ID {
			t.Errorf("it was decided by %s", by)
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "You approved the call of pay.", "completed", "Done.", "Approved by The owner", "Reason: fine", "paid&#34;&gt;", "2 of 20").harmless(t).
			hides(t, "Approve the call of")
		o.get(t, o.in(accounts.Test, "runs")).shows(t, id, "completed").hides(t, `badge warn`)
		if acts := o.acts(t, id); len(acts) != 1 || acts[0] != "agent.run.approve "+o.person.ID {
			t.Errorf("the admin log has %v", acts)
		}
	})
}

func TestAPersonDeniesACall(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		id := o.begin(t, `tool:pay{}`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		o.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}, "reason": {"too much"}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		r := o.ends(t, "/v1/agents/runs/"+id, "completed")
		if len(o.calls()) != 0 || !strings.Contains(r.Text("result.output_text"), "too much") {
			t.Errorf("the tool was called %d times, and the model says %s", len(o.calls()), r.Body)
		}
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "You denied the call of pay.", "Denied by The owner", "Reason: too much")
	})
}

// TestAResultThatBreaksOff says so to whoever reads it.
func TestAResultThatBreaksOff(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		for input, truncated := range map[string]bool{"Say it. [[sim:finish=length]]": true, "Say nothing. [[sim:text=]] [[sim:finish=length]]": true, "Say it.": false} {
			id := o.begin(t, "", "completed", "input", input)
			page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Result")
			if truncated {
				page.shows(t, "It breaks off")
			} else {
				page.hides(t, "It breaks off")
			}
		}
	})
}

// TestTwoPeopleDecide: one of them does, and the other is told.
func TestTwoPeopleDecide(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		second := member(t, o.s, o.workspace, accounts.Developer)
		id := o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		answers := make([]*answer, 2)
		var both sync.WaitGroup
		both.Go(func() { answers[0] = o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}) })
		both.Go(func() { answers[1] = second.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}) })
		both.Wait()
		winner, loser, late := answers[0], answers[1], "The owner had approved this call before you"
		if answers[1].status == http.StatusSeeOther {
			winner, loser, late = answers[1], answers[0], "The developer had denied this call before you"
		}
		winner.leadsTo(t, o.in(accounts.Test, "runs/"+id))
		loser.refuses(t, 409, late)
		o.ends(t, "/v1/agents/runs/"+id, "completed")

		// Who says the same a second time hears that it was said.
		id = o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash = asked(t, o.browser, id)
		o.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		o.ends(t, "/v1/agents/runs/"+id, "completed")
		to := second.post(t, path, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		second.get(t, to).shows(t, "It was approved already")
		o.post(t, path, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}).refuses(t, 409, "you had approved this call already")
	})
}

func TestAReasonStaysWithTheCallThatItIsOf(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		id := o.begin(t, `tool:pay{}+tool:pay{}`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		again := o.post(t, path, url.Values{"decision": {"perhaps"}, "arguments_hash": {hash}, "reason": {"too much"}}).refuses(t, 400, "approve or deny")
		if forms, kept := strings.Count(again.body, `/approvals/`), strings.Count(again.body, `value="too much"`); forms != 2 || kept != 1 {
			t.Errorf("of %d forms %d have the reason of one", forms, kept)
		}
	})
}

// TestAnOldApprovalDecidesNothing: each decision is about one call.
func TestAnOldApprovalDecidesNothing(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		id := o.begin(t, `tool:pay{};tool:pay{};text:Done.`, "awaiting_approval")
		first, hash := asked(t, o.browser, id)
		o.post(t, first, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		var second string
		o.s.Eventually(t, func() bool {
			page := o.get(t, o.in(accounts.Test, "runs/"+id))
			if !strings.Contains(page.body, "/approvals/") {
				return false
			}
			second = page.find(t, `action="([^"]+/approvals/[^"]+)"`)
			return second != first
		})
		o.post(t, first, url.Values{"decision": {"deny"}, "arguments_hash": {hash}}).refuses(t, 409, "you had approved this call already")
		o.post(t, first, url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		o.post(t, o.in(accounts.Test, "runs/"+id+"/approvals/"+ids.New(ids.Approval)), url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).refuses(t, 404, "approval")
		o.post(t, o.in(accounts.Test, "runs/"+id+"/approvals/nonsense"), url.Values{"decision": {"approve"}, "arguments_hash": {hash}}).refuses(t, 404, "approval")
		if len(o.calls()) != 1 {
			t.Errorf("the tool was called %d times", len(o.calls()))
		}
		o.ends(t, "/v1/agents/runs/"+id, "awaiting_approval")
	})
}

func TestWhoMayTouchARun(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		viewer := member(t, o.s, o.workspace, accounts.Viewer)
		other := member(t, o.s, o.s.Workspace(t, "other"), accounts.Owner)
		id := o.begin(t, `tool:pay{};text:Done.`, "awaiting_approval")
		path, hash := asked(t, o.browser, id)
		viewer.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Approve the call of", "Your role cannot decide").hides(t, "<form method=\"post\" class=\"stack\"", "/cancel")
		yes := url.Values{"decision": {"approve"}, "arguments_hash": {hash}}
		viewer.post(t, path, yes).refuses(t, 403, "agents.runs:approve")
		viewer.post(t, o.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).refuses(t, 403, "agents.runs:create")
		other.get(t, other.in(accounts.Test, "runs/"+id)).is(t, 404)
		other.post(t, strings.Replace(path, o.workspace.ID, other.workspace.ID, 1), yes).is(t, 404)
		other.post(t, other.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).is(t, 404)
		other.get(t, o.in(accounts.Test, "runs/"+id)).is(t, 404)
		o.post(t, strings.Replace(path, "/test/", "/live/", 1), yes).is(t, 404)
		o.get(t, o.in(accounts.Live, "runs/"+id)).is(t, 404)
		o.ends(t, "/v1/agents/runs/"+id, "awaiting_approval")

		o.post(t, o.in(accounts.Test, "runs/"+id+"/cancel"), url.Values{}).leadsTo(t, o.in(accounts.Test, "runs/"+id))
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "The run is cancelled.", "The run was canceled.").hides(t, "Approve the call of", "/cancel")
		o.post(t, path, yes).refuses(t, 409, "Its status is cancelled")
		if acts := o.acts(t, id); len(acts) != 1 || acts[0] != "agent.run.cancelled "+o.person.ID || len(o.calls()) != 0 {
			t.Errorf("the admin log has %v, the tool %v", acts, o.calls())
		}
		done := o.begin(t, "text:Done.", "completed")
		o.post(t, o.in(accounts.Test, "runs/"+done+"/cancel"), url.Values{}).refuses(t, 409, "has already ended")
	})
}

// TestTheStepsOfARun are a timeline, in which long texts are cut off.
func TestTheStepsOfARun(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		id := o.begin(t, `tool:ask{"q":"<script>alert(1)</script>"};text:`+script+`;answer`, "requires_action", "instructions", "Be kind."+script)
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Your code has to run <code>ask</code>", "/v1/agents/runs/"+id+"/tool_outputs", "Be kind.").harmless(t).hides(t, "/approvals/")
		o.get(t, o.in(accounts.Test, "runs")).hides(t, "badge warn\">1<")
		call := o.ends(t, "/v1/agents/runs/"+id, "requires_action").Text("required_actions.0.call_id")
		long := strings.Repeat(script, 8000) + "the end"
		o.order(t, "/v1/agents/runs/"+id+"/tool_outputs", map[string]any{"tool_outputs": []any{map[string]any{"call_id": call, "output": long}}})
		o.ends(t, "/v1/agents/runs/"+id, "completed")
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "Step 1", "Step 2", "more characters").hides(t, "the end").harmless(t).small(t)
		o.get(t, o.in(accounts.Test, "runs/"+id+"?step=1")).shows(t, "Step 1", "the end").hides(t, "Step 2", "more characters").harmless(t)
		o.get(t, o.in(accounts.Test, "runs/"+id+"?step=3")).is(t, 404)

		// The last ones are shown first, and all can be reached.
		id = o.begin(t, `unknown:nothing*25;text:Done.`, "completed", "max_steps", 30)
		page := o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "26 of 30", "Step 17<", "Step 26<", "Earlier steps").hides(t, "Step 16<", "Later steps")
		page = o.get(t, page.find(t, `href="([^"#]+)#steps">Earlier`)).shows(t, "Step 7<", "Step 16<", "Later steps").hides(t, "Step 6<", "Step 17<")
		o.get(t, page.find(t, `href="([^"#]+)#steps">Earlier`)).shows(t, "Step 1<", "Step 6<").hides(t, "Earlier steps", "Step 7<")
		o.get(t, page.find(t, `href="([^"#]+)#steps">Later`)).shows(t, "Step 17<", "Step 26<")
	})
}

// TestTheResultOfARun is shown as it is, with what its checks came to.
func TestTheResultOfARun(t *testing.T) {
	t.Parallel()
	eachOffice(t, func(t *testing.T, o *office) {
		output := map[string]any{"max_revisions": 2, "schema": map[string]any{"type": "object", "required": []string{"n"}, "additionalProperties": false,
			"properties": map[string]any{"n": map[string]any{"type": "integer"}}}}
		id := o.begin(t, `invalid;text:{"n":7}`, "completed", "output", output, "budget", map[string]any{"max_credits": 5})
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "{\n  &#34;n&#34;: 7\n}", "Checks", "passed", "schema", "revised its answer 1 time", "of 5")
		id = o.begin(t, `text:`+script, "failed", "output", map[string]any{"max_revisions": 0, "schema": output["schema"]})
		o.get(t, o.in(accounts.Test, "runs/"+id)).shows(t, "verification_failed", "it is not valid JSON", "Last answer").harmless(t)
	})
}
