package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/people"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func invitation(email string, role accounts.Role) url.Values {
	return url.Values{"email": {email}, "role": {string(role)}}
}

// roleOf is the person's role in the workspace, or empty.
func roleOf(t testing.TB, s *harness.Server, w *accounts.Workspace, userID string) accounts.Role {
	t.Helper()
	role, _ := people.RoleIn(t.Context(), s.DB, userID, w.ID)
	return role
}

func TestInvitationByMail(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			mails := smtp.Start(t)
			cfg := harness.Config(t, engine)
			withMail(mails)(t, &cfg)
			s := harness.Start(t, cfg, harness.NewClock())
			b := member(t, s, s.Workspace(t, "acme"), accounts.Admin)
			team := b.in(accounts.Test, "team")
			b.post(t, team+"/invitations", invitation("Bob@Example.com", accounts.Developer)).leadsTo(t, team)
			page := b.get(t, team).shows(t, "The invitation to bob@example.com is on its way.", "bob@example.com", "open", "The admin")
			sent := mails.Wait(t, 1)[0]
			link := linkIn(t, sent)
			if !strings.HasPrefix(link, people.InvitationPath+"?token=") || len(sent.To) != 1 || sent.To[0] != "bob@example.com" {
				t.Fatalf("the mail to %v leads to %s", sent.To, link)
			}
			// Nobody but the reader of the mail has the link: not even the page about mails.
			_, token, _ := strings.Cut(link, "token=")
			page.hides(t, token)
			b.get(t, b.in(accounts.Test, "settings")).shows(t, "You are invited to acme", "bob@example.com").hides(t, token)

			// Sent again, the first link is dead.
			again := page.find(t, `action="([^"]+/again)"`)
			for _, path := range []string{again, team + "/invitations"} { // not at once: it is somebody's mailbox
				b.post(t, path, invitation("bob@example.com", accounts.Developer)).refuses(t, http.StatusConflict, "bob@example.com was sent an invitation a moment ago; the next can be made in 5 minutes")
			}
			newBrowser(t, s).get(t, link).is(t, http.StatusOK)
			s.Clock.Turn(6 * time.Minute)
			b.post(t, again, url.Values{}).leadsTo(t, team)
			second := linkIn(t, mails.Wait(t, 2)[1])
			bob := newBrowser(t, s)
			bob.get(t, link).is(t, http.StatusNotFound)
			bob.post(t, second, url.Values{"name": {"Bob"}, "password": {password}}).leadsTo(t, "/dashboard/w/"+b.workspace.ID+"/test/*")
			bob.get(t, team).shows(t, "Bob", "developer", "The admin", "admin@").hides(t, "Invite somebody", "Remove", "Change", "<h2>Invitations</h2>")
			b.get(t, team).shows(t, "accepted", "Bob")
		})
	}
}

func TestInvitationWithoutAMailServer(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		team := b.in(accounts.Live, "team")
		b.post(t, team+"/invitations", invitation("bob@example.com", accounts.Viewer)).leadsTo(t, team)
		page := b.get(t, team).shows(t, "No mail server is set, so send this link to bob@example.com yourself.")
		link := page.find(t, `(/dashboard/invitation\?token=[A-Za-z0-9_-]+)`)
		b.get(t, team).shows(t, "bob@example.com").hides(t, link, "send this link")
		_, token, _ := strings.Cut(link, "token=")
		if strings.Contains(string(s.DumpDatabase(t)), token) {
			t.Error("the link is in the database")
		}
		newBrowser(t, s).get(t, link).is(t, http.StatusOK)
		b.post(t, page.find(t, `action="([^"]+/revoke)"`), url.Values{}).leadsTo(t, team)
		b.get(t, team).shows(t, "revoked").hides(t, "/revoke", "/again")
		newBrowser(t, s).get(t, link).is(t, http.StatusNotFound)

		// One that has expired can be sent again.
		b.post(t, team+"/invitations", invitation("eve@example.com", accounts.Viewer)).leadsTo(t, team)
		s.Clock.Turn(8 * 24 * time.Hour)
		b.signIn(t)
		page = b.get(t, team).shows(t, "expired")
		b.post(t, page.find(t, `action="([^"]+/again)"`), url.Values{}).leadsTo(t, team)
		link = b.get(t, team).shows(t, "send this link to eve@example.com").find(t, `(/dashboard/invitation\?token=[A-Za-z0-9_-]+)`)
		newBrowser(t, s).get(t, link).is(t, http.StatusOK)

		b.post(t, team+"/invitations", invitation("no address", accounts.Viewer)).refuses(t, http.StatusBadRequest, "is not an e-mail address")
		b.post(t, team+"/invitations", invitation("x@example.com", "king")).refuses(t, http.StatusBadRequest, "role must be one of")
		b.post(t, team+"/invitations", invitation(b.person.Email, accounts.Viewer)).refuses(t, http.StatusConflict, "member of this workspace already")
		b.post(t, team+"/invitations/"+ids.New(people.InvitationID)+"/again", url.Values{}).refuses(t, http.StatusNotFound, "no invitation")
		b.post(t, team+"/invitations/inv_nonsense/revoke", url.Values{}).is(t, http.StatusNotFound)
	})
}

func TestNobodyRaisesThemselves(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		folk := map[accounts.Role]*browser{}
		for _, role := range accounts.Roles {
			folk[role] = member(t, s, w, role)
		}
		owner, admin := folk[accounts.Owner], folk[accounts.Admin]
		team := owner.in(accounts.Test, "team")
		change := func(who *browser, whom *browser, to accounts.Role) *answer {
			t.Helper()
			return who.post(t, team+"/members/"+whom.person.ID+"/role", url.Values{"new_role": {string(to)}})
		}
		// An owner's invitation, which an admin can neither take back nor send again.
		owner.post(t, team+"/invitations", invitation("heir@example.com", accounts.Owner)).leadsTo(t, team)
		heir := owner.get(t, team).find(t, `action="([^"]+)/again"`)
		owners := "only an owner makes, changes or removes owners"
		change(admin, admin, accounts.Owner).refuses(t, http.StatusForbidden, owners)
		change(admin, folk[accounts.Viewer], accounts.Owner).refuses(t, http.StatusForbidden, owners)
		change(admin, owner, accounts.Viewer).refuses(t, http.StatusForbidden, owners)
		admin.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).refuses(t, http.StatusForbidden, owners)
		admin.post(t, team+"/invitations", invitation("eve@example.com", accounts.Owner)).refuses(t, http.StatusForbidden, owners)
		admin.post(t, heir+"/again", url.Values{}).refuses(t, http.StatusForbidden, owners)
		admin.post(t, heir+"/revoke", url.Values{}).refuses(t, http.StatusForbidden, owners)
		admin.get(t, team).shows(t, `option value="admin"`).hides(t, `option value="owner"`, owner.person.ID+"/role", owner.person.ID+"/remove", heir)
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			b := folk[role]
			why := "only owners and admins may do this"
			change(b, b, accounts.Admin).refuses(t, http.StatusForbidden, why)
			b.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).refuses(t, http.StatusForbidden, why)
			b.post(t, team+"/invitations", invitation("eve@example.com", accounts.Viewer)).refuses(t, http.StatusForbidden, why)
			b.post(t, heir+"/again", url.Values{}).refuses(t, http.StatusForbidden, why)
			b.post(t, heir+"/revoke", url.Values{}).refuses(t, http.StatusForbidden, why)
			b.get(t, team).shows(t, "owner@").hides(t, `<select`, "Remove", "heir@example.com")
		}
		for role, b := range folk {
			if got := roleOf(t, s, w, b.person.ID); got != role {
				t.Errorf("the %s is %q now", role, got)
			}
		}

		// The last owner stays, in every way.
		last := "last owner"
		change(owner, owner, accounts.Admin).refuses(t, http.StatusConflict, last).showsToo(t, `<option value="developer" selected>`)
		owner.post(t, team+"/leave", url.Values{}).refuses(t, http.StatusConflict, last)
		owner.post(t, team+"/members/"+owner.person.ID+"/remove", url.Values{}).refuses(t, http.StatusConflict, "leave the workspace")
		change(owner, admin, accounts.Owner).leadsTo(t, team)
		admin.get(t, team).leadsTo(t, "/dashboard/login*") // whose rights have changed signs in again
		admin.signIn(t)
		change(owner, owner, accounts.Viewer).leadsTo(t, "/dashboard/login")
		owner.get(t, "/dashboard/login").shows(t, "You are now viewer of acme")
		owner.signIn(t)
		change(owner, owner, accounts.Owner).is(t, http.StatusForbidden)
		change(admin, admin, accounts.Viewer).refuses(t, http.StatusConflict, last)
	})
}

func TestMembersGo(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "globex")
		owner, viewer, developer := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Viewer), member(t, s, w, accounts.Developer)
		neighbour := member(t, s, other, accounts.Owner)
		team := owner.in(accounts.Test, "team")
		owner.post(t, team+"/members/"+viewer.person.ID+"/remove", url.Values{}).leadsTo(t, team)
		viewer.get(t, team).leadsTo(t, "/dashboard/login*")
		viewer.post(t, "/dashboard/login", url.Values{"email": {viewer.person.Email}, "password": {password}}).refuses(t, http.StatusUnauthorized, "not a member of any workspace")
		developer.post(t, team+"/leave", url.Values{}).leadsTo(t, "/dashboard/login")
		developer.get(t, "/dashboard/login").shows(t, "You have left acme")
		if roleOf(t, s, w, viewer.person.ID) != "" || roleOf(t, s, w, developer.person.ID) != "" {
			t.Error("somebody is still a member")
		}
		// Nobody of another workspace is touched, or seen.
		owner.post(t, team+"/members/"+neighbour.person.ID+"/remove", url.Values{}).is(t, http.StatusNotFound)
		owner.post(t, team+"/members/"+neighbour.person.ID+"/role", url.Values{"new_role": {"viewer"}}).is(t, http.StatusNotFound)
		owner.get(t, team).hides(t, neighbour.person.Email)
		neighbour.post(t, team+"/leave", url.Values{}).is(t, http.StatusNotFound)
		if roleOf(t, s, other, neighbour.person.ID) != accounts.Owner {
			t.Error("the neighbour is not the owner any more")
		}
	})
}

func TestTeamShowsSecondFactorsAndPages(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		team := b.in(accounts.Test, "team")
		b.get(t, team).shows(t, ">none<").hides(t, ">authenticator app<", ">passkey<")
		b.setUpApp(t)
		b.get(t, team).shows(t, ">authenticator app<").hides(t, ">none<")
		// Who lacks one is not for everybody to know.
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
