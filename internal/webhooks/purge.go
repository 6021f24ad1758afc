package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/mail"
	"turnpike/internal/retention"
)

const (
	// keepRows is how long events, deliveries and attempts are kept: a week longer
	// than they can be replayed.
	keepRows = 37 * 24 * time.Hour
	// heldLife is how long deliveries are held. Admins are warned warnBefore that.
	heldLife   = 30 * 24 * time.Hour
	warnBefore = 7 * 24 * time.Hour
	// keepExpired is how long expired deliveries stay visible.
	keepExpired = keepRows - heldLife
)

const (
	isUnfinished = "(deliveries.due_at IS NOT NULL OR deliveries.status = 'held')"
	// isKept matches deliveries that are kept longer than others of their age. $2 is
	// the time since which expired ones stay visible.
	isKept = "(" + isUnfinished + " OR COALESCE(reason, '') = '" + DiscardedExpired + "' AND finished_at > $2)"
)

// RowsBefore is the time before which rows are deleted.
func (s *Service) RowsBefore() time.Time { return s.Now().Add(-keepRows) }

// oldRows returns the arguments of a query for old deliveries: the ID before which
// they are old, and the time for isKept.
func (s *Service) oldRows() []any {
	return []any{ids.Floor(ids.Delivery, s.RowsBefore()), s.Now().Add(-keepExpired).UnixMicro()}
}

// DropBefore is the time before which whole partitions can be dropped: none of their
// deliveries is kept.
func (s *Service) DropBefore(ctx context.Context) (time.Time, error) {
	first, err := db.Value[string](s.DB.QueryRow(ctx, "SELECT id FROM deliveries WHERE id < $1 AND "+isKept+" ORDER BY id LIMIT 1", s.oldRows()...))
	if errors.Is(err, db.ErrNotFound) {
		return s.RowsBefore(), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("find old deliveries: %w", err)
	}
	return ids.Time(first), nil
}

// Purges returns the purges of this package, for retention.
func (s *Service) Purges() []retention.Purge {
	return []retention.Purge{
		{Name: "held deliveries", Run: s.expireHeld},
		{Name: "late deliveries", Run: s.expireLate},
		{Name: "warnings of held deliveries", Run: s.warnHeld},
		{Name: "tunnels", Run: s.removeTunnels},
		{Name: "attempts", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return tx.Exec(ctx, `DELETE FROM attempts WHERE (delivery_id, id) IN
				(SELECT delivery_id, id FROM attempts WHERE delivery_id < $1 ORDER BY delivery_id, id LIMIT $2)`, ids.Floor(ids.Delivery, s.RowsBefore()), n)
		}},
		{Name: "deliveries", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return tx.Exec(ctx, "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE id < $1 AND NOT "+isKept+" ORDER BY id LIMIT $3)",
				append(s.oldRows(), n)...)
		}},
		{Name: "events", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return events.Purge(ctx, tx, s.RowsBefore(), n)
		}},
		{Name: "replays", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return tx.Exec(ctx, "DELETE FROM replays WHERE id IN (SELECT id FROM replays WHERE id < $1 AND status <> 'running' ORDER BY id LIMIT $2)",
				ids.Floor(ids.Replay, s.RowsBefore()), n)
		}},
		{Name: "deleted endpoints", Run: s.purgeDeleted},
	}
}

// longHeld returns the endpoints whose oldest held delivery is older than before, with
// that delivery's event time.
func (s *Service) longHeld(ctx context.Context, q db.Querier, before time.Time, more string) (map[*Endpoint]time.Time, error) {
	paused, err := db.List(ctx, q, scanEndpoint, "SELECT "+endpointColumns+" FROM endpoints WHERE status = 'paused' AND deleted_at IS NULL"+more+" ORDER BY id")
	if err != nil {
		return nil, err
	}
	out := map[*Endpoint]time.Time{}
	for _, e := range paused {
		oldest, err := db.Value[time.Time](q.QueryRow(ctx, `SELECT min(event_at) FROM (SELECT event_at FROM deliveries
			WHERE endpoint_id = $1 AND status = 'held' ORDER BY id LIMIT 100) AS oldest`, e.ID))
		if err != nil {
			return nil, err
		}
		if !oldest.IsZero() && oldest.Before(before) {
			out[e] = oldest
		}
	}
	return out, nil
}

// expireHeld discards deliveries that were held too long. It reads the oldest of each endpoint
// only: the rest would be read each time, while few expire.
func (s *Service) expireHeld(ctx context.Context, tx *db.Tx, n int64) (total int64, err error) {
	before := s.Now().Add(-heldLife)
	late, err := s.longHeld(ctx, tx, before, "")
	if err != nil {
		return 0, err
	}
	for e := range late {
		oldest := fmt.Sprintf("(SELECT id, event_at FROM %s LIMIT %d) AS oldest WHERE event_at < $2", areHeld, n)
		done, err := change{oldest, []any{e.ID, before.UnixMicro()}, discardHeld, []any{DiscardedExpired, s.Now().UnixMicro()}}.apply(ctx, tx, int(n-total))
		if err != nil {
			return 0, fmt.Errorf("expire held deliveries of %s: %w", e.ID, err)
		}
		if total += int64(done); total >= n {
			break
		}
	}
	return total, nil
}

// expireLate discards unfinished deliveries that are old enough to be deleted, which
// happens if no server ran for weeks.
func (s *Service) expireLate(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
	late := change{"deliveries WHERE id < $1 AND " + isUnfinished + " ORDER BY id", []any{ids.Floor(ids.Delivery, s.RowsBefore())}, discardUnfinished,
		[]any{DiscardedExpired, s.Now().UnixMicro()}}
	done, err := late.apply(ctx, tx, int(n))
	return int64(done), err
}

// warnHeld emails the admins of endpoints whose held deliveries expire within a week,
// once per pause.
func (s *Service) warnHeld(ctx context.Context, tx *db.Tx, _ int64) (int64, error) {
	late, err := s.longHeld(ctx, tx, s.Now().Add(warnBefore-heldLife), " AND warned_at IS NULL AND kind = 'http'")
	if err != nil {
		return 0, err
	}
	for e, oldest := range late {
		held, err := s.HeldCount(ctx, tx, e.ID, mail.MaxHeld)
		if err != nil {
			return 0, err
		}
		err = s.Outbox.EnqueueAdmins(ctx, tx, e.WorkspaceID, fmt.Sprintf("held %s %d", e.ID, e.PausedAt.UnixMicro()), func(workspace string) mail.Data {
			return mail.HeldExpiring{Workspace: workspace, WorkspaceID: e.WorkspaceID, Environment: string(e.Environment), EndpointID: e.ID, URL: e.URL,
				Held: int64(held), OldestAt: oldest, ExpiresAt: oldest.Add(heldLife)}
		})
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, "UPDATE endpoints SET warned_at = $2 WHERE id = $1", e.ID, s.Now().UnixMicro()); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// purgeDeleted deletes the rows of deleted endpoints once nothing refers to them.
func (s *Service) purgeDeleted(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
	gone, err := db.List(ctx, tx, db.Value[string], "SELECT id FROM endpoints WHERE deleted_at < $1 ORDER BY id LIMIT $2", s.RowsBefore().UnixMicro(), n)
	if err != nil {
		return 0, err
	}
	for _, id := range gone {
		for _, table := range []string{"endpoint_stats WHERE endpoint_id", "endpoints WHERE id"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" = $1", id); err != nil {
				return 0, err
			}
		}
	}
	return int64(len(gone)), lanes.Remove(ctx, tx, Queue, gone...)
}
