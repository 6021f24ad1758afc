// Package background creates responses of the Responses API after their request. Each is an item in
// one of its workspace's lanes: a worker calls the model and ends the response.
//
//	create ─▶ queued ──start──▶ in_progress ──▶ completed, incomplete or failed
//	             │               │    ▲  │
//	             │               │    └──┘ another attempt, after a crash
//	             └────cancel─────┴──────────▶ cancelled
//
// A row exists until the response ends. The transaction that deletes it stores the response, charges
// it from the reservation that the row owns, and publishes the event. So a response ends once, and is
// charged once.
//
//	create.go    stores a response, its reservation and its first events
//	work.go      finds responses that are due, and works one
//	attempt.go   calls the model
//	finish.go    ends a response, also by a cancellation
//	stream.go    stores events of streamed responses
package background

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
	"turnpike/internal/watch"
)

// Queue is the name of the lane queue for background responses.
const Queue = "responses"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Ring      *keyring.Ring
	Gateway   *gateway.Gateway
	Store     *conversations.Store
	Settler   *spend.Settler
	Publisher *events.Publisher
	Node      string
	// PerLane and Slots limit how many responses are created concurrently.
	PerLane int
	Slots   int
	// Deadline is how long a response may take.
	Deadline time.Duration
	Now      func() time.Time
}

// Service creates background responses on this node.
type Service struct {
	Options

	group  *db.Group
	starts *db.Queue[*start]
	parts  *db.Queue[*part]
	stops  *db.Queue[*job]
	ends   *db.Queue[*end]
	runner *lanes.Runner[*lanes.Row]
	ended  *prometheus.CounterVec

	watchers *watch.Watchers

	mu      sync.Mutex
	working map[string]context.CancelFunc // responses in progress on this node
}

const (
	// maxLanes is how many lanes a node holds.
	maxLanes = 1024
	// eventLinger collects the events of a stream, so that each token isn't a row.
	eventLinger = 40 * time.Millisecond
)

// New creates the service. Run starts it.
func New(o Options) *Service {
	s := &Service{Options: o, ended: newEnded(), watchers: watch.New(), working: map[string]context.CancelFunc{}}
	s.group = db.NewGroup(o.DB).Named("responses")
	// In this order: a response starts, has events and ends, perhaps in one commit.
	s.starts = db.NewQueue(s.group, false, s.writeStarts)
	s.parts = db.NewQueue(s.group, true, s.writeParts).Identify("response_events", func(p *part) string { return p.id }).Linger(eventLinger)
	s.stops = db.NewQueue(s.group, false, s.writeStops)
	s.ends = db.NewQueue(s.group, true, s.writeEnds).Identify("response_ends", func(e *end) string { return e.job.ID })
	s.runner = lanes.NewRunner[*lanes.Row](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, Now: o.Now})
	o.DB.OnSignal(signalCancel, s.interrupt)
	return s
}

// Run works until ctx ends, and returns when the ends of its responses are written.
func (s *Service) Run(ctx context.Context) {
	s.runner.Run(ctx)
	s.group.Stop()
}

// signalCancel notifies the node that creates a response of its cancellation.
const signalCancel = "responses.cancel"

// interrupt stops the model call of a response on this node.
func (s *Service) interrupt(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.working[id]; stop != nil {
		stop()
	}
}

// startWorking returns the context of a response's model call, which interrupt cancels. It is canceled at
// the deadline, too, but has none itself: the gateway would take it for the provider's.
func (s *Service) startWorking(ctx context.Context, j *job) (_ context.Context, done func()) {
	ctx, stop := context.WithCancel(ctx)
	timer := time.AfterFunc(j.DeadlineAt.Sub(s.Now()), stop)
	s.mu.Lock()
	s.working[j.ID] = stop
	s.mu.Unlock()
	return ctx, func() {
		timer.Stop()
		s.mu.Lock()
		delete(s.working, j.ID)
		s.mu.Unlock()
		stop()
	}
}
