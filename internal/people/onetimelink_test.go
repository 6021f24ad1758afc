package people_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

func (w *fixture) setUpLink() (link *people.Link, err error) {
	err = w.try(func(tx *db.Tx) (err error) {
		link, err = w.NewSetupLink(w.t.Context(), tx, w.acme.ID, "")
		return err
	})
	return link, err
}

func (w *fixture) requestReset(email string) (link *people.Link) {
	w.t.Helper()
	w.write(func(tx *db.Tx) (err error) {
		link, err = w.RequestPasswordReset(w.t.Context(), tx, email, browser)
		return err
	})
	return link
}

func TestLinksOnThisMachineHaveTheHostNameOfPasskeys(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{"http://127.0.0.1:8080": "http://localhost:8080", "http://[::1]": "http://localhost",
		"http://127.0.0.11:8080": "http://127.0.0.11:8080", "https://x.example.com": "https://x.example.com"} {
		for _, path := range []string{"/dashboard/setup", "/dashboard/password", people.InvitationPath} {
			link := people.Link{Path: path, Token: "a b"}
			if got := link.URL(at); got != want+path+"?token=a+b" {
				t.Errorf("the link at %s is %s, want one at %s", at, got, want)
			}
		}
	}
}

func TestSetupLinkCreatesOneOwner(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		replaced, err := w.setUpLink()
		if err != nil {
			t.Fatal(err)
		}
		link, err := w.setUpLink()
		if err != nil {
			t.Fatal(err)
		}
		w.advance(400 * 24 * time.Hour) // setup links don't expire
		ada := people.NewAccount{Email: "Ada@example.com", Name: "Ada", Password: password}
		for token, n := range map[string]people.NewAccount{replaced.Token: ada, "nonsense": ada} {
			_, err := w.Setup(t.Context(), token, n, browser)
			want(t, err, fault.NotFound)
		}
		for _, n := range []people.NewAccount{{Email: "ada", Name: "Ada", Password: password}, {Email: ada.Email, Password: password},
			{Email: ada.Email, Name: "Ada", Password: "short"}, {Email: ada.Email, Name: "Ada", Password: ada.Email}} {
			if _, err := w.Setup(t.Context(), link.Token, n, browser); err == nil {
				t.Errorf("%+v was taken", n)
			}
		}
		var in atomic.Int64
		var wg sync.WaitGroup
		for _, name := range []string{"ada", "bob", "cyd", "dan"} {
			wg.Go(func() {
				got, err := w.Setup(t.Context(), link.Token, people.NewAccount{Email: name + "@example.com", Name: name, Password: password}, browser)
				if err == nil && got.Complete() && w.alive(got.Token) {
					in.Add(1)
				} else if !fault.Is(err, fault.NotFound) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		users, err := accounts.ListUsers(t.Context(), w.db, w.acme.ID)
		if err != nil || in.Load() != 1 || len(users) != 1 || users[0].Role != accounts.Owner {
			t.Errorf("%d came in, members %v, %v", in.Load(), users, err)
		}
		_, err = w.setUpLink()
		want(t, err, fault.InvalidState)
		if !strings.HasSuffix(w.actions(), "setup_link.created member.added person.signed_in") {
			t.Errorf("the log is %s", w.actions())
		}
	})
}

func TestSetupLinkIsInvalidOnceThereIsAnOwner(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		link, err := w.setUpLink()
		if err != nil {
			t.Fatal(err)
		}
		w.member("ada@example.com", accounts.Owner)
		_, err = w.Setup(t.Context(), link.Token, people.NewAccount{Email: "eve@example.com", Name: "Eve", Password: password}, browser)
		want(t, err, fault.InvalidState)
	})
}

func TestResetLinkWorksOnceForAnHour(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.advance(time.Hour)
		in := w.login("ada@example.com")
		link := w.requestReset("Ada@example.com")
		if link == nil || link.WorkspaceID != w.acme.ID || link.Person.Email != "ada@example.com" {
			t.Fatalf("link %+v", link)
		}
		if again := w.requestReset("ada@example.com"); again != nil {
			t.Error("a mailbox can be filled")
		}
		if nobody := w.requestReset("eve@example.com"); nobody != nil {
			t.Error("a link for nobody")
		}
		for range 5 {
			_, _ = w.Login(t.Context(), "ada@example.com", "wrong password", "", browser)
		}
		_, err := w.ResetPassword(t.Context(), link.Token, "short", browser)
		want(t, err, fault.InvalidParameter) // and the link still works
		const better = "another fine password"
		var done atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := w.ResetPassword(t.Context(), link.Token, better, browser); err == nil {
					done.Add(1)
				} else if !fault.Is(err, fault.NotFound) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 {
			t.Errorf("the link worked %d times", done.Load())
		}
		want(t, w.ConsumeResetLink(t.Context(), link, "the slower request's hash"), fault.NotFound)
		if w.alive(in.Token) {
			t.Error("a session outlives its password")
		}
		if _, err := w.Login(t.Context(), "ada@example.com", better, "", browser); err != nil {
			t.Error(err) // the setup ended the waits
		}
		_, err = w.Login(t.Context(), "ada@example.com", password, "", browser)
		want(t, err, fault.Authentication)

		w.advance(10 * time.Minute)
		late := w.requestReset("ada@example.com")
		w.advance(time.Hour)
		_, err = w.FindPasswordLink(t.Context(), w.db, late.Token)
		want(t, err, fault.NotFound)
		_, err = w.ResetPassword(t.Context(), late.Token, password, browser)
		want(t, err, fault.NotFound)
	})
}

func TestNewPasswordInvalidatesOtherLinks(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.advance(time.Hour)
		first := w.requestReset("ada@example.com")
		w.advance(6 * time.Minute)
		second := w.requestReset("ada@example.com")
		if _, err := w.ResetPassword(t.Context(), first.Token, password, browser); err != nil {
			t.Fatal(err)
		}
		_, err := w.ResetPassword(t.Context(), second.Token, password, browser)
		want(t, err, fault.NotFound)
	})
}

func TestLinksWorkOnlyForTheirKind(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		setUp, err := w.setUpLink()
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.ResetPassword(t.Context(), setUp.Token, password, browser)
		want(t, err, fault.NotFound)
		_, err = w.AcceptInvitation(t.Context(), setUp.Token, people.NewAccount{Name: "Eve", Password: password}, browser)
		want(t, err, fault.NotFound)
		w.member("bob@example.com", accounts.Viewer)
		w.advance(time.Hour)
		reset := w.requestReset("bob@example.com")
		_, err = w.Setup(t.Context(), reset.Token, people.NewAccount{Email: "eve@example.com", Name: "Eve", Password: password}, browser)
		want(t, err, fault.NotFound)
	})
}
