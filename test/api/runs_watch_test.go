package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// streamed is an event of a stream.
type streamed struct {
	id   int
	name string
	data string
}

// reading is an open stream of a run's log.
type reading struct {
	*bufio.Scanner
	stop func() error
}

// openStream opens the stream of a run.
func (l *agentClient) openStream(t *testing.T, path string, header http.Header) *reading {
	t.Helper()
	res := l.Open(t, harness.Request{Method: "GET", Path: path, Key: l.key, Header: header})
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("the stream answers %d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	return &reading{bufio.NewScanner(res.Body), res.Body.Close}
}

// next returns the stream's next event. The last one has the data [DONE].
func (r *reading) next(t *testing.T) (e streamed) {
	t.Helper()
	for r.Scan() {
		field, value, _ := strings.Cut(r.Text(), ": ")
		switch field {
		case "id":
			e.id, _ = strconv.Atoi(value)
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.data != "" {
				return e
			}
		}
	}
	t.Fatal("the stream broke off")
	return e
}

// rest returns all events until [DONE], which must be numbered from first on.
func (r *reading) rest(t *testing.T, first int) (names []string) {
	t.Helper()
	for {
		e := r.next(t)
		if e.data == "[DONE]" {
			return names
		}
		var in struct {
			Seq  int
			Type string
		}
		if err := json.Unmarshal([]byte(e.data), &in); err != nil || in.Seq != e.id || in.Type != e.name || e.id != first+len(names) {
			t.Fatalf("event %d is %+v", first+len(names), e)
		}
		names = append(names, e.name)
	}
}

func TestRunEventsAreStreamedAndResumed(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		other := l
		if l.DB.Engine() == "postgres" {
			c := *l.client
			c.Server = harness.Start(t, l.cfg, l.Clock)
			other = &agentClient{&c, l.model, l.cfg}
		}
		stockTool := newTool(t, l, "3")
		script := append(again(4), reply{text: "Done."})
		script[2].gate = "g"
		input := l.model.addScript("watched", script...)
		path := l.startRun(t, runBody(input, []any{webTool("stock", stockTool.URL)}))
		both := []*reading{l.openStream(t, path+"/events?stream=true", nil), other.openStream(t, path+"/events?stream=true", nil)}
		seen := make([]int, 2)
		for i, r := range both {
			for r.next(t).name != "tool_call.completed" {
				seen[i]++
			}
			seen[i]++
			if err := r.stop(); err != nil { // the client loses its connection
				t.Fatal(err)
			}
		}
		resumed := []*reading{l.openStream(t, path+"/events?stream=true", http.Header{"Last-Event-ID": {fmt.Sprint(seen[0])}}),
			other.openStream(t, fmt.Sprint(path, "/events?stream=true&starting_after=", seen[1]), nil)}
		l.model.open("g")
		l.waitForEnd(t, path, "completed")
		all := l.history(t, path)
		for i, r := range resumed {
			if got := r.rest(t, seen[i]+1); !slices.Equal(got, all[seen[i]:]) {
				t.Errorf("stream %d brought %v, want %v", i, got, all[seen[i]:])
			}
		}
		// The stream of a finished run has all events and then ends.
		if got := other.openStream(t, path+"/events?stream=true", nil).rest(t, 1); !slices.Equal(got, all) {
			t.Errorf("afterwards it brought %v", got)
		}
		if got := l.openStream(t, fmt.Sprint(path, "/events?stream=true&starting_after=", len(all)), nil).rest(t, len(all)+1); len(got) != 0 {
			t.Errorf("after the end came %v", got)
		}
		// Read the same log in pages.
		var paged []string
		for after := 0; ; {
			r := l.get(t, fmt.Sprint(path, "/events?limit=4&starting_after=", after))
			for _, e := range objects(r, "data") {
				paged = append(paged, e["type"].(string))
			}
			after = len(paged)
			if r.At("has_more") != true {
				break
			}
		}
		if !slices.Equal(paged, all) {
			t.Errorf("the pages have %v", paged)
		}
		for _, bad := range []string{"?stream=maybe", "?starting_after=-1", "?starting_after=x", "?limit=0", "?what=1"} {
			if r := l.ask(t, "GET", path+"/events"+bad, nil); r.Status != 400 {
				t.Errorf("%s answers %d", bad, r.Status)
			}
		}
		l.Do(t, harness.Request{Method: "GET", Path: path + "/events", Key: l.key, Header: http.Header{"Last-Event-ID": {"x"}}}).Want(t, 400, "invalid_parameter")
	})
}

func TestStreamEndsWhenItsKeyIsRevoked(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("seen", calls(toolCall{"mine", ok}), reply{text: "Done."}), []any{function("mine")}))
		call := l.waitForAction(t, path, "requires_action")[0]["call_id"].(string)
		viewer, id := l.withKey(t, access.Key{Scopes: []string{"agents.runs:read"}})
		stream := viewer.openStream(t, path+"/events?stream=true&starting_after=5", nil)
		if e := stream.next(t); e.name != "run.requires_action" {
			t.Errorf("the first event is %+v", e)
		}
		l.ask(t, "DELETE", "/v1/keys/"+id, nil).Want(t, 200, "")
		if e := stream.next(t); e.name != "error" || !strings.Contains(e.data, "authentication_error") {
			t.Errorf("then comes %+v", e)
		}
		l.output(t, path, call, "a secret").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		if stream.Scan() {
			t.Errorf("the stream goes on with %q", stream.Text())
		}
	})
}

func TestRunCanBeCreatedAsAStream(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		body := runBody(l.model.addScript("live", reply{text: "Hello."}), nil, "stream", true)
		res := l.Open(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: body})
		names := (&reading{bufio.NewScanner(res.Body), res.Body.Close}).rest(t, 1)
		if names[0] != "run.queued" || names[len(names)-1] != "run.completed" {
			t.Errorf("it brought %v", names)
		}
		l.Do(t, harness.Request{Method: "POST", Path: runs, Key: l.key, Body: body, Header: http.Header{"Idempotency-Key": {"a"}}}).Want(t, 400, "invalid_parameter")
		if n := l.rows(t, "agent_runs"); n != 1 {
			t.Errorf("got %d runs", n)
		}
	})
}

func TestRunsAreIsolatedByTenant(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		payTool := newTool(t, l, "paid")
		input := l.model.addScript("owned", calls(toolCall{"pay", ok}), reply{text: "Done."})
		token := func(user string) *agentClient {
			r := l.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"agents.runs:create"}, "metadata": map[string]any{"user": user}})
			return l.as(r.Text("value"))
		}
		ann, alsoAnn, bob := token("ann"), token("ann"), token("bob")
		path := ann.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
		own := l.startRun(t, runBody(input, []any{approved("pay", payTool.URL)}))
		approval := l.waitForAction(t, path, "awaiting_approval")[0]
		l.waitForAction(t, own, "awaiting_approval")
		if got := idsOf(alsoAnn.get(t, runs)); !slices.Equal(got, []string{idOf(path)}) {
			t.Errorf("her other token sees %v", got)
		}
		if len(idsOf(bob.get(t, runs))) != 0 || len(idsOf(l.get(t, runs))) != 2 {
			t.Error("the lists are not apart")
		}
		alsoAnn.get(t, path+"/steps")
		ann.ask(t, "GET", own, nil).Want(t, 404, "not_found")
		stranger := &agentClient{newClient(t, l.Server, accounts.Live), l.model, l.cfg}
		tester := l.as(l.withTestKey(t).key)
		for who, other := range map[string]*agentClient{"bob": bob, "a stranger": stranger, "test": tester} {
			for _, call := range [][2]string{{"GET", path}, {"GET", path + "/steps"}, {"GET", path + "/events"}, {"GET", path + "/events?stream=true"}, {"POST", path + "/cancel"},
				{"POST", path + "/tool_outputs"}, {"POST", path + "/approvals/" + approval["id"].(string)}} {
				var body any
				switch {
				case strings.HasSuffix(call[1], "tool_outputs"):
					body = map[string]any{"tool_outputs": []any{map[string]any{"call_id": approval["call_id"], "output": "x"}}}
				case strings.Contains(call[1], "/approvals/"):
					body = map[string]any{"decision": "approve"}
				}
				r := other.ask(t, call[0], call[1], body)
				if r.Status != 404 && (who != "bob" || r.Code() != "scoped_token_not_allowed") {
					t.Errorf("%s gets %d from %s %s", who, r.Status, call[0], call[1])
				}
			}
		}
		l.decide(t, own, approval["id"].(string), "approve").Want(t, 404, "not_found") // another run's
		if r := l.get(t, path); r.Text("status") != "awaiting_approval" || payTool.count() != 0 {
			t.Errorf("a stranger has done something: %s", r.Body)
		}
		alsoAnn.post(t, path+"/cancel", nil)
		l.cancelled(t, path)
	})
}

func TestRunsAreFilteredAndPaged(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		var made []string
		for range 5 {
			made = append(made, idOf(l.startRun(t, runBody(l.model.addScript("listed", reply{text: "x"}), nil))))
		}
		for _, id := range made {
			l.waitForEnd(t, runs+"/"+id, "completed")
		}
		waiting := l.startRun(t, runBody(l.model.addScript("held", calls(toolCall{"mine", ok})), []any{function("mine")}))
		l.waitForAction(t, waiting, "requires_action")
		r := l.get(t, runs+"?status=requires_action")
		if got := objects(r, "data"); len(got) != 1 || got[0]["id"] != idOf(waiting) || len(got[0]["required_actions"].([]any)) != 1 {
			t.Errorf("those that wait: %s", r.Body)
		}
		var paged []string
		for after := ""; ; {
			r := l.get(t, runs+"?limit=2&order=asc&status=completed&after="+after)
			paged = append(paged, idsOf(r)...)
			if after = r.Text("last_id"); r.At("has_more") != true {
				break
			}
		}
		if !slices.Equal(paged, made) {
			t.Errorf("the pages have %v, want %v", paged, made)
		}
		l.ask(t, "GET", runs+"?status=odd", nil).Want(t, 400, "invalid_parameter")

		path := l.startRun(t, runBody(l.model.addScript("long", append(again(4), reply{text: "x"})...), []any{webTool("stock", stockTool.URL)}))
		l.waitForEnd(t, path, "completed")
		var numbers []any
		for after := ""; ; {
			r := l.get(t, path+"/steps?limit=2"+after)
			for _, s := range objects(r, "data") {
				numbers = append(numbers, s["number"])
				if want := map[bool]int{true: 0, false: 1}[s["number"] == 5.0]; len(called(s)) != want {
					t.Errorf("a step has %d calls", len(called(s)))
				}
			}
			if after = "&after=" + r.Text("last_id"); r.At("has_more") != true {
				break
			}
		}
		if fmt.Sprint(numbers) != "[1 2 3 4 5]" {
			t.Errorf("the steps are %v", numbers)
		}
		l.ask(t, "GET", path+"/steps?after="+ids.New(ids.Step), nil).Want(t, 400, "invalid_parameter")
	})
}

func TestRunCreationIsIdempotentPerProject(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		stockTool := newTool(t, l, "3")
		request := harness.Request{Method: "POST", Path: runs, Key: l.key, Body: runBody(l.model.addScript("once", append(again(2), reply{text: "x"})...), []any{webTool("stock", stockTool.URL)}),
			Header: http.Header{"Idempotency-Key": {"k"}, "Service-Project": {"sea"}}}
		first := l.Do(t, request).Want(t, 200, "")
		second := l.Do(t, request).Want(t, 200, "")
		if second.Text("id") != first.Text("id") || second.Header.Get("Idempotent-Replayed") != "true" || l.rows(t, "agent_runs") != 1 {
			t.Errorf("the second time it is %s", second.Body)
		}
		request.Body = runBody("other", nil)
		l.Do(t, request).Want(t, 409, "idempotency_key_reused")
		path := runs + "/" + first.Text("id")
		l.waitForEnd(t, path, "completed")
		if n := l.rows(t, "requests WHERE path = '"+path+"' AND user_agent LIKE '%agent run%' AND project = 'sea' AND status = 200 AND provider = 'model' AND ip <> ''"); n != 3 {
			t.Errorf("%d steps are in the project's log", n)
		}
		for _, s := range l.steps(t, path) {
			e := settled(t, l.Server, l.key, s["request_id"].(string))
			if e.Text("project") != "sea" || amount(t, e, "credits") != oneAnswer {
				t.Errorf("a step's entry is %s", e.Body)
			}
		}
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["project"] != "sea" {
			t.Errorf("got events %v", e)
		}
		if r := l.get(t, "/v1/projects/sea"); amount(t, r, "spent_this_month") != 3*oneAnswer {
			t.Errorf("got project %s", r.Body)
		}
		l.checkLedger(t, 3*oneAnswer)
	})
}

func TestInvalidRunsAreRejected(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		for name, bad := range map[string]struct {
			change map[string]any
			param  string
		}{
			"no model":       {map[string]any{"model": ""}, "model"},
			"unknown model":  {map[string]any{"model": "nobody"}, "model"},
			"no input":       {map[string]any{"input": " "}, "input"},
			"odd input":      {map[string]any{"input": 7}, "input"},
			"odd part":       {map[string]any{"input": []any{map[string]any{"role": "user", "content": []any{[]any{}}}}}, "input[0].content"},
			"tool's words":   {map[string]any{"input": []any{map[string]any{"role": "tool", "content": "x", "tool_call_id": "c"}}}, "input[0].role"},
			"steps":          {map[string]any{"max_steps": 201}, "max_steps"},
			"no steps":       {map[string]any{"max_steps": 0}, "max_steps"},
			"budget":         {map[string]any{"budget": map[string]any{}}, "budget.max_credits"},
			"unknown field":  {map[string]any{"tool": 1}, "tool"},
			"tool":           {map[string]any{"tools": []any{map[string]any{"type": "shell"}}}, "tools[0].type"},
			"two in one":     {map[string]any{"output": map[string]any{"checks": []any{map[string]any{"type": "http", "url": "http://127.0.0.1/", "rubric": "x"}}}}, "output.checks[0].type"},
			"one in two":     {map[string]any{"output": map[string]any{"checks": []any{map[string]any{"type": "judge", "model": "judge", "rubric": "x", "url": "http://127.0.0.1/"}}}}, "output.checks[0].type"},
			"private server": {map[string]any{"tools": []any{webTool("t", "http://10.0.0.1/")}}, "tools[0].url"},
			"check":          {map[string]any{"output": map[string]any{"checks": []any{map[string]any{"type": "faith"}}}}, "output.checks[0].type"},
			"judge":          {map[string]any{"output": map[string]any{"checks": []any{map[string]any{"type": "judge", "model": "nobody", "rubric": "x"}}}}, "output.checks[0].model"},
			"schema":         {map[string]any{"output": map[string]any{"schema": map[string]any{"type": 7}}}, "output.schema"},
			"private check":  {map[string]any{"output": map[string]any{"checks": []any{map[string]any{"type": "http", "url": "http://169.254.169.254/"}}}}, "output.checks[0].url"},
			"metadata":       {map[string]any{"metadata": map[string]string{"": "x"}}, "metadata"},
		} {
			body := runBody("x", nil)
			for k, v := range bad.change {
				body[k] = v
			}
			if r := l.ask(t, "POST", runs, body); r.Status/100 != 4 || r.Text("error.param") != bad.param {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
		reader, _ := l.withKey(t, liveKey("agents.runs:read"))
		reader.ask(t, "POST", runs, runBody("x", nil)).Want(t, 403, "insufficient_scope")
		if n := l.rows(t, "agent_runs"); n != 0 {
			t.Errorf("got %d runs", n)
		}
	})
}

func TestStreamsPerKeyAreLimited(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("crowded", calls(toolCall{"mine", ok})), []any{function("mine")}))
		l.waitForAction(t, path, "requires_action")
		token := l.as(l.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"agents.runs:create"}}).Text("value"))
		own := token.startRun(t, runBody(l.model.addScript("crowded", calls(toolCall{"mine", ok})), []any{function("mine")}))
		var streams []*reading
		for i := range 100 {
			if i%2 == 0 {
				streams = append(streams, l.openStream(t, path+"/events?stream=true", nil))
			} else {
				streams = append(streams, token.openStream(t, own+"/events?stream=true", nil))
			}
		}
		for _, who := range []*agentClient{l, token} {
			res := who.Open(t, harness.Request{Method: "GET", Path: own + "/events?stream=true", Key: who.key})
			_ = res.Body.Close()
			if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
				t.Errorf("one more answers %d, to be tried again after %q", res.StatusCode, res.Header.Get("Retry-After"))
			}
			before := l.rows(t, "agent_runs")
			res = who.Open(t, harness.Request{Method: "POST", Path: runs, Key: who.key, Body: runBody("x", nil, "stream", true)})
			_ = res.Body.Close()
			if res.StatusCode != 429 || l.rows(t, "agent_runs") != before {
				t.Errorf("a run that nobody may watch answers %d", res.StatusCode)
			}
		}
		l.get(t, own+"/events") // a list isn't a stream
		other, _ := l.withKey(t, liveKey())
		_ = other.openStream(t, path+"/events?stream=true", nil).stop()
		if err := streams[0].stop(); err != nil {
			t.Fatal(err)
		}
		l.Eventually(t, func() bool {
			res := l.Open(t, harness.Request{Method: "GET", Path: path + "/events?stream=true", Key: l.key})
			_ = res.Body.Close()
			return res.StatusCode == 200
		})
	})
}
