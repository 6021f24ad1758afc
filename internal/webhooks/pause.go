package webhooks

import (
	"context"
	"fmt"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
)

const (
	// statusBatch is how many deliveries one transaction holds, resumes or discards.
	// The endpoint's lane does the rest.
	statusBatch = 1000
	// maxBatches is how many such batches a request may need, which takes some
	// tenths of a second.
	maxBatches = 20
)

// system is the actor of automatic changes.
var system = audit.Actor{Name: "system"}

// Pause holds the deliveries to an endpoint. Pausing a paused endpoint does nothing.
func (s *Service) Pause(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) error {
	if e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "A tunnel cannot be paused. Disconnect its client instead.")
	}
	if e.Status == Paused {
		return nil
	}
	if err := s.pause(ctx, tx, by, e, PausedManually); err != nil {
		return err
	}
	return s.publishState(ctx, tx, e, events.EndpointState{Status: string(Paused), Reason: PausedManually, Since: e.PausedAt.Unix()})
}

func (s *Service) pause(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, reason string) error {
	now := s.Now()
	e.Status, e.PausedReason, e.PausedAt = Paused, reason, &now
	if e.chore == choreDeliver {
		e.chore = "" // deliveries that are still held stay held
	}
	if _, err := tx.Exec(ctx, "UPDATE endpoints SET status = $2, paused_reason = $3, paused_at = $4, chore = $5 WHERE id = $1",
		e.ID, string(Paused), reason, now.UnixMicro(), db.OrNull(string(e.chore))); err != nil {
		return fmt.Errorf("pause endpoint: %w", err)
	}
	if err := s.stopReplays(ctx, tx, e.ID); err != nil {
		return err
	}
	if err := s.applyStatus(ctx, tx, e); err != nil {
		return err
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.log(ctx, tx, by, loggedAction{e, "webhook.paused", map[string]any{"reason": reason}})
}

// pauseFailed pauses an endpoint because the last retry failed, and emails the
// workspace's admins once.
func (s *Service) pauseFailed(ctx context.Context, tx *db.Tx, r *result) error {
	e, err := find(ctx, tx, r.endpoint.ID, tx.Lock("endpoints"))
	if err != nil {
		return fmt.Errorf("read endpoint: %w", err)
	}
	if e.Status != Active || e.DeletedAt != nil {
		return nil
	}
	if failed, err := r.stands(ctx, tx); err != nil || !failed {
		return err
	}
	if err := s.pause(ctx, tx, system, e, PausedFailed); err != nil {
		return err
	}
	if !r.job.typ.AboutDelivery() {
		state := events.EndpointState{Status: string(Paused), Reason: PausedFailed, Since: e.PausedAt.Unix(), LastError: &r.attempt.Error, DeliveryID: &r.job.id}
		if err := s.publishState(ctx, tx, e, state); err != nil {
			return err
		}
	}
	return s.Outbox.EnqueueAdmins(ctx, tx, e.WorkspaceID, fmt.Sprintf("paused %s %d", e.ID, e.PausedAt.UnixMicro()), func(workspace string) mail.Data {
		return mail.EndpointPaused{Workspace: workspace, WorkspaceID: e.WorkspaceID, Environment: string(e.Environment), EndpointID: e.ID, URL: e.URL,
			Description: e.Description, LastError: r.attempt.Error, Attempts: int(r.job.tries) + 1, PausedAt: *e.PausedAt}
	})
}

// Resume restarts the deliveries to an endpoint. Held deliveries start over with all
// their retries, or are discarded.
func (s *Service) Resume(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, discard bool) error {
	if e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "A tunnel cannot be resumed by a request. Connect it with turnpike listen.")
	}
	if e.Status == Active {
		return nil
	}
	todo := choreDeliver
	if discard {
		todo = choreDiscard
		if err := s.holdAll(ctx, tx, e); err != nil {
			return err
		}
	}
	if err := s.resume(ctx, tx, e, todo); err != nil {
		return err
	}
	return s.log(ctx, tx, by, loggedAction{e, "webhook.resumed", map[string]any{"held": string(todo)}})
}

// holdAll holds the deliveries that the lane hasn't held yet since the pause.
func (s *Service) holdAll(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	for range maxBatches {
		if more, err := s.hold(ctx, tx, e); err != nil || !more {
			return err
		}
	}
	return fault.New(fault.InvalidState, "Deliveries of %s are still being held. Retry in a moment.", e.ID)
}

func (s *Service) resume(ctx context.Context, tx *db.Tx, e *Endpoint, todo chore) error {
	if e.chore == choreDiscard {
		todo = choreDiscard // an earlier discard covers all held deliveries
	}
	e.Status, e.PausedReason, e.PausedAt, e.chore = Active, "", nil, todo
	if _, err := tx.Exec(ctx, `UPDATE endpoints SET status = $2, paused_reason = NULL, paused_at = NULL, warned_at = NULL, chore = $3 WHERE id = $1`,
		e.ID, string(Active), string(todo)); err != nil {
		return fmt.Errorf("resume endpoint: %w", err)
	}
	if _, err := tx.Exec(ctx, "UPDATE endpoint_stats SET failing_at = NULL WHERE endpoint_id = $1", e.ID); err != nil {
		return fmt.Errorf("resume endpoint: %w", err)
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.applyStatus(ctx, tx, e)
}

// applyStatus changes the endpoint's deliveries to match its status: a first batch
// immediately, so that the response is right for all but large backlogs, and the
// rest in the lane.
func (s *Service) applyStatus(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	if _, err := s.applyStatusBatch(ctx, tx, e); err != nil {
		return err
	}
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: s.Now()})
}

// applyStatusInLane is applyStatusBatch in its own transaction.
func (s *Service) applyStatusInLane(ctx context.Context, endpointID string) (more bool, err error) {
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		e, err := find(ctx, tx, endpointID, tx.Lock("endpoints"))
		if err != nil {
			return err
		}
		more, err = s.applyStatusBatch(ctx, tx, e)
		return err
	})
	return more, err
}

const (
	areDue  = "due_at IS NOT NULL"
	areHeld = "status = 'held'"
)

// applyStatusBatch changes up to a batch of deliveries. A discard comes before
// anything else is held, also if the endpoint was paused again: until it is done it
// covers all held deliveries.
func (s *Service) applyStatusBatch(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	now := s.Now().UnixMicro()
	discard := func(where, reason string) deliveryChange {
		return deliveryChange{discarding("$3", "$4"), where, []any{reason, now}}
	}
	switch {
	case e.DeletedAt != nil:
		if more, err = discard(areDue, DiscardedDeleted).apply(ctx, tx, e); err != nil || more {
			return more, err
		}
		return discard(areHeld, DiscardedDeleted).apply(ctx, tx, e)
	case e.chore == choreDiscard:
		more, err = discard(areHeld, DiscardedResume).apply(ctx, tx, e)
	case e.Status == Paused:
		return s.hold(ctx, tx, e)
	case e.chore == choreDeliver:
		// Due since the event, so that the oldest goes first. Links that are valid
		// from that time would have expired.
		more, err = deliveryChange{"status = 'pending', tries = 0, due_at = event_at, links_at = $3", areHeld, []any{now}}.apply(ctx, tx, e)
	default:
		return false, nil
	}
	if err != nil || more {
		return more, err
	}
	if _, err = tx.Exec(ctx, "UPDATE endpoints SET chore = NULL WHERE id = $1", e.ID); err != nil {
		return false, err
	}
	e.chore = ""
	return s.applyStatusBatch(ctx, tx, e)
}

func (s *Service) hold(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	return deliveryChange{set: "status = " + unlessSucceeded("status", "'held'") + ", due_at = NULL", where: areDue}.apply(ctx, tx, e)
}

// unlessSucceeded returns the value of a column that a delivery keeps if it succeeded. Such a
// delivery is due only while it is replayed.
func unlessSucceeded(column, value string) string {
	return "CASE WHEN status = 'succeeded' THEN " + column + " ELSE " + value + " END"
}

// discarding returns the assignments that discard a delivery, or end the replay of one that
// succeeded.
func discarding(reason, now string) string {
	return "status = " + unlessSucceeded("status", "'discarded'") + ", reason = " + unlessSucceeded("reason", reason) +
		", due_at = NULL, finished_at = " + unlessSucceeded("finished_at", now)
}

// deliveryChange changes deliveries that match a condition. Its args begin at $3.
type deliveryChange struct {
	set, where string
	args       []any
}

// apply changes up to a batch of the endpoint's deliveries. They are locked, so
// that PostgreSQL re-reads those that an attempt has just changed, and selected in a
// common table expression, because PostgreSQL may run a subquery once per row: it would
// then lock another batch each time.
func (c deliveryChange) apply(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	n, err := tx.Exec(ctx, "WITH batch AS MATERIALIZED (SELECT id FROM deliveries WHERE endpoint_id = $1 AND "+c.where+" ORDER BY id LIMIT $2"+tx.Lock("deliveries")+
		") UPDATE deliveries SET "+c.set+" WHERE id IN (SELECT id FROM batch)",
		append([]any{e.ID, int64(statusBatch)}, c.args...)...)
	return n == statusBatch, db.Wrap(err, "change deliveries")
}

// HeldCount counts the held deliveries of an endpoint, up to a bound.
func (s *Service) HeldCount(ctx context.Context, q db.Querier, endpointID string, bound int) (int, error) {
	return db.Value[int](q.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE endpoint_id = $1 AND status = 'held' LIMIT $2) AS held",
		endpointID, int64(bound)))
}
