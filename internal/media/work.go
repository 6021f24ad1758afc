package media

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/lanes"
)

// Fetch returns what is due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (b lanes.Batch[*item], err error) {
	now := s.now().UnixMicro()
	job, position := behind(after)
	// The limits are in the text, of which there are a few: SQLite compiles a
	// statement anew whenever the parameter of a LIMIT is bound.
	rows, err := s.db.Query(ctx, fmt.Sprintf(`SELECT job_id, position, due_at FROM media_tasks
		WHERE lane = $1 AND due_at <= $2 AND (due_at, job_id, position) > ($3, $4, $5) ORDER BY due_at, job_id, position LIMIT %d`, n),
		lane, now, after.Due, job, position)
	b.Items, err = db.All(rows, err, func(r db.Row) (*item, error) {
		var i item
		err := r.Scan(&i.jobID, &i.position, &i.due)
		return &i, err
	})
	if err != nil || len(b.Items) > 0 {
		return b, err
	}
	var next *int64
	if err := s.db.QueryRow(ctx, "SELECT min(due_at) FROM media_tasks WHERE lane = $1 AND due_at > $2", lane, now).Scan(&next); err != nil {
		return b, fmt.Errorf("read next task: %w", err)
	}
	if at := db.Time(next); at != nil {
		b.Next = *at
	}
	return b, nil
}

// behind takes the key of an item apart.
func behind(k lanes.Key) (job string, position int64) {
	job, number, found := strings.Cut(k.ID, "/")
	if !found {
		return "", -1
	}
	position, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", -1
	}
	return job, position
}

// Work does one task and hands over what came of it.
func (s *Service) Work(ctx context.Context, _ string, i *item) lanes.Result {
	j, t, err := s.load(ctx, i)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} // it was deleted
	case err != nil:
		slog.Warn("cannot read a task; it is tried again", "job", i.jobID, "error", err)
		lanes.Backoff(ctx)
		return lanes.Result{Outcome: db.Written}
	case t.DueAt == nil:
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} // somebody did it already
	}
	r := s.do(ctx, j, t)
	if r == nil || r.err != nil && ctx.Err() != nil {
		return lanes.Result{Outcome: db.Written} // it was cut off here, and is nobody's fault
	}
	r.job = j
	r.decide(j, s.now())
	well, due := !r.upstream, r.due // from the next line on it is the writer's
	return lanes.Result{Healthy: well, Done: due == nil, Due: due, Outcome: s.results.Add(r)}
}

// load reads a task and its job as they are now: what was cancelled since it
// was fetched is not worked.
func (s *Service) load(ctx context.Context, i *item) (*Job, *task, error) {
	row := s.db.QueryRow(ctx, loadTask, i.jobID, i.position)
	var t task
	dest, done := t.dest()
	j, err := scanJob(behindRow{row, dest})
	if err != nil {
		return nil, nil, err
	}
	return j, &t, done()
}

var loadTask = "SELECT " + columnsOf("t", taskColumns) + ", " + columnsOf("j", jobColumns) +
	" FROM media_tasks t JOIN media_jobs j ON j.id = t.job_id WHERE t.job_id = $1 AND t.position = $2"

// columnsOf names the columns of one of several tables.
func columnsOf(table, columns string) string {
	names := strings.Fields(columns)
	for i, name := range names {
		names[i] = table + "." + name
	}
	return strings.Join(names, " ")
}

// behindRow is a row whose first columns go elsewhere.
type behindRow struct {
	db.Row
	first []any
}

func (r behindRow) Scan(dest ...any) error {
	return r.Row.Scan(append(slices.Clone(r.first), dest...)...)
}

// do works a task, unless there is a reason not to. It returns nil when the
// store cannot be asked.
func (s *Service) do(ctx context.Context, j *Job, t *task) *result {
	m, err := readMade(t.Output)
	if err != nil {
		return failedResult(t, err)
	}
	submitted := m.Upstream != ""
	switch {
	case j.Status.Ended():
		if submitted {
			s.stopVideo(ctx, j, m)
		}
		if ctx.Err() != nil {
			return nil // a server that stops leaves it to the next one
		}
		return &result{task: t, status: taskCancelled}
	case j.Status == Cancelling:
		return &result{task: t, status: taskCancelled, why: errCancelled}
	case !s.now().Before(j.DeadlineAt):
		if submitted {
			s.stopVideo(ctx, j, m)
		}
		if ctx.Err() != nil {
			return nil
		}
		return &result{task: t, status: taskFailed, why: errDeadline}
	}
	// What puts pieces together asks no provider for anything.
	if stitches := j.Kind == Voice && t.Position == j.Total; !submitted && !stitches {
		lives, err := access.IsKeyActive(ctx, s.db, j.KeyID, s.now())
		if err != nil {
			slog.Warn("cannot read a job's key; the job is tried again", "job", j.ID, "error", err)
			lanes.Backoff(ctx)
			return nil
		}
		if !lives {
			return &result{task: t, status: taskFailed, why: errKeyGone}
		}
	}
	if j.Status == Queued {
		s.starts.Add(j.ID)
	}
	// By our own clock, which tests may move.
	ctx, cancel := context.WithTimeout(ctx, j.DeadlineAt.Sub(s.now()))
	defer cancel()
	switch j.Kind {
	case Images:
		return s.workImages(ctx, j, t)
	case Video:
		return s.workVideo(ctx, j, t)
	}
	return s.workVoice(ctx, j, t)
}

// retriesOf is how often a task of the job may fail. A test that asks for a
// failure should see it.
func retriesOf(j *Job) []time.Duration {
	if j.Environment == accounts.Test {
		return nil
	}
	return retries
}
