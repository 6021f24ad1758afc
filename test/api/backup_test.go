package api_test

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// restartHeld restarts a server as one that was restored from a backup. It returns
// when a server that started later has delivered an event, so that this one has had
// time to do what it must not do.
func (c *client) restartHeld(t *testing.T, cfg config.Config, meanwhile func()) {
	t.Helper()
	if err := c.App.Close(); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	at := c.Clock.Now()
	if err := backup.SetHold(t.Context(), c.DB, backup.Hold{Backup: "b", BackupAt: at.Add(-time.Hour), RestoredAt: at}); err != nil {
		t.Fatal(err)
	}
	c.Server = harness.Start(t, cfg, c.Clock)
	c.ask(t, "GET", "/v1/models", nil).Want(t, 503, "overloaded")
	c.ask(t, "GET", "/readyz", nil).Want(t, 503, "overloaded")
	c.ask(t, "GET", "/healthz", nil).Want(t, 200, "")
	other := newClient(t, harness.Start(t, webhookConfig(t, "sqlite"), c.Clock), accounts.Live)
	r := newReceiver(t, c.Clock, respond(204))
	other.endpoint(t, r.URL)
	other.publish(t, creditsLow)
	r.wait(t, other, 1)
}

// resume releases a held server and waits until it serves.
func (c *client) resume(t *testing.T) {
	t.Helper()
	h, err := backup.Resume(t.Context(), c.DB)
	if err != nil || h == nil || h.Gap() != time.Hour {
		t.Errorf("got hold %v (%v), want one with a gap of an hour", h, err)
	}
	c.Eventually(t, func() bool { return c.ask(t, "GET", "/readyz", nil).Status == 200 })
}

func TestHeldServerDeliversNothing(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		cfg, clock := webhookConfig(t, engine), harness.NewClock()
		c := newClient(t, harness.Start(t, cfg, clock), accounts.Live)
		r := newReceiver(t, clock, respond(204))
		c.endpoint(t, r.URL)
		c.restartHeld(t, cfg, func() { c.publish(t, creditsLow) })
		if n := r.count(); n > 0 || c.rows(t, "new_events") != 1 {
			t.Errorf("got %d deliveries and %d waiting events of a held server, want 0 and 1", n, c.rows(t, "new_events"))
		}
		c.resume(t)
		r.wait(t, c, 1)
		c.get(t, "/v1/models")
	})
}

func TestHeldServerRunsNoJob(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		job := s.withBusyLane(t, func() string { return s.createJob(t, batches, batchBody("one", "two")) })
		s.restartHeld(t, s.cfg, func() { s.exec(t, "UPDATE lanes SET pinned_to = NULL") })
		if n := s.provider.count("POST", ""); n > 0 {
			t.Errorf("got %d requests to the provider of a held server, want 0", n)
		}
		s.resume(t)
		s.waitForEnd(t, job, "completed")
	})
}

func TestHeldServerContinuesNoRun(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		l.withBusyLane(t)
		run := l.startRun(t, runBody(l.model.addScript("held", reply{text: "done"}), nil))
		l.restartHeld(t, l.cfg, func() { l.exec(t, "UPDATE lanes SET pinned_to = NULL") })
		if n := len(l.model.requests("held")); n > 0 {
			t.Errorf("got %d model calls of a held server, want 0", n)
		}
		l.resume(t)
		l.waitForEnd(t, run, "completed")
	})
}

func TestScheduledBackupIsMadeAndMeasured(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		cfg := harness.Config(t, engine)
		cfg.MetricsListen = "127.0.0.1:0"
		cfg.Backup.To = config.SecretURL(t.TempDir())
		s := harness.Start(t, cfg, harness.NewClock())
		s.Eventually(t, func() bool { return scrape(t, s)["turnpike_backup_last_success_timestamp_seconds"] > 0 })
		src, err := backup.Open(t.Context(), string(cfg.Backup.To))
		if err != nil {
			t.Fatal(err)
		}
		if err := src.Verify(t.Context()); err != nil || src.Manifest.Engine != engine {
			t.Errorf("got a backup of %s (%v), want an intact one of %s", src.Manifest.Engine, err, engine)
		}
	})
}
