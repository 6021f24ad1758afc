package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/events"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

func TestEmailsAboutPausedEndpointLinkToItsPage(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t)
	cfg := sampledata.Config(t, "sqlite")
	withMail(mails)(t, &cfg)
	cfg.Webhooks.RetrySchedule = nil // the first failure is final
	s := harness.Start(t, cfg, harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
	r := newReceiver(t, s.Clock)
	path, _ := b.endpoint(t, r.URL)

	revoked := events.KeyRevoked{KeyID: "key_1"} // sends no email
	r.respondWith(answering(http.StatusServiceUnavailable, ""))
	b.publish(t, revoked)
	if link := linkIn(t, mails.Wait(t, 1)[0]); link != path {
		t.Errorf("the mail of the pause leads to %s, the endpoint's page is %s", link, path)
	}

	b.publish(t, revoked) // is held back
	b.deliveries(t, "", 2)
	s.Clock.Turn(24 * 24 * time.Hour)
	if err := s.App.RunRetention(t.Context()); err != nil {
		t.Fatal(err)
	}
	if link := linkIn(t, mails.Wait(t, 2)[1]); link != path {
		t.Errorf("the mail of what is held leads to %s, the endpoint's page is %s", link, path)
	}
}
