package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/lanes"
)

type job struct {
	id       string
	eventID  string
	attempts int64
	tries    int64
	due      int64
	sample   bool
	again    bool // it succeeded before, and is replayed
	typ      events.Type
	linksAt  int64  // from when the validity of links in its body counts
	base     string // of these links
	body     string // empty if it is large; then it is read when it is sent
}

// Key returns the delivery's position in its lane.
func (j *job) Key() lanes.Key { return lanes.Key{Due: j.due, ID: j.id} }

var scanJob = db.Scanner(func(j *job) []any {
	return []any{&j.id, &j.eventID, &j.attempts, &j.tries, &j.due, &j.sample, &j.again, &j.typ, &j.linksAt, &j.base, &j.body}
})

// inlineBody is the maximum size of bodies that are read with their deliveries.
// Lanes buffer deliveries, so it limits memory.
const inlineBody = 4 << 10

// Fetch returns the due deliveries of an endpoint. It first completes what a pause,
// resume or deletion left to do. If nothing is due, it continues a replay, so that
// live events come first.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*job], error) {
	var none lanes.Batch[*job]
	e, err := find(ctx, s.DB, lane, "")
	if errors.Is(err, db.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read endpoint: %w", err)
	}
	if e.Status != Active || e.DeletedAt != nil || e.chore != "" {
		began := time.Now()
		more, err := s.applyStatusInLane(ctx, e.ID)
		if more {
			yield(ctx, time.Since(began))
		}
		if err != nil || more {
			return lanes.Batch[*job]{Rescan: more}, err
		}
		if e.Status != Active || e.DeletedAt != nil {
			return none, nil
		}
	}
	s.setPace(e)
	now := s.Now()
	jobs, err := s.dueAt(ctx, e.ID, now, after, n)
	if err != nil || len(jobs) > 0 {
		return lanes.Batch[*job]{Items: jobs}, err
	}
	fed, err := s.feedReplay(ctx, e, n)
	if err != nil || fed {
		return lanes.Batch[*job]{Rescan: fed}, err
	}
	none.Next, err = db.Value[time.Time](s.DB.QueryRow(ctx, "SELECT min(due_at) FROM deliveries WHERE endpoint_id = $1 AND due_at > $2", e.ID, now.UnixMicro()))
	return none, db.Wrap(err, "read next delivery")
}

func (s *Service) dueAt(ctx context.Context, endpointID string, now time.Time, after lanes.Key, n int) ([]*job, error) {
	// The limit is part of the statement, and has few values: SQLite compiles a
	// statement again whenever the parameter of a LIMIT is bound.
	query := fmt.Sprintf(`SELECT d.id, d.event_id, d.attempts, d.tries, d.due_at, e.sample, d.status = 'succeeded', d.type, COALESCE(d.links_at, d.created_at), d.links_base, CASE WHEN length(e.body) <= %d THEN e.body ELSE '' END
		FROM deliveries d JOIN events e ON e.id = d.event_id
		WHERE d.endpoint_id = $1 AND d.due_at <= $2 AND (d.due_at, d.id) > ($3, $4) ORDER BY d.due_at, d.id LIMIT %d`, inlineBody, n)
	jobs, err := db.List(ctx, s.DB, scanJob, query, endpointID, now.UnixMicro(), after.Due, after.ID)
	return jobs, db.Wrap(err, "read due deliveries")
}

// Work makes one attempt and queues its result.
func (s *Service) Work(ctx context.Context, lane string, j *job) lanes.Result {
	t, err := s.target(ctx, lane)
	if err != nil {
		slog.Warn("failed to read an endpoint; retrying", "endpoint", lane, "delivery", j.id, "err", err)
		return lanes.Retry(ctx)
	}
	if t == nil || t.Status != Active || t.DeletedAt != nil || t.chore == choreDiscard && j.due < t.discardBefore {
		return lanes.Result{Healthy: true, Outcome: db.Written} // the next scan holds or discards it
	}
	r, err := s.attempt(ctx, t, j)
	if err != nil {
		slog.Warn("failed to attempt a delivery; retrying", "endpoint", lane, "delivery", j.id, "err", err)
		return lanes.Retry(ctx)
	}
	// No attempt was made if the tunnel is disconnected. If this side aborted it, it isn't the
	// endpoint's failure.
	if r == nil || r.attempt.Status == 0 && ctx.Err() != nil {
		return lanes.Result{Outcome: db.Written}
	}
	s.counts.observe(r)
	// The result is queued as long as the store is unavailable: the attempt must
	// be recorded before the delivery is due again.
	return lanes.Result{Healthy: !r.slow, Done: r.state == Succeeded, Due: r.due, Outcome: s.results.Add(r)}
}

// setPace applies the endpoint's rate limit to its lane, so that waiting deliveries take no slots of
// other endpoints.
func (s *Service) setPace(e *Endpoint) {
	interval := time.Duration(0)
	if e.RequestsPerSecond != nil {
		interval = time.Second / time.Duration(*e.RequestsPerSecond)
	}
	s.runner.SetInterval(e.ID, interval)
}

// target returns the endpoint, at most targetTTL old.
func (s *Service) target(ctx context.Context, id string) (*target, error) {
	if t := s.targets.get(id); t != nil {
		return t, nil
	}
	e, err := find(ctx, s.DB, id, "")
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.setPace(e)
	var origin *Endpoint
	if e.Mirrors != "" {
		if origin, err = find(ctx, s.DB, e.Mirrors, ""); err != nil {
			return nil, err
		}
	}
	return s.targets.put(e, origin)
}
