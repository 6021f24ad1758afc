package api_test

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// TestHeldServerWaitsForItsOperator restarts a server on a database that was
// restored, with an event that isn't delivered yet.
func TestHeldServerWaitsForItsOperator(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		cfg, clock := webhookConfig(t, engine), harness.NewClock()
		c := newClient(t, harness.Start(t, cfg, clock), accounts.Live)
		r := newReceiver(t, clock, respond(204))
		c.endpoint(t, r.URL)
		if err := c.App.Close(); err != nil {
			t.Fatal(err)
		}
		c.publish(t, creditsLow)
		at := clock.Now()
		if err := backup.SetHold(t.Context(), c.DB, backup.Hold{Backup: "b", BackupAt: at.Add(-time.Hour), RestoredAt: at}); err != nil {
			t.Fatal(err)
		}

		c.Server = harness.Start(t, cfg, clock)
		c.ask(t, "GET", "/v1/models", nil).Want(t, 503, "overloaded")
		c.ask(t, "GET", "/readyz", nil).Want(t, 503, "overloaded")
		c.ask(t, "GET", "/healthz", nil).Want(t, 200, "")
		if n := r.count(); n > 0 || c.rows(t, "new_events") != 1 {
			t.Errorf("got %d deliveries and %d waiting events of a held server, want 0 and 1", n, c.rows(t, "new_events"))
		}

		h, err := backup.Resume(t.Context(), c.DB)
		if err != nil || h == nil || h.Gap() != time.Hour {
			t.Errorf("got hold %v (%v), want one with a gap of an hour", h, err)
		}
		r.wait(t, c, 1)
		c.get(t, "/v1/models")
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
