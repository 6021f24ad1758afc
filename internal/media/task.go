package media

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
)

// The states of a task.
const (
	taskBlocked   = "later" // until the other tasks are done
	taskWaiting   = "waiting"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

type task struct {
	JobID    string
	Position int64
	Name     string
	Lane     string
	Status   string
	DueAt    *time.Time
	Attempts int64 // how often it was worked; fences concurrent workers
	Tries    int64 // consecutive failures
	Input    json.RawMessage
	Output   json.RawMessage
	Error    *events.JobError
}

type taskOutput struct {
	Files []outputFile `json:"files,omitzero"`
	// Rate and Channels describe the samples of a piece of speech, whose file has no
	// header. PauseMS is the pause after it. Milliseconds is the total duration.
	Rate         int   `json:"rate,omitzero"`
	Channels     int   `json:"channels,omitzero"`
	PauseMS      int64 `json:"pause_ms,omitzero"`
	Milliseconds int64 `json:"milliseconds,omitzero"`
	// Upstream is the ID of a render at its provider, and Polls how often it was
	// polled.
	Upstream string `json:"upstream,omitzero"`
	Provider string `json:"provider,omitzero"`
	Cost     int64  `json:"cost,omitzero"` // once it is done
	Polls    int64  `json:"polls,omitzero"`
}

type outputFile struct {
	Variant     string `json:"variant,omitzero"`
	SHA256      string `json:"sha256"`
	Bytes       int64  `json:"bytes"`
	ContentType string `json:"content_type"`
	ExpiresAt   int64  `json:"expires_at,omitzero"` // Unix time; not set by older versions
}

func newOutputFile(f files.File) outputFile {
	return outputFile{SHA256: f.SHA256, Bytes: f.Bytes, ContentType: f.ContentType}
}

// withExpiry returns a file of a job, whose retention began at a time or shortly
// after.
func (s *Service) withExpiry(f files.File, began time.Time) outputFile {
	m := newOutputFile(f)
	m.ExpiresAt = began.Add(s.Files.Retention()).Unix()
	return m
}

func (f outputFile) file() files.File {
	return files.File{SHA256: f.SHA256, Bytes: f.Bytes, ContentType: f.ContentType}
}

// readOutput decodes an output, which may be empty.
func readOutput(output json.RawMessage) (m taskOutput, err error) {
	if len(output) > 0 {
		err = json.Unmarshal(output, &m)
	}
	return m, err
}

const taskColumns = "job_id, position, name, lane, status, due_at, attempts, tries, input, output, error"

var insertTasks = db.NewBulk("media_tasks", "", "job_id text", "position bigint", "name text", "lane text", "status text", "due_at bigint",
	"attempts bigint", "tries bigint", "input text")

func (t *task) row() []any {
	return []any{t.JobID, t.Position, t.Name, t.Lane, t.Status, db.Micros(t.DueAt), t.Attempts, t.Tries, string(t.Input)}
}

var updateTasks = db.NewBulkUpdate("media_tasks", `status = v.status, due_at = v.due_at, attempts = media_tasks.attempts + 1, tries = v.tries,
	output = v.output, error = v.error`, "media_tasks.job_id = v.job_id AND media_tasks.position = v.position",
	"job_id text", "position bigint", "status text", "due_at bigint", "tries bigint", "output text", "error text")

var scanTask = db.Scanner((*task).fields)

// fields returns the destinations of taskColumns for db.Scan.
func (t *task) fields() []any {
	return []any{&t.JobID, &t.Position, &t.Name, &t.Lane, &t.Status, &t.DueAt, &t.Attempts, &t.Tries, &t.Input, &t.Output, &t.Error}
}

// tasksOf returns a job's tasks in order, without their inputs.
func tasksOf(ctx context.Context, q db.Querier, jobID string) ([]*task, error) {
	return db.List(ctx, q, scanTask, "SELECT job_id, position, name, lane, status, due_at, attempts, tries, '', output, error FROM media_tasks WHERE job_id = $1 ORDER BY position", jobID)
}

// taskStates reads the states of tasks. The caller holds the lock of the job's row.
func taskStates(ctx context.Context, tx *db.Tx, jobID string, positions []int64) (map[int64]*task, error) {
	places, args := db.Places([]any{jobID}, positions)
	list, err := db.List(ctx, tx, scanTask, "SELECT job_id, position, '', lane, status, due_at, attempts, tries, '', NULL, NULL FROM media_tasks WHERE job_id = $1 AND position IN "+places, args...)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	out := make(map[int64]*task, len(list))
	for _, t := range list {
		out[t.Position] = t
	}
	return out, nil
}
