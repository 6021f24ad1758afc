package media

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Kind is the kind of media that a job creates.
type Kind string

// The kinds.
const (
	Images     Kind = "image"
	Video      Kind = "video"
	Voice      Kind = "voice"
	Transcript Kind = "transcription"
)

// kinds has the prefix of the IDs and the noun for each kind.
var kinds = map[Kind]struct{ prefix, noun string }{
	Images: {ids.ImageBatch, "image batch"},
	Video:  {ids.Video, "video"},
	Voice:  {ids.Voice, "voice render"},

	Transcript: {ids.Transcript, "transcription"},
}

// Prefix returns the prefix of the kind's IDs.
func (k Kind) Prefix() string { return kinds[k].prefix }

// Noun returns the name for messages.
func (k Kind) Noun() string { return kinds[k].noun }

// Status is the state of a job.
type Status string

// The states. The table below lists their transitions.
const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
	Cancelling Status = "cancelling"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// transitions lists the states that can follow each state. The videos API has only
// four states, so a canceled video is a failed one.
var transitions = map[Kind]map[Status][]Status{
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
	Transcript: {
		Queued:     {InProgress, Cancelled},
		InProgress: {Completed, Failed, Cancelled},
	},
}

// Ended reports whether the state is final.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Job is a job as it is stored.
type Job struct {
	ID   string
	Kind Kind
	accounts.Tenant
	Project      string
	KeyID        string
	Reader       string
	TokenLimits  *access.TokenLimits
	RequestID    string
	Lane         string
	Status       Status
	Models       []string
	Model        string
	Provider     string
	Input        json.RawMessage
	Preview      string // the beginning of the prompt or text; empty in jobs of older versions
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

// transition changes the state along the table.
func (j *Job) transition(to Status) error {
	if slices.Contains(transitions[j.Kind][j.Status], to) {
		j.Status = to
		return nil
	}
	return fmt.Errorf("media: a %s cannot change from %s to %s", j.Kind.Noun(), j.Status, to)
}

const jobColumns = `id, kind, workspace_id, environment, project, key_id, reader, request_id, lane, status, models, model, provider, input, metadata,
	total, completed, failed, progress, reserved, cost, price_version, output, error, created_at, started_at, deadline_at, completed_at, accounts, token_limits, preview`

func insertJob(ctx context.Context, tx *db.Tx, j *Job) error {
	_, err := tx.Exec(ctx, db.Insert("media_jobs", jobColumns),
		j.ID, j.Kind, j.WorkspaceID, j.Environment, db.OrNull(j.Project), j.KeyID, j.Reader, j.RequestID, j.Lane, j.Status,
		db.JSON(j.Models), j.Model, db.OrNull(j.Provider), string(j.Input), db.JSON(j.Metadata), j.Total, j.Completed, j.Failed, j.Progress,
		int64(j.Reserved), int64(j.Cost), j.PriceVersion, db.OrNull(string(j.Output)), nil, j.CreatedAt.UnixMicro(), nil, j.DeadlineAt.UnixMicro(), nil, db.OrNull(string(j.Accounts)), db.JSON(j.TokenLimits), db.OrNull(j.Preview))
	return db.Wrap(err, "store job")
}

// saveJob writes the columns that change. The caller holds the row's lock.
func saveJob(ctx context.Context, tx *db.Tx, j *Job) error {
	_, err := tx.Exec(ctx, `UPDATE media_jobs SET status = $2, model = $3, provider = $4, completed = $5, failed = $6, progress = $7, cost = $8,
		output = $9, error = $10, started_at = $11, completed_at = $12 WHERE id = $1`,
		j.ID, string(j.Status), j.Model, db.OrNull(j.Provider), j.Completed, j.Failed, j.Progress, int64(j.Cost),
		db.OrNull(string(j.Output)), db.JSON(j.Error), db.Micros(j.StartedAt), db.Micros(j.CompletedAt))
	return db.Wrap(err, "save job")
}

var scanJob = db.Scanner((*Job).fields)

// fields returns the destinations of jobColumns for db.Scan.
func (j *Job) fields() []any {
	return []any{&j.ID, &j.Kind, &j.WorkspaceID, &j.Environment, &j.Project, &j.KeyID, &j.Reader, &j.RequestID, &j.Lane, &j.Status, &j.Models, &j.Model, &j.Provider,
		&j.Input, &j.Metadata, &j.Total, &j.Completed, &j.Failed, &j.Progress, &j.Reserved, &j.Cost, &j.PriceVersion, &j.Output, &j.Error,
		&j.CreatedAt, &j.StartedAt, &j.DeadlineAt, &j.CompletedAt, &j.Accounts, &j.TokenLimits, &j.Preview}
}

// Get returns a job that the principal may see.
func (s *Service) Get(ctx context.Context, q db.Querier, p *access.Principal, k Kind, id string) (*Job, error) {
	return find(ctx, q, jobKey{p, k, id}, "")
}

type jobKey struct {
	principal *access.Principal
	kind      Kind
	id        string
}

func find(ctx context.Context, q db.Querier, key jobKey, lock string) (*Job, error) {
	search := db.Search{Table: "media_jobs", Columns: jobColumns, Where: key.principal.Visibility().Work()}
	search.Where.Add("kind =", string(key.kind))
	search.Lock = lock
	j, err := db.FindOne(ctx, q, search, key.id, scanJob)
	return j, db.OrNoSuch(err, key.kind.Noun(), key.id)
}

// Filter selects jobs of a kind, and of a status unless it is empty.
type Filter struct {
	Kind   Kind
	Status Status // empty for all
	visibility.WorkSearch
}

// List returns a page of the jobs that the principal may see.
func (s *Service) List(ctx context.Context, q db.Querier, p *access.Principal, f Filter, page db.Page) (*db.Found[*Job], error) {
	return db.Find(ctx, q, f.search(p), page, db.Record[*Job]{Scan: scanJob, ID: func(j *Job) string { return j.ID }})
}

// Count counts these jobs over time, as far as a bounded scan goes.
func (s *Service) Count(ctx context.Context, q db.Querier, p *access.Principal, f Filter, t db.Timeline) (*db.TimelineCounts, error) {
	t.Failed = "status = 'failed'"
	return db.CountRows(ctx, q, f.search(p), t)
}

func (f Filter) search(p *access.Principal) db.Search {
	vis := p.Visibility()
	search := db.Search{Table: "media_jobs", Columns: jobColumns, Where: vis.Rows()}
	search.Where.Add("kind =", string(f.Kind))
	if vis.Reader != "" {
		search.Filter.Add("reader =", vis.Reader)
	}
	if f.Status != "" {
		search.Filter.Add("status =", string(f.Status))
	}
	f.Narrow(&search, f.Kind.Prefix())
	return search
}
