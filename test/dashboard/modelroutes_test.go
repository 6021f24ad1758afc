package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestRoutesAreManagedByForms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		key, _ := s.Key(t, w, accounts.Test)
		list := b.in(accounts.Test, "routes")
		b.get(t, list).shows(t, "No test routes yet")
		b.post(t, list, url.Values{"name": {"support"}, "models": {"gpt-4o-mini nothing"}, "strategy": {"order"}}).rejects(t, http.StatusNotFound, "nothing")
		b.post(t, list, url.Values{"name": {"support"}, "models": {"gpt-4o-mini"}, "strategy": {"order"}, "weights": {"two"}}).rejects(t, http.StatusBadRequest, "whole numbers")
		b.post(t, list, url.Values{"name": {"support"}, "models": {"gpt-4o-mini\r\ngpt-4o"}, "strategy": {"price"}, "weights": {"1, 2"}, "timeout_ms": {"5000"}}).redirectsTo(t, list)
		id := b.get(t, list).shows(t, "Route created.", "gpt-4o-mini").find(t, `data-row="(route_[^"]+)"`)
		page := b.get(t, list+"/"+id).shows(t, "route/support", "price, weights 1 2", "5000 ms")
		chatWith := func(status int, code string) {
			t.Helper()
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key,
				Body: map[string]any{"model": "route/support", "messages": []map[string]string{{"role": "user", "content": "hi"}}}}).Want(t, status, code)
		}
		chatWith(200, "")
		seen := page.find(t, `name="seen" value="([^"]+)"`)
		change := url.Values{"name": {"support"}, "models": {"gpt-4o"}, "strategy": {"order"}, "seen": {seen}}
		b.post(t, list+"/"+id, change).redirectsTo(t, list+"/"+id)
		change.Set("models", "gpt-4.1")
		b.post(t, list+"/"+id, change).rejects(t, http.StatusConflict, "Someone changed this")
		member(t, s, w, accounts.Viewer).get(t, list).shows(t, "support").hides(t, "Create route")
		b.post(t, list+"/"+id+"/delete", nil).redirectsTo(t, list)
		chatWith(404, "model_not_found")
	})
}

func TestFormsLimitKeysAndProjectsToRoutes(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		b.post(t, b.in(accounts.Test, "projects"), url.Values{"id": {"red"}}).is(t, http.StatusSeeOther)
		for _, project := range []string{"", "red"} {
			b.post(t, b.in(accounts.Test, "routes"), url.Values{"name": {"own" + project}, "models": {"gpt-4o-mini"}, "strategy": {"order"}, "project": {project}}).is(t, http.StatusSeeOther)
		}
		b.get(t, b.in(accounts.Test, "keys/new")).contains(t, `<option value="route/own">`)
		unknown := [2]string{"allowed_models", "Unknown route &#34;route/ownred&#34; in allowed_models. List the routes with GET /v1/models."}
		key := url.Values{"name": {"bot"}, "preset": {"everything"}, "allowed_models": {"route/ownred"}}
		b.post(t, b.in(accounts.Test, "keys/new"), key).fieldErrors(t, unknown)
		key.Set("project", "red")
		b.post(t, b.in(accounts.Test, "keys/new"), key).is(t, http.StatusSeeOther)
		project := b.in(accounts.Test, "projects/red")
		b.post(t, project, url.Values{"name": {"red"}, "allowed_models": {"route/own, route/ownred"}}).redirectsTo(t, project)
		b.get(t, project).contains(t, `value="route/own, route/ownred"`)
		_, id := s.Key(t, w, accounts.Test)
		rule := url.Values{"name": {"ci"}, "issuer": {"https://token.actions.githubusercontent.com"}, "audience": {"turnpike"}, "subject": {"repo:acme/app:*"}, "key_id": {id}, "scopes": {"models:read"}, "allowed_models": {"route/ownred"}}
		b.post(t, b.in(accounts.Test, "federation/new"), rule).fieldErrors(t, unknown)
		rule.Set("allowed_models", "route/own")
		b.post(t, b.in(accounts.Test, "federation/new"), rule).is(t, http.StatusSeeOther)
	})
}
