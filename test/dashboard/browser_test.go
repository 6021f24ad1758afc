// Package dashboard_test tests the pages like a browser without JavaScript: it
// follows links, sends forms and keeps cookies.
package dashboard_test

import (
	"html"
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

// password is the password of every test user.
const password = "a few words nobody says"

// browser is a browser with cookies, possibly signed in.
type browser struct {
	s         *harness.Server
	client    *http.Client
	workspace *accounts.Workspace
	person    *accounts.User
	header    http.Header // sent with every request
	host      string      // the Host header, if it differs
}

// newBrowser returns a browser that isn't signed in.
func newBrowser(t testing.TB, s *harness.Server) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	// Redirects are not followed, so that tests can check them.
	client := &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &browser{s: s, client: client, header: http.Header{}}
}

// member creates a member with a password and signs them in. The email address
// begins with the role.
func member(t testing.TB, s *harness.Server, w *accounts.Workspace, role accounts.Role) *browser {
	t.Helper()
	b := newBrowser(t, s)
	b.workspace = w
	b.person = addMember(t, s, w, string(role)+"@"+strings.ToLower(w.ID)+".example", role)
	b.signIn(t)
	return b
}

func addMember(t testing.TB, s *harness.Server, w *accounts.Workspace, email string, role accounts.Role) *accounts.User {
	t.Helper()
	u := &accounts.User{Email: email, Name: "The " + string(role), WorkspaceID: w.ID, Role: role}
	members := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
	var link *people.Link
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		if err := accounts.CreateUser(t.Context(), tx, u, s.Clock.Now()); err != nil {
			return err
		}
		if err := audit.Operator.Log(t.Context(), tx, audit.Action{Tenant: accounts.Tenant{WorkspaceID: w.ID}, Action: "member.added", Target: u.ID}, nil, s.Clock.Now()); err != nil {
			return err
		}
		var err error
		link, err = members.NewPasswordLink(t.Context(), tx, u.ID, people.WelcomeLimit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := members.ResetPassword(t.Context(), link.Token, password, people.Browser{}); err != nil {
		t.Fatal(err)
	}
	return u
}

func (b *browser) signIn(t testing.TB) {
	t.Helper()
	b.post(t, "/dashboard/login", url.Values{"email": {b.person.Email}, "password": {password}}).redirectsTo(t, "/dashboard/")
}

// in returns the path of a page of the person's workspace.
func (b *browser) in(env accounts.Environment, page string) string {
	return "/dashboard/w/" + b.workspace.In(env).Path() + "/" + page
}

type response struct {
	status int
	header http.Header
	body   string
	path   string
}

func (b *browser) get(t testing.TB, path string) *response {
	t.Helper()
	return b.do(t, "GET", path, nil)
}

func (b *browser) post(t testing.TB, path string, form url.Values) *response {
	t.Helper()
	return b.do(t, "POST", path, form)
}

func (b *browser) do(t testing.TB, method, path string, form url.Values) *response {
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
	return &response{status: resp.StatusCode, header: resp.Header, body: string(text), path: method + " " + path}
}

// shows checks that the status is 200 and the page contains the texts.
func (a *response) shows(t testing.TB, texts ...string) *response {
	t.Helper()
	a.is(t, http.StatusOK)
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			t.Errorf("%s does not show %q:\n%s", a.path, text, a.main())
		}
	}
	return a
}

// hides checks that the page contains none of the texts.
func (a *response) hides(t testing.TB, texts ...string) *response {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			t.Errorf("%s shows %q:\n%s", a.path, text, a.main())
		}
	}
	return a
}

func (a *response) is(t testing.TB, status int) *response {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s answered %d, want %d:\n%s", a.path, a.status, status, a.main())
	}
	return a
}

// rejects checks the status and the error message, ignoring case.
func (a *response) rejects(t testing.TB, status int, why string) *response {
	t.Helper()
	a.is(t, status)
	says := strings.Contains(a.body, `role="alert"`) || strings.Contains(a.body, `class="field-error"`)
	if !says || !strings.Contains(strings.ToLower(html.UnescapeString(a.body)), strings.ToLower(html.UnescapeString(why))) {
		t.Errorf("%s does not say %q:\n%s", a.path, why, a.main())
	}
	return a
}

// redirectsTo checks the redirect and returns its target. A path that ends in *
// matches a prefix.
func (a *response) redirectsTo(t testing.TB, path string) string {
	t.Helper()
	a.is(t, http.StatusSeeOther)
	to := a.header.Get("Location")
	if start, open := strings.CutSuffix(path, "*"); to != path && (!open || !strings.HasPrefix(to, start)) {
		t.Fatalf("%s leads to %s, want %s", a.path, to, path)
	}
	return to
}

var mainPart = regexp.MustCompile(`(?s)<main.*</main>`)

// main returns the page without its layout.
func (a *response) main() string {
	if m := mainPart.FindString(a.body); m != "" {
		return m
	}
	return a.body
}

// find returns the last group of the first match in the page.
func (a *response) find(t testing.TB, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(a.body)
	if m == nil {
		t.Fatalf("%s has nothing like %s:\n%s", a.path, pattern, a.main())
	}
	return m[len(m)-1]
}
