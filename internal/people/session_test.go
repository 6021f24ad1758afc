package people_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

func TestSessionsExpireWhenIdleAndAbsolutely(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		idle, busy := w.login("ada@example.com"), w.login("ada@example.com")
		w.advance(12*time.Hour - time.Second)
		if !w.alive(busy.Token) {
			t.Error("ended early")
		}
		w.advance(time.Second)
		if w.alive(idle.Token) || !w.alive(busy.Token) {
			t.Error("twelve idle hours")
		}
		for range 27 {
			w.advance(11 * time.Hour)
			if !w.alive(busy.Token) {
				t.Fatal("ended although it is used")
			}
		}
		// Authenticating again changes the token, not the expiry.
		s, err := w.Authenticate(t.Context(), busy.Token, browser)
		if err != nil {
			t.Fatal(err)
		}
		token, err := w.Confirm(t.Context(), s, people.Proof{Password: password}, browser)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.advance(11 * time.Hour)
			w.alive(token)
		}
		if w.alive(token) {
			t.Errorf("alive after %s", w.clock().Sub(s.CreatedAt))
		}
		if list, err := w.Sessions(t.Context(), w.db, s.UserID); err != nil || len(list) != 0 {
			t.Errorf("ended ones are listed: %v, %v", list, err)
		}
	})
}

func TestLastSeenIsWrittenAtMostOnceAMinute(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		began := w.clock()
		seen := func(from people.Browser) (time.Time, string) {
			if _, err := w.Authenticate(t.Context(), in.Token, from); err != nil {
				t.Fatal(err)
			}
			list, err := w.Sessions(t.Context(), w.db, in.Session.UserID)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].SeenAt, list[0].IP + " " + list[0].UserAgent
		}
		w.advance(59 * time.Second)
		if at, _ := seen(people.Browser{IP: "198.51.100.1"}); !at.Equal(began) {
			t.Errorf("written after %s", at.Sub(began))
		}
		w.advance(time.Second)
		at, where := seen(people.Browser{IP: "198.51.100.1", UserAgent: "Chrome\n\x00tp_live_abc " + strings.Repeat("ü", 500)})
		if at.Sub(began) != time.Minute || !strings.HasPrefix(where, "198.51.100.1 Chrometp_live_*** ü") || len(where) > 320 {
			t.Errorf("seen after %s at %q", at.Sub(began), where)
		}
	})
}

func TestLookUpDoesNotExtendASession(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		w.write(func(tx *db.Tx) error { return w.SetName(t.Context(), tx, in.Session, "Ada L.", browser) })
		for range 12 {
			w.advance(time.Hour - time.Second)
			s, err := w.LookUpSession(t.Context(), w.db, in.Token)
			if err != nil || s.ID != in.Session.ID || s.Person.Email != "ada@example.com" || s.Person.Name != "Ada L." {
				t.Fatal(s, err)
			}
		}
		w.advance(12 * time.Second)
		_, err := w.LookUpSession(t.Context(), w.db, in.Token)
		want(t, err, fault.Authentication)
	})
}

func TestPeopleRevokeTheirOwnSessionsOnly(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.member("bob@example.com", accounts.Admin)
		a, b, c := w.login("ada@example.com"), w.login("ada@example.com"), w.login("ada@example.com")
		bob := w.login("bob@example.com")
		want(t, w.try(func(tx *db.Tx) error { return w.Revoke(t.Context(), tx, bob.Session, a.Session.ID, browser) }), fault.NotFound)
		w.write(func(tx *db.Tx) error { return w.Revoke(t.Context(), tx, a.Session, b.Session.ID, browser) })
		if !w.alive(a.Token) || w.alive(b.Token) || !w.alive(c.Token) {
			t.Error("revoking one")
		}
		w.write(func(tx *db.Tx) error { return w.RevokeOthers(t.Context(), tx, a.Session, browser) })
		if !w.alive(a.Token) || w.alive(c.Token) || !w.alive(bob.Token) {
			t.Error("revoking the others")
		}
		w.write(func(tx *db.Tx) error { return w.Revoke(t.Context(), tx, a.Session, a.Session.ID, browser) })
		if w.alive(a.Token) {
			t.Error("signing out")
		}
		if !strings.HasSuffix(w.actions(), "session.revoked session.others_revoked person.signed_out") {
			t.Errorf("the log is %s", w.actions())
		}
	})
}

func TestPasswordChangeEndsAllOtherSessions(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		a, b := w.login("ada@example.com"), w.login("ada@example.com")
		const better = "another fine password"
		_, err := w.ChangePassword(t.Context(), a.Session, "wrong", better, browser)
		want(t, err, fault.Authentication)
		_, err = w.ChangePassword(t.Context(), a.Session, password, "short", browser)
		want(t, err, fault.InvalidParameter)
		compared, err := w.Get(t.Context(), w.db, a.Person.ID)
		if err != nil {
			t.Fatal(err)
		}
		stale := *a.Session
		token, err := w.ChangePassword(t.Context(), a.Session, password, better, browser)
		if err != nil {
			t.Fatal(err)
		}
		// Requests that compared the old password fail.
		want(t, w.CompletePasswordLogin(t.Context(), compared), fault.Authentication)
		_, err = w.ChangePassword(t.Context(), &stale, better, password, browser)
		want(t, err, fault.Authentication)
		_, err = w.Confirm(t.Context(), b.Session, people.Proof{Password: better}, browser)
		want(t, err, fault.Authentication)
		if w.alive(a.Token) || w.alive(b.Token) || !w.alive(token) {
			t.Error("an old token works, or the new one does not")
		}
		_, err = w.Login(t.Context(), "ada@example.com", password, "", browser)
		want(t, err, fault.Authentication)
	})
}
