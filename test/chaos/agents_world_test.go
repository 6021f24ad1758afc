package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/test/chaos/program"
	"turnpike/test/fakes/upstreams"
)

// gate blocks its callers while it is closed.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{}
	reached chan struct{}
	once    *sync.Once
}

// close blocks later callers of pass. reached is closed when the first one arrives.
func (g *gate) close() (reached <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.reached, g.once = make(chan struct{}), make(chan struct{}), &sync.Once{}
	return g.reached
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// pass returns when the gate is open or ctx is done.
func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	shut, reached, once := g.shut, g.reached, g.once
	g.mu.Unlock()
	if shut == nil {
		return
	}
	once.Do(func() { close(reached) })
	select {
	case <-shut:
	case <-ctx.Done():
	}
}

// modelServer is the model of the runs. Its response depends only on the conversation,
// so a retry gets the same one.
type modelServer struct {
	mock *upstreams.OpenAI
	// reply returns the response that follows the given number of assistant messages.
	reply func(said int, messages []json.RawMessage) upstreams.OpenAIReply
	gates [3]gate // before the first response, the second one, and a verdict
	delay func() time.Duration
	asked atomic.Int64
	mu    sync.Mutex
}

// The tool of the runs, its arguments, and the final response.
const (
	toolName  = "transfer"
	arguments = `{"amount": 5}`
	finalText = `{"paid": true}`
)

// usage is the usage of every response: 0.05 credits.
var usage = &upstreams.OpenAIUsage{Input: 100, Output: 50}

func callToolThenReply(said int, _ []json.RawMessage) upstreams.OpenAIReply {
	if said == 0 {
		return upstreams.OpenAIReply{Calls: []upstreams.OpenAICall{{Name: toolName, Arguments: arguments}}}
	}
	return upstreams.OpenAIReply{Text: finalText}
}

func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client was killed
	}
	var in struct {
		Messages       []json.RawMessage
		ResponseFormat struct {
			JSONSchema struct{ Name string } `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	said := 0
	for _, message := range in.Messages {
		var head struct{ Role string }
		if json.Unmarshal(message, &head) == nil && head.Role == "assistant" {
			said++
		}
	}
	m.asked.Add(1)
	var reply upstreams.OpenAIReply
	at := min(said, 1)
	if in.ResponseFormat.JSONSchema.Name == "verdict" {
		at, reply = 2, upstreams.OpenAIReply{Text: `{"passed": true, "reason": "fine"}`}
	} else {
		reply = m.reply(said, in.Messages)
	}
	if m.delay != nil {
		select {
		case <-time.After(m.delay()):
		case <-r.Context().Done():
		}
	}
	m.gates[at].pass(r.Context())
	reply.Usage = usage
	// One at a time, because the mock sends replies in the order of its queue.
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.mock.Queue(reply)
	m.mock.ServeHTTP(w, r)
}

// toolServer is a customer's server that runs call as a tool or a check.
type toolServer struct {
	gate
	answer   string
	delay    func() time.Duration
	answered atomic.Pointer[func()] // called after a response was sent

	mu    sync.Mutex
	calls map[string]int
	total int
	wrong []string
}

func (d *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.calls[r.Header.Get("Idempotency-Key")]++
	d.total++
	if d.answer != verdict && string(body) != arguments {
		d.wrong = append(d.wrong, fmt.Sprintf("the tool was called with %q", body))
	}
	d.mu.Unlock()
	if d.delay != nil {
		select {
		case <-time.After(d.delay()):
		case <-r.Context().Done():
		}
	}
	d.pass(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(d.answer)))
	if _, err := io.WriteString(w, d.answer); err != nil {
		return
	}
	_ = http.NewResponseController(w).Flush() // fails only if the client has disconnected
	if tell := d.answered.Load(); tell != nil {
		(*tell)()
	}
}

// callCount returns the number of calls with the key, or of all calls if the key is
// empty.
func (d *toolServer) callCount(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key == "" {
		return d.total
	}
	return d.calls[key]
}

// keys returns the idempotency keys of a run's calls.
func (d *toolServer) keys(run string) (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.calls {
		if strings.HasPrefix(key, run+":") {
			keys = append(keys, key)
		}
	}
	return keys
}

const verdict = `{"passed":true,"reason":"fine"}`

// agentFixture is an account that starts runs, with all the servers they use.
type agentFixture struct {
	*webhookFixture
	owner    *testing.T // servers run until it ends, including those that a subtest starts
	at       program.Place
	flags    []string
	server   *program.Server
	account  *account
	inbox    *inbox
	model    *modelServer
	tool     *toolServer
	checker  *toolServer
	toolURL  string
	checkURL string

	mu       sync.Mutex
	approved map[string]map[string]bool // IDs of sent approvals by run:call
	kills    int
}

// newAgentFixture starts a server. Its model, tools and receivers are in the test
// process and survive a kill.
func newAgentFixture(t *testing.T, at program.Place) *agentFixture {
	t.Helper()
	a := &agentFixture{owner: t, at: at, approved: map[string]map[string]bool{}}
	a.model = &modelServer{mock: upstreams.NewOpenAI(t, "sk-mock"), reply: callToolThenReply}
	a.tool = &toolServer{answer: `{"ok":true}`, calls: map[string]int{}}
	a.checker = &toolServer{answer: verdict, calls: map[string]int{}}
	a.toolURL, a.checkURL = listen(t, a.tool), listen(t, a.checker)
	settings := writeProviderConfig(t, at, listen(t, a.model)+"/v1")
	t.Cleanup(a.openAll)
	a.flags = []string{settings, "--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8", "--agents-allow-http", "--agents-allow-cidrs=127.0.0.0/8"}
	a.server = serve(t, at, a.flags...)
	a.account = newAccount(t, at, a.server.URL)
	a.webhookFixture = &webhookFixture{key: a.account.admin, d: open(t, at)}
	a.inbox = a.webhookFixture.inbox(t, a.server.URL, "agent.run.*")
	return a
}

func listen(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// openAll opens every gate.
func (a *agentFixture) openAll() {
	for i := range a.model.gates {
		a.model.gates[i].open()
	}
	a.tool.open()
	a.checker.open()
	if a.webhookFixture != nil {
		a.webhookFixture.hold(false)
	}
}

// runSpec describes a run to create. The zero value has a tool that needs approval, and
// a result that is checked against a schema.
type runSpec struct {
	idempotent bool
	check      bool // by the customer's server
	judge      bool
	maxSteps   int
	tools      string // replaces the default tool
	// late means that a request was charged at its reserved cost when its node was
	// evicted, and corrected in the log later.
	late bool
}

func (a *agentFixture) body(o runSpec) string {
	tools := o.tools
	if tools == "" {
		tools = fmt.Sprintf(`[{"type":"http","name":%q,"description":"moves money","url":%q,"idempotent":%t,"require_approval":"always","headers":{"X-Secret":"hush"},
			"parameters":{"type":"object","properties":{"amount":{"type":"integer"}},"required":["amount"]}}]`, toolName, a.toolURL+"/transfer", o.idempotent)
	}
	checks := `[]`
	switch {
	case o.check:
		checks = fmt.Sprintf(`[{"type":"http","url":%q}]`, a.checkURL+"/check")
	case o.judge:
		checks = fmt.Sprintf(`[{"type":"judge","model":%q,"rubric":"It says whether it was paid."}]`, callModel)
	}
	if o.maxSteps == 0 {
		o.maxSteps = 5
	}
	return fmt.Sprintf(`{"model":%q,"instructions":"Pay what is owed.","input":"Pay.","max_steps":%d,"tools":%s,
		"output":{"schema":{"type":"object","properties":{"paid":{"type":"boolean"}},"required":["paid"]},"checks":%s}}`, callModel, o.maxSteps, tools, checks)
}

func (a *agentFixture) create(t *testing.T, url string, o runSpec) string {
	t.Helper()
	made := call(url, request{mark: "create", method: "POST", path: "/v1/agents/runs", key: a.account.key, body: a.body(o)})
	var r events.AgentRun
	if made.status != http.StatusOK || json.Unmarshal(made.body, &r) != nil || r.Status != "queued" {
		t.Fatalf("got %v, want a queued run\n%s", made, made.body)
	}
	return r.ID
}

// run returns a run from the API.
func (a *agentFixture) run(t *testing.T, id string) (r events.AgentRun) {
	t.Helper()
	a.mustCall(t, a.server.URL, request{method: "GET", path: "/v1/agents/runs/" + id}, &r)
	return r
}

// reaches waits until a run has the status.
func (a *agentFixture) reaches(t *testing.T, id, status string) (r events.AgentRun) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && r.Status != status {
			t.Logf("the run: %+v", r)
		}
	})
	eventually(t, patience, "the run "+id+" is "+status, func() bool {
		r = a.run(t, id)
		return r.Status == status
	})
	return r
}

// patience is enough for a few steps on a busy machine, including the recovery of a
// dead node's requests.
const patience = 20 * time.Second

// approve approves every pending tool call of a run.
func (a *agentFixture) approve(t *testing.T, url string, r events.AgentRun) {
	t.Helper()
	for _, action := range r.RequiredActions {
		if action.Type != "approval" || action.Tool != toolName || action.Arguments != arguments {
			t.Fatalf("got required action %+v, want an approval of the tool call", action)
		}
		if o := a.decide(url, r.ID, action); o.status != http.StatusOK {
			t.Fatalf("got %v for the approval, want 200\n%s", o, o.body)
		}
	}
}

// decide sends an approval and ignores the outcome.
func (a *agentFixture) decide(url, run string, action events.RequiredAction) *outcome {
	key := run + ":" + action.CallID
	a.mu.Lock()
	if a.approved[key] == nil {
		a.approved[key] = map[string]bool{}
	}
	a.approved[key][action.ID] = true // it may be stored even if the response is lost
	a.mu.Unlock()
	return call(url, request{mark: "approve", method: "POST", path: "/v1/agents/runs/" + run + "/approvals/" + action.ID, key: a.account.admin,
		body: fmt.Sprintf(`{"decision":"approve","arguments_hash":%q}`, action.ArgumentsHash)})
}

// finish approves tool calls until the run has ended.
func (a *agentFixture) finish(t *testing.T, id string) (r events.AgentRun) {
	t.Helper()
	eventually(t, patience, "the run "+id+" ends", func() bool {
		r = a.run(t, id)
		if r.Status == "awaiting_approval" {
			a.approve(t, a.server.URL, r)
		}
		return r.Status == "completed" || r.Status == "failed" || r.Status == "cancelled"
	})
	return r
}

// kill kills the server with SIGKILL and starts it again.
func (a *agentFixture) kill(t *testing.T) {
	t.Helper()
	dead := newestNode(t, a.d)
	a.server.Kill()
	a.kills++
	evictAndExpire(t, a.d, a.at, dead)
	a.server = serve(a.owner, a.at, a.flags...)
}

func newestNode(t *testing.T, d *db.DB) (id string) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT max(id) FROM nodes").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// evictAndExpire evicts a dead node and ends its lane leases. On PostgreSQL, other
// nodes need a minute and a lease for that.
func evictAndExpire(t *testing.T, d *db.DB, at program.Place, dead string) {
	t.Helper()
	if at.DatabaseURL == "" {
		return
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "DELETE FROM nodes WHERE id = $1", dead); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "UPDATE lanes SET owner = NULL, lease_until = NULL WHERE owner = $1", dead)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// step is a step as the API returns it.
type step struct {
	Number    int
	Status    string
	Usage     events.AgentUsage
	ToolCalls []struct {
		ID, Tool, Status, Output string
		IsError                  bool `json:"is_error"`
	} `json:"tool_calls"`
}

func (a *agentFixture) steps(t *testing.T, url, id string) []step {
	t.Helper()
	var page struct{ Data []step }
	a.mustCall(t, url, request{method: "GET", path: "/v1/agents/runs/" + id + "/steps?limit=100"}, &page)
	return page.Data
}

// loggedCost returns the cost of a run according to the request log.
func (a *agentFixture) loggedCost(t *testing.T, id string) credits.Micro {
	t.Helper()
	return credits.Micro(count(t, a.d, "SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM requests WHERE path = $1", "/v1/agents/runs/"+id))
}

// runEvents returns the types of a run's stored events, in order.
func (a *agentFixture) runEvents(t *testing.T, id string) (kinds []events.Type) {
	t.Helper()
	rows, err := a.d.Query(t.Context(), "SELECT type FROM events WHERE body LIKE $1 ORDER BY id", "%"+id+"%")
	err = db.Each(rows, err, func(r db.Row) error {
		var kind string
		err := r.Scan(&kind)
		kinds = append(kinds, events.Type(kind))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// delivered returns a run's event that the receiver has verified, or nil.
func (a *agentFixture) delivered(kind events.Type, id string) *events.AgentRun {
	a.inbox.mu.Lock()
	defer a.inbox.mu.Unlock()
	for _, all := range a.inbox.got {
		var e struct {
			Type events.Type
			Data events.AgentRun
		}
		if json.Unmarshal([]byte(all[0].body), &e) == nil && e.Type == kind && e.Data.ID == id {
			return &e.Data
		}
	}
	return nil
}

// checkRun compares a completed run with the log, the events and the tool calls.
func (a *agentFixture) checkRun(t *testing.T, url, id string, o runSpec) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	var r events.AgentRun
	a.mustCall(t, url, request{method: "GET", path: "/v1/agents/runs/" + id}, &r)
	switch {
	case r.Status != "completed" || r.Error != nil || r.Result == nil:
		wrong.add("%s is %s: %+v", id, r.Status, r.Error)
	case r.Result.OutputText != finalText || r.Result.Verified == nil || !*r.Result.Verified || r.Result.Verification == nil || !r.Result.Verification.Checks[0].Passed:
		wrong.add("%s: got result %+v, want the verified final text", id, r.Result)
	}
	var inSteps credits.Micro
	steps := a.steps(t, url, id)
	for _, s := range steps {
		inSteps += s.Usage.Credits
		if s.Status != "completed" {
			wrong.add("step %d of %s is %s", s.Number, id, s.Status)
		}
	}
	if len(steps) != 2 || r.StepsUsed != 2 {
		wrong.add("%s: got %d steps, but a count of %d", id, len(steps), r.StepsUsed)
	}
	inLog := a.loggedCost(t, id)
	if o.late && r.Usage.Credits > inLog {
		inLog = r.Usage.Credits
	}
	if r.Usage.Credits != inLog || !o.judge && inSteps != inLog || inLog == 0 {
		wrong.add("%s: got cost %s in the run, %s in its steps and %s in the log, want them equal", id, r.Usage.Credits, inSteps, inLog)
	}
	kinds := a.runEvents(t, id)
	ends := 0
	for _, kind := range kinds {
		if kind == events.AgentRunCompleted || kind == events.AgentRunFailed {
			ends++
		}
	}
	if ends != 1 || kinds[len(kinds)-1] != events.AgentRunCompleted || kinds[0] != events.AgentRunAwaitingApproval {
		wrong.add("%s: got events %v", id, kinds)
	}
	a.checkCalls(wrong, id, o)
}

// checkCalls compares the calls of a run's tool with the approvals.
func (a *agentFixture) checkCalls(wrong *failures, id string, o runSpec) {
	key := id + ":call_1_0"
	a.mu.Lock()
	approvals := len(a.approved[key])
	a.mu.Unlock()
	made := a.tool.callCount(key)
	if made == 0 || !o.idempotent && made > approvals {
		wrong.add("%s: got %d tool calls with %d approvals", id, made, approvals)
	}
	if keys := a.tool.keys(id); len(keys) != 1 {
		wrong.add("got tool calls with keys %v", keys)
	}
	a.tool.mu.Lock()
	defer a.tool.mu.Unlock()
	for _, complaint := range a.tool.wrong {
		wrong.add("%s", complaint)
	}
}

// audit stops the servers and checks that all events were delivered and all sums are
// exact.
func (a *agentFixture) audit(t *testing.T, servers ...*program.Server) (repeats []repeat) {
	t.Helper()
	a.waitUntilDelivered(t, patience)
	repeats = a.check(t, servers[0].URL)
	stop(t, servers...)
	checkBalances(t, a.d)
	for _, s := range servers {
		if strings.Contains(s.Log(), "hush") {
			t.Error("the server's log contains a tool's header")
		}
	}
	return repeats
}
