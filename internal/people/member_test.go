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

func (w *fixture) changeRole(by people.Caller, userID string, to accounts.Role) error {
	return w.try(func(tx *db.Tx) error {
		return w.ChangeRole(w.t.Context(), tx, by, people.Member{WorkspaceID: w.acme.ID, UserID: userID}, to)
	})
}

func (w *fixture) remove(by people.Caller, userID string) error {
	return w.try(func(tx *db.Tx) error { return w.RemoveMember(w.t.Context(), tx, by, w.acme.ID, userID) })
}

func TestMembersCannotExceedTheirRole(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		owner := w.member("own@example.com", accounts.Owner)
		admin := w.member("adm@example.com", accounts.Admin)
		dev := w.member("dev@example.com", accounts.Developer)
		viewer := w.member("vie@example.com", accounts.Viewer)
		as := func(email string) people.Caller { return w.login(email).Session.Caller(browser) }
		ofOwner, _ := w.invited("x@example.com", accounts.Owner)
		ofAdmin, _ := w.invited("y@example.com", accounts.Admin)
		revoke := func(by people.Caller, id string) error {
			return w.try(func(tx *db.Tx) error { return w.RevokeInvitation(t.Context(), tx, by, w.acme.ID, id) })
		}
		invite := func(by people.Caller, role accounts.Role) error {
			_, _, err := w.invite(by, "new@example.com", role)
			return err
		}
		for what, err := range map[string]error{
			"developer makes an admin":            w.changeRole(as("dev@example.com"), viewer, accounts.Admin),
			"developer makes themselves admin":    w.changeRole(as("dev@example.com"), dev, accounts.Admin),
			"developer invites":                   invite(as("dev@example.com"), accounts.Viewer),
			"developer removes a viewer":          w.remove(as("dev@example.com"), viewer),
			"developer revokes an invitation":     revoke(as("dev@example.com"), ofAdmin.ID),
			"viewer makes themselves owner":       w.changeRole(as("vie@example.com"), viewer, accounts.Owner),
			"admin makes themselves owner":        w.changeRole(as("adm@example.com"), admin, accounts.Owner),
			"admin makes an owner":                w.changeRole(as("adm@example.com"), dev, accounts.Owner),
			"admin unmakes an owner":              w.changeRole(as("adm@example.com"), owner, accounts.Viewer),
			"admin removes an owner":              w.remove(as("adm@example.com"), owner),
			"admin invites an owner":              invite(as("adm@example.com"), accounts.Owner),
			"admin revokes an owner's invitation": revoke(as("adm@example.com"), ofOwner.ID),
		} {
			if !fault.Is(err, fault.InsufficientScope) {
				t.Errorf("%s: %v", what, err)
			}
		}
		want(t, w.changeRole(people.Caller{}, viewer, accounts.Admin), fault.NotFound)
		want(t, w.remove(people.Caller{}, viewer), fault.NotFound)
		want(t, invite(people.Caller{}, accounts.Viewer), fault.NotFound)
		want(t, w.changeRole(as("own@example.com"), viewer, "king"), fault.InvalidParameter)

		for what, err := range map[string]error{
			"admin makes a developer an admin": w.changeRole(as("adm@example.com"), dev, accounts.Admin),
			"admin invites an admin":           invite(as("adm@example.com"), accounts.Admin),
			"admin removes a viewer":           w.remove(as("adm@example.com"), viewer),
			"admin revokes an invitation":      revoke(as("adm@example.com"), ofAdmin.ID),
			"owner makes an owner":             w.changeRole(as("own@example.com"), admin, accounts.Owner),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestNonMembersDoNotLearnThatAWorkspaceExists(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		ada := w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		acme := w.acme
		w.acme = w.workspace("other")
		by := in.Session.Caller(browser)
		i, _ := w.invited("bob@example.com", accounts.Viewer)
		_, _, err := w.invite(by, "eve@example.com", accounts.Viewer)
		want(t, err, fault.NotFound)
		want(t, w.changeRole(by, ada, accounts.Owner), fault.NotFound)
		want(t, w.remove(by, ada), fault.NotFound)
		want(t, w.try(func(tx *db.Tx) error { return w.RevokeInvitation(t.Context(), tx, by, w.acme.ID, i.ID) }), fault.NotFound)
		want(t, w.try(func(tx *db.Tx) error { return w.RevokeInvitation(t.Context(), tx, by, acme.ID, i.ID) }), fault.NotFound)
		_, err = people.RoleIn(t.Context(), w.db, ada, w.acme.ID)
		want(t, err, fault.NotFound)
	})
}

func TestSessionsEndWhenAMemberLeavesOrChangesRole(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		bob := w.member("bob@example.com", accounts.Viewer)
		ada := w.login("ada@example.com")
		in := w.login("bob@example.com")
		if err := w.changeRole(ada.Session.Caller(browser), bob, accounts.Developer); err != nil {
			t.Fatal(err)
		}
		if w.alive(in.Token) {
			t.Error("a session goes on under another role")
		}
		in = w.login("bob@example.com")
		if err := w.remove(in.Session.Caller(browser), bob); err != nil { // any member may leave
			t.Fatal(err)
		}
		if w.alive(in.Token) || !w.alive(ada.Token) {
			t.Error("a session outlives the membership, or another's ended")
		}
		want(t, w.remove(ada.Session.Caller(browser), bob), fault.NotFound)
		if !strings.Contains(w.actions(), "member.role_changed") || !strings.HasSuffix(w.actions(), "member.removed") {
			t.Errorf("the log is %s", w.actions())
		}
	})
}

func TestLastOwnerCannotBeRemoved(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		owners := []string{w.member("ada@example.com", accounts.Owner), w.member("bob@example.com", accounts.Owner), w.member("cyd@example.com", accounts.Owner)}
		var refused atomic.Int64
		var wg sync.WaitGroup
		for n, id := range owners {
			wg.Go(func() {
				err := w.remove(people.Operator(), id)
				if n == 0 {
					err = w.changeRole(people.Operator(), id, accounts.Admin)
				}
				if fault.Is(err, fault.InvalidState) {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		users, err := accounts.ListUsers(t.Context(), w.db, w.acme.ID)
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, u := range users {
			if u.Role == accounts.Owner {
				left++
			}
		}
		if left != 1 || refused.Load() == 0 {
			t.Errorf("%d owners are left, %d changes were refused", left, refused.Load())
		}
	})
}

func TestPurgeDeletesOnlyExpiredRows(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		rows := func() (n int64) {
			for _, table := range []string{"sessions", "half_logins", "login_failures", "ceremonies", "one_time_links", "invitations"} {
				var count int64
				if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&count); err != nil {
					t.Fatal(err)
				}
				n += count
			}
			return n
		}
		in := w.login("ada@example.com")
		w.withApp(in.Session)
		w.half("ada@example.com")
		w.invited("bob@example.com", accounts.Viewer)
		w.requestReset("ada@example.com")
		_, _ = w.Login(t.Context(), "ada@example.com", "wrong password", "", browser)
		purge := func(limit int64) (n int64) {
			w.write(func(tx *db.Tx) (err error) {
				n, err = w.Purge(t.Context(), tx, limit)
				return err
			})
			return n
		}
		if n := purge(100); n != 0 || !w.alive(in.Token) {
			t.Errorf("%d rows went that were needed", n)
		}
		all := rows()
		w.advance(40 * 24 * time.Hour)
		if n := purge(2); n != 2 {
			t.Errorf("%d rows instead of two", n)
		}
		if n := purge(100); n != all-2 || rows() != 0 {
			t.Errorf("%d of %d rows went, %d are left", n+2, all, rows())
		}
	})
}
