// Package credentials authenticates requests to providers with keys and tokens that change over
// time: from a file or a command, or by signing in to a cloud.
package credentials

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/providers"
)

const (
	// fetchTimeout limits how long a file, a command or a server may take to return a token.
	fetchTimeout = 30 * time.Second
	// earlyRefresh is how long before its end a token is replaced, so that a short failure of its
	// source goes unnoticed. Tokens of clouds live for about an hour.
	earlyRefresh = 5 * time.Minute
	// retryInterval limits how often a failing source is asked.
	retryInterval = time.Second
	// renewInterval limits how often a rejected request fetches a token, because a provider may
	// reject the request for another reason.
	renewInterval = 10 * time.Second
)

// Token is a key or a token.
type Token struct {
	Value   string
	Expires time.Time     // zero if it is unknown
	Reread  time.Duration // how long to use a token without Expires before it is fetched again
}

// Fetch returns the current token from its source.
type Fetch func(ctx context.Context) (Token, error)

// Refreshing is a credential whose token is fetched again before it expires, and after a provider
// has rejected it. Requests wait only if there is no valid token.
type Refreshing struct {
	set   providers.SetKey
	fetch Fetch
	now   func() time.Time

	mu        sync.Mutex
	token     Token
	previous  string // requests in progress may still have it
	fetchedAt time.Time
	refreshAt time.Time
	failedAt  time.Time
	err       error         // of the last fetch
	fetching  chan struct{} // closed when the fetch in progress ends; nil if there is none
}

var _ providers.Renewer = (*Refreshing)(nil)

// NewRefreshing returns a credential that fetches its first token with the first request.
func NewRefreshing(set providers.SetKey, fetch Fetch) *Refreshing {
	return &Refreshing{set: set, fetch: fetch, now: time.Now}
}

// Authenticate adds the token.
func (r *Refreshing) Authenticate(req *http.Request, _ []byte) error {
	value, err := r.current(req.Context())
	if err != nil {
		return err
	}
	r.set(req.Header, value)
	return nil
}

// Secrets returns the token and the one before it.
func (r *Refreshing) Secrets() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []string{r.token.Value, r.previous}
}

// Renew fetches the token again. It reports whether that is another one than the rejected one.
func (r *Refreshing) Renew(rejected *http.Request, status int) bool {
	if status == http.StatusTooManyRequests {
		return false
	}
	r.mu.Lock()
	used := r.token.Value
	if !r.wasUsed(rejected) {
		r.mu.Unlock()
		return true // another request has renewed it
	}
	if r.now().Sub(r.fetchedAt) < renewInterval {
		r.mu.Unlock()
		return false
	}
	done := r.startFetch()
	r.mu.Unlock()
	select {
	case <-done:
	case <-rejected.Context().Done():
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.token.Value != used
}

// wasUsed reports whether a request has the current token.
func (r *Refreshing) wasUsed(req *http.Request) bool {
	expected := http.Header{}
	r.set(expected, r.token.Value)
	for name := range expected {
		if req.Header.Get(name) != expected.Get(name) {
			return false
		}
	}
	return true
}

// current returns a valid token, and starts to fetch the next one when it is time.
func (r *Refreshing) current(ctx context.Context) (string, error) {
	r.mu.Lock()
	now := r.now()
	if r.err != nil && !r.isValid(now) && now.Sub(r.failedAt) < retryInterval {
		defer r.mu.Unlock()
		return "", r.err
	}
	if r.isValid(now) {
		defer r.mu.Unlock()
		if !now.Before(r.refreshAt) {
			r.startFetch()
		}
		return r.token.Value, nil
	}
	done := r.startFetch()
	r.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isValid(r.now()) {
		return "", cmp.Or(r.err, errExpired)
	}
	return r.token.Value, nil
}

func (r *Refreshing) isValid(now time.Time) bool {
	return r.token.Value != "" && (r.token.Expires.IsZero() || now.Before(r.token.Expires))
}

// startFetch fetches the token, unless a fetch is in progress, and returns a channel that is closed
// at its end. A client that disconnects must not end it, because other requests wait for it too.
func (r *Refreshing) startFetch() <-chan struct{} {
	if r.fetching != nil {
		return r.fetching
	}
	done := make(chan struct{})
	r.fetching = done
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		token, err := r.fetch(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.store(token, err)
		r.fetching = nil
		close(done)
	}()
	return done
}

var errExpired = errors.New("the new token has already expired; check this machine's clock")

func (r *Refreshing) store(token Token, err error) {
	now := r.now()
	if err == nil && token.Value == "" {
		err = errors.New("the new token is empty")
	}
	if err == nil && !token.Expires.IsZero() && !now.Before(token.Expires) {
		err = errExpired
	}
	r.err = err
	if err != nil {
		r.failedAt, r.refreshAt = now, now.Add(retryInterval)
		return
	}
	if token.Value != r.token.Value {
		r.previous = r.token.Value
	}
	r.token, r.fetchedAt = token, now
	if token.Expires.IsZero() {
		r.refreshAt = now.Add(token.Reread)
		return
	}
	life := token.Expires.Sub(now)
	r.refreshAt = token.Expires.Add(-min(earlyRefresh, life/5))
}
