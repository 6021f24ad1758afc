// Package fault is the error type of the service: a code for machines, a message for people and a
// cause for the log.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Code is the stable, machine-readable code of an error.
type Code string

// The codes of the API. FamilyOf returns their status and type.
const (
	InvalidJSON           Code = "invalid_json"
	InvalidParameter      Code = "invalid_parameter"
	UnknownParameter      Code = "unknown_parameter"
	MissingParameter      Code = "missing_parameter"
	ContextLengthExceeded Code = "context_length_exceeded"
	ModelNotPriced        Code = "model_not_priced"
	UnknownProject        Code = "unknown_project"
	OutsideReplayWindow   Code = "outside_replay_window"

	Authentication Code = "authentication_error"

	InsufficientCredits Code = "insufficient_credits"
	BudgetExceeded      Code = "budget_exceeded"

	InsufficientScope     Code = "insufficient_scope"
	IPNotAllowed          Code = "ip_not_allowed"
	LiveKeyInBrowser      Code = "live_key_in_browser"
	ScopedTokenNotAllowed Code = "scoped_token_not_allowed"
	ProjectNotAllowed     Code = "project_not_allowed"
	ModelNotAllowed       Code = "model_not_allowed"
	UserBlocked           Code = "user_blocked"
	InvalidSignature      Code = "invalid_signature"

	NotFound      Code = "not_found"
	ModelNotFound Code = "model_not_found"

	MethodNotAllowed     Code = "method_not_allowed"
	NotAcceptable        Code = "not_acceptable"
	RequestTimeout       Code = "request_timeout"
	RequestTooLarge      Code = "request_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	UpgradeRequired      Code = "upgrade_required"

	InvalidState         Code = "invalid_state"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	LimitReached         Code = "limit_reached"
	Conflict             Code = "conflict"

	RateLimitExceeded Code = "rate_limit_exceeded"

	Internal Code = "internal_error"

	Upstream        Code = "upstream_error"
	UpstreamTimeout Code = "upstream_timeout"

	NoProvider         Code = "no_provider"
	Overloaded         Code = "overloaded"
	StorageUnavailable Code = "storage_unavailable"
)

// Family is the HTTP status and error type of a code.
type Family struct {
	Status int
	Type   string
}

var families = byCode(map[Family][]Code{
	{400, "invalid_request_error"}: {InvalidJSON, InvalidParameter, UnknownParameter, MissingParameter,
		ContextLengthExceeded, ModelNotPriced, UnknownProject, OutsideReplayWindow},
	{401, "authentication_error"}: {Authentication},
	{402, "billing_error"}:        {InsufficientCredits, BudgetExceeded},
	{403, "permission_error"}: {InsufficientScope, IPNotAllowed, LiveKeyInBrowser,
		ScopedTokenNotAllowed, ProjectNotAllowed, ModelNotAllowed, UserBlocked, InvalidSignature},
	{404, "not_found_error"}:       {NotFound, ModelNotFound},
	{405, "invalid_request_error"}: {MethodNotAllowed},
	{406, "invalid_request_error"}: {NotAcceptable},
	{408, "invalid_request_error"}: {RequestTimeout},
	{409, "conflict_error"}:        {InvalidState, IdempotencyKeyReused, LimitReached, Conflict},
	{413, "invalid_request_error"}: {RequestTooLarge},
	{415, "invalid_request_error"}: {UnsupportedMediaType},
	{426, "invalid_request_error"}: {UpgradeRequired},
	{429, "rate_limit_error"}:      {RateLimitExceeded},
	{500, "api_error"}:             {Internal},
	{502, "upstream_error"}:        {Upstream},
	{503, "unavailable_error"}:     {NoProvider, Overloaded, StorageUnavailable},
	{504, "upstream_error"}:        {UpstreamTimeout},
})

// retryable are the codes whose errors a retry can change.
var retryable = map[Code]bool{RequestTimeout: true, Conflict: true, RateLimitExceeded: true, Internal: true,
	Upstream: true, Overloaded: true, StorageUnavailable: true, UpstreamTimeout: true}

// Retryable reports whether a retry can change errors with the code.
func (c Code) Retryable() bool { return retryable[c] }

func byCode(codes map[Family][]Code) map[Code]Family {
	out := map[Code]Family{}
	for family, list := range codes {
		for _, code := range list {
			out[code] = family
		}
	}
	return out
}

// FamilyOf returns a code's family; an unknown code is an internal error.
func FamilyOf(c Code) Family {
	if f, ok := families[c]; ok {
		return f
	}
	return families[Internal]
}

// Codes returns every code, to test the API reference.
func Codes() map[Code]Family { return families }

// Error is an error response. Clients see Message, Param and Details; Cause is only logged.
type Error struct {
	Code       Code
	Message    string
	Param      string
	Details    any
	RetryAfter time.Duration
	// Retry is set if it differs from that of the code: a budget may have room when other requests end, and
	// only an operator can fix a rejected API key.
	Retry Retry
	Cause error
}

// Retry says whether a retry can change an error.
type Retry string

// The values of Retry. Empty means that the code decides.
const (
	RetryCanHelp  Retry = "can_help"
	RetryIsFutile Retry = "is_futile"
)

// Final reports whether a retry can't change the error. Clients get x-should-retry: false.
func (e *Error) Final() bool { return e.Retry == RetryIsFutile || e.Retry == "" && !e.Code.Retryable() }

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Cause }

// storageRetryAfter is the Retry-After while the storage is unavailable. The two
// retries of most SDKs then outlast a planned switchover.
const storageRetryAfter = 5 * time.Second

// New returns an error with a message.
func New(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Message: fmt.Sprintf(format, args...)}
	if code == StorageUnavailable {
		e.RetryAfter = storageRetryAfter
	}
	return e
}

// Param returns an error about a field, header or query parameter.
func Param(code Code, param, format string, args ...any) *Error {
	return &Error{Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns an error about an invalid value.
func Invalid(param, format string, args ...any) *Error {
	return Param(InvalidParameter, param, format, args...)
}

// Missing returns an error about a missing value.
func Missing(param, format string, args ...any) *Error {
	return Param(MissingParameter, param, format, args...)
}

// NoSuch returns a not_found error. It is the same for IDs that never existed and for those of other
// workspaces.
func NoSuch(kind, id string) *Error {
	return New(NotFound, "No %s has the ID %q.", kind, id)
}

// Because sets the cause, which only the log shows.
func (e *Error) Because(cause error) *Error {
	e.Cause = cause
	return e
}

// As returns the *Error in err's chain.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Is reports whether err has the code.
func Is(err error, code Code) bool {
	e, ok := As(err)
	return ok && e.Code == code
}

// All returns every *Error in err's tree: one for each invalid field if err is from errors.Join.
func All(err error) []*Error {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() []error }:
		var all []*Error
		for _, one := range e.Unwrap() {
			all = append(all, All(one)...)
		}
		return all
	}
	return All(errors.Unwrap(err))
}
