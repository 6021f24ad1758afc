// Package dashboard_test looks at the pages as a browser without JavaScript
// does: it follows links, sends forms and keeps cookies.
package dashboard_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

// password is everybody's here.
const password = "a few words nobody says"

// browser is somebody's, perhaps signed in.
type browser struct {
	s         *harness.Server
	client    *http.Client
	workspace *accounts.Workspace
	person    *accounts.User
	header    http.Header // sent with every request
	host      string      // that the browser believes to talk to, if it is another
}

// newBrowser is a stranger's.
func newBrowser(t testing.TB, s *harness.Server) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	// Redirects are answers to look at.
	client := &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &browser{s: s, client: client, header: http.Header{}}
}

// member makes a person with a password in a workspace and signs them in. The
// e-mail address begins with the role.
func member(t testing.TB, s *harness.Server, w *accounts.Workspace, role accounts.Role) *browser {
	t.Helper()
	b := newBrowser(t, s)
	b.workspace = w
	b.person = addMember(t, s, w, string(role)+"@"+strings.ToLower(w.ID)+".example", role)
	b.signIn(t)
	return b
}

// addMember makes a person with a password.
func addMember(t testing.TB, s *harness.Server, w *accounts.Workspace, email string, role accounts.Role) *accounts.User {
	t.Helper()
	u := &accounts.User{Email: email, Name: "The " + string(role), WorkspaceID: w.ID, Role: role}
	folk := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var link *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := accounts.CreateUser(t.Context(), tx, u, s.Clock.Now()); err != nil {
			return err
		}
		if err := audit.LogAction(t.Context(), tx, audit.Operator, audit.Action{WorkspaceID: w.ID, Action: "member.added", Target: u.ID}, nil, s.Clock.Now()); err != nil {
			return err
		}
		var err error
		link, err = folk.NewPasswordLink(t.Context(), tx, u.ID, people.WelcomeLimit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := folk.ResetPassword(t.Context(), link.Token, password, people.Browser{}); err != nil {
		t.Fatal(err)
	}
	return u
}

// signIn signs in with the password.
func (b *browser) signIn(t testing.TB) {
	t.Helper()
	b.post(t, "/dashboard/login", url.Values{"email": {b.person.Email}, "password": {password}}).leadsTo(t, "/dashboard/")
}

// in is the path of a page of the person's workspace.
func (b *browser) in(env accounts.Environment, page string) string {
	return "/dashboard/w/" + b.workspace.ID + "/" + string(env) + "/" + page
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
	path   string
}

func (b *browser) get(t testing.TB, path string) *answer {
	t.Helper()
	return b.do(t, "GET", path, nil)
}

// post sends a form.
func (b *browser) post(t testing.TB, path string, form url.Values) *answer {
	t.Helper()
	return b.do(t, "POST", path, form)
}

func (b *browser) do(t testing.TB, method, path string, form url.Values) *answer {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(t.Context(), method, b.s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = b.host
	for name, values := range b.header {
		req.Header[name] = values
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: string(text), path: method + " " + path}
}

// shows checks that the page is there and has each of the texts.
func (a *answer) shows(t testing.TB, texts ...string) *answer {
	t.Helper()
	a.is(t, http.StatusOK)
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("%s does not show %q:\n%s", a.path, text, a.main())
		}
	}
	return a
}

// hides checks that none of the texts are there.
func (a *answer) hides(t testing.TB, texts ...string) *answer {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			t.Errorf("%s shows %q:\n%s", a.path, text, a.main())
		}
	}
	return a
}

// is checks the status.
func (a *answer) is(t testing.TB, status int) *answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s answered %d, want %d:\n%s", a.path, a.status, status, a.main())
	}
	return a
}

// refuses checks the status and what the page says is wrong; it may begin with a
// capital letter there.
func (a *answer) refuses(t testing.TB, status int, why string) *answer {
	t.Helper()
	a.is(t, status)
	if !strings.Contains(a.body, `role="alert"`) || !strings.Contains(strings.ToLower(a.body), strings.ToLower(why)) {
		t.Errorf("%s does not say %q:\n%s", a.path, why, a.main())
	}
	return a
}

// leadsTo checks where the answer redirects to, and returns it; the path may
// end in * for anything.
func (a *answer) leadsTo(t testing.TB, path string) string {
	t.Helper()
	a.is(t, http.StatusSeeOther)
	to := a.header.Get("Location")
	if start, open := strings.CutSuffix(path, "*"); to != path && (!open || !strings.HasPrefix(to, start)) {
		t.Fatalf("%s leads to %s, want %s", a.path, to, path)
	}
	return to
}

var mainPart = regexp.MustCompile(`(?s)<main.*</main>`)

// main is the part of a page that differs from others.
func (a *answer) main() string {
	if m := mainPart.FindString(a.body); m != "" {
		return m
	}
	return a.body
}

// find returns the first group of what matches in the page.
func (a *answer) find(t testing.TB, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(a.body)
	if m == nil {
		t.Fatalf("%s has nothing like %s:\n%s", a.path, pattern, a.main())
	}
	return m[len(m)-1]
}
