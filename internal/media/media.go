// Package media runs media jobs: batches of images, videos, long texts that are
// converted to speech, and transcriptions of audio files. A job consists of tasks, which are items in the lanes of its
// workspace:
//
//	create.go            validates a request; creates a job, its tasks and its reservation
//	work.go              finds due tasks in a lane and works one
//	images.go …          the work of a task: video.go, voice.go, stitch.go, transcript.go
//	result.go            writes the results of tasks, by group commit
//	finish.go            ends a job: state, charge and event in one transaction
//
// All jobs, retries and polls are stored in the database.
package media

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/lanes"
	"turnpike/internal/spend"
)

// Queue is the name of the lane queue for jobs.
const Queue = "media"

// Options configure the service.
type Options struct {
	DB        *db.DB
	Files     *files.Store
	Gateway   *gateway.Gateway
	Settler   *spend.Settler
	Publisher *events.Publisher
	Node      string
	// PerLane and Slots limit how many tasks run concurrently.
	PerLane int
	Slots   int
	// Deadline is how long a job may take.
	Deadline time.Duration
	// PollEvery is how often a provider is polled for a render.
	PollEvery time.Duration
	Now       func() time.Time
}

// Service runs media jobs on this node.
type Service struct {
	Options

	group   *db.Group
	starts  *db.Queue[string]
	results *db.Queue[*result]
	runner  *lanes.Runner[*lanes.Row]
	ended   *prometheus.CounterVec
}

const (
	// maxLanes is how many lanes a node holds.
	maxLanes = 1024
	// maxUnwritten keeps commits small: the end of a job is a dozen statements.
	maxUnwritten = 32
)

// New creates the service. Run starts it.
func New(o Options) *Service {
	s := &Service{Options: o, ended: newEnded()}
	// A separate group, because the end of a large batch must not delay the request log.
	s.group = db.NewGroup(o.DB).Named("jobs")
	s.starts = db.NewQueue(s.group, false, s.writeStarts)
	s.results = db.NewQueue(s.group, true, s.writeResults).Identify("job_tasks", func(r *result) string { return fmt.Sprintf("%s/%d", r.task.JobID, r.task.Position) })
	s.runner = lanes.NewRunner[*lanes.Row](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: o.PerLane, Slots: o.Slots, MaxLanes: maxLanes, MaxUnwritten: maxUnwritten, Now: o.Now})
	return s
}

// Run works until ctx ends, and returns when its results are written.
func (s *Service) Run(ctx context.Context) {
	s.runner.Run(ctx)
	s.group.Stop()
}
