package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
)

// An event whose fan-out fails is parked, so that it stops no other event. Parked events are
// retried one by one, with a backoff, until retention deletes the event.

const (
	firstParked = time.Minute
	maxParked   = 12 * time.Hour
)

// isolate handles a failed fan-out. It parks the event if it failed alone. For several events it does
// nothing, and the caller takes fewer. It returns an error if the cause is none of the events.
func (s *Service) isolate(ctx context.Context, list []events.Pending, cause error) error {
	if len(list) == 0 || !causedByEvent(ctx, cause) {
		return cause
	}
	if len(list) > 1 {
		return nil
	}
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM new_events WHERE event_id = $1", list[0].ID)
		if err != nil || n == 0 { // another node took it
			return err
		}
		return s.park(ctx, tx, parked{id: list[0].ID}, cause)
	})
}

// causedByEvent reports whether an error can be that of an event, and not of the database.
func causedByEvent(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrRace)
}

// parked is an event whose fan-out failed.
type parked struct {
	id       string
	failures int64
}

// park stores when to retry the fan-out of an event.
func (s *Service) park(ctx context.Context, tx *db.Tx, p parked, cause error) error {
	delay := min(firstParked<<min(p.failures, 16), maxParked)
	p.failures++
	slog.Error("failed to fan out an event; parked it", "event", p.id, "failures", p.failures, "err", cause, "retry_in", delay)
	_, err := tx.Exec(ctx, db.Insert("parked_events", "event_id, failures, retry_at, error")+" "+db.Upsert("event_id", "failures", "retry_at", "error"),
		p.id, p.failures, s.Now().Add(delay).UnixMicro(), db.Storable(cause.Error()))
	return db.Wrap(err, "park event")
}

// retryParked fans out the parked events that are due.
func (s *Service) retryParked(ctx context.Context) error {
	for {
		due, err := db.Value[bool](s.DB.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM parked_events WHERE retry_at <= $1)", s.Now().UnixMicro()))
		if err != nil || !due {
			return err
		}
		p, err := s.fanOutParked(ctx)
		if cause := err; cause != nil && p.id != "" && causedByEvent(ctx, cause) {
			err = s.DB.Write(ctx, func(tx *db.Tx) error { return s.park(ctx, tx, p, cause) })
		}
		if err != nil || p.id == "" { // other nodes have them
			return err
		}
	}
}

// fanOutParked fans out one parked event that is due. It returns the event also if that fails.
func (s *Service) fanOutParked(ctx context.Context) (p parked, err error) {
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		p = parked{}
		err := tx.QueryRow(ctx, "SELECT event_id, failures FROM parked_events WHERE retry_at <= $1 ORDER BY retry_at LIMIT 1"+tx.Claim("parked_events"), s.Now().UnixMicro()).
			Scan(&p.id, &p.failures)
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM parked_events WHERE event_id = $1", p.id); err != nil {
			return err
		}
		event, err := events.ReadPending(ctx, tx, p.id)
		if errors.Is(err, db.ErrNotFound) {
			slog.Error("gave up the fan-out of an event, because it is too old", "event", p.id)
			return nil
		}
		if err != nil {
			return err
		}
		_, err = s.fanOutIn(ctx, tx, []events.Pending{event}, false)
		return err
	})
	return p, err
}
