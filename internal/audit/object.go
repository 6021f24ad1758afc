package audit

import (
	"encoding/json"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/visibility"
)

// Object is an entry as the API shows it.
type Object struct {
	ID               string                 `json:"id"`
	Object           string                 `json:"object"`
	RequestID        string                 `json:"request_id"`
	KeyID            string                 `json:"key_id"`
	KeyHint          string                 `json:"key_hint"`
	ScopedTokenID    *string                `json:"scoped_token_id"`
	TokenMetadata    json.RawMessage        `json:"token_metadata"`
	IP               string                 `json:"ip"`
	Method           string                 `json:"method"`
	Path             string                 `json:"path"`
	Status           *int                   `json:"status"`
	ErrorCode        *string                `json:"error_code"`
	ErrorMessage     *string                `json:"error_message"`
	ErrorParam       *string                `json:"error_param"`
	RefusedBy        *RefuserObject         `json:"refused_by"`
	RequestedModel   *string                `json:"requested_model"`
	Model            *string                `json:"model"`
	Provider         *string                `json:"provider"`
	Attempts         json.RawMessage        `json:"attempts"`
	Project          *string                `json:"project"`
	Environment      visibility.Environment `json:"environment"`
	InputTokens      *int64                 `json:"input_tokens"`
	OutputTokens     *int64                 `json:"output_tokens"`
	CachedTokens     *int64                 `json:"cached_tokens"`
	Credits          credits.Micro          `json:"credits"`
	UnbilledCredits  credits.Micro          `json:"unbilled_credits"`
	SimulatedCredits credits.Micro          `json:"simulated_credits"`
	PriceVersion     *string                `json:"price_version"`
	UsageSource      *string                `json:"usage_source"`
	LatencyMS        *float64               `json:"latency_ms"`
	QueueMS          *float64               `json:"queue_ms"`
	UpstreamMS       *float64               `json:"upstream_ms"`
	FirstTokenMS     *float64               `json:"first_token_ms"`
	UserAgent        string                 `json:"user_agent"`
	UserID           *string                `json:"user_id"`
	CreatedAt        int64                  `json:"created_at"`
}

// RefuserObject is the budget or the rate limit that refused a request.
type RefuserObject struct {
	Kind    string  `json:"kind"`
	Level   string  `json:"level"`
	ID      *string `json:"id"`
	LimitID *string `json:"limit_id"`
}

// NewObject returns an entry as the API shows it.
func NewObject(e *Entry) *Object {
	failure := e.ReadFailure()
	o := &Object{ID: e.RequestID, Object: "audit.entry", RequestID: e.RequestID, KeyID: e.KeyID, KeyHint: e.KeyHint,
		ScopedTokenID: orNil(e.TokenID), TokenMetadata: orNull(e.TokenMetadata), IP: e.IP, Method: e.Method, Path: e.Path,
		ErrorCode: orNil(e.ErrorCode), ErrorMessage: orNil(failure.Message), ErrorParam: orNil(failure.Param), RequestedModel: orNil(e.AskedFor()), Model: orNil(e.Model), Provider: orNil(e.Provider), Attempts: orNull(e.Attempts),
		Project: orNil(e.Project), Environment: e.Environment, InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, CachedTokens: e.CachedTokens,
		Credits: e.Credits, UnbilledCredits: e.UnbilledCredits, SimulatedCredits: e.SimulatedCredits, PriceVersion: orNil(e.PriceVersion), UsageSource: orNil(e.UsageSource),
		Status: orNil(e.Status), LatencyMS: orNil(inMS(e.Latency)), QueueMS: orNil(inMS(e.Queue)), UpstreamMS: orNil(inMS(e.Upstream)), FirstTokenMS: orNil(inMS(e.FirstToken)),
		UserAgent: e.UserAgent, UserID: orNil(e.EndUser), CreatedAt: e.CreatedAt.Unix()}
	if by := failure.RefusedBy; by != nil {
		o.RefusedBy = &RefuserObject{by.Kind, by.Level, orNil(by.ID), orNil(by.LimitID)}
	}
	return o
}

// orNil returns nil for the zero value.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
