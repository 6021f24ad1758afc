package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// TestModelsPageSearchesModelsAndCountsProviders: by name, kind and capability.
func TestModelsPageSearchesModelsAndCountsProviders(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		page := b.in(accounts.Test, "models")
		b.get(t, page+"?q=gpt-4o-mini").shows(t, "gpt-4o-mini", "playground?model=gpt-4o-mini")
		first := b.get(t, page).shows(t, "claude-", "per ")
		second := b.get(t, first.link(t, "More models")).is(t, 200).hides(t, first.find(t, `playground\?model=([^"]+)"`)+`"`)
		b.get(t, second.link(t, "Previous models")).is(t, 200).shows(t, first.find(t, `playground\?model=([^"]+)"`)+`"`)
		// Models of known vendors come first, and names are sorted without regard to case.
		names := func(a *response) (out []string) {
			for _, m := range regexp.MustCompile(`class="models-name" title="([^"]+)"`).FindAllStringSubmatch(a.body, -1) {
				out = append(out, m[1])
			}
			return out
		}
		byName := names(b.get(t, page+"?sort=name").shows(t, `<option value="name" selected>`))
		if !slices.IsSortedFunc(byName, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
			t.Errorf("the models aren't sorted by name: %q", byName)
		}
		if names(first)[0] == byName[0] {
			t.Errorf("both orders begin with %s", byName[0])
		}
		b.get(t, page+"?q=GPT-4o-mini+vision&kind=chat").shows(t, "gpt-4o-mini").hides(t, "claude-")
		b.get(t, page+"?q=no+such+model").shows(t, "No models match this search.")

		key, _ := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		s.Eventually(t, func() bool {
			return strings.Contains(b.get(t, page).body, "healthy</span>")
		})
		b.get(t, page).shows(t, "provider%3Asimulator", "100%")
		s.Eventually(t, func() bool { return names(b.get(t, page))[0] == "gpt-4o" }) // it is used
		b.get(t, b.in(accounts.Live, "models")).shows(t, "No provider is connected", "No models yet")
	})
}

func TestModelsPageShowsLatencyAndLastErrorOfProviders(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !works.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"message":"Incorrect API key provided: sk-secret"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"a","object":"chat.completion","created":1,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"Hi.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`)
	}))
	t.Cleanup(provider.Close)
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "acme", Type: config.OpenAI, Catalog: "openai", BaseURL: config.Address(provider.URL), APIKey: "sk-secret", Weight: 1, Models: []config.ProviderModel{{ID: "gpt-4o-mini"}, {ID: "org/a+b", Kind: "chat", Price: &config.ModelPrice{Input: "1", Output: "2"}}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	w := s.Workspace(t, "acme")
	b := member(t, s, w, accounts.Viewer)
	key, _ := s.Key(t, w, accounts.Live)
	b.get(t, b.in(accounts.Live, "models")).shows(t, "playground?model=org%2Fa%2Bb")
	call := func(status int, code string) {
		t.Helper()
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{"model": "gpt-4o-mini", "messages": []any{map[string]string{"role": "user", "content": "Hi"}}}}).Want(t, status, code)
	}
	latency := func() []string { return b.get(t, b.in(accounts.Live, "models")).cells("Latency p50 / p95") }
	if got := latency(); len(got) != 1 || got[0] != "–" {
		t.Errorf("before the first response the latency is %q", got)
	}
	call(502, "upstream_error")
	b.get(t, b.in(accounts.Live, "models")).shows(t, "401: The model provider rejected this server&#39;s API key", "what this node saw").hides(t, "sk-secret")
	works.Store(true)
	call(200, "")
	if got := latency(); len(got) != 1 || strings.Count(got[0], "ms") != 2 {
		t.Errorf("after a response the latency is %q", got)
	}
}
