package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
)

// RequestSummary holds the settings of a whole job. Those of other kinds are empty.
type RequestSummary struct {
	Prompt     string `json:"prompt"` // of a video
	Seconds    int    `json:"seconds"`
	Size       string `json:"size"`
	Voice      string `json:"voice"` // of a voice render
	Format     string `json:"format"`
	Characters int64  `json:"characters"`

	Milliseconds int64 `json:"milliseconds"` // of a file to transcribe
}

// Summary returns the settings of the job. The requests of a batch and the pieces of
// a text are parts.
func (j *Job) Summary() (RequestSummary, error) {
	var a RequestSummary
	err := json.Unmarshal(j.Input, &a)
	return a, db.Wrap(err, "read job")
}

// NamedFile is a file of a job and its name.
type NamedFile struct {
	files.File
	Name    string
	Variant string // of a video: the video or its thumbnail
}

// Files returns the files of the whole job. A batch has its files in its parts.
func (j *Job) Files() ([]NamedFile, error) {
	m, err := readOutput(j.Output)
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	a, err := j.Summary()
	if err != nil {
		return nil, err
	}
	out := make([]NamedFile, len(m.Files))
	for i, f := range m.Files {
		name := j.ID + Extension(f.ContentType)
		switch j.Kind {
		case Voice:
			name = j.ID + "." + a.Format
		case Transcript:
			name = transcriptName(j, a.Format)
		}
		out[i] = NamedFile{f.file(), name, f.Variant}
	}
	return out, nil
}

// Part is a request of a batch, or a piece of a voice render.
type Part struct {
	Position int64
	Name     string          // the custom ID of a request
	Status   string          // queued, completed, failed or cancelled
	Text     string          // the prompt, or the text of a piece
	Input    json.RawMessage // of a request
	Voice    string
	PauseMS  int64
	Files    []NamedFile
	Error    *events.JobError
}

// PartsPage selects parts of a job.
type PartsPage struct {
	OnlyFailed bool
	After      int64 // position of the last part of the previous page, or -1
	Limit      int
}

// Parts returns a page of a job's parts in order, and whether there are more.
func (s *Service) Parts(ctx context.Context, q db.Querier, j *Job, page PartsPage) ([]*Part, bool, error) {
	query := "SELECT " + taskColumns + " FROM media_tasks WHERE job_id = $1 AND position > $2 AND position < $3"
	if page.OnlyFailed {
		query += " AND status IN ('" + taskFailed + "', '" + taskCancelled + "')"
	}
	tasks, err := db.List(ctx, q, scanTask, query+" ORDER BY position LIMIT $4", j.ID, page.After, j.Total, int64(page.Limit)+1)
	if err != nil {
		return nil, false, fmt.Errorf("read parts: %w", err)
	}
	tasks, more := db.Cut(db.Page{Limit: page.Limit}, tasks)
	out := make([]*Part, len(tasks))
	for i, t := range tasks {
		if out[i], err = partOf(j, t); err != nil {
			return nil, false, err
		}
	}
	return out, more, nil
}

// FirstImages returns the first images of batches, by their IDs. The IDs must be of jobs that the caller may see.
func (s *Service) FirstImages(ctx context.Context, q db.Querier, list []*Job, most int) (map[string][]NamedFile, error) {
	byID := make(map[string]*Job, len(list))
	names := make([]string, len(list))
	for i, j := range list {
		byID[j.ID], names[i] = j, j.ID
	}
	out := make(map[string][]NamedFile, len(list))
	query := db.InQuery{SQL: "SELECT job_id, position, output FROM media_tasks WHERE status = '" + taskCompleted + "' AND position < $1 AND job_id IN", Args: []any{int64(most)}}
	err := db.ByIDs(ctx, q, query, names, func(r db.Row) error {
		var t task
		if err := db.Scan(r, &t.JobID, &t.Position, &t.Output); err != nil {
			return err
		}
		m, err := readOutput(t.Output)
		for n, f := range m.Files {
			out[t.JobID] = append(out[t.JobID], NamedFile{File: f.file(), Name: fileName(byID[t.JobID], &t, n, f)})
		}
		return err
	})
	for id, found := range out {
		slices.SortFunc(found, func(a, b NamedFile) int { return strings.Compare(a.Name, b.Name) })
		out[id] = found[:min(len(found), most)]
	}
	return out, db.Wrap(err, "read images")
}

// Part returns the part at a position.
func (s *Service) Part(ctx context.Context, q db.Querier, j *Job, position int64) (*Part, error) {
	t, err := scanTask(q.QueryRow(ctx, "SELECT "+taskColumns+" FROM media_tasks WHERE job_id = $1 AND position = $2 AND position < $3", j.ID, position, j.Total))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.New(fault.NotFound, "The %s has no part %d.", j.Kind.Noun(), position)
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
		return p, nil // its file becomes part of the whole
	}
	p.Text, p.Input = promptOf(t.Input), t.Input
	m, err := readOutput(t.Output)
	if err != nil {
		return nil, fmt.Errorf("read part: %w", err)
	}
	for n, f := range m.Files {
		p.Files = append(p.Files, NamedFile{File: f.file(), Name: fileName(j, t, n, f)})
	}
	return p, nil
}

// promptOf returns the prompt of an image request, which was validated.
func promptOf(body json.RawMessage) string {
	var in struct {
		Prompt string `json:"prompt"`
	}
	_ = json.Unmarshal(body, &in)
	return in.Prompt
}

// fileName returns the name of the nth file of a request.
func fileName(j *Job, t *task, n int, f outputFile) string {
	return fmt.Sprintf("%s-%d-%d%s", j.ID, t.Position, n, Extension(f.ContentType))
}
