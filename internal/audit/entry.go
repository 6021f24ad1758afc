// Package audit is the request log and the log of administrative actions.
//
// The request log is written ahead: a request's entry is durable before the first
// byte of its response leaves. So after a crash every answered request is in it,
// exactly once.
//
// A record (recordState):
//
//	      Start            read              Settle
//	open ───────▶ queued ────────▶ written ──────────▶ settling
//	  │             │                                     │ read
//	  │ Settle      │ Settle                              ▼     Refuse, or in doubt
//	  └────────────▶└──────▶ closing ──────────────▶ settled ◀──────────────▶ correcting
//	                                    read                       read
//
// "read" is the writer reading the entry for a commit. A write that fails for
// good leads to failed. SettleIn leads from open to settled.
package audit

import (
	"encoding/json"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// How the usage of a call came to be known.
const (
	UsageProvider  = "provider"  // the provider said so
	UsageEstimated = "estimated" // counted here
	UsagePartial   = "partial"   // the client left before the end
	UsageRecovered = "recovered" // the node died; charged as reserved
)

// Entry is what is recorded of one authenticated request.
type Entry struct {
	// Known when the request arrives.
	RequestID     string
	WorkspaceID   string
	Environment   string
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

	// Known when the upstream call starts.
	Model        string
	Provider     string
	Reserved     credits.Micro
	PriceVersion string
	Accounts     json.RawMessage // that are charged; nil in entries of releases that stored none
	Hold         Hold            // what was set aside for the call; not stored

	// Known at the end.
	Status           int // 0 when the node died before the end
	ErrorCode        string
	Attempts         json.RawMessage
	InputTokens      *int64
	OutputTokens     *int64
	CachedTokens     *int64 // of the input
	Credits          credits.Micro
	UnbilledCredits  credits.Micro // what it cost beyond what was reserved
	SimulatedCredits credits.Micro
	UsageSource      string
	Latency          time.Duration
	Upstream         time.Duration
	Settled          bool
}

// Hold is what was set aside for a call. It ends when the call's entry is
// written; a call whose entry never will be releases it.
type Hold interface{ Release() }

var insertRequests = db.NewBulk("requests", `ON CONFLICT (id) DO UPDATE SET
	settled = excluded.settled, status = excluded.status, error_code = excluded.error_code, project = excluded.project,
	model = excluded.model, provider = excluded.provider, attempts = excluded.attempts,
	input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, reserved = excluded.reserved,
	credits = excluded.credits, simulated_credits = excluded.simulated_credits, usage_source = excluded.usage_source,
	latency_us = excluded.latency_us, upstream_us = excluded.upstream_us, unbilled_credits = excluded.unbilled_credits,
	price_version = excluded.price_version, cached_tokens = excluded.cached_tokens
	WHERE NOT requests.settled
	OR excluded.error_code = 'storage_unavailable' -- a refusal after all`, requestTypes...)

// openRequests makes entries that are not there yet.
var openRequests = db.NewBulk("requests", "ON CONFLICT (id) DO NOTHING", requestTypes...)

var requestTypes = []string{
	"id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "scoped_token_id text", "token_metadata text",
	"ip text", "method text", "path text", "project text", "user_agent text", "node_id text", "created_at bigint", "settled boolean",
	"status bigint", "error_code text", "model text", "provider text", "attempts text", "input_tokens bigint", "output_tokens bigint",
	"reserved bigint", "credits bigint", "simulated_credits bigint", "usage_source text", "latency_us bigint", "upstream_us bigint",
	"unbilled_credits bigint", "price_version text", "cached_tokens bigint", "accounts text"}

const requestColumns = 32

// free takes back what was charged.
func (e *Entry) free() {
	e.Credits, e.SimulatedCredits, e.UnbilledCredits = 0, 0, 0
	e.InputTokens, e.OutputTokens, e.CachedTokens, e.UsageSource = nil, nil, nil, ""
}

// appendRow appends the entry in the order of insertRequests.
func (e *Entry) appendRow(row []any, nodeID string) []any {
	return append(row, e.RequestID, e.WorkspaceID, e.Environment, e.KeyID, e.KeyHint, db.OrNull(e.TokenID), db.OrNull(string(e.TokenMetadata)),
		e.IP, e.Method, e.Path, db.OrNull(e.Project), e.UserAgent, nodeID, e.CreatedAt.UnixMicro(), e.Settled,
		orNullInt(int64(e.Status)), db.OrNull(e.ErrorCode), db.OrNull(e.Model), db.OrNull(e.Provider), db.OrNull(string(e.Attempts)),
		number(e.InputTokens), number(e.OutputTokens),
		int64(e.Reserved), int64(e.Credits), int64(e.SimulatedCredits), db.OrNull(e.UsageSource),
		orNullInt(e.Latency.Microseconds()), orNullInt(e.Upstream.Microseconds()),
		int64(e.UnbilledCredits), db.OrNull(e.PriceVersion), number(e.CachedTokens), db.OrNull(string(e.Accounts)))
}

func orNullInt(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// number turns a nil pointer into a plain nil, which is how a row says NULL.
func number(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

const entryColumns = `id, workspace_id, environment, key_id, key_hint, scoped_token_id, token_metadata, ip, method, path, project,
	user_agent, created_at, settled, status, error_code, model, provider, attempts, input_tokens, output_tokens, reserved, credits,
	simulated_credits, usage_source, latency_us, upstream_us, unbilled_credits, price_version, cached_tokens, accounts`

func scanEntry(r db.Row) (*Entry, error) {
	var e Entry
	var token, metadata, project, code, model, provider, attempts, source, version, accounts *string
	var created, reserved, charged, simulated, unbilled int64
	var status, latency, upstream *int64
	err := r.Scan(&e.RequestID, &e.WorkspaceID, &e.Environment, &e.KeyID, &e.KeyHint, &token, &metadata, &e.IP, &e.Method, &e.Path, &project,
		&e.UserAgent, &created, &e.Settled, &status, &code, &model, &provider, &attempts, &e.InputTokens, &e.OutputTokens, &reserved, &charged,
		&simulated, &source, &latency, &upstream, &unbilled, &version, &e.CachedTokens, &accounts)
	if err != nil {
		return nil, err
	}
	e.TokenID, e.Project, e.ErrorCode, e.Model = db.Text(token), db.Text(project), db.Text(code), db.Text(model)
	e.Provider, e.UsageSource = db.Text(provider), db.Text(source)
	e.TokenMetadata, e.Attempts = json.RawMessage(db.Text(metadata)), json.RawMessage(db.Text(attempts))
	e.Accounts = json.RawMessage(db.Text(accounts))
	e.CreatedAt = time.UnixMicro(created)
	e.Reserved, e.Credits, e.SimulatedCredits = credits.Micro(reserved), credits.Micro(charged), credits.Micro(simulated)
	e.UnbilledCredits, e.PriceVersion = credits.Micro(unbilled), db.Text(version)
	e.Status = int(orZero(status))
	e.Latency = time.Duration(orZero(latency)) * time.Microsecond
	e.Upstream = time.Duration(orZero(upstream)) * time.Microsecond
	return &e, nil
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
