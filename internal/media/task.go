package media

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/files"
	"turnpike/internal/lanes"
)

// The states of a task.
const (
	taskLater     = "later" // when others are done
	taskWaiting   = "waiting"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// task is a piece of a job.
type task struct {
	JobID    string
	Position int64
	Name     string
	Lane     string
	Status   string
	DueAt    *time.Time
	Attempts int64 // how often it was worked: a guard against two who do
	Tries    int64 // that failed, one after the other
	Input    json.RawMessage
	Output   json.RawMessage
	Error    *events.JobError
}

// made is a task's output: the files that came of it.
type made struct {
	Files []madeFile `json:"files,omitzero"`
	// Rate and Channels are those of a piece of sound, whose file has nothing
	// but samples, and PauseMS the silence after it. Milliseconds is how long
	// the whole is.
	Rate         int   `json:"rate,omitzero"`
	Channels     int   `json:"channels,omitzero"`
	PauseMS      int64 `json:"pause_ms,omitzero"`
	Milliseconds int64 `json:"milliseconds,omitzero"`
	// Upstream is a render's id at its provider, which is looked after until
	// it is done, and Polls how often that was.
	Upstream string `json:"upstream,omitzero"`
	Provider string `json:"provider,omitzero"`
	Cost     int64  `json:"cost,omitzero"` // once it is done
	Polls    int64  `json:"polls,omitzero"`
}

// madeFile is a stored file.
type madeFile struct {
	Variant     string `json:"variant,omitzero"`
	SHA256      string `json:"sha256"`
	Bytes       int64  `json:"bytes"`
	ContentType string `json:"content_type"`
	ExpiresAt   int64  `json:"expires_at,omitzero"` // Unix time of what a job came to; older ones do not have it
}

func newMadeFile(f files.File) madeFile {
	return madeFile{SHA256: f.SHA256, Bytes: f.Bytes, ContentType: f.ContentType}
}

// keptSince is a file that a job came to. Its time began at the moment, or a little
// later.
func (s *Service) keptSince(f files.File, began time.Time) madeFile {
	m := newMadeFile(f)
	m.ExpiresAt = began.Add(s.files.Retention()).Unix()
	return m
}

func (f madeFile) file() files.File {
	return files.File{SHA256: f.SHA256, Bytes: f.Bytes, ContentType: f.ContentType}
}

// readMade reads an output; none is an empty one.
func readMade(output json.RawMessage) (m made, err error) {
	if len(output) > 0 {
		err = json.Unmarshal(output, &m)
	}
	return m, err
}

// item is a task that is due.
type item struct {
	jobID    string
	position int64
	due      int64
}

// Key is the task's place in its lane.
func (i *item) Key() lanes.Key {
	return lanes.Key{Due: i.due, ID: fmt.Sprintf("%s/%07d", i.jobID, i.position)}
}

const taskColumns = "job_id, position, name, lane, status, due_at, attempts, tries, input, output, error"

var insertTasks = db.NewBulk("media_tasks", "", "job_id text", "position bigint", "name text", "lane text", "status text", "due_at bigint",
	"attempts bigint", "tries bigint", "input text")

func (t *task) row() []any {
	return []any{t.JobID, t.Position, t.Name, t.Lane, t.Status, db.Moment(t.DueAt), t.Attempts, t.Tries, string(t.Input)}
}

var updateTasks = db.NewBulkUpdate("media_tasks", `status = v.status, due_at = v.due_at, attempts = media_tasks.attempts + 1, tries = v.tries,
	output = v.output, error = v.error`, "media_tasks.job_id = v.job_id AND media_tasks.position = v.position",
	"job_id text", "position bigint", "status text", "due_at bigint", "tries bigint", "output text", "error text")

func scanTask(r db.Row) (*task, error) {
	var t task
	dest, done := t.dest()
	if err := r.Scan(dest...); err != nil {
		return nil, err
	}
	return &t, done()
}

// dest is where the columns of a task go; done completes it when they are there.
func (t *task) dest() (dest []any, done func() error) {
	var input string
	var output, failure *string
	var due *int64
	return []any{&t.JobID, &t.Position, &t.Name, &t.Lane, &t.Status, &due, &t.Attempts, &t.Tries, &input, &output, &failure}, func() (err error) {
		t.DueAt, t.Input, t.Output = db.Time(due), json.RawMessage(input), json.RawMessage(db.Text(output))
		t.Error, err = readError(failure)
		return err
	}
}

// tasksOf returns a job's tasks in their order, without what went into them.
func tasksOf(ctx context.Context, q db.Querier, jobID string) ([]*task, error) {
	rows, err := q.Query(ctx, "SELECT job_id, position, name, lane, status, due_at, attempts, tries, '', output, error FROM media_tasks WHERE job_id = $1 ORDER BY position", jobID)
	return db.All(rows, err, scanTask)
}

// statesOf reads where tasks of a job stand. The caller holds the job's row.
func statesOf(ctx context.Context, tx *db.Tx, jobID string, positions []int64) (map[int64]*task, error) {
	args, marks := []any{jobID}, make([]string, len(positions))
	for i, n := range positions {
		args = append(args, n)
		marks[i] = fmt.Sprintf("$%d", i+2)
	}
	rows, err := tx.Query(ctx, "SELECT job_id, position, '', lane, status, due_at, attempts, tries, '', NULL, NULL FROM media_tasks WHERE job_id = $1 AND position IN ("+
		strings.Join(marks, ", ")+")", args...)
	list, err := db.All(rows, err, scanTask)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	out := make(map[int64]*task, len(list))
	for _, t := range list {
		out[t.Position] = t
	}
	return out, nil
}
