package agents

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/agents/tools"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/spend"
)

// retryDelays are the delays after the first, second and third failure of a turn.
var retryDelays = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute}

// retry schedules a failed turn again, or ends the run if the failure is
// permanent. Test runs fail immediately, so that tests of failures see them.
func (s *Service) retry(ctx context.Context, o *outcome, code string, err error) (*outcome, error) {
	r, now := o.run, s.Now()
	if ctx.Err() != nil {
		o.schedule(now, 0) // the run's timeout interrupted the turn; the next one ends the run
		return o, nil
	}
	message := "The server failed."
	transient := true
	if f, ok := fault.As(err); ok {
		message = f.Message
		transient = !f.Final() && (fault.FamilyOf(f.Code).Status >= 500 || f.Code == fault.RateLimitExceeded)
		switch f.Code {
		case fault.BudgetExceeded, fault.InsufficientCredits:
			if spend.Transient(err) { // other reservations may be released
				o.schedule(now, o.backoff(now))
				return o, nil
			}
			code = string(f.Code)
		case fault.ContextLengthExceeded:
			code = string(f.Code)
			message = "The conversation is longer than the model's context window. Use a model with a larger context_window (GET /v1/models), or tools with shorter outputs."
		case fault.RateLimitExceeded:
			if r.Environment == accounts.Live && limits.Refused(err) { // the key's own limit only delays the run
				o.schedule(now, max(f.RetryAfter, time.Second))
				return o, nil
			}
		}
	} else if code == "tool_error" {
		message = err.Error()
		var f *tools.Failure
		transient = !errors.As(err, &f) || !f.Final
	}
	slog.Debug("turn failed", "run", r.ID, "error", err)
	if transient && r.Environment == accounts.Live && int(r.Tries) < len(retryDelays) {
		o.schedule(now, retryDelays[r.Tries])
		r.Tries++
		return o, nil
	}
	return o, o.end(Failed, runError(code, "%s", message), now)
}

// A turn that waits for credits or for the request limits is retried after a
// quarter of the time that it has waited, within these bounds.
const (
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
)

func (o *outcome) backoff(now time.Time) time.Duration {
	return min(max(minBackoff, now.Sub(o.waitingSince)/4), maxBackoff)
}
