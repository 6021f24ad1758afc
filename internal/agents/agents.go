// Package agents works agent runs: a model is asked, the tools that it calls
// are executed, and so on until it has an answer. A run is a lane item of its
// workspace, and every turn of it begins and ends with a commit, so that a
// crash repeats nothing that had an effect:
//
//	order.go    what is asked for → a run
//	work.go     what is due in a lane → one turn of a run
//	think.go    a turn that asks the model: a step
//	act.go      a turn that executes tools
//	toolmode.go whether tools are real or simulated
//	requests.go how many requests and calls there may be
//	verify.go   a turn that checks the answer
//	bill.go     what a call has used and cost, by the request log
//	outcome.go  what came of a turn → rows, by group commit
//	decide.go   approvals, outputs of the customer's tools, cancelling
//	revive.go   runs that a wrong clock has put off
//	watch.go    the log of a run, for whoever watches
//
// The tools themselves are in the package tools.
package agents

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/safehttp"
)

// Queue is the name of the runs' lanes.
const Queue = "agents"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Ring      *keyring.Ring
	Gateway   *gateway.Gateway
	Log       *audit.Log
	Guard     *safehttp.Guard
	Publisher *events.Publisher
	Node      string
	// PerLane and Slots are how many turns run at once.
	PerLane int
	Slots   int
	// Requests limits what tools and checks send.
	Requests *tools.RequestLimits
	// CallsPerStep and CallsPerRun are how many tools the server calls at most.
	CallsPerStep int
	CallsPerRun  int64
	// TestTools is the mode of test runs in workspaces that set none.
	TestTools accounts.ToolMode
	// ToolResult finds the output that a conversation sets for simulated calls.
	ToolResult func(messages []json.RawMessage) (result string, found bool)
	Version    string
	Now        func() time.Time
}

// Service is the agent runs of this node.
type Service struct {
	db        *db.DB
	ring      *keyring.Ring
	gateway   *gateway.Gateway
	log       *audit.Log
	guard     *safehttp.Guard
	tools     *tools.Executor
	checker   *http.Client // of checks: a connection for each, as none is made twice
	publisher *events.Publisher
	now       func() time.Time

	requests     *tools.RequestLimits
	callsPerStep int
	callsPerRun  int64
	testTools    accounts.ToolMode
	toolResult   func(messages []json.RawMessage) (result string, found bool)

	group    *db.Group
	outcomes *db.Queue[*outcome]
	runner   *lanes.Runner[*item]
	watchers watchers

	mu       sync.Mutex
	at       map[string]context.CancelFunc // runs that are being worked here
	unlogged map[string]*audit.Record      // calls whose entries are late, by request
}

// maxLanes is how many lanes a node has in hand at once.
const maxLanes = 1024

// New makes the service; Run starts it.
func New(o Options) *Service {
	s := &Service{db: o.DB, ring: o.Ring, gateway: o.Gateway, log: o.Log, guard: o.Guard, tools: tools.NewExecutor(o.Guard, o.Version),
		checker:   o.Guard.Client(safehttp.ClientOptions{MaxIdlePerHost: -1}),
		publisher: o.Publisher, now: o.Now, requests: o.Requests, callsPerStep: o.CallsPerStep, callsPerRun: o.CallsPerRun, testTools: o.TestTools,
		toolResult: o.ToolResult, at: map[string]context.CancelFunc{}, unlogged: map[string]*audit.Record{}}
	s.group = db.NewGroup(o.DB)
	s.outcomes = db.NewQueue(s.group, true, s.writeOutcomes)
	s.runner = lanes.NewRunner[*item](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, Now: o.Now})
	o.DB.OnSignal(signalCancel, s.interrupt)
	return s
}

// Run works until ctx ends, and returns when what was under way is written.
func (s *Service) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { s.reviveNowAndThen(ctx) })
	s.runner.Run(ctx)
	background.Wait()
	s.group.Stop()
}

// signalCancel tells the node that works a run that it need not go on.
const signalCancel = "agents.cancel"

// interrupt ends the turn of a run that is worked here.
func (s *Service) interrupt(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.at[runID]; stop != nil {
		stop()
	}
}

// working notes that a run is worked here, so that it can be interrupted.
func (s *Service) working(ctx context.Context, runID string) (context.Context, func()) {
	ctx, stop := context.WithCancel(ctx)
	s.mu.Lock()
	s.at[runID] = stop
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		delete(s.at, runID)
		s.mu.Unlock()
		stop()
	}
}
