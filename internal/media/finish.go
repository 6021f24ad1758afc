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

// finish ends a job: its state, charge, remaining tasks and event change in one
// transaction. The caller holds the lock of the job's row.
func (s *Service) finish(ctx context.Context, tx *db.Tx, j *Job, to Status, why *events.JobError) error {
	if err := j.transition(to); err != nil {
		return err
	}
	tx.OnCommit(s.ended.WithLabelValues(string(j.Kind), string(to)).Inc)
	now := s.Now()
	j.CompletedAt, j.Error = &now, why
	if to == Completed {
		j.Progress = 100
	}
	if to == Failed {
		j.Cost = 0 // failed jobs are free
	}
	j.Cost = s.Settler.SettleJob(tx, spend.JobCharge{JobID: j.ID, RequestID: j.RequestID, Tenant: j.Tenant,
		Project: j.Project, KeyID: j.KeyID, CreatedAt: j.CreatedAt, Accounts: j.Accounts, Model: j.Model, Provider: j.Provider, Reserved: j.Reserved, Cost: j.Cost,
		PriceVersion: j.PriceVersion})
	if err := saveJob(ctx, tx, j); err != nil {
		return err
	}
	if err := s.cancelTasks(ctx, tx, j, now); err != nil {
		return err
	}
	if j.Kind.usesWorkFiles() {
		if err := s.Files.Drop(ctx, tx, j.Tenant, workHolder(j)); err != nil {
			return err
		}
	}
	return s.publish(ctx, tx, j)
}

// cancelTasks cancels the tasks of a job that has ended. The task of a video stays
// due, because it must cancel its render at the provider.
func (s *Service) cancelTasks(ctx context.Context, tx *db.Tx, j *Job, now time.Time) error {
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
		return nil // all tasks have ended
	}
	var why any
	if j.Status == Cancelled { // the error of a failed job has the reason
		why = db.JSON(j.Error)
	}
	_, err := tx.Exec(ctx, "UPDATE media_tasks SET status = $2, due_at = NULL, error = $4 WHERE job_id = $1 AND (due_at IS NOT NULL OR status = $3)",
		j.ID, taskCancelled, taskBlocked, why)
	return db.Wrap(err, "end tasks")
}

func (s *Service) publish(ctx context.Context, tx *db.Tx, j *Job) error {
	data, err := s.payload(ctx, tx, j)
	if err != nil {
		return err
	}
	_, err = s.Publisher.Publish(ctx, tx, events.Origin{Tenant: j.Tenant, Project: j.Project}, data)
	return err
}

// Cancel stops a job. The finished images of a batch and the finished parts of a
// voice render are charged. An unfinished video is free.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, p *access.Principal, k Kind, id string) (*Job, error) {
	j, err := find(ctx, tx, jobKey{p, k, id}, tx.Lock("media_jobs"))
	if err != nil {
		return nil, err
	}
	switch {
	case j.Status == Cancelling || j.Status == Cancelled || k == Video && j.Error != nil && j.Error.Code == codeCancelled:
		return j, nil // repeated
	case j.Status.Ended():
		return nil, fault.New(fault.InvalidState, "The %s has already ended. Its status is %s.", k.Noun(), j.Status)
	case k == Video:
		return j, s.finish(ctx, tx, j, Failed, errCancelled)
	case k == Images && j.Status == InProgress:
		if err := j.transition(Cancelling); err != nil {
			return nil, err
		}
		if err := saveJob(ctx, tx, j); err != nil {
			return nil, err
		}
		// Pending retries end immediately.
		now := s.Now()
		if _, err := tx.Exec(ctx, "UPDATE media_tasks SET due_at = $2 WHERE job_id = $1 AND due_at > $2", j.ID, now.UnixMicro()); err != nil {
			return nil, fmt.Errorf("cancel: %w", err)
		}
		return j, s.wake(ctx, tx, j.Lane, now)
	}
	return j, s.finish(ctx, tx, j, Cancelled, errCancelled)
}

// Delete removes a job that has ended, and its files.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, p *access.Principal, k Kind, id string) error {
	j, err := find(ctx, tx, jobKey{p, k, id}, tx.Lock("media_jobs"))
	if err != nil {
		return err
	}
	switch {
	case j.Status == Cancelling:
		return fault.New(fault.InvalidState, "The %s is %s. Delete it when it has ended.", k.Noun(), j.Status)
	case !j.Status.Ended():
		return fault.New(fault.InvalidState, "The %s is %s. Cancel it first.", k.Noun(), j.Status)
	}
	if err := s.Files.Drop(ctx, tx, j.Tenant, j.ID); err != nil {
		return err
	}
	// Only the task of a canceled render knows its ID at the provider, where it may still run.
	open, err := db.Value[int64](tx.QueryRow(ctx, "SELECT count(*) FROM media_tasks WHERE job_id = $1 AND due_at IS NOT NULL", j.ID))
	if err != nil {
		return fmt.Errorf("delete job: %w", err)
	}
	if open > 0 {
		return anonymize(ctx, tx, j)
	}
	for _, query := range []string{"DELETE FROM media_tasks WHERE job_id = $1", "DELETE FROM media_jobs WHERE id = $1"} {
		if _, err := tx.Exec(ctx, query, j.ID); err != nil {
			return fmt.Errorf("delete job: %w", err)
		}
	}
	return nil
}

// anonymize removes everything from a job that is not needed to cancel its render.
// Purge deletes it later.
func anonymize(ctx context.Context, tx *db.Tx, j *Job) error {
	_, err := tx.Exec(ctx, "UPDATE media_jobs SET workspace_id = '', project = NULL, key_id = '', reader = '', input = '{}', metadata = '{}', output = NULL WHERE id = $1", j.ID)
	return db.Wrap(err, "delete job")
}

// retention is how long jobs are kept: as long as their files and events.
const retention = 30 * 24 * time.Hour

// Purge deletes a batch of old jobs.
func (s *Service) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	batch := max(1, limit/100) // a batch has many tasks
	// Read first: with the query in the DELETE, PostgreSQL may read all tasks.
	old, err := db.List(ctx, tx, db.Value[string], "SELECT id FROM media_jobs WHERE completed_at < $1 ORDER BY completed_at LIMIT $2", s.Now().Add(-retention).UnixMicro(), batch)
	if err != nil || len(old) == 0 {
		return 0, db.Wrap(err, "purge jobs")
	}
	places, args := db.Places(nil, old)
	for _, rows := range []string{"media_tasks WHERE job_id", "media_jobs WHERE id"} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+rows+" IN "+places, args...); err != nil {
			return 0, fmt.Errorf("purge jobs: %w", err)
		}
	}
	if int64(len(old)) == batch {
		return limit, nil // there may be more
	}
	return int64(len(old)), nil
}
