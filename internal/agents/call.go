package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/agents/tools"
	"turnpike/internal/db"
)

// The states of a tool call. Only one that is ready is executed; one that was
// denied can never become that.
const (
	callAsking  = "awaiting_approval"
	callReady   = "ready"
	callStarted = "started"
	callWaiting = "awaiting_output" // of the customer's own tool
	callDone    = "completed"
	callDenied  = "denied"
)

// The decisions about a call.
const (
	Approve = "approve"
	Deny    = "deny"
)

// Call is a tool that the model wants to be called, with exactly these
// arguments.
type Call struct {
	RunID      string
	Step       int64
	Position   int64
	ID         string
	Tool       string
	Kind       tools.Kind
	Arguments  string
	Hash       string // SHA-256 of the arguments
	Status     string
	ApprovalID string
	ExpiresAt  *time.Time
	Note       string
	Decision   string
	DecidedBy  string
	DecidedAt  *time.Time
	Reason     string
	Output     string
	IsError    bool
	Simulated  bool // no request was sent
	StartedAt  *time.Time
	FinishedAt *time.Time
}

func hashOf(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}

// over reports whether the model can be told what came of the call.
func (c *Call) over() bool { return c.Status == callDone || c.Status == callDenied }

// finish notes what came of it.
func (c *Call) finish(output string, isError bool, now time.Time) {
	c.Status, c.Output, c.IsError, c.FinishedAt = callDone, output, isError, &now
}

// skip has it not be made, nor anybody asked about it.
func (c *Call) skip(why string, now time.Time) {
	c.ApprovalID, c.ExpiresAt = "", nil
	c.finish(why, true, now)
}

// answer is the call's result as the model reads it. An output is all that it
// learns, so a failure that says nothing is put into words.
func (c *Call) answer() (json.RawMessage, error) {
	output := c.Output
	if output == "" && c.IsError {
		output = "The call failed, and does not say why."
	}
	return json.Marshal(struct {
		Role    string `json:"role"`
		CallID  string `json:"tool_call_id"`
		Content string `json:"content"`
	}{"tool", c.ID, output})
}

const callColumns = `run_id, step, position, id, tool, kind, arguments, arguments_hash, status, approval_id, expires_at, note, decision, decided_by, decided_at,
	reason, output, is_error, started_at, finished_at, simulated`

var writeCalls = db.NewBulk("agent_calls", `ON CONFLICT (run_id, step, position) DO UPDATE SET status = excluded.status, approval_id = excluded.approval_id,
	expires_at = excluded.expires_at, note = excluded.note, decision = excluded.decision, decided_by = excluded.decided_by, decided_at = excluded.decided_at,
	reason = excluded.reason, output = excluded.output, is_error = excluded.is_error, started_at = excluded.started_at, finished_at = excluded.finished_at,
	simulated = excluded.simulated`,
	"run_id text", "step bigint", "position bigint", "id text", "tool text", "kind text", "arguments text", "arguments_hash text", "status text",
	"approval_id text", "expires_at bigint", "note text", "decision text", "decided_by text", "decided_at bigint", "reason text", "output text",
	"is_error boolean", "started_at bigint", "finished_at bigint", "simulated boolean")

func (c *Call) row() []any {
	return []any{c.RunID, c.Step, c.Position, c.ID, c.Tool, string(c.Kind), c.Arguments, c.Hash, c.Status, db.OrNull(c.ApprovalID), db.Moment(c.ExpiresAt),
		db.OrNull(c.Note), db.OrNull(c.Decision), db.OrNull(c.DecidedBy), db.Moment(c.DecidedAt), db.OrNull(c.Reason), db.OrNull(c.Output), c.IsError,
		db.Moment(c.StartedAt), db.Moment(c.FinishedAt), c.Simulated}
}

func scanCall(row db.Row) (*Call, error) {
	var c Call
	var kind string
	var approval, note, decision, by, reason, output *string
	var expires, decided, started, finished *int64
	err := row.Scan(&c.RunID, &c.Step, &c.Position, &c.ID, &c.Tool, &kind, &c.Arguments, &c.Hash, &c.Status, &approval, &expires, &note, &decision, &by, &decided,
		&reason, &output, &c.IsError, &started, &finished, &c.Simulated)
	c.Kind, c.ApprovalID, c.Note, c.Decision = tools.Kind(kind), db.Text(approval), db.Text(note), db.Text(decision)
	c.DecidedBy, c.Reason, c.Output = db.Text(by), db.Text(reason), db.Text(output)
	c.ExpiresAt, c.DecidedAt, c.StartedAt, c.FinishedAt = db.Time(expires), db.Time(decided), db.Time(started), db.Time(finished)
	return &c, err
}

// Calls returns the calls of some of a run's steps, in their order.
func (s *Service) Calls(ctx context.Context, q db.Querier, runID string, from, to int64) ([]*Call, error) {
	return callsOf(ctx, q, runID, from, to)
}

func callsOf(ctx context.Context, q db.Querier, runID string, from, to int64) ([]*Call, error) {
	rows, err := q.Query(ctx, "SELECT "+callColumns+" FROM agent_calls WHERE run_id = $1 AND step >= $2 AND step <= $3 ORDER BY step, position", runID, from, to)
	list, err := db.All(rows, err, scanCall)
	if err != nil {
		return nil, fmt.Errorf("read calls: %w", err)
	}
	return list, nil
}
