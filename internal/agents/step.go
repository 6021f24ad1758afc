package agents

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
)

// The states of a step.
const (
	stepStarted   = "started"
	stepCompleted = "completed"
	stepFailed    = "failed"
)

// Step is one answer of the model. It takes several calls if some fail.
type Step struct {
	RunID     string
	Number    int64
	ID        string
	RequestID string
	Status    string
	Model     string
	Provider  string
	usage
	Text        string
	Error       *events.AgentError
	CreatedAt   time.Time
	CompletedAt *time.Time
}

var writeSteps = db.NewBulk("agent_steps", db.Upsert("run_id, number", "request_id", "status", "model", "provider", "input_tokens", "output_tokens", "credits",
	"text", "error", "completed_at"),
	"run_id text", "number bigint", "id text", "request_id text", "status text", "model text", "provider text", "input_tokens bigint", "output_tokens bigint",
	"credits bigint", "text text", "error text", "created_at bigint", "completed_at bigint")

func (p *Step) row() []any {
	return []any{p.RunID, p.Number, p.ID, p.RequestID, p.Status, db.OrNull(p.Model), db.OrNull(p.Provider), p.InputTokens, p.OutputTokens, int64(p.Credits),
		db.OrNull(p.Text), db.JSON(p.Error), p.CreatedAt.UnixMicro(), db.Micros(p.CompletedAt)}
}

var scanStep = db.Scanner(func(p *Step) []any {
	return []any{&p.RunID, &p.Number, &p.ID, &p.RequestID, &p.Status, &p.Model, &p.Provider, &p.InputTokens, &p.OutputTokens, &p.Credits, &p.Text, &p.Error,
		&p.CreatedAt, &p.CompletedAt}
})

// getStep returns a step of a run, or nil.
func getStep(ctx context.Context, q db.Querier, runID string, number int64) (*Step, error) {
	p, err := scanStep(q.QueryRow(ctx, "SELECT "+writeSteps.Columns()+" FROM agent_steps WHERE run_id = $1 AND number = $2", runID, number))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return p, err
}

// Steps returns a page of a run's steps after a step number, in order.
func (s *Service) Steps(ctx context.Context, q db.Querier, runID string, after int64, limit int) ([]*Step, bool, error) {
	list, err := db.List(ctx, q, scanStep, "SELECT "+writeSteps.Columns()+" FROM agent_steps WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3", runID, after, int64(limit)+1)
	list, more := db.Cut(db.Page{Limit: limit}, list)
	return list, more, db.Wrap(err, "read steps")
}

// StepNumber returns the number of the step with an ID.
func (s *Service) StepNumber(ctx context.Context, q db.Querier, runID, stepID string) (int64, error) {
	return db.Value[int64](q.QueryRow(ctx, "SELECT number FROM agent_steps WHERE run_id = $1 AND id = $2", runID, stepID))
}

// Messages are stored in the format of the chat completions API.
var insertMessages = db.NewBulk("agent_messages", "", "run_id text", "position bigint", "message text")

func (s *Service) conversation(ctx context.Context, runID string) ([]json.RawMessage, error) {
	return db.List(ctx, s.DB, db.Value[json.RawMessage], "SELECT message FROM agent_messages WHERE run_id = $1 ORDER BY position", runID)
}
