package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

// oddIDs are project IDs that look like paths.
var oddIDs = []string{"new", "archive", "a..b", "1.0_rc-1", "x.html", strings.Repeat("p", 64)}

func TestProjectsAreManagedByForms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		key, _ := s.Key(t, w, accounts.Test)
		list := b.in(accounts.Test, "projects")
		b.get(t, list).shows(t, "No test projects yet")
		for _, id := range oddIDs {
			page := b.post(t, list, url.Values{"id": {id}, "name": {"The " + id}, "monthly_budget": {"12.5"}}).redirectsTo(t, list+"/"+id)
			b.get(t, page).shows(t, "The "+id, "<code>"+id+"</code>", "12.50 <span class=\"quiet\">not applied in test", "Project created")
			b.get(t, list).shows(t, `href="`+page+`"`)
			chat(t, s, key, id)

			b.post(t, page, url.Values{"name": {"Shop"}, "monthly_budget": {""}, "content_log_opt_out": {"yes"}}).redirectsTo(t, page)
			b.get(t, page).shows(t, "<h1>Shop</h1>", "no limit", `name="content_log_opt_out" value="yes" checked`)
			b.post(t, page+"/archive", nil).redirectsTo(t, page)
			b.get(t, page).shows(t, "archived", page+"/restore").hides(t, page+"/archive")
			s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key, Header: http.Header{"Service-Project": {id}}}).Want(t, 400, "unknown_project")
			b.post(t, page+"/restore", nil).redirectsTo(t, page)
			s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key, Header: http.Header{"Service-Project": {id}}}).Want(t, 200, "")
		}
		s.Eventually(t, func() bool { return strings.Contains(b.get(t, list+"/new").body, "<strong>1</strong> request<") })

		b.post(t, list, url.Values{"id": {"new"}}).rejects(t, http.StatusConflict, "already")
		b.post(t, list, url.Values{"id": {"a/b"}, "name": {"typed before"}}).rejects(t, http.StatusBadRequest, "typed before")
		b.post(t, list, url.Values{"id": {"x"}, "monthly_budget": {"-1"}}).rejects(t, http.StatusBadRequest, "a number of credits")
		b.post(t, list+"/new", url.Values{"name": {" "}}).rejects(t, http.StatusBadRequest, "Enter a name.")
		for _, id := range []string{"unknown", "a%2Fb", "%3Cscript%3E", "tp_live_secret"} {
			b.get(t, list+"/"+id).rejects(t, http.StatusNotFound, "no project").hides(t, "<script>")
			b.post(t, list+"/"+id+"/archive", nil).is(t, http.StatusNotFound)
		}
	})
}

func TestRestoringAProjectRespectsTheLimit(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		s.FillProjects(t, w, accounts.Test, accounts.MaxProjects)
		list := b.in(accounts.Test, "projects")
		b.post(t, list, url.Values{"id": {"more"}}).rejects(t, http.StatusConflict, "archive one")
		b.post(t, list+"/p0/archive", nil).redirectsTo(t, list+"/p0")
		b.post(t, list, url.Values{"id": {"more"}}).redirectsTo(t, list+"/more")
		b.post(t, list+"/p0/restore", nil).rejects(t, http.StatusConflict, "archive one")
	})
}

// TestProjectsBelongToTheirTenant: viewers see no forms, and other workspaces see no
// projects.
func TestProjectsBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "other")
		owner, stranger, viewer, developer := member(t, s, w, accounts.Owner), member(t, s, other, accounts.Owner), member(t, s, w, accounts.Viewer), member(t, s, w, accounts.Developer)
		page := owner.post(t, owner.in(accounts.Live, "projects"), url.Values{"id": {"shop"}, "name": {`<i id="x">`}}).redirectsTo(t, owner.in(accounts.Live, "projects/shop"))
		s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "pinned to it", Scopes: []string{"*"}, Project: "shop"})
		s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "free of it", Scopes: []string{"*"}})
		owner.get(t, page).shows(t, "&lt;i id=", "pinned to it", "/archive").hides(t, `<i id="x">`, "free of it")
		owner.get(t, owner.in(accounts.Live, "projects")).shows(t, "&lt;i id=", "Create project").hides(t, `<i id="x">`)
		owner.get(t, owner.in(accounts.Test, "projects/shop")).rejects(t, http.StatusNotFound, "no project")
		stranger.get(t, stranger.in(accounts.Live, "projects/shop")).rejects(t, http.StatusNotFound, "no project")
		stranger.get(t, page).is(t, http.StatusNotFound)
		for _, b := range []*browser{viewer, developer} {
			b.get(t, b.in(accounts.Live, "projects")).shows(t, "projects/shop").hides(t, "Create project")
			b.get(t, page).shows(t, "shop").hides(t, "/archive", "Save")
			for _, deed := range []string{"projects", "projects/shop", "projects/shop/archive", "projects/shop/restore"} {
				b.post(t, b.in(accounts.Live, deed), url.Values{"id": {"mine"}, "name": {"mine"}}).rejects(t, http.StatusForbidden, "projects:write")
			}
		}
		developer.post(t, developer.in(accounts.Test, "projects"), url.Values{"id": {"mine"}}).redirectsTo(t, developer.in(accounts.Test, "projects/mine"))
	})
}

func TestSpendingOfBudgetsIsShown(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		b.post(t, b.in(accounts.Live, "projects"), url.Values{"id": {"shop"}, "monthly_budget": {"200"}}).is(t, http.StatusSeeOther)
		b.post(t, b.in(accounts.Test, "projects"), url.Values{"id": {"shop"}, "monthly_budget": {"200"}}).is(t, http.StatusSeeOther)
		page, _ := b.createKey(t, accounts.Live, url.Values{"name": {"backend"}, "preset": {"calls"}, "project": {"shop"}, "monthly_budget": {"40"}})
		keyID := page[strings.LastIndex(page, "/")+1:]
		period := s.Clock.Now().UTC().Format("2006-01")
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			for level, account := range map[string]string{"key": keyID, "project": w.ID + "/shop"} {
				if _, err := tx.Exec(t.Context(), "INSERT INTO spend (level, account_id, period, settled, leased) VALUES ($1, $2, $3, 30500000, 0)", level, account, period); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		const ofKey, ofProject = `value="76">76%</meter> <span class="nowrap">30.50 of 40</span>`, `value="15">15%</meter> <span class="nowrap">30.50 of 200</span>`
		b.get(t, b.in(accounts.Live, "keys")).shows(t, ofKey)
		b.get(t, page).shows(t, ofKey)
		b.get(t, b.in(accounts.Live, "projects")).shows(t, ofProject)
		b.get(t, b.in(accounts.Live, "projects/shop")).shows(t, ofProject, ofKey, "are rejected until the month ends")
		b.get(t, b.in(accounts.Test, "projects/shop")).shows(t, "200 <span class=\"quiet\">not applied in test", "Test requests are free, so the budget has no effect").hides(t, "until the month ends", "<meter")
		b.get(t, b.in(accounts.Live, "keys/new")).shows(t, "are rejected until the month ends")
		b.get(t, b.in(accounts.Test, "keys/new")).shows(t, "Test requests are free, so the budget has no effect").hides(t, "until the month ends")
	})
}
