package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// sendAfterConfirmationExpired sends a form more than ten minutes after the last confirmation
// and returns the path of the confirmation page.
func (b *browser) sendAfterConfirmationExpired(t testing.TB, page, action string, form url.Values) string {
	t.Helper()
	b.s.Clock.Turn(11 * time.Minute)
	b.header.Set("Referer", b.s.URL+page)
	defer b.header.Del("Referer")
	path, _, _ := strings.Cut(page, "?")
	return b.post(t, path+action, form).redirectsTo(t, "/dashboard/confirm?next="+url.QueryEscape(page))
}

func (b *browser) confirm(t testing.TB, to string) *response {
	t.Helper()
	b.get(t, to).shows(t, "Confirm that it is you")
	return b.post(t, to, url.Values{"password": {password}})
}

const sendAgain = "Nothing has changed yet. Send the form again."

func TestFormIsRestoredAfterConfirmation(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		billing, team, keys := b.in(accounts.Live, "billing"), b.in(accounts.Test, "team"), b.in(accounts.Test, "keys/new")

		to := b.sendAfterConfirmationExpired(t, billing, "", url.Values{"monthly_credits": {"1234.5"}, "alert_threshold": {`7"%`}})
		b.get(t, to).shows(t, "Nothing has changed yet. Confirm that it is you, then send the form again.").hides(t, "1234.5")
		b.post(t, to, url.Values{"password": {"wrong"}}).rejects(t, http.StatusUnauthorized, "the password is wrong")
		b.confirm(t, to).redirectsTo(t, billing)
		b.get(t, b.in(accounts.Test, "billing")).hides(t, sendAgain, "1234.5") // another path
		b.get(t, team).hides(t, sendAgain, "1234.5")
		b.get(t, billing).shows(t, sendAgain, `name="monthly_credits" inputmode="decimal" placeholder="no limit" value="1234.5"`, `value="7&#34;%"`, "without a limit")
		b.get(t, billing).shows(t, "without a limit").hides(t, sendAgain, "1234.5", "7&#34;%") // a second request
		b.post(t, billing, url.Values{"monthly_credits": {"1234.5"}, "alert_threshold": {"7%"}}).redirectsTo(t, billing)

		to = b.sendAfterConfirmationExpired(t, team, "/invitations", invitation("bob@example.com", accounts.Viewer))
		b.confirm(t, to).redirectsTo(t, team)
		b.get(t, team).shows(t, sendAgain, `value="bob@example.com"`, `<option value="viewer" selected>`, "No invitations yet.")
		b.get(t, team).hides(t, sendAgain, "bob@example.com")
		// A rejected form is shown at the path it was sent to.
		b.s.Clock.Turn(11 * time.Minute)
		b.header.Set("Referer", s.URL+team+"/invitations")
		to = b.post(t, team+"/invitations", invitation("bob@example.com", accounts.Viewer)).redirectsTo(t, "/dashboard/confirm?next=*")
		b.header.Del("Referer")
		b.get(t, b.confirm(t, to).redirectsTo(t, team+"/invitations")).redirectsTo(t, team)
		b.get(t, team).shows(t, sendAgain, `value="bob@example.com"`)

		form := url.Values{"name": {"<b>backend"}, "preset": {"choose"}, "scopes": {"models:read", "usage:read"}, "rate_limit": {"77"}, "allowed_ips": {"203.0.113.7\r\n203.0.113.8"}}
		to = b.sendAfterConfirmationExpired(t, keys, "", form)
		b.get(t, keys).redirectsTo(t, "/dashboard/confirm?next=*") // not shown before the confirmation
		b.confirm(t, to).redirectsTo(t, keys)
		page := b.get(t, keys).shows(t, sendAgain, `value="&lt;b&gt;backend"`, `value="choose" checked`, `value="models:read" checked`, `value="usage:read" checked`, `value="77"`, "203.0.113.7\r\n203.0.113.8")
		if n := strings.Count(page.body, " checked>"); n != 3 {
			t.Errorf("%d boxes are ticked", n)
		}
		b.get(t, keys).shows(t, `value="calls" checked`).hides(t, sendAgain, "backend", "203.0.113.7\r\n")
		b.get(t, b.in(accounts.Test, "keys")).hides(t, "backend") // the saved form isn't sent automatically
	})
}

func TestSavedFormBelongsToItsSession(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		billing, keys := b.in(accounts.Live, "billing"), b.in(accounts.Test, "keys/new")
		form := url.Values{"monthly_credits": {"1234.5"}}
		// It ends with the session,
		b.sendAfterConfirmationExpired(t, billing, "", form)
		b.signIn(t)
		b.get(t, billing).hides(t, sendAgain, "1234.5")
		// after some minutes,
		to := b.sendAfterConfirmationExpired(t, billing, "", form)
		s.Clock.Turn(11 * time.Minute)
		b.confirm(t, to).redirectsTo(t, billing)
		b.get(t, billing).hides(t, sendAgain, "1234.5")
		// and with the next form, even one that is too long to be saved.
		b.confirm(t, b.sendAfterConfirmationExpired(t, keys, "", url.Values{"name": {"backend"}}))
		b.confirm(t, b.sendAfterConfirmationExpired(t, keys, "", url.Values{"name": {"frontend"}, "allowed_ips": {strings.Repeat("203.0.113.7 ", 300)}})).redirectsTo(t, keys)
		b.get(t, keys).is(t, http.StatusOK).hides(t, sendAgain, "backend", "frontend", "203.0.113.7 ")
		// A form of another session is ignored.
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		b.client.Jar.SetCookies(u, []*http.Cookie{{Name: "turnpike-form", Value: "AAAA", Path: "/"}})
		b.get(t, billing).is(t, http.StatusOK).hides(t, sendAgain)
	})
}

func TestSavedFormHasNoSecrets(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		kept := func(form url.Values) string {
			t.Helper()
			b.sendAfterConfirmationExpired(t, b.in(accounts.Test, "keys/new"), "", form)
			u, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range b.client.Jar.Cookies(u) {
				if c.Name == "turnpike-form" {
					return c.Value
				}
			}
			return ""
		}
		long := strings.Repeat("x", 500)
		with := kept(url.Values{"name": {"backend"}})
		if with == "" || strings.Contains(with, "backend") {
			t.Fatalf("the cookie is %q", with)
		}
		for _, name := range []string{"password", "current", "new_password", "code", "token", "secret", "client_secret", "csrf_token", "response"} {
			if got := kept(url.Values{"name": {"backend"}, name: {long}}); len(got) != len(with) {
				t.Errorf("%s is kept: %d bytes, not %d", name, len(got), len(with))
			}
			if got := kept(url.Values{name: {long}}); got != "" {
				t.Errorf("%s alone is kept: %d bytes", name, len(got))
			}
		}
	})
}

func TestFormOfEndedSessionChangesNothing(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		const said = "You were signed out, and nothing was changed. Sign in, then fill in the form again."
		team := b.in(accounts.Test, "team")
		s.Clock.Turn(13 * time.Hour)
		b.header.Set("Referer", s.URL+team)
		for _, path := range []string{team + "/invitations", "/dashboard/account/name"} {
			to := b.post(t, path, invitation("bob@example.com", accounts.Viewer)).redirectsTo(t, "/dashboard/login?next="+url.QueryEscape(team))
			b.get(t, to).shows(t, said)
			b.get(t, to).shows(t, "Sign in").hides(t, said)
		}
		// Opening a page and signing out send no form.
		b.get(t, b.get(t, team).redirectsTo(t, "/dashboard/login?next=*")).shows(t, "Sign in").hides(t, said)
		b.get(t, b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login*")).shows(t, "You are signed out.").hides(t, said)
		b.post(t, "/dashboard/login?next="+url.QueryEscape(team), credentials(b, password)).redirectsTo(t, team)
		b.get(t, team).shows(t, "No invitations yet.").hides(t, said)
	})
}

func TestForeignRefererIsIgnored(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		b.s.Clock.Turn(11 * time.Minute)
		for _, referer := range []string{"/dashboard/../x", "/dashboard/..", "/dashboard//../../x", "/dashboard/x/../../y", "/dashboard/%2e%2e/x", "/dashboard/nowhere/at/all"} {
			b.header.Set("Referer", s.URL+referer)
			b.post(t, "/dashboard/account/app", url.Values{"x": {"1"}}).redirectsTo(t, "/dashboard/confirm?next=*")
		}
	})
}

func TestSubmittedFormIsNotRestored(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page := b.in(accounts.Test, "keys/new")
		b.confirm(t, b.sendAfterConfirmationExpired(t, page, "", newKey("backend"))).redirectsTo(t, page)
		b.post(t, page, newKey("backend")).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		b.get(t, page).hides(t, sendAgain, `value="backend"`)
	})
}
