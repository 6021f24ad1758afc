package agents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
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

// callTransitions lists the states that a person's decision, or its absence, can lead to. A denied call has no
// path to the executor.
var callTransitions = map[CallStatus][]CallStatus{
	callAwaitingApproval: {callReady, callAwaitingOutput, callDenied, callCompleted},
}

// decided moves a call that waits for a decision on.
func (c *Call) decided(to CallStatus) error {
	if !slices.Contains(callTransitions[c.Status], to) {
		return fmt.Errorf("agents: a call cannot change from %s to %s", c.Status, to)
	}
	c.Status = to
	return nil
}

// Verdict is a person's decision about a call.
type Verdict string

// The decisions about a call that needs approval.
const (
	Approve Verdict = "approve"
	Deny    Verdict = "deny"
	Edit    Verdict = "edit"    // make the call with other arguments
	Respond Verdict = "respond" // give the model an answer instead of making the call
)

// Verdicts lists every decision.
var Verdicts = []Verdict{Approve, Deny, Edit, Respond}

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
	Decision   Verdict
	Edited     string   // the arguments that a person set; empty if they are the model's
	ApprovedBy []string // who has approved a call that needs two approvers
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

// effectiveArguments returns the arguments that the call is made with.
func (c *Call) effectiveArguments() string { return cmp.Or(c.Edited, c.Arguments) }

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
	if c.Edited != "" {
		output = "A person changed the arguments of this call to " + c.Edited + ". Its result:\n" + output
	}
	return encode(map[string]string{"role": "tool", "tool_call_id": c.ID, "content": output})
}

var writeCalls = db.NewBulk("agent_calls", db.Upsert("run_id, step, position", "status", "approval_id", "expires_at", "note", "decision", "decided_by",
	"decided_at", "reason", "output", "is_error", "started_at", "finished_at", "simulated", "request_id", "credits", "edited_arguments", "approved_by"),
	"run_id text", "step bigint", "position bigint", "id text", "tool text", "kind text", "arguments text", "arguments_hash text", "status text",
	"approval_id text", "expires_at bigint", "note text", "decision text", "decided_by text", "decided_at bigint", "reason text", "output text",
	"is_error boolean", "started_at bigint", "finished_at bigint", "simulated boolean", "request_id text",
	"credits bigint", "edited_arguments text", "approved_by text")

func (c *Call) row() []any {
	var approvers any
	if len(c.ApprovedBy) > 0 {
		approvers = db.JSON(c.ApprovedBy)
	}
	return []any{c.RunID, c.Step, c.Position, c.ID, c.Tool, string(c.Kind), c.Arguments, c.Hash, string(c.Status), db.OrNull(c.ApprovalID), db.Micros(c.ExpiresAt),
		db.OrNull(c.Note), db.OrNull(string(c.Decision)), db.OrNull(c.DecidedBy), db.Micros(c.DecidedAt), db.OrNull(c.Reason), db.OrNull(c.Output), c.IsError,
		db.Micros(c.StartedAt), db.Micros(c.FinishedAt), c.Simulated, db.OrNull(c.RequestID), int64(c.Credits), db.OrNull(c.Edited), approvers}
}

var scanCall = db.Scanner(func(c *Call) []any {
	return []any{&c.RunID, &c.Step, &c.Position, &c.ID, &c.Tool, &c.Kind, &c.Arguments, &c.Hash, &c.Status, &c.ApprovalID, &c.ExpiresAt, &c.Note, &c.Decision,
		&c.DecidedBy, &c.DecidedAt, &c.Reason, &c.Output, &c.IsError, &c.StartedAt, &c.FinishedAt, &c.Simulated, &c.RequestID, &c.Credits, &c.Edited, &c.ApprovedBy}
})

// Calls returns the calls of a range of a run's steps, in order.
func (s *Service) Calls(ctx context.Context, q db.Querier, runID string, from, to int64) ([]*Call, error) {
	list, err := db.List(ctx, q, scanCall, "SELECT "+writeCalls.Columns()+" FROM agent_calls WHERE run_id = $1 AND step >= $2 AND step <= $3 ORDER BY step, position", runID, from, to)
	return list, db.Wrap(err, "read calls")
}
