package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Run is an agent run as it is stored.
type Run struct {
	ID string
	accounts.Tenant
	Project   string
	KeyID     string
	Reader    string
	RequestID string
	Lane      string
	Status    Status
	Model     string
	Config    config
	Preview   string // the beginning of the input; empty in runs of older versions
	Specs     []tools.Spec
	Secrets   string // encrypted
	Tools     []tools.Tool
	Resolved  bool // Tools is known
	Metadata  map[string]string
	MaxSteps  int64
	StepsUsed int64
	ToolCalls int64 // HTTP and MCP calls that were started
	Revisions int64
	Budget    *credits.Micro
	usage
	Answer      string
	CutStep     int64 // the step whose answer was cut off at the token limit
	Result      *events.AgentResult
	Error       *events.AgentError
	Turn        int64
	Tries       int64
	DueAt       *time.Time
	Worked      time.Duration
	Messages    int64
	Logged      int64
	CreatedAt   time.Time
	StartedAt   *time.Time
	CompletedAt *time.Time

	servers registeredServers // in the current turn
}

// Truncated reports whether the answer was cut off at the token limit.
func (r *Run) Truncated() bool {
	if r.Result != nil {
		return r.Result.Truncated
	}
	return r.CutStep > 0 && r.CutStep == r.StepsUsed
}

// config holds the settings that a run was created with and that no query needs.
type config struct {
	Instructions      string          `json:"instructions,omitzero"`
	TimeoutSeconds    int64           `json:"timeout_seconds,omitzero"`
	ApprovalSeconds   int64           `json:"approval_timeout_seconds"`
	ToolOutputSeconds int64           `json:"tool_output_timeout_seconds"`
	Schema            json.RawMessage `json:"schema,omitzero"`
	Checks            []check         `json:"checks,omitzero"`
	MaxRevisions      int64           `json:"max_revisions,omitzero"`
	IP                string          `json:"ip"` // of the client that created the run
	// Token are the limits of the scoped token that created the run.
	Token *access.TokenLimits `json:"token,omitzero"`
	// ToolMode is the mode at the run's creation. Runs of older versions have
	// none, and use their workspace's.
	ToolMode accounts.ToolMode `json:"tool_mode,omitzero"`
}

const runColumns = `id, workspace_id, environment, project, key_id, reader, request_id, lane, status, model, orders, specs, secrets, tools, metadata,
	max_steps, steps_used, revisions, budget, input_tokens, output_tokens, credits, answer, result, error, turn, tries, due_at, worked_us, messages, logged,
	created_at, started_at, completed_at, cut_step, tool_calls, preview`

func insertRun(ctx context.Context, tx *db.Tx, r *Run) error {
	_, err := tx.Exec(ctx, db.Insert("agent_runs", runColumns),
		r.ID, r.WorkspaceID, r.Environment, db.OrNull(r.Project), r.KeyID, r.Reader, r.RequestID, r.Lane, r.Status, r.Model, db.JSON(r.Config), db.JSON(r.Specs),
		db.OrNull(r.Secrets), nil, db.JSON(r.Metadata), r.MaxSteps, 0, 0, (*int64)(r.Budget), 0, 0, 0, nil, nil, nil, 0, 0, db.Micros(r.DueAt), 0,
		r.Messages, r.Logged, r.CreatedAt.UnixMicro(), nil, nil, 0, 0, db.OrNull(r.Preview))
	return db.Wrap(err, "store run")
}

// saveRuns writes the columns that change. The caller holds the rows' locks.
var saveRuns = db.NewBulkUpdate("agent_runs", `status = v.status, tools = v.tools, steps_used = v.steps_used, revisions = v.revisions,
	input_tokens = v.input_tokens, output_tokens = v.output_tokens, credits = v.credits, answer = v.answer, result = v.result, error = v.error,
	turn = v.turn, tries = v.tries, due_at = v.due_at, worked_us = v.worked_us, messages = v.messages, logged = v.logged,
	started_at = v.started_at, completed_at = v.completed_at, cut_step = v.cut_step, tool_calls = v.tool_calls`, "agent_runs.id = v.id",
	"id text", "status text", "tools text", "steps_used bigint", "revisions bigint", "input_tokens bigint", "output_tokens bigint", "credits bigint",
	"answer text", "result text", "error text", "turn bigint", "tries bigint", "due_at bigint", "worked_us bigint", "messages bigint", "logged bigint",
	"started_at bigint", "completed_at bigint", "cut_step bigint", "tool_calls bigint")

func (r *Run) row() []any {
	var toolList any
	if r.Resolved {
		toolList = db.JSON(r.Tools)
	}
	return []any{r.ID, string(r.Status), toolList, r.StepsUsed, r.Revisions, r.InputTokens, r.OutputTokens, int64(r.Credits), db.OrNull(r.Answer),
		db.JSON(r.Result), db.JSON(r.Error), r.Turn, r.Tries, db.Micros(r.DueAt), r.Worked.Microseconds(), r.Messages, r.Logged, db.Micros(r.StartedAt),
		db.Micros(r.CompletedAt), r.CutStep, r.ToolCalls}
}

func scanRun(row db.Row) (*Run, error) {
	var r Run
	var toolList json.RawMessage
	err := db.Scan(row, &r.ID, &r.WorkspaceID, &r.Environment, &r.Project, &r.KeyID, &r.Reader, &r.RequestID, &r.Lane, &r.Status, &r.Model, &r.Config, &r.Specs, &r.Secrets,
		&toolList, &r.Metadata, &r.MaxSteps, &r.StepsUsed, &r.Revisions, &r.Budget, &r.InputTokens, &r.OutputTokens, &r.Credits, &r.Answer, &r.Result, &r.Error,
		&r.Turn, &r.Tries, &r.DueAt, &r.Worked, &r.Messages, &r.Logged, &r.CreatedAt, &r.StartedAt, &r.CompletedAt, &r.CutStep, &r.ToolCalls, &r.Preview)
	if err == nil && toolList != nil {
		r.Resolved, err = true, json.Unmarshal(toolList, &r.Tools)
	}
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if r.Result != nil && r.Result.Output.Kind() == jsontext.KindNull {
		r.Result.Output = nil
	}
	return &r, nil
}

// Get returns a run that the principal may see.
func (s *Service) Get(ctx context.Context, q db.Querier, p *access.Principal, id string) (*Run, error) {
	return get(ctx, q, p, id, "")
}

func get(ctx context.Context, q db.Querier, p *access.Principal, id, lock string) (*Run, error) {
	search := db.Search{Table: "agent_runs", Columns: runColumns, Where: p.Visibility().Work()}
	search.Lock = lock
	r, err := db.FindOne(ctx, q, search, id, scanRun)
	return r, db.OrNoSuch(err, "agent run", id)
}

// Filter narrows a list of runs.
type Filter struct {
	Status Status // empty for all
	visibility.WorkSearch
}

// List returns a page of the runs that the principal may see.
func (s *Service) List(ctx context.Context, q db.Querier, p *access.Principal, f Filter, page db.Page) (*db.Found[*Run], error) {
	return db.Find(ctx, q, f.search(p), page, db.Record[*Run]{Scan: scanRun, ID: func(r *Run) string { return r.ID }})
}

// Count counts these runs over time, as far as a bounded scan goes.
func (s *Service) Count(ctx context.Context, q db.Querier, p *access.Principal, f Filter, t db.Timeline) (*db.TimelineCounts, error) {
	t.Failed = "status = 'failed'"
	return db.CountRows(ctx, q, f.search(p), t)
}

func (f Filter) search(p *access.Principal) db.Search {
	vis := p.Visibility()
	search := db.Search{Table: "agent_runs", Columns: runColumns, Where: vis.Rows()}
	if vis.Reader != "" {
		search.Filter.Add("reader =", vis.Reader)
	}
	switch f.Status {
	case "":
	case AwaitingApproval:
		// A literal, so that the planner uses the partial index of these runs.
		search.Where.Require("status = 'awaiting_approval'")
	default:
		search.Filter.Add("status =", string(f.Status))
	}
	f.Narrow(&search, ids.Run)
	return search
}

func (s *Service) secrets(ctx context.Context, r *Run) (tools.Secrets, error) {
	out := tools.Secrets{}
	if r.Secrets != "" {
		text, err := s.Ring.Open(r.Secrets, secretsContext(r.ID))
		if err != nil {
			return nil, fmt.Errorf("decrypt tool headers: %w", err)
		}
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, fmt.Errorf("decrypt tool headers: %w", err)
		}
	}
	for i, server := range r.servers {
		if server.Server == nil {
			continue
		}
		headers, err := s.Servers.Headers(ctx, server.Server)
		if failure, ok := errors.AsType[*tools.Failure](err); ok {
			server.failure = failure
			r.servers[i] = server
			continue
		}
		if err != nil {
			return nil, err
		}
		out[server.label] = headers
	}
	return out, nil
}

func secretsContext(runID string) string { return "agent_runs.secrets/" + runID }

// retention is how long a run is kept after its end.
const retention = 30 * 24 * time.Hour

// Purge deletes a batch of old runs.
func (s *Service) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	batch := max(1, limit/100) // a run has many rows
	ids, err := db.List(ctx, tx, db.Value[string], "SELECT id FROM agent_runs WHERE completed_at < $1 ORDER BY completed_at LIMIT $2", s.Now().Add(-retention).UnixMicro(), batch)
	if err != nil {
		return 0, fmt.Errorf("purge runs: %w", err)
	}
	for _, id := range ids {
		for _, table := range []string{"agent_messages", "agent_steps", "agent_calls", "agent_events"} {
			if _, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE run_id = $1", id); err != nil {
				return 0, fmt.Errorf("purge runs: %w", err)
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM agent_runs WHERE id = $1", id); err != nil {
			return 0, fmt.Errorf("purge runs: %w", err)
		}
	}
	if int64(len(ids)) == batch {
		return limit, nil // there may be more
	}
	return int64(len(ids)), nil
}

// SimulatesTools reports whether the run was created with simulated tools.
func (r *Run) SimulatesTools() bool { return r.Config.ToolMode == accounts.ToolsSimulated }

// NeedsAction reports whether the run waits for a decision or an output.
func (r *Run) NeedsAction() bool { return r.Status == AwaitingApproval || r.Status == RequiresAction }
