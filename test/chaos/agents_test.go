package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"turnpike/internal/events"
	"turnpike/test/chaos/program"
	"turnpike/test/fakes/upstreams"
)

// TestRunsEndToEnd is what a customer sees of runs without any crash.
func TestRunsEndToEnd(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		a := newAgency(t, at)
		for _, part := range []struct {
			name string
			test func(*testing.T, *agency)
		}{
			{"all steps are used", exhaust},
			{"an MCP server", useMCP},
			{"cancelled during the tool's call", cancelInTool},
			{"cancelled during a model call", cancelInModel},
		} {
			if !t.Run(part.name, func(t *testing.T) { part.test(t, a) }) {
				return
			}
			a.openAll()
			a.mind.reply = obedient
		}
		noRepeats(t, a.audit(t, a.server))
	})
}

// exhaust has a model that never comes to an end.
func exhaust(t *testing.T, a *agency) {
	a.mind.reply = func(int, []json.RawMessage) upstreams.OpenAIReply {
		return upstreams.OpenAIReply{Calls: []upstreams.OpenAICall{{Name: toolName, Arguments: arguments}}}
	}
	const most = 3
	id := a.create(t, a.server.URL, order{maxSteps: most})
	r := a.finish(t, id)
	if r.Status != "failed" || r.Error == nil || r.Error.Code != "max_steps_exceeded" || r.StepsUsed != most {
		t.Errorf("the run is %s after %d steps: %+v", r.Status, r.StepsUsed, r.Error)
	}
	steps := a.steps(t, a.server.URL, id)
	if len(steps) != most {
		t.Fatalf("%d steps are kept", len(steps))
	}
	for i, s := range steps {
		if s.Number != i+1 || s.Status != "completed" || len(s.ToolCalls) != 1 || s.ToolCalls[0].Status != "completed" || s.ToolCalls[0].Output == "" {
			t.Errorf("step %d is kept as %+v", i+1, s)
		}
		// Nobody would read what comes of the last one.
		last := i == most-1
		if n := a.tool.made(fmt.Sprintf("%s:call_%d_0", id, i+1)); n != map[bool]int{false: 1, true: 0}[last] || s.ToolCalls[0].IsError != last {
			t.Errorf("the tool was called %d times in step %d: %+v", n, i+1, s.ToolCalls)
		}
	}
	a.fails(t, id, "failed", most-1)
}

// fails sees that the end of a run is told once, by agent.run.failed, and that
// it has asked for so many approvals.
func (a *agency) fails(t *testing.T, id, status string, approvals int) {
	t.Helper()
	var event *events.AgentRun
	eventually(t, patience, "the receiver hears of the end", func() bool {
		event = a.delivered(events.AgentRunFailed, id)
		return event != nil
	})
	if event.Status != status || event.Error == nil || event.Usage.Credits == 0 {
		t.Errorf("the event says %+v", event)
	}
	want := append(slices.Repeat([]events.Type{events.AgentRunAwaitingApproval}, approvals), events.AgentRunFailed)
	if kinds := a.told(t, id); !slices.Equal(kinds, want) {
		t.Errorf("the run was told of by %v", kinds)
	}
	if r := a.run(t, id); r.Usage.Credits != a.logged(t, id) {
		t.Errorf("the run says that it cost %s, the log %s", r.Usage.Credits, a.logged(t, id))
	}
}

// cancelInTool cancels a run whose tool is at work.
func cancelInTool(t *testing.T, a *agency) {
	id := inTool(t, a, order{})
	var r events.AgentRun
	a.ask(t, a.server.URL, request{method: "POST", path: "/v1/agents/runs/" + id + "/cancel"}, &r)
	a.reaches(t, id, "cancelled")
	a.fails(t, id, "cancelled", 1)
	if n := a.tool.made(id + ":call_1_0"); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
}

// cancelInModel cancels a run while its model thinks: the call that is given up
// is paid for by the run.
func cancelInModel(t *testing.T, a *agency) {
	reached := a.mind.gates[0].close()
	id := a.create(t, a.server.URL, order{})
	wait(t, "the model is asked", reached)
	var r events.AgentRun
	a.ask(t, a.server.URL, request{method: "POST", path: "/v1/agents/runs/" + id + "/cancel"}, &r)
	a.reaches(t, id, "cancelled")
	a.mind.gates[0].open()
	eventually(t, patience, "the call is settled", func() bool {
		return count(t, a.d, "SELECT count(*) FROM requests WHERE NOT settled AND path = $1", "/v1/agents/runs/"+id) == 0
	})
	if r := a.run(t, id); r.Usage.Credits != a.logged(t, id) {
		t.Errorf("the run says that it cost %s, the log %s", r.Usage.Credits, a.logged(t, id))
	}
	if kinds := a.told(t, id); !slices.Equal(kinds, []events.Type{events.AgentRunFailed}) {
		t.Errorf("the run was told of by %v", kinds)
	}
}

// library is a real MCP server.
type library struct {
	mu    sync.Mutex
	calls []string // tool, arguments and key
}

func (l *library) handler() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`)
	for name, result := range map[string]*mcp.CallToolResult{
		"search": {Content: []mcp.Content{&mcp.TextContent{Text: "Shelf 3."}}},
		"lend":   {Content: []mcp.Content{&mcp.TextContent{Text: "It is lent already."}}, IsError: true},
		"burn":   {},
	} {
		s.AddTool(&mcp.Tool{Name: name, Description: name + "s a book", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, fmt.Sprint(name, " ", string(r.Params.Arguments), " ", r.Params.Meta["turnpike/idempotency-key"]))
			return result, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

// useMCP has a run use two tools of an MCP server that has three: one by
// approval, which is the default, one without, which fails. One that it was not
// given cannot be called.
func useMCP(t *testing.T, a *agency) {
	l := &library{}
	url := listen(t, l.handler())
	var last []json.RawMessage
	a.mind.reply = func(said int, messages []json.RawMessage) upstreams.OpenAIReply {
		last = messages
		if said < 3 {
			return upstreams.OpenAIReply{Calls: []upstreams.OpenAICall{{Name: "library__" + []string{"search", "lend", "burn"}[said], Arguments: `{"q":"Go"}`}}}
		}
		return upstreams.OpenAIReply{Text: finalText}
	}
	before := len(a.mind.mock.Requests())
	id := a.create(t, a.server.URL, order{tools: fmt.Sprintf(`[{"type":"mcp","server_label":"library","server_url":%q,"allowed_tools":["search","lend"],
		"require_approval":{"never":{"tool_names":["lend"]}}}]`, url)})
	r := a.reaches(t, id, "awaiting_approval")
	if len(r.RequiredActions) != 1 || r.RequiredActions[0].Tool != "library__search" || len(l.calls) != 0 {
		t.Fatalf("the run asks for %+v after the calls %v", r.RequiredActions, l.calls)
	}
	var first struct {
		Tools []struct {
			Function struct{ Name, Description string }
		}
	}
	if err := json.Unmarshal(a.mind.mock.Requests()[before].Body, &first); err != nil {
		t.Fatal(err)
	}
	var offered []string
	for _, tool := range first.Tools {
		offered = append(offered, tool.Function.Name+": "+tool.Function.Description)
	}
	slices.Sort(offered)
	if !slices.Equal(offered, []string{"library__lend: lends a book", "library__search: searchs a book"}) {
		t.Errorf("the model was offered %v", offered)
	}
	if o := a.decide(a.server.URL, id, r.RequiredActions[0]); o.status != http.StatusOK {
		t.Fatalf("the approval was not taken: %v\n%s", o, o.body)
	}
	r = a.reaches(t, id, "completed")
	if want := []string{`search {"q":"Go"} ` + id + ":call_1_0", `lend {"q":"Go"} ` + id + ":call_2_0"}; !slices.Equal(l.calls, want) {
		t.Errorf("the server was called: %q", l.calls)
	}
	for i, want := range []string{"Shelf 3.", "It is lent already.", "There is no tool"} {
		made := a.steps(t, a.server.URL, id)[i].ToolCalls[0]
		told := string(last[len(last)-5+2*i])
		if made.IsError != (i > 0) || !strings.Contains(made.Output, want) || !strings.Contains(told, want) {
			t.Errorf("call %d came to %+v, and the model was told %s", i+1, made, told)
		}
	}
	if r.Usage.Credits != a.logged(t, id) {
		t.Errorf("the run says that it cost %s, the log %s", r.Usage.Credits, a.logged(t, id))
	}
}
