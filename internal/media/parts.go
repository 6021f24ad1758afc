package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
)

// Asked is what somebody wanted of a job as a whole. What does not belong to
// its kind is empty.
type Asked struct {
	Prompt     string `json:"prompt"` // of a video
	Seconds    int    `json:"seconds"`
	Size       string `json:"size"`
	Voice      string `json:"voice"` // of a text that is read aloud
	Format     string `json:"format"`
	Characters int64  `json:"characters"`
}

// Asked reads it. The requests of a batch and the pieces of a text are parts.
func (j *Job) Asked() (Asked, error) {
	var a Asked
	if err := json.Unmarshal(j.Input, &a); err != nil {
		return a, fmt.Errorf("read job: %w", err)
	}
	return a, nil
}

// Charged is what a job costs its owner.
func (j *Job) Charged() credits.Micro { return j.shownCost() }

// NamedFile is a file that came of a job, and what to call it.
type NamedFile struct {
	files.File
	Name    string
	Variant string // of a video: the video itself, its thumbnail
}

// Files are what the job as a whole came to. A batch's are its parts'.
func (j *Job) Files() ([]NamedFile, error) {
	m, err := readMade(j.Output)
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	a, err := j.Asked()
	if err != nil {
		return nil, err
	}
	out := make([]NamedFile, len(m.Files))
	for i, f := range m.Files {
		name := j.ID + Extension(f.ContentType)
		if j.Kind == Voice {
			name = j.ID + "." + a.Format
		}
		out[i] = NamedFile{f.file(), name, f.Variant}
	}
	return out, nil
}

// Part is a request of a batch, or a piece of a text that is read aloud.
type Part struct {
	Position int64
	Name     string          // the caller's own id of a request
	Status   string          // queued, completed, failed or cancelled
	Text     string          // the prompt, or what is read
	Input    json.RawMessage // of a request, as it came
	Voice    string
	PauseMS  int64
	Files    []NamedFile
	Error    *events.JobError
}

// Parts returns some of a job's parts in their order, perhaps only those that
// came to nothing. The first one's position is 0, and after is that of the last
// one that was seen, or -1.
func (s *Service) Parts(ctx context.Context, q db.Querier, j *Job, onlyFailed bool, after int64, limit int) ([]*Part, bool, error) {
	query := "SELECT " + taskColumns + " FROM media_tasks WHERE job_id = $1 AND position > $2 AND position < $3"
	if onlyFailed {
		query += " AND status IN ('" + taskFailed + "', '" + taskCancelled + "')"
	}
	rows, err := q.Query(ctx, query+" ORDER BY position LIMIT $4", j.ID, after, j.Total, int64(limit)+1)
	tasks, err := db.All(rows, err, scanTask)
	if err != nil {
		return nil, false, fmt.Errorf("read parts: %w", err)
	}
	more := len(tasks) > limit
	tasks = tasks[:min(len(tasks), limit)]
	out := make([]*Part, len(tasks))
	for i, t := range tasks {
		if out[i], err = partOf(j, t); err != nil {
			return nil, false, err
		}
	}
	return out, more, nil
}

// Part returns the one at a position.
func (s *Service) Part(ctx context.Context, q db.Querier, j *Job, position int64) (*Part, error) {
	t, err := scanTask(q.QueryRow(ctx, "SELECT "+taskColumns+" FROM media_tasks WHERE job_id = $1 AND position = $2 AND position < $3", j.ID, position, j.Total))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.New(fault.NotFound, "the %s has no part %d", j.Kind.Noun(), position)
	}
	if err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	return partOf(j, t)
}

func partOf(j *Job, t *task) (*Part, error) {
	p := &Part{Position: t.Position, Name: t.Name, Status: t.Status, Error: t.Error}
	if t.Status == taskWaiting {
		p.Status = string(Queued)
	}
	if j.Kind == Voice {
		var in pieceInput
		if err := json.Unmarshal(t.Input, &in); err != nil {
			return nil, fmt.Errorf("read part: %w", err)
		}
		p.Text, p.Voice, p.PauseMS = in.Text, in.Voice, in.PauseMS
		return p, nil // its file becomes a part of the whole
	}
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	p.Text, p.Input = in.Prompt, t.Input
	m, err := readMade(t.Output)
	if err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	for n, f := range m.Files {
		p.Files = append(p.Files, NamedFile{File: f.file(), Name: fileName(j, t, n, f)})
	}
	return p, nil
}

// fileName is what to call the nth file of a request.
func fileName(j *Job, t *task, n int, f madeFile) string {
	return fmt.Sprintf("%s-%d-%d%s", j.ID, t.Position, n, Extension(f.ContentType))
}
