package media

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// result is what came of working a task once.
type result struct {
	task     *task
	job      *Job // as it was when the task was worked
	status   string
	due      *time.Time // when it is worked again
	output   made
	cost     credits.Micro
	model    string
	provider string
	progress int64

	err      error // why it failed
	final    bool  // trying again would change nothing
	why      *events.JobError
	tries    int64
	upstream bool // a provider failed
}

// failedResult is a task that failed, for now or for good.
func failedResult(t *task, err error) *result {
	return &result{task: t, status: taskFailed, err: err, tries: t.Tries}
}

// keeping remembers the render that a failure is about.
func (r *result) keeping(m made) *result {
	r.output = m
	return r
}

// decide says what follows from a failure: another try, or the end.
func (r *result) decide(j *Job, now time.Time) {
	if r.err == nil {
		return
	}
	r.why = explain(r.err)
	r.upstream = r.why.Code == codeUpstream || r.why.Code == codeTimeout || r.why.Code == codeCapacity
	schedule := retriesOf(j)
	if r.why.Retryable && !r.final && int(r.tries) < len(schedule) {
		due := now.Add(schedule[r.tries])
		if !due.Before(j.DeadlineAt) {
			due = j.DeadlineAt
		}
		r.status, r.due = taskWaiting, &due
		r.tries++
	}
	level := slog.LevelDebug
	if _, told := fault.As(r.err); !told && r.why.Code != codeBlockedInput && r.why.Code != codeBlockedOutput && r.why.Code != codeInvalid {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, "a task failed", "job", j.ID, "task", r.task.Position, "again", r.due != nil, "error", r.err)
}

// cost is what a render costs when it is done.
func (m made) cost() credits.Micro { return credits.Micro(m.Cost) }

// writeStarts says of jobs that they are being worked.
func (s *Service) writeStarts(ctx context.Context, tx *db.Tx, list []string) error {
	slices.Sort(list)
	now := s.now().UnixMicro()
	for _, id := range slices.Compact(list) {
		_, err := tx.Exec(ctx, "UPDATE media_jobs SET status = $2, started_at = $3 WHERE id = $1 AND status = $4", id, string(InProgress), now, string(Queued))
		if err != nil {
			return fmt.Errorf("start jobs: %w", err)
		}
	}
	return nil
}

// writeResults is the group commit of tasks: their rows, their jobs' counts,
// and the ends of jobs that are done.
func (s *Service) writeResults(ctx context.Context, tx *db.Tx, list []*result) error {
	byJob := map[string][]*result{}
	for _, r := range list {
		byJob[r.task.JobID] = append(byJob[r.task.JobID], r)
	}
	// In the order of their ids, as everybody locks them.
	jobs, err := lockJobs(ctx, tx, slices.Sorted(maps.Keys(byJob)))
	if err != nil {
		return err
	}
	if err := s.dropLate(ctx, tx, jobs, byJob); err != nil {
		return err
	}
	var rows [][]any
	for _, j := range jobs {
		news, err := unwritten(ctx, tx, byJob[j.ID])
		if err != nil {
			return err
		}
		// What others did first must not decide anything, either.
		if byJob[j.ID] = news; len(news) == 0 {
			continue
		}
		if j.Status == Cancelling {
			stopRetries(news)
		}
		for _, r := range news {
			row, err := r.row(j, s.now())
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		if j.Status.Ended() {
			continue // they came too late to count
		}
		j.count(news, s.now())
	}
	// Before the ends of jobs, which read them.
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

// stopRetries ends what would have been tried again, had nobody cancelled the
// job meanwhile.
func stopRetries(list []*result) {
	for _, r := range list {
		if r.status == taskWaiting {
			r.status, r.due, r.why = taskCancelled, nil, errCancelled
		}
	}
}

// lockJobs holds jobs until the transaction ends. Those that were deleted are
// left out.
func lockJobs(ctx context.Context, tx *db.Tx, ids []string) ([]*Job, error) {
	args, marks := make([]any, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		args[i], marks[i] = id, fmt.Sprintf("$%d", i+1)
	}
	rows, err := tx.Query(ctx, "SELECT "+jobColumns+" FROM media_jobs WHERE id IN ("+strings.Join(marks, ", ")+") ORDER BY id"+tx.Lock("media_jobs"), args...)
	list, err := db.All(rows, err, scanJob)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	return list, nil
}

// unwritten leaves out what the store has already: another node worked the
// same task, because this one was thought dead, or the answer to a commit was
// lost. The number of attempts is the guard.
func unwritten(ctx context.Context, tx *db.Tx, list []*result) ([]*result, error) {
	positions := make([]int64, len(list))
	for i, r := range list {
		positions[i] = r.task.Position
	}
	stored, err := statesOf(ctx, tx, list[0].task.JobID, positions)
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
		delete(stored, r.task.Position) // a second one would be too late, too
		news = append(news, r)
	}
	return news, nil
}

// row is the task as it is to be stored.
func (r *result) row(j *Job, now time.Time) ([]any, error) {
	status, due := r.status, r.due
	if j.Status.Ended() {
		status, due = taskCancelled, nil
		if r.status == taskWaiting && r.output.Upstream != "" {
			status, due = taskWaiting, &now // a render that nobody wants is still to be stopped
		}
	}
	var output, failure any
	if text, err := json.Marshal(r.output); err != nil {
		return nil, err
	} else if string(text) != "{}" {
		output = string(text)
	}
	if status == taskFailed || status == taskCancelled {
		var err error
		if failure, err = errorJSON(r.why); err != nil {
			return nil, err
		}
	}
	return []any{r.task.JobID, r.task.Position, status, db.Moment(due), r.tries, output, failure}, nil
}

// count adds results to the job's sums.
func (j *Job) count(news []*result, now time.Time) {
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
			continue // what puts the others together is none of them
		}
		switch r.status {
		case taskCompleted:
			j.Completed++
		case taskFailed, taskCancelled:
			j.Failed++
		}
	}
}

// advance takes a job a step on, now that tasks of it have ended.
func (s *Service) advance(ctx context.Context, tx *db.Tx, j *Job, list []*result) error {
	if j.CompletedAt != nil {
		return nil
	}
	var ended Status
	var why *events.JobError
	broken, last := outcomes(j, list)
	switch j.Kind {
	case Images:
		if ended, why = s.advanceImages(j); ended == Failed {
			var err error
			if why, err = whyAllFailed(ctx, tx, j); err != nil {
				return err
			}
		}
	case Video:
		ended, why = s.advanceVideo(j.Completed == j.Total, broken)
	case Voice:
		ended, why = s.advanceVoice(j, last != nil, broken)
		if ended == "" && j.Completed == j.Total {
			if err := s.letStitch(ctx, tx, j); err != nil {
				return err
			}
		}
	}
	if ended == "" {
		return saveJob(ctx, tx, j)
	}
	if ended == Completed && j.Kind != Images {
		done := last
		if done == nil {
			done = list[0]
		}
		output, err := json.Marshal(done.output)
		if err != nil {
			return err
		}
		j.Output = output
	}
	return s.finish(ctx, tx, j, ended, why)
}

// outcomes are the failure that breaks a job of one piece, and the result of
// the task that puts a render together.
func outcomes(j *Job, list []*result) (broken *events.JobError, last *result) {
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

// letStitch makes the last task due, once.
func (s *Service) letStitch(ctx context.Context, tx *db.Tx, j *Job) error {
	now := s.now()
	n, err := tx.Exec(ctx, "UPDATE media_tasks SET status = $3, due_at = $4 WHERE job_id = $1 AND position = $2 AND status = $5",
		j.ID, j.Total, taskWaiting, now.UnixMicro(), taskLater)
	if err != nil {
		return fmt.Errorf("stitch: %w", err)
	}
	if n == 0 {
		return nil
	}
	return s.wake(ctx, tx, j.Lane, now)
}
