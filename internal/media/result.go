package media

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// result is the result of working a task once.
type result struct {
	task     *task
	job      *Job // as it was when the task was worked
	status   string
	due      *time.Time // for a retry or a poll
	output   taskOutput
	cost     credits.Micro
	model    string
	provider string
	progress int64

	err      error // why it failed
	final    bool  // a retry cannot succeed
	why      *events.JobError
	tries    int64
	upstream bool // a provider failed
}

func failedResult(t *task, err error) *result {
	return &result{task: t, status: taskFailed, err: err, tries: t.Tries}
}

// withOutput keeps the render that a failure is about.
func (r *result) withOutput(m taskOutput) *result {
	r.output = m
	return r
}

// decideRetry schedules a retry of a failed task, or fails it permanently.
func (r *result) decideRetry(j *Job, now time.Time) {
	if r.err == nil {
		return
	}
	r.why = describeError(r.err)
	r.upstream = r.why.Code == codeUpstream || r.why.Code == codeTimeout || r.why.Code == codeCapacity
	schedule := retryDelaysOf(j)
	switch {
	case errors.Is(r.err, db.ErrUnavailable):
		r.retryAfter(storageRetryDelay, j, now) // an outage doesn't use up the task's retries
	case r.why.Retryable && !r.final && int(r.tries) < len(schedule):
		r.retryAfter(schedule[r.tries], j, now)
		r.tries++
	}
	level := slog.LevelDebug
	if _, expected := fault.As(r.err); !expected && r.why.Code != codeBlockedInput && r.why.Code != codeBlockedOutput && r.why.Code != codeInvalid {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, "task failed", "job", j.ID, "task", r.task.Position, "retry", r.due != nil, "error", r.err)
}

// retryAfter makes the task due after the delay, and no later than the job's deadline.
func (r *result) retryAfter(delay time.Duration, j *Job, now time.Time) {
	due := now.Add(delay)
	if due.After(j.DeadlineAt) {
		due = j.DeadlineAt
	}
	r.status, r.due = taskWaiting, &due
}

func (m taskOutput) cost() credits.Micro { return credits.Micro(m.Cost) }

func (s *Service) writeStarts(ctx context.Context, tx *db.Tx, list []string) error {
	slices.Sort(list)
	now := s.Now().UnixMicro()
	for _, id := range slices.Compact(list) {
		_, err := tx.Exec(ctx, "UPDATE media_jobs SET status = $2, started_at = $3 WHERE id = $1 AND status = $4", id, string(InProgress), now, string(Queued))
		if err != nil {
			return fmt.Errorf("start jobs: %w", err)
		}
	}
	return nil
}

// writeResults is the group commit of tasks: their rows, the counts of their jobs,
// and the ends of finished jobs.
func (s *Service) writeResults(ctx context.Context, tx *db.Tx, list []*result) error {
	byJob := map[string][]*result{}
	for _, r := range list {
		byJob[r.task.JobID] = append(byJob[r.task.JobID], r)
	}
	// Rows are locked in the order of their IDs everywhere.
	jobs, err := lockJobs(ctx, tx, slices.Sorted(maps.Keys(byJob)))
	if err != nil {
		return err
	}
	if err := s.dropStaleFiles(ctx, tx, jobs, byJob); err != nil {
		return err
	}
	var rows [][]any
	for _, j := range jobs {
		news, err := dropStaleResults(ctx, tx, byJob[j.ID])
		if err != nil {
			return err
		}
		// Stale results must not end a job either.
		if byJob[j.ID] = news; len(news) == 0 {
			continue
		}
		if j.Status == Cancelling {
			cancelRetries(news)
		}
		for _, r := range news {
			rows = append(rows, r.row(j, s.Now()))
		}
		if j.Status.Ended() {
			continue // too late to count
		}
		j.addResults(news, s.Now())
	}
	// Before jobs end, which reads them.
	if _, err := updateTasks.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("update tasks: %w", err)
	}
	for _, j := range jobs {
		if len(byJob[j.ID]) == 0 {
			continue
		}
		if err := s.advance(ctx, tx, j, byJob[j.ID]); err != nil {
			return err
		}
	}
	return nil
}

func cancelRetries(list []*result) {
	for _, r := range list {
		if r.status == taskWaiting {
			r.status, r.due, r.why = taskCancelled, nil, errCancelled
		}
	}
}

// lockJobs locks jobs and returns those that still exist.
func lockJobs(ctx context.Context, tx *db.Tx, ids []string) ([]*Job, error) {
	places, args := db.Places(nil, ids)
	list, err := db.List(ctx, tx, scanJob, "SELECT "+jobColumns+" FROM media_jobs WHERE id IN "+places+" ORDER BY id"+tx.Lock("media_jobs"), args...)
	return list, db.Wrap(err, "read jobs")
}

// dropStaleResults leaves out results of tasks that another node has worked. The number
// of attempts is the fence.
func dropStaleResults(ctx context.Context, tx *db.Tx, list []*result) ([]*result, error) {
	positions := make([]int64, len(list))
	for i, r := range list {
		positions[i] = r.task.Position
	}
	stored, err := taskStates(ctx, tx, list[0].task.JobID, positions)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *result) int { return cmp.Compare(a.task.Position, b.task.Position) })
	var news []*result
	for _, r := range list {
		have := stored[r.task.Position]
		if have == nil || have.Status != taskWaiting || have.Attempts != r.task.Attempts {
			continue
		}
		delete(stored, r.task.Position) // a second result is stale
		news = append(news, r)
	}
	return news, nil
}

func (r *result) row(j *Job, now time.Time) []any {
	status, due := r.status, r.due
	if j.Status.Ended() {
		status, due = taskCancelled, nil
		if r.status == taskWaiting && r.output.Upstream != "" {
			status, due = taskWaiting, &now // its render must still be canceled
		}
	}
	var output, failure any
	if len(r.output.Files) > 0 || r.output.Upstream != "" {
		output = db.JSON(r.output)
	}
	if status == taskFailed || status == taskCancelled {
		failure = db.JSON(r.why)
	}
	return []any{r.task.JobID, r.task.Position, status, db.Micros(due), r.tries, output, failure}
}

func (j *Job) addResults(news []*result, now time.Time) {
	if j.Status == Queued {
		j.Status, j.StartedAt = InProgress, &now
	}
	for _, r := range news {
		if r.model != "" {
			j.Model, j.Provider = r.model, r.provider
		}
		j.Cost += r.cost
		j.Progress = max(j.Progress, r.progress)
		if r.task.Position >= j.Total {
			continue // the stitching task does not count
		}
		switch r.status {
		case taskCompleted:
			j.Completed++
		case taskFailed, taskCancelled:
			j.Failed++
		}
	}
}

// advance saves a job after results of its tasks, and ends it if it is done.
func (s *Service) advance(ctx context.Context, tx *db.Tx, j *Job, list []*result) error {
	if j.CompletedAt != nil {
		return nil
	}
	ended, why := Status(""), (*events.JobError)(nil)
	broken, last := findOutcome(j, list)
	switch {
	case j.Kind == Images:
		if j.Progress = (j.Completed + j.Failed) * 100 / j.Total; j.Completed+j.Failed < j.Total {
			break
		}
		switch {
		case j.Status == Cancelling:
			ended, why = Cancelled, errCancelled
		case j.Completed > 0:
			ended = Completed
		default:
			var err error
			if why, err = commonFailure(ctx, tx, j); err != nil {
				return err
			}
			ended = Failed
		}
	case broken != nil:
		ended, why = Failed, broken
	case last != nil || (j.Kind == Video || j.Kind == Transcript) && j.Completed == j.Total:
		ended = Completed
		output, err := json.Marshal(cmp.Or(last, list[0]).output)
		if err != nil {
			return err
		}
		j.Output = output
	case j.Kind == Voice:
		if j.Progress = j.Completed * 99 / j.Total; j.Completed == j.Total {
			if err := s.scheduleStitch(ctx, tx, j); err != nil {
				return err
			}
		}
	}
	if ended == "" {
		return saveJob(ctx, tx, j)
	}
	return s.finish(ctx, tx, j, ended, why)
}

// findOutcome returns the failure that ends a job of one piece, and the result of
// the stitching task.
func findOutcome(j *Job, list []*result) (broken *events.JobError, last *result) {
	for _, r := range list {
		if r.status == taskFailed {
			broken = r.why
		}
		if r.task.Position == j.Total && r.status == taskCompleted {
			last = r
		}
	}
	return broken, last
}

// scheduleStitch makes the stitching task due, once.
func (s *Service) scheduleStitch(ctx context.Context, tx *db.Tx, j *Job) error {
	now := s.Now()
	n, err := tx.Exec(ctx, "UPDATE media_tasks SET status = $3, due_at = $4 WHERE job_id = $1 AND position = $2 AND status = $5",
		j.ID, j.Total, taskWaiting, now.UnixMicro(), taskBlocked)
	if err != nil {
		return fmt.Errorf("stitch: %w", err)
	}
	if n == 0 {
		return nil
	}
	return s.wake(ctx, tx, j.Lane, now)
}

// dropStaleFiles deletes files of tasks that finished after their job ended or was
// deleted. jobs are the jobs as they are now.
func (s *Service) dropStaleFiles(ctx context.Context, tx *db.Tx, jobs []*Job, byJob map[string][]*result) error {
	now := make(map[string]*Job, len(jobs))
	for _, j := range jobs {
		now[j.ID] = j
	}
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		was := byJob[id][0].job
		for _, holder := range staleHolders(was, now[id]) {
			if err := s.Files.Drop(ctx, tx, was.Tenant, holder); err != nil {
				return err
			}
		}
	}
	return nil
}

// staleHolders returns the holders of files to delete. was is the job when its task
// was worked, and now is nil if the job was deleted since.
func staleHolders(was, now *Job) []string {
	switch {
	case now == nil || now.WorkspaceID == "":
		return []string{was.ID, workHolder(was)}
	case !now.Status.Ended():
		return nil
	case now.Kind.usesWorkFiles() && now.Status == Completed:
		return []string{workHolder(was)}
	case now.Kind == Images || now.Status == Completed:
		return nil // finished files are kept
	}
	return []string{was.ID, workHolder(was)}
}
