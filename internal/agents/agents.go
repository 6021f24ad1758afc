// Package agents executes agent runs: it calls a model, executes the tools that
// the model requests, and repeats until the model gives an answer. A run is an
// item in one of its workspace's lanes. A worker takes a run that is due, does
// one turn and commits the outcome. Each model call and tool call follows a
// checkpoint, so a crash never repeats an effect without a record of it.
//
// Status is the state of a run, and outcome.transition is the only function
// that changes it:
//
//	create ─▶ queued ──────────▶ in_progress ─────────▶ verifying ─▶ completed
//	            ▲  ▲   worker     │   │   ▲  answer        │  │
//	    retry,  │  └──────────────┘   │   └────────────────┘  │
//	  decision, │      recovery       │      revision         │
//	    output  │                     ▼                       │
//	            ├──────── awaiting_approval                   │
//	            │                     │ approved              │
//	            │                     ▼                       │
//	            └───────── requires_action                    │
//	                                                          ▼
//	 in_progress, verifying ──cancel──▶ cancelling ─▶ cancelled
//	 queued, awaiting_approval, requires_action ──cancel──▶ cancelled
//	 any state before the end ──timeout, error, limit──▶ failed
//
// A tool call has its own state (CallStatus). Only ready calls are
// executed, and no path leads from denied to ready:
//
//	awaiting_approval ─▶ ready ─▶ started ─▶ completed
//	        │  ▲                     │
//	        │  └─── outcome unknown ─┘
//	        └─▶ denied        awaiting_output ─▶ completed
//
// Files:
//
//	create.go        validates a request and stores a run
//	state.go         the states of a run and their transitions
//	turn.go          finds runs that are due and works one turn
//	think.go         a turn that calls the model: a step
//	plan.go          decides what happens to each tool call of a step
//	act.go           a turn that executes tools
//	verify.go        a turn that checks the answer
//	charge.go        reserves and charges the price of a tool call
//	recover.go       charges calls that a crashed node left unfinished
//	retry.go         decides whether a failed turn is retried
//	outcome.go       writes the outcome of a turn, by group commit
//	decide.go        approvals, outputs of the client's tools, cancellation
//	requests.go      limits on requests and tool calls
//	registered.go    MCP servers of the workspace's registry
//	usage.go         tokens and cost of a model call
//	watch.go         the log of a run and its watchers
//	eventpayload.go  a run as its webhook event carries it
//
// The tools themselves are in the package tools.
package agents

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/safehttp"
	"turnpike/internal/watch"
)

// Queue is the name of the lane queue for runs.
const Queue = "agents"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Ring      *keyring.Ring
	Gateway   *gateway.Gateway
	Log       *audit.Log
	Guard     *safehttp.Guard
	Publisher *events.Publisher
	Servers   *toolservers.Service // the registry of MCP servers
	Node      string
	// PerLane and Slots limit how many turns run concurrently.
	PerLane int
	Slots   int
	// ToolResult finds the output that a conversation sets for simulated calls.
	ToolResult func(messages []json.RawMessage) (result string, found bool)
	Version    string
	Now        func() time.Time
}

// Settings are the settings that Apply can change while runs are in progress.
type Settings struct {
	// Requests limits the requests of tools and checks.
	Requests *tools.RequestLimits
	// CallsPerStep and CallsPerRun limit the tool calls that the server makes.
	CallsPerStep int
	CallsPerRun  int64
	// TestTools is the tool mode of test runs in workspaces without a setting.
	TestTools accounts.ToolMode
}

// Service executes agent runs on this node.
type Service struct {
	Options
	settings    atomic.Pointer[Settings]
	complete    func(context.Context, gateway.Call) (*gateway.Response, error)
	reserveTool func(context.Context, gateway.Call, credits.Micro) error
	tools       *tools.Executor
	checkClient *http.Client // one connection per check, as checks are not repeated

	group    *db.Group
	outcomes *db.Queue[*outcome]
	runner   *lanes.Runner[*lanes.Row]
	watchers *watch.Watchers
	ended    *prometheus.CounterVec
	// logDelay is how long a request may be missing from the log after its node
	// died.
	logDelay time.Duration

	mu       sync.Mutex
	working  map[string]context.CancelFunc // runs in progress on this node
	unlogged map[string]*audit.Record      // requests whose log entries are late, by ID
}

// maxLanes is how many lanes a node holds.
const maxLanes = 1024

// New creates the service. Run starts it.
func New(o Options, first Settings) *Service {
	s := &Service{Options: o, ended: newEnded(), complete: o.Gateway.Chat, reserveTool: o.Gateway.ReserveToolCall, tools: tools.NewExecutor(o.Guard, o.Version),
		checkClient: o.Guard.Client(safehttp.ClientOptions{MaxIdlePerHost: -1}),
		watchers:    watch.New(),
		logDelay:    maxLogDelay, working: map[string]context.CancelFunc{}, unlogged: map[string]*audit.Record{}}
	s.Apply(first)
	s.group = db.NewGroup(o.DB).Named("runs")
	s.outcomes = db.NewQueue(s.group, true, s.writeOutcomes).Identify("run_turns", func(o *outcome) string { return o.run.ID })
	s.runner = lanes.NewRunner[*lanes.Row](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, Now: o.Now})
	o.DB.OnSignal(signalCancel, s.interrupt)
	return s
}

// Apply replaces the settings for the next tool calls.
func (s *Service) Apply(settings Settings) { s.settings.Store(&settings) }

// Run works until ctx ends, and returns when the outcomes of its turns are
// written.
func (s *Service) Run(ctx context.Context) {
	s.runner.Run(ctx)
	s.group.Stop()
}

// signalCancel notifies the node that works a run of its cancellation.
const signalCancel = "agents.cancel"

// interrupt stops the turn of a run on this node.
func (s *Service) interrupt(runID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.working[runID]; stop != nil {
		stop()
	}
}

// startWorking registers a run as in progress on this node, so that interrupt
// can stop it.
func (s *Service) startWorking(ctx context.Context, runID string) (_ context.Context, done func()) {
	ctx, stop := context.WithCancel(ctx)
	s.mu.Lock()
	s.working[runID] = stop
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		delete(s.working, runID)
		s.mu.Unlock()
		stop()
	}
}
