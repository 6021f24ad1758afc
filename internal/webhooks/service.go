// Package webhooks takes events to the endpoints that want them: it fans an
// event out into deliveries, works each endpoint's lane, signs and sends, and
// writes down what came of it. The way of an event through it:
//
//	fanout.go    new events → one delivery per endpoint, in its lane
//	dispatch.go  what is due in a lane → an attempt
//	send.go      the attempt itself, over HTTP (a tunnel is another Sender)
//	result.go    success, the next retry, or the pause of the endpoint
//
// No delivery, no retry and no pause lives only in memory.
package webhooks

import (
	"context"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
)

// Queue is the name of the deliveries' lanes; a lane is an endpoint.
const Queue = "deliveries"

// signalEndpoint tells nodes that an endpoint changed; the payload is its id.
const signalEndpoint = "endpoint"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Group     *db.Group
	Ring      *keyring.Ring
	Guard     *safehttp.Guard
	Publisher *events.Publisher
	Outbox    *mail.Outbox
	Node      string
	// Schedule is how long after a failed attempt the next one is made.
	Schedule []time.Duration
	// Timeout is how long an endpoint may take for its answer.
	Timeout time.Duration
	// PerEndpoint and Slots are how many attempts run at once.
	PerEndpoint int
	Slots       int
	Version     string // for the User-Agent
	// Link mints the URL of a tenant's file, for events that speak of files.
	Link func(workspaceID, environment, sha256, name string, expires time.Time) string
	Now  func() time.Time
}

// Service is the webhooks of this node.
type Service struct {
	db        *db.DB
	ring      *keyring.Ring
	guard     *safehttp.Guard
	publisher *events.Publisher
	outbox    *mail.Outbox
	node      string
	schedule  []time.Duration
	timeout   time.Duration
	agent     string
	link      func(workspaceID, environment, sha256, name string, expires time.Time) string
	now       func() time.Time

	runner  *lanes.Runner[*job]
	results *db.Queue[*result]
	senders map[Kind]Sender
	targets targets
	fanWake chan struct{}
	counts  counts
}

// maxLanes is how many endpoints a node has in hand at once; each takes a few
// hundred bytes.
const maxLanes = 4096

// writeGrace is how long an attempt that has ended may take to be written when
// the server stops.
const writeGrace = 10 * time.Second

// New makes the service; Run starts it.
func New(o Options) *Service {
	s := &Service{db: o.DB, ring: o.Ring, guard: o.Guard, publisher: o.Publisher, outbox: o.Outbox, node: o.Node,
		schedule: o.Schedule, timeout: o.Timeout, agent: "Turnpike/" + o.Version + " (webhooks)", link: o.Link, now: o.Now, fanWake: make(chan struct{}, 1)}
	s.counts = newCounts()
	s.results = db.NewQueue(o.Group, true, s.writeResults)
	s.senders = map[Kind]Sender{HTTP: newHTTPSender(o.Guard, o.PerEndpoint)}
	s.runner = lanes.NewRunner[*job](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerEndpoint, Slots: o.Slots, MaxLanes: maxLanes, Now: o.Now,
		DrainTimeout: o.Timeout + writeGrace})
	s.targets.ring = o.Ring
	o.DB.OnSignal(signalEndpoint, s.targets.forget)
	// Published in this process, or by another on the same embedded database.
	o.Publisher.OnPublished(s.wakeFanout)
	o.DB.OnSignal(signalEvents, func(string) { s.wakeFanout() })
	return s
}

// AddSender makes endpoints of the kind reachable. It must be called before Run.
func (s *Service) AddSender(k Kind, sender Sender) { s.senders[k] = sender }

// Run works until ctx ends, and returns when what was under way is written.
func (s *Service) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { s.runFanout(ctx) })
	both.Go(func() { s.runner.Run(ctx) })
	both.Wait()
}
