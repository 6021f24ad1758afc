package simulator

import (
	"errors"

	"turnpike/internal/providers"
)

// mediaMagic are the inputs that count in the prompt of a picture or a video,
// and in a text to be read aloud.
var mediaMagic = []string{"error", "delay", "fail"}

// mediaMagicHelp is what a caller who mistyped one of them is told.
const mediaMagicHelp = "known are [[sim:fail=CODE]] (moderation_blocked_input, moderation_blocked_output, invalid_input, upstream_error, upstream_timeout, capacity), " +
	"[[sim:error=STATUS]] (400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504) and [[sim:delay=2s]] (up to 60s)"

// failureCode is the word for a failure that the API uses for jobs.
type failureCode string

// failures are those that a provider can cause.
var failures = map[failureCode]providers.Kind{
	"moderation_blocked_input":  providers.KindBlockedInput,
	"moderation_blocked_output": providers.KindBlockedOutput,
	"invalid_input":             providers.KindInvalid,
	"upstream_error":            providers.KindServer,
	"upstream_timeout":          providers.KindTimeout,
	"capacity":                  providers.KindOverloaded,
}

// readMedia takes the magic inputs out of a field's text.
func readMedia(param, text string) (m *magic, rest string, err error) {
	m = &magic{param: param}
	rest, err = m.read(text)
	return m, rest, err
}

// failure is the one that was asked for, or nil.
func (m *magic) failure() *providers.Failure {
	if m.fail == "" {
		return nil
	}
	f := &providers.Failure{Kind: failures[m.fail], Err: errors.New("simulated failure, asked for by [[sim:fail=" + string(m.fail) + "]]")}
	if f.Kind == providers.KindInvalid {
		f.Param = m.param
	}
	return f
}

// refused is the error or the failure that was asked for.
func (m *magic) refused() error {
	if m.status != 0 {
		return m.fault()
	}
	if f := m.failure(); f != nil {
		return f
	}
	return nil
}
