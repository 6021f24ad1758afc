// Package logsinks sends settled entries of the request log to other systems: Kafka, and
// OpenTelemetry collectors.
//
// A sink follows the log by its stored position, which is a request ID:
//
//	requests, by ID:   … sent or pending │ next batch │ not yet below every node's floor …
//	                                 position       lowest floor
//
// A batch is sent, acknowledged and then covered by the position, in this order, so a crash repeats
// entries and loses none. Entries that aren't settled yet become pending and hold up no others. So do
// entries that were inserted late or have changed since: see audit.Log.RaiseFloor. Of all nodes, one
// works a sink at a time.
//
//	logsinks.go  the loop, and what it stores
//	work.go      reads and sends
//	kafka.go     sends to Kafka
//	otlp.go      sends to a collector; otlp_client.go reads its responses
package logsinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

const (
	// takeInterval is how often a node tries to get the work.
	takeInterval = 5 * time.Second
	// After a failure, all nodes wait: twice as long after each, up to a minute.
	firstBackoff = 5 * time.Second
	maxBackoff   = time.Minute
	// forgetAfter is how long a sink that no node has in its settings keeps its position.
	forgetAfter = 7 * 24 * time.Hour
)

// Sender sends entries to another system.
type Sender interface {
	// Send returns nil when the system has stored all entries, a RejectedError when it has stored those that it
	// accepts, and a RefusedError when it has stored none and may accept some of them alone. After other errors, the
	// entries are sent again.
	Send(ctx context.Context, list []*audit.Entry) error
	Close()
}

// RejectedError means that the system has stored all entries but some that it will never accept. If there are none, the
// message is a warning.
type RejectedError struct {
	Entries int64
	Message string
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%d entries rejected: %s", e.Entries, e.Message)
}

// RefusedError means that the system will never accept these entries together: a batch is too large, or one of its
// entries is invalid.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Sink sends the log to one system.
type Sink struct {
	Name string
	DB   *db.DB
	Node *nodes.Node
	// Open connects to the system.
	Open func(ctx context.Context) (Sender, error)
	Now  func() time.Time

	rejected atomic.Int64 // entries of this node
}

func (s *Sink) now() time.Time { return s.DB.At(s.Now()) }

// Run sends entries until ctx ends.
func (s *Sink) Run(ctx context.Context) {
	tick := time.NewTicker(takeInterval)
	defer tick.Stop()
	for {
		if err := s.runOnce(ctx); err != nil && ctx.Err() == nil {
			slog.Error("failed to send the request log; entries stay in the database; retrying", "sink", s.Name, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// List are the sinks of a server. It reports their state to Prometheus.
type List []*Sink

// Run runs all sinks until ctx ends. A sink that fails delays no other.
func (l List) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range l {
		all.Go(func() { s.Run(ctx) })
	}
	all.Wait()
}

// runOnce works until ctx ends or something fails. It returns immediately if another node has the work.
func (s *Sink) runOnce(ctx context.Context) error {
	claim := &nodes.Claim{DB: s.DB, Row: "log_sink_" + s.Name + "_claim", Node: s.Node.ID, Now: s.Now}
	if taken, err := claim.Take(ctx); err != nil || !taken {
		return err
	}
	w := &worker{Sink: s, claim: claim}
	err := claim.Hold(ctx, w.run)
	ending := context.WithoutCancel(ctx)
	if ctx.Err() != nil || errors.Is(err, nodes.ErrClaimLost) {
		return claim.End(ending, 0)
	}
	failures, failed := s.setFailure(ending, err)
	return errors.Join(err, failed, claim.End(ending, backoff(failures)))
}

// backoff returns the wait after a number of failures.
func backoff(failures int64) time.Duration {
	return min(firstBackoff<<min(max(failures-1, 0), 10), maxBackoff)
}

// register stores the sink and returns its position, which is empty before the start.
func (s *Sink) register(ctx context.Context) (position string, err error) {
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		position, err = db.Value[string](tx.QueryRow(ctx, `INSERT INTO log_sinks (name, position, sent, seen_at, failures) VALUES ($1, '', 0, $2, 0)
			ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at RETURNING position`, s.Name, s.now().UnixMicro()))
		return err
	})
	return position, db.Wrap(err, "register a log sink")
}

// setFailure stores a failure and returns how many there were since the last success.
func (s *Sink) setFailure(ctx context.Context, cause error) (failures int64, err error) {
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		failures, err = db.Value[int64](tx.QueryRow(ctx, "UPDATE log_sinks SET failures = failures + 1, failed_at = $2, failure = $3 WHERE name = $1 RETURNING failures",
			s.Name, s.now().UnixMicro(), db.Storable(cause.Error())))
		return db.IgnoreNotFound(err)
	})
	return failures, db.Wrap(err, "store the failure of a log sink")
}

// Purge forgets sinks that no node has in its settings, and their pending entries. It also deletes pending
// entries that the log no longer has.
func Purge(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	if _, err := tx.Exec(ctx, "DELETE FROM log_sinks WHERE seen_at < $1", now.Add(-forgetAfter).UnixMicro()); err != nil {
		return 0, err
	}
	return tx.Exec(ctx, `DELETE FROM log_sink_pending WHERE (sink, request_id) IN (SELECT sink, request_id FROM log_sink_pending
		WHERE sink NOT IN (SELECT name FROM log_sinks) OR request_id < (SELECT min(id) FROM requests) LIMIT $1)`, limit)
}
