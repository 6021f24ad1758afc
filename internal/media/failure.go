package media

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/providers"
)

// The codes of a job's failure, or of a part of it.
const (
	codeBlockedInput  = "moderation_blocked_input"
	codeBlockedOutput = "moderation_blocked_output"
	codeInvalid       = "invalid_input"
	codeUpstream      = "upstream_error"
	codeTimeout       = "upstream_timeout"
	codeCapacity      = "capacity"
	codeDeadline      = "deadline_exceeded"
	codeCancelled     = "cancelled"
	codeKeyRevoked    = "key_revoked"
	codeInternal      = "internal_error"
)

// retries is how long after each failure a task is tried again: what a
// provider or a disk cannot do now it may be able to in a while.
var retries = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

func failure(code, message string) *events.JobError {
	return &events.JobError{Code: code, Message: message}
}

func passing(code, message string) *events.JobError {
	return &events.JobError{Code: code, Message: message, Retryable: true}
}

var (
	errCancelled = failure(codeCancelled, "the job was cancelled")
	errDeadline  = passing(codeDeadline, "the job was not done in the time that jobs have on this server")
	errAllFailed = failure(codeUpstream, "every request of the batch failed; each of them says why")
	errKeyGone   = failure(codeKeyRevoked, "the key that made the job was revoked or has expired")
)

// Unstored is the answer to a call whose file could not be stored, which is no
// fault of the caller's, unless it was the caller who left.
func Unstored(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.StorageUnavailable, "the server cannot store files at the moment; try again shortly").Because(err)
}

// explain says for the caller why a task failed. What a provider says stays in
// the log.
func explain(err error) *events.JobError {
	var f *providers.Failure
	if errors.As(err, &f) {
		switch f.Kind {
		case providers.KindBlockedInput:
			return failure(codeBlockedInput, "the provider's filter refused the input")
		case providers.KindBlockedOutput:
			return failure(codeBlockedOutput, "the provider's filter refused what came of the input")
		case providers.KindInvalid:
			return failure(codeInvalid, "the provider does not accept the request as it is; see what the model supports")
		case providers.KindTimeout:
			return passing(codeTimeout, "the provider did not answer in time")
		case providers.KindRateLimited, providers.KindOverloaded:
			return passing(codeCapacity, "the provider has too much to do at the moment")
		case providers.KindLocal:
			return passing(codeInternal, "the server is out of file descriptors")
		}
		return passing(codeUpstream, "the provider failed to answer")
	}
	if f, ok := fault.As(err); ok {
		switch f.Code {
		case fault.InvalidParameter, fault.MissingParameter, fault.ContextLengthExceeded, fault.ModelNotFound, fault.ModelNotPriced:
			return failure(codeInvalid, f.Message)
		case fault.NoProvider:
			return passing(codeUpstream, f.Message)
		case fault.Overloaded, fault.RateLimitExceeded:
			return passing(codeCapacity, f.Message)
		case fault.UpstreamTimeout, fault.RequestTimeout:
			return passing(codeTimeout, f.Message)
		case fault.Upstream:
			return passing(codeUpstream, f.Message)
		}
		return passing(codeInternal, f.Message)
	}
	switch {
	case errors.Is(err, files.ErrFull):
		return passing(codeInternal, "the server has no room to store the file")
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	}
	return passing(codeInternal, "something went wrong on the server's side")
}
