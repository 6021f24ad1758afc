package dashboard_test

import (
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

// code is what the authenticator app shows now.
func code(t testing.TB, s *harness.Server, secret string) string {
	t.Helper()
	c, err := totp.GenerateCode(secret, s.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// setUpApp gives the person an authenticator app by the pages.
func (b *browser) setUpApp(t testing.TB) (secret string, recovery []string) {
	t.Helper()
	b.post(t, "/dashboard/account/app", nil).leadsTo(t, "/dashboard/account/app")
	page := b.get(t, "/dashboard/account/app").shows(t, `<path d="M4 4h7v1h-7z`) // the first row of a QR code's corner
	secret = strings.ReplaceAll(page.find(t, `id="totp-secret">([A-Z2-7 ]+)<`), " ", "")
	if again := b.get(t, "/dashboard/account/app"); !strings.Contains(again.body, page.find(t, `id="totp-secret">([A-Z2-7 ]+)<`)) {
		t.Error("the secret changes before it is used")
	}
	b.post(t, "/dashboard/account/app/enable", url.Values{"code": {"000000"}}).refuses(t, http.StatusUnauthorized, "the code is wrong")
	b.post(t, "/dashboard/account/app/enable", url.Values{"code": {code(t, b.s, secret)}}).leadsTo(t, "/dashboard/account")
	shown := b.get(t, "/dashboard/account").shows(t, "These are your recovery codes", "10 of 10 recovery codes are left").find(t, `(?s)<pre id="codes">(.*?)</pre>`)
	if recovery = strings.Fields(shown); len(recovery) != 10 {
		t.Fatalf("the recovery codes are %q", shown)
	}
	b.get(t, "/dashboard/account").hides(t, recovery...)
	return secret, recovery
}

func TestAuthenticatorApp(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		other := b.again(t)
		b.get(t, "/dashboard/account/app").refuses(t, http.StatusConflict, "begin again")
		secret, recovery := b.setUpApp(t)
		other.signedIn(t, false)
		b.signedIn(t, true)
		b.get(t, "/dashboard/account/app").refuses(t, http.StatusConflict, "begin again").hides(t, secret)

		login := func() {
			t.Helper()
			other.post(t, "/dashboard/login?next=/dashboard/account", credentials(b, password)).leadsTo(t, "/dashboard/login/code?next=%2Fdashboard%2Faccount")
			other.signedIn(t, false)
		}
		const page = "/dashboard/login/code?next=/dashboard/account"
		login()
		other.get(t, page).shows(t, "One more step")
		other.post(t, page, url.Values{"code": {"000000"}}).refuses(t, http.StatusUnauthorized, "the code is wrong")
		other.signedIn(t, false)
		s.Clock.Turn(time.Minute)
		other.post(t, page, url.Values{"code": {code(t, s, secret)}}).leadsTo(t, "/dashboard/account")
		other.get(t, "/dashboard/account").shows(t, "by authenticator app")
		other.post(t, "/dashboard/logout", nil)

		login()
		other.post(t, page, url.Values{"code": {code(t, s, secret)}}).refuses(t, http.StatusUnauthorized, "was used already")
		other.post(t, page, url.Values{"code": {recovery[3]}}).leadsTo(t, "/dashboard/account")
		other.get(t, "/dashboard/account").shows(t, "You have used up a recovery code", "9 of 10", "by recovery code")
		other.post(t, "/dashboard/logout", nil)
		login()
		other.post(t, page, url.Values{"code": {recovery[3]}}).refuses(t, http.StatusUnauthorized, "was used already")

		b.post(t, "/dashboard/account/app/codes", nil).leadsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "There are new recovery codes", "10 of 10").hides(t, recovery...)
		other.post(t, page, url.Values{"code": {recovery[4]}}).refuses(t, http.StatusUnauthorized, "the code is wrong")
		b.post(t, "/dashboard/account/app/disable", nil).leadsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "Set up an app")
		other.post(t, "/dashboard/login", credentials(b, password)).leadsTo(t, "/dashboard/")
	})
}

func TestSecondFactorIsThrottledAndTakesTenMinutes(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		secret, _ := b.setUpApp(t)
		s.Clock.Turn(time.Minute)
		other := newBrowser(t, s)
		other.get(t, "/dashboard/login/code?next=/dashboard/account").leadsTo(t, "/dashboard/login?next=%2Fdashboard%2Faccount") // nothing was begun
		other.post(t, "/dashboard/login", credentials(b, password)).leadsTo(t, "/dashboard/login/code*")
		for range 5 {
			other.post(t, "/dashboard/login/code", url.Values{"code": {"000000"}}).refuses(t, http.StatusUnauthorized, "the code is wrong")
		}
		other.post(t, "/dashboard/login/code", url.Values{"code": {code(t, s, secret)}}).refuses(t, http.StatusTooManyRequests, "too many attempts")
		s.Clock.Turn(11 * time.Minute)
		other.post(t, "/dashboard/login/code", url.Values{"code": {code(t, s, secret)}}).refuses(t, http.StatusUnauthorized, "took too long")
	})
}

func TestSecretsOfTheAccountAreForTheConfirmed(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		b.header.Set("Referer", s.URL+"/dashboard/account")
		s.Clock.Turn(11 * time.Minute)
		for _, path := range []string{"app", "app/enable", "app/disable", "app/codes", "passkeys/start", "passkeys", "passkeys/" + ids.New(people.PasskeyID) + "/delete"} {
			b.post(t, "/dashboard/account/"+path, nil).leadsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount")
		}
		b.get(t, "/dashboard/account/app").leadsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount%2Fapp")
	})
}

func TestNameAndPasswordOfOnesOwn(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "<b>acme</b>"), accounts.Developer)
		other := b.again(t)
		b.get(t, "/dashboard/account").shows(t, b.person.Email, "&lt;b&gt;acme&lt;/b&gt;", "developer")
		b.post(t, "/dashboard/account/name", url.Values{"name": {"<i>Ada</i>"}}).leadsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "Your name is saved.", "&lt;i&gt;Ada&lt;/i&gt;").hides(t, "<i>Ada")
		b.post(t, "/dashboard/account/name", url.Values{"name": {""}}).refuses(t, http.StatusBadRequest, "name")

		const next = "some other words nobody says"
		change := func(current, password string) *answer {
			return b.post(t, "/dashboard/account/password", url.Values{"current": {current}, "password": {password}})
		}
		change("wrong", next).refuses(t, http.StatusUnauthorized, "the current password is wrong")
		change(password, "short").refuses(t, http.StatusBadRequest, "the password must have from 10")
		other.signedIn(t, true)
		before := b.token(t)
		change(password, next).leadsTo(t, "/dashboard/account")
		if b.token(t) == before {
			t.Error("the token is the same")
		}
		b.signedIn(t, true)
		other.signedIn(t, false)
		other.post(t, "/dashboard/login", credentials(b, password)).refuses(t, http.StatusUnauthorized, "wrong")
		other.post(t, "/dashboard/login", credentials(b, next)).leadsTo(t, "/dashboard/")
	})
}

func TestSessionsAreEndedFromAnother(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
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
		b.post(t, "/dashboard/account/sessions/"+ofPhone+"/revoke", nil).leadsTo(t, "/dashboard/account#sessions")
		phone.signedIn(t, false)
		b.get(t, "/dashboard/account").hides(t, "Safari on iPhone", "Sign out all others")

		tablet := b.again(t)
		b.post(t, "/dashboard/account/sessions/revoke", nil).leadsTo(t, "/dashboard/account#sessions")
		tablet.signedIn(t, false)
		eve.signedIn(t, true)
		own := b.get(t, "/dashboard/account").find(t, `sessions/(sess_\w+)/revoke`)
		b.post(t, "/dashboard/account/sessions/"+own+"/revoke", nil).leadsTo(t, "/dashboard/login")
		b.signedIn(t, false)
	})
}
