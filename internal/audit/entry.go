// Package audit is the request log and the log of administrative actions.
//
// The request log is written ahead: a request's entry is durable before the first
// byte of its response is sent. So after a crash the log has every request with a
// response, exactly once.
//
// A record (recordState):
//
//	       Start            read              Settle
//	open ─────────▶ queued ───────▶ written ──────────▶ settling
//	 │ │             ▲ │                                    │ read
//	 │ └▶ deferred ──┘ │ Settle                             ▼     Refuse, or in doubt
//	 │     │           ▼                                    │
//	 └─────┴───────▶ closing ──────────────────────▶ settled ◀──────────────▶ correcting
//	       Settle               read                           read
//
// "read" means that the writer reads the entry for a commit. Start defers an intent if many calls are
// quick. A permanently failed write leads to failed. SettleIn leads from open to settled.
package audit

import (
	"encoding/json"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/visibility"
)

// The sources of a request's token usage.
const (
	UsageProvider  = "provider"  // reported by the provider
	UsageEstimated = "estimated" // counted by Turnpike
	UsagePartial   = "partial"   // the client disconnected before the end
	UsageRecovered = "recovered" // the node died; charged as reserved
)

// Entry is the log entry of one authenticated request.
type Entry struct {
	// Set when the request arrives.
	RequestID string
	visibility.Tenant
	KeyID         string
	KeyHint       string
	TokenID       string
	TokenMetadata json.RawMessage
	IP            string
	Method        string
	Path          string
	Project       string
	UserAgent     string
	CreatedAt     time.Time

	// Set when the upstream request starts.
	Requested    string // the model as the client named it
	Model        string
	Provider     string
	Reserved     credits.Micro
	PriceVersion string
	EndUser      string          // Turnpike's ID of the end user
	Accounts     json.RawMessage // the charged accounts; nil in entries from releases that didn't store them
	Hold         Hold            // the request's reservation; not stored

	// Set when the request ends.
	Status           int // 0 if the node died before the end
	ErrorCode        string
	Failure          json.RawMessage // the error: see Fail
	RefusedBy        *Refuser        // what refused the request; stored with its error
	Attempts         json.RawMessage
	InputTokens      *int64
	OutputTokens     *int64
	CachedTokens     *int64 // part of the input tokens
	Credits          credits.Micro
	UnbilledCredits  credits.Micro // the cost beyond the reserved amount
	SimulatedCredits credits.Micro
	UsageSource      string
	Latency          time.Duration
	Upstream         time.Duration // at providers, without the waits between attempts
	Queue            time.Duration // until the first attempt
	FirstToken       time.Duration // until the first token of a stream
	Settled          bool
}

// Hold is the reservation of a request. It ends when the request's entry is
// written. Requests whose entry is never written release it.
type Hold interface{ Release() }

var insertRequests = db.NewBulk("requests", db.Upsert("id", "settled", "status", "error_code", "project", "model", "provider", "attempts", "input_tokens", "output_tokens",
	"reserved", "credits", "simulated_credits", "usage_source", "latency_us", "upstream_us", "unbilled_credits", "price_version", "cached_tokens", "accounts", "end_user_id",
	"requested_model", "failure", "queue_us", "first_token_us")+`
	-- A late refusal changes a settled entry once: afterwards a job may have amended it.
	WHERE NOT requests.settled OR excluded.error_code = 'storage_unavailable' AND requests.error_code IS DISTINCT FROM 'storage_unavailable'`, requestTypes...)

// newRequests inserts entries that were never written before. It takes PostgreSQL two thirds of insertRequests.
var newRequests = db.NewBulk("requests", "", requestTypes...)

// openRequests inserts the entries that don't exist yet.
var openRequests = db.NewBulk("requests", "ON CONFLICT (id) DO NOTHING", requestTypes...)

var requestTypes = []string{
	"id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "scoped_token_id text", "token_metadata text",
	"ip text", "method text", "path text", "project text", "user_agent text", "node_id text", "created_at bigint", "settled boolean",
	"status bigint", "error_code text", "model text", "provider text", "attempts text", "input_tokens bigint", "output_tokens bigint",
	"reserved bigint", "credits bigint", "simulated_credits bigint", "usage_source text", "latency_us bigint", "upstream_us bigint",
	"unbilled_credits bigint", "price_version text", "cached_tokens bigint", "accounts text", "end_user_id text",
	"requested_model text", "failure text", "queue_us bigint", "first_token_us bigint"}

// free removes the charge.
func (e *Entry) free() {
	e.Credits, e.SimulatedCredits, e.UnbilledCredits = 0, 0, 0
	e.InputTokens, e.OutputTokens, e.CachedTokens, e.UsageSource = nil, nil, nil, ""
}

// appendRow appends the entry in the order of insertRequests.
func (e *Entry) appendRow(row []any, nodeID string) []any {
	return append(row, e.RequestID, e.WorkspaceID, string(e.Environment), e.KeyID, e.KeyHint, db.OrNull(e.TokenID), db.OrNull(string(e.TokenMetadata)),
		e.IP, e.Method, e.Path, db.OrNull(e.Project), e.UserAgent, nodeID, e.CreatedAt.UnixMicro(), e.Settled,
		db.NullInt(int64(e.Status)), db.OrNull(e.ErrorCode), db.OrNull(e.Model), db.OrNull(e.Provider), db.OrNull(string(e.Attempts)),
		db.Number(e.InputTokens), db.Number(e.OutputTokens),
		int64(e.Reserved), int64(e.Credits), int64(e.SimulatedCredits), db.OrNull(e.UsageSource),
		db.NullInt(e.Latency.Microseconds()), db.NullInt(e.Upstream.Microseconds()),
		int64(e.UnbilledCredits), db.OrNull(e.PriceVersion), db.Number(e.CachedTokens), db.OrNull(string(e.Accounts)), db.OrNull(e.EndUser),
		db.OrNull(e.storedRequest()), db.OrNull(string(e.Failure)), db.NullInt(e.storedQueue()), db.NullInt(e.FirstToken.Microseconds()))
}

// entryColumns are the columns that scanEntry reads.
var entryColumns = insertRequests.Columns("node_id")

var scanEntry = db.Scanner(entryFields)

func entryFields(e *Entry) []any {
	return []any{&e.RequestID, &e.WorkspaceID, &e.Environment, &e.KeyID, &e.KeyHint, &e.TokenID, &e.TokenMetadata, &e.IP, &e.Method, &e.Path, &e.Project,
		&e.UserAgent, &e.CreatedAt, &e.Settled, &e.Status, &e.ErrorCode, &e.Model, &e.Provider, &e.Attempts, &e.InputTokens, &e.OutputTokens, &e.Reserved, &e.Credits,
		&e.SimulatedCredits, &e.UsageSource, &e.Latency, &e.Upstream, &e.UnbilledCredits, &e.PriceVersion, &e.CachedTokens, &e.Accounts, &e.EndUser,
		&e.Requested, &e.Failure, &e.Queue, &e.FirstToken}
}
