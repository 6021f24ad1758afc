package simulator

import (
	"errors"

	"turnpike/internal/providers"
)

// mediaMagic are the magic inputs for images, videos and speech.
var mediaMagic = []string{"error", "delay", "fail"}

// mediaMagicHelp lists them.
const mediaMagicHelp = "Known magic inputs: [[sim:fail=CODE]] (moderation_blocked_input, moderation_blocked_output, invalid_input, upstream_error, upstream_timeout, capacity), " +
	"[[sim:error=STATUS]] (400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504) and [[sim:delay=2s]] (up to 60s)."

// failureCode is the code of a failed job in the API.
type failureCode string

// failures are the failures that a provider can cause.
var failures = map[failureCode]providers.Kind{
	"moderation_blocked_input":  providers.KindBlockedInput,
	"moderation_blocked_output": providers.KindBlockedOutput,
	"invalid_input":             providers.KindInvalid,
	"upstream_error":            providers.KindServer,
	"upstream_timeout":          providers.KindTimeout,
	"capacity":                  providers.KindOverloaded,
}

// extractMediaMagic reads the magic inputs of a field and returns its text without them.
func extractMediaMagic(param, text string) (m *magic, rest string, err error) {
	m = &magic{param: param}
	rest, err = m.extract(text)
	return m, rest, err
}

// failure returns the failure that [[sim:fail]] requests, or nil.
func (m *magic) failure() *providers.Failure {
	if m.fail == "" {
		return nil
	}
	f := &providers.Failure{Kind: failures[m.fail], Err: errors.New("simulated failure, requested by [[sim:fail=" + string(m.fail) + "]]")}
	if f.Kind == providers.KindInvalid {
		f.Param = m.param
	}
	return f
}

// requestedError returns the error or the failure that the magic inputs request.
func (m *magic) requestedError() error {
	if m.status != 0 {
		return m.requestedFault()
	}
	if f := m.failure(); f != nil {
		return f
	}
	return nil
}
