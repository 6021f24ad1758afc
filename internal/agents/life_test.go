package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
)

// interruption is what happens to the node during a turn.
type interruption string

const (
	undisturbed           interruption = "undisturbed"
	crashBeforeCheckpoint interruption = "crash before a checkpoint is durable"
	crashAfterCheckpoint  interruption = "crash after a checkpoint is durable"
	stopAfterCheckpoint   interruption = "graceful stop after a checkpoint"
	crashBeforeIntent     interruption = "crash during a call, before the log has its intent"
	crashDuringEffect     interruption = "crash during a call"
	stopDuringEffect      interruption = "graceful stop during a call"
	crashBeforeOutcome    interruption = "crash before the outcome is written"
	freezeBeforeOutcome   interruption = "freeze before the outcome is written"
	cancelDuringEffect    interruption = "cancellation during a call"
	cancelBeforeTurn      interruption = "cancellation after the run was read"
)

var interruptions = []interruption{undisturbed, undisturbed, crashBeforeCheckpoint, crashAfterCheckpoint, stopAfterCheckpoint, crashBeforeIntent,
	crashDuringEffect, stopDuringEffect, crashBeforeOutcome, freezeBeforeOutcome, cancelDuringEffect, cancelBeforeTurn}

// script is what one turn meets.
type script struct {
	interruption interruption
	answer       string // of the model: names of tools, "answer" or "error"
	passes       bool   // the judge's verdict
	cost         credits.Micro
}

// life is one run, and what a correct service may do with it.
type life struct {
	*Service
	toolServer *toolServer
	principal  *access.Principal
	runID      string
	clock      time.Time

	mu       sync.Mutex
	script   script
	stop     context.CancelFunc // of the turn in progress
	crashed  bool               // the turn's results are lost
	canceled bool               // before the turn, which must make no calls
	effects  map[string]int     // requests to tools by call ID
	approved map[string]int     // approvals by call ID
	denied   map[string]bool
	// interrupted are the calls that a node left in the state started.
	interrupted map[string]bool
	problems    []string

	frozen   []*outcome // of nodes that wake up later
	stale    []*Run     // read by nodes that work later
	finished *Run
}

// TestRunSurvivesCrashesDecisionsAndTimeoutsInAnyOrder executes runs with random
// tools, answers, crashes, cancellations, decisions and timeouts. It checks that
//   - every model call and tool call follows its durable checkpoint,
//   - a tool call with an effect is repeated only after an approval,
//   - a denied call is never made,
//   - the run's cost is the sum of its requests in the log, each counted once,
//   - a tool call costs its price at most once, however often it is repeated,
//   - the status changes along the transition table, and never after the end,
//   - every run ends.
func TestRunSurvivesCrashesDecisionsAndTimeoutsInAnyOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var l *life
		s := newService(t, d, func() time.Time { return l.clock })
		s.Log, s.logDelay = newLog(t, d, d, nil), 0
		s.complete = func(ctx context.Context, c gateway.Call) (*gateway.Response, error) { return l.complete(ctx, c) }
		s.outcomes = db.NewQueue(s.group, true, func(ctx context.Context, tx *db.Tx, list []*outcome) error { return l.writeCheckpoint(ctx, tx, list) })
		d.GiveUpParked() // what crashes is lost
		s.reserveTool = func(_ context.Context, c gateway.Call, price credits.Micro) error { return l.reserve(c, price) }
		server := newToolServer(t, func(r *http.Request) { l.serveTool(r) })
		principal := newKey(t, d)
		s.Servers = toolservers.New(toolservers.Options{DB: d, Ring: s.Ring, Guard: s.Guard, Version: "1", Now: time.Now})
		registered := &toolservers.Server{Tenant: principal.Tenant, Label: "shop", URL: server.URL, Approval: tools.ApproveAlways, Prices: map[string]credits.Micro{"": toolPrice}}
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			return s.Servers.Create(t.Context(), tx, audit.Operator, registered, toolservers.Credentials{})
		}); err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(rt *rapid.T) {
			l = &life{Service: s, toolServer: server, principal: principal, clock: time.Now(), effects: map[string]int{}, approved: map[string]int{}, denied: map[string]bool{},
				interrupted: map[string]bool{}}
			l.create(rt, server.URL, registered.ID)
			rt.Repeat(map[string]func(*rapid.T){
				"": l.check,
				"turn": func(rt *rapid.T) {
					l.turn(rt, l.load(rt), drawScript(rt))
				},
				"turn again": func(rt *rapid.T) { // more often than the others
					l.turn(rt, l.load(rt), drawScript(rt))
				},
				"turn of a node with a stale read": l.staleTurn,
				"frozen node writes its outcome": func(rt *rapid.T) {
					l.write(rt)
				},
				"time passes":       l.passTime,
				"log is recovered":  l.recoverLog,
				"decide":            l.decide,
				"submit an output":  l.submitOutput,
				"cancel":            func(rt *rapid.T) { l.cancel(rt) },
				"the run times out": l.timeOut,
			})
			l.finish(rt)
		})
	})
}

func drawScript(rt *rapid.T) script {
	return script{
		interruption: rapid.SampledFrom(interruptions).Draw(rt, "interruption"),
		answer:       rapid.SampledFrom([]string{"answer", "error", "pay", "look", "guarded", "mine", "pay look", "pay guarded mine"}).Draw(rt, "answer"),
		passes:       rapid.Bool().Draw(rt, "passes"),
		cost:         credits.Micro(rapid.Int64Range(0, 100).Draw(rt, "cost")),
	}
}

// create stores a run with a tool of each kind, and perhaps with a judge.
func (l *life) create(rt *rapid.T, server, registered string) {
	r := &Run{ID: ids.New(ids.Run), Tenant: accounts.Tenant{WorkspaceID: l.principal.WorkspaceID, Environment: accounts.Live}, KeyID: l.principal.KeyID, Status: Queued, Model: "m",
		Metadata: map[string]string{}, MaxSteps: 5, DueAt: &l.clock, CreatedAt: l.clock, Lane: "lane", Messages: 1,
		Config: config{ApprovalSeconds: 60, ToolOutputSeconds: 60, TimeoutSeconds: 3600, ToolMode: accounts.ToolsReal, MaxRevisions: 1}}
	if rapid.Bool().Draw(rt, "judged") {
		r.Config.Checks = []check{{Type: checkJudge, Model: "judge", Rubric: "good"}}
	}
	var given []json.RawMessage
	for _, tool := range []string{`"type":"http","name":"pay","idempotent":false`, `"type":"http","name":"look","idempotent":true`,
		`"type":"http","name":"guarded","require_approval":"always"`, `"type":"function","name":"mine"`} {
		if strings.Contains(tool, "http") {
			tool += `,"method":"POST","url":"` + server + `"`
		}
		given = append(given, json.RawMessage("{"+tool+`,"parameters":{"type":"object"}}`))
	}
	var err error
	if r.Specs, _, err = l.tools.Parse(given); err != nil {
		rt.Fatal(err)
	}
	for i := range 2 { // pay and look have a price, like tools of a registered server
		r.Specs[i].ServerID = registered
	}
	l.runID = r.ID
	err = l.DB.Write(context.Background(), func(tx *db.Tx) error {
		return l.Create(context.Background(), tx, &Draft{Run: r, messages: []json.RawMessage{textMessage("user", "go")}})
	})
	if err != nil {
		rt.Fatal(err)
	}
}

func (l *life) load(rt *rapid.T) *Run {
	r, err := l.loadRun(context.Background(), l.runID)
	if err != nil {
		rt.Fatal(err)
	}
	return r
}

func (l *life) calls(rt *rapid.T) []*Call {
	calls, err := l.Calls(context.Background(), l.DB, l.runID, 1, 99)
	if err != nil {
		rt.Fatal(err)
	}
	return calls
}

func (l *life) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// crash loses what the turn in progress does from now on.
func (l *life) crash() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed = true
	l.stop()
}

// turn works one turn of the run as it was read, and writes its outcome unless
// the node crashes.
func (l *life) turn(rt *rapid.T, r *Run, s script) {
	if r.DueAt == nil || r.DueAt.After(l.clock) {
		return
	}
	l.stale = append(l.stale, r)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l.script, l.stop, l.crashed = s, stop, false
	l.canceled = s.interruption == cancelBeforeTurn && l.cancelRun() == nil
	copied := *r
	var o *outcome
	var err error
	done := make(chan struct{})
	go func() { // a crash ends the goroutine
		defer close(done)
		o, err = l.runTurn(ctx, &copied)
	}()
	<-done
	if ctx.Err() != nil {
		l.toolServer.drain(rt)
	}
	switch {
	case l.crashed || s.interruption == crashBeforeOutcome:
		l.noteInterrupted(rt)
	case err != nil || o == nil: // the next turn starts from what is stored
	case s.interruption == freezeBeforeOutcome:
		l.frozen = append(l.frozen, o)
		l.noteInterrupted(rt)
	default:
		l.write(rt, o)
	}
	l.noteInterruptedBy(rt, s.interruption)
}

// noteInterrupted remembers the calls that a crash left in the state started.
func (l *life) noteInterrupted(rt *rapid.T) {
	for _, c := range l.calls(rt) {
		if c.Status == callStarted {
			l.mu.Lock()
			l.interrupted[c.ID] = true
			l.mu.Unlock()
		}
	}
}

// noteInterruptedBy does so after a graceful stop: only a call whose request was
// sent has an unknown outcome.
func (l *life) noteInterruptedBy(rt *rapid.T, i interruption) {
	if i == stopDuringEffect || i == cancelDuringEffect {
		l.noteInterrupted(rt)
	}
}

// staleTurn is a turn of a node that has read the run before others worked it.
func (l *life) staleTurn(rt *rapid.T) {
	if len(l.stale) == 0 {
		return
	}
	r, now := l.stale[0], l.load(rt)
	l.stale = l.stale[1:]
	if r.Turn == now.Turn {
		return
	}
	before := l.totalEffects()
	s := drawScript(rt)
	if s.interruption == cancelBeforeTurn { // would change the run
		s.interruption = undisturbed
	}
	l.turn(rt, r, s)
	if after := l.totalEffects(); after != before {
		rt.Fatalf("a node with a stale read made %d calls", after-before)
	}
	if got := l.load(rt); !reflect.DeepEqual(got, now) {
		rt.Fatalf("a node with a stale read changed the run from %+v to %+v", now, got)
	}
}

func (l *life) totalEffects() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, count := range l.effects {
		n += count
	}
	return n
}

// write stores outcomes in one batch with those of frozen nodes, which must lose.
func (l *life) write(rt *rapid.T, list ...*outcome) {
	before := l.load(rt)
	var late, current []*outcome
	taken := slices.ContainsFunc(list, func(o *outcome) bool { return o.turn == before.Turn })
	for _, o := range l.frozen {
		if o.turn == before.Turn && !taken {
			current = append(current, o)
		} else {
			late = append(late, o)
		}
	}
	l.frozen = current
	batch := append(slices.Clone(list), late...)
	if len(batch) == 0 {
		return
	}
	err := l.DB.Write(context.Background(), func(tx *db.Tx) error { return l.writeOutcomes(context.Background(), tx, batch) })
	if err != nil {
		rt.Fatal(err)
	}
	for _, o := range late {
		if !o.stale {
			rt.Fatalf("a late outcome of turn %d was written in turn %d", o.turn, before.Turn)
		}
	}
}

// writeCheckpoint is the write of a checkpoint, at which the node may crash.
func (l *life) writeCheckpoint(ctx context.Context, tx *db.Tx, list []*outcome) error {
	if l.script.interruption == crashBeforeCheckpoint {
		l.crash()
		return fmt.Errorf("crashed: %w", db.ErrData)
	}
	if err := l.writeOutcomes(ctx, tx, list); err != nil {
		return err
	}
	tx.OnCommit(func() {
		switch l.script.interruption {
		case crashAfterCheckpoint:
			l.crash()
		case stopAfterCheckpoint:
			l.stop()
		}
	})
	return nil
}

// complete is the gateway: it logs its calls and charges for them.
func (l *life) complete(ctx context.Context, c gateway.Call) (*gateway.Response, error) {
	var requestID string
	c.Record.Note(func(e *audit.Entry) { requestID = e.RequestID })
	judging := strings.Contains(string(c.Body), judgeInstructions[:20])
	l.checkModelCheckpoint(requestID, judging)
	if l.canceled {
		l.problem("a canceled run called its model (judging %t)", judging)
	}
	s := l.script
	if s.interruption == crashBeforeIntent {
		l.crash()
		runtime.Goexit()
	}
	c.Record.Note(func(e *audit.Entry) { e.Model, e.Reserved = "m", 2*s.cost })
	if err := c.Record.Durable(time.Minute); err != nil {
		l.problem("the intent was not written: %v", err)
	}
	switch s.interruption {
	case crashDuringEffect:
		l.crash()
		runtime.Goexit()
	case stopDuringEffect:
		l.stop()
	case cancelDuringEffect:
		if err := l.cancelRun(); err != nil {
			l.problem("cancel: %v", err)
		}
	}
	input := int64(1)
	c.Record.Note(func(e *audit.Entry) { e.Credits, e.InputTokens = s.cost, &input })
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	message := map[string]any{"content": "done"}
	switch {
	case s.answer == "error":
		return nil, fault.New(fault.Upstream, "unavailable")
	case judging:
		message["content"] = fmt.Sprintf(`{"passed":%t,"reason":"r"}`, s.passes)
	case s.answer != "answer":
		var calls []any
		for _, name := range strings.Fields(s.answer) {
			calls = append(calls, map[string]any{"type": "function", "function": map[string]any{"name": name, "arguments": "{}"}})
		}
		message = map[string]any{"content": nil, "tool_calls": calls}
	}
	body, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": message}}})
	return &gateway.Response{Model: "m", Provider: "p", Body: body}, err
}

// toolPrice is the price of pay and look.
const toolPrice = 7

// reserve reserves the price of a tool call in the log, where the node may crash.
func (l *life) reserve(c gateway.Call, price credits.Micro) error {
	requestID := c.Record.Entry().RequestID
	var n int
	err := l.DB.QueryRow(context.Background(), "SELECT count(*) FROM agent_calls WHERE run_id = $1 AND request_id = $2 AND status = 'started'", l.runID, requestID).Scan(&n)
	if err != nil || n != 1 {
		l.problem("a price was reserved without a checkpoint (%v)", err)
	}
	if l.script.interruption == crashBeforeIntent {
		l.crash()
		runtime.Goexit()
	}
	c.Record.Note(func(e *audit.Entry) { e.Reserved = price })
	if l.script.interruption == crashDuringEffect {
		if err := c.Record.Durable(time.Minute); err != nil {
			l.problem("the intent was not written: %v", err)
		}
		l.crash()
		runtime.Goexit()
	}
	return nil
}

// checkModelCheckpoint reports a model call whose request ID is not stored.
func (l *life) checkModelCheckpoint(requestID string, judging bool) {
	query := "SELECT count(*) FROM agent_steps WHERE run_id = $1 AND request_id = $2 AND status = 'started'"
	id := requestID
	if judging {
		query, id = "SELECT count(*) FROM agent_events WHERE run_id = $1 AND type = 'check.started' AND data LIKE $2", "%"+requestID+"%"
	}
	var n int
	if err := l.DB.QueryRow(context.Background(), query, l.runID, id).Scan(&n); err != nil || n != 1 {
		l.problem("the model was called without a checkpoint (judging %t, %v)", judging, err)
	}
}

// toolServer is the server of the HTTP tools.
type toolServer struct {
	*httptest.Server
	open sync.WaitGroup // connections
}

// drainPath is a path that isn't a tool's.
const drainPath = "/drain"

func newToolServer(t *testing.T, serve func(*http.Request)) *toolServer {
	t.Helper()
	s := &toolServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != drainPath {
			serve(r)
		}
	}))
	s.Config.SetKeepAlivesEnabled(false)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed:
			s.open.Done()
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// drain waits for the requests of an interrupted turn. Its client doesn't, and on a busy
// machine they would arrive in a later turn. The server accepts connections in order, so
// it has those of the turn when it responds.
func (s *toolServer) drain(rt *rapid.T) {
	res, err := http.Get(s.URL + drainPath)
	if err != nil {
		rt.Fatal(err)
	}
	res.Body.Close()
	s.open.Wait()
}

// serveTool is a request to a tool.
func (l *life) serveTool(r *http.Request) {
	id := strings.TrimPrefix(r.Header.Get("Idempotency-Key"), l.runID+":")
	var status CallStatus
	var tool string
	err := l.DB.QueryRow(context.Background(), "SELECT status, tool FROM agent_calls WHERE run_id = $1 AND id = $2", l.runID, id).Scan((*string)(&status), &tool)
	if err != nil || status != callStarted {
		l.problem("tool %s was called without a checkpoint: %s is %q (%v)", tool, id, status, err)
	}
	if l.canceled {
		l.problem("a canceled run called tool %s", tool)
	}
	l.mu.Lock()
	l.effects[id]++
	allowed := l.approved[id]
	if tool == "pay" {
		allowed++ // needs no approval at first
	}
	if tool != "look" && l.effects[id] > allowed || l.denied[id] {
		l.problems = append(l.problems, fmt.Sprintf("%s was called %d times with %d approvals (denied: %t)", tool, l.effects[id], l.approved[id], l.denied[id]))
	}
	s := l.script
	l.mu.Unlock()
	switch s.interruption {
	case crashDuringEffect, crashBeforeIntent:
		l.crash()
		panic(http.ErrAbortHandler)
	case stopDuringEffect:
		l.stop()
		panic(http.ErrAbortHandler)
	case cancelDuringEffect:
		if err := l.cancelRun(); err != nil {
			l.problem("cancel: %v", err)
		}
	}
}

// passTime moves the clock to when the run is due, or to when a wait expires.
func (l *life) passTime(rt *rapid.T) {
	if r := l.load(rt); r.DueAt != nil && r.DueAt.After(l.clock) {
		l.clock = *r.DueAt
	}
}

// recoverLog settles the requests of crashed nodes as the log's recovery does. A node
// that still writes its own isn't dead.
func (l *life) recoverLog(rt *rapid.T) {
	l.Service.mu.Lock()
	unlogged := slices.Collect(maps.Values(l.unlogged))
	l.Service.mu.Unlock()
	for _, r := range unlogged {
		if err := r.Settled(time.Minute); err != nil {
			rt.Fatal(err)
		}
	}
	l.exec(rt, "UPDATE requests SET settled = TRUE, status = 500, credits = reserved, usage_source = 'recovered' WHERE NOT settled AND path = $1", "/v1/agents/runs/"+l.runID)
}

func (l *life) exec(rt *rapid.T, query string, args ...any) {
	err := l.DB.Write(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), query, args...)
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
}

// timeOut makes the run one that has worked for its whole timeout.
func (l *life) timeOut(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "timeout") == 0 {
		l.exec(rt, "UPDATE agent_runs SET worked_us = $2 WHERE id = $1 AND completed_at IS NULL", l.runID, time.Hour.Microseconds())
	}
}

func (l *life) cancelRun() error {
	return l.DB.Write(context.Background(), func(tx *db.Tx) error {
		_, _, err := l.Cancel(context.Background(), tx, l.principal, l.runID)
		return err
	})
}

func (l *life) cancel(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(rt, "cancel") > 0 {
		return
	}
	if err := l.cancelRun(); err != nil && !fault.Is(err, fault.InvalidState) {
		rt.Fatal(err)
	}
}

// decide decides about a call, perhaps for the second time.
func (l *life) decide(rt *rapid.T) {
	calls := slices.DeleteFunc(l.calls(rt), func(c *Call) bool { return c.ApprovalID == "" })
	if len(calls) == 0 {
		return
	}
	c := rapid.SampledFrom(calls).Draw(rt, "call")
	decision := rapid.SampledFrom([]Verdict{Approve, Approve, Deny, Respond}).Draw(rt, "decision")
	d := Decision{Decision: decision}
	if decision == Respond {
		d.Response = "instead"
	}
	err := l.DB.Write(context.Background(), func(tx *db.Tx) error {
		_, _, err := l.Decide(context.Background(), tx, DecideParams{Decider: tools.Decider{Principal: l.principal, Actor: audit.Operator}, RunID: l.runID, ApprovalID: c.ApprovalID, Decision: d})
		return err
	})
	switch {
	case err != nil && !fault.Is(err, fault.InvalidState):
		rt.Fatal(err)
	case err != nil || c.Decision != "":
	case decision == Deny || decision == Respond:
		l.denied[c.ID] = true
	default:
		l.approved[c.ID]++
	}
}

func (l *life) submitOutput(rt *rapid.T) {
	calls := slices.DeleteFunc(l.calls(rt), func(c *Call) bool { return c.Kind != tools.Function })
	if len(calls) == 0 {
		return
	}
	c := rapid.SampledFrom(calls).Draw(rt, "call")
	err := l.DB.Write(context.Background(), func(tx *db.Tx) error {
		_, _, err := l.SubmitOutputs(context.Background(), tx, l.principal, l.runID, []ToolOutput{{CallID: c.ID, Output: "out"}})
		return err
	})
	if err != nil && !fault.Is(err, fault.InvalidState) {
		rt.Fatal(err)
	}
}

// check holds after every action.
func (l *life) check(rt *rapid.T) {
	l.mu.Lock()
	problems := l.problems
	l.mu.Unlock()
	if len(problems) > 0 {
		rt.Fatal(strings.Join(problems, "\n"))
	}
	r := l.load(rt)
	if l.finished != nil && !reflect.DeepEqual(r, l.finished) {
		rt.Fatalf("the run changed after its end from %+v to %+v", l.finished, r)
	}
	if r.Status.Ended() {
		l.finished = r
	}
	if r.Status.Ended() != (r.DueAt == nil) {
		rt.Fatalf("a run that is %s is due at %v", r.Status, r.DueAt)
	}
	for _, c := range l.calls(rt) {
		if c.Note != "" && !l.interrupted[c.ID] {
			rt.Fatalf("an approval to repeat %s was requested, but the call was not interrupted", c.ID)
		}
		if c.Credits != 0 && (c.Credits != toolPrice || c.Tool != "pay" && c.Tool != "look") {
			rt.Fatalf("the call %s of %s cost %d, want its price at most once", c.ID, c.Tool, c.Credits)
		}
	}
	l.checkLog(rt, r)
}

// checkLog compares the run's log with its status and with the transition table.
func (l *life) checkLog(rt *rapid.T, r *Run) {
	entries, err := l.Entries(context.Background(), l.DB, r.ID, 0, 10_000)
	if err != nil {
		rt.Fatal(err)
	}
	status := Status("")
	for i, e := range entries {
		if e.Seq != int64(i+1) {
			rt.Fatalf("entry %d of the log has the number %d", i+1, e.Seq)
		}
		next := Status(strings.TrimPrefix(e.Type, "run."))
		if !slices.Contains(Statuses, next) {
			continue
		}
		if status != "" && !slices.Contains(transitions[status], next) {
			rt.Fatalf("the log has a change from %s to %s", status, next)
		}
		status = next
	}
	if status != r.Status || r.Logged != int64(len(entries)) {
		rt.Fatalf("the log ends with %s after %d entries, and the run is %s with %d", status, len(entries), r.Status, r.Logged)
	}
}

// finish works the run undisturbed until it ends, and checks what it cost.
func (l *life) finish(rt *rapid.T) {
	for range 60 {
		if l.finished != nil {
			break
		}
		l.recoverLog(rt)
		l.passTime(rt)
		l.turn(rt, l.load(rt), script{interruption: undisturbed, answer: "answer", passes: true, cost: 1})
		l.check(rt)
	}
	if l.finished == nil {
		rt.Fatalf("the run did not end: %+v", l.load(rt))
	}
	l.write(rt) // outcomes of frozen nodes
	l.check(rt)
	var charged, open int64
	err := l.DB.QueryRow(context.Background(), "SELECT CAST(COALESCE(sum(credits), 0) AS BIGINT), CAST(COALESCE(sum(CASE WHEN settled THEN 0 ELSE 1 END), 0) AS BIGINT) FROM requests WHERE path = $1",
		"/v1/agents/runs/"+l.runID).Scan(&charged, &open)
	if err != nil || open != 0 || credits.Micro(charged) != l.finished.Credits {
		rt.Fatalf("the run cost %d, and its requests %d with %d unsettled (%v)", l.finished.Credits, charged, open, err)
	}
	var published int
	err = l.DB.QueryRow(context.Background(), "SELECT count(*) FROM events WHERE type IN ('agent.run.completed', 'agent.run.failed') AND body LIKE $1", "%"+l.runID+"%").Scan(&published)
	if err != nil || published != 1 {
		rt.Fatalf("%d events about the end of the run, want 1 (%v)", published, err)
	}
}
