package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
	"turnpike/test/world"
)

// Whoever is told of a paused endpoint gets to its page, where it is resumed.
func TestMailsOfAPausedEndpointLeadToItsPage(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			mails := smtp.Start(t)
			cfg := world.Config(t, engine)
			withMail(mails)(t, &cfg)
			cfg.Webhooks.RetrySchedule = nil // the first failure is the last
			s := harness.Start(t, cfg, harness.NewClock())
			b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
			r := newReceiver(t, s.Clock)
			path, _ := b.endpoint(t, r.URL)

			r.become(answering(http.StatusServiceUnavailable, ""))
			b.publish(t, creditsLow)
			if link := linkIn(t, mails.Wait(t, 1)[0]); link != path {
				t.Errorf("the mail of the pause leads to %s, the endpoint's page is %s", link, path)
			}

			b.publish(t, creditsLow) // is held
			b.deliveries(t, "", 2)
			s.Clock.Turn(24 * 24 * time.Hour)
			if err := s.App.RunRetention(t.Context()); err != nil {
				t.Fatal(err)
			}
			if link := linkIn(t, mails.Wait(t, 2)[1]); link != path {
				t.Errorf("the mail of what is held leads to %s, the endpoint's page is %s", link, path)
			}
		})
	}
}
