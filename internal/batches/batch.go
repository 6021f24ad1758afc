package batches

import (
	"context"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/apifiles"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Endpoint is where the requests of a batch go.
type Endpoint string

// The endpoints.
const (
	ChatCompletions Endpoint = "/v1/chat/completions"
	Responses       Endpoint = "/v1/responses"
	Embeddings      Endpoint = "/v1/embeddings"
	Messages        Endpoint = "/v1/messages"
)

// Endpoints are all endpoints.
var Endpoints = []Endpoint{ChatCompletions, Responses, Embeddings, Messages}

// scopes are what a key needs besides batches:create.
var scopes = map[Endpoint]access.Scope{ChatCompletions: access.ChatCompletionsCreate, Responses: access.ResponsesCreate,
	Embeddings: access.EmbeddingsCreate, Messages: access.MessagesCreate}

// Status is the state of a batch, as in OpenAI's API.
type Status string

// The states. The table below lists their transitions.
const (
	Validating Status = "validating"
	InProgress Status = "in_progress"
	Finalizing Status = "finalizing" // no line is started anymore
	Cancelling Status = "cancelling" // no line is started anymore
	Completed  Status = "completed"
	Failed     Status = "failed" // its input is invalid
	Expired    Status = "expired"
	Cancelled  Status = "cancelled"
)

// Statuses are all states.
var Statuses = []Status{Validating, InProgress, Finalizing, Cancelling, Completed, Failed, Expired, Cancelled}

var transitions = map[Status][]Status{
	Validating: {InProgress, Failed, Cancelling, Finalizing},
	InProgress: {Finalizing, Cancelling},
	Finalizing: {Completed, Expired},
	Cancelling: {Cancelled},
}

// Ended reports whether the state is final.
func (s Status) Ended() bool { return transitions[s] == nil }

// runs reports whether lines may start.
func (s Status) runs() bool { return s == Validating || s == InProgress }

// InputError is a problem of the input file.
type InputError struct {
	Code    string  `json:"code"`
	Line    *int64  `json:"line"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
}

// RequestOptions are what the requests of a batch have in common.
type RequestOptions struct {
	IP        string   `json:"ip,omitzero"`
	UserAgent string   `json:"user_agent,omitzero"`
	Version   string   `json:"version,omitzero"` // of Anthropic's API
	Beta      []string `json:"beta,omitzero"`    // the anthropic-beta headers
}

// Batch is a batch as it is stored.
type Batch struct {
	ID string
	accounts.Tenant
	Project      string
	KeyID        string
	Lane         string
	Status       Status
	Endpoint     Endpoint
	Options      RequestOptions
	InputFileID  string
	InputSHA256  string
	InputBytes   int64
	OutputLife   time.Duration
	Metadata     map[string]string
	Total        int64
	Completed    int64
	Failed       int64
	Cancelled    int64 // lines that didn't run, because the batch was canceled
	Expired      int64 // lines that didn't run in time
	Loaded       bool
	InputTokens  int64
	OutputTokens int64
	Cost         credits.Micro
	OutputFileID string
	ErrorFileID  string
	Errors       []InputError
	CreatedAt    time.Time
	InProgressAt *time.Time
	ExpiresAt    time.Time
	FinalizingAt *time.Time
	CancellingAt *time.Time
	EndedAt      *time.Time

	// Of a batch that a provider's batch API runs.

	Provider         string // empty if the lines are called one by one
	UpstreamID       string // of the batch at the provider
	SubmittingAt     *time.Time
	UpstreamCancelAt *time.Time
	Accounts         string // that the previous version charges all lines to
}

// Pending returns how many lines haven't ended.
func (b *Batch) Pending() int64 { return b.Total - b.Completed - b.Failed - b.Cancelled - b.Expired }

// isMessageBatch reports whether the batch was created by Anthropic's API.
func (b *Batch) isMessageBatch() bool { return ids.Valid(ids.MessageBatch, b.ID) }

// input returns the file with the batch's requests, which may be deleted already.
func (b *Batch) input() *apifiles.File {
	return &apifiles.File{ID: b.InputFileID, Tenant: b.Tenant, Bytes: b.InputBytes, SHA256: b.InputSHA256}
}

// transition changes the state along the table.
func (b *Batch) transition(to Status, now time.Time) error {
	if !slices.Contains(transitions[b.Status], to) {
		return fmt.Errorf("batches: a batch cannot change from %s to %s", b.Status, to)
	}
	b.Status = to
	switch to {
	case InProgress:
		b.InProgressAt = &now
	case Finalizing:
		b.FinalizingAt = &now
	case Cancelling:
		b.CancellingAt = &now
	default:
		b.EndedAt = &now
	}
	return nil
}

const columns = `id, workspace_id, environment, project, key_id, lane, status, endpoint, options, input_file_id, input_sha256, input_bytes, output_life, metadata,
	total, completed, failed, cancelled, expired, loaded, input_tokens, output_tokens, cost, output_file_id, error_file_id, errors,
	created_at, in_progress_at, expires_at, finalizing_at, cancelling_at, ended_at, provider, upstream_id, submitting_at, upstream_cancel_at, accounts`

// fields returns the destinations of columns for db.Scan.
func (b *Batch) fields() []any {
	return []any{&b.ID, &b.WorkspaceID, &b.Environment, &b.Project, &b.KeyID, &b.Lane, &b.Status, &b.Endpoint, &b.Options, &b.InputFileID, &b.InputSHA256, &b.InputBytes, &b.OutputLife, &b.Metadata,
		&b.Total, &b.Completed, &b.Failed, &b.Cancelled, &b.Expired, &b.Loaded, &b.InputTokens, &b.OutputTokens, &b.Cost, &b.OutputFileID, &b.ErrorFileID, &b.Errors,
		&b.CreatedAt, &b.InProgressAt, &b.ExpiresAt, &b.FinalizingAt, &b.CancellingAt, &b.EndedAt,
		&b.Provider, &b.UpstreamID, &b.SubmittingAt, &b.UpstreamCancelAt, &b.Accounts}
}

var scan = db.Scanner((*Batch).fields)

func insert(ctx context.Context, tx *db.Tx, b *Batch) error {
	_, err := tx.Exec(ctx, db.Insert("batches", columns), b.ID, b.WorkspaceID, b.Environment, db.OrNull(b.Project), b.KeyID, b.Lane, b.Status, b.Endpoint, db.JSON(b.Options),
		b.InputFileID, b.InputSHA256, b.InputBytes, b.OutputLife.Microseconds(), db.JSON(b.Metadata), b.Total, 0, 0, 0, 0, false, 0, 0, 0, nil, nil, nil,
		b.CreatedAt.UnixMicro(), nil, b.ExpiresAt.UnixMicro(), nil, nil, nil, nil, nil, nil, nil, nil)
	return db.Wrap(err, "store batch")
}

// save writes the columns that change. The caller holds the row's lock.
func save(ctx context.Context, tx *db.Tx, b *Batch) error {
	var problems any
	if len(b.Errors) > 0 {
		problems = db.JSON(b.Errors)
	}
	_, err := tx.Exec(ctx, `UPDATE batches SET status = $2, total = $3, completed = $4, failed = $5, cancelled = $6, expired = $7, loaded = $8, input_tokens = $9, output_tokens = $10,
		cost = $11, output_file_id = $12, error_file_id = $13, errors = $14, in_progress_at = $15, finalizing_at = $16, cancelling_at = $17, ended_at = $18,
		provider = $19, upstream_id = $20, submitting_at = $21, upstream_cancel_at = $22, accounts = $23 WHERE id = $1`,
		b.ID, string(b.Status), b.Total, b.Completed, b.Failed, b.Cancelled, b.Expired, b.Loaded, b.InputTokens, b.OutputTokens, int64(b.Cost),
		db.OrNull(b.OutputFileID), db.OrNull(b.ErrorFileID), problems, db.Micros(b.InProgressAt), db.Micros(b.FinalizingAt), db.Micros(b.CancellingAt), db.Micros(b.EndedAt),
		db.OrNull(b.Provider), db.OrNull(b.UpstreamID), db.Micros(b.SubmittingAt), db.Micros(b.UpstreamCancelAt), db.OrNull(b.Accounts))
	return db.Wrap(err, "save batch")
}

// lock locks batches and returns those that still exist, in the order of their IDs.
func lock(ctx context.Context, tx *db.Tx, ids ...string) ([]*Batch, error) {
	places, args := db.Places(nil, ids)
	list, err := db.List(ctx, tx, scan, "SELECT "+columns+" FROM batches WHERE id IN "+places+" ORDER BY id"+tx.Lock("batches"), args...)
	return list, db.Wrap(err, "read batches")
}

// Get returns a batch that the principal may see. The prefix is that of the IDs of its API.
func (s *Service) Get(ctx context.Context, q db.Querier, p *access.Principal, id string) (*Batch, error) {
	return find(ctx, q, p, id, "")
}

func find(ctx context.Context, q db.Querier, p *access.Principal, id, lock string) (*Batch, error) {
	b, err := db.FindOne(ctx, q, db.Search{Table: "batches", Columns: columns, Where: p.Visibility().Rows(), Lock: lock}, id, scan)
	return b, db.OrNoSuch(err, "batch", id)
}

// Filter selects batches.
type Filter struct {
	Prefix string // of the IDs of an API
	Status Status // or empty for all
	visibility.WorkSearch
}

// List returns a page of the batches that the principal may see.
func (s *Service) List(ctx context.Context, q db.Querier, p *access.Principal, f Filter, page db.Page) (*db.Found[*Batch], error) {
	return db.Find(ctx, q, f.search(p), page, db.Record[*Batch]{Scan: scan, ID: func(b *Batch) string { return b.ID }})
}

// Count counts these batches over time, as far as a bounded scan goes.
func (s *Service) Count(ctx context.Context, q db.Querier, p *access.Principal, f Filter, t db.Timeline) (*db.TimelineCounts, error) {
	t.Failed = "status = 'failed' OR status = 'expired'"
	return db.CountRows(ctx, q, f.search(p), t)
}

func (f Filter) search(p *access.Principal) db.Search {
	search := db.Search{Table: "batches", Columns: columns, Where: p.Visibility().Rows()}
	search.Where.Bound(">=", f.Prefix)
	search.Where.Bound("<", f.Prefix+"~")
	if f.Status != "" {
		search.Filter.Add("status =", string(f.Status))
	}
	f.Narrow(&search, f.Prefix)
	return search
}
