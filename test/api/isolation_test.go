package api_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/config"
	"turnpike/internal/ids"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// tenant is one workspace and environment, or one of its projects, with one
// object of each type.
type tenant struct {
	name string
	key  string
	ids  map[string]string // path up to {id} → an existing ID
	// approval belongs to the run. Without a responding model, no run waits for
	// one.
	approval string
}

func newTenant(t *testing.T, s *harness.Server, w *accounts.Workspace, env accounts.Environment) tenant {
	t.Helper()
	key, _ := s.Key(t, w, env, "*", "content:read")
	project := "p-" + w.Name + "-" + string(env)
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: key, Body: map[string]any{"id": project}}).Want(t, 200, "")
	return populate(t, s, tenant{name: w.Name + "/" + string(env), key: key}, project)
}

// populate creates one object of each type with the tenant's key.
func populate(t *testing.T, s *harness.Server, n tenant, project string) tenant {
	t.Helper()
	post := func(path string, body any) *harness.Response {
		return s.Do(t, harness.Request{Method: "POST", Path: path, Key: n.key, Body: body}).Want(t, 200, "")
	}
	key := map[string]any{"name": "spare", "scopes": []string{"models:read"}}
	if pin := s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects", Key: n.key}); pin.Code() == "project_not_allowed" {
		key["project"] = project
	}
	token := s.Do(t, mint(n.key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
	request := s.Do(t, models(n.key)).Want(t, 200, "").Header.Get("X-Request-Id")
	endpoint := post("/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"*"}}).Text("id")
	replay := post("/v1/webhooks/"+endpoint+"/replay", map[string]any{"since": s.Clock.Now().Unix()})
	post("/v1/webhooks/"+endpoint+"/pause", nil) // so that nothing is sent
	delivery := post("/v1/webhooks/"+endpoint+"/test", nil)
	image := map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p", "size": "64x64"}}
	batch := post("/v1/images/batches", map[string]any{"requests": []any{image}})
	video := post("/v1/videos", map[string]any{"prompt": "p", "size": "64x64", "seconds": 1})
	voice := post("/v1/voice/renders", map[string]any{"voice": "alloy", "input": "Hi."})
	form, header := formOf(t, "b", formPart{"file", "a.wav", "audio/wav", recording(100)}, formPart{name: "model", data: []byte("ear")})
	if strings.HasPrefix(n.key, "tp_test_") {
		form = strings.Replace(form, "\r\n\r\near\r\n", "\r\n\r\nwhisper-1\r\n", 1)
	}
	transcript := s.Do(t, harness.Request{Method: "POST", Path: "/v1/voice/transcriptions", Key: n.key, Body: form, Header: header}).Want(t, 200, "")
	run := post("/v1/agents/runs", map[string]any{"model": "gpt-4o-mini", "input": "[[sim:tool=refund]]", "tools": []any{
		map[string]any{"type": "function", "name": "refund", "parameters": map[string]any{"type": "object"}, "require_approval": "always"}}})
	model := "small"
	if strings.HasPrefix(n.key, "tp_test_") {
		model = "gpt-4o-mini"
	}
	response := post("/v1/responses", map[string]any{"model": model, "input": "Hi."})
	conversation := post("/v1/conversations", map[string]any{"items": []any{map[string]any{"role": "user", "content": "Hi."}}})
	file := s.Do(t, uploadFile(t, n.key, "batch", "{}\n")).Want(t, 200, "")
	spare := post("/v1/keys", key)
	rule := post("/v1/federation_rules", map[string]any{"name": "ci", "issuer": "https://issuer.example.com", "audience": "turnpike", "subject": "repo:acme/app",
		"key_id": spare.Text("id"), "scopes": []string{"models:read"}})
	tools := post("/v1/tool_servers", map[string]any{"label": ids.New("")[10:], "url": "https://example.invalid/mcp"})
	user := post("/v1/scoped_tokens", map[string]any{"scopes": []string{"models:read"}, "user": ids.New("")})
	route := post("/v1/routes", map[string]any{"name": ids.New("")[10:], "models": []string{model}})
	n.ids = map[string]string{
		"/v1/users/": n.userID(t, s, user.Text("user")), "/v1/routes/": route.Text("id"), "/v1/federation_rules/": rule.Text("id"),
		"/v1/files/": file.Text("id"), "/v1/tool_servers/": tools.Text("id"),
		"/v1/messages/batches/": post("/v1/messages/batches", map[string]any{"requests": []any{map[string]any{"custom_id": "a", "params": map[string]any{}}}}).Text("id"),
		"/v1/batches/":          post("/v1/batches", map[string]any{"input_file_id": file.Text("id"), "endpoint": "/v1/chat/completions", "completion_window": "24h"}).Text("id"),
		"/v1/responses/":        response.Text("id"), "/v1/conversations/": conversation.Text("id"),
		"/v1/keys/": post("/v1/keys", key).Text("id"), "/v1/projects/": project, "/v1/scoped_tokens/": token.Text("id"), "/v1/audit/": request,
		"/v1/webhooks/": endpoint, "/v1/webhook_endpoints/": endpoint, "/v1/deliveries/": delivery.Text("id"), "/v1/events/": delivery.Text("event_id"), "/v1/replays/": replay.Text("id"),
		"/v1/images/batches/": batch.Text("id"), "/v1/videos/": video.Text("id"), "/v1/voice/renders/": voice.Text("id"), "/v1/voice/transcriptions/": transcript.Text("id"), "/v1/agents/runs/": run.Text("id"),
	}
	n.approval = ids.New(ids.Approval)
	if strings.HasPrefix(n.key, "tp_test_") {
		s.Eventually(t, func() bool {
			r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + run.Text("id"), Key: n.key}).Want(t, 200, "")
			n.approval = r.Text("required_actions.0.id")
			return n.approval != ""
		})
	}
	return n
}

// userID returns the ID of an end user. Pinned keys can't see any.
func (n tenant) userID(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/users?user=" + name, Key: n.key})
	if r.Code() == "project_not_allowed" {
		return ids.New(ids.EndUser)
	}
	return r.Want(t, 200, "").Text("data.0.id")
}

// idRoutes are the routes with an ID in their path, except for IDs that all
// tenants share.
func idRoutes() (out []api.Route) {
	for _, rt := range api.Routes() {
		if strings.Contains(rt.Path, "{id") && !strings.HasPrefix(rt.Path, "/v1/models/") {
			out = append(out, rt)
		}
	}
	return out
}

// at requests the route with an ID of the owner, and a body that the owner
// could send.
func (n tenant) at(t *testing.T, s *harness.Server, rt api.Route, owner tenant) *harness.Response {
	t.Helper()
	before, _, _ := strings.Cut(rt.Path, "{id")
	id, known := owner.ids[before]
	if !known {
		t.Fatalf("the route %s has an id and this test makes none for it: add one to populate", rt.Path)
	}
	r := harness.Request{Method: rt.Method, Path: strings.NewReplacer("{id}", id, "{approval}", owner.approval, "{item}", "msg_1").Replace(rt.Path), Key: n.key}
	if strings.Contains(r.Path, "{") {
		t.Fatalf("the route %s has a parameter that this test does not fill in: add it to tenant", rt.Path)
	}
	switch rt.Method + " " + rt.Path {
	case "POST /v1/conversations/{id}":
		r.Body = map[string]any{"metadata": map[string]any{"a": "b"}}
	case "POST /v1/conversations/{id}/items":
		r.Body = map[string]any{"items": []any{map[string]any{"role": "user", "content": "Hi."}}}
	case "PATCH /v1/users/{id}":
		r.Body = map[string]any{"blocked": true}
	case "PATCH /v1/routes/{id}":
		r.Body = map[string]any{"timeout_ms": 1000}
	case "PATCH /v1/webhooks/{id}", "PATCH /v1/tool_servers/{id}":
		r.Body = map[string]any{"description": "x"}
	case "POST /v1/webhooks/{id}/replay":
		r.Body = map[string]any{"since": s.Clock.Now().Unix()}
	case "PATCH /v1/federation_rules/{id}":
		r.Body = map[string]any{"name": "x"}
	case "POST /v1/webhook_endpoints/{id}":
		r.Body = map[string]any{"name": "x"}
	case "POST /v1/webhook_endpoints/{id}/test":
		r.Body = map[string]any{"event_type": "response.completed"}
	case "POST /v1/videos/{id}/remix":
		r.Body = map[string]any{"prompt": "x"}
	case "POST /v1/agents/runs/{id}/tool_outputs":
		r.Body = map[string]any{"tool_outputs": []any{map[string]any{"call_id": "call_1", "output": "x"}}}
	case "POST /v1/agents/runs/{id}/approvals/{approval}":
		r.Body = map[string]any{"decision": "approve"}
	case "PATCH /v1/keys/{id}", "PATCH /v1/projects/{id}":
		r.Body = map[string]any{"name": "x"}
	}
	return s.Do(t, r)
}

// checkCannotSee requests every route with an ID of the owner. All must return
// 404, as if the object didn't exist.
func (n tenant) checkCannotSee(t *testing.T, s *harness.Server, owner tenant) {
	t.Helper()
	for _, rt := range idRoutes() {
		if r := n.at(t, s, rt, owner); r.Status != 404 || r.Code() != "not_found" {
			t.Errorf("%s %s of %s with the key of %s: got %d %s, want 404 not_found", rt.Method, rt.Path, owner.name, n.name, r.Status, r.Body)
		}
	}
}

func (n tenant) isPinned(t *testing.T, s *harness.Server) bool {
	t.Helper()
	return s.Do(t, harness.Request{Method: "GET", Path: "/v1/users", Key: n.key}).Code() == "project_not_allowed"
}

// checkSeesOwn reads one object of each type.
func (n tenant) checkSeesOwn(t *testing.T, s *harness.Server) {
	t.Helper()
	for before, id := range n.ids {
		if before != "/v1/scoped_tokens/" && (before != "/v1/users/" || !n.isPinned(t, s)) {
			s.Do(t, harness.Request{Method: "GET", Path: before + id, Key: n.key}).Want(t, 200, "")
		}
	}
}

// eachWithProviders runs fn with live keys that can create every type of
// object. The provider of all models but small is unreachable.
func eachWithProviders(t *testing.T, engines []string, fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	eachEngine(t, engines, func(t *testing.T, engine string) {
		cfg := harness.Config(t, engine)
		cfg.Providers = []config.Provider{{Name: "away", Type: config.OpenAI, BaseURL: "http://127.0.0.1:1/v1", Weight: 1, Models: []config.ProviderModel{
			{ID: "gpt-4o-mini", Price: price("1", "1", "")}, {ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "1"}}, {ID: "film", Kind: "video", Price: &config.ModelPrice{PerSecond: "1"}},
			{ID: "talk", Kind: "speech", Price: &config.ModelPrice{PerCharacter: "1"}}, {ID: "ear", Kind: "transcription", Price: &config.ModelPrice{PerSecond: "1"}}}},
			{Name: "near", Type: config.OpenAI, BaseURL: config.Address(upstreams.NewOpenAI(t, "").BaseURL()), Weight: 1, Models: []config.ProviderModel{{ID: "small", Price: price("1", "1", "")}}}}
		fn(t, harness.Start(t, cfg, harness.NewClock()))
	})
}

// newTenants returns two workspaces with both of their environments.
func newTenants(t *testing.T, s *harness.Server) (list []tenant) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		w := s.Workspace(t, name)
		list = append(list, newTenant(t, s, w, accounts.Live), newTenant(t, s, w, accounts.Test))
	}
	return list
}

func TestIDsOfOtherTenantsReturn404(t *testing.T) {
	eachWithProviders(t, both, func(t *testing.T, s *harness.Server) {
		tenants := newTenants(t, s)
		for _, owner := range tenants {
			for _, stranger := range tenants {
				if stranger.name != owner.name {
					stranger.checkCannotSee(t, s, owner)
				}
			}
		}
		for _, owner := range tenants {
			owner.checkSeesOwn(t, s)
		}
	})
}

func TestListsShowOnlyTheTenantOfTheKey(t *testing.T) {
	eachWithProviders(t, both, func(t *testing.T, s *harness.Server) {
		tenants := newTenants(t, s)
		for _, path := range []string{"/v1/keys", "/v1/projects", "/v1/audit", "/v1/audit/actions", "/v1/webhooks", "/v1/deliveries", "/v1/events",
			"/v1/images/batches", "/v1/videos", "/v1/voice/renders", "/v1/voice/transcriptions", "/v1/agents/runs", "/v1/tool_servers", "/v1/federation_rules"} {
			for _, own := range tenants {
				body := string(s.Do(t, harness.Request{Method: "GET", Path: path + "?limit=100", Key: own.key}).Want(t, 200, "").Body)
				for _, stranger := range tenants {
					for _, id := range stranger.ids {
						if stranger.name != own.name && strings.Contains(body, id) {
							t.Errorf("%s shows %s an id of %s", path, own.name, stranger.name)
						}
					}
				}
			}
		}
	})
}

func TestEveryRouteRequiresItsScope(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		for _, rt := range api.Routes() {
			other := "audit:read"
			if string(rt.Scope) == other {
				other = "images:read"
			}
			key, _ := s.Key(t, w, accounts.Test, other)
			path := strings.NewReplacer("{id...}", "x", "{id}", "x").Replace(rt.Path)
			r := s.Do(t, harness.Request{Method: rt.Method, Path: path, Key: key})
			if r.Status != 403 || !strings.Contains(r.Text("error.message"), string(rt.Scope)) {
				t.Errorf("%s %s without its scope: %d %s", rt.Method, rt.Path, r.Status, r.Body)
			}
			s.Do(t, harness.Request{Method: rt.Method, Path: path}).Want(t, http.StatusUnauthorized, "authentication_error")
		}
	})
}
