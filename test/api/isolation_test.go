package api_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// tenant is one workspace and environment with one of everything in it.
type tenant struct {
	name string
	key  string
	ids  map[string]string // the path up to {id} → an id that exists there
}

func newTenant(t *testing.T, s *harness.Server, w *accounts.Workspace, env accounts.Environment) tenant {
	t.Helper()
	key, _ := s.Key(t, w, env)
	_, other := s.Key(t, w, env)
	project := "p-" + w.Name + "-" + string(env)
	s.Do(t, inProject(key, project)).Want(t, 200, "")
	token := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
	request := s.Do(t, models(key)).Want(t, 200, "").Header.Get("X-Request-Id")
	post := func(path string, body any) *harness.Response {
		return s.Do(t, harness.Request{Method: "POST", Path: path, Key: key, Body: body}).Want(t, 200, "")
	}
	endpoint := post("/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"*"}}).Text("id")
	replay := post("/v1/webhooks/"+endpoint+"/replay", map[string]any{"since": s.Clock.Now().Unix()})
	post("/v1/webhooks/"+endpoint+"/pause", nil) // so that nothing is sent
	delivery := post("/v1/webhooks/"+endpoint+"/test", nil)
	image := map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p", "size": "64x64"}}
	batch := post("/v1/images/batches", map[string]any{"requests": []any{image}})
	video := post("/v1/videos", map[string]any{"prompt": "p", "size": "64x64", "seconds": 1})
	voice := post("/v1/voice/renders", map[string]any{"voice": "alloy", "input": "Hi."})
	run := post("/v1/agents/runs", map[string]any{"model": "gpt-4o-mini", "input": "hi"})
	return tenant{name: w.Name + "/" + string(env), key: key, ids: map[string]string{
		"/v1/keys/": other, "/v1/projects/": project, "/v1/scoped_tokens/": token.Text("id"), "/v1/audit/": request,
		"/v1/webhooks/": endpoint, "/v1/deliveries/": delivery.Text("id"), "/v1/events/": delivery.Text("event_id"), "/v1/replays/": replay.Text("id"),
		"/v1/images/batches/": batch.Text("id"), "/v1/videos/": video.Text("id"), "/v1/voice/renders/": voice.Text("id"), "/v1/agents/runs/": run.Text("id"),
	}}
}

// eachMaker is harness.Each with a server whose live keys can order anything.
// Their provider is not there, so nothing comes of it.
func eachMaker(t *testing.T, fn func(t *testing.T, s *harness.Server)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, engine)
			cfg.Providers = []config.Provider{{Name: "away", Type: config.OpenAI, BaseURL: "http://127.0.0.1:1/v1", Weight: 1, Models: []config.ProviderModel{
				{ID: "gpt-4o-mini", Price: price("1", "1", "")}, {ID: "pic", Kind: "image", Price: &config.ModelPrice{PerImage: "1"}}, {ID: "film", Kind: "video", Price: &config.ModelPrice{PerSecond: "1"}},
				{ID: "talk", Kind: "speech", Price: &config.ModelPrice{PerCharacter: "1"}}}}}
			fn(t, harness.Start(t, cfg, harness.NewClock()))
		})
	}
}

// public paths have ids that are everybody's.
var public = map[string]bool{"/v1/models/": true}

func TestNoIDOfOneTenantExistsForAnother(t *testing.T) {
	t.Parallel()
	eachMaker(t, func(t *testing.T, s *harness.Server) {
		a, b := s.Workspace(t, "a"), s.Workspace(t, "b")
		tenants := []tenant{newTenant(t, s, a, accounts.Live), newTenant(t, s, a, accounts.Test), newTenant(t, s, b, accounts.Test)}
		for _, rt := range api.Routes() {
			before, after, hasID := strings.Cut(rt.Path, "{id")
			if !hasID || public[before] {
				continue
			}
			after = after[strings.Index(after, "}")+1:]
			for _, owner := range tenants {
				id, known := owner.ids[before]
				if !known {
					t.Fatalf("the route %s has an id and this test makes none for it: add one to newTenant", rt.Path)
				}
				call := func(by tenant) *harness.Response {
					r := harness.Request{Method: rt.Method, Path: before + id + after, Key: by.key}
					switch rt.Method + " " + rt.Path { // a body that the owner could send
					case "PATCH /v1/webhooks/{id}":
						r.Body = map[string]any{"description": "x"}
					case "POST /v1/webhooks/{id}/replay":
						r.Body = map[string]any{"since": s.Clock.Now().Unix()}
					case "POST /v1/agents/runs/{id}/tool_outputs":
						r.Body = map[string]any{"tool_outputs": []any{map[string]any{"call_id": "call_1", "output": "x"}}}
					case "POST /v1/agents/runs/{id}/approvals/{approval}":
						r.Body = map[string]any{"decision": "approve"}
					case "PATCH /v1/keys/{id}", "PATCH /v1/projects/{id}":
						r.Body = map[string]any{"name": "x"}
					}
					return s.Do(t, r)
				}
				for _, stranger := range tenants {
					if stranger.name == owner.name {
						continue
					}
					if r := call(stranger); r.Status != 404 || r.Code() != "not_found" {
						t.Errorf("%s %s of %s: %s got %d %s", rt.Method, rt.Path, owner.name, stranger.name, r.Status, r.Body)
					}
				}
			}
		}
		// And each still has its own.
		for _, owner := range tenants {
			for before, id := range owner.ids {
				if before != "/v1/scoped_tokens/" {
					s.Do(t, harness.Request{Method: "GET", Path: before + id, Key: owner.key}).Want(t, 200, "")
				}
			}
		}
	})
}

func TestListsShowOnlyTheCallersTenant(t *testing.T) {
	t.Parallel()
	eachMaker(t, func(t *testing.T, s *harness.Server) {
		a, b := s.Workspace(t, "a"), s.Workspace(t, "b")
		tenants := []tenant{newTenant(t, s, a, accounts.Live), newTenant(t, s, a, accounts.Test), newTenant(t, s, b, accounts.Test)}
		for _, path := range []string{"/v1/keys", "/v1/projects", "/v1/audit", "/v1/audit/actions", "/v1/webhooks", "/v1/deliveries", "/v1/events",
			"/v1/images/batches", "/v1/videos", "/v1/voice/renders", "/v1/agents/runs"} {
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

func TestEveryRouteNeedsItsScope(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
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
