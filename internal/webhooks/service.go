// Package webhooks delivers events to the endpoints that subscribe to them:
//
//	fanout.go    pending events → one delivery per endpoint, in its lane
//	dispatch.go  due deliveries of a lane → attempts
//	send.go      an attempt over HTTP (a tunnel is another Sender)
//	result.go    success, the next retry, or the pause of the endpoint
//
// Deliveries, retries and pauses are stored, never only in memory.
package webhooks

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
)

// Queue is the queue of deliveries. Each endpoint has a lane.
const Queue = "deliveries"

// signalEndpoint notifies nodes that an endpoint changed; the payload is its ID.
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
	// Schedule holds the delays before retries, until SetSchedule.
	Schedule []time.Duration
	// Timeout is how long an endpoint may take to respond.
	Timeout time.Duration
	// PerEndpoint and Slots limit the concurrent attempts.
	PerEndpoint int
	Slots       int
	Version     string // for the User-Agent
	// Notify tells people about events, in the transaction that fans them out. It may be nil.
	Notify func(ctx context.Context, tx *db.Tx, list []events.Pending) error
	// Link signs the URL of a workspace's file below a server's address, for events that contain files.
	Link func(base string, t accounts.Tenant, sha256, name string, expires time.Time) string
	// LinkBase is this node's address in links. Deliveries store it, because nodes may have different ones.
	LinkBase string
	Now      func() time.Time
}

// Service delivers webhooks on this node.
type Service struct {
	Options

	agent    string // the User-Agent
	schedule atomic.Pointer[[]time.Duration]
	runner   *lanes.Runner[*job]
	results  *db.Queue[*result]
	senders  map[Kind]Sender
	targets  targets
	fanWake  chan struct{}
	counts   counts
}

// maxLanes limits the endpoints that a node leases; each takes a few hundred bytes.
const maxLanes = 4096

// writeGrace is how long the result of an attempt may take to be written when the
// server stops.
const writeGrace = 10 * time.Second

// New returns the service. Run starts it.
func New(o Options) *Service {
	s := &Service{Options: o, agent: "Turnpike/" + o.Version + " (webhooks)", fanWake: make(chan struct{}, 1), counts: newCounts()}
	s.SetSchedule(o.Schedule)
	s.results = db.NewQueue(o.Group, true, s.writeResults).Identify("delivery_attempts", func(r *result) string { return r.job.id }).Repeatable()
	s.senders = map[Kind]Sender{HTTP: newHTTPSender(o.Guard, o.PerEndpoint)}
	s.runner = lanes.NewRunner[*job](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerEndpoint, Slots: o.Slots, MaxLanes: maxLanes, MoveBacklogs: true, Now: o.Now,
		DrainTimeout: o.Timeout + writeGrace})
	s.targets.ring = o.Ring
	o.DB.OnSignal(signalEndpoint, s.targets.forget)
	// Events are published in this process, or by another on the same embedded database.
	o.Publisher.OnPublished(s.wakeFanout)
	o.DB.OnSignal(signalEvents, func(string) { s.wakeFanout() })
	return s
}

// SetSchedule replaces the delays before retries, for attempts that end from now
// on.
func (s *Service) SetSchedule(delays []time.Duration) { s.schedule.Store(&delays) }

// AddSender sets the sender for a kind of endpoint. Call it before Run.
func (s *Service) AddSender(k Kind, sender Sender) { s.senders[k] = sender }

// Run delivers events until ctx ends, and returns once all results are written.
func (s *Service) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { s.runFanout(ctx) })
	both.Go(func() { s.runner.Run(ctx) })
	both.Wait()
}
