package credentials

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

// source returns tokens that a test sets.
type source struct {
	mu    sync.Mutex
	token Token
	err   error
	calls atomic.Int32
}

func (s *source) fetch(context.Context) (Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.Add(1)
	return s.token, s.err
}

func (s *source) set(t Token, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.err = t, err
}

// authenticate returns the token that a request gets, after a fetch that it started has ended.
func authenticate(t *testing.T, r *Refreshing) (string, error) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	err := r.Authenticate(req, nil)
	r.mu.Lock()
	fetching := r.fetching
	r.mu.Unlock()
	if fetching != nil {
		<-fetching
	}
	return strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "), err
}

func TestTokenIsReplacedBeforeItExpires(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &source{token: Token{Value: "first", Expires: now.Add(time.Hour)}}
	r := NewRefreshing(providers.BearerKey, s.fetch)
	r.now = func() time.Time { return now }
	want := func(value string, calls int32) {
		t.Helper()
		if got, err := authenticate(t, r); got != value || err != nil || s.calls.Load() != calls {
			t.Errorf("got %q, %v after %d fetches, want %q after %d", got, err, s.calls.Load(), value, calls)
		}
	}
	want("first", 1)
	now = now.Add(54 * time.Minute)
	want("first", 1)
	s.set(Token{}, errors.New("down"))
	now = now.Add(2 * time.Minute) // within the last five minutes
	want("first", 2)               // its source fails, but the token is still valid
	s.set(Token{Value: "second", Expires: now.Add(time.Hour)}, nil)
	now = now.Add(2 * time.Second)
	want("first", 3) // no request waits while there is a valid token
	want("second", 3)
	now = now.Add(2 * time.Hour)
	s.set(Token{}, errors.New("down"))
	if got, err := authenticate(t, r); got != "" || err == nil || err.Error() != "down" {
		t.Errorf("with an expired token, got %q, %v", got, err)
	}
	if _, err := authenticate(t, r); err == nil || s.calls.Load() != 4 {
		t.Errorf("a failing source was asked %d times, want 4: %v", s.calls.Load(), err)
	}
	s.set(Token{Value: "late", Expires: now.Add(-time.Minute)}, nil)
	now = now.Add(2 * time.Second)
	if _, err := authenticate(t, r); !errors.Is(err, errExpired) {
		t.Errorf("a token that has expired: %v", err)
	}
}

func TestConcurrentRequestsShareOneFetch(t *testing.T) {
	t.Parallel()
	release, calls := make(chan struct{}), atomic.Int32{}
	r := NewRefreshing(providers.BearerKey, func(context.Context) (Token, error) {
		calls.Add(1)
		<-release
		return Token{Value: "token", Reread: time.Hour}, nil
	})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Authenticate(httptest.NewRequestWithContext(canceled, http.MethodPost, "/", nil), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that disconnects gets %v", err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			if err := r.Authenticate(req, nil); err != nil || req.Header.Get("Authorization") != "Bearer token" {
				t.Errorf("got %v, %v", req.Header, err)
			}
		})
	}
	close(release)
	wg.Wait()
	if calls.Load() != 1 {
		t.Errorf("%d fetches, want 1", calls.Load())
	}
}

func TestRejectedTokenIsFetchedAgain(t *testing.T) {
	t.Parallel()
	var valid atomic.Value
	valid.Store("Bearer old")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			http.Error(w, "who is "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	now := time.Now()
	s := &source{token: Token{Value: "old", Expires: now.Add(time.Hour)}}
	r := NewRefreshing(providers.BearerKey, s.fetch)
	r.now = func() time.Time { return now }
	client := wire.NewClient(wire.Timeouts{}).WithCredential(r)
	post := func() error {
		resp, err := client.Post(t.Context(), server.URL, nil, []byte("{}"), nil)
		if err == nil {
			_, err = wire.ReadAll(resp)
		}
		return err
	}
	if err := post(); err != nil {
		t.Fatal(err)
	}
	valid.Store("Bearer new-token")
	s.set(Token{Value: "new-token", Expires: now.Add(time.Hour)}, nil)
	now = now.Add(time.Minute)
	if err := post(); err != nil || s.calls.Load() != 2 {
		t.Errorf("after the provider's rejection: %v, %d fetches, want 2", err, s.calls.Load())
	}
	// A provider that rejects every token isn't a reason to fetch more.
	valid.Store("none")
	for range 3 {
		err := post()
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind != providers.KindAuth || strings.Contains(err.Error(), "new-token") {
			t.Errorf("got %v", err)
		}
	}
	if s.calls.Load() != 2 {
		t.Errorf("%d fetches, want 2", s.calls.Load())
	}
}

func TestKeyFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	r := NewRefreshing(providers.HeaderKey("Authorization"), File(path))
	r.now = func() time.Time { return now }
	if _, err := authenticate(t, r); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	now = now.Add(time.Minute)
	for text, want := range map[string]string{" \n": "is empty", "two words": "is not a key", "kéy": "is not a key"} {
		write(text)
		if _, err := authenticate(t, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		now = now.Add(time.Minute)
	}
	write("first\n")
	if key, err := authenticate(t, r); key != "first" || err != nil {
		t.Errorf("got %q, %v", key, err)
	}
	write("second\n")
	now = now.Add(2 * time.Minute)
	_, _ = authenticate(t, r)
	if key, err := authenticate(t, r); key != "second" || err != nil {
		t.Errorf("after a rotation: %q, %v", key, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	_, _ = authenticate(t, r)
	if key, err := authenticate(t, r); key != "second" || err != nil {
		t.Errorf("the last key stays in use: %q, %v", key, err)
	}
}

func TestCommandPrintsAKey(t *testing.T) {
	t.Setenv("TURNPIKE_MASTER_KEY", "very-secret")
	shell := func(script string) Fetch { return Command([]string{"sh", "-c", script}) }
	token, err := shell("echo key-1; echo noise >&2")(t.Context())
	if token.Value != "key-1" || !token.Expires.IsZero() || err != nil {
		t.Errorf("a bare key: %+v, %v", token, err)
	}
	for script, want := range map[string]time.Time{
		`echo '{"token": "t", "expires_at": "2030-01-02T03:04:05Z"}'`:                                      time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		`echo '{"accessToken": "t", "expires_on": 1893553445, "expiresOn": "2030-01-02 04:04:05.000000"}'`: time.Unix(1893553445, 0),
	} {
		if token, err := shell(script)(t.Context()); token.Value != "t" || !token.Expires.Equal(want) || err != nil {
			t.Errorf("%s: %+v, %v", script, token, err)
		}
	}
	token, err = shell(`echo '{"access_token": "t", "expires_in": 3600}'`)(t.Context())
	if left := time.Until(token.Expires); left > time.Hour || left < 30*time.Minute || err != nil {
		t.Errorf("it expires in %s, %v", left, err)
	}
	for script, want := range map[string]string{
		"echo no credentials >&2; exit 3": "exit status 3: no credentials",
		"echo":                            "is empty",
		"echo Please sign in first":       "is not a key",
		`echo '{"a"'`:                     "is not valid JSON",
		`echo '{"expires_in": 1}'`:        "has no token",
		`echo '{"token": "t", "expires_at": "soon"}'`: "expiry that is not a time",
		"head -c 200000 /dev/zero | tr '\\0' x":       "is not a key",
		"echo secret${TURNPIKE_MASTER_KEY}!":          "",
	} {
		token, err := shell(script)(t.Context())
		if want == "" {
			if token.Value != "secret!" {
				t.Errorf("the command has Turnpike's variables: %q", token.Value)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	if _, err := Command([]string{"no-such-program"})(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v", err)
	}
}
