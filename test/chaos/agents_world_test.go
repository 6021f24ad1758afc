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

// gate is a place where something can be kept waiting.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{}
	reached chan struct{}
	once    *sync.Once
}

// close keeps whatever comes waiting, and tells when the first of it is there.
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

// pass returns when the gate is open, or whoever came has left.
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

// mind is the model of the runs. What it says follows from the conversation
// alone, so that it says the same again to whoever asks again.
type mind struct {
	mock *upstreams.OpenAI
	// reply is what it says after so many answers of its own.
	reply func(said int, messages []json.RawMessage) upstreams.OpenAIReply
	gates [3]gate // before its first answer, its second, and a verdict
	delay func() time.Duration
	asked atomic.Int64
	mu    sync.Mutex
}

// The tool of the runs, what it is called with, and the answer after it.
const (
	toolName  = "transfer"
	arguments = `{"amount": 5}`
	finalText = `{"paid": true}`
)

// usage is what every answer of the mind costs: 0.05 credits.
var usage = &upstreams.OpenAIUsage{Input: 100, Output: 50}

// obedient calls the tool once and then answers.
func obedient(said int, _ []json.RawMessage) upstreams.OpenAIReply {
	if said == 0 {
		return upstreams.OpenAIReply{Calls: []upstreams.OpenAICall{{Name: toolName, Arguments: arguments}}}
	}
	return upstreams.OpenAIReply{Text: finalText}
}

func (m *mind) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // who asked was killed
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
	// One at a time: the mock takes replies in the order of their queue.
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.mock.Queue(reply)
	m.mock.ServeHTTP(w, r)
}

// device is a customer's server that runs call: a tool, or a check.
type device struct {
	gate
	answer   string
	delay    func() time.Duration
	answered atomic.Pointer[func()] // is told when an answer has left

	mu    sync.Mutex
	calls map[string]int // by Idempotency-Key
	total int
	wrong []string
}

func (d *device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	_ = http.NewResponseController(w).Flush() // whoever has left does not need it
	if tell := d.answered.Load(); tell != nil {
		(*tell)()
	}
}

// made counts the calls with the key, or all.
func (d *device) made(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if key == "" {
		return d.total
	}
	return d.calls[key]
}

// keys are those of a run's calls.
func (d *device) keys(run string) (keys []string) {
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

// agency is whoever has runs, and everything that they meet.
type agency struct {
	*customer
	owner    *testing.T // until whose end servers live, also those that a part of it starts
	at       program.Place
	flags    []string
	server   *program.Server
	payer    *payer
	inbox    *inbox
	mind     *mind
	tool     *device
	checker  *device
	toolURL  string
	checkURL string

	mu       sync.Mutex
	approved map[string]map[string]bool // ids of approvals that were given, by run:call
	kills    int
}

// newAgency starts a server whose model, tools and receivers are in this
// process, and do not die with it.
func newAgency(t *testing.T, at program.Place) *agency {
	t.Helper()
	a := &agency{owner: t, at: at, approved: map[string]map[string]bool{}}
	a.mind = &mind{mock: upstreams.NewOpenAI(t, "sk-mock"), reply: obedient}
	a.tool = &device{answer: `{"ok":true}`, calls: map[string]int{}}
	a.checker = &device{answer: verdict, calls: map[string]int{}}
	a.toolURL, a.checkURL = listen(t, a.tool), listen(t, a.checker)
	settings := metered(t, at, listen(t, a.mind)+"/v1")
	t.Cleanup(a.openAll)
	a.flags = []string{settings, "--webhooks-allow-http", "--webhooks-allow-cidrs=127.0.0.0/8", "--agents-allow-http", "--agents-allow-cidrs=127.0.0.0/8"}
	a.server = serve(t, at, a.flags...)
	a.payer = newPayer(t, at, a.server.URL)
	a.customer = &customer{key: a.payer.admin, d: open(t, at)}
	a.inbox = a.customer.inbox(t, a.server.URL, "agent.run.*")
	return a
}

// listen serves until the test ends.
func listen(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// openAll lets go of all that is kept waiting.
func (a *agency) openAll() {
	for i := range a.mind.gates {
		a.mind.gates[i].open()
	}
	a.tool.open()
	a.checker.open()
	if a.customer != nil {
		a.customer.hold(false)
	}
}

// order is a run to make. The zero value has a tool that needs approval, and a
// result that is checked by a schema.
type order struct {
	idempotent bool
	check      bool // by the customer's server
	judge      bool
	maxSteps   int
	tools      string // instead
	// late means that a call of the run was charged as it was reserved, its node
	// being thought dead, and was then corrected in the log.
	late bool
}

func (a *agency) body(o order) string {
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

// create makes a run at a server.
func (a *agency) create(t *testing.T, url string, o order) string {
	t.Helper()
	made := call(url, request{mark: "create", method: "POST", path: "/v1/agents/runs", key: a.payer.key, body: a.body(o)})
	var r events.AgentRun
	if made.status != http.StatusOK || json.Unmarshal(made.body, &r) != nil || r.Status != "queued" {
		t.Fatalf("no run was made: %v\n%s", made, made.body)
	}
	return r.ID
}

// run is one as the interface shows it now.
func (a *agency) run(t *testing.T, id string) (r events.AgentRun) {
	t.Helper()
	a.ask(t, a.server.URL, request{method: "GET", path: "/v1/agents/runs/" + id}, &r)
	return r
}

// reaches waits until a run has a status.
func (a *agency) reaches(t *testing.T, id, status string) (r events.AgentRun) {
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

// patience is what a run may need for a few steps on a busy machine, with a
// pause for the books of a node that died.
const patience = 20 * time.Second

// approve says yes to all that a run asks for.
func (a *agency) approve(t *testing.T, url string, r events.AgentRun) {
	t.Helper()
	for _, action := range r.RequiredActions {
		if action.Type != "approval" || action.Tool != toolName || action.Arguments != arguments {
			t.Fatalf("the run asks for %+v", action)
		}
		if o := a.decide(url, r.ID, action); o.status != http.StatusOK {
			t.Fatalf("the approval was not taken: %v\n%s", o, o.body)
		}
	}
}

// decide sends an approval, whatever comes of it.
func (a *agency) decide(url, run string, action events.RequiredAction) *outcome {
	key := run + ":" + action.CallID
	a.mu.Lock()
	if a.approved[key] == nil {
		a.approved[key] = map[string]bool{}
	}
	a.approved[key][action.ID] = true // it may be taken though the answer is lost
	a.mu.Unlock()
	return call(url, request{mark: "approve", method: "POST", path: "/v1/agents/runs/" + run + "/approvals/" + action.ID, key: a.payer.admin,
		body: fmt.Sprintf(`{"decision":"approve","arguments_hash":%q}`, action.ArgumentsHash)})
}

// finish approves what is asked for until the run has ended.
func (a *agency) finish(t *testing.T, id string) (r events.AgentRun) {
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

// kill ends the server as kill -9 does and starts it again.
func (a *agency) kill(t *testing.T) {
	t.Helper()
	dead := newestNode(t, a.d)
	a.server.Kill()
	a.kills++
	bury(t, a.d, a.at, dead)
	a.server = serve(a.owner, a.at, a.flags...)
}

func newestNode(t *testing.T, d *db.DB) (id string) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT max(id) FROM nodes").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// bury evicts a dead node and ends its lane leases, which on PostgreSQL takes a
// minute and a lease.
func bury(t *testing.T, d *db.DB, at program.Place, dead string) {
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

// step is one as the interface shows it.
type step struct {
	Number    int
	Status    string
	Usage     events.AgentUsage
	ToolCalls []struct {
		ID, Tool, Status, Output string
		IsError                  bool `json:"is_error"`
	} `json:"tool_calls"`
}

func (a *agency) steps(t *testing.T, url, id string) []step {
	t.Helper()
	var page struct{ Data []step }
	a.ask(t, url, request{method: "GET", path: "/v1/agents/runs/" + id + "/steps?limit=100"}, &page)
	return page.Data
}

// logged is what the request log says that a run cost.
func (a *agency) logged(t *testing.T, id string) credits.Micro {
	t.Helper()
	return credits.Micro(count(t, a.d, "SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM requests WHERE path = $1", "/v1/agents/runs/"+id))
}

// told are the events of a run that are stored, in their order.
func (a *agency) told(t *testing.T, id string) (kinds []events.Type) {
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

// delivered is an event of a run that the receiver got and verified, or nil.
func (a *agency) delivered(kind events.Type, id string) *events.AgentRun {
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

// checkRun holds a run that has completed against everything that is known of
// it from elsewhere.
func (a *agency) checkRun(t *testing.T, url, id string, o order) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	var r events.AgentRun
	a.ask(t, url, request{method: "GET", path: "/v1/agents/runs/" + id}, &r)
	switch {
	case r.Status != "completed" || r.Error != nil || r.Result == nil:
		wrong.add("%s is %s: %+v", id, r.Status, r.Error)
	case r.Result.OutputText != finalText || r.Result.Verified == nil || !*r.Result.Verified || r.Result.Verification == nil || !r.Result.Verification.Checks[0].Passed:
		wrong.add("%s came to %+v", id, r.Result)
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
		wrong.add("%s has %d steps and counts %d", id, len(steps), r.StepsUsed)
	}
	inLog := a.logged(t, id)
	if o.late && r.Usage.Credits > inLog {
		inLog = r.Usage.Credits
	}
	if r.Usage.Credits != inLog || !o.judge && inSteps != inLog || inLog == 0 {
		wrong.add("%s says that it cost %s, its steps say %s, and the log %s", id, r.Usage.Credits, inSteps, inLog)
	}
	kinds := a.told(t, id)
	ends := 0
	for _, kind := range kinds {
		if kind == events.AgentRunCompleted || kind == events.AgentRunFailed {
			ends++
		}
	}
	if ends != 1 || kinds[len(kinds)-1] != events.AgentRunCompleted || kinds[0] != events.AgentRunAwaitingApproval {
		wrong.add("%s was told of by %v", id, kinds)
	}
	a.checkCalls(wrong, id, o)
}

// checkCalls holds the calls of a run's tool against the approvals.
func (a *agency) checkCalls(wrong *complaints, id string, o order) {
	key := id + ":call_1_0"
	a.mu.Lock()
	approvals := len(a.approved[key])
	a.mu.Unlock()
	made := a.tool.made(key)
	if made == 0 || !o.idempotent && made > approvals {
		wrong.add("%s has called its tool %d times by %d approvals", id, made, approvals)
	}
	if keys := a.tool.keys(id); len(keys) != 1 {
		wrong.add("the tool was called with the keys %v", keys)
	}
	a.tool.mu.Lock()
	defer a.tool.mu.Unlock()
	for _, complaint := range a.tool.wrong {
		wrong.add("%s", complaint)
	}
}

// audit closes the books: all events have come, and all sums are right. The
// servers are stopped by that.
func (a *agency) audit(t *testing.T, servers ...*program.Server) (repeats []repeat) {
	t.Helper()
	a.settle(t, patience)
	repeats = a.check(t, servers[0].URL)
	stop(t, servers...)
	checkBooks(t, a.d)
	for _, s := range servers {
		if strings.Contains(s.Log(), "hush") {
			t.Error("a tool's header is in the server's log")
		}
	}
	return repeats
}
