package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func wantHeaders(t *testing.T, r *harness.Response, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := r.Header.Get(name); got != value {
			t.Errorf("%s is %q, want %q: %d %s", name, got, value, r.Status, r.Body)
		}
	}
}

func TestRequestsPerKeyAndMinuteAreLimited(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		rate := int64(2)
		c := m.withKey(t, access.Key{RateLimit: &rate})
		call := func() *harness.Response { return c.chat(t, body("small", "hi", nil)) }
		wantHeaders(t, call().Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "30s",
			"x-ratelimit-limit-tokens": "2000000", "Retry-After": ""})
		wantHeaders(t, call().Want(t, 200, ""), map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s"})
		for range 3 { // rejected requests don't count
			r := call().Want(t, 429, "rate_limit_exceeded")
			wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "0", "Retry-After": "30", "retry-after-ms": "30000", "Service-Model": ""})
			if e := c.entry(t, r); e.At("model") != nil || e.At("credits") != 0.0 || e.Text("error_code") != "rate_limit_exceeded" {
				t.Errorf("got log entry %s", e.Body)
			}
		}
		// All model requests count together, including those of the key's
		// tokens. Nothing else counts.
		token := c.Do(t, mint(c.key, map[string]any{"scopes": []string{"responses:create"}})).Want(t, 200, "").Text("value")
		c.ask(t, "POST", "/v1/embeddings", map[string]any{"model": "embed", "input": "hi"}).Want(t, 429, "rate_limit_exceeded")
		c.Do(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: token, Body: map[string]any{"model": "small", "input": "hi"}}).Want(t, 429, "rate_limit_exceeded")
		wantHeaders(t, c.get(t, "/v1/models").Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "6000"})
		m.chat(t, body("small", "hi", nil)).Want(t, 200, "") // another key
		m.Clock.Turn(29 * time.Second)
		wantHeaders(t, call().Want(t, 429, "rate_limit_exceeded"), map[string]string{"Retry-After": "1"})
		m.Clock.Turn(time.Second)
		call().Want(t, 200, "")
		call().Want(t, 429, "rate_limit_exceeded")
		if n := len(m.openai.Requests()); n != 4 {
			t.Errorf("%d calls reached the provider, want 4", n)
		}
	})
}

func TestTestKeysHaveTenTimesTheLimits(t *testing.T) {
	eachGateway(t, sqlite, func(cfg *config.Config) { cfg.Limits.LiveRequestsPerMinute, cfg.Limits.LiveTokensPerMinute = 3, 0 }, func(t *testing.T, m *gatewayClient) {
		test := m.withTestKey(t)
		r := test.chat(t, chatBody("hello")).Want(t, 200, "")
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "30", "x-ratelimit-remaining-requests": "29", "x-ratelimit-limit-tokens": "", "x-ratelimit-reset-tokens": ""})
		wantHeaders(t, m.chat(t, body("small", "hi", nil)).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "3"})
		// Errors of the request itself have the headers as well.
		wantHeaders(t, test.chat(t, chatBody("[[sim:error=500]]")).Want(t, 500, "internal_error"), map[string]string{"x-ratelimit-remaining-requests": "28"})
	})
}

func TestTokensPerKeyAndMinuteAreLimited(t *testing.T) {
	eachGateway(t, sqlite, func(cfg *config.Config) { cfg.Limits.LiveTokensPerMinute = 600 }, func(t *testing.T, m *gatewayClient) {
		call := func(most int) *harness.Response {
			return m.chat(t, body("small", "hi", map[string]any{"max_tokens": most}))
		}
		// A request counts at its maximum usage, and afterwards at its actual
		// usage.
		for range 3 {
			wantHeaders(t, call(500).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-tokens": "600"})
		}
		m.openai.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 300, Output: 200}})
		call(500).Want(t, 200, "")
		r := call(500).Want(t, 429, "rate_limit_exceeded") // 551 were used
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-tokens": "600", "x-ratelimit-limit-requests": "1000"})
		if r.Header.Get("Retry-After") == "" || r.Header.Get("x-ratelimit-remaining-tokens") == "600" {
			t.Errorf("headers %v", r.Header)
		}
		m.Clock.Turn(time.Minute)
		call(500).Want(t, 200, "")

		// Requests that a budget refuses use no tokens.
		none := credits.Micro(0)
		poor := m.withKey(t, access.Key{MonthlyBudget: &none})
		for range 3 {
			poor.chat(t, body("small", "hi", map[string]any{"max_tokens": 500})).Want(t, 402, "budget_exceeded")
		}
	})
}

func TestCallsInFlightPerKeyAreLimited(t *testing.T) {
	eachGateway(t, sqlite, func(cfg *config.Config) { cfg.Limits.LiveInFlight = 1 }, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Delay: time.Second})
		done := make(chan *harness.Response)
		go func() { done <- m.chat(t, body("small", "hi", nil)) }()
		m.openai.Wait(1)
		wantHeaders(t, m.chat(t, body("small", "hi", nil)).Want(t, 429, "rate_limit_exceeded"), map[string]string{"Retry-After": "1"})
		other, _ := m.Key(t, m.workspace, accounts.Live)
		m.as(other).chat(t, body("small", "hi", nil)).Want(t, 200, "")
		(<-done).Want(t, 200, "")
		m.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		// A stream keeps its slot until it ends or its client disconnects.
		m.openai.Queue(upstreams.OpenAIReply{Stall: 1000})
		m.disconnectAfter(t, body("small", "hi", map[string]any{"stream": true}), "data:")
		m.Eventually(t, func() bool { return m.chat(t, body("small", "hi", nil)).Status == 200 })
		// A client that has read the end can send the next request immediately.
		for range 30 {
			m.disconnectAfter(t, body("small", "hi", map[string]any{"stream": true}), "[DONE]")
			m.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		}
	})
}

func limited(t *testing.T, engine string, change func(l *config.Limits)) *harness.Server {
	t.Helper()
	cfg := harness.Config(t, engine)
	change(&cfg.Limits)
	return harness.Start(t, cfg, harness.NewClock())
}

// eachLimited runs fn on each engine, with other limits.
func eachLimited(t *testing.T, engines []string, change func(l *config.Limits), fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) { fn(t, limited(t, engine, change)) })
}

func TestReadsAndWritesAreLimitedPerKeyAndWorkspace(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) {
		l.ReadsPerMinute, l.WorkspaceReadsPerMinute, l.WritesPerMinute, l.WorkspaceWritesPerMinute = 6, 10, 3, 5
	}, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, id := s.Key(t, w, accounts.Test)
		token := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")

		// Every path counts, and so do requests of scoped tokens and rejected
		// ones.
		wantHeaders(t, s.Do(t, models(key)).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "6", "x-ratelimit-remaining-requests": "5",
			"x-ratelimit-reset-requests": "10s", "x-ratelimit-limit-tokens": "", "Retry-After": ""})
		for _, r := range []harness.Request{models(token), {Method: "GET", Path: "/v1/nothing", Key: key}, {Method: "HEAD", Path: "/v1/models", Key: key},
			{Method: "GET", Path: "/v1/scoped_tokens", Key: key}, {Method: "GET", Path: "/v1//models", Key: key}} {
			if got := s.Do(t, r); got.Status == 429 {
				t.Fatalf("got 429 for %s %s, want it to be counted", r.Method, r.Path)
			}
		}
		r := s.Do(t, models(key)).Want(t, 429, "rate_limit_exceeded")
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "6", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s",
			"Retry-After": "10", "retry-after-ms": "10000", "x-should-retry": ""})
		if got, want := r.Text("error.message"), "This key has reached its limit of 6 read requests per minute. Retry in 10s."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		s.Do(t, models(token)).Want(t, 429, "rate_limit_exceeded")
		lower := models("")
		lower.Header = http.Header{"Authorization": {"bearer  " + key}, "X-Forwarded-For": {"192.0.2.1"}}
		s.Do(t, lower).Want(t, 429, "rate_limit_exceeded")

		// Writes have a separate bucket, and a rotation doesn't refill it.
		key = s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + id + "/rotate", Key: key}).Want(t, 200, "").Text("value")
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/nothing", Key: key}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/webhooks/wh_x", Key: key}).Want(t, 429, "rate_limit_exceeded")
		s.Do(t, models(key)).Want(t, 429, "rate_limit_exceeded")

		// A second key shares the workspace's bucket with the first.
		second, _ := s.Key(t, w, accounts.Test)
		for range 4 {
			s.Do(t, models(second)).Want(t, 200, "")
		}
		r = s.Do(t, models(second)).Want(t, 429, "rate_limit_exceeded")
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "10", "Retry-After": "6"})
		if got, want := r.Text("error.message"), "This workspace has reached its limit of 10 read requests per minute. Retry in 6s."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for range 2 {
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: second, Body: "{"}).Want(t, 400, "invalid_json")
		}
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: second, Body: "{"}).Want(t, 429, "rate_limit_exceeded")

		// Live and test environments have separate buckets, and so do
		// workspaces.
		live, _ := s.Key(t, w, accounts.Live)
		s.Do(t, models(live)).Want(t, 200, "")
		other, _ := s.Key(t, s.Workspace(t, "other"), accounts.Test)
		s.Do(t, models(other)).Want(t, 200, "")

		s.Clock.Turn(10 * time.Second)
		s.Do(t, models(key)).Want(t, 200, "")
		s.Do(t, models(key)).Want(t, 429, "rate_limit_exceeded")
	})
}

func TestRateLimitedRequestIsRejectedBeforeItsBody(t *testing.T) {
	eachLimited(t, sqlite, func(l *config.Limits) {
		l.WritesPerMinute, l.BodyBytes, l.ModelBodyBytes, l.LiveRequestsPerMinute = 1, 1024, 1024, 1
	}, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
		for path, reached := range map[string]int{"/v1/projects": 1, "/v1/chat/completions": 2} {
			large := harness.Request{Method: "POST", Path: path, Key: key, Body: strings.Repeat(" ", 2048)}
			for range reached {
				s.Do(t, large).Want(t, 413, "request_too_large")
			}
			s.Do(t, large).Want(t, 429, "rate_limit_exceeded")
		}
	})
}

func TestForbiddenRequestsDoNotConsumeLimits(t *testing.T) {
	eachLimited(t, sqlite, func(l *config.Limits) { l.ReadsPerMinute = 2 }, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
		stranger := models(key)
		stranger.Header = http.Header{"Origin": {"https://example.com"}}
		for range 2 {
			s.Do(t, stranger).Want(t, 403, "live_key_in_browser")
		}
		s.Do(t, stranger).Want(t, 429, "rate_limit_exceeded")
		for range 2 {
			s.Do(t, models(key)).Want(t, 200, "")
		}
	})
}

func TestRateLimitedFloodLeavesFewLogEntries(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) { l.WritesPerMinute, l.TestRequestsPerMinute = 1, 1 }, func(t *testing.T, s *harness.Server) {
		key, id := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("hi")}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("hi")}).Want(t, 429, "rate_limit_exceeded")
		s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
		for range 99 {
			r := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 429, "rate_limit_exceeded")
			if r.Header.Get("X-Request-Id") == "" {
				t.Error("got no X-Request-Id")
			}
		}
		var entries int64
		if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM requests WHERE key_id = $1", id).Scan(&entries); err != nil || entries != 62 {
			t.Errorf("got %d log entries (%v), want 62: 2 that succeeded and 60 of 100 refused", entries, err)
		}
		s.Clock.Turn(time.Minute)
		s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
		r := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 429, "rate_limit_exceeded")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + r.Header.Get("X-Request-Id"), Key: key}).Want(t, 200, "")
	})
}

func TestZeroDisablesALimit(t *testing.T) {
	t.Parallel()
	s := limited(t, "sqlite", func(l *config.Limits) { l.ReadsPerMinute, l.WorkspaceReadsPerMinute = 0, 0 })
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	wantHeaders(t, s.Do(t, models(key)).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": ""})
}
