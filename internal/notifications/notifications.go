// Package notifications tells people about events that need them: budgets that
// run out, and tool calls that wait for an approval. Owners and admins get an
// email. If the workspace has an incoming webhook, such as Slack's, it gets a
// message, too.
//
// An event becomes notifications in the transaction that fans it out
// (Service.Notify), so each event is notified once. Emails go to the outbox of
// the package mail. Messages are rows in the table notifications, one lane per
// workspace: a webhook that fails is retried for a day and delays no other.
package notifications

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
	"turnpike/internal/keyring"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
)

// Queue is the name of the lane queue.
const Queue = "notifications"

const (
	// slots limits the concurrent messages of a node, and perLane those of a workspace.
	slots   = 16
	perLane = 2
	// maxLanes is how many lanes a node holds.
	maxLanes = 256
	// timeout limits one attempt.
	timeout = 10 * time.Second
	// maxAge is how long a message is retried. Later it would be outdated.
	maxAge = 24 * time.Hour
)

// retryDelays are the delays between attempts. The last one repeats.
var retryDelays = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour}

// Options configure the service.
type Options struct {
	DB        *db.DB
	Ring      *keyring.Ring
	Guard     *safehttp.Guard
	Outbox    *mail.Outbox
	Node      string
	PublicURL string // of the server, without a trailing slash
	Version   string
	// Pending reports whether an approval still waits for a decision. The run is empty for a call of an MCP client.
	Pending func(ctx context.Context, tx *db.Tx, runID, approvalID string) (bool, error)
	Now     func() time.Time
}

// Service sends notifications on this node.
type Service struct {
	Options
	client *http.Client
	runner *lanes.Runner[*lanes.Row]
}

// New creates the service. Run starts it.
func New(o Options) *Service {
	s := &Service{Options: o, client: o.Guard.Client(safehttp.ClientOptions{})}
	s.runner = lanes.NewRunner[*lanes.Row](o.DB, s, lanes.Options{Queue: Queue, Node: o.Node, PerLane: perLane, Slots: slots, MaxLanes: maxLanes, Now: o.Now,
		DrainTimeout: 2 * timeout})
	return s
}

// Describe implements prometheus.Collector.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) { s.runner.Collect(out) }

// Run sends messages until ctx ends.
func (s *Service) Run(ctx context.Context) { s.runner.Run(ctx) }
