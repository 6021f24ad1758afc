// Package media works the long jobs: batches of pictures, videos, and long
// texts that are read aloud. A job is worked in tasks, which lie in the lanes
// of its workspace:
//
//	order.go             what is asked for → a job with its tasks, and its reservation
//	work.go              what is due in a lane → one task
//	images.go …          the task itself: video.go, voice.go, stitch.go
//	result.go            what came of tasks → rows, by group commit
//	finish.go            the end of a job: state, charge and event in one transaction
//
// No job, no retry and no poll lives only in memory.
package media

import (
	"context"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
)

// Queue is the name of the jobs' lanes.
const Queue = "media"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Files     *files.Store
	Gateway   *gateway.Gateway
	Settler   *spend.Settler
	Publisher *events.Publisher
	Node      string
	// PerLane and Slots are how many tasks run at once.
	PerLane int
	Slots   int
	// Deadline is how long a job may take.
	Deadline time.Duration
	// PollEvery is how often a provider is asked for a render.
	PollEvery time.Duration
	Now       func() time.Time
}

// Service is the media jobs of this node.
type Service struct {
	db        *db.DB
	files     *files.Store
	gateway   *gateway.Gateway
	settler   *spend.Settler
	publisher *events.Publisher
	deadline  time.Duration
	pollEvery time.Duration
	now       func() time.Time

	group   *db.Group
	starts  *db.Queue[string]
	results *db.Queue[*result]
	runner  *lanes.Runner[*item]
}

const (
	// maxLanes is how many lanes a node has in hand at once.
	maxLanes = 1024
	// maxUnwritten keeps commits small: the end of a job is a dozen statements.
	maxUnwritten = 32
)

// New makes the service; Run starts it.
func New(o Options) *Service {
	s := &Service{db: o.DB, files: o.Files, gateway: o.Gateway, settler: o.Settler, publisher: o.Publisher, deadline: o.Deadline, pollEvery: o.PollEvery, now: o.Now}
	// Its own commits: the end of a large batch must not hold up the request log.
	s.group = db.NewGroup(o.DB)
	s.starts = db.NewQueue(s.group, false, s.writeStarts)
	s.results = db.NewQueue(s.group, true, s.writeResults)
	s.runner = lanes.NewRunner[*item](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, MaxUnwritten: maxUnwritten, Now: o.Now})
	return s
}

// Run works until ctx ends, and returns when what was under way is written.
func (s *Service) Run(ctx context.Context) {
	s.runner.Run(ctx)
	s.group.Stop()
}
