package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
)

// Kind is what a job makes.
type Kind string

// The kinds.
const (
	Images Kind = "image"
	Video  Kind = "video"
	Voice  Kind = "voice"
)

// kinds says, for each, how its ids begin and what people call it.
var kinds = map[Kind]struct{ prefix, noun string }{
	Images: {ids.ImageBatch, "image batch"},
	Video:  {ids.Video, "video"},
	Voice:  {ids.Voice, "voice render"},
}

// Prefix is that of the kind's ids.
func (k Kind) Prefix() string { return kinds[k].prefix }

// Noun is what people call it.
func (k Kind) Noun() string { return kinds[k].noun }

// Status is how far a job has come.
type Status string

// The states. Which moves there are stands in the table below.
const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
	Cancelling Status = "cancelling"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// moves are all that there are. Pollers of videos know no other states than
// these four, so there a cancel is a failure.
var moves = map[Kind]map[Status][]Status{
	Images: {
		Queued:     {InProgress, Cancelled, Failed},
		InProgress: {Completed, Failed, Cancelling},
		Cancelling: {Cancelled},
	},
	Video: {
		Queued:     {InProgress, Failed},
		InProgress: {Completed, Failed},
	},
	Voice: {
		Queued:     {InProgress, Cancelled},
		InProgress: {Completed, Failed, Cancelled},
	},
}

// Ended reports whether nothing follows.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Job is a record.
type Job struct {
	ID           string
	Kind         Kind
	WorkspaceID  string
	Environment  accounts.Environment
	Project      string
	KeyID        string
	Reader       string
	RequestID    string
	Lane         string
	Status       Status
	Models       []string
	Model        string
	Provider     string
	Input        json.RawMessage
	Metadata     map[string]string
	Total        int64
	Completed    int64
	Failed       int64
	Progress     int64
	Reserved     credits.Micro
	Cost         credits.Micro
	PriceVersion string
	Accounts     json.RawMessage // that are charged
	Output       json.RawMessage
	Error        *events.JobError
	CreatedAt    time.Time
	StartedAt    *time.Time
	DeadlineAt   time.Time
	CompletedAt  *time.Time
}

// Owner is whose the job's files are.
func (j *Job) Owner() files.Owner {
	return files.Owner{WorkspaceID: j.WorkspaceID, Environment: string(j.Environment)}
}

// move changes the state, which must be one of the moves.
func (j *Job) move(to Status) error {
	for _, next := range moves[j.Kind][j.Status] {
		if next == to {
			j.Status = to
			return nil
		}
	}
	return fmt.Errorf("media: a %s that is %s cannot become %s", j.Kind.Noun(), j.Status, to)
}

const jobColumns = `id, kind, workspace_id, environment, project, key_id, reader, request_id, lane, status, models, model, provider, input, metadata,
	total, completed, failed, progress, reserved, cost, price_version, output, error, created_at, started_at, deadline_at, completed_at, accounts`

func insertJob(ctx context.Context, tx *db.Tx, j *Job) error {
	models, metadata, err := j.listsAsJSON()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO media_jobs ("+jobColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
		$16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)`,
		j.ID, string(j.Kind), j.WorkspaceID, string(j.Environment), db.OrNull(j.Project), j.KeyID, j.Reader, j.RequestID, j.Lane, string(j.Status),
		models, j.Model, db.OrNull(j.Provider), string(j.Input), metadata, j.Total, j.Completed, j.Failed, j.Progress,
		int64(j.Reserved), int64(j.Cost), j.PriceVersion, db.OrNull(string(j.Output)), nil, j.CreatedAt.UnixMicro(), nil, j.DeadlineAt.UnixMicro(), nil, db.OrNull(string(j.Accounts)))
	if err != nil {
		return fmt.Errorf("store job: %w", err)
	}
	return nil
}

func (j *Job) listsAsJSON() (models, metadata string, err error) {
	m, err := json.Marshal(j.Models)
	if err != nil {
		return "", "", err
	}
	d, err := json.Marshal(j.Metadata)
	return string(m), string(d), err
}

// saveJob writes what changes in a job's life. The caller holds its row.
func saveJob(ctx context.Context, tx *db.Tx, j *Job) error {
	failure, err := errorJSON(j.Error)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE media_jobs SET status = $2, model = $3, provider = $4, completed = $5, failed = $6, progress = $7, cost = $8,
		output = $9, error = $10, started_at = $11, completed_at = $12 WHERE id = $1`,
		j.ID, string(j.Status), j.Model, db.OrNull(j.Provider), j.Completed, j.Failed, j.Progress, int64(j.Cost),
		db.OrNull(string(j.Output)), failure, db.Micros(j.StartedAt), db.Micros(j.CompletedAt))
	if err != nil {
		return fmt.Errorf("save job: %w", err)
	}
	return nil
}

func errorJSON(e *events.JobError) (any, error) {
	if e == nil {
		return nil, nil
	}
	text, err := json.Marshal(e)
	return string(text), err
}

func scanJob(r db.Row) (*Job, error) {
	var j Job
	var kind, env, status, models, input, metadata string
	var project, provider, output, failure, accountList *string
	var created, deadline int64
	var started, completed *int64
	err := r.Scan(&j.ID, &kind, &j.WorkspaceID, &env, &project, &j.KeyID, &j.Reader, &j.RequestID, &j.Lane, &status, &models, &j.Model, &provider, &input,
		&metadata, &j.Total, &j.Completed, &j.Failed, &j.Progress, (*int64)(&j.Reserved), (*int64)(&j.Cost), &j.PriceVersion, &output, &failure,
		&created, &started, &deadline, &completed, &accountList)
	if err != nil {
		return nil, err
	}
	j.Kind, j.Environment, j.Status = Kind(kind), accounts.Environment(env), Status(status)
	j.Project, j.Provider = db.Text(project), db.Text(provider)
	j.Input, j.Output, j.Accounts = json.RawMessage(input), json.RawMessage(db.Text(output)), json.RawMessage(db.Text(accountList))
	j.CreatedAt, j.DeadlineAt = time.UnixMicro(created), time.UnixMicro(deadline)
	j.StartedAt, j.CompletedAt = db.Time(started), db.Time(completed)
	if err := json.Unmarshal([]byte(models), &j.Models); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	if err := json.Unmarshal([]byte(metadata), &j.Metadata); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	j.Error, err = readError(failure)
	return &j, err
}

func readError(text *string) (*events.JobError, error) {
	if text == nil {
		return nil, nil
	}
	var e events.JobError
	if err := json.Unmarshal([]byte(*text), &e); err != nil {
		return nil, fmt.Errorf("read error: %w", err)
	}
	return &e, nil
}

// Get returns a job of the principal's.
func (s *Service) Get(ctx context.Context, q db.Querier, p *access.Principal, k Kind, id string) (*Job, error) {
	return s.get(ctx, q, p, k, id, "")
}

func (s *Service) get(ctx context.Context, q db.Querier, p *access.Principal, k Kind, id, lock string) (*Job, error) {
	search := db.Search{Table: "media_jobs", Columns: jobColumns, Where: p.Visibility().Work()}
	search.Where.Add("kind =", string(k))
	j, err := db.FindOne(ctx, q, search, id, lock, scanJob)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch(k.Noun(), id)
	}
	return j, err
}

// List returns a page of the principal's jobs.
func (s *Service) List(ctx context.Context, q db.Querier, p *access.Principal, k Kind, status Status, page db.Page) (*db.Found[*Job], error) {
	vis := p.Visibility()
	search := db.Search{Table: "media_jobs", Columns: jobColumns, Where: vis.Rows()}
	search.Where.Add("kind =", string(k))
	if vis.Reader != "" {
		search.Filter.Add("reader =", vis.Reader)
	}
	if status != "" {
		search.Filter.Add("status =", string(status))
	}
	return db.Find(ctx, q, search, page, scanJob, func(j *Job) string { return j.ID })
}
