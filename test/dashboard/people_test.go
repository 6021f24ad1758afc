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

// token returns the browser's session token.
func (b *browser) token(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(b.s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(u) {
		if strings.TrimPrefix(c.Name, "__Host-") == "turnpike" {
			return c.Value
		}
	}
	return ""
}

func (b *browser) setSessionCookie(t testing.TB, token string) {
	t.Helper()
	u, err := url.Parse(b.s.URL)
	if err != nil {
		t.Fatal(err)
	}
	b.client.Jar.SetCookies(u, []*http.Cookie{{Name: "turnpike", Value: token, Path: "/"}})
}

// signedIn checks whether the browser is signed in.
func (b *browser) signedIn(t testing.TB, want bool) {
	t.Helper()
	if want {
		b.get(t, "/dashboard/account").shows(t, "Your account")
		return
	}
	b.get(t, "/dashboard/account").redirectsTo(t, "/dashboard/login?next=%2Fdashboard%2Faccount")
}

// newSession signs the same person in with another browser.
func (b *browser) newSession(t testing.TB) *browser {
	t.Helper()
	other := newBrowser(t, b.s)
	other.workspace, other.person = b.workspace, b.person
	other.signIn(t)
	return other
}

func credentials(b *browser, password string) url.Values {
	return url.Values{"email": {b.person.Email}, "password": {password}}
}

func TestSessionTokenChangesWithEachProof(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.workspace = s.Workspace(t, "acme")
		b.person = addMember(t, s, b.workspace, "ada@example.com", accounts.Owner)
		attacker := newBrowser(t, s)
		const planted = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		b.setSessionCookie(t, planted)
		b.signedIn(t, false)
		b.signIn(t)
		first := b.token(t)
		if first == planted || len(first) < 43 {
			t.Fatalf("the token after the sign-in is %q", first)
		}
		attacker.setSessionCookie(t, planted)
		attacker.signedIn(t, false)
		// Signing in again ends the browser's previous session.
		b.signIn(t)
		attacker.setSessionCookie(t, first)
		attacker.signedIn(t, false)
		second := b.token(t)
		attacker.setSessionCookie(t, second)
		attacker.signedIn(t, true)
		b.post(t, "/dashboard/confirm?next=/dashboard/account", url.Values{"password": {password}}).redirectsTo(t, "/dashboard/account")
		if b.token(t) == second {
			t.Error("confirming keeps the token")
		}
		attacker.signedIn(t, false)
		b.signedIn(t, true)
		last := b.token(t)
		b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login")
		b.get(t, "/dashboard/login").shows(t, "You are signed out.")
		attacker.setSessionCookie(t, last)
		attacker.signedIn(t, false)
	})
}

func TestPasswordGuessingIsThrottled(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.person = addMember(t, s, s.Workspace(t, "acme"), "ada@example.com", accounts.Owner)
		for range 5 {
			b.post(t, "/dashboard/login", credentials(b, "wrong")).rejects(t, http.StatusUnauthorized, "The email address or the password is wrong")
		}
		a := b.post(t, "/dashboard/login", credentials(b, password)).rejects(t, http.StatusTooManyRequests, "Too many attempts. Retry in 30s")
		if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `value="ada@example.com"`) {
			t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
		}
		// An unknown account looks the same.
		for range 5 {
			b.post(t, "/dashboard/login", url.Values{"email": {"nobody@example.com"}, "password": {"wrong"}}).
				rejects(t, http.StatusUnauthorized, "The email address or the password is wrong")
		}
		b.post(t, "/dashboard/login", url.Values{"email": {"nobody@example.com"}, "password": {"wrong"}}).rejects(t, http.StatusTooManyRequests, "too many attempts")
		s.Clock.Turn(time.Minute)
		b.signIn(t)
	})
}

func TestPeopleWithAnAppConfirmWithACode(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		secret, _ := b.setUpApp(t)
		s.Clock.Turn(31 * time.Minute)
		page := b.in(accounts.Test, "keys/new")
		to := b.post(t, page, newKey("backend")).redirectsTo(t, "/dashboard/confirm?next=*")
		b.get(t, to).shows(t, `name="code"`).hides(t, `name="password"`)
		b.post(t, to, url.Values{"password": {password}}).rejects(t, http.StatusUnauthorized, "Enter a code of your authenticator app")
		b.get(t, "/dashboard/account/app").redirectsTo(t, "/dashboard/confirm?next=*")
		const next = "some other words nobody says"
		b.post(t, "/dashboard/account/password", url.Values{"current": {password}, "password": {next}}).redirectsTo(t, "/dashboard/account")
		to = b.post(t, page, newKey("backend")).redirectsTo(t, "/dashboard/confirm?next=*")
		b.post(t, to, url.Values{"code": {code(t, s, secret)}}).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		for range 5 {
			b.post(t, to, url.Values{"code": {"000000"}}).rejects(t, http.StatusUnauthorized, "the code is wrong")
		}
		b.get(t, b.in(accounts.Test, "log")).shows(t, "person.login_throttled")
	})
}

func TestWrongConfirmationIsRejected(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		s.Clock.Turn(31 * time.Minute)
		page := b.in(accounts.Test, "keys/new")
		b.get(t, page).is(t, http.StatusOK) // only sending the form needs a confirmation
		to := b.post(t, page, newKey("backend")).redirectsTo(t, "/dashboard/confirm?next=*")
		b.get(t, to).shows(t, "For your security, confirm your password. You won't be asked again for 30 minutes.").hides(t, `class="notice"`)
		b.post(t, to, url.Values{"password": {"wrong"}}).rejects(t, http.StatusUnauthorized, "the password is wrong")
		b.get(t, b.in(accounts.Test, "keys")).hides(t, "backend")
		b.post(t, to, url.Values{"password": {password}}).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		b.post(t, page, newKey("frontend")).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
	})
}

func TestRedirectsStayOnThisSite(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		for i, next := range []string{"https://evil.example", "//evil.example", `/dashboard/\evil.example`, "//evil.example/dashboard/", `/\evil.example`,
			`\\evil.example`, "/dashboard", "javascript:alert(1)", "/\t/evil.example", "/evil", "dashboard/x", "https:/evil.example", "/dashboard/\r\nSet-Cookie: x=y"} {
			q := "?next=" + url.QueryEscape(next)
			b.get(t, "/dashboard/login"+q).redirectsTo(t, "/dashboard/") // already signed in
			if i < 3 {                                                   // password checks are slow on purpose
				b.post(t, "/dashboard/login"+q, credentials(b, password)).redirectsTo(t, "/dashboard/")
				b.post(t, "/dashboard/confirm"+q, url.Values{"password": {password}}).redirectsTo(t, "/dashboard/")
			}
		}
		b.post(t, "/dashboard/login?next="+url.QueryEscape("/dashboard/account?x=1"), credentials(b, password)).redirectsTo(t, "/dashboard/account?x=1")
		b.post(t, "/dashboard/logout?next="+url.QueryEscape("//evil.example"), nil).redirectsTo(t, "/dashboard/")
	})
}

func TestFormsOfOtherSitesAreRejected(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			b.header = http.Header{name: {value}}
			for _, path := range []string{"/dashboard/login", "/dashboard/logout", "/dashboard/account/name", "/dashboard/account/sessions/revoke", "/dashboard/forgot", "/dashboard/login/passkey/start"} {
				b.post(t, path, url.Values{"name": {"Eve"}}).rejects(t, http.StatusForbidden, "This request came from another site")
			}
		}
		b.header = http.Header{"Sec-Fetch-Site": {"same-site"}} // another host of the same site
		b.post(t, "/dashboard/logout", nil).rejects(t, http.StatusForbidden, "another site")
		b.header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {s.URL}}
		b.post(t, "/dashboard/account/name", url.Values{"name": {"Ada"}}).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, `value="Ada"`).hides(t, "Eve")
	})
}

func TestPlaintextSignInIsRejected(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.signedIn(t, true)
		const why = "This connection is not encrypted"
		for _, host := range []string{"turnpike.example.com", "192.0.2.7:8080", "localhost.evil.example"} {
			b.host = host
			b.get(t, "/dashboard/account").redirectsTo(t, "/dashboard/login*") // the browser didn't get a session
			for _, path := range []string{"/dashboard/login", "/dashboard/login/code", "/dashboard/forgot", "/dashboard/password?token=x", "/dashboard/invitation?token=x", "/dashboard/setup?token=x"} {
				b.get(t, path).rejects(t, http.StatusForbidden, why)
				a := b.post(t, path, credentials(b, password)).rejects(t, http.StatusForbidden, why)
				if len(a.header.Values("Set-Cookie")) > 0 {
					t.Errorf("POST %s at %s sets %v", path, host, a.header.Values("Set-Cookie"))
				}
			}
			b.post(t, "/dashboard/login/passkey/start", nil).rejects(t, http.StatusForbidden, why)
			b.post(t, "/dashboard/login/passkey", nil).rejects(t, http.StatusForbidden, why)
		}
		for _, host := range []string{"localhost:1", "turnpike.localhost", "[::1]:8080", "127.0.0.1"} {
			b.host = host
			b.get(t, "/dashboard/forgot").is(t, http.StatusOK)
		}
	})
}
