package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/credits"
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
	RunID        string
	Number       int64
	ID           string
	RequestID    string
	Status       string
	Model        string
	Provider     string
	InputTokens  int64
	OutputTokens int64
	Credits      credits.Micro
	Text         string
	Error        *events.AgentError
	CreatedAt    time.Time
	CompletedAt  *time.Time
}

var writeSteps = db.NewBulk("agent_steps", db.Upsert("run_id, number", "request_id", "status", "model", "provider", "input_tokens", "output_tokens", "credits",
	"text", "error", "completed_at"),
	"run_id text", "number bigint", "id text", "request_id text", "status text", "model text", "provider text", "input_tokens bigint", "output_tokens bigint",
	"credits bigint", "text text", "error text", "created_at bigint", "completed_at bigint")

func (p *Step) row() ([]any, error) {
	var failure any
	if p.Error != nil {
		text, err := json.Marshal(p.Error)
		if err != nil {
			return nil, err
		}
		failure = string(text)
	}
	return []any{p.RunID, p.Number, p.ID, p.RequestID, p.Status, db.OrNull(p.Model), db.OrNull(p.Provider), p.InputTokens, p.OutputTokens, int64(p.Credits),
		db.OrNull(p.Text), failure, p.CreatedAt.UnixMicro(), db.Micros(p.CompletedAt)}, nil
}

func scanStep(row db.Row) (*Step, error) {
	var p Step
	err := db.Scan(row, &p.RunID, &p.Number, &p.ID, &p.RequestID, &p.Status, &p.Model, &p.Provider, &p.InputTokens, &p.OutputTokens, &p.Credits, &p.Text, &p.Error,
		&p.CreatedAt, &p.CompletedAt)
	return &p, err
}

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
	rows, err := q.Query(ctx, "SELECT "+writeSteps.Columns()+" FROM agent_steps WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3", runID, after, int64(limit)+1)
	list, err := db.All(rows, err, scanStep)
	if err != nil {
		return nil, false, fmt.Errorf("read steps: %w", err)
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return list, false, nil
}

// StepNumber returns the number of the step with an ID.
func (s *Service) StepNumber(ctx context.Context, q db.Querier, runID, stepID string) (int64, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT number FROM agent_steps WHERE run_id = $1 AND id = $2", runID, stepID).Scan(&n)
	return n, err
}

// Messages are stored in the format of the chat completions API.
var insertMessages = db.NewBulk("agent_messages", "", "run_id text", "position bigint", "message text")

func (s *Service) conversation(ctx context.Context, runID string) ([]json.RawMessage, error) {
	rows, err := s.db.Query(ctx, "SELECT message FROM agent_messages WHERE run_id = $1 ORDER BY position", runID)
	return db.All(rows, err, func(r db.Row) (json.RawMessage, error) {
		var text string
		err := r.Scan(&text)
		return json.RawMessage(text), err
	})
}
