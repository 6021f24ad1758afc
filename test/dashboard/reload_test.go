package dashboard_test

import (
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func TestReloadChangesMailServerAndSignInProvider(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	s := harness.Start(t, cfg, harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
	settings := b.in(accounts.Live, "settings")
	apply := func() {
		t.Helper()
		if got, err := s.App.Reload(t.Context(), func() (config.Config, error) { return cfg, nil }); err != nil || len(got.Restart) > 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	b.get(t, settings).shows(t, "emails aren't sent")

	mails := smtp.Start(t, smtp.WithLogin("postmaster", "the mail password", "PLAIN"))
	withMail(mails)(t, &cfg)
	cfg.OIDC = config.OIDC{Issuer: newIssuer(t, s.Clock).URL, ClientID: "turnpike", Name: "Acme ID"}
	apply()
	b.post(t, settings+"/mail", url.Values{}).redirectsTo(t, settings)
	mails.Wait(t, 1)
	newBrowser(t, s).get(t, "/dashboard/login").shows(t, "Sign in with Acme ID")

	cfg.OIDC, cfg.SMTP, cfg.Mail = config.OIDC{Name: "single sign-on"}, config.SMTP{}, config.Mail{}
	apply()
	b.get(t, settings).shows(t, "emails aren't sent")
	newBrowser(t, s).get(t, "/dashboard/login").hides(t, "Sign in with")
}
