package audit

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// Failure is the error that a client got, as the log stores it.
type Failure struct {
	Message   string   `json:"message,omitzero"`
	Param     string   `json:"param,omitzero"`
	RefusedBy *Refuser `json:"refused_by,omitzero"`
}

// Refuser is the budget or the rate limit that refused a request.
type Refuser struct {
	Kind    string `json:"kind"`              // "budget", or the field of the rate
	Level   string `json:"level"`             // of the owner: workspace, project, key, user or run
	ID      string `json:"id,omitzero"`       // of the owner
	LimitID string `json:"limit_id,omitzero"` // if it is one of the owner's limits
}

const (
	// RefusedByBudget is the kind of a refusal by a budget.
	RefusedByBudget = "budget"

	maxFailureMessage = 500 // bytes
	maxFailureParam   = 100
)

// Fail records the error that the client gets.
func (e *Entry) Fail(f *fault.Error) {
	e.ErrorCode = string(f.Code)
	out := Failure{Message: storable(f.Message, maxFailureMessage), Param: storable(f.Param, maxFailureParam)}
	switch f.Code {
	case fault.BudgetExceeded, fault.InsufficientCredits, fault.RateLimitExceeded:
		out.RefusedBy = e.RefusedBy
	}
	e.Failure, _ = json.Marshal(out) // it has only strings
}

// End records how a call of a background task ended, which has no response of its own.
func (e *Entry) End(err error, latency time.Duration) {
	e.Status, e.Latency = http.StatusOK, latency
	if err == nil {
		return
	}
	e.Status = http.StatusBadGateway
	if f, ok := fault.As(err); ok {
		e.Status = fault.FamilyOf(f.Code).Status
		e.Fail(f)
	}
}

// ReadFailure returns the error of a failed request. Entries of earlier releases have only a code.
func (e *Entry) ReadFailure() (f Failure) {
	if len(e.Failure) > 0 {
		_ = json.Unmarshal(e.Failure, &f) // the log has written it
	}
	return f
}

// AskedFor returns the model that the client named, or an empty string if it named none.
func (e *Entry) AskedFor() string {
	if e.Requested != "" {
		return e.Requested
	}
	return e.Model
}

// storable masks secrets in a text and cuts it at a limit.
func storable(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(keyring.Mask(s), "\x00", "\uFFFD"), "\uFFFD")
	if len(s) > limit {
		const mark = "…"
		at := limit - len(mark)
		for at > 0 && !utf8.RuneStart(s[at]) {
			at--
		}
		s = s[:at] + mark
	}
	return s
}

// storedQueue returns the queue time to store: none below a millisecond, so that most entries need no bytes for it.
func (e *Entry) storedQueue() int64 {
	if e.Queue < time.Millisecond {
		return 0
	}
	return e.Queue.Microseconds()
}

// storedRequest returns the requested model to store: none if it is the one that was called.
func (e *Entry) storedRequest() string {
	if e.Requested == e.Model {
		return ""
	}
	return e.Requested
}
