package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

// inProject sends a read request in a project.
func inProject(key, project string) harness.Request {
	r := models(key)
	r.Header = http.Header{"Service-Project": {project}}
	return r
}

// workIn requests a model in a project, which creates the project.
func workIn(key, project string) harness.Request {
	return harness.Request{Method: "POST", Path: "/v1/embeddings", Key: key, Body: map[string]any{"model": "text-embedding-3-small", "input": "hi"},
		Header: http.Header{"Service-Project": {project}}}
}

func TestProjectIsCreatedOnFirstUse(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		live, _ := s.Key(t, w, accounts.Live)
		get := func(key, id string) *harness.Response {
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects/" + id, Key: key})
		}
		nowhere := inProject(key, "web")
		nowhere.Path = "/v1/nothing"
		s.Do(t, nowhere).Want(t, 404, "not_found")
		get(key, "web").Want(t, 404, "not_found")
		s.Do(t, inProject(key, "web")).Want(t, 200, "")
		get(key, "web").Want(t, 404, "not_found")
		s.Do(t, workIn(key, "web")).Want(t, 200, "")
		get(key, "web").Want(t, 200, "")
		get(live, "web").Want(t, 404, "not_found") // projects are per environment
		for _, bad := range []string{"-x", ".x", "a b", strings.Repeat("a", 65), "ä", "a/b"} {
			r := s.Do(t, inProject(key, bad)).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "Service-Project" {
				t.Errorf("%q: param %q", bad, r.Text("error.param"))
			}
		}
		audit := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?project=web", Key: key}).Want(t, 200, "")
		if n := len(audit.At("data").([]any)); n != 3 {
			t.Errorf("%d requests are attributed to the project, want 3", n)
		}
	})
}

func TestStrictWorkspaceAndTokensCreateNoProjects(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		token := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		s.Do(t, inProject(token, "web")).Want(t, 400, "unknown_project")
		s.MakeStrict(t, w)
		s.Do(t, inProject(key, "web")).Want(t, 400, "unknown_project")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": "web", "monthly_budget": 5}}).Want(t, 200, "")
		s.Do(t, inProject(key, "web")).Want(t, 200, "")
		s.Do(t, inProject(token, "web")).Want(t, 200, "")
	})
}

func TestArchivedProjectIsRejectedUntilRestored(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		s.Do(t, workIn(key, "web")).Want(t, 200, "")
		at := func(method string, body any) *harness.Response {
			return s.Do(t, harness.Request{Method: method, Path: "/v1/projects/web", Key: key, Body: body})
		}
		if r := at("DELETE", nil).Want(t, 200, ""); r.Text("status") != "archived" {
			t.Errorf("%s", r.Body)
		}
		s.Do(t, inProject(key, "web")).Want(t, 400, "unknown_project")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": "web"}}).Want(t, 409, "invalid_state")
		at("PATCH", map[string]any{"monthly_budget": 7, "status": "archived"}).Want(t, 200, "")
		s.Do(t, inProject(key, "web")).Want(t, 400, "unknown_project")
		at("PATCH", map[string]any{}).Want(t, 200, "")
		s.Do(t, inProject(key, "web")).Want(t, 200, "")
		at("PATCH", map[string]any{"status": "gone"}).Want(t, 400, "invalid_parameter")
	})
}

func TestPinnedKeyStaysInItsProject(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		pinned := s.Do(t, newKey(admin, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "web"})).Want(t, 200, "").Text("value")
		s.Do(t, models(pinned)).Want(t, 200, "")
		s.Do(t, inProject(pinned, "web")).Want(t, 200, "")
		s.Do(t, inProject(pinned, "app")).Want(t, 403, "project_not_allowed")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects/app", Key: pinned}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/projects/web", Key: pinned, Body: map[string]any{"monthly_budget": nil}}).Want(t, 403, "project_not_allowed")
		token := s.Do(t, mint(pinned, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		s.Do(t, inProject(token, "app")).Want(t, 403, "project_not_allowed")
	})
}

func TestErrorsOfPinnedKeysDoNotRevealOtherProjects(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		pinned := s.Do(t, newKey(admin, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "web"})).Want(t, 200, "").Text("value")
		s.Do(t, workIn(admin, "app")).Want(t, 200, "")
		s.Do(t, workIn(admin, "old")).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/projects/old", Key: admin}).Want(t, 200, "")
		s.MakeStrict(t, w)
		own := s.Do(t, newKey(pinned, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "web"})).Want(t, 200, "").Text("id")
		for _, project := range []string{"app", "old", "unknown"} {
			s.Do(t, newKey(pinned, map[string]any{"name": "n", "scopes": []string{"*"}, "project": project})).Want(t, 403, "project_not_allowed")
			s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + own, Key: pinned, Body: map[string]any{"project": project}}).Want(t, 403, "project_not_allowed")
		}
	})
}

func TestAdminLogShowsWhetherAProjectIsArchived(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: admin, Body: map[string]any{"id": "web"}}).Want(t, 200, "")
		for _, status := range []string{"archived", "active"} {
			s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/projects/web", Key: admin, Body: map[string]any{"status": status}}).Want(t, 200, "")
			log := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions?limit=1", Key: admin}).Want(t, 200, "")
			if log.Text("data.0.action") != "project.updated" || log.Text("data.0.detail.status") != status {
				t.Errorf("after %s the log has %s", status, log.Body)
			}
		}
	})
}

func TestProjectsPerWorkspaceAreLimited(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		s.FillProjects(t, w, accounts.Test, accounts.MaxProjects-1)
		create := func(id string) *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": id}})
		}
		create("last").Want(t, 200, "")
		create("more").Want(t, 409, "limit_reached")
		s.Do(t, workIn(key, "more")).Want(t, 409, "limit_reached")
		s.Do(t, inProject(key, "last")).Want(t, 200, "")
	})
}

func TestArchivedProjectFreesItsSlot(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		s.FillProjects(t, w, accounts.Test, accounts.MaxProjects)
		on := func(method, id string, body any) *harness.Response {
			return s.Do(t, harness.Request{Method: method, Path: "/v1/projects/" + id, Key: key, Body: body})
		}
		s.Do(t, workIn(key, "more")).Want(t, 409, "limit_reached")
		on("DELETE", "p0", nil).Want(t, 200, "")
		s.Do(t, workIn(key, "more")).Want(t, 200, "")

		on("PATCH", "p0", map[string]any{}).Want(t, 409, "limit_reached")
		on("PATCH", "p0", map[string]any{"name": "old", "status": "archived"}).Want(t, 200, "")
		on("PATCH", "p1", map[string]any{"name": "in use"}).Want(t, 200, "")
		on("DELETE", "more", nil).Want(t, 200, "")
		on("PATCH", "p0", map[string]any{}).Want(t, 200, "")
		s.Do(t, inProject(key, "p0")).Want(t, 200, "")
	})
}

func TestProjectWithAnOutdatedNameStaysUsable(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		_, keyID := s.Key(t, w, accounts.Test)
		s.Do(t, workIn(admin, "web")).Want(t, 200, "")
		const odd = "\u009b31mRED\u202e"
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), "UPDATE keys SET name = $1 WHERE id = $2", odd, keyID); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "UPDATE projects SET name = $1 WHERE id = 'web'", odd)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + keyID, Key: admin, Body: map[string]any{"scopes": []string{"models:read"}}}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/projects/web", Key: admin}).Want(t, 200, "")
		for _, path := range []string{"/v1/keys/" + keyID, "/v1/projects/web"} {
			r := s.Do(t, harness.Request{Method: "PATCH", Path: path, Key: admin, Body: map[string]any{"name": odd + "!"}}).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "name" {
				t.Errorf("%s", r.Body)
			}
		}
	})
}

func TestProjectListPages(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		s.FillProjects(t, w, accounts.Test, 5) // with the same creation time, so the ID decides
		seen := map[string]bool{}
		after := ""
		for range 3 {
			r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects?limit=2" + after, Key: key}).Want(t, 200, "")
			for _, p := range r.At("data").([]any) {
				seen[fmt.Sprint(p.(map[string]any)["id"])] = true
			}
			after = "&after=" + r.Text("last_id")
		}
		if len(seen) != 5 {
			t.Errorf("three pages of two showed %d of 5 projects", len(seen))
		}
	})
}
