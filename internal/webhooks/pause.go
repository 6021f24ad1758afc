package webhooks

import (
	"context"
	"fmt"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
)

const (
	// tidyBatch is how many deliveries one transaction holds, frees or discards.
	// What is more is left to the endpoint's lane.
	tidyBatch = 1000
	// maxHurry is how many such batches a caller may need at once, which takes
	// some tenths of a second.
	maxHurry = 20
)

// system is who acts when nobody asked.
var system = audit.Actor{Name: "system"}

// Pause stops the deliveries to an endpoint and holds them. A second time is
// no error.
func (s *Service) Pause(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint) error {
	if e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "a tunnel is paused by disconnecting it")
	}
	if e.Status == Paused {
		return nil
	}
	return s.pause(ctx, tx, by, e, PausedManually)
}

func (s *Service) pause(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, reason string) error {
	now := s.now()
	e.Status, e.PausedReason, e.PausedAt = Paused, reason, &now
	if e.chore == choreDeliver {
		e.chore = "" // what it has not freed yet stays held
	}
	if _, err := tx.Exec(ctx, "UPDATE endpoints SET status = $2, paused_reason = $3, paused_at = $4, chore = $5 WHERE id = $1",
		e.ID, string(Paused), reason, now.UnixMicro(), db.OrNull(string(e.chore))); err != nil {
		return fmt.Errorf("pause endpoint: %w", err)
	}
	if err := s.stopReplays(ctx, tx, e.ID); err != nil {
		return err
	}
	if err := s.tidy(ctx, tx, e); err != nil {
		return err
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.log(ctx, tx, by, e, "webhook.paused", map[string]any{"reason": reason})
}

// pauseFailed pauses an endpoint because the last retry failed, and tells the
// people who can do something about it, once.
func (s *Service) pauseFailed(ctx context.Context, tx *db.Tx, r *result) error {
	e, err := find(ctx, tx, r.endpoint.ID, tx.Lock("endpoints"))
	if err != nil {
		return fmt.Errorf("read endpoint: %w", err)
	}
	if e.Status != Active || e.DeletedAt != nil {
		return nil
	}
	// Another node may have been luckier with the same turn.
	d, err := scanDelivery(tx.QueryRow(ctx, "SELECT "+deliveryColumns+" FROM deliveries WHERE id = $1", r.job.id))
	if err != nil {
		return fmt.Errorf("read delivery: %w", err)
	}
	if d.State != Failed {
		return nil
	}
	if err := s.pause(ctx, tx, system, e, PausedFailed); err != nil {
		return err
	}
	return s.outbox.EnqueueAdmins(ctx, tx, e.WorkspaceID, fmt.Sprintf("paused %s %d", e.ID, e.PausedAt.UnixMicro()), func(workspace string) mail.Data {
		return mail.EndpointPaused{Workspace: workspace, WorkspaceID: e.WorkspaceID, Environment: string(e.Environment), EndpointID: e.ID, URL: e.URL,
			Description: e.Description, LastError: r.attempt.Error, Attempts: int(r.job.tries) + 1, PausedAt: *e.PausedAt}
	})
}

// Resume starts the deliveries to an endpoint again. What was held starts with
// a fresh schedule, or is discarded.
func (s *Service) Resume(ctx context.Context, tx *db.Tx, by audit.Actor, e *Endpoint, discard bool) error {
	if e.Kind == Tunnel {
		return fault.New(fault.InvalidState, "a tunnel is resumed by connecting it: turnpike listen")
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
	return s.log(ctx, tx, by, e, "webhook.resumed", map[string]any{"held": string(todo)})
}

// holdAll does at once what the lane has not done yet since the pause.
func (s *Service) holdAll(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	for range maxHurry {
		if more, err := s.hold(ctx, tx, e); err != nil || !more {
			return err
		}
	}
	return fault.New(fault.InvalidState, "the deliveries of %s are still being held; try again in a moment", e.ID)
}

func (s *Service) resume(ctx context.Context, tx *db.Tx, e *Endpoint, todo chore) error {
	if e.chore == choreDiscard {
		todo = choreDiscard // an earlier order, which all that is held falls under
	}
	e.Status, e.PausedReason, e.PausedAt, e.chore = Active, "", nil, todo
	if _, err := tx.Exec(ctx, `UPDATE endpoints SET status = $2, paused_reason = NULL, paused_at = NULL, warned_at = NULL, chore = $3 WHERE id = $1`,
		e.ID, string(Active), string(todo)); err != nil {
		return fmt.Errorf("resume endpoint: %w", err)
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.tidy(ctx, tx, e)
}

// tidy brings the endpoint's deliveries in line with its state: a first batch
// at once, so that a caller sees what it did, the rest in the lane.
func (s *Service) tidy(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	if _, err := s.tidySome(ctx, tx, e); err != nil {
		return err
	}
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: s.now()})
}

// tidyNow is tidySome in a transaction of its own, for the lane.
func (s *Service) tidyNow(ctx context.Context, endpointID string) (more bool, err error) {
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		e, err := find(ctx, tx, endpointID, tx.Lock("endpoints"))
		if err != nil {
			return err
		}
		more, err = s.tidySome(ctx, tx, e)
		return err
	})
	return more, err
}

const (
	areDue  = "due_at IS NOT NULL"
	areHeld = "status = 'held'"
	// $3 is the reason, and $4 now.
	discarding = "status = 'discarded', reason = $3, due_at = NULL, finished_at = $4"
)

// tidySome moves up to a batch of deliveries to where they belong. An order to
// discard is done before anything else is held, also at an endpoint that was
// paused again: as long as it stands, it is about all that is held.
func (s *Service) tidySome(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	now := s.now().UnixMicro()
	switch {
	case e.DeletedAt != nil:
		if more, err = s.move(ctx, tx, e, discarding, areDue, DiscardedDeleted, now); err != nil || more {
			return more, err
		}
		return s.move(ctx, tx, e, discarding, areHeld, DiscardedDeleted, now)
	case e.chore == choreDiscard:
		more, err = s.move(ctx, tx, e, discarding, areHeld, DiscardedResume, now)
	case e.Status == Paused:
		return s.hold(ctx, tx, e)
	case e.chore == choreDeliver:
		// Due since they happened, so that the oldest goes first. Links that
		// were to be minted back then would have expired by now.
		more, err = s.move(ctx, tx, e, "status = 'pending', tries = 0, due_at = event_at, links_at = $3", areHeld, now)
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
	return s.tidySome(ctx, tx, e)
}

func (s *Service) hold(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	return s.move(ctx, tx, e, "status = 'held', due_at = NULL", areDue)
}

// move changes up to a batch of the endpoint's deliveries. They are locked, so
// that PostgreSQL looks again at what an attempt that was recorded meanwhile
// has changed.
func (s *Service) move(ctx context.Context, tx *db.Tx, e *Endpoint, set, which string, args ...any) (more bool, err error) {
	n, err := tx.Exec(ctx, "UPDATE deliveries SET "+set+" WHERE id IN (SELECT id FROM deliveries WHERE endpoint_id = $1 AND "+which+" ORDER BY id LIMIT $2"+tx.Lock("deliveries")+")",
		append([]any{e.ID, int64(tidyBatch)}, args...)...)
	if err != nil {
		return false, fmt.Errorf("tidy deliveries: %w", err)
	}
	return n == tidyBatch, nil
}

// HeldCount counts what waits for an endpoint, up to the bound.
func (s *Service) HeldCount(ctx context.Context, q db.Querier, endpointID string, bound int) (n int, err error) {
	err = q.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE endpoint_id = $1 AND status = 'held' LIMIT $2) AS held",
		endpointID, int64(bound)).Scan(&n)
	return n, err
}
