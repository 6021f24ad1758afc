package webhooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
)

// result is an attempt and the next state of its delivery.
type result struct {
	attempt  *Attempt
	job      *job
	endpoint *Endpoint
	slow     bool

	state State
	due   *time.Time
	ended time.Time

	offered bool // an earlier commit may have stored it
}

// plan sets the next state: success, a retry, or failure.
func (r *result) plan(schedule []time.Duration, ended time.Time) {
	r.ended = ended
	switch tries := int(r.job.tries); {
	case r.attempt.ErrorClass == "":
		r.state = Succeeded
	case tries < len(schedule):
		due := ended.Add(schedule[tries])
		r.state, r.due = Retrying, &due
		r.attempt.NextRetryAt = &due
	default:
		r.state = Failed
	}
}

// pauses reports whether the result pauses its endpoint. Samples don't, and tunnels
// aren't paused.
func (r *result) pauses() bool {
	return r.state == Failed && !r.job.sample && r.endpoint.Kind == HTTP
}

// updateDeliveries stores the next states. The number of attempts is the guard: if
// another node recorded the same attempt, because this node's lease had expired,
// only a success counts. The same holds if a replay or a resume restarted the
// delivery during the attempt. A delivery that was held or discarded during the
// attempt stays so unless it succeeded. A delivery that had succeeded stays so if its
// replay fails.
var updateDeliveries = db.NewBulkUpdate("deliveries", `
	status = CASE WHEN `+moves+` THEN v.status ELSE deliveries.status END,
	due_at = CASE WHEN `+moves+` OR `+failsAgain+` THEN v.due_at ELSE deliveries.due_at END,
	reason = CASE WHEN v.status = 'succeeded' THEN NULL ELSE deliveries.reason END,
	finished_at = CASE WHEN `+moves+` THEN v.finished_at ELSE deliveries.finished_at END,
	tries = CASE WHEN `+sameAttempt+` THEN v.tries ELSE deliveries.tries END,
	attempts = deliveries.attempts + 1`,
	"deliveries.id = v.id",
	"id text", "attempts bigint", "was_due bigint", "status text", "tries bigint", "due_at bigint", "finished_at bigint")

const (
	sameAttempt = `deliveries.attempts = v.attempts AND deliveries.due_at = v.was_due`
	failsAgain  = sameAttempt + ` AND deliveries.status = 'succeeded'`
	moves       = `v.status = 'succeeded' OR ` + sameAttempt + ` AND deliveries.status IN ('pending', 'retrying')`
)

var countResults = db.NewBulk("endpoint_stats", `ON CONFLICT (endpoint_id) DO UPDATE SET
	succeeded = endpoint_stats.succeeded + excluded.succeeded, failed = endpoint_stats.failed + excluded.failed,
	failed_attempts = endpoint_stats.failed_attempts + excluded.failed_attempts,
	failing_at = CASE WHEN excluded.last_success_at IS NULL THEN endpoint_stats.failing_at ELSE NULL END,
	last_success_at = COALESCE(excluded.last_success_at, endpoint_stats.last_success_at),
	last_failure_at = COALESCE(excluded.last_failure_at, endpoint_stats.last_failure_at),
	last_error = COALESCE(excluded.last_error, endpoint_stats.last_error)`,
	"endpoint_id text", "succeeded bigint", "failed bigint", "failed_attempts bigint", "last_success_at bigint", "last_failure_at bigint", "last_error text")

// writeResults stores attempts by group commit: their records, the next states of
// the deliveries, the counts of the endpoints, and the pause of those that failed.
func (s *Service) writeResults(ctx context.Context, tx *db.Tx, list []*result) error {
	list, err := unwritten(ctx, tx, list)
	if err != nil {
		return err
	}
	attempts := make([][]any, len(list))
	updates := make([][]any, len(list))
	// Ordered by ID, like all locks of deliveries.
	slices.SortFunc(list, func(a, b *result) int { return cmp.Compare(a.job.id, b.job.id) })
	for i, r := range list {
		var finished any
		if r.due == nil {
			finished = r.ended.UnixMicro()
		}
		attempts[i] = r.attempt.row()
		updates[i] = []any{r.job.id, r.job.attempts, r.job.due, string(r.state), r.job.tries + 1, db.Micros(r.due), finished}
	}
	_, err = insertAttempts.Write(ctx, tx, attempts)
	if errors.Is(err, db.ErrExists) {
		// A commit without a response has just been applied.
		return fmt.Errorf("store attempts: %w", db.ErrRace)
	}
	if err != nil {
		return fmt.Errorf("store attempts: %w", err)
	}
	if err := updateDeliveries.Send(ctx, tx, updates, nil); err != nil {
		return fmt.Errorf("update deliveries: %w", err)
	}
	if err := countResults.Send(ctx, tx, tally(list), nil); err != nil {
		return fmt.Errorf("count results: %w", err)
	}
	for _, r := range list {
		if err := s.reportFailure(ctx, tx, r); err != nil {
			return err
		}
		if r.pauses() {
			if err := s.pauseFailed(ctx, tx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// stands reports whether the delivery ended with this failure. It doesn't if another node has
// succeeded with the same attempt, or if it was replayed or held meanwhile.
func (r *result) stands(ctx context.Context, tx *db.Tx) (bool, error) {
	d, err := scanDelivery(tx.QueryRow(ctx, "SELECT "+deliveryColumns+" FROM deliveries WHERE id = $1", r.job.id))
	if err != nil {
		return false, fmt.Errorf("read delivery: %w", err)
	}
	if r.job.again {
		return d.State == Succeeded && d.DueAt == nil && d.Attempts == r.job.attempts+1, nil
	}
	return d.State == Failed, nil
}

// failingTries is how many attempts of a delivery must fail until its endpoint counts as failing.
// With the default schedule that takes six minutes, so a restart of the receiver isn't reported.
const failingTries = 3

// reportFailure publishes events about a failed attempt for other endpoints. An event about an
// endpoint or a delivery never causes another one, so there are no loops.
func (s *Service) reportFailure(ctx context.Context, tx *db.Tx, r *result) error {
	if r.state == Succeeded || r.job.sample || r.job.typ.AboutDelivery() || r.endpoint.Kind != HTTP {
		return nil
	}
	if r.state == Failed || r.job.tries+1 >= failingTries {
		// Only if nothing has succeeded since the delivery started: some receivers fail on some events.
		n, err := tx.Exec(ctx, "UPDATE endpoint_stats SET failing_at = $2 WHERE endpoint_id = $1 AND failing_at IS NULL AND (last_success_at IS NULL OR last_success_at < $3)",
			r.endpoint.ID, r.ended.UnixMicro(), r.job.linksAt)
		if err != nil {
			return fmt.Errorf("mark endpoint as failing: %w", err)
		}
		if n > 0 {
			state := events.EndpointState{Status: "failing", Reason: PausedFailed, Since: r.ended.Unix(), LastError: &r.attempt.Error, DeliveryID: &r.job.id}
			if err := s.publishState(ctx, tx, r.endpoint, state); err != nil {
				return err
			}
		}
	}
	if r.state != Failed || r.job.again {
		return nil
	}
	if failed, err := r.stands(ctx, tx); err != nil || !failed {
		return err
	}
	failed := events.FailedDelivery{DeliveryID: r.job.id, EndpointID: r.endpoint.ID, URL: r.endpoint.URL, EventID: r.job.eventID, EventType: r.job.typ,
		Attempts: r.job.attempts + 1, LastError: r.attempt.Error}
	if r.attempt.Status != 0 {
		failed.LastStatus = &r.attempt.Status
	}
	_, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: r.endpoint.Tenant, Project: r.endpoint.Project}, failed)
	return err
}

// publishState publishes an event about an endpoint. It belongs to the endpoint's project, so
// that no other project learns of it.
func (s *Service) publishState(ctx context.Context, tx *db.Tx, e *Endpoint, state events.EndpointState) error {
	state.EndpointID, state.URL, state.Description = e.ID, e.URL, e.Description
	_, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: e.Tenant, Project: e.Project}, state)
	return err
}

// unwritten leaves out results that are stored already. If the response to a commit
// is lost, the same results are written again.
func unwritten(ctx context.Context, tx *db.Tx, list []*result) ([]*result, error) {
	missing := make([]*result, 0, len(list))
	for _, r := range list {
		n := 0
		if r.offered {
			err := tx.QueryRow(ctx, "SELECT count(*) FROM attempts WHERE delivery_id = $1 AND id = $2", r.job.id, r.attempt.ID).Scan(&n)
			if err != nil {
				return nil, fmt.Errorf("find attempts: %w", err)
			}
		}
		r.offered = true
		if n == 0 {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// tally counts results by endpoint.
func tally(list []*result) [][]any {
	type counts struct {
		succeeded, failed, failedAttempts int64
		success, failure                  any
		last                              any
	}
	by := map[string]*counts{}
	for _, r := range list {
		c := by[r.endpoint.ID]
		if c == nil {
			c = &counts{}
			by[r.endpoint.ID] = c
		}
		if r.state == Succeeded {
			c.succeeded++
			c.success = r.ended.UnixMicro()
			continue
		}
		c.failedAttempts++
		c.failure, c.last = r.ended.UnixMicro(), r.attempt.Error
		if r.state == Failed && !r.job.again {
			c.failed++
		}
	}
	rows := make([][]any, 0, len(by))
	for id, c := range by {
		rows = append(rows, []any{id, c.succeeded, c.failed, c.failedAttempts, c.success, c.failure, c.last})
	}
	slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	return rows
}

// EndpointStats counts all deliveries of an endpoint.
type EndpointStats struct {
	Succeeded      int64
	Failed         int64
	FailedAttempts int64
	LastSuccessAt  *time.Time
	LastFailureAt  *time.Time
	LastError      string
}

// Stats returns the stats of endpoints by ID.
func (s *Service) Stats(ctx context.Context, q db.Querier, endpointIDs ...string) (map[string]*EndpointStats, error) {
	out := make(map[string]*EndpointStats, len(endpointIDs))
	for _, id := range endpointIDs {
		var st EndpointStats
		err := db.Scan(q.QueryRow(ctx, `SELECT succeeded, failed, failed_attempts, last_success_at, last_failure_at, last_error
			FROM endpoint_stats WHERE endpoint_id = $1`, id), &st.Succeeded, &st.Failed, &st.FailedAttempts, &st.LastSuccessAt, &st.LastFailureAt, &st.LastError)
		if err != nil && err != db.ErrNotFound {
			return nil, err
		}
		out[id] = &st
	}
	return out, nil
}
