package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"turnpike/internal/agents/tools"
	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// CallStatus is the state of a tool call.
type CallStatus string

// The states. Only a ready call is executed, and a denied one is final.
const (
	callAwaitingApproval CallStatus = "awaiting_approval"
	callReady            CallStatus = "ready"
	callStarted          CallStatus = "started"
	callAwaitingOutput   CallStatus = "awaiting_output" // of a tool that the client executes
	callCompleted        CallStatus = "completed"
	callDenied           CallStatus = "denied"
)

// The decisions about a call that needs approval.
const (
	Approve = "approve"
	Deny    = "deny"
)

// Call is a tool call that the model requested, with exactly these arguments.
type Call struct {
	RunID      string
	Step       int64
	Position   int64
	ID         string
	Tool       string
	Kind       tools.Kind
	Arguments  string
	Hash       string // SHA-256 of the arguments
	Status     CallStatus
	ApprovalID string
	ExpiresAt  *time.Time
	Note       string
	Decision   string
	DecidedBy  string
	DecidedAt  *time.Time
	Reason     string
	Output     string
	IsError    bool
	Simulated  bool          // no request was sent
	RequestID  string        // of the log entry of a call in progress that has a price
	Credits    credits.Micro // that it has cost
	StartedAt  *time.Time
	FinishedAt *time.Time
}

func hashOf(arguments string) string {
	sum := sha256.Sum256([]byte(arguments))
	return hex.EncodeToString(sum[:])
}

// finished reports whether the call has a result for the model.
func (c *Call) finished() bool { return c.Status == callCompleted || c.Status == callDenied }

func (c *Call) finish(output string, isError bool, now time.Time) {
	c.Status, c.Output, c.IsError, c.FinishedAt = callCompleted, output, isError, &now
}

// skip marks the call as skipped, without approval.
func (c *Call) skip(reason string, now time.Time) {
	c.ApprovalID, c.ExpiresAt = "", nil
	c.finish(reason, true, now)
}

// message is the call's result as the model reads it. The model sees only the
// output, so an error without one gets a text.
func (c *Call) message() json.RawMessage {
	output := c.Output
	if output == "" && c.IsError {
		output = "The call failed without a message."
	}
	return encode(map[string]string{"role": "tool", "tool_call_id": c.ID, "content": output})
}

var writeCalls = db.NewBulk("agent_calls", db.Upsert("run_id, step, position", "status", "approval_id", "expires_at", "note", "decision", "decided_by",
	"decided_at", "reason", "output", "is_error", "started_at", "finished_at", "simulated", "request_id", "credits"),
	"run_id text", "step bigint", "position bigint", "id text", "tool text", "kind text", "arguments text", "arguments_hash text", "status text",
	"approval_id text", "expires_at bigint", "note text", "decision text", "decided_by text", "decided_at bigint", "reason text", "output text",
	"is_error boolean", "started_at bigint", "finished_at bigint", "simulated boolean", "request_id text",
	"credits bigint")

func (c *Call) row() []any {
	return []any{c.RunID, c.Step, c.Position, c.ID, c.Tool, string(c.Kind), c.Arguments, c.Hash, string(c.Status), db.OrNull(c.ApprovalID), db.Micros(c.ExpiresAt),
		db.OrNull(c.Note), db.OrNull(c.Decision), db.OrNull(c.DecidedBy), db.Micros(c.DecidedAt), db.OrNull(c.Reason), db.OrNull(c.Output), c.IsError,
		db.Micros(c.StartedAt), db.Micros(c.FinishedAt), c.Simulated, db.OrNull(c.RequestID), int64(c.Credits)}
}

var scanCall = db.Scanner(func(c *Call) []any {
	return []any{&c.RunID, &c.Step, &c.Position, &c.ID, &c.Tool, &c.Kind, &c.Arguments, &c.Hash, &c.Status, &c.ApprovalID, &c.ExpiresAt, &c.Note, &c.Decision,
		&c.DecidedBy, &c.DecidedAt, &c.Reason, &c.Output, &c.IsError, &c.StartedAt, &c.FinishedAt, &c.Simulated, &c.RequestID, &c.Credits}
})

// Calls returns the calls of a range of a run's steps, in order.
func (s *Service) Calls(ctx context.Context, q db.Querier, runID string, from, to int64) ([]*Call, error) {
	list, err := db.List(ctx, q, scanCall, "SELECT "+writeCalls.Columns()+" FROM agent_calls WHERE run_id = $1 AND step >= $2 AND step <= $3 ORDER BY step, position", runID, from, to)
	return list, db.Wrap(err, "read calls")
}
