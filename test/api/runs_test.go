package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/lanes"
	"turnpike/test/harness"
)

// reply is one response of the model.
type reply struct {
	text    string
	calls   []toolCall
	body    string // the whole response, instead
	status  int    // of an error, instead
	message string // of that error
	gate    string // the gate to wait for
	greedy  bool   // uses the maximum output
	cut     bool   // reports that the limit cut it
}

type toolCall struct{ name, arguments string }

// Each response has this many tokens. An input token costs a thousandth of a
// credit, an output token two.
const (
	tokensIn  = 10
	tokensOut = 5
	oneAnswer = credits.Micro(tokensIn*1000 + tokensOut*2000)
)

// scriptedModel is a provider of models that follow a script. "[script NAME]"
// in a message selects it, and the responses that a conversation already has
// are skipped. The judge counts its requests.
type scriptedModel struct {
	*httptest.Server
	ended chan struct{}

	mu      sync.Mutex
	scripts map[string][]reply
	judged  map[string]int
	asked   []modelRequest
	gates   map[string]chan struct{}
}

// modelRequest is a received request.
type modelRequest struct {
	script   string
	model    string
	messages []map[string]any
	body     map[string]any
}

// last returns the text of the last message.
func (q modelRequest) last() string {
	text, _ := q.messages[len(q.messages)-1]["content"].(string)
	return text
}

// answers returns the tool results in the request.
func (q modelRequest) answers() (out []string) {
	for _, m := range q.messages {
		if m["role"] == "tool" {
			out = append(out, m["content"].(string))
		}
	}
	return out
}

func newScriptedModel(t *testing.T) *scriptedModel {
	t.Helper()
	b := &scriptedModel{ended: make(chan struct{}), scripts: map[string][]reply{}, judged: map[string]int{}, gates: map[string]chan struct{}{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() {
		close(b.ended)
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// addScript adds a script and returns an input that runs it.
func (b *scriptedModel) addScript(name string, says ...reply) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scripts[name] = says
	return "[script " + name + "]"
}

// requests returns the requests of a script.
func (b *scriptedModel) requests(script string) []modelRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.asked), func(q modelRequest) bool { return q.script != script })
}

func (b *scriptedModel) gate(name string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gates[name] == nil {
		b.gates[name] = make(chan struct{})
	}
	return b.gates[name]
}

func (b *scriptedModel) open(name string) { close(b.gate(name)) }

var scriptName = regexp.MustCompile(`\[script ([^\]]+)\]`)

func (b *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := modelRequest{body: map[string]any{}}
	var in struct {
		Model               string
		Messages            []map[string]any
		MaxTokens           int `json:"max_tokens"`
		MaxCompletionTokens int `json:"max_completion_tokens"`
	}
	if json.Unmarshal(raw, &in) != nil || json.Unmarshal(raw, &q.body) != nil {
		http.Error(w, `{"error":{"message":"no JSON"}}`, http.StatusBadRequest)
		return
	}
	q.model, q.messages = in.Model, in.Messages
	said := 0
	for _, m := range in.Messages {
		if m["role"] == "assistant" {
			said++
		}
		if text, _ := m["content"].(string); q.script == "" {
			if found := scriptName.FindStringSubmatch(text); found != nil {
				q.script = found[1]
			}
		}
	}
	b.mu.Lock()
	script := b.scripts[q.script]
	if in.Model == "judge" {
		said = b.judged[q.script]
		b.judged[q.script]++
	}
	b.asked = append(b.asked, q)
	b.mu.Unlock()
	if said >= len(script) {
		http.Error(w, `{"error":{"message":"the script has no more"}}`, http.StatusBadRequest)
		return
	}
	now := script[said]
	if now.gate != "" {
		select {
		case <-b.gate(now.gate):
		case <-b.ended:
		case <-r.Context().Done():
			return
		}
	}
	if now.status != 0 {
		http.Error(w, fmt.Sprintf(`{"error":{"message":%q}}`, cmp.Or(now.message, "as the test says")), now.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if now.body != "" {
		_, _ = io.WriteString(w, now.body)
		return
	}
	message := map[string]any{"role": "assistant", "content": now.text}
	if len(now.calls) > 0 {
		var list []map[string]any
		for _, c := range now.calls {
			// Some models always use the same ID.
			list = append(list, map[string]any{"id": "call_1", "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments}})
		}
		message["tool_calls"] = list
	}
	out := tokensOut
	if now.greedy {
		out = max(in.MaxTokens, in.MaxCompletionTokens)
	}
	finish := "stop"
	if now.cut {
		finish = "length"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": in.Model,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": tokensIn, "completion_tokens": out, "total_tokens": tokensIn + out}})
}

// calls returns a response that calls tools with the arguments.
func calls(list ...toolCall) reply { return reply{calls: list} }

// ok are arguments that every test tool accepts.
const ok = `{"q":"x"}`

var parameters = map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}, "required": []string{"q"}, "additionalProperties": false}

// function returns a tool whose outputs the client sends.
func function(name string) map[string]any {
	return map[string]any{"type": "function", "name": name, "parameters": parameters}
}

// webTool returns a tool at the address.
func webTool(name, url string, more ...any) map[string]any {
	out := map[string]any{"type": "http", "name": name, "url": url, "parameters": parameters}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// approved returns a tool at the address that needs approval.
func approved(name, url string, more ...any) map[string]any {
	return webTool(name, url, append([]any{"require_approval", "always"}, more...)...)
}

const runs = "/v1/agents/runs"

// agentClient is a live key on a server with a scriptedModel. Its tools may be on
// this machine.
type agentClient struct {
	*client
	model *scriptedModel
	cfg   config.Config
}

func eachAgents(t *testing.T, engines []string, change func(cfg *config.Config), fn func(t *testing.T, l *agentClient)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) { fn(t, newAgents(t, engine, change)) })
}

func newAgents(t *testing.T, engine string, change func(cfg *config.Config)) *agentClient {
	t.Helper()
	l := &agentClient{model: newScriptedModel(t), cfg: webhookConfig(t, engine)}
	price := func() *config.ModelPrice { return &config.ModelPrice{Input: "1", Output: "2"} }
	l.cfg.Providers = []config.Provider{{Name: "model", Type: config.OpenAI, BaseURL: config.Address(l.model.URL + "/v1"), APIKey: "sk-model", Weight: 1,
		Models: []config.ProviderModel{{ID: "mind", Price: price(), MaxOutputTokens: 1000, Capabilities: []string{"tools", "json_schema"}},
			{ID: "judge", Price: price(), MaxOutputTokens: 1000, Capabilities: []string{"json_schema"}}}}}
	l.cfg.Agents.AllowHTTP = true
	l.cfg.Agents.AllowCIDRs = prefixes(t, "127.0.0.0/8")
	if change != nil {
		change(&l.cfg)
	}
	l.client = newClient(t, harness.Start(t, l.cfg, harness.NewClock()), accounts.Live)
	return l
}

// as returns the client with another key.
func (l *agentClient) as(key string) *agentClient {
	out, c := *l, *l.client
	c.key = key
	out.client = &c
	return &out
}

func (l *agentClient) withKey(t *testing.T, k access.Key) (out *agentClient, id string) {
	t.Helper()
	key, id := l.newKey(t, k)
	return l.as(key), id
}

// runBody creates a run of the script with the tools and further fields, by name and value.
func runBody(input string, tools []any, more ...any) map[string]any {
	out := map[string]any{"model": "mind", "input": input, "tools": tools}
	if tools == nil {
		delete(out, "tools")
	}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// startRun creates a run and returns its path.
func (l *agentClient) startRun(t *testing.T, body any) string {
	t.Helper()
	r := l.post(t, runs, body)
	if r.Text("status") != "queued" || r.At("steps_used") != 0.0 || r.Text("object") != "agent.run" {
		t.Errorf("got new object %s", r.Body)
	}
	return runs + "/" + r.Text("id")
}

// advance moves the clock and wakes the runs that are due.
func (l *agentClient) advance(t *testing.T, d time.Duration) {
	t.Helper()
	l.Clock.Turn(d)
	l.wakeLanes(t)
}

// wakeLanes enqueues every lane of runs.
func (l *agentClient) wakeLanes(t *testing.T) {
	t.Helper()
	rows, err := l.DB.Query(t.Context(), "SELECT id FROM lanes WHERE queue = $1", agents.Queue)
	names, err := db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
	if err != nil {
		t.Fatal(err)
	}
	due := map[string]time.Time{}
	for _, id := range names {
		due[id] = l.Clock.Now()
	}
	l.write(t, func(tx *db.Tx) error { return lanes.Enqueue(t.Context(), tx, agents.Queue, due) })
}

// waitForFailure waits for the run to fail with the code.
func (l *agentClient) waitForFailure(t *testing.T, path, code string) *harness.Response {
	t.Helper()
	r := l.waitForEnd(t, path, "failed")
	if r.Text("error.code") != code || r.At("result") != nil {
		t.Fatalf("it did not fail with %s: %s", code, r.Body)
	}
	return r
}

// exhaustRetries advances the clock until the run is no longer retried.
func (l *agentClient) exhaustRetries(t *testing.T, path string) {
	t.Helper()
	tries := func() int64 { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(path)) }
	for n := int64(1); n <= 3; n++ {
		l.Eventually(t, func() bool { return tries() == n })
		l.advance(t, 2*time.Minute)
	}
}

// waitForAction waits until the run needs an action and returns the required actions.
func (l *agentClient) waitForAction(t *testing.T, path, status string) []map[string]any {
	t.Helper()
	r := l.waitForStatus(t, path, status, "completed", "failed", "cancelled")
	if r.Text("status") != status {
		t.Fatalf("it does not wait but is %s", r.Body)
	}
	return objects(r, "required_actions")
}

func objects(r *harness.Response, path string) (out []map[string]any) {
	list, _ := r.At(path).([]any)
	for _, one := range list {
		out = append(out, one.(map[string]any))
	}
	return out
}

// decide approves or rejects a call.
func (l *agentClient) decide(t *testing.T, path, approval, decision string, more ...any) *harness.Response {
	t.Helper()
	body := map[string]any{"decision": decision}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return l.ask(t, "POST", path+"/approvals/"+approval, body)
}

// output sends outputs of calls, by ID and text.
func (l *agentClient) output(t *testing.T, path string, list ...string) *harness.Response {
	t.Helper()
	var out []map[string]any
	for i := 0; i+1 < len(list); i += 2 {
		out = append(out, map[string]any{"call_id": list[i], "output": list[i+1]})
	}
	return l.ask(t, "POST", path+"/tool_outputs", map[string]any{"tool_outputs": out})
}

// steps returns a run's steps.
func (l *agentClient) steps(t *testing.T, path string) []map[string]any {
	t.Helper()
	return objects(l.get(t, path+"/steps?limit=100"), "data")
}

// called returns the calls of a step.
func called(step map[string]any) (out []map[string]any) {
	for _, one := range step["tool_calls"].([]any) {
		out = append(out, one.(map[string]any))
	}
	return out
}

// history returns the event types of a run's log.
func (l *agentClient) history(t *testing.T, path string) (out []string) {
	t.Helper()
	for i, e := range objects(l.get(t, path+"/events"), "data") {
		if e["seq"] != float64(i+1) {
			t.Errorf("line %d of the log is numbered %v", i+1, e["seq"])
		}
		out = append(out, e["type"].(string))
	}
	return out
}

// checkCost checks the cost of a run against its steps and log entries.
func (l *agentClient) checkCost(t *testing.T, path string, want credits.Micro) {
	t.Helper()
	r := l.get(t, path)
	if got := amount(t, r, "usage.credits"); got != want {
		t.Errorf("the run has cost %s, want %s", got, want)
	}
	if sum := l.number(t, "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM requests WHERE path = $1 AND settled AND user_agent LIKE '%agent run%'", path); sum != int64(want) {
		t.Errorf("the log says %s, want %s", credits.Micro(sum), want)
	}
}

// newTool starts a server for a run's tools that responds with the text.
func newTool(t *testing.T, l *agentClient, text string) *receiver {
	t.Helper()
	return newReceiver(t, l.Clock, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

func TestRunWithoutToolsCompletes(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("plain", reply{text: "Hello."}), nil, "instructions", "Be short.", "metadata", map[string]string{"a": "b"}))
		r := l.waitForEnd(t, path, "completed")
		if r.Text("result.output_text") != "Hello." || r.At("result.verified") != nil || r.At("partial_result") != nil || r.At("error") != nil ||
			r.At("steps_used") != 1.0 || r.Text("metadata.a") != "b" || r.At("usage.input_tokens") != float64(tokensIn) || r.At("usage.output_tokens") != float64(tokensOut) {
			t.Errorf("got %s", r.Body)
		}
		if q := l.model.requests("plain"); len(q) != 1 || q[0].messages[0]["role"] != "system" || q[0].messages[0]["content"] != "Be short." {
			t.Errorf("the model was asked %+v", q)
		}
		if got, want := strings.Join(l.history(t, path), " "), "run.queued run.in_progress step.started step.completed run.verifying run.completed"; got != want {
			t.Errorf("got run events %s", got)
		}
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["type"] != "agent.run.completed" {
			t.Errorf("got events %v", e)
		}
		l.checkCost(t, path, oneAnswer)
		l.checkLedger(t, oneAnswer)
	})
}

func TestRunWaitsForFunctionOutputs(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		input := l.model.addScript("functions", calls(toolCall{"one", ok}, toolCall{"two", `{"q":"y"}`}), calls(toolCall{"one", `{"q":"z"}`}), reply{text: "Done."})
		path := l.startRun(t, runBody(input, []any{function("one"), function("two")}))
		want := l.waitForAction(t, path, "requires_action")
		if len(want) != 2 || want[0]["type"] != "function_call" || want[0]["tool"] != "one" || want[0]["arguments"] != ok || want[1]["arguments"] != `{"q":"y"}` ||
			want[0]["call_id"] == want[1]["call_id"] || want[0]["expires_at"] != float64(l.Clock.Now().Add(600*time.Second).Unix()) {
			t.Fatalf("got required actions %v", want)
		}
		first, second := want[0]["call_id"].(string), want[1]["call_id"].(string)
		l.output(t, path, "call_9_9", "?").Want(t, 400, "invalid_parameter")
		l.output(t, path).Want(t, 400, "missing_parameter")
		l.output(t, path, first, "one's", "call_9_9", "?").Want(t, 400, "invalid_parameter") // all or nothing
		if got := l.waitForAction(t, path, "requires_action"); len(got) != 2 {
			t.Errorf("a refused list has left %v", got)
		}
		r := l.output(t, path, first, "one's\x00").Want(t, 200, "")
		if r.Text("status") != "requires_action" || len(objects(r, "required_actions")) != 1 {
			t.Errorf("after the first output: %s", r.Body)
		}
		l.output(t, path, first, "one's\x00").Want(t, 200, "")
		l.output(t, path, first, "another").Want(t, 409, "invalid_state")
		l.output(t, path, first, "one's\x00", second, "two's").Want(t, 200, "")
		again := l.waitForAction(t, path, "requires_action")
		if len(again) != 1 || again[0]["arguments"] != `{"q":"z"}` {
			t.Fatalf("got required actions %v", again)
		}
		// The run is now one step further.
		l.output(t, path, second, "two's").Want(t, 200, "")
		l.output(t, path, second, "other").Want(t, 409, "invalid_state")
		l.output(t, path, again[0]["call_id"].(string), "three's").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")
		l.output(t, path, again[0]["call_id"].(string), "three's").Want(t, 200, "")
		l.output(t, path, again[0]["call_id"].(string), "late").Want(t, 409, "invalid_state")
		q := l.model.requests("functions")
		if got := q[len(q)-1].answers(); !slices.Equal(got, []string{"one's\uFFFD", "two's", "three's"}) || len(q) != 3 {
			t.Errorf("the model was told %q in %d questions", got, len(q))
		}
		// Each result belongs to its call.
		for _, m := range q[1].messages {
			if m["role"] == "tool" && (m["tool_call_id"] == first) != (m["content"] == "one's\uFFFD") {
				t.Errorf("the model was told %v", m)
			}
		}
		l.checkCost(t, path, 3*oneAnswer)
	})
}

func TestRunFailsIfFunctionOutputsTimeOut(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		input := l.model.addScript("late", reply{text: "I look.", calls: []toolCall{{"one", ok}}})
		path := l.startRun(t, runBody(input, []any{function("one")}, "tool_output_timeout_seconds", 60))
		want := l.waitForAction(t, path, "requires_action")
		l.advance(t, 59*time.Second)
		if got := l.get(t, path); got.Text("status") != "requires_action" {
			t.Errorf("too early: %s", got.Body)
		}
		l.Clock.Turn(time.Second) // no worker has run yet
		l.output(t, path, want[0]["call_id"].(string), "too late").Want(t, 409, "invalid_state")
		l.wakeLanes(t)
		r := l.waitForFailure(t, path, "tool_output_timeout")
		if r.Text("partial_result") != "I look." || len(l.steps(t, path)) != 1 {
			t.Errorf("got %s", r.Body)
		}
		l.output(t, path, want[0]["call_id"].(string), "too late").Want(t, 409, "invalid_state")
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["type"] != "agent.run.failed" {
			t.Errorf("got events %v", e)
		}
	})
}

func TestUncountedTokensOfARunAreEstimatedAsInTheLog(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		uncounted := `{"id":"x","choices":[{"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}]}`
		path := l.startRun(t, runBody(l.model.addScript("uncounted", reply{body: uncounted}), nil))
		r := l.waitForEnd(t, path, "completed")
		step := l.steps(t, path)[0]
		e := settled(t, l.Server, l.key, step["request_id"].(string))
		used := step["usage"].(map[string]any)
		if e.At("input_tokens") == nil || e.At("input_tokens") == 0.0 || r.At("usage.input_tokens") != e.At("input_tokens") || r.At("usage.output_tokens") != e.At("output_tokens") ||
			used["input_tokens"] != e.At("input_tokens") || used["output_tokens"] != e.At("output_tokens") {
			t.Errorf("the run is %s, its step %v, and the log says %s", r.Body, step, e.Body)
		}
		// An interrupted request isn't free either.
		path = l.startRun(t, runBody(l.model.addScript("broken off", reply{gate: "never"}), nil))
		l.Eventually(t, func() bool { return len(l.model.requests("broken off")) == 1 })
		l.post(t, path+"/cancel", nil)
		r = l.waitForEnd(t, path, "cancelled")
		e = settled(t, l.Server, l.key, l.steps(t, path)[0]["request_id"].(string))
		if e.At("input_tokens") == nil || r.At("usage.input_tokens") != e.At("input_tokens") || r.At("usage.credits") != e.At("credits") {
			t.Errorf("the run is %s, and the log says %s", r.Body, e.Body)
		}
	})
}
