package media

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/lanes"
)

// Fetch returns the tasks that are due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*lanes.Row], error) {
	return lanes.Table{DB: s.DB, Now: s.Now, Name: "media_tasks", ID: "job_id", Position: "position"}.Fetch(ctx, lane, after, n)
}

// Work works one task and queues its result.
func (s *Service) Work(ctx context.Context, _ string, i *lanes.Row) lanes.Result {
	j, t, err := s.load(ctx, i)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} // it was deleted
	case err != nil:
		slog.Warn("failed to read task; retrying", "job", i.ID, "error", err)
		return lanes.Retry(ctx)
	case t.DueAt == nil:
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} // another node did it
	}
	r := s.workTask(ctx, j, t)
	if r == nil || r.err != nil && ctx.Err() != nil {
		return lanes.Result{Outcome: db.Written} // the server stops
	}
	r.job = j
	r.decideRetry(j, s.Now())
	well, due := !r.upstream, r.due // read before the writer can change it
	return lanes.Result{Healthy: well, Done: due == nil, Due: due, Outcome: s.results.Add(r)}
}

// load reads a task and its job as they are now, because the job may have been
// canceled since Fetch.
func (s *Service) load(ctx context.Context, i *lanes.Row) (*Job, *task, error) {
	row := s.DB.QueryRow(ctx, loadTask, i.ID, i.Position)
	var t task
	var j Job
	err := db.Scan(row, append(t.fields(), j.fields()...)...)
	return &j, &t, err
}

var loadTask = "SELECT " + qualified("t", taskColumns) + ", " + qualified("j", jobColumns) +
	" FROM media_tasks t JOIN media_jobs j ON j.id = t.job_id WHERE t.job_id = $1 AND t.position = $2"

func qualified(table, columns string) string {
	names := strings.Fields(columns)
	for i, name := range names {
		names[i] = table + "." + name
	}
	return strings.Join(names, " ")
}

// workTask works a task unless its job has ended or may not continue. It returns nil
// if the database fails or the server stops.
func (s *Service) workTask(ctx context.Context, j *Job, t *task) *result {
	m, err := readOutput(t.Output)
	if err != nil {
		return failedResult(t, err)
	}
	submitted := m.Upstream != ""
	switch {
	case j.Status.Ended():
		return s.cancelRender(ctx, j, m, &result{task: t, status: taskCancelled})
	case j.Status == Cancelling:
		return &result{task: t, status: taskCancelled, why: errCancelled}
	case !s.Now().Before(j.DeadlineAt):
		return s.cancelRender(ctx, j, m, &result{task: t, status: taskFailed, why: errDeadline})
	}
	// Stitching makes no provider calls.
	owner := gateway.Owner{Project: j.Project}
	if stitches := j.Kind == Voice && t.Position == j.Total; !submitted && !stitches {
		owner.Principal, err = access.PrincipalOf(ctx, s.DB, j.KeyID, j.TokenLimits, s.Now())
		if err != nil {
			slog.Warn("failed to read the key of a job; retrying", "job", j.ID, "error", err)
			lanes.Backoff(ctx)
			return nil
		}
		if owner.Principal == nil {
			return &result{task: t, status: taskFailed, why: errKeyRevoked}
		}
	}
	if j.Status == Queued {
		s.starts.Add(j.ID)
	}
	// By s.Now, which tests may move.
	ctx, cancel := context.WithTimeout(ctx, j.DeadlineAt.Sub(s.Now()))
	defer cancel()
	switch j.Kind {
	case Images:
		return s.workImages(ctx, owner, j, t)
	case Video:
		return s.workVideo(ctx, owner, j, t)
	case Transcript:
		return s.workTranscript(ctx, owner, j, t)
	}
	return s.workVoice(ctx, owner, j, t)
}

// retryDelaysOf returns the retries of a job's tasks. Test jobs have none, so that
// tests of failures see them. Outages of the database are retried in both.
func retryDelaysOf(j *Job) []time.Duration {
	if j.Environment == accounts.Test {
		return nil
	}
	return retryDelays
}
