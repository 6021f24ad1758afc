package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

// sendAfterConfirmationExpired sends a form more than 30 minutes after the last confirmation
// and returns the path of the confirmation page.
func (b *browser) sendAfterConfirmationExpired(t testing.TB, page, action string, form url.Values) string {
	t.Helper()
	b.s.Clock.Turn(31 * time.Minute)
	b.header.Set("Referer", b.s.URL+page)
	defer b.header.Del("Referer")
	path, _, _ := strings.Cut(page, "?")
	return b.post(t, path+action, form).redirectsTo(t, "/dashboard/confirm?next="+url.QueryEscape(page)+"*")
}

func (b *browser) confirm(t testing.TB, to string) *response {
	t.Helper()
	b.get(t, to).shows(t, "Confirm your identity").hides(t, `class="notice"`, "send the form again")
	return b.post(t, to, url.Values{"password": {password}})
}

const sendAgain = `<p class="warning" role="status">Nothing has changed yet. Check the form and send it again.</p>`

func TestConfirmationPerformsTheAction(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		billing, team, keys := b.in(accounts.Live, "billing"), b.in(accounts.Test, "team"), b.in(accounts.Test, "keys/new")

		to := b.sendAfterConfirmationExpired(t, billing, "", url.Values{"monthly_credits": {"1234.5"}, "alert_threshold": {"7%"}})
		b.get(t, to).shows(t, "Confirm your identity", "You are about to <strong>change the billing settings</strong>", `<a href="`+billing+`">Cancel</a>`).hides(t, "1234.5")
		b.post(t, to, url.Values{"password": {"wrong"}}).rejects(t, http.StatusUnauthorized, "the password is wrong")
		b.get(t, b.confirm(t, to).redirectsTo(t, billing)).shows(t, "Monthly credits saved.", "1,234.5").hides(t, sendAgain)
		// It works once.
		b.confirm(t, to).redirectsTo(t, billing)
		b.get(t, billing).hides(t, sendAgain, "Monthly credits saved.")

		to = b.sendAfterConfirmationExpired(t, team, "/invitations", invitation("bob@example.com", accounts.Viewer))
		b.confirm(t, to).redirectsTo(t, team)
		b.get(t, team).shows(t, "Invited bob@example.com.", "/dashboard/invitation?token=").hides(t, sendAgain)

		form := url.Values{"name": {"<b>backend"}, "preset": {"choose"}, "scopes": {"models:read", "usage:read"}, "rate_limit": {"77"},
			"limits": {"1"}, "limits[0].tokens_per_minute": {"4321"}, "allowed_ips": {strings.Repeat("203.0.113.7\r\n", 60)}}
		to = b.sendAfterConfirmationExpired(t, keys, "", form)
		key := b.confirm(t, to).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		b.get(t, key).shows(t, "Key created.", "tp_test_", "usage:read", "4,321", "&lt;b&gt;backend")

		// A form with errors is shown again, with them.
		form.Set("rate_limit", "lots")
		to = b.sendAfterConfirmationExpired(t, keys, "", form)
		b.get(t, b.confirm(t, to).redirectsTo(t, keys)).shows(t, `id="error-rate_limit">Enter a whole number.<`, `value="lots"`, `value="&lt;b&gt;backend"`, `value="usage:read" checked`).hides(t, sendAgain)
		b.get(t, keys).hides(t, "lots", "field-error")
	})
}

func TestConfirmationPerformsOnlyItsOwnForm(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		keys := b.in(accounts.Test, "keys/new")
		none := func() {
			t.Helper()
			b.get(t, b.in(accounts.Test, "keys")).hides(t, "backend")
		}
		// Not by a confirmation for something else, and not after some minutes.
		b.sendAfterConfirmationExpired(t, keys, "", newKey("backend"))
		b.confirm(t, "/dashboard/confirm?next="+url.QueryEscape(keys)).redirectsTo(t, keys)
		none()
		b.get(t, keys).shows(t, sendAgain, `value="backend"`) // what was typed isn't lost
		to := b.sendAfterConfirmationExpired(t, keys, "", newKey("backend"))
		s.Clock.Turn(11 * time.Minute)
		b.confirm(t, to).redirectsTo(t, keys)
		none()
		b.get(t, keys).hides(t, sendAgain, `value="backend"`)
		// Not in another session,
		to = b.sendAfterConfirmationExpired(t, keys, "", newKey("backend"))
		b.signIn(t)
		b.post(t, to, url.Values{"password": {password}}).redirectsTo(t, keys)
		none()
		// not from another cookie,
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		b.client.Jar.SetCookies(u, []*http.Cookie{{Name: "turnpike-form", Value: "AAAA", Path: "/"}})
		b.get(t, keys).is(t, http.StatusOK).hides(t, sendAgain)
		// and not if the role has changed meanwhile.
		to = b.sendAfterConfirmationExpired(t, b.in(accounts.Live, "keys/new"), "", newKey("backend"))
		setRole(t, s, b, accounts.Viewer)
		b.post(t, to, url.Values{"password": {password}}).is(t, http.StatusForbidden)
		b.get(t, b.in(accounts.Live, "keys")).hides(t, "backend")
	})
}

func setRole(t testing.TB, s *harness.Server, b *browser, role accounts.Role) {
	t.Helper()
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2", b.workspace.ID, b.person.ID, role)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSavedFormHasNoProofs(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page := b.in(accounts.Test, "keys/new")
		for _, name := range []string{"password", "current", "code", "token", "response"} {
			form := newKey("backend")
			form.Set(name, "something")
			to := b.sendAfterConfirmationExpired(t, page, "", form)
			if strings.Contains(to, "form=") {
				t.Errorf("a form with %s is performed by the confirmation", name)
			}
			b.confirm(t, to).redirectsTo(t, page)
			b.get(t, page).shows(t, sendAgain, `value="backend"`)
		}
		if strings.Contains(b.savedForm(t), "backend") {
			t.Error("the cookie isn't encrypted")
		}
	})
}

func (b *browser) savedForm(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(b.s.URL)
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

func TestFormOfEndedSessionIsRestoredAfterSignIn(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b, other := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Admin)
		const said = `<p class="warning" role="status">You were signed out, and nothing was changed. Sign in, then send the form again.</p>`
		page := b.in(accounts.Test, "webhooks/new")
		send := func() string {
			t.Helper()
			s.Clock.Turn(13 * time.Hour)
			b.header.Set("Referer", s.URL+page)
			defer b.header.Del("Referer")
			return b.post(t, page, url.Values{"url": {"https://receiver.example/hook"}, "events": {"key.auto_revoked"}, "headers": {"X-Secret: abc"}}).redirectsTo(t, "/dashboard/login?next="+url.QueryEscape(page))
		}
		to := send()
		b.get(t, to).shows(t, said).hides(t, "receiver.example/hook")
		b.post(t, to, credentials(b, password)).redirectsTo(t, page)
		b.get(t, page).shows(t, sendAgain, `value="https://receiver.example/hook"`, `value="key.auto_revoked" checked`).hides(t, "X-Secret")
		b.get(t, page).hides(t, sendAgain, "receiver.example/hook")
		b.get(t, b.in(accounts.Test, "webhooks")).hides(t, "receiver.example/hook") // it isn't performed by signing in
		// Another person doesn't see it.
		to = send()
		b.post(t, to, credentials(other, password)).redirectsTo(t, page)
		b.get(t, page).hides(t, sendAgain, "receiver.example/hook")
		// Opening a page and signing out send no form.
		s.Clock.Turn(13 * time.Hour)
		b.get(t, b.get(t, page).redirectsTo(t, "/dashboard/login?next=*")).shows(t, "Sign in").hides(t, said)
		b.get(t, b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login*")).shows(t, "You are signed out.").hides(t, said)
	})
}

func TestForeignRefererIsIgnored(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		b.s.Clock.Turn(31 * time.Minute)
		for _, referer := range []string{"/dashboard/../x", "/dashboard/..", "/dashboard//../../x", "/dashboard/x/../../y", "/dashboard/%2e%2e/x", "/dashboard/nowhere/at/all"} {
			b.header.Set("Referer", s.URL+referer)
			b.post(t, "/dashboard/account/app", url.Values{"x": {"1"}}).redirectsTo(t, "/dashboard/confirm?next=*")
		}
	})
}
