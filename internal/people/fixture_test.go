package people_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/people"
	"turnpike/internal/visibility"
)

const password = "correct horse battery"

// cheap makes hashes fast. Another test checks their real cost.
var cheap = people.Cost{Memory: 64, Passes: 1, Lanes: 1}

var browser = people.Browser{IP: "192.0.2.7", UserAgent: "Firefox", RequestID: "req_1"}

// fixture is a database with a workspace and a test clock.
type fixture struct {
	*people.People
	t    *testing.T
	db   *db.DB
	ring *keyring.Ring
	acme *accounts.Workspace

	mu  sync.Mutex
	now time.Time
}

func each(t *testing.T, fn func(t *testing.T, w *fixture)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ring, err := keyring.New(bytes.Repeat([]byte{7}, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		w := &fixture{t: t, db: d, ring: ring, now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}
		w.People = people.New(d, ring, people.Options{Now: w.clock, Cost: cheap})
		w.acme = w.workspace("acme")
		fn(t, w)
	})
}

func (w *fixture) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *fixture) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// write runs fn in a transaction that must succeed.
func (w *fixture) write(fn func(tx *db.Tx) error) {
	w.t.Helper()
	if err := w.try(fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) try(fn func(tx *db.Tx) error) error {
	return w.db.Write(context.Background(), fn)
}

func (w *fixture) workspace(name string) *accounts.Workspace {
	w.t.Helper()
	made := &accounts.Workspace{Name: name}
	w.write(func(tx *db.Tx) error { return accounts.CreateWorkspace(w.t.Context(), tx, made, w.clock()) })
	return made
}

// member creates a person with the password, and returns their ID.
func (w *fixture) member(email string, role accounts.Role) string {
	w.t.Helper()
	u := &accounts.User{Email: email, Name: email[:3], WorkspaceID: w.acme.ID, Role: role}
	var link *people.Link
	w.write(func(tx *db.Tx) (err error) {
		if err := accounts.CreateUser(w.t.Context(), tx, u, w.clock()); err != nil {
			return err
		}
		link, err = w.NewPasswordLink(w.t.Context(), tx, u.ID, people.WelcomeLimit)
		return err
	})
	if _, err := w.ResetPassword(w.t.Context(), link.Token, password, browser); err != nil {
		w.t.Fatal(err)
	}
	return u.ID
}

// login signs in with only the password.
func (w *fixture) login(email string) *people.SignIn {
	w.t.Helper()
	in, err := w.Login(w.t.Context(), email, password, "", browser)
	if err != nil {
		w.t.Fatal(err)
	}
	if !in.Complete() {
		w.t.Fatal("a second factor is asked for")
	}
	return in
}

func (w *fixture) alive(token string) bool {
	w.t.Helper()
	_, err := w.Authenticate(w.t.Context(), token, browser)
	if err != nil && !fault.Is(err, fault.Authentication) {
		w.t.Fatal(err)
	}
	return err == nil
}

// withApp sets up an authenticator app and returns its secret.
func (w *fixture) withApp(s *people.Session) (secret string, recovery []string) {
	w.t.Helper()
	w.write(func(tx *db.Tx) error {
		e, err := w.StartTOTP(w.t.Context(), tx, s, "Turnpike")
		if err != nil {
			return err
		}
		secret = e.Secret
		recovery, err = w.EnableTOTP(w.t.Context(), tx, s, w.code(secret), browser)
		return err
	})
	return secret, recovery
}

// code returns the app's current code.
func (w *fixture) code(secret string) string {
	w.t.Helper()
	code, err := totp.GenerateCode(secret, w.clock())
	if err != nil {
		w.t.Fatal(err)
	}
	return code
}

// actions returns the action names in acme's admin log, oldest first.
func (w *fixture) actions() string {
	w.t.Helper()
	found, err := audit.FindActions(w.t.Context(), w.db, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: w.acme.ID}, Shared: true}, audit.ActionFilter{}, db.Page{Limit: 1000, Asc: true})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, a := range found.Rows {
		names = append(names, a.Action)
	}
	return strings.Join(names, " ")
}

func want(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("the error is %v, not %s", err, code)
	}
}
