package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

type sendFunc func(ctx context.Context, t target, maxOutput int64) (*providers.Response, error)

// maxRetryAfter is the longest Retry-After that a call with only one target waits for.
const maxRetryAfter = 3 * time.Second

var retryPauses = []time.Duration{250 * time.Millisecond, time.Second}

// Attempt is an attempt as the log shows it.
type Attempt struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Outcome  string `json:"outcome"` // "ok", "unsupported", or the kind of the failure
	Status   int    `json:"status,omitzero"`
	MS       int64  `json:"ms"`
	WaitMS   int64  `json:"wait_ms,omitzero"` // how long Turnpike waited before it, after the attempt before
}

// Outcomes of attempts in which the provider did not fail.
const (
	AttemptOK          = "ok"
	AttemptUnsupported = "unsupported" // the provider's format can't express the request
)

func newAttempt(t target, outcome string, status int, took time.Duration) Attempt {
	return Attempt{Provider: t.provider.Name(), Model: t.offer.ID, Outcome: outcome, Status: status, MS: took.Milliseconds()}
}

// addAttempt records an attempt. Those of a call that succeeds immediately are not recorded.
func (a *activeCall) addAttempt(outcome string, status int, took time.Duration) {
	next := newAttempt(a.target, outcome, status, took)
	next.WaitMS = a.waited.Milliseconds()
	a.observation.Attempts = append(a.observation.Attempts, next)
}

// noteAttempts copies the attempts to the log entry.
func (a *activeCall) noteAttempts() {
	if len(a.observation.Attempts) == 0 {
		return
	}
	if text, err := json.Marshal(a.observation.Attempts); err == nil {
		a.record.Note(func(e *audit.Entry) { e.Attempts = text })
	}
}

// attempt sends the call to one target after the other until one responds. The client has
// received nothing yet, so it doesn't notice.
func (g *snapshot) attempt(ctx context.Context, a *activeCall, targets []target, send sendFunc) (*providers.Response, error) {
	defer a.noteAttempts()
	retries := 0
	for i := 0; ; {
		if ctx.Err() != nil {
			return nil, upstreamFault(ctx.Err())
		}
		t := targets[i]
		if i > 0 {
			if err := a.admit(t); err != nil && i+1 < len(targets) {
				i++
				continue
			} else if err != nil {
				return nil, err
			}
		}
		a.startAttempt(t)
		if i > 0 {
			a.record.Note(func(e *audit.Entry) { e.Model, e.Provider = t.offer.ID, t.provider.Name() })
		}
		started := time.Now() // latencies are real, even if the clock is not
		resp, err := g.sendAttempt(ctx, a, send)
		took := g.Now().Sub(a.attemptStarted)
		if err == nil {
			a.observation.FirstByte = time.Since(started)
			t.health.recordFirstByte(a.observation.FirstByte)
			if len(a.observation.Attempts) > 0 {
				a.addAttempt(AttemptOK, http.StatusOK, took)
			}
			return resp, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		a.failAttempt(took)
		if a.request.begun {
			return nil, upstreamFault(err)
		}
		var f *providers.Failure
		if !errors.As(err, &f) {
			if _, ok := fault.As(err); ok && i+1 < len(targets) { // this provider can't express the request; try the next one
				a.addAttempt(AttemptUnsupported, 0, took)
				i++
				continue
			}
			return nil, upstreamFault(err)
		}
		if isContextLengthError(f) {
			f.Kind = providers.KindTooLong
		}
		a.addAttempt(string(f.Kind), f.Status, took)
		if rejectsRequest(f) {
			t.health.recordRejection()
			if next := nextModel(targets, i); f.Kind == providers.KindTooLong && next > 0 { // its context window may be larger
				i = next
				continue
			}
			return nil, upstreamFault(err)
		}
		if f.Kind == providers.KindLocal { // calling another provider would fail as well
			return nil, upstreamFault(err)
		}
		if !exceedsOwnTimeout(t, f) {
			t.health.recordFailure(f, g.Now())
		}
		switch {
		case i+1 < len(targets):
			i++
		case providers.TransportOf(ctx) != nil: // it would return the same
			return nil, upstreamFault(err)
		case len(targets) == 1 && retries < len(retryPauses) && f.Transient() && f.RetryAfter <= maxRetryAfter:
			g.sleep(ctx, max(retryPauses[retries], f.RetryAfter))
			retries++
		case t.offer.AnyName && f.Kind == providers.KindNoModel:
			return nil, modelNotFound("model", a.request.models[0]).Because(err)
		default:
			return nil, upstreamFault(err)
		}
	}
}

// sendAttempt sends the call to its current target. Of a stream it waits for the first chunk,
// because some providers report errors there.
func (g *snapshot) sendAttempt(ctx context.Context, a *activeCall, send sendFunc) (*providers.Response, error) {
	t, output := a.target, outputLimitFor(a.target, a.request, a.maxOutput)
	if !a.request.stream {
		if t.timeout() == 0 {
			return send(ctx, t, output)
		}
		ctx, cancel := context.WithCancel(ctx)
		timer := startRouteTimer(t, cancel)
		resp, err := send(ctx, t, output)
		if err = timer.stop(err); err != nil || resp.Content == nil {
			cancel() // otherwise a file is still arriving
		}
		return resp, err
	}
	ctx, watch := watchClient(ctx, g.usageTimeout)
	timer := startRouteTimer(t, watch.cancel)
	resp, err := send(ctx, t, output)
	if err != nil || resp.Stream == nil {
		watch.stop()
		return resp, timer.stop(err)
	}
	s := &startedStream{Stream: resp.Stream, watch: watch, hasFirst: true}
	s.first, err = resp.Stream.Next()
	if err == io.EOF {
		err = &providers.Failure{Kind: providers.KindCut, Err: errors.New("stream ended before its first chunk")}
	}
	if err = timer.stop(err); err != nil {
		_ = s.Close()
		return nil, err
	}
	resp.Stream = s
	return resp, nil
}

// routeTimer ends an attempt that takes longer than its route allows.
type routeTimer struct {
	timer   *time.Timer
	after   time.Duration
	expired atomic.Bool
}

// timeout returns the timeout of the target's route, or 0.
func (t target) timeout() time.Duration {
	if t.route == nil {
		return 0
	}
	return t.route.Timeout
}

// startRouteTimer returns nil if the route has no timeout.
func startRouteTimer(t target, cancel context.CancelFunc) *routeTimer {
	after := t.timeout()
	if after == 0 {
		return nil
	}
	r := &routeTimer{after: after}
	r.timer = time.AfterFunc(after, func() {
		r.expired.Store(true)
		cancel()
	})
	return r
}

// stop returns the error of an attempt, which is a timeout if the time was up.
func (t *routeTimer) stop(err error) error {
	if t == nil {
		return err
	}
	t.timer.Stop()
	if t.expired.Load() {
		return &providers.Failure{Kind: providers.KindTimeout, Err: routeTimeoutError{t.after}}
	}
	return err
}

// routeTimeoutError is the cause of a failure by a route's timeout.
type routeTimeoutError struct{ after time.Duration }

func (e routeTimeoutError) Error() string {
	return "no response within the route's timeout of " + e.after.String()
}

// exceedsOwnTimeout reports whether a workspace's own timeout made an attempt fail.
func exceedsOwnTimeout(t target, f *providers.Failure) bool {
	var timeout routeTimeoutError
	return t.route != nil && t.route.Owned && errors.As(f.Err, &timeout)
}

type startedStream struct {
	providers.Stream
	watch    *clientWatch
	first    providers.Chunk
	hasFirst bool
}

func (s *startedStream) Next() (chunk providers.Chunk, err error) {
	if chunk = s.first; !s.hasFirst {
		chunk, err = s.Stream.Next()
	}
	s.hasFirst = false
	if err == nil {
		s.watch.observeChunk(chunk)
	}
	return chunk, err
}

func (s *startedStream) Close() error {
	defer s.watch.stop()
	return s.Stream.Close()
}

// outputLimitFor returns the limit to send to a provider, or 0 for none. A free model with an
// unknown context window gets no default limit, because it rejects one beyond its window.
func outputLimitFor(t target, r *request, output int64) int64 {
	if r.maxOutput == 0 && t.offer.ContextWindow == 0 && t.offer.Price.IsFree() {
		return 0
	}
	return output
}

// nextModel returns the index of the next target with another model than the one at i, or 0.
func nextModel(targets []target, i int) int {
	for n := i + 1; n < len(targets); n++ {
		if targets[n].offer.ID != targets[i].offer.ID {
			return n
		}
	}
	return 0
}

// rejectsRequest reports whether the provider is healthy and rejects the request itself, so
// that trying another provider is pointless.
func rejectsRequest(f *providers.Failure) bool {
	return f.Kind == providers.KindInvalid || f.Kind == providers.KindTooLong || f.Kind == providers.KindBlockedInput || f.Kind == providers.KindBlockedOutput
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
