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

// job is a delivery that is due.
type job struct {
	id       string
	eventID  string
	attempts int64
	tries    int64
	due      int64
	sample   bool
	typ      events.Type
	linksAt  int64  // from when the links in its body count
	body     string // empty for a large one, which is read when it is sent
}

// Key is the delivery's place in its lane.
func (j *job) Key() lanes.Key { return lanes.Key{Due: j.due, ID: j.id} }

// inlineBody is up to which size bodies are read with their deliveries. Lanes
// buffer some of those, so this bounds memory.
const inlineBody = 4 << 10

// Fetch returns what is due at an endpoint. Before that it does what is left
// to do to the endpoint's deliveries, and with nothing due it goes on with a
// replay: live events come first.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*job], error) {
	var none lanes.Batch[*job]
	e, err := find(ctx, s.db, lane, "")
	if errors.Is(err, db.ErrNotFound) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read endpoint: %w", err)
	}
	if e.Status != Active || e.DeletedAt != nil || e.chore != "" {
		more, err := s.tidyNow(ctx, e.ID)
		if err != nil || more {
			return lanes.Batch[*job]{Rescan: more}, err
		}
		if e.Status != Active || e.DeletedAt != nil {
			return none, nil
		}
	}
	now := s.now()
	jobs, err := s.dueAt(ctx, e.ID, now, after, n)
	if err != nil || len(jobs) > 0 {
		return lanes.Batch[*job]{Items: jobs}, err
	}
	fed, err := s.feedReplay(ctx, e, n)
	if err != nil || fed {
		return lanes.Batch[*job]{Rescan: fed}, err
	}
	var next *int64
	err = s.db.QueryRow(ctx, "SELECT min(due_at) FROM deliveries WHERE endpoint_id = $1 AND due_at > $2", e.ID, now.UnixMicro()).Scan(&next)
	if err != nil {
		return none, fmt.Errorf("read next delivery: %w", err)
	}
	if at := db.Time(next); at != nil {
		none.Next = *at
	}
	return none, nil
}

func (s *Service) dueAt(ctx context.Context, endpointID string, now time.Time, after lanes.Key, n int) ([]*job, error) {
	// The limits are in the text, of which there are a few: SQLite compiles a
	// statement anew whenever the parameter of a LIMIT is bound.
	rows, err := s.db.Query(ctx, fmt.Sprintf(`SELECT d.id, d.event_id, d.attempts, d.tries, d.due_at, e.sample, d.type, COALESCE(d.links_at, d.created_at), CASE WHEN length(e.body) <= %d THEN e.body ELSE '' END
		FROM deliveries d JOIN events e ON e.id = d.event_id
		WHERE d.endpoint_id = $1 AND d.due_at <= $2 AND (d.due_at, d.id) > ($3, $4) ORDER BY d.due_at, d.id LIMIT %d`, inlineBody, n),
		endpointID, now.UnixMicro(), after.Due, after.ID)
	jobs, err := db.All(rows, err, func(r db.Row) (*job, error) {
		var j job
		var typ string
		err := r.Scan(&j.id, &j.eventID, &j.attempts, &j.tries, &j.due, &j.sample, &typ, &j.linksAt, &j.body)
		j.typ = events.Type(typ)
		return &j, err
	})
	if err != nil {
		return nil, fmt.Errorf("read due deliveries: %w", err)
	}
	return jobs, nil
}

// Work makes one attempt and hands over what came of it.
func (s *Service) Work(ctx context.Context, lane string, j *job) lanes.Result {
	t, err := s.target(ctx, lane)
	if err != nil {
		slog.Warn("cannot read an endpoint; its delivery is tried again", "endpoint", lane, "error", err)
		lanes.Backoff(ctx)
		return lanes.Result{Outcome: db.Written}
	}
	if t == nil || t.Status != Active || t.DeletedAt != nil {
		return lanes.Result{Healthy: true, Outcome: db.Written} // the next look into the lane holds or discards it
	}
	r, err := s.attempt(ctx, t, j)
	if err != nil {
		slog.Warn("cannot attempt a delivery; it is tried again", "delivery", j.id, "error", err)
		lanes.Backoff(ctx)
		return lanes.Result{Outcome: db.Written}
	}
	if r == nil {
		return lanes.Result{Outcome: db.Written} // the tunnel is gone: nothing was tried
	}
	if r.attempt.Status == 0 && ctx.Err() != nil {
		return lanes.Result{Outcome: db.Written} // it was cut off here, and the endpoint is not to blame
	}
	s.counts.observe(r)
	// It waits for as long as the store is away: an attempt that was made
	// must be known before the delivery is looked at again.
	return lanes.Result{Healthy: !r.slow, Done: r.state == Succeeded, Due: r.due, Outcome: s.results.Add(r)}
}

// target reads the endpoint as it is now, or was a moment ago.
func (s *Service) target(ctx context.Context, id string) (*target, error) {
	if t := s.targets.get(id); t != nil {
		return t, nil
	}
	e, err := find(ctx, s.db, id, "")
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var origin *Endpoint
	if e.Mirrors != "" {
		if origin, err = find(ctx, s.db, e.Mirrors, ""); err != nil {
			return nil, err
		}
	}
	return s.targets.put(e, origin)
}
