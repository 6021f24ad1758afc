package api_test

import (
	"net/http"
	"slices"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/test/harness"
)

// routeKey creates a key that may use only some models and routes, and returns a client with it.
func (m *gatewayClient) routeKey(t *testing.T, fields map[string]any, models ...string) *gatewayClient {
	t.Helper()
	in := map[string]any{"name": "limited", "scopes": []string{"*"}, "allowed_models": models}
	for field, value := range fields {
		in[field] = value
	}
	return m.as(m.post(t, "/v1/keys", in).Text("value"))
}

// listed returns the names that a client may send as model.
func (m *gatewayClient) listed(t *testing.T) (names []string) {
	t.Helper()
	for _, o := range m.get(t, "/v1/models").At("data").([]any) {
		names = append(names, o.(map[string]any)["id"].(string))
	}
	return names
}

func TestKeyIsLimitedToRoutesOfItsWorkspace(t *testing.T) {
	eachGateway(t, both, threeModels, func(t *testing.T, m *gatewayClient) {
		answered := func(by *gatewayClient, model string) string {
			t.Helper()
			return by.chat(t, body(model, "hi", nil)).Want(t, 200, "").Header.Get("Service-Model")
		}
		own := m.post(t, "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4.1"}})
		m.post(t, "/v1/routes", map[string]any{"name": "other", "models": []string{"gpt-4o"}})
		limited := m.routeKey(t, nil, "route/own")
		if got := answered(limited, "route/own"); got != "gpt-4.1" {
			t.Errorf("got %s, want gpt-4.1", got)
		}
		if got, want := limited.listed(t), []string{"route/own"}; !slices.Equal(got, want) {
			t.Errorf("got models %q, want %q", got, want)
		}
		for _, model := range []string{"gpt-4.1", "gpt-4o", "route/other", "auto"} {
			r := limited.chat(t, body(model, "hi", nil)).Want(t, 403, "model_not_allowed")
			if got := r.Text("error.details.allowed_model"); got != "route/own" {
				t.Errorf("%s: got %q as an allowed model, want route/own: %s", model, got, r.Body)
			}
		}
		// A key hands down a part of its list.
		token := func(models ...string) *harness.Response {
			return limited.ask(t, "POST", "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}, "allowed_models": models})
		}
		if got := answered(m.as(token("route/own").Want(t, 200, "").Text("value")), "route/own"); got != "gpt-4.1" {
			t.Errorf("a token got %s, want gpt-4.1", got)
		}
		for _, wider := range []string{"route/other", "route/*", "gpt-4.1"} {
			token("route/own", wider).Want(t, 403, "insufficient_scope")
			limited.ask(t, "POST", "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}, "allowed_models": []string{wider}}).Want(t, 403, "insufficient_scope")
		}
		child := limited.routeKey(t, nil, "route/own")
		if got := answered(child, "route/own"); got != "gpt-4.1" {
			t.Errorf("a child got %s, want gpt-4.1", got)
		}
		// A list of providers applies to the models of the route as well.
		m.routeKey(t, map[string]any{"allowed_providers": []string{"anthropic"}}, "route/own").chat(t, body("route/own", "hi", nil)).Want(t, 403, "model_not_allowed")

		// Another workspace and another environment don't have the route, and a route of the same name is theirs.
		s := m.Server
		strangers := s.Workspace(t, "strangers")
		key, _ := s.Key(t, strangers, accounts.Live)
		stranger := m.as(key)
		for _, c := range []*client{stranger.client, m.withTestKey(t)} {
			r := c.ask(t, "POST", "/v1/keys", map[string]any{"name": "k", "scopes": []string{"*"}, "allowed_models": []string{"route/own"}}).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "allowed_models" {
				t.Errorf("got %s", r.Body)
			}
		}
		theirs, _ := s.KeyOf(t, &access.Key{Tenant: strangers.In(accounts.Live), Name: "k", Scopes: []string{"*"}, Allowed: catalog.Allowed{Models: catalog.Patterns{"route/own"}}})
		m.as(theirs).chat(t, body("route/own", "hi", nil)).Want(t, 404, "model_not_found")
		if got := m.as(theirs).listed(t); len(got) != 0 {
			t.Errorf("another workspace sees %q", got)
		}
		stranger.post(t, "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4o-mini"}})
		if got := answered(m.as(theirs), "route/own"); got != "gpt-4o-mini" {
			t.Errorf("another workspace got %s, want its own gpt-4o-mini", got)
		}
		if got := answered(limited, "route/own"); got != "gpt-4.1" {
			t.Errorf("got %s, want gpt-4.1", got)
		}

		// Without the route, the key can use nothing.
		m.ask(t, "DELETE", "/v1/routes/"+own.Text("id"), nil).Want(t, 200, "")
		limited.chat(t, body("route/own", "hi", nil)).Want(t, 404, "model_not_found")
		limited.chat(t, body("gpt-4.1", "hi", nil)).Want(t, 403, "model_not_allowed")
		if got := limited.listed(t); len(got) != 0 {
			t.Errorf("got models %q, want none", got)
		}
	})
}

func TestProjectIsLimitedToItsRoutes(t *testing.T) {
	eachGateway(t, both, threeModels, func(t *testing.T, m *gatewayClient) {
		for _, id := range []string{"red", "blue"} {
			m.post(t, "/v1/projects", map[string]any{"id": id})
		}
		m.post(t, "/v1/routes", map[string]any{"name": "fast-red", "models": []string{"gpt-4.1"}, "project": "red"})
		list := map[string]any{"allowed_models": []string{"route/fast-red"}}
		if r := m.ask(t, "PATCH", "/v1/projects/blue", list).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "allowed_models" {
			t.Errorf("got %s", r.Body)
		}
		m.ask(t, "PATCH", "/v1/projects/red", list).Want(t, 200, "")
		in := func(project, model string) *harness.Response {
			return m.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: m.key, Body: body(model, "hi", nil), Header: http.Header{"Service-Project": {project}}})
		}
		if r := in("red", "gpt-4.1").Want(t, 403, "model_not_allowed"); r.Text("error.details.allowed_model") != "route/fast-red" {
			t.Errorf("got %s", r.Body)
		}
		in("red", "route/fast-red").Want(t, 200, "")
		in("blue", "route/fast-red").Want(t, 404, "model_not_found")
		// A key of the project can be limited to its route, and a key of another can't.
		red := m.routeKey(t, map[string]any{"project": "red"}, "route/fast-red")
		red.chat(t, body("route/fast-red", "hi", nil)).Want(t, 200, "")
		m.ask(t, "POST", "/v1/keys", map[string]any{"name": "k", "scopes": []string{"*"}, "project": "blue", "allowed_models": []string{"route/fast-red"}}).Want(t, 400, "invalid_parameter")
	})
}

// TestKeyKeepsTheRoutesThatLimitIt is why a key can't widen itself by changing a route.
func TestKeyKeepsTheRoutesThatLimitIt(t *testing.T) {
	eachGateway(t, sqlite, threeModels, func(t *testing.T, m *gatewayClient) {
		own := "/v1/routes/" + m.post(t, "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4.1"}}).Text("id")
		other := "/v1/routes/" + m.post(t, "/v1/routes", map[string]any{"name": "other", "models": []string{"gpt-4o"}}).Text("id")
		m.post(t, "/v1/projects", map[string]any{"id": "red"})
		limited := m.routeKey(t, nil, "gpt-4o-mini", "route/own", "route/see")
		pinned := m.routeKey(t, map[string]any{"project": "red"}, "route/own")
		inProject := m.withKey(t, access.Key{Scopes: []string{"*"}, Project: "red"})
		m.ask(t, "PATCH", "/v1/projects/red", map[string]any{"allowed_models": []string{"route/own"}}).Want(t, 200, "")
		for name, r := range map[string]*harness.Response{
			"change":         limited.ask(t, "PATCH", own, map[string]any{"models": []string{"gpt-4o"}}),
			"other name":     limited.ask(t, "PATCH", own, map[string]any{"name": "gone"}),
			"its name":       limited.ask(t, "PATCH", other, map[string]any{"name": "own"}),
			"deletion":       limited.ask(t, "DELETE", own, nil),
			"project's":      limited.ask(t, "POST", "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4o"}, "project": "red"}),
			"pinned key":     pinned.ask(t, "POST", "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4o"}}),
			"project's list": inProject.ask(t, "POST", "/v1/routes", map[string]any{"name": "own", "models": []string{"gpt-4o"}}),
		} {
			if r.Status != 403 || r.Text("error.code") != "insufficient_scope" || r.Text("error.param") != "name" {
				t.Errorf("%s: got %s, want 403 insufficient_scope", name, r.Body)
			}
		}
		if r := m.get(t, own); r.Text("name") != "own" || !slices.Equal(r.At("models").([]any), []any{"gpt-4.1"}) {
			t.Errorf("a refused change was stored: %s", r.Body)
		}
		// Routes outside of its list allow the key nothing, so it can manage them.
		limited.ask(t, "PATCH", other, map[string]any{"models": []string{"gpt-4.1"}}).Want(t, 200, "")
		limited.chat(t, body("route/other", "hi", nil)).Want(t, 403, "model_not_allowed")
	})
}
