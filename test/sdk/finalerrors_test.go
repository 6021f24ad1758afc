//go:build clients

package sdk_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/test/harness"
)

// counted is a proxy that counts the requests for responses and messages.
func counted(t *testing.T, s *harness.Server) (address string, requests *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	proxy := httputil.NewSingleHostReverseProxy(to)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/responses" || r.URL.Path == "/v1/messages" {
			requests.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// With a wrong key, Claude Code was silent for three minutes and ten retries (F5).
func TestClaudeCodeStopsAtAWrongKey(t *testing.T) {
	t.Parallel()
	binary := claudeCode(t)
	address, requests := counted(t, harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock()))
	output, _, err := runClaudeCode(t, binary, address, "tp_test_"+strings.Repeat("x", 38), editScript, "CLAUDE_CODE_MAX_RETRIES=10")
	if err == nil || requests.Load() > 2 {
		t.Errorf("sent %d requests with a wrong key, want at most 2: %v\n%s", requests.Load(), err, output)
	}
}

// Codex made five attempts over a WebSocket and five over HTTPS (F5).
func TestCodexStopsAtABudget(t *testing.T) {
	t.Parallel()
	s := codexServer(t)
	address, requests := counted(t, s)
	key, _ := s.KeyOf(t, &access.Key{Tenant: s.Workspace(t, "acme").In(accounts.Live), Name: "poor", Scopes: []string{"*"}, MonthlyBudget: new(credits.Micro)})
	_, output, err := runCodex(t, address, key, "Edit the notes.")
	if err == nil || requests.Load() > 1 || !strings.Contains(output, "This request needs up to") {
		t.Errorf("opened %d connections without a budget, want 1: %v\n%s", requests.Load(), err, output)
	}
}
