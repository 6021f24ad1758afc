package turnpike

import (
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// transport sends the requests of the generated client. It retries temporary failures, and turns every response that
// isn't a success into an *Error.
type transport struct {
	client  *http.Client
	retries int
}

// Do sends a request. A POST gets an Idempotency-Key, so a retry never runs it twice.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", rand.Text())
	}
	for attempt := 0; ; attempt++ {
		last := attempt >= t.retries || req.Body != nil && req.GetBody == nil
		if attempt > 0 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req.Body = body
		}
		delay := backoff(attempt)
		res, err := t.client.Do(req)
		switch {
		case err != nil:
			if last || req.Context().Err() != nil {
				return nil, err
			}
		case res.StatusCode < 300:
			return res, nil
		default:
			failure := readError(res)
			if last || !isRetryable(res) {
				return nil, failure
			}
			if asked, ok := requestedDelay(res.Header); ok {
				delay = asked
			}
		}
		if err := sleep(req.Context(), delay); err != nil {
			return nil, err
		}
	}
}

func isRetryable(res *http.Response) bool {
	if hint := res.Header.Get("X-Should-Retry"); hint != "" {
		return hint == "true"
	}
	switch res.StatusCode {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return res.StatusCode >= http.StatusInternalServerError
}

// requestedDelay returns the delay that a response asks for.
func requestedDelay(h http.Header) (time.Duration, bool) {
	if ms, err := strconv.ParseUint(h.Get("Retry-After-Ms"), 10, 31); err == nil {
		return time.Duration(ms) * time.Millisecond, true
	}
	if s, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	return 0, false
}

// maxBackoff is the longest delay before a retry for which the server didn't ask.
const maxBackoff = 8 * time.Second

// backoff returns the delay before a retry. The random part spreads the retries of many clients.
func backoff(attempt int) time.Duration {
	d := min(float64(maxBackoff), float64(500*time.Millisecond)*math.Pow(2, float64(attempt)))
	return time.Duration(d * (0.75 + mathrand.Float64()/4))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
