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
	"turnpike/internal/db/dbtest"
	"turnpike/internal/lanes"
	"turnpike/test/harness"
)

// saying is one answer of the brain's.
type saying struct {
	text    string
	calls   []toolCall
	body    string // the whole answer, instead
	status  int    // of a refusal, instead
	message string // of that
	gate    string // that is waited for first
	greedy  bool   // it uses all the output that it may
	cut     bool   // it says that it would go on if it might
}

type toolCall struct{ name, arguments string }

// Each answer of the brain has so many tokens, and costs a thousandth of a
// credit for one of input and two for one of output.
const (
	tokensIn  = 10
	tokensOut = 5
	oneAnswer = credits.Micro(tokensIn*1000 + tokensOut*2000)
)

// brain is a provider of models that follow a script: "[script NAME]" in a
// message names it, and the answers that a conversation has already are
// skipped. The judge goes by how often it was asked.
type brain struct {
	*httptest.Server
	ended chan struct{}

	mu      sync.Mutex
	scripts map[string][]saying
	judged  map[string]int
	asked   []question
	gates   map[string]chan struct{}
}

// question is a request that came.
type question struct {
	script   string
	model    string
	messages []map[string]any
	body     map[string]any
}

// last is the text of the last message.
func (q question) last() string {
	text, _ := q.messages[len(q.messages)-1]["content"].(string)
	return text
}

// answers are what the model was told by its tools.
func (q question) answers() (out []string) {
	for _, m := range q.messages {
		if m["role"] == "tool" {
			out = append(out, m["content"].(string))
		}
	}
	return out
}

func newBrain(t *testing.T) *brain {
	t.Helper()
	b := &brain{ended: make(chan struct{}), scripts: map[string][]saying{}, judged: map[string]int{}, gates: map[string]chan struct{}{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() {
		close(b.ended)
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// learn gives a script to the brain, and returns an input that plays it.
func (b *brain) learn(name string, says ...saying) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scripts[name] = says
	return "[script " + name + "]"
}

// questions are those of a script.
func (b *brain) questions(script string) []question {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.asked), func(q question) bool { return q.script != script })
}

func (b *brain) gate(name string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gates[name] == nil {
		b.gates[name] = make(chan struct{})
	}
	return b.gates[name]
}

func (b *brain) open(name string) { close(b.gate(name)) }

var scriptName = regexp.MustCompile(`\[script ([^\]]+)\]`)

func (b *brain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	q := question{body: map[string]any{}}
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
			// The same id each time, as some models have it.
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

// calls is an answer that wants tools to be called with the arguments.
func calls(list ...toolCall) saying { return saying{calls: list} }

// ok are arguments that every tool here takes.
const ok = `{"q":"x"}`

var parameters = map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "string"}}, "required": []string{"q"}, "additionalProperties": false}

// function is a tool of the customer's.
func function(name string) map[string]any {
	return map[string]any{"type": "function", "name": name, "parameters": parameters}
}

// webTool is a tool at the address.
func webTool(name, url string, more ...any) map[string]any {
	out := map[string]any{"type": "http", "name": name, "url": url, "parameters": parameters}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// approved is a tool at the address that a person must allow.
func approved(name, url string, more ...any) map[string]any {
	return webTool(name, url, append([]any{"require_approval", "always"}, more...)...)
}

const runs = "/v1/agents/runs"

// lab is a live customer of a server that has a brain, whose tools may be on
// this machine.
type lab struct {
	*customer
	brain *brain
	cfg   config.Config
}

// eachLab runs fn against a fresh server on each engine.
func eachLab(t *testing.T, change func(cfg *config.Config), fn func(t *testing.T, l *lab)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			l := &lab{brain: newBrain(t), cfg: hookedConfig(t, engine)}
			price := func() *config.ModelPrice { return &config.ModelPrice{Input: "1", Output: "2"} }
			l.cfg.Providers = []config.Provider{{Name: "brain", Type: config.OpenAI, BaseURL: config.Address(l.brain.URL + "/v1"), APIKey: "sk-brain", Weight: 1,
				Models: []config.ProviderModel{{ID: "mind", Price: price(), MaxOutputTokens: 1000, Capabilities: []string{"tools", "json_schema"}},
					{ID: "judge", Price: price(), MaxOutputTokens: 1000, Capabilities: []string{"json_schema"}}}}}
			l.cfg.Agents.AllowHTTP = true
			l.cfg.Agents.AllowCIDRs = prefixes(t, "127.0.0.0/8")
			if change != nil {
				change(&l.cfg)
			}
			l.customer = newCustomer(t, harness.Start(t, l.cfg, harness.NewClock()), accounts.Live)
			fn(t, l)
		})
	}
}

// as is the same lab with another key.
func (l *lab) as(key string) *lab {
	out, c := *l, *l.customer
	c.key = key
	out.customer = &c
	return &out
}

// keyed is the lab with a new key of these properties.
func (l *lab) keyed(t *testing.T, k access.Key) (out *lab, id string) {
	t.Helper()
	k.WorkspaceID, k.Environment, k.Name = l.workspace.ID, l.env, "test"
	if k.Scopes == nil {
		k.Scopes = []string{"*"}
	}
	key, id := l.KeyOf(t, &k)
	return l.as(key), id
}

// task is a run of the script with the tools, and fields by name and value.
func task(input string, tools []any, more ...any) map[string]any {
	out := map[string]any{"model": "mind", "input": input, "tools": tools}
	if tools == nil {
		delete(out, "tools")
	}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// begin makes a run and returns its path.
func (l *lab) begin(t *testing.T, body any) string {
	t.Helper()
	r := l.post(t, runs, body)
	if r.Text("status") != "queued" || r.At("steps_used") != 0.0 || r.Text("object") != "agent.run" {
		t.Errorf("it begins as %s", r.Body)
	}
	return runs + "/" + r.Text("id")
}

// later turns the clock and has the runs worked that are due by then.
func (l *lab) later(t *testing.T, d time.Duration) {
	t.Helper()
	l.Clock.Turn(d)
	l.wake(t)
}

// wake has every lane of runs looked into.
func (l *lab) wake(t *testing.T) {
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

// failed waits for a run to fail with the code.
func (l *lab) failed(t *testing.T, path, code string) *harness.Response {
	t.Helper()
	r := l.ended(t, path, "failed")
	if r.Text("error.code") != code || r.At("result") != nil {
		t.Fatalf("it did not fail with %s: %s", code, r.Body)
	}
	return r
}

// exhausts turns the clock for a run that is tried again, until it is no more.
func (l *lab) exhausts(t *testing.T, path string) {
	t.Helper()
	tries := func() int64 { return l.number(t, "SELECT tries FROM agent_runs WHERE id = $1", idOf(path)) }
	for n := int64(1); n <= 3; n++ {
		l.Eventually(t, func() bool { return tries() == n })
		l.later(t, 2*time.Minute)
	}
}

// waits waits for a run to wait for somebody, and returns what for.
func (l *lab) waits(t *testing.T, path, status string) []map[string]any {
	t.Helper()
	r := l.becomes(t, path, status, "completed", "failed", "cancelled")
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

// decide says yes or no to a call.
func (l *lab) decide(t *testing.T, path, approval, decision string, more ...any) *harness.Response {
	t.Helper()
	body := map[string]any{"decision": decision}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return l.ask(t, "POST", path+"/approvals/"+approval, body)
}

// output sends what came of calls, by id and text.
func (l *lab) output(t *testing.T, path string, list ...string) *harness.Response {
	t.Helper()
	var out []map[string]any
	for i := 0; i+1 < len(list); i += 2 {
		out = append(out, map[string]any{"call_id": list[i], "output": list[i+1]})
	}
	return l.ask(t, "POST", path+"/tool_outputs", map[string]any{"tool_outputs": out})
}

// steps are a run's.
func (l *lab) steps(t *testing.T, path string) []map[string]any {
	t.Helper()
	return objects(l.get(t, path+"/steps?limit=100"), "data")
}

// called are the calls of a step.
func called(step map[string]any) (out []map[string]any) {
	for _, one := range step["tool_calls"].([]any) {
		out = append(out, one.(map[string]any))
	}
	return out
}

// history are the types of a run's log.
func (l *lab) history(t *testing.T, path string) (out []string) {
	t.Helper()
	for i, e := range objects(l.get(t, path+"/events"), "data") {
		if e["seq"] != float64(i+1) {
			t.Errorf("line %d of the log is numbered %v", i+1, e["seq"])
		}
		out = append(out, e["type"].(string))
	}
	return out
}

// paid checks that the run, its steps and its entries in the request log agree
// on what it has cost.
func (l *lab) paid(t *testing.T, path string, want credits.Micro) {
	t.Helper()
	r := l.get(t, path)
	if got := amount(t, r, "usage.credits"); got != want {
		t.Errorf("the run has cost %s, expected %s", got, want)
	}
	if sum := l.number(t, "SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM requests WHERE path = $1 AND settled AND user_agent LIKE '%agent run%'", path); sum != int64(want) {
		t.Errorf("the log says %s, expected %s", credits.Micro(sum), want)
	}
}

// tellAll is a server that knows a run's tools and answers with the text.
func tellAll(t *testing.T, l *lab, text string) *receiver {
	t.Helper()
	return newReceiver(t, l.Clock, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

// TestARunWithoutTools answers, and is told of.
func TestARunWithoutTools(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		path := l.begin(t, task(l.brain.learn("plain", saying{text: "Hello."}), nil, "instructions", "Be short.", "metadata", map[string]string{"a": "b"}))
		r := l.ended(t, path, "completed")
		if r.Text("result.output_text") != "Hello." || r.At("result.verified") != nil || r.At("partial_result") != nil || r.At("error") != nil ||
			r.At("steps_used") != 1.0 || r.Text("metadata.a") != "b" || r.At("usage.input_tokens") != float64(tokensIn) || r.At("usage.output_tokens") != float64(tokensOut) {
			t.Errorf("it came to %s", r.Body)
		}
		if q := l.brain.questions("plain"); len(q) != 1 || q[0].messages[0]["role"] != "system" || q[0].messages[0]["content"] != "Be short." {
			t.Errorf("the model was asked %+v", q)
		}
		if got, want := strings.Join(l.history(t, path), " "), "run.queued run.in_progress step.started step.completed run.verifying run.completed"; got != want {
			t.Errorf("its log is %s", got)
		}
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["type"] != "agent.run.completed" {
			t.Errorf("the events are %v", e)
		}
		l.paid(t, path, oneAnswer)
		l.balanced(t, oneAnswer)
	})
}

// TestFunctionTools: the run waits for the customer's outputs, takes some or
// all, twice if they are the same, and goes on when all are there.
func TestFunctionTools(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		input := l.brain.learn("functions", calls(toolCall{"one", ok}, toolCall{"two", `{"q":"y"}`}), calls(toolCall{"one", `{"q":"z"}`}), saying{text: "Done."})
		path := l.begin(t, task(input, []any{function("one"), function("two")}))
		want := l.waits(t, path, "requires_action")
		if len(want) != 2 || want[0]["type"] != "function_call" || want[0]["tool"] != "one" || want[0]["arguments"] != ok || want[1]["arguments"] != `{"q":"y"}` ||
			want[0]["call_id"] == want[1]["call_id"] || want[0]["expires_at"] != float64(l.Clock.Now().Add(600*time.Second).Unix()) {
			t.Fatalf("it waits for %v", want)
		}
		first, second := want[0]["call_id"].(string), want[1]["call_id"].(string)
		l.output(t, path, "call_9_9", "?").Want(t, 400, "invalid_parameter")
		l.output(t, path).Want(t, 400, "missing_parameter")
		l.output(t, path, first, "one's", "call_9_9", "?").Want(t, 400, "invalid_parameter") // all or nothing
		if got := l.waits(t, path, "requires_action"); len(got) != 2 {
			t.Errorf("a refused list has left %v", got)
		}
		r := l.output(t, path, first, "one's\x00").Want(t, 200, "")
		if r.Text("status") != "requires_action" || len(objects(r, "required_actions")) != 1 {
			t.Errorf("after the first output: %s", r.Body)
		}
		l.output(t, path, first, "one's\x00").Want(t, 200, "")
		l.output(t, path, first, "another").Want(t, 409, "invalid_state")
		l.output(t, path, first, "one's\x00", second, "two's").Want(t, 200, "")
		again := l.waits(t, path, "requires_action")
		if len(again) != 1 || again[0]["arguments"] != `{"q":"z"}` {
			t.Fatalf("it waits for %v", again)
		}
		// The run is a step further by now.
		l.output(t, path, second, "two's").Want(t, 200, "")
		l.output(t, path, second, "other").Want(t, 409, "invalid_state")
		l.output(t, path, again[0]["call_id"].(string), "three's").Want(t, 200, "")
		l.ended(t, path, "completed")
		l.output(t, path, again[0]["call_id"].(string), "three's").Want(t, 200, "")
		l.output(t, path, again[0]["call_id"].(string), "late").Want(t, 409, "invalid_state")
		q := l.brain.questions("functions")
		if got := q[len(q)-1].answers(); !slices.Equal(got, []string{"one's\uFFFD", "two's", "three's"}) || len(q) != 3 {
			t.Errorf("the model was told %q in %d questions", got, len(q))
		}
		// Each answer belongs to its call.
		for _, m := range q[1].messages {
			if m["role"] == "tool" && (m["tool_call_id"] == first) != (m["content"] == "one's\uFFFD") {
				t.Errorf("the model was told %v", m)
			}
		}
		l.paid(t, path, 3*oneAnswer)
	})
}

// TestOutputsThatDoNotCome end the run after its time, and not before.
func TestOutputsThatDoNotCome(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		input := l.brain.learn("late", saying{text: "I look.", calls: []toolCall{{"one", ok}}})
		path := l.begin(t, task(input, []any{function("one")}, "tool_output_timeout_seconds", 60))
		want := l.waits(t, path, "requires_action")
		l.later(t, 59*time.Second)
		if got := l.get(t, path); got.Text("status") != "requires_action" {
			t.Errorf("too early: %s", got.Body)
		}
		l.Clock.Turn(time.Second) // and nobody has looked yet
		l.output(t, path, want[0]["call_id"].(string), "too late").Want(t, 409, "invalid_state")
		l.wake(t)
		r := l.failed(t, path, "tool_output_timeout")
		if r.Text("partial_result") != "I look." || len(l.steps(t, path)) != 1 {
			t.Errorf("it came to %s", r.Body)
		}
		l.output(t, path, want[0]["call_id"].(string), "too late").Want(t, 409, "invalid_state")
		if e := l.eventsOf(t, idOf(path)); len(e) != 1 || e[0]["type"] != "agent.run.failed" {
			t.Errorf("the events are %v", e)
		}
	})
}

// TestTokensThatTheProviderDoesNotCount are those of the request log, as the
// credits are.
func TestTokensThatTheProviderDoesNotCount(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		uncounted := `{"id":"x","choices":[{"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}]}`
		path := l.begin(t, task(l.brain.learn("uncounted", saying{body: uncounted}), nil))
		r := l.ended(t, path, "completed")
		step := l.steps(t, path)[0]
		e := settled(t, l.Server, l.key, step["request_id"].(string))
		used := step["usage"].(map[string]any)
		if e.At("input_tokens") == nil || e.At("input_tokens") == 0.0 || r.At("usage.input_tokens") != e.At("input_tokens") || r.At("usage.output_tokens") != e.At("output_tokens") ||
			used["input_tokens"] != e.At("input_tokens") || used["output_tokens"] != e.At("output_tokens") {
			t.Errorf("the run is %s, its step %v, and the log says %s", r.Body, step, e.Body)
		}
		// Nor does a call that is broken off use nothing.
		path = l.begin(t, task(l.brain.learn("broken off", saying{gate: "never"}), nil))
		l.Eventually(t, func() bool { return len(l.brain.questions("broken off")) == 1 })
		l.post(t, path+"/cancel", nil)
		r = l.ended(t, path, "cancelled")
		e = settled(t, l.Server, l.key, l.steps(t, path)[0]["request_id"].(string))
		if e.At("input_tokens") == nil || r.At("usage.input_tokens") != e.At("input_tokens") || r.At("usage.credits") != e.At("credits") {
			t.Errorf("the run is %s, and the log says %s", r.Body, e.Body)
		}
	})
}
