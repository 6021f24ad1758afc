package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/people"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func invitation(email string, role accounts.Role) url.Values {
	return url.Values{"email": {email}, "role": {string(role)}}
}

// roleOf returns the person's role in the workspace, or "".
func roleOf(t testing.TB, s *harness.Server, w *accounts.Workspace, userID string) accounts.Role {
	t.Helper()
	role, _ := people.RoleIn(t.Context(), s.DB, userID, w.ID)
	return role
}

func TestInvitationIsSentByEmail(t *testing.T) {
	t.Parallel()
	mails := smtp.Start(t)
	cfg := harness.Config(t, "sqlite")
	withMail(mails)(t, &cfg)
	s := harness.Start(t, cfg, harness.NewClock())
	b := member(t, s, s.Workspace(t, "acme"), accounts.Admin)
	team := b.in(accounts.Test, "team")
	b.post(t, team+"/invitations", invitation("Bob@Example.com", accounts.Developer)).redirectsTo(t, team)
	page := b.get(t, team).shows(t, "Invitation sent to bob@example.com.", "bob@example.com", "pending", "The admin")
	sent := mails.Wait(t, 1)[0]
	link := linkIn(t, sent)
	if !strings.HasPrefix(link, people.InvitationPath+"?token=") || len(sent.To) != 1 || sent.To[0] != "bob@example.com" {
		t.Fatalf("the mail to %v leads to %s", sent.To, link)
	}
	// Only the email has the link, not the page about emails.
	_, token, _ := strings.Cut(link, "token=")
	page.hides(t, token)
	b.get(t, b.in(accounts.Test, "settings")).shows(t, "You are invited to acme", "bob@example.com").hides(t, token)

	// Sending again invalidates the first link.
	again := page.find(t, `action="([^"]+/again)"`)
	for _, path := range []string{again, team + "/invitations"} { // not immediately, to protect the recipient's mailbox
		b.post(t, path, invitation("bob@example.com", accounts.Developer)).rejects(t, http.StatusConflict, "bob@example.com received an invitation recently. Retry after ")
	}
	newBrowser(t, s).get(t, link).is(t, http.StatusOK)
	s.Clock.Turn(6 * time.Minute)
	b.post(t, again, url.Values{}).redirectsTo(t, team)
	second := linkIn(t, mails.Wait(t, 2)[1])
	bob := newBrowser(t, s)
	bob.get(t, link).is(t, http.StatusNotFound)
	bob.post(t, second, url.Values{"name": {"Bob"}, "password": {password}}).redirectsTo(t, "/dashboard/w/"+b.workspace.ID+"/test/*")
	bob.get(t, team).shows(t, "Bob", "developer", "The admin", "admin@").hides(t, "Invite someone", "Remove", "Change", "<h2>Invitations</h2>")
	b.get(t, team).shows(t, "accepted", "Bob")
}

func TestInvitationLinkIsShownWithoutMailServer(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		team := b.in(accounts.Live, "team")
		b.post(t, team+"/invitations", invitation("bob@example.com", accounts.Viewer)).redirectsTo(t, team)
		page := b.get(t, team).shows(t, "No mail server is configured. Send this link to bob@example.com yourself.")
		link := page.find(t, `(/dashboard/invitation\?token=[A-Za-z0-9_-]+)`)
		b.get(t, team).shows(t, "bob@example.com").hides(t, link, "Send this link")
		_, token, _ := strings.Cut(link, "token=")
		if strings.Contains(string(s.DumpDatabase(t)), token) {
			t.Error("the link is in the database")
		}
		newBrowser(t, s).get(t, link).is(t, http.StatusOK)
		b.post(t, page.find(t, `action="([^"]+/revoke)"`), url.Values{}).redirectsTo(t, team)
		b.get(t, team).shows(t, "revoked").hides(t, "/revoke", "/again")
		newBrowser(t, s).get(t, link).is(t, http.StatusNotFound)

		// An expired invitation can be sent again.
		b.post(t, team+"/invitations", invitation("eve@example.com", accounts.Viewer)).redirectsTo(t, team)
		s.Clock.Turn(8 * 24 * time.Hour)
		b.signIn(t)
		page = b.get(t, team).shows(t, "expired")
		b.post(t, page.find(t, `action="([^"]+/again)"`), url.Values{}).redirectsTo(t, team)
		link = b.get(t, team).shows(t, "Send this link to eve@example.com").find(t, `(/dashboard/invitation\?token=[A-Za-z0-9_-]+)`)
		newBrowser(t, s).get(t, link).is(t, http.StatusOK)

		b.post(t, team+"/invitations", invitation("no address", accounts.Viewer)).rejects(t, http.StatusBadRequest, "is not an email address")
		b.post(t, team+"/invitations", invitation("x@example.com", "king")).rejects(t, http.StatusBadRequest, "role must be one of")
		b.post(t, team+"/invitations", invitation(b.person.Email, accounts.Viewer)).rejects(t, http.StatusConflict, "already a member of this workspace")
		b.post(t, team+"/invitations/"+ids.New(people.InvitationID)+"/again", url.Values{}).rejects(t, http.StatusNotFound, "no invitation")
		b.post(t, team+"/invitations/inv_nonsense/revoke", url.Values{}).is(t, http.StatusNotFound)
	})
}

func TestMembersCannotRaiseTheirRole(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		members := map[accounts.Role]*browser{}
		for _, role := range accounts.Roles {
			members[role] = member(t, s, w, role)
		}
		owner, admin := members[accounts.Owner], members[accounts.Admin]
		team := owner.in(accounts.Test, "team")
		change := func(who *browser, whom *browser, to accounts.Role) *response {
			t.Helper()
			return who.post(t, team+"/members/"+whom.person.ID+"/role", url.Values{"new_role": {string(to)}})
		}
		// An admin can neither revoke nor resend an owner's invitation.
		owner.post(t, team+"/invitations", invitation("heir@example.com", accounts.Owner)).redirectsTo(t, team)
		heir := owner.get(t, team).find(t, `action="([^"]+)/again"`)
		owners := "Only owners can add, change or remove owners"
		change(admin, admin, accounts.Owner).rejects(t, http.StatusForbidden, owners)
		change(admin, members[accounts.Viewer], accounts.Owner).rejects(t, http.StatusForbidden, owners)
		change(admin, owner, accounts.Viewer).rejects(t, http.StatusForbidden, owners)
		admin.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).rejects(t, http.StatusForbidden, owners)
		admin.post(t, team+"/invitations", invitation("eve@example.com", accounts.Owner)).rejects(t, http.StatusForbidden, owners)
		admin.post(t, heir+"/again", url.Values{}).rejects(t, http.StatusForbidden, owners)
		admin.post(t, heir+"/revoke", url.Values{}).rejects(t, http.StatusForbidden, owners)
		admin.get(t, team).shows(t, `option value="admin"`).hides(t, `option value="owner"`, owner.person.ID+"/role", owner.person.ID+"/remove", heir)
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			b := members[role]
			why := "Only owners and admins can do this"
			change(b, b, accounts.Admin).rejects(t, http.StatusForbidden, why)
			b.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).rejects(t, http.StatusForbidden, why)
			b.post(t, team+"/invitations", invitation("eve@example.com", accounts.Viewer)).rejects(t, http.StatusForbidden, why)
			b.post(t, heir+"/again", url.Values{}).rejects(t, http.StatusForbidden, why)
			b.post(t, heir+"/revoke", url.Values{}).rejects(t, http.StatusForbidden, why)
			b.get(t, team).shows(t, "owner@").hides(t, `<select`, "Remove", "heir@example.com")
		}
		for role, b := range members {
			if got := roleOf(t, s, w, b.person.ID); got != role {
				t.Errorf("the %s is %q now", role, got)
			}
		}

		// The last owner can't be removed or demoted.
		last := "last owner"
		change(owner, owner, accounts.Admin).rejects(t, http.StatusConflict, last).contains(t, `<option value="developer" selected>`)
		owner.post(t, team+"/leave", url.Values{}).rejects(t, http.StatusConflict, last)
		owner.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).rejects(t, http.StatusConflict, "leave the workspace")
		change(owner, admin, accounts.Owner).redirectsTo(t, team)
		admin.get(t, team).redirectsTo(t, "/dashboard/login*") // people whose rights changed sign in again
		admin.signIn(t)
		change(owner, owner, accounts.Viewer).redirectsTo(t, "/dashboard/login")
		owner.get(t, "/dashboard/login").shows(t, "You are now viewer of acme")
		owner.signIn(t)
		change(owner, owner, accounts.Owner).is(t, http.StatusForbidden)
		change(admin, admin, accounts.Viewer).rejects(t, http.StatusConflict, last)
	})
}

func TestRemovedMembersLoseAccess(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "globex")
		owner, viewer, developer := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Viewer), member(t, s, w, accounts.Developer)
		otherOwner := member(t, s, other, accounts.Owner)
		team := owner.in(accounts.Test, "team")
		owner.post(t, team+"/members/"+viewer.person.ID+"/remove", url.Values{}).redirectsTo(t, team)
		viewer.get(t, team).redirectsTo(t, "/dashboard/login*")
		viewer.post(t, "/dashboard/login", url.Values{"email": {viewer.person.Email}, "password": {password}}).rejects(t, http.StatusUnauthorized, "not a member of any workspace")
		developer.post(t, team+"/leave", url.Values{}).redirectsTo(t, "/dashboard/login")
		developer.get(t, "/dashboard/login").shows(t, "You have left acme")
		if roleOf(t, s, w, viewer.person.ID) != "" || roleOf(t, s, w, developer.person.ID) != "" {
			t.Error("somebody is still a member")
		}
		// Members of other workspaces are neither changed nor shown.
		owner.post(t, team+"/members/"+otherOwner.person.ID+"/remove", url.Values{}).is(t, http.StatusNotFound)
		owner.post(t, team+"/members/"+otherOwner.person.ID+"/role", url.Values{"new_role": {"viewer"}}).is(t, http.StatusNotFound)
		owner.get(t, team).hides(t, otherOwner.person.Email)
		otherOwner.post(t, team+"/leave", url.Values{}).is(t, http.StatusNotFound)
		if roleOf(t, s, other, otherOwner.person.ID) != accounts.Owner {
			t.Error("the otherOwner is not the owner any more")
		}
	})
}

func TestTeamIsPagedAndShowsSecondFactorsToManagers(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		team := b.in(accounts.Test, "team")
		b.get(t, team).shows(t, ">none<").hides(t, ">authenticator app<", ">passkey<")
		b.setUpApp(t)
		b.get(t, team).shows(t, ">authenticator app<").hides(t, ">none<")
		// Only managers see who has no second factor.
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			member(t, s, w, role).get(t, team).shows(t, b.person.Email).hides(t, "Second factor", ">authenticator app<", ">passkey<", ">none<")
		}
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			for i := range 60 {
				u := &accounts.User{Email: "p" + ids.New("")[20:] + "@example.com", Name: `<script>alert(1)</script>`, WorkspaceID: w.ID, Role: accounts.Viewer}
				if i == 0 {
					u.Email, u.Name = "oldest@example.com", ""
				}
				if err := accounts.CreateUser(t.Context(), tx, u, s.Clock.Now()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		first := b.get(t, team).harmless(t).small(t).hides(t, "oldest@example.com")
		b.get(t, strings.ReplaceAll(first.find(t, `href="([^"]+)" rel="next"`), "&amp;", "&")).shows(t, "oldest@example.com", b.person.Email, "Newest")
	})
}
