package api_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// reload applies a changed configuration, of which every setting must be applied.
func reload(t *testing.T, s *harness.Server, next config.Config, want ...string) {
	t.Helper()
	got, err := s.App.Reload(t.Context(), func() (config.Config, error) { return next, nil })
	if err != nil || !slices.Equal(got.Applied, want) || len(got.Restart) > 0 {
		t.Fatalf("got %+v (%v), want %v applied", got, err, want)
	}
}

func TestReloadChangesOriginsAndProxies(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
	send := func() *harness.Response {
		r := models(key)
		r.Header = http.Header{"Origin": {"https://console.acme.example"}, "X-Forwarded-For": {"203.0.113.7"}}
		return s.Do(t, r)
	}
	send().Want(t, 403, "live_key_in_browser")
	cfg.AllowedOrigins, cfg.TrustedProxies = []string{"https://console.acme.example"}, prefixes(t, "127.0.0.0/8")
	reload(t, s, cfg, "trusted_proxies", "allowed_origins")
	id := send().Want(t, 200, "").Header.Get("X-Request-Id")
	if got := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id, Key: key}).Want(t, 200, "").Text("ip"); got != "203.0.113.7" {
		t.Errorf("got address %s, want the one that the trusted proxy forwards", got)
	}
	cfg.AllowedOrigins, cfg.TrustedProxies = nil, nil
	reload(t, s, cfg, "trusted_proxies", "allowed_origins")
	send().Want(t, 403, "live_key_in_browser")
}

func TestReloadChangesTheRetrySchedule(t *testing.T) {
	t.Parallel()
	cfg, clock := webhookConfig(t, "sqlite"), harness.NewClock()
	c := newClient(t, harness.Start(t, cfg, clock), accounts.Live)
	r := newReceiver(t, clock, respond(500))
	endpoint, _ := c.endpoint(t, r.URL)
	cfg.Webhooks.RetrySchedule = []time.Duration{3 * time.Hour}
	reload(t, c.Server, cfg, "webhooks.retry_schedule")
	c.publish(t, creditsLow)
	d := c.waitForDelivery(t, c.deliveries(t, endpoint, 1)[0], "retrying", 1)
	if plan := number(t, d, "attempts.0.next_retry_at") - number(t, d, "attempts.0.started_at"); plan < 3*3600 {
		t.Errorf("got a retry after %d s, want the new schedule's 3 hours", plan)
	}
}

func TestReloadChangesTheLimitsOfTools(t *testing.T) {
	t.Parallel()
	l := newAgents(t, "sqlite", nil)
	l.cfg.Agents.ToolCallsPerStep, l.cfg.Agents.ToolCallsPerRun = 1, 2
	reload(t, l.Server, l.cfg, "agents.tool_calls_per_step", "agents.tool_calls_per_run")
	stockTool := newTool(t, l, "3")
	run := l.startRun(t, runBody(l.model.addScript("many", repeatedCalls(3, "stock"), repeatedCalls(1, "stock"), repeatedCalls(1, "stock"), reply{text: "Never."}),
		[]any{webTool("stock", stockTool.URL)}))
	l.waitForFailure(t, run, "max_tool_calls_exceeded")
	if n := stockTool.count(); n != 2 {
		t.Errorf("got %d calls, want 2", n)
	}
}

func TestReloadSchedulesBackups(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	watched(&cfg)
	s := harness.Start(t, cfg, harness.NewClock())
	cfg.Backup.To = config.SecretURL(t.TempDir())
	reload(t, s, cfg, "backup.to")
	s.Eventually(t, func() bool { return scrape(t, s)["turnpike_backup_last_success_timestamp_seconds"] > 0 })
}
