package media

import (
	"context"
	"fmt"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
)

// finish ends a job: its state, what it is charged, what is left of its tasks
// and its event are one transaction. The caller holds the job's row.
func (s *Service) finish(ctx context.Context, tx *db.Tx, j *Job, to Status, why *events.JobError) error {
	if err := j.move(to); err != nil {
		return err
	}
	now := s.now()
	j.CompletedAt, j.Error = &now, why
	if to == Completed {
		j.Progress = 100
	}
	if to == Failed {
		j.Cost = 0 // what failed is not charged
	}
	j.Cost = s.settler.SettleJob(tx, spend.JobCharge{JobID: j.ID, RequestID: j.RequestID, WorkspaceID: j.WorkspaceID, Environment: j.Environment,
		Project: j.Project, KeyID: j.KeyID, CreatedAt: j.CreatedAt, Accounts: j.Accounts, Model: j.Model, Provider: j.Provider, Reserved: j.Reserved, Cost: j.Cost,
		PriceVersion: j.PriceVersion})
	if err := saveJob(ctx, tx, j); err != nil {
		return err
	}
	if err := s.endTasks(ctx, tx, j, now); err != nil {
		return err
	}
	if j.Kind == Voice {
		if err := s.files.Drop(ctx, tx, j.Owner(), segmentsOf(j)); err != nil {
			return err
		}
	}
	return s.publish(ctx, tx, j)
}

// endTasks leaves nothing to do of a job that has ended, but to stop a render
// that was started, or is being started just now.
func (s *Service) endTasks(ctx context.Context, tx *db.Tx, j *Job, now time.Time) error {
	if j.Kind == Video {
		n, err := tx.Exec(ctx, "UPDATE media_tasks SET due_at = $2 WHERE job_id = $1 AND due_at IS NOT NULL", j.ID, now.UnixMicro())
		if err != nil {
			return fmt.Errorf("end tasks: %w", err)
		}
		if n == 0 {
			return nil
		}
		return s.wake(ctx, tx, j.Lane, now)
	}
	if j.Kind == Images && j.Completed+j.Failed == j.Total {
		return nil // all of them have ended by themselves
	}
	var why any
	if j.Status == Cancelled { // of one that failed, its error says why
		var err error
		if why, err = errorJSON(j.Error); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "UPDATE media_tasks SET status = $2, due_at = NULL, error = $4 WHERE job_id = $1 AND (due_at IS NOT NULL OR status = $3)",
		j.ID, taskCancelled, taskLater, why)
	if err != nil {
		return fmt.Errorf("end tasks: %w", err)
	}
	return nil
}

// publish tells whoever wants to know.
func (s *Service) publish(ctx context.Context, tx *db.Tx, j *Job) error {
	data, err := s.payload(ctx, tx, j)
	if err != nil {
		return err
	}
	_, err = s.publisher.Publish(ctx, tx, events.Origin{WorkspaceID: j.WorkspaceID, Environment: string(j.Environment), Project: j.Project}, data)
	return err
}

// Cancel stops a job. What a batch has made by then stays, and is paid for, and
// so is what was read aloud; a video that is not finished costs nothing.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, p *access.Principal, k Kind, id string) (*Job, error) {
	j, err := s.get(ctx, tx, p, k, id, tx.Lock("media_jobs"))
	if err != nil {
		return nil, err
	}
	switch {
	case j.Status == Cancelling || j.Status == Cancelled || k == Video && j.Error != nil && j.Error.Code == codeCancelled:
		return j, nil // a second time changes nothing
	case j.Status.Ended():
		return nil, fault.New(fault.InvalidState, "the %s has ended already: it is %s", k.Noun(), j.Status)
	case k == Video:
		return j, s.finish(ctx, tx, j, Failed, errCancelled)
	case k == Images && j.Status == InProgress:
		if err := j.move(Cancelling); err != nil {
			return nil, err
		}
		if err := saveJob(ctx, tx, j); err != nil {
			return nil, err
		}
		// Those that wait for another try do not any longer.
		now := s.now()
		if _, err := tx.Exec(ctx, "UPDATE media_tasks SET due_at = $2 WHERE job_id = $1 AND due_at > $2", j.ID, now.UnixMicro()); err != nil {
			return nil, fmt.Errorf("cancel: %w", err)
		}
		return j, s.wake(ctx, tx, j.Lane, now)
	}
	return j, s.finish(ctx, tx, j, Cancelled, errCancelled)
}

// Delete removes a job that has ended, and its files.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, p *access.Principal, k Kind, id string) error {
	j, err := s.get(ctx, tx, p, k, id, tx.Lock("media_jobs"))
	if err != nil {
		return err
	}
	switch {
	case j.Status == Cancelling:
		return fault.New(fault.InvalidState, "the %s is %s; it can be deleted when that is done", k.Noun(), j.Status)
	case !j.Status.Ended():
		return fault.New(fault.InvalidState, "the %s is %s; cancel it first", k.Noun(), j.Status)
	}
	if err := s.files.Drop(ctx, tx, j.Owner(), j.ID); err != nil {
		return err
	}
	switch goesOn, err := toBeStopped(ctx, tx, j); {
	case err != nil:
		return err
	case goesOn:
		return disown(ctx, tx, j)
	}
	for _, query := range []string{"DELETE FROM media_tasks WHERE job_id = $1", "DELETE FROM media_jobs WHERE id = $1"} {
		if _, err := tx.Exec(ctx, query, j.ID); err != nil {
			return fmt.Errorf("delete job: %w", err)
		}
	}
	return nil
}

// toBeStopped reports whether a render that was cancelled goes on at its
// provider: only its task knows which one it is there.
func toBeStopped(ctx context.Context, tx *db.Tx, j *Job) (bool, error) {
	var left int64
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM media_tasks WHERE job_id = $1 AND due_at IS NOT NULL", j.ID).Scan(&left); err != nil {
		return false, fmt.Errorf("delete job: %w", err)
	}
	return left > 0, nil
}

// disown leaves of a job what it takes to stop its render, and that it is
// nobody's: it goes with the other old ones.
func disown(ctx context.Context, tx *db.Tx, j *Job) error {
	_, err := tx.Exec(ctx, "UPDATE media_jobs SET workspace_id = '', project = NULL, key_id = '', reader = '', input = '{}', metadata = '{}', output = NULL WHERE id = $1", j.ID)
	if err != nil {
		return fmt.Errorf("delete job: %w", err)
	}
	return nil
}

// kept is for how long jobs are: as long as their files, and the events that
// name them.
const kept = 30 * 24 * time.Hour

// Purge deletes jobs whose files are gone, a batch at a time.
func (s *Service) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	old := "(SELECT id FROM media_jobs WHERE completed_at < $1 ORDER BY completed_at LIMIT $2)"
	before := s.now().Add(-kept).UnixMicro()
	few := max(1, limit/100) // a batch has many tasks
	if _, err := tx.Exec(ctx, "DELETE FROM media_tasks WHERE job_id IN "+old, before, few); err != nil {
		return 0, fmt.Errorf("purge jobs: %w", err)
	}
	n, err := tx.Exec(ctx, "DELETE FROM media_jobs WHERE id IN "+old, before, few)
	if err != nil {
		return 0, fmt.Errorf("purge jobs: %w", err)
	}
	if n == few {
		return limit, nil // there may be more
	}
	return n, nil
}
