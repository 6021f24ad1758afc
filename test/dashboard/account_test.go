package dashboard_test

import (
	"bytes"
	"encoding/base64"
	"html"
	"image/png"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"turnpike/internal/accounts"
	"turnpike/internal/ids"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

// code returns the current code of the authenticator app.
func code(t testing.TB, s *harness.Server, secret string) string {
	t.Helper()
	c, err := totp.GenerateCode(secret, s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// setUpApp sets up an authenticator app on the pages.
func (b *browser) setUpApp(t testing.TB) (secret string, recovery []string) {
	t.Helper()
	b.post(t, "/dashboard/account/app", nil).redirectsTo(t, "/dashboard/account/app")
	page := b.get(t, "/dashboard/account/app")
	raw, err := base64.StdEncoding.DecodeString(html.UnescapeString(page.find(t, `class="qr" src="data:image/png;base64,([^"]+)"`)))
	if err != nil {
		t.Fatal(err)
	}
	qr, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for x := range 7 { // the first row of a QR code's corner
		if r, _, _, _ := qr.At(x, 0).RGBA(); r != 0 {
			t.Fatalf("pixel %d of the QR code is white, want it dark", x)
		}
	}
	secret = strings.ReplaceAll(page.find(t, `id="totp-secret">([A-Z2-7 ]+)<`), " ", "")
	if again := b.get(t, "/dashboard/account/app"); !strings.Contains(again.body, page.find(t, `id="totp-secret">([A-Z2-7 ]+)<`)) {
		t.Error("the secret changes before it is used")
	}
	b.post(t, "/dashboard/account/app/enable", url.Values{"code": {"000000"}}).rejects(t, http.StatusUnauthorized, "the code is wrong")
	b.post(t, "/dashboard/account/app/enable", url.Values{"code": {code(t, b.s, secret)}}).redirectsTo(t, "/dashboard/account")
	shown := b.get(t, "/dashboard/account").shows(t, "These are your recovery codes", "10 of 10 recovery codes are left").find(t, `(?s)<pre id="codes">(.*?)</pre>`)
	if recovery = strings.Fields(shown); len(recovery) != 10 {
		t.Fatalf("the recovery codes are %q", shown)
	}
	b.get(t, "/dashboard/account").hides(t, recovery...)
	return secret, recovery
}

func TestAuthenticatorAppIsRequiredAtNextSignIn(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		other := b.newSession(t)
		b.get(t, "/dashboard/account/app").rejects(t, http.StatusConflict, "Start again")
		secret, recovery := b.setUpApp(t)
		other.signedIn(t, false)
		b.signedIn(t, true)
		b.get(t, "/dashboard/account/app").rejects(t, http.StatusConflict, "Start again").hides(t, secret)

		login := func() {
			t.Helper()
			other.post(t, "/dashboard/login?next=/dashboard/account", credentials(b, password)).redirectsTo(t, "/dashboard/login/code?next=%2Fdashboard%2Faccount")
			other.signedIn(t, false)
		}
		const page = "/dashboard/login/code?next=/dashboard/account"
		login()
		other.get(t, page).shows(t, "Second factor")
		other.post(t, page, url.Values{"code": {"000000"}}).rejects(t, http.StatusUnauthorized, "the code is wrong")
		other.signedIn(t, false)
		s.Clock.Turn(time.Minute)
		other.post(t, page, url.Values{"code": {code(t, s, secret)}}).redirectsTo(t, "/dashboard/account")
		other.get(t, "/dashboard/account").shows(t, "by authenticator app")
		other.post(t, "/dashboard/logout", nil)

		login()
		other.post(t, page, url.Values{"code": {code(t, s, secret)}}).rejects(t, http.StatusUnauthorized, "was already used")
		other.post(t, page, url.Values{"code": {recovery[3]}}).redirectsTo(t, "/dashboard/account")
		other.get(t, "/dashboard/account").shows(t, "You used a recovery code", "9 of 10", "by recovery code")
		other.post(t, "/dashboard/logout", nil)
		login()
		other.post(t, page, url.Values{"code": {recovery[3]}}).rejects(t, http.StatusUnauthorized, "was already used")

		b.post(t, "/dashboard/account/app/codes", nil).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "Recovery codes renewed", "10 of 10").hides(t, recovery...)
		other.post(t, page, url.Values{"code": {recovery[4]}}).rejects(t, http.StatusUnauthorized, "the code is wrong")
		b.post(t, "/dashboard/account/app/disable", nil).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "Set up app")
		other.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/")
	})
}

func TestSecondFactorIsThrottledAndTakesTenMinutes(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		secret, _ := b.setUpApp(t)
		s.Clock.Turn(time.Minute)
		other := newBrowser(t, s)
		other.get(t, "/dashboard/login/code?next=/dashboard/account").redirectsTo(t, "/dashboard/login?next=%2Fdashboard%2Faccount") // no setup was started
		other.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/login/code*")
		for range 5 {
			other.post(t, "/dashboard/login/code", url.Values{"code": {"000000"}}).rejects(t, http.StatusUnauthorized, "the code is wrong")
		}
		other.post(t, "/dashboard/login/code", url.Values{"code": {code(t, s, secret)}}).rejects(t, http.StatusTooManyRequests, "too many attempts")
		s.Clock.Turn(31 * time.Minute)
		other.post(t, "/dashboard/login/code", url.Values{"code": {code(t, s, secret)}}).rejects(t, http.StatusUnauthorized, "took too long")
	})
}

func TestCredentialChangesRequireConfirmation(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		b.header.Set("Referer", s.URL+"/dashboard/account")
		s.Clock.Turn(31 * time.Minute)
		for _, path := range []string{"app", "app/enable", "app/disable", "app/codes", "passkeys/start", "passkeys", "passkeys/" + ids.New(people.PasskeyID) + "/delete"} {
			b.post(t, "/dashboard/account/"+path, nil).redirectsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount*")
		}
		b.get(t, "/dashboard/account/app").redirectsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount%2Fapp")
	})
}

func TestPeopleChangeTheirNameAndPassword(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "<b>acme</b>"), accounts.Developer)
		other := b.newSession(t)
		b.get(t, "/dashboard/account").shows(t, b.person.Email, "&lt;b&gt;acme&lt;/b&gt;", "developer")
		b.post(t, "/dashboard/account/name", url.Values{"name": {"<i>Ada</i>"}}).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "Name saved.", "&lt;i&gt;Ada&lt;/i&gt;").hides(t, "<i>Ada")
		b.post(t, "/dashboard/account/name", url.Values{"name": {""}}).rejects(t, http.StatusBadRequest, "name")

		const next = "some other words nobody says"
		change := func(current, password string) *response {
			return b.post(t, "/dashboard/account/password", url.Values{"current": {current}, "password": {password}})
		}
		change("wrong", next).rejects(t, http.StatusUnauthorized, "the current password is wrong")
		change(password, "short").rejects(t, http.StatusBadRequest, "the password must have at least 10 characters")
		other.signedIn(t, true)
		before := b.token(t)
		change(password, next).redirectsTo(t, "/dashboard/account")
		if b.token(t) == before {
			t.Error("the token is the same")
		}
		b.signedIn(t, true)
		other.signedIn(t, false)
		other.post(t, "/dashboard/login", credentials(b, password)).rejects(t, http.StatusUnauthorized, "wrong")
		other.post(t, "/dashboard/login", credentials(b, next)).redirectsTo(t, "/dashboard/")
	})
}

func TestSessionsCanBeEndedFromAnotherBrowser(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b, eve := member(t, s, w, accounts.Viewer), member(t, s, w, accounts.Owner)
		phone := newBrowser(t, s)
		phone.workspace, phone.person = b.workspace, b.person
		phone.header.Set("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1 <script>")
		phone.signIn(t)
		page := b.get(t, "/dashboard/account").shows(t, "Safari on iPhone", "this browser", "127.0.0.1", "&lt;script&gt;")
		ofPhone := page.find(t, `(?s)Safari on iPhone.*?sessions/(sess_\w+)/revoke`)
		eve.post(t, "/dashboard/account/sessions/"+ofPhone+"/revoke", nil).is(t, http.StatusNotFound)
		eve.post(t, "/dashboard/account/sessions/x/revoke", nil).is(t, http.StatusNotFound)
		phone.signedIn(t, true)
		b.post(t, "/dashboard/account/sessions/"+ofPhone+"/revoke", nil).redirectsTo(t, "/dashboard/account#sessions")
		phone.signedIn(t, false)
		b.get(t, "/dashboard/account").hides(t, "Safari on iPhone", "Sign out other sessions")

		tablet := b.newSession(t)
		b.post(t, "/dashboard/account/sessions/revoke", nil).redirectsTo(t, "/dashboard/account#sessions")
		tablet.signedIn(t, false)
		eve.signedIn(t, true)
		own := b.get(t, "/dashboard/account").find(t, `sessions/(sess_\w+)/revoke`)
		b.post(t, "/dashboard/account/sessions/"+own+"/revoke", nil).redirectsTo(t, "/dashboard/login")
		b.signedIn(t, false)
	})
}
