package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestWorkspaceIsRenamed(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		s.Workspace(t, "taken")
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		settings := b.in(accounts.Test, "settings")
		b.post(t, settings, url.Values{"name": {""}, "rotation_grace": {"?"}}).is(t, http.StatusBadRequest).find(t, `id="error-name">Enter a name.<(?s:.*)id="error-rotation_grace"`)
		b.post(t, settings, url.Values{"name": {"taken"}, "rotation_grace": {"24"}}).is(t, http.StatusConflict).find(t, `id="error-name">A workspace named .*taken.* already exists.<`)
		b.post(t, settings, url.Values{"name": {"Acme Inc"}, "rotation_grace": {"24"}}).redirectsTo(t, settings)
		b.get(t, settings).shows(t, `value="Acme Inc"`, "· Acme Inc ·")
		b.get(t, b.in(accounts.Test, "log")).shows(t, "Acme Inc")
	})
}

func TestOnlyOwnerIsNotOfferedToLeave(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		team := b.in(accounts.Test, "team")
		b.get(t, team).shows(t, "only owner").hides(t, "team/leave", `name="new_role"`)
		addMember(t, s, w, "second@example.com", accounts.Owner)
		b.get(t, team).shows(t, "team/leave", `name="new_role"`).hides(t, "only owner")
	})
}

func TestNewInvitationEndsInSevenDays(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		team := b.in(accounts.Test, "team")
		b.post(t, team+"/invitations", invitation("bob@example.com", accounts.Viewer)).redirectsTo(t, team)
		s.Clock.Turn(1)
		b.get(t, team).find(t, `>in 7 days</time>`)
	})
}

func TestTableHeadersHaveText(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		empty := regexp.MustCompile(`<th[^>]*></th>`)
		for _, page := range []string{"/dashboard/account", b.in(accounts.Test, "team"), b.in(accounts.Test, "settings"), b.in(accounts.Test, "security"), b.in(accounts.Test, "keys")} {
			if m := empty.FindString(b.get(t, page).is(t, http.StatusOK).body); m != "" {
				t.Errorf("%s has the empty header %s", page, m)
			}
		}
	})
}

func TestNewEndpointGetsAllEventsByDefault(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.get(t, b.in(accounts.Test, "webhooks/new")).shows(t, `name="events" value="*" checked`)
	})
}

func TestEditConflictShowsWhatWasTyped(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		settings := b.in(accounts.Test, "settings")
		seen := b.get(t, settings).find(t, `name="seen" value="([^"]+)"`)
		b.post(t, settings, url.Values{"rotation_grace": {"12"}}).redirectsTo(t, settings)
		page := b.post(t, settings, url.Values{"seen": {seen}, "rotation_grace": {"36"}, "default_project_budget": {"17"}}).is(t, http.StatusConflict)
		page.find(t, `<dt>The rotation grace</dt><dd class="typed">36</dd>`)
		page.find(t, `<dd class="typed">17</dd>`)
		page.hides(t, `value="36"`)
	})
}
