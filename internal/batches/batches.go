// Package batches runs batches of model requests. A batch is a file of requests, one in each line.
// Its lines are items in a lane of its workspace:
//
//	create.go    creates and cancels a batch
//	validate.go  checks the input file and stores its lines
//	work.go      finds due lines in a lane and works one
//	call.go      makes the request of a line
//	recover.go   looks up the request of a line that was interrupted
//	result.go    starts lines and writes their results, by group commit
//	upstream.go  hands a batch to the batch API of a provider
//	finish.go    ends a batch: files, status and event
//
// A line is charged for one request. Each request is an entry in the request log, and the charge of
// an interrupted one is refunded in the transaction that starts the next.
package batches

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/apifiles"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
)

// Queue is the name of the lane queue for batches.
const Queue = "batches"

// Limits bound the input of a batch.
type Limits struct {
	Lines      int
	LineBytes  int64
	JSONDepth  int
	JSONValues int
}

// Options configure the service.
type Options struct {
	DB        *db.DB
	Ring      *keyring.Ring
	Files     *apifiles.Store
	Content   *files.Store // that holds the input of batches in progress
	Gateway   *gateway.Gateway
	Log       *audit.Log
	Settler   *spend.Settler
	Publisher *events.Publisher
	Node      string
	// PerLane and Slots limit how many lines run concurrently.
	PerLane int
	Slots   int
	Limits  func() Limits
	// RenderError returns the body of an error response of an endpoint.
	RenderError func(e Endpoint, f *fault.Error, requestID string) []byte
	Now         func() time.Time
}

// Service runs batches on this node.
type Service struct {
	Options

	group   *db.Group
	starts  *db.Queue[*start]
	results *db.Queue[*result]
	runner  *lanes.Runner[*lanes.Row]
	ended   *prometheus.CounterVec
}

const (
	// maxLanes is how many lanes a node holds.
	maxLanes = 1024
	// maxUnwritten keeps commits small: results may be large.
	maxUnwritten = 64
)

// New creates the service. Run starts it.
func New(o Options) *Service {
	s := &Service{Options: o, ended: newEnded()}
	// A separate group, because large results must not delay the request log.
	s.group = db.NewGroup(o.DB).Named("batches")
	s.starts = db.NewQueue(s.group, false, s.writeStarts)
	s.results = db.NewQueue(s.group, true, s.writeResults).Identify("batch_lines", func(r *result) string { return r.line.place() })
	s.runner = lanes.NewRunner[*lanes.Row](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, MaxUnwritten: maxUnwritten, Now: o.Now})
	return s
}

// Run works until ctx ends, and returns when its results are written.
func (s *Service) Run(ctx context.Context) {
	s.runner.Run(ctx)
	s.group.Stop()
}
