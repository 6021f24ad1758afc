package people_test

import (
	"fmt"
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

func (w *fixture) invite(by people.Caller, email string, role accounts.Role) (*people.Invitation, *people.Link, error) {
	i := &people.Invitation{WorkspaceID: w.acme.ID, Email: email, Role: role}
	var link *people.Link
	err := w.try(func(tx *db.Tx) (err error) {
		link, err = w.Invite(w.t.Context(), tx, by, i)
		return err
	})
	return i, link, err
}

func (w *fixture) invited(email string, role accounts.Role) (*people.Invitation, *people.Link) {
	w.t.Helper()
	i, link, err := w.invite(people.Operator(), email, role)
	if err != nil {
		w.t.Fatal(err)
	}
	return i, link
}

var newcomer = people.NewAccount{Name: "Bob", Password: password}

func TestInvitationIsAcceptedOnce(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		i, link := w.invited("Bob@example.com", accounts.Developer)
		var in atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				got, err := w.AcceptInvitation(t.Context(), link.Token, newcomer, browser)
				if err == nil && w.alive(got.Token) {
					in.Add(1)
				} else if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.InvalidState) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Errorf("%d came in", in.Load())
		}
		want(t, w.Accept(t.Context(), i, "Eve", "the slower request's hash"), fault.NotFound)
		s := w.login("bob@example.com").Session
		if role, err := people.RoleIn(t.Context(), w.db, s.UserID, w.acme.ID); err != nil || role != accounts.Developer || s.Person.Name != "Bob" {
			t.Errorf("%s is %s, %v", s.Person.Name, role, err)
		}
		if n := strings.Count(w.actions(), "invitation.accepted"); n != 1 {
			t.Errorf("the log tells %d times of it", n)
		}
	})
}

func TestInvitationsExpireAndCanBeRevoked(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		ada := w.member("ada@example.com", accounts.Owner)
		accept := func(l *people.Link) error {
			_, err := w.AcceptInvitation(t.Context(), l.Token, newcomer, browser)
			return err
		}
		revoked, revokedLink := w.invited("bob@example.com", accounts.Viewer)
		revoke := func(tx *db.Tx) error {
			return w.RevokeInvitation(t.Context(), tx, people.Operator(), w.acme.ID, revoked.ID)
		}
		w.write(revoke)
		want(t, w.try(revoke), fault.InvalidState)
		want(t, accept(revokedLink), fault.NotFound)
		_, replaced := w.invited("bob@example.com", accounts.Viewer)
		_, late := w.invited("bob@example.com", accounts.Viewer)
		want(t, accept(replaced), fault.NotFound)
		w.advance(7 * 24 * time.Hour)
		want(t, accept(late), fault.NotFound)
		found, err := w.Invitations(t.Context(), w.db, w.acme.ID, db.Page{Limit: 2})
		if err != nil || len(found.Rows) != 2 || !found.More || found.Rows[0].Status(w.clock()) != "expired" || found.Rows[1].Status(w.clock()) != "revoked" {
			t.Errorf("%+v, %v", found, err)
		}
		_, _, err = w.invite(people.Operator(), "ada@example.com", accounts.Viewer)
		want(t, err, fault.Conflict)
		// Invitations of a former admin are invalid.
		w.member("dan@example.com", accounts.Owner)
		_, ofAda, err := w.invite(w.login("ada@example.com").Session.Caller(browser), "eve@example.com", accounts.Owner)
		if err != nil {
			t.Fatal(err)
		}
		w.write(func(tx *db.Tx) error {
			return w.ChangeRole(t.Context(), tx, people.Operator(), people.Member{WorkspaceID: w.acme.ID, UserID: ada}, accounts.Viewer)
		})
		want(t, accept(ofAda), fault.NotFound)
	})
}

func TestResentInvitationReplacesTheFirst(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.member("adam@example.com", accounts.Admin)
		admin := w.login("adam@example.com").Session.Caller(browser)
		again := func(by people.Caller, workspaceID, id string) (i *people.Invitation, l *people.Link, err error) {
			err = w.try(func(tx *db.Tx) (err error) {
				i, l, err = w.ResendInvitation(t.Context(), tx, by, workspaceID, id)
				return err
			})
			return i, l, err
		}
		first, old := w.invited("bob@example.com", accounts.Viewer)
		w.advance(8 * 24 * time.Hour)
		second, link, err := again(admin, w.acme.ID, first.ID)
		if err != nil || second.Email != first.Email || second.Role != first.Role || second.ID == first.ID || !second.ExpiresAt.After(w.clock()) {
			t.Fatalf("it became %+v: %v", second, err)
		}
		if _, _, err := w.FindInvitation(t.Context(), w.db, old.Token); !fault.Is(err, fault.NotFound) {
			t.Errorf("the old link still works: %v", err)
		}
		if _, err := w.AcceptInvitation(t.Context(), link.Token, newcomer, browser); err != nil {
			t.Fatal(err)
		}
		_, _, err = again(admin, w.acme.ID, second.ID)
		want(t, err, fault.InvalidState)
		_, _, err = again(admin, w.workspace("other").ID, second.ID)
		want(t, err, fault.NotFound)
		owner, _ := w.invited("eve@example.com", accounts.Owner)
		_, _, err = again(admin, w.acme.ID, owner.ID)
		want(t, err, fault.InsufficientScope)
	})
}

func TestInvitationNeverChangesAPassword(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("bob@example.com", accounts.Owner)
		in := w.login("bob@example.com")
		// The owner of another workspace invites bob, and reads the link.
		other := w.workspace("other")
		i := &people.Invitation{WorkspaceID: other.ID, Email: "bob@example.com", Role: accounts.Viewer}
		var link *people.Link
		w.write(func(tx *db.Tx) (err error) {
			link, err = w.Invite(t.Context(), tx, people.Operator(), i)
			return err
		})
		_, err := w.AcceptInvitation(t.Context(), link.Token, people.NewAccount{Name: "Eve", Password: "the password of eve"}, browser)
		want(t, err, fault.InvalidState)
		want(t, w.Accept(t.Context(), i, "Eve", "a hash that came late"), fault.InvalidState)
		if _, hasAccount, err := w.FindInvitation(t.Context(), w.db, link.Token); err != nil || !hasAccount {
			t.Errorf("hasAccount %t, %v", hasAccount, err)
		}
		w.member("eve@example.com", accounts.Viewer)
		_, err = w.JoinWorkspace(t.Context(), w.login("eve@example.com").Session, link.Token, browser)
		want(t, err, fault.InvalidState)
		token, err := w.JoinWorkspace(t.Context(), in.Session, link.Token, browser)
		if err != nil {
			t.Fatal(err)
		}
		if w.alive(in.Token) || !w.alive(token) {
			t.Error("the token was not replaced")
		}
		_, err = w.JoinWorkspace(t.Context(), in.Session, link.Token, browser)
		want(t, err, fault.NotFound)
		list, err := people.Memberships(t.Context(), w.db, in.Person.ID)
		if err != nil || len(list) != 2 {
			t.Errorf("%v, %v", list, err)
		}
		w.login("bob@example.com")
	})
}

func TestOpenInvitationsAreLimited(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.write(func(tx *db.Tx) error {
			for n := range 100 {
				i := &people.Invitation{WorkspaceID: w.acme.ID, Email: fmt.Sprintf("p%d@example.com", n), Role: accounts.Viewer}
				if _, err := w.Invite(t.Context(), tx, people.Operator(), i); err != nil {
					return err
				}
			}
			return nil
		})
		w.advance(24 * time.Hour)
		_, _, err := w.invite(people.Operator(), "one@example.com", accounts.Viewer)
		want(t, err, fault.LimitReached)
		w.invited("p7@example.com", accounts.Viewer) // replaces the earlier invitation
	})
}

func TestInvitationsPerDayAreLimited(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		var last *people.Invitation
		for n := range 100 {
			i, _ := w.invited(fmt.Sprintf("p%d@example.com", n%7), accounts.Viewer)
			if last = i; n == 0 {
				w.advance(time.Hour)
			}
		}
		refused := func(err error) {
			t.Helper()
			want(t, err, fault.LimitReached)
			f, ok := fault.As(err)
			if !ok || f.RetryAfter != 23*time.Hour || !strings.Contains(f.Message, "Retry after 5 March 05:06:07 UTC") {
				t.Errorf("%v", err)
			}
		}
		_, _, err := w.invite(people.Operator(), "one@example.com", accounts.Viewer)
		refused(err)
		refused(w.try(func(tx *db.Tx) error {
			_, _, err := w.ResendInvitation(t.Context(), tx, people.Operator(), w.acme.ID, last.ID)
			return err
		}))
		w.advance(23 * time.Hour)
		w.invited("one@example.com", accounts.Viewer) // the first is now a day old
		_, _, err = w.invite(people.Operator(), "two@example.com", accounts.Viewer)
		want(t, err, fault.LimitReached)
		// Another workspace has a separate daily limit.
		w.acme = w.workspace("other")
		w.invited("two@example.com", accounts.Viewer)
	})
}

func TestInvitationEmailsToAnAddressAreLimited(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		check := func(i *people.Invitation) error {
			return w.try(func(tx *db.Tx) error { return w.CheckInvitationEmail(t.Context(), tx, i) })
		}
		mailed := func(email string) error {
			i, _ := w.invited(email, accounts.Viewer)
			return check(i)
		}
		if err := mailed("bob@example.com"); err != nil {
			t.Fatal(err)
		}
		w.advance(2 * time.Minute)
		err := mailed("Bob@example.com")
		want(t, err, fault.LimitReached)
		if f, ok := fault.As(err); !ok || f.RetryAfter != 3*time.Minute || !strings.Contains(f.Message, "Retry after 4 March 05:11:07 UTC") {
			t.Errorf("%v", err)
		}
		if err := mailed("cyd@example.com"); err != nil {
			t.Error(err)
		}
		acme := w.acme
		w.acme = w.workspace("other")
		if err := mailed("bob@example.com"); err != nil {
			t.Error(err) // from another workspace
		}
		w.acme = acme
		w.advance(5 * time.Minute)
		if err := mailed("bob@example.com"); err != nil {
			t.Error(err)
		}
	})
}

// An invitation doesn't set the password of a person whom the operator added to
// another workspace and who has none yet.
func TestInvitationSetsNoPasswordOfAMemberOfAnotherWorkspace(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		other := w.workspace("other")
		bob := &accounts.User{Email: "bob@example.com", WorkspaceID: other.ID, Role: accounts.Owner}
		i, link := w.invited("bob@example.com", accounts.Viewer)
		if _, has, err := w.FindInvitation(t.Context(), w.db, link.Token); err != nil || has {
			t.Fatalf("hasAccount %t before there is one, %v", has, err)
		}
		var first *people.Link
		w.write(func(tx *db.Tx) (err error) {
			if err := accounts.CreateUser(t.Context(), tx, bob, w.clock()); err != nil {
				return err
			}
			first, err = w.NewPasswordLink(t.Context(), tx, bob.ID, people.WelcomeLimit)
			return err
		})
		if _, has, err := w.FindInvitation(t.Context(), w.db, link.Token); err != nil || !has {
			t.Errorf("hasAccount %t, %v", has, err)
		}
		_, err := w.AcceptInvitation(t.Context(), link.Token, newcomer, browser)
		want(t, err, fault.InvalidState)
		want(t, w.Accept(t.Context(), i, "Eve", "a hash that came late"), fault.InvalidState)
		// They sign in with the operator's link and then accept.
		if _, err := w.ResetPassword(t.Context(), first.Token, password, browser); err != nil {
			t.Fatal(err)
		}
		if _, err := w.JoinWorkspace(t.Context(), w.login("bob@example.com").Session, link.Token, browser); err != nil {
			t.Error(err)
		}
	})
}
