package webhooks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
)

// statusBatch is how many deliveries one transaction holds, resumes or discards: few enough
// that a request in between waits only some milliseconds. The lane pauses after each batch.
const statusBatch = 64

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
	if err := s.applyFirstBatch(ctx, tx, e); err != nil {
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
	if err := s.enqueueChores(ctx, tx, e); err != nil {
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
	}
	if err := s.resume(ctx, tx, e, todo); err != nil {
		return err
	}
	if err := s.applyFirstBatch(ctx, tx, e); err != nil {
		return err
	}
	return s.log(ctx, tx, by, loggedAction{e, "webhook.resumed", map[string]any{"held": string(todo)}})
}

func (s *Service) resume(ctx context.Context, tx *db.Tx, e *Endpoint, todo chore) error {
	if todo == choreDiscard {
		e.discardBefore = s.Now().UnixMicro() + 1 // later than deliveries that are due now
	} else if e.chore == choreDiscard {
		todo = choreDiscard // an earlier discard covers all deliveries from before it
	}
	e.Status, e.PausedReason, e.PausedAt, e.chore = Active, "", nil, todo
	if _, err := tx.Exec(ctx, `UPDATE endpoints SET status = $2, paused_reason = NULL, paused_at = NULL, warned_at = NULL, chore = $3, discard_before = $4 WHERE id = $1`,
		e.ID, string(Active), string(todo), db.NullInt(e.discardBefore)); err != nil {
		return fmt.Errorf("resume endpoint: %w", err)
	}
	if _, err := tx.Exec(ctx, "UPDATE endpoint_stats SET failing_at = NULL WHERE endpoint_id = $1", e.ID); err != nil {
		return fmt.Errorf("resume endpoint: %w", err)
	}
	tx.Signal(signalEndpoint, e.ID)
	return s.enqueueChores(ctx, tx, e)
}

// enqueueChores lets the endpoint's lane change its deliveries to match its status.
func (s *Service) enqueueChores(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{e.ID: s.Now()})
}

// applyFirstBatch changes a first batch of the endpoint's deliveries in the transaction of a
// request, so that its response is right for all but large backlogs.
func (s *Service) applyFirstBatch(ctx context.Context, tx *db.Tx, e *Endpoint) error {
	_, err := s.applyStatusBatch(ctx, tx, e)
	return err
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

// maxYield limits how long a lane pauses after a batch, because it occupies one of the node's scans.
const maxYield = 50 * time.Millisecond

// yield leaves the database to requests for as long as a batch took.
func yield(ctx context.Context, took time.Duration) {
	select {
	case <-time.After(min(took, maxYield)):
	case <-ctx.Done():
	}
}

// applyStatusBatch changes up to a batch of deliveries. A discard comes before
// anything else is held, also if the endpoint was paused again: until it is done it
// covers all held deliveries.
func (s *Service) applyStatusBatch(ctx context.Context, tx *db.Tx, e *Endpoint) (more bool, err error) {
	id, now := []any{e.ID}, s.Now().UnixMicro()
	deleted, resumed := []any{DiscardedDeleted, now}, []any{DiscardedResume, now}
	var list []change
	switch {
	case e.DeletedAt != nil:
		list = []change{{areDue, id, discardDue, deleted}, {areHeld, id, discardHeld, deleted}}
	case e.chore == choreDiscard:
		// A pause may not have held all of them yet. New deliveries aren't due before
		// discardBefore, and have no attempt, so that they aren't retrying.
		list = []change{{areHeld, id, discardHeld, resumed}, {areDueBefore, []any{e.ID, e.discardBefore}, discardDue, resumed}, {areRetrying, id, discardDue, resumed}}
	case e.Status == Paused:
		list = []change{{areDue, id, holdDeliveries, nil}}
	case e.chore == choreDeliver:
		// Due since the event, so that the oldest goes first. Links that are valid
		// from that time would have expired.
		list = []change{{areHeld, id, resumeDeliveries, []any{now, s.LinkBase}}}
	}
	left := statusBatch
	for _, c := range list {
		n, err := c.apply(ctx, tx, left)
		if left -= n; err != nil || left <= 0 {
			return true, err
		}
	}
	if e.chore == "" || e.DeletedAt != nil {
		return false, nil
	}
	if _, err = tx.Exec(ctx, "UPDATE endpoints SET chore = NULL WHERE id = $1", e.ID); err != nil {
		return false, err
	}
	e.chore = ""
	return s.applyStatusBatch(ctx, tx, e)
}

// Sets of deliveries to change. Each is read in the order of one index, so that a batch reads
// only what it changes.
const (
	areDue       = "deliveries WHERE endpoint_id = $1 AND due_at IS NOT NULL ORDER BY due_at, id"
	areDueBefore = "deliveries WHERE endpoint_id = $1 AND due_at < $2 ORDER BY due_at, id"
	areHeld      = "deliveries WHERE endpoint_id = $1 AND status = 'held' ORDER BY id"
	areRetrying  = "deliveries WHERE endpoint_id = $1 AND status = 'retrying' ORDER BY id"
)

// change is a change of a set of deliveries. Holding, resuming, discarding, expiring and
// replaying are changes.
type change struct {
	from   string
	args   []any
	write  *db.Bulk // its first column is the ID
	values []any    // of the other columns
}

// apply changes up to n deliveries and returns how many it selected. It selects them without a
// lock and then locks them in the order of their IDs, as all transactions do, so that they don't
// deadlock. The statement that writes checks the state again.
func (c change) apply(ctx context.Context, tx *db.Tx, n int) (selected int, err error) {
	list, err := db.List(ctx, tx, db.Value[string], fmt.Sprintf("SELECT id FROM %s LIMIT %d", c.from, n), c.args...)
	if err != nil {
		return 0, fmt.Errorf("select deliveries: %w", err)
	}
	slices.Sort(list)
	rows := make([][]any, len(list))
	for i, id := range list {
		rows[i] = append([]any{id}, c.values...)
	}
	_, err = c.write.Write(ctx, tx, rows)
	return len(list), db.Wrap(err, "change deliveries")
}

// unlessSucceeded returns the value of a column that a delivery keeps if it succeeded. Such a
// delivery is due only while it is replayed.
func unlessSucceeded(column, value string) string {
	return column + " = CASE WHEN deliveries.status = 'succeeded' THEN deliveries." + column + " ELSE " + value + " END"
}

var (
	holdDeliveries = db.NewBulkUpdate("deliveries", unlessSucceeded("status", "'held'")+", due_at = NULL",
		"deliveries.id = v.id AND deliveries.due_at IS NOT NULL", "id text")
	resumeDeliveries = db.NewBulkUpdate("deliveries", "status = 'pending', tries = 0, due_at = deliveries.event_at, links_at = v.now, "+
		"links_base = CASE WHEN deliveries.links_base IS NULL THEN NULL ELSE v.base END",
		"deliveries.id = v.id AND deliveries.status = 'held'", "id text", "now bigint", "base text")
	discardDue        = newDiscard("deliveries.due_at IS NOT NULL")
	discardHeld       = newDiscard("deliveries.status = 'held'")
	discardUnfinished = newDiscard(isUnfinished)
)

// newDiscard returns the statement that discards deliveries if they are still in a state. It
// also ends the replay of a delivery that succeeded.
func newDiscard(state string) *db.Bulk {
	return db.NewBulkUpdate("deliveries", unlessSucceeded("status", "'discarded'")+", "+unlessSucceeded("reason", "v.why")+
		", due_at = NULL, "+unlessSucceeded("finished_at", "v.now"),
		"deliveries.id = v.id AND "+state, "id text", "why text", "now bigint")
}

// HeldCount counts the held deliveries of an endpoint, up to a bound.
func (s *Service) HeldCount(ctx context.Context, q db.Querier, endpointID string, bound int) (int, error) {
	return db.Value[int](q.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE endpoint_id = $1 AND status = 'held' LIMIT $2) AS held",
		endpointID, int64(bound)))
}
