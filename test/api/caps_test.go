package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

func postKey(by, path, idempotencyKey string, body any) harness.Request {
	r := harness.Request{Method: "POST", Path: path, Key: by, Body: body}
	if idempotencyKey != "" {
		r.Header = http.Header{"Idempotency-Key": {idempotencyKey}}
	}
	return r
}

func TestKeysPerWorkspaceAreLimited(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) { l.Keys = 3 }, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		plain := map[string]any{"name": "n", "scopes": []string{"models:read"}}
		expiring := map[string]any{"name": "n", "scopes": []string{"models:read"}, "expires_at": s.Clock.Now().Unix() + 60}
		first := s.Do(t, newKey(admin, plain)).Want(t, 200, "").Text("id")
		second := s.Do(t, newKey(admin, expiring)).Want(t, 200, "").Text("id")
		r := s.Do(t, postKey(admin, "/v1/keys", "again", plain)).Want(t, 409, "limit_reached")
		if got := r.Text("error.message"); !strings.Contains(got, "Revoke a key") || r.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("got %q, want what to do", got)
		}
		live, _ := s.Key(t, w, accounts.Live)
		s.Do(t, newKey(live, plain)).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + first + "/rotate", Key: admin}).Want(t, 200, "")

		// Revoked and expired keys don't count until they are active again.
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + first, Key: admin}).Want(t, 200, "")
		s.Do(t, postKey(admin, "/v1/keys", "again", plain)).Want(t, 200, "") // the refusal isn't stored
		s.Clock.Turn(time.Minute)
		third := s.Do(t, newKey(admin, plain)).Want(t, 200, "").Text("id")
		revive := harness.Request{Method: "PATCH", Path: "/v1/keys/" + second, Key: admin, Body: map[string]any{"expires_at": nil}}
		s.Do(t, revive).Want(t, 409, "limit_reached")
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + third, Key: admin}).Want(t, 200, "")
		s.Do(t, revive).Want(t, 200, "")
		s.Do(t, newKey(admin, plain)).Want(t, 409, "limit_reached")
		list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys?limit=100", Key: admin}).Want(t, 200, "")
		if n := len(list.At("data").([]any)); n != 5 {
			t.Errorf("got %d keys, want 5: refused ones leave nothing", n)
		}
	})
}

func TestKeyLimitIsExactOnTwoNodes(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "postgres")
	cfg.Limits.Keys, cfg.Limits.ScopedTokens = 20, 30
	s := harness.Start(t, cfg, harness.NewClock())
	other, err := app.Start(t.Context(), cfg, "test", s.Clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	other.Serve()
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	admin, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	second := *s
	second.URL = other.URL()
	flood := func(r harness.Request, n int) (created int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 4 {
			node := s
			if i%2 == 1 {
				node = &second
			}
			all.Go(func() {
				for range n / 2 {
					switch got := node.Do(t, r); {
					case got.Status == 200:
						mu.Lock()
						created++
						mu.Unlock()
					case got.Code() != "limit_reached":
						t.Errorf("got %d %s", got.Status, got.Body)
					}
				}
			})
		}
		all.Wait()
		return created
	}
	if n := flood(newKey(admin, map[string]any{"name": "n", "scopes": []string{"models:read"}}), 20); n != 19 {
		t.Errorf("got %d new keys, want 19 beside the first", n)
	}
	if n := flood(mint(admin, map[string]any{"scopes": []string{"models:read"}}), 30); n != 30 {
		t.Errorf("got %d tokens, want 30", n)
	}
}

func TestUnexpiredTokensPerWorkspaceAreLimited(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) { l.ScopedTokens = 3 }, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		second, _ := s.Key(t, w, accounts.Test)
		token := func(by string, seconds int) *harness.Response {
			return s.Do(t, mint(by, map[string]any{"scopes": []string{"models:read"}, "expires_in": seconds}))
		}
		token(key, 10).Want(t, 200, "")
		first := token(key, 900).Want(t, 200, "").Text("id")
		token(second, 900).Want(t, 200, "")
		r := token(key, 900).Want(t, 409, "limit_reached")
		if got := r.Text("error.message"); !strings.Contains(got, "3 unexpired scoped tokens") || !strings.Contains(got, "expires_in") {
			t.Errorf("got %q, want what to do", got)
		}
		live, _ := s.Key(t, w, accounts.Live)
		token(live, 900).Want(t, 200, "")
		for range 2 { // the second time takes no second slot
			s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/scoped_tokens/" + first, Key: key}).Want(t, 200, "")
		}
		token(key, 900).Want(t, 200, "")
		token(key, 900).Want(t, 409, "limit_reached")
		s.Clock.Turn(70 * time.Second) // ten seconds, plus at most a minute
		token(key, 900).Want(t, 200, "")
		token(key, 900).Want(t, 409, "limit_reached")
		s.Clock.Turn(time.Hour)
		for range 3 {
			token(key, 900).Want(t, 200, "")
		}
	})
}

func TestIdempotencyRecordsPerWorkspaceAreLimited(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) { l.IdempotencyRecords = 3 }, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		create := func(id, idem string) *harness.Response {
			return s.Do(t, postKey(key, "/v1/projects", idem, map[string]any{"id": id}))
		}
		create("a", "1").Want(t, 200, "")
		create("b", "2").Want(t, 200, "")
		create("a", "3").Want(t, 409, "invalid_state") // stored as well
		r := create("c", "4").Want(t, 429, "rate_limit_exceeded")
		if got := r.Text("error.message"); !strings.Contains(got, "without one, or retry after") || r.Text("error.param") != "Idempotency-Key" {
			t.Errorf("got %q, want what to do", got)
		}
		if r.Header.Get("Retry-After") == "" || r.Header.Get("retry-after-ms") == "" {
			t.Errorf("got the headers %v, want Retry-After", r.Header)
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects/c", Key: key}).Want(t, 404, "not_found")
		// Replays need no room, and neither do refusals and requests without a
		// key.
		if r := create("a", "1").Want(t, 200, ""); r.Header.Get("Idempotent-Replayed") != "true" {
			t.Error("got a new response, want the first one again")
		}
		create("-", "5").Want(t, 400, "invalid_parameter")
		create("c", "").Want(t, 200, "")
		live, _ := s.Key(t, w, accounts.Live)
		s.Do(t, postKey(live, "/v1/projects", "4", map[string]any{"id": "c"})).Want(t, 200, "")
		s.Clock.Turn(25 * time.Hour)
		create("d", "4").Want(t, 200, "")
	})
}

func TestOnlyChargeableRequestsCreateAProject(t *testing.T) {
	eachShared(t, sqlite, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		chatOnly, _ := s.Key(t, w, accounts.Test, "models:read", "chat.completions:create")
		send := func(key, method, path, project string, body any) *harness.Response {
			return s.Do(t, harness.Request{Method: method, Path: path, Key: key, Body: body, Header: http.Header{"Service-Project": {project}}})
		}
		exists := func(project string) bool {
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects/" + project, Key: admin}).Status == 200
		}
		send(chatOnly, "GET", "/v1/models", "junk", nil).Want(t, 200, "")
		send(admin, "GET", "/v1/keys", "junk", nil).Want(t, 200, "")
		send(admin, "POST", "/v1/projects", "junk", map[string]any{"id": "other"}).Want(t, 200, "")
		send(chatOnly, "POST", "/v1/chat/completions", "junk", "{").Want(t, 400, "invalid_json")
		send(chatOnly, "POST", "/v1/chat/completions", "junk", map[string]any{"model": "nothing-like-it", "messages": []any{map[string]any{"role": "user", "content": "hi"}}}).Want(t, 404, "model_not_found")
		send(admin, "POST", "/v1/agents/runs", "junk", map[string]any{}).Want(t, 400, "missing_parameter")
		send(admin, "POST", "/v1/images/batches", "junk", map[string]any{"requests": []any{}}).Want(t, 400, "missing_parameter")
		send(admin, "POST", "/v1/scoped_tokens", "junk", map[string]any{"scopes": []string{}}).Want(t, 400, "missing_parameter")
		if exists("junk") {
			t.Error("got a project, want none: nothing was done in it")
		}
		for project, work := range map[string]func() *harness.Response{
			"chat": func() *harness.Response {
				return send(chatOnly, "POST", "/v1/chat/completions", "chat", chatBody("hi"))
			},
			"embed": func() *harness.Response {
				return send(admin, "POST", "/v1/embeddings", "embed", map[string]any{"model": "text-embedding-3-small", "input": "hi"})
			},
			"run": func() *harness.Response {
				return send(admin, "POST", "/v1/agents/runs", "run", map[string]any{"model": "gpt-4o-mini", "input": "hi"})
			},
			"images": func() *harness.Response {
				return send(admin, "POST", "/v1/images/batches", "images", map[string]any{"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "p"}}}})
			},
			"token": func() *harness.Response {
				return send(admin, "POST", "/v1/scoped_tokens", "token", map[string]any{"scopes": []string{"models:read"}})
			},
		} {
			work().Want(t, 200, "")
			if !exists(project) {
				t.Errorf("got no project %q, want it to be created", project)
			}
		}
	})
}

func TestNewProjectsPerKeyAndDayAreLimited(t *testing.T) {
	eachLimited(t, both, func(l *config.Limits) { l.NewProjectsPerDay = 5 }, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		chatOnly, _ := s.Key(t, w, accounts.Test, "chat.completions:create")
		chat := func(key, project string) *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("hi"), Header: http.Header{"Service-Project": {project}}})
		}
		var mu sync.Mutex
		codes := map[string]int{}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 5 {
					r := chat(chatOnly, fmt.Sprintf("junk%d-%d", i, j))
					mu.Lock()
					codes[r.Code()]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if codes[""] != 5 || codes["limit_reached"] != 15 {
			t.Errorf("got %v, want 5 that succeed and 15 limit_reached", codes)
		}
		r := chat(chatOnly, "more").Want(t, 409, "limit_reached")
		if got := r.Text("error.message"); !strings.Contains(got, "POST /v1/projects") || r.Text("error.param") != "Service-Project" {
			t.Errorf("got %q, want what to do", got)
		}
		list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/projects?limit=100", Key: admin}).Want(t, 200, "")
		if n := len(list.At("data").([]any)); n != 5 {
			t.Errorf("got %d projects, want 5", n)
		}
		// Other keys' names still work, and so do explicit and existing
		// projects.
		chat(admin, "more").Want(t, 200, "")
		chat(chatOnly, "more").Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: admin, Body: map[string]any{"id": "planned"}}).Want(t, 200, "")
		chat(chatOnly, "planned").Want(t, 200, "")
		chat(chatOnly, "junk").Want(t, 409, "limit_reached")
		s.Clock.Turn(24 * time.Hour)
		chat(chatOnly, "junk").Want(t, 200, "")
	})
}
