package media

import (
	"cmp"
	"context"
	"errors"
	"time"

	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/providers"
)

// The error codes of jobs and their parts.
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

// retryDelays are the delays after each failure of a task.
var retryDelays = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// storageRetryDelay is the delay after a task failed because the database was
// unavailable. Such a task is retried until its job's deadline.
const storageRetryDelay = 5 * time.Second

func permanentError(code, message string) *events.JobError {
	return &events.JobError{Code: code, Message: message}
}

func transientError(code, message string) *events.JobError {
	return &events.JobError{Code: code, Message: message, Retryable: true}
}

var (
	errCancelled  = permanentError(codeCancelled, "The job was canceled.")
	errDeadline   = transientError(codeDeadline, "The job did not finish within this server's time limit for jobs.")
	errAllFailed  = permanentError(codeUpstream, "Every request of the batch failed. Each has its own error.")
	errKeyRevoked = permanentError(codeKeyRevoked, "The key that created the job was revoked or has expired.")
)

// StorageError returns the API error for a file that could not be stored.
func StorageError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fault.New(fault.StorageUnavailable, "The server cannot store files at the moment. Retry shortly.").Because(err)
}

// failures describe the kinds of providers' failures.
var failures = map[providers.Kind]*events.JobError{
	providers.KindBlockedInput:  permanentError(codeBlockedInput, "The provider's filter rejected the input."),
	providers.KindBlockedOutput: permanentError(codeBlockedOutput, "The provider's filter rejected the output."),
	providers.KindInvalid:       permanentError(codeInvalid, "The provider rejected the request. Check what the model supports."),
	providers.KindTimeout:       transientError(codeTimeout, "The provider did not respond in time."),
	providers.KindRateLimited:   transientError(codeCapacity, "The provider is overloaded."),
	providers.KindOverloaded:    transientError(codeCapacity, "The provider is overloaded."),
	providers.KindLocal:         transientError(codeInternal, "The server is out of file descriptors."),
}

// describeError returns the error of a failed task for its owner.
func describeError(err error) *events.JobError {
	var failure *providers.Failure
	if errors.As(err, &failure) {
		out := *cmp.Or(failures[failure.Kind], transientError(codeUpstream, "The provider failed."))
		if failure.Message != "" {
			out.Message += " It said: " + failure.Message
		}
		return &out
	}
	if f, ok := fault.As(err); ok {
		switch f.Code {
		case fault.InvalidParameter, fault.MissingParameter, fault.ContextLengthExceeded, fault.ModelNotFound, fault.ModelNotPriced:
			return permanentError(codeInvalid, f.Message)
		case fault.NoProvider, fault.Upstream:
			return transientError(codeUpstream, f.Message)
		case fault.Overloaded, fault.RateLimitExceeded:
			return transientError(codeCapacity, f.Message)
		case fault.UpstreamTimeout, fault.RequestTimeout:
			return transientError(codeTimeout, f.Message)
		}
		return transientError(codeInternal, f.Message)
	}
	switch {
	case errors.Is(err, files.ErrFull):
		return transientError(codeInternal, "The server has no space to store the file.")
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline
	}
	return transientError(codeInternal, "The server failed.")
}
