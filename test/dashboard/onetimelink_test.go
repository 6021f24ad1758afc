package dashboard_test

import (
	"io"
	"mime/quotedprintable"
	"net/http"
	netmail "net/mail"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

// onSQLiteWith is harness.OnSQLite with other settings.
func onSQLiteWith(t *testing.T, change func(t *testing.T, cfg *config.Config), fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	cfg := harness.Config(t, "sqlite")
	change(t, &cfg)
	fn(t, harness.Start(t, cfg, harness.NewClock()))
}

func withMail(to *smtp.Server) func(*testing.T, *config.Config) {
	return func(_ *testing.T, cfg *config.Config) {
		cfg.SMTP.URL, cfg.Mail.From = config.SecretURL(to.URL()), "turnpike@example.com"
	}
}

// linkIn returns the link in an email, without the host.
func linkIn(t testing.TB, m smtp.Message) string {
	t.Helper()
	msg, err := netmail.ReadMessage(strings.NewReader(string(m.Data)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(msg.Body))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`https?://[^/\s]+(/dashboard/\S+)`).FindSubmatch(text)
	if link == nil {
		t.Fatalf("no link in\n%s", text)
	}
	return string(link[1])
}

// passwordLink returns the path of a link that the operator creates.
func passwordLink(t testing.TB, s *harness.Server, b *browser) string {
	t.Helper()
	members := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var l *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		l, err = members.NewPasswordLink(t.Context(), tx, b.person.ID, people.ResetLimit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.URL("")
}

func TestForgottenPasswordIsResetByEmail(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t)
	cfg := harness.Config(t, "sqlite")
	withMail(mails)(t, &cfg)
	s := harness.Start(t, cfg, harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
	stranger := newBrowser(t, s)
	stranger.get(t, "/dashboard/login").shows(t, "/dashboard/forgot")

	// The same for known and unknown addresses, and for repeated requests.
	var pages []string
	s.Clock.Turn(10 * time.Minute) // addMember's link is older than that
	for _, email := range []string{"nobody@example.com", b.person.Email, b.person.Email, "not an address"} {
		stranger.post(t, "/dashboard/forgot", url.Values{"email": {email}}).redirectsTo(t, "/dashboard/forgot")
		pages = append(pages, stranger.get(t, "/dashboard/forgot").shows(t, "a link is on its way").main())
	}
	for _, page := range pages[1:] {
		if page != pages[0] {
			t.Errorf("the page tells who has an account:\n%s\n%s", pages[0], page)
		}
	}
	got := mails.Wait(t, 1)
	if len(got) != 1 || got[0].To[0] != b.person.Email {
		t.Fatalf("the mails are %+v", got)
	}
	link := linkIn(t, got[0])
	if !strings.HasPrefix(link, "/dashboard/password?token=") {
		t.Fatalf("the link is %s", link)
	}
	var readable int64
	err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM mails WHERE body LIKE '%token=%' OR subject LIKE '%token=%'").Scan(&readable)
	if err != nil || readable != 0 {
		t.Errorf("%d stored mails show a link to a new password (%v), want 0", readable, err)
	}

	stranger.get(t, link).shows(t, b.person.Email)
	stranger.post(t, link, url.Values{"password": {"short"}}).rejects(t, http.StatusBadRequest, "the password must have at least 10 characters")
	b.signedIn(t, true)
	const next = "some other words nobody says"
	// A browser that is signed in has to sign in again.
	b.post(t, link, url.Values{"password": {next}}).redirectsTo(t, "/dashboard/login")
	b.get(t, "/dashboard/login").shows(t, "Password set")
	b.signedIn(t, false)
	stranger.post(t, link, url.Values{"password": {"a third one that works"}}).rejects(t, http.StatusNotFound, "already used or has expired")
	stranger.get(t, link).rejects(t, http.StatusNotFound, "already used or has expired")
	b.post(t, "/dashboard/login", credentials(b, password)).rejects(t, http.StatusUnauthorized, "wrong")
	b.post(t, "/dashboard/login", credentials(b, next)).redirectsTo(t, "/dashboard/")
	if n := len(mails.Messages()); n != 1 {
		t.Errorf("%d mails were sent", n)
	}
}

func TestPasswordResetRemovesPasskeysAndReportsIt(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, localhost(s), s.Workspace(t, "acme"), accounts.Owner)
		b.get(t, passwordLink(t, s, b)).shows(t, "signs you out everywhere").hides(t, "removes", "authenticator app")
		device := newAuthenticator(t, b)
		challenge, token := b.begin(t, "/dashboard/account/passkeys/start")
		made := device.create(t, challenge, token)
		made.Set("passkey_name", "laptop")
		b.post(t, "/dashboard/account/passkeys", made).redirectsTo(t, "/dashboard/account#passkeys")
		secret, _ := b.setUpApp(t)

		link := passwordLink(t, s, b)
		b.get(t, link).shows(t, "This also removes your passkeys, because someone else may have added them", "authenticator app stays required")
		b.post(t, link, url.Values{"password": {password}}).redirectsTo(t, "/dashboard/login")
		b.get(t, "/dashboard/login").shows(t, "This removed your passkeys. Add them again under Your account.")
		challenge, token = b.begin(t, "/dashboard/login/passkey/start")
		b.post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).rejects(t, http.StatusUnauthorized, "The passkey was rejected")
		s.Clock.Turn(time.Minute)
		b.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/login/code?next=*")
		b.get(t, "/dashboard/login/code").shows(t, "is the app not yours?")
		b.post(t, "/dashboard/login/code", url.Values{"code": {code(t, s, secret)}}).redirectsTo(t, "/dashboard/")
		b.get(t, b.in(accounts.Test, "log")).shows(t, "password.reset", "passkeys_removed")
	})
}

func TestResetLinkExpiresAndEndsOtherSessions(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		stranger, old := newBrowser(t, s), passwordLink(t, s, b)
		s.Clock.Turn(people.ResetLimit)
		stranger.get(t, old).rejects(t, http.StatusNotFound, "has expired")
		stranger.post(t, old, url.Values{"password": {"a third one that works"}}).rejects(t, http.StatusNotFound, "has expired")
		b.signedIn(t, true)
		stranger.post(t, passwordLink(t, s, b), url.Values{"password": {"a third one that works"}}).redirectsTo(t, "/dashboard/login")
		b.signedIn(t, false)
	})
}

func TestForgotPageExplainsMissingMailServer(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.get(t, "/dashboard/forgot").shows(t, "This server doesn't send email").hides(t, "<form method=\"post\" class=\"stack\">")
		b.post(t, "/dashboard/forgot", url.Values{"email": {b.person.Email}}).rejects(t, http.StatusConflict, "This server does not send email")
	})
}

func TestAnonymousActionsAreRateLimited(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t)
	onSQLiteWith(t, withMail(mails), func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.s = localhost(s)
		for range 30 {
			b.post(t, "/dashboard/login/passkey/start", nil).is(t, http.StatusOK)
		}
		b.post(t, "/dashboard/login/passkey/start", nil).rejects(t, http.StatusTooManyRequests, "Too many attempts from your address")
		b.post(t, "/dashboard/forgot", url.Values{"email": {"nobody@example.com"}}).rejects(t, http.StatusTooManyRequests, "Too many attempts from your address")
		s.Clock.Turn(time.Minute)
		b.post(t, "/dashboard/forgot", url.Values{"email": {"nobody@example.com"}}).redirectsTo(t, "/dashboard/forgot")
	})
}

// invite creates an invitation and returns the path of its link.
func invite(t testing.TB, s *harness.Server, w *accounts.Workspace, email string, role accounts.Role) string {
	t.Helper()
	members := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var link *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		link, err = members.Invite(t.Context(), tx, people.Operator(), &people.Invitation{WorkspaceID: w.ID, Email: email, Role: role})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return link.URL("")
}

func TestNewPersonAcceptsInvitation(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "<b>acme</b>")
		link := invite(t, s, w, "bob@example.com", accounts.Developer)
		b := newBrowser(t, s)
		b.get(t, link).shows(t, "Join &lt;b&gt;acme", "bob@example.com", "developer", "The operator of this server").hides(t, "<b>acme")
		b.post(t, link, url.Values{"name": {"Bob"}, "password": {"short"}}).rejects(t, http.StatusBadRequest, "the password must have at least 10 characters")
		// The server uses the invitation's address and ignores the one in the form.
		b.post(t, link, url.Values{"name": {"Bob"}, "password": {password}, "email": {"eve@example.com"}}).redirectsTo(t, "/dashboard/w/"+w.ID+"/test/")
		b.get(t, "/dashboard/account").shows(t, `value="bob@example.com"`, `value="Bob"`, "developer")
		eve := newBrowser(t, s)
		eve.get(t, link).rejects(t, http.StatusNotFound, "already used")
		eve.post(t, link, url.Values{"name": {"Eve"}, "password": {password}}).rejects(t, http.StatusNotFound, "already used")
		eve.get(t, "/dashboard/invitation").is(t, http.StatusNotFound)
		late := invite(t, s, w, "cyd@example.com", accounts.Viewer)
		s.Clock.Turn(7 * 24 * time.Hour)
		eve.post(t, late, url.Values{"name": {"Cyd"}, "password": {password}}).rejects(t, http.StatusNotFound, "has expired")
	})
}

func TestMemberOfAnotherWorkspaceAcceptsInvitation(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		home, acme := s.Workspace(t, "home"), s.Workspace(t, "acme")
		b := newBrowser(t, s)
		b.person, b.workspace = addMember(t, s, home, "bob@example.com", accounts.Viewer), acme
		eve := member(t, s, home, accounts.Owner)
		link := invite(t, s, acme, "bob@example.com", accounts.Admin)

		// Without a session the link leads to the sign-in page. It doesn't accept a password.
		to := b.get(t, link).redirectsTo(t, "/dashboard/login?next=*")
		b.get(t, to).shows(t, "Sign in as bob@example.com to accept the invitation.", "choose a new one with Forgot your password first")
		b.post(t, link, url.Values{"name": {"Eve"}, "password": {"a third one that works"}}).redirectsTo(t, "/dashboard/login?next=*")
		b.post(t, to, credentials(b, password)).redirectsTo(t, link)
		before := b.token(t)
		b.get(t, b.in(accounts.Test, "")).is(t, http.StatusNotFound)
		// Another person is asked to sign out.
		back := eve.get(t, link).shows(t, "Sign out to accept the invitation").find(t, `action="(/dashboard/logout\?next=[^"]+)"`)
		eve.post(t, link, nil).rejects(t, http.StatusConflict, "the invitation is for bob@example.com")
		eve.post(t, back, nil).redirectsTo(t, link)

		b.get(t, link).shows(t, "Join as admin").hides(t, "password")
		b.post(t, link, nil).redirectsTo(t, b.in(accounts.Test, ""))
		if b.token(t) == before {
			t.Error("the token is the same although the person may do more")
		}
		b.get(t, b.in(accounts.Test, "")).is(t, http.StatusOK)
		b.get(t, link).rejects(t, http.StatusNotFound, "already used")
	})
}
