package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
)

// Fetch returns the responses that are due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*lanes.Row], error) {
	return lanes.Table{DB: s.DB, Now: s.Now, Name: "background_responses", ID: "id"}.Fetch(ctx, lane, after, n)
}

// maxAttempts limits how often the model is called for a response. Only a call that was interrupted by
// the end of its node is repeated.
const maxAttempts = 3

var (
	errDeadline    = fault.New(fault.UpstreamTimeout, "The response was not completed within this server's time limit for background responses.")
	errInterrupted = fault.New(fault.Internal, "The server stopped %d times while the model was called.", maxAttempts)
	errKeyRevoked  = fault.New(fault.Authentication, "The key that created the response was revoked or has expired.")
	errNoScope     = fault.New(fault.InsufficientScope, "The key that created the response no longer has the scope %s.", access.ResponsesCreate)
)

// Work calls the model for a response and queues its end.
func (s *Service) Work(ctx context.Context, _ string, i *lanes.Row) lanes.Result {
	j, err := s.load(ctx, i.ID)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} // it has ended
	case err != nil:
		slog.Warn("failed to read background response; retrying", "response", i.ID, "error", err)
		return lanes.Retry(ctx)
	}
	e, err := s.work(ctx, j)
	switch {
	case errors.Is(err, errStale), err != nil && ctx.Err() != nil: // canceled, or the server stops
		return lanes.Result{Healthy: true, Outcome: db.Written}
	case err != nil:
		slog.Warn("background response failed; retrying", "response", j.ID, "error", err)
		return lanes.Retry(ctx)
	}
	return lanes.Result{Healthy: true, Done: true, Outcome: s.ends.Add(e)}
}

// errStale means that the response was canceled, or that another node works it.
var errStale = errors.New("background: the response has ended or is created by another node")

// work returns the end of a response, or an error if it must be worked again.
func (s *Service) work(ctx context.Context, j *job) (*end, error) {
	r, err := s.open(j)
	if err != nil {
		return nil, err
	}
	p, err := access.PrincipalOf(ctx, s.DB, j.KeyID, j.TokenLimits, s.Now())
	if err != nil {
		return nil, err
	}
	var reject *fault.Error
	switch {
	case !s.Now().Before(j.DeadlineAt):
		reject = errDeadline
	case j.Attempts >= maxAttempts:
		reject = errInterrupted
	case p == nil:
		reject = errKeyRevoked
	case !p.Grant.Allows(access.ResponsesCreate):
		reject = errNoScope
	}
	if reject != nil {
		return j.fail(r.NewStream(), reject, &audit.Entry{}), nil
	}
	if err := s.start(ctx, j); err != nil {
		return nil, err
	}
	e, err := s.attempt(ctx, j, p, r)
	if err != nil && ctx.Err() != nil {
		s.stops.Add(j) // the server stops, which isn't the response's fault
	}
	return e, err
}

// start is a call to a provider that is about to begin.
type start struct {
	job   *job
	stale bool // another node works the response, or it has ended
}

// lastCommitWait is how long a worker whose context has ended waits for a write that it has queued. A
// commit takes milliseconds.
const lastCommitWait = 10 * time.Second

// start counts an attempt. It is durable before the call begins, so that no crash repeats calls without
// end.
func (s *Service) start(ctx context.Context, j *job) error {
	b := &start{job: j}
	written := s.starts.Add(b)
	err := written.Wait(ctx)
	if ctx.Err() != nil {
		err = written.WaitFor(lastCommitWait)
	}
	if err == nil && b.stale {
		err = errStale
	}
	j.Attempts++
	if errors.Is(err, db.ErrInDoubt) { // the call isn't made, so the attempt doesn't count
		_ = s.stops.Add(j).Wait(ctx)
	}
	return err
}

func (s *Service) writeStarts(ctx context.Context, tx *db.Tx, list []*start) error {
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.job.ID
	}
	stored, err := lock(ctx, tx, names)
	if err != nil {
		return err
	}
	var begun []string
	for _, b := range list {
		now := stored[b.job.ID]
		if b.stale = now == nil || now.Attempts != b.job.Attempts; b.stale {
			continue
		}
		now.Attempts++ // a second start of the same attempt is stale
		b.job.NextEvent = now.NextEvent
		if now.NextEvent > lastQueuedEvent+1 {
			// The events of the interrupted attempt don't belong to this response. Their numbers are
			// not used again, because clients may have received them.
			if err := s.Store.DropEvents(ctx, tx, now.ID, lastQueuedEvent); err != nil {
				return err
			}
		}
		begun = append(begun, now.ID)
	}
	if len(begun) == 0 {
		return nil
	}
	places, args := db.Places(nil, begun)
	if _, err := tx.Exec(ctx, "UPDATE background_responses SET attempts = attempts + 1, output_tokens = 0, cost = input_cost WHERE id IN "+places, args...); err != nil {
		return fmt.Errorf("start background responses: %w", err)
	}
	return s.Store.SetInProgress(ctx, tx, begun)
}

// writeStops takes back attempts that a stopping server has interrupted, so that planned restarts never
// make a response fail.
func (s *Service) writeStops(ctx context.Context, tx *db.Tx, list []*job) error {
	for _, j := range list {
		if _, err := tx.Exec(ctx, "UPDATE background_responses SET attempts = attempts - 1 WHERE id = $1 AND attempts = $2", j.ID, j.Attempts); err != nil {
			return fmt.Errorf("stop background response: %w", err)
		}
	}
	return nil
}
