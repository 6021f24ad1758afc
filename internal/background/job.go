package background

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/lanes"
)

// job is a response that has not ended.
type job struct {
	ID string // of the response
	accounts.Tenant
	Project      string
	KeyID        string
	TokenLimits  *access.TokenLimits
	RequestID    string
	Lane         string
	DueAt        time.Time
	DeadlineAt   time.Time
	CreatedAt    time.Time
	Attempts     int64  // calls to a provider that have started; fences concurrent workers
	Request      string // sealed
	MaxOutput    int64
	Reserved     credits.Micro
	PriceVersion string
	Accounts     json.RawMessage // that are charged
	Model        string
	Provider     string
	InputTokens  int64
	InputCost    credits.Micro
	OutputTokens int64         // so far
	Cost         credits.Micro // of the input, and of the output so far
	NextEvent    int64         // 0 if the response isn't streamed
}

const jobColumns = `id, workspace_id, environment, project, key_id, request_id, lane, due_at, deadline_at, created_at, attempts, request, max_output, reserved,
	price_version, accounts, model, provider, input_tokens, input_cost, output_tokens, cost, next_event, token_limits`

func insertJob(ctx context.Context, tx *db.Tx, j *job) error {
	_, err := tx.Exec(ctx, db.Insert("background_responses", jobColumns), j.ID, j.WorkspaceID, string(j.Environment), db.OrNull(j.Project), j.KeyID, j.RequestID, j.Lane,
		j.DueAt.UnixMicro(), j.DeadlineAt.UnixMicro(), j.CreatedAt.UnixMicro(), j.Attempts, j.Request, j.MaxOutput, int64(j.Reserved), j.PriceVersion,
		db.OrNull(string(j.Accounts)), j.Model, j.Provider, j.InputTokens, int64(j.InputCost), j.OutputTokens, int64(j.Cost), j.NextEvent, db.JSON(j.TokenLimits))
	return db.Wrap(err, "store background response")
}

var scanJob = db.Scanner(func(j *job) []any {
	return []any{&j.ID, &j.WorkspaceID, &j.Environment, &j.Project, &j.KeyID, &j.RequestID, &j.Lane, &j.DueAt, &j.DeadlineAt, &j.CreatedAt, &j.Attempts, &j.Request,
		&j.MaxOutput, &j.Reserved, &j.PriceVersion, &j.Accounts, &j.Model, &j.Provider, &j.InputTokens, &j.InputCost, &j.OutputTokens, &j.Cost, &j.NextEvent, &j.TokenLimits}
})

func (s *Service) load(ctx context.Context, id string) (*job, error) {
	return scanJob(s.DB.QueryRow(ctx, "SELECT "+jobColumns+" FROM background_responses WHERE id = $1", id))
}

// lockedColumns are jobColumns without the request, which may be large.
const lockedColumns = `id, workspace_id, environment, project, key_id, request_id, lane, due_at, deadline_at, created_at, attempts, '', max_output, reserved,
	price_version, accounts, model, provider, input_tokens, input_cost, output_tokens, cost, next_event, token_limits`

// lock locks the jobs that have not ended, in the order of their IDs.
func lock(ctx context.Context, tx *db.Tx, ids []string) (map[string]*job, error) {
	slices.Sort(ids)
	places, args := db.Places(nil, slices.Compact(ids))
	list, err := db.List(ctx, tx, scanJob, "SELECT "+lockedColumns+" FROM background_responses WHERE id IN "+places+" ORDER BY id"+tx.Lock("background_responses"), args...)
	out := make(map[string]*job, len(list))
	for _, j := range list {
		out[j.ID] = j
	}
	return out, db.Wrap(err, "lock background responses")
}

func (j *job) streamed() bool { return j.NextEvent > 0 }

func requestPlace(id string) string { return "response/" + id + "/request" }

func (s *Service) seal(id string, r *responses.Request) (string, error) {
	plain, err := jsonv2.Marshal(r.Save())
	return s.Ring.Seal(plain, requestPlace(id)), err
}

// open returns the job's request.
func (s *Service) open(j *job) (*responses.Request, error) {
	plain, err := s.Ring.Open(j.Request, requestPlace(j.ID))
	if err != nil {
		return nil, fmt.Errorf("request of %s: %w", j.ID, err)
	}
	var saved responses.Saved
	if err := jsonv2.Unmarshal(plain, &saved); err != nil {
		return nil, fmt.Errorf("request of %s: %w", j.ID, err)
	}
	r, err := saved.Restore()
	if err != nil {
		return nil, fmt.Errorf("request of %s: %w", j.ID, err)
	}
	r.ID, r.Now, r.Stored, r.CreatedAt = j.RequestID, s.Now, true, j.CreatedAt
	return r, nil
}

// wake marks a lane as having work.
func wake(ctx context.Context, tx *db.Tx, j *job) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{j.Lane: j.DueAt})
}
