package api_test

import (
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/providers/upstreamtest"
	"turnpike/test/harness"
)

func wantHeaders(t *testing.T, r *harness.Response, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := r.Header.Get(name); got != value {
			t.Errorf("%s is %q, expected %q: %d %s", name, got, value, r.Status, r.Body)
		}
	}
}

func TestKeyHasItsRateOfRequests(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		rate := int64(2)
		c := m.keyed(t, access.Key{RateLimit: &rate})
		call := func() *harness.Response { return c.chat(t, body("small", "hi", nil)) }
		wantHeaders(t, call().Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "30s",
			"x-ratelimit-limit-tokens": "2000000", "Retry-After": ""})
		wantHeaders(t, call().Want(t, 200, ""), map[string]string{"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0s"})
		for range 3 { // what is refused counts for nothing
			r := call().Want(t, 429, "rate_limit_exceeded")
			wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "0", "Retry-After": "30", "retry-after-ms": "30000", "Service-Model": ""})
			if e := c.entry(t, r); e.At("model") != nil || e.At("credits") != 0.0 || e.Text("error_code") != "rate_limit_exceeded" {
				t.Errorf("the entry is %s", e.Body)
			}
		}
		// All model calls count together, and those of the key's tokens with them; nothing else does.
		token := c.Do(t, mint(c.key, map[string]any{"scopes": []string{"responses:create"}})).Want(t, 200, "").Text("value")
		c.ask(t, "POST", "/v1/embeddings", map[string]any{"model": "embed", "input": "hi"}).Want(t, 429, "rate_limit_exceeded")
		c.Do(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: token, Body: map[string]any{"model": "small", "input": "hi"}}).Want(t, 429, "rate_limit_exceeded")
		if r := c.get(t, "/v1/models"); r.Header.Get("x-ratelimit-limit-requests") != "" {
			t.Errorf("the headers of another call: %v", r.Header)
		}
		m.chat(t, body("small", "hi", nil)).Want(t, 200, "") // another key
		m.Clock.Turn(29 * time.Second)
		wantHeaders(t, call().Want(t, 429, "rate_limit_exceeded"), map[string]string{"Retry-After": "1"})
		m.Clock.Turn(time.Second)
		call().Want(t, 200, "")
		call().Want(t, 429, "rate_limit_exceeded")
		if n := len(m.openai.Requests()); n != 4 {
			t.Errorf("%d calls reached the provider, expected 4", n)
		}
	})
}

func TestTestKeysMayDoTenTimesAsMuch(t *testing.T) {
	t.Parallel()
	eachMarket(t, func(cfg *config.Config) { cfg.Limits.LiveRequestsPerMinute, cfg.Limits.LiveTokensPerMinute = 3, 0 }, func(t *testing.T, m *market) {
		test := m.inTest(t)
		r := test.chat(t, chatBody("hello")).Want(t, 200, "")
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-requests": "30", "x-ratelimit-remaining-requests": "29", "x-ratelimit-limit-tokens": "", "x-ratelimit-reset-tokens": ""})
		wantHeaders(t, m.chat(t, body("small", "hi", nil)).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-requests": "3"})
		// An error of the call itself has them, too.
		wantHeaders(t, test.chat(t, chatBody("[[sim:error=500]]")).Want(t, 500, "internal_error"), map[string]string{"x-ratelimit-remaining-requests": "28"})
	})
}

func TestKeyHasItsRateOfTokens(t *testing.T) {
	t.Parallel()
	eachMarket(t, func(cfg *config.Config) { cfg.Limits.LiveTokensPerMinute = 600 }, func(t *testing.T, m *market) {
		call := func(most int) *harness.Response {
			return m.chat(t, body("small", "hi", map[string]any{"max_tokens": most}))
		}
		// A call counts with what it may use, and afterwards with what it did.
		for range 3 {
			wantHeaders(t, call(500).Want(t, 200, ""), map[string]string{"x-ratelimit-limit-tokens": "600"})
		}
		m.openai.Queue(upstreamtest.OpenAIReply{Usage: &upstreamtest.OpenAIUsage{Input: 300, Output: 200}})
		call(500).Want(t, 200, "")
		r := call(500).Want(t, 429, "rate_limit_exceeded") // 551 were used
		wantHeaders(t, r, map[string]string{"x-ratelimit-limit-tokens": "600", "x-ratelimit-limit-requests": "1000"})
		if r.Header.Get("Retry-After") == "" || r.Header.Get("x-ratelimit-remaining-tokens") == "600" {
			t.Errorf("headers %v", r.Header)
		}
		m.Clock.Turn(time.Minute)
		call(500).Want(t, 200, "")

		// What a budget refuses has used none.
		none := credits.Micro(0)
		poor := m.keyed(t, access.Key{MonthlyBudget: &none})
		for range 3 {
			poor.chat(t, body("small", "hi", map[string]any{"max_tokens": 500})).Want(t, 402, "budget_exceeded")
		}
	})
}

func TestKeyHasSoManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	eachMarket(t, func(cfg *config.Config) { cfg.Limits.LiveInFlight = 1 }, func(t *testing.T, m *market) {
		m.openai.Queue(upstreamtest.OpenAIReply{Delay: time.Second})
		done := make(chan *harness.Response)
		go func() { done <- m.chat(t, body("small", "hi", nil)) }()
		m.openai.Wait(1)
		wantHeaders(t, m.chat(t, body("small", "hi", nil)).Want(t, 429, "rate_limit_exceeded"), map[string]string{"Retry-After": "1"})
		other, _ := m.Key(t, m.workspace, accounts.Live)
		m.as(other).chat(t, body("small", "hi", nil)).Want(t, 200, "")
		(<-done).Want(t, 200, "")
		m.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		// A stream has its place until it ends, or its client leaves.
		m.openai.Queue(upstreamtest.OpenAIReply{Stall: 1000})
		m.hangUp(t, body("small", "hi", map[string]any{"stream": true}), "data:")
		m.Eventually(t, func() bool { return m.chat(t, body("small", "hi", nil)).Status == 200 })
		// Whoever has read its end may call again at once.
		for range 30 {
			m.hangUp(t, body("small", "hi", map[string]any{"stream": true}), "[DONE]")
			m.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		}
	})
}
