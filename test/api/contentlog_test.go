package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// contentReader is a workspace with a key that reads the content of requests.
type contentReader struct {
	*harness.Server
	w   *accounts.Workspace
	key string
}

func newContentReader(t *testing.T, s *harness.Server) *contentReader {
	t.Helper()
	w := s.Workspace(t, "acme")
	key, _ := s.Key(t, w, accounts.Test, "*", "content:read")
	return &contentReader{s, w, key}
}

// loggedKey returns a key whose content is logged for a week.
func (c *contentReader) loggedKey(t *testing.T) string {
	t.Helper()
	key, _ := c.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "logged", Scopes: []string{"*"}, ContentDays: new(int64(7))})
	return key
}

func (c *contentReader) chat(t *testing.T, key string, body map[string]any, header http.Header) string {
	t.Helper()
	r := c.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: body, Header: header}).Want(t, 200, "")
	id := r.Header.Get("X-Request-Id")
	settled(t, c.Server, c.key, id)
	return id
}

func (c *contentReader) read(t *testing.T, id, key string) *harness.Response {
	t.Helper()
	return c.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id + "/content", Key: key})
}

func (c *contentReader) stored(t *testing.T) int64 {
	t.Helper()
	n, err := db.Value[int64](c.DB.QueryRow(t.Context(), "SELECT count(*) FROM request_contents WHERE workspace_id = $1", c.w.ID))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestContentIsLoggedOnlyIfTheKeyOrTheProjectSaysSo(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		for _, project := range []map[string]any{{"id": "logged", "content_log_days": 30}, {"id": "open", "content_log_days": 30, "content_log_opt_out": true}, {"id": "unlogged"}} {
			c.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: c.key, Body: project}).Want(t, 200, "")
		}
		off, _ := s.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "off", Scopes: []string{"*"}, ContentDays: new(int64(0))})
		inherits, _ := s.Key(t, c.w, accounts.Test)
		allows, _ := s.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "allows", Scopes: []string{"*"}, ContentOptOut: true})
		in := func(project string) http.Header { return http.Header{"Service-Project": {project}} }
		for name, id := range map[string]string{
			"no setting":                       c.chat(t, inherits, chatBody("hi"), nil),
			"a new project":                    c.chat(t, inherits, chatBody("hi"), in("fresh")),
			"a project without":                c.chat(t, inherits, chatBody("hi"), in("unlogged")),
			"a key that says no":               c.chat(t, off, chatBody("hi"), in("logged")),
			"a header that the key allows":     c.chat(t, allows, chatBody("hi"), http.Header{"Service-Project": {"logged"}, "Service-Content-Log": {"off"}}),
			"a header that the project allows": c.chat(t, inherits, chatBody("hi"), http.Header{"Service-Project": {"open"}, "Service-Content-Log": {"off"}}),
			"a request about nothing":          c.Do(t, models(c.loggedKey(t))).Header.Get("X-Request-Id"),
		} {
			if r := c.read(t, id, c.key); r.Status != 404 || r.Code() != "not_found" {
				t.Errorf("%s: content is %d %s, want 404", name, r.Status, r.Body)
			}
		}
		if n := c.stored(t); n != 0 {
			t.Errorf("%d contents are stored, want none", n)
		}
		for _, id := range []string{c.chat(t, inherits, chatBody("Hello, content."), in("logged")), c.chat(t, c.loggedKey(t), chatBody("Hello, content."), in("unlogged"))} {
			r := c.read(t, id, c.key).Want(t, 200, "")
			if !strings.Contains(r.Text("request.body"), "Hello, content.") || !strings.Contains(r.Text("response.body"), "chat.completion") || r.At("response.streamed") != false {
				t.Errorf("content is %s", r.Body)
			}
		}
		r := c.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: inherits, Body: chatBody("hi"), Header: http.Header{"Service-Content-Log": {"on"}}})
		if r.Want(t, 400, "invalid_parameter").Text("error.param") != "Service-Content-Log" {
			t.Errorf("got %s", r.Body)
		}
		for _, days := range []int{-1, 91} {
			for _, r := range []*harness.Response{
				c.Do(t, newKey(c.key, map[string]any{"name": "n", "scopes": []string{"*"}, "content_log_days": days})),
				c.Do(t, harness.Request{Method: "PATCH", Path: "/v1/projects/logged", Key: c.key, Body: map[string]any{"content_log_days": days}}),
			} {
				if r.Want(t, 400, "invalid_parameter").Text("error.param") != "content_log_days" {
					t.Errorf("got %s", r.Body)
				}
			}
		}
	})
}

// N13: the header doesn't turn off what an owner turned on, unless the key or the project allows it.
func TestHeaderCannotHideContentFromAWorkspaceThatLogs(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		for _, project := range []map[string]any{{"id": "logged", "content_log_days": 30}, {"id": "open", "content_log_days": 30, "content_log_opt_out": true}} {
			c.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: c.key, Body: project}).Want(t, 200, "")
		}
		inherits, _ := s.Key(t, c.w, accounts.Test)
		token := c.Do(t, mint(inherits, map[string]any{"scopes": []string{"chat.completions:create"}})).Want(t, 200, "").Text("value")
		for name, x := range map[string]struct{ key, project string }{
			"a key that logs": {c.loggedKey(t), "unlogged"},
			"a key that logs, in a project that allows": {c.loggedKey(t), "open"},
			"a project that logs":                       {inherits, "logged"},
			"a scoped token":                            {token, "logged"},
		} {
			r := c.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: x.key, Body: chatBody("hi"), Header: http.Header{"Service-Project": {x.project}, "Service-Content-Log": {"off"}}})
			id := r.Want(t, 200, "").Header.Get("X-Request-Id")
			settled(t, c.Server, c.key, id)
			if r := c.read(t, id, c.key); r.Status != 200 {
				t.Errorf("%s: content is %d %s, want 200", name, r.Status, r.Body)
			}
		}
		// Someone who may change the project decides.
		c.Do(t, harness.Request{Method: "PATCH", Path: "/v1/projects/logged", Key: c.key, Body: map[string]any{"content_log_opt_out": true}}).Want(t, 200, "")
		if r := c.read(t, c.chat(t, inherits, chatBody("hi"), http.Header{"Service-Project": {"logged"}, "Service-Content-Log": {"off"}}), c.key); r.Status != 404 {
			t.Errorf("after the project allows it: %d %s", r.Status, r.Body)
		}
	})
}

// N13: a key that manages keys doesn't turn off what an owner turned on.
func TestKeysCannotHideMoreContentThanTheKeyThatManagesThem(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		thirty, ten := int64(30), int64(10)
		for name, x := range map[string]struct {
			by      access.Key
			in      map[string]any
			refused string // the field
		}{
			"no settings":                         {by: access.Key{}, in: map[string]any{"name": "new"}},
			"an opt-out":                          {access.Key{}, map[string]any{"content_log_opt_out": true}, "content_log_opt_out"},
			"the key's own opt-out":               {by: access.Key{ContentOptOut: true}, in: map[string]any{"content_log_opt_out": true}},
			"no log, instead of the project's":    {access.Key{}, map[string]any{"content_log_days": 0}, "content_log_days"},
			"no log, instead of the key's":        {access.Key{ContentDays: &thirty}, map[string]any{"content_log_days": 0}, "content_log_days"},
			"the project's, instead of the key's": {access.Key{ContentDays: &thirty}, map[string]any{"content_log_days": nil}, "content_log_days"},
			"fewer days":                          {access.Key{ContentDays: &thirty}, map[string]any{"content_log_days": 10}, "content_log_days"},
			"more days":                           {by: access.Key{ContentDays: &ten}, in: map[string]any{"content_log_days": 30}},
			"an opt-out, with projects:write":     {by: access.Key{Scopes: []string{"projects:write"}}, in: map[string]any{"content_log_opt_out": true, "content_log_days": 0}},
		} {
			x.by.Tenant, x.by.Name, x.by.Scopes = c.w.In(accounts.Test), name, append(x.by.Scopes, "keys:write", "keys:read")
			manager, id := s.KeyOf(t, &x.by)
			child := newKey(manager, map[string]any{"name": "child", "scopes": []string{"keys:read"}, "content_log_days": x.by.ContentDays})
			for field, value := range x.in {
				child.Body.(map[string]any)[field] = value
			}
			for _, request := range []harness.Request{child, {Method: "PATCH", Path: "/v1/keys/" + id, Key: manager, Body: x.in}} {
				switch r := c.Do(t, request); {
				case x.refused == "" && r.Status != 200:
					t.Errorf("%s: %s: %d %s", name, request.Method, r.Status, r.Body)
				case x.refused != "" && (r.Status != 403 || r.Text("error.param") != x.refused):
					t.Errorf("%s: %s: got %d %s, want 403 for %s", name, request.Method, r.Status, r.Body, x.refused)
				}
			}
		}
		// What hides content can be revoked by a key that couldn't create it.
		manager, _ := s.Key(t, c.w, accounts.Test, "keys:write")
		_, id := s.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "hidden", Scopes: []string{"keys:write"}, ContentOptOut: true})
		c.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + id, Key: manager, Body: map[string]any{"name": "n"}}).Want(t, 403, "insufficient_scope")
		c.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + id, Key: manager}).Want(t, 200, "")
	})
}

func TestContentIsReadOnlyWithItsScopeAndRecorded(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		c.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: c.key, Body: map[string]any{"id": "alpha"}}).Want(t, 200, "")
		id := c.chat(t, c.loggedKey(t), chatBody("hi"), http.Header{"Service-Project": {"alpha"}})
		everything, _ := s.Key(t, c.w, accounts.Test)
		c.read(t, id, everything).Want(t, 403, "insufficient_scope")
		c.Do(t, newKey(everything, map[string]any{"name": "n", "scopes": []string{"content:read"}})).Want(t, 403, "insufficient_scope")
		c.Do(t, mint(c.key, map[string]any{"scopes": []string{"content:read"}})).Want(t, 403, "scoped_token_not_allowed")
		live, _ := s.Key(t, c.w, accounts.Live, "content:read")
		other, _ := s.Key(t, s.Workspace(t, "other"), accounts.Test, "content:read")
		beta, _ := s.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "beta", Scopes: []string{"content:read"}, Project: "beta"})
		for name, key := range map[string]string{"the other environment": live, "another workspace": other, "another project": beta} {
			if r := c.read(t, id, key); r.Status != 404 {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
		reads := func() int {
			r := c.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions?limit=100", Key: c.key}).Want(t, 200, "")
			return strings.Count(string(r.Body), `"content.read"`)
		}
		if n := reads(); n != 0 {
			t.Errorf("%d reads are recorded before the first", n)
		}
		alpha, _ := s.KeyOf(t, &access.Key{Tenant: c.w.In(accounts.Test), Name: "alpha", Scopes: []string{"content:read"}, Project: "alpha"})
		c.read(t, id, alpha).Want(t, 200, "")
		c.read(t, id, c.key).Want(t, 200, "")
		if n := reads(); n != 2 {
			t.Errorf("%d reads are recorded, want 2", n)
		}
	})
}

func TestNoContentWithoutItsRecordInTheAdminLog(t *testing.T) {
	t.Parallel()
	c := newContentReader(t, harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock()))
	id := c.chat(t, c.loggedKey(t), chatBody("confidential"), nil)
	if err := c.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "CREATE TRIGGER full BEFORE INSERT ON admin_actions BEGIN SELECT RAISE(ABORT, 'no'); END")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if r := c.read(t, id, c.key); r.Status < 500 || bytes.Contains(r.Body, []byte("confidential")) {
		t.Errorf("got %d %s, want an error without content", r.Status, r.Body)
	}
}

func TestContentInTheDatabaseIsMaskedAndEncrypted(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		secret, phrase := "sk-proj-"+strings.Repeat("Ab1x", 12), "an unlikely phrase"
		stream := chatBody("[[sim:text=the key " + secret + " of " + phrase + "]]")
		stream["stream"] = true
		key := c.loggedKey(t)
		for _, body := range []map[string]any{chatBody(phrase + " " + secret), stream} {
			r := c.read(t, c.chat(t, key, body, nil), c.key).Want(t, 200, "")
			if bytes.Contains(r.Body, []byte(secret)) || !strings.Contains(r.Text("request.body"), "sk-proj-***") || !strings.Contains(r.Text("request.body"), phrase) {
				t.Errorf("content is %s", r.Body)
			}
			if body["stream"] == true && (r.At("response.streamed") != true || !strings.Contains(r.Text("response.body"), "the key sk-proj-*** of "+phrase)) {
				t.Errorf("the stream is %s", r.Body)
			}
		}
		dump := c.DumpDatabase(t)
		for _, hidden := range []string{secret, phrase, "sim:text"} {
			if bytes.Contains(dump, []byte(hidden)) {
				t.Errorf("%q is in the database", hidden)
			}
		}
	})
}

func TestContentOfEveryFace(t *testing.T) {
	t.Parallel()
	c := newContentReader(t, harness.Shared("sqlite"))
	key := c.loggedKey(t)
	form, header := formOf(t, "b", formPart{"image", "a.png", "image/png", upstreams.PNG()}, formPart{name: "prompt", data: []byte("a ferry")})
	for _, f := range []struct {
		path              string
		body              any
		header            http.Header
		request, response string
	}{
		{"/v1/completions", map[string]any{"model": "gpt-4o-mini", "prompt": "a ferry"}, nil, "a ferry", "text_completion"},
		{"/v1/completions", map[string]any{"model": "gpt-4o-mini", "prompt": "a ferry", "stream": true}, nil, "a ferry", `"finish_reason"`},
		{"/v1/responses", map[string]any{"model": "gpt-4o-mini", "input": "a ferry"}, nil, "a ferry", `"object":"response"`},
		{"/v1/responses", map[string]any{"model": "gpt-4o-mini", "input": "a ferry", "stream": true}, nil, "a ferry", `"object":"response"`},
		{"/v1/messages", messageBody("gpt-4o-mini", "a ferry", nil), nil, "a ferry", `"stop_reason"`},
		{"/v1/messages", messageBody("gpt-4o-mini", "a ferry", map[string]any{"stream": true}), nil, "a ferry", `"stop_reason":"end_turn"`},
		{"/v1/embeddings", map[string]any{"model": "text-embedding-3-small", "input": "a ferry"}, nil, "a ferry", "1536 numbers"},
		{"/v1/images/generations", map[string]any{"prompt": "a ferry", "size": "64x64"}, nil, "a ferry", "[binary, "},
		{"/v1/images/generations", map[string]any{"prompt": "a ferry", "size": "64x64", "stream": true}, nil, "a ferry", "image_generation.completed"},
		{"/v1/images/edits", form, header, "[image/png, ", "[binary, "},
		{"/v1/audio/speech", map[string]any{"model": "tts-1", "voice": "alloy", "input": "a ferry"}, nil, "a ferry", "[audio/"},
		{"/v1/audio/speech", map[string]any{"model": "tts-1", "voice": "alloy", "input": "a ferry", "stream_format": "sse"}, nil, "a ferry", "speech.audio.delta"},
	} {
		r := c.Do(t, harness.Request{Method: "POST", Path: f.path, Key: key, Body: f.body, Header: f.header}).Want(t, 200, "")
		id := r.Header.Get("X-Request-Id")
		settled(t, c.Server, c.key, id)
		content := c.read(t, id, c.key).Want(t, 200, "")
		if !strings.Contains(content.Text("request.body"), f.request) || !strings.Contains(content.Text("response.body"), f.response) || len(content.Body) > 8<<10 {
			t.Errorf("%s: content is %.2000s, want %s and %s", f.path, content.Body, f.request, f.response)
		}
	}
	// A request that fails has its error.
	failed := c.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("[[sim:error=500]]")})
	if r := c.read(t, failed.Header.Get("X-Request-Id"), c.key).Want(t, 200, ""); !strings.Contains(r.Text("response.body"), `"error"`) {
		t.Errorf("content of a failure is %s", r.Body)
	}
}

func TestContentIsPurged(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		c := newContentReader(t, s)
		purge := func(after time.Duration) {
			s.Clock.Turn(after)
			if err := s.App.RunRetention(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		key := c.loggedKey(t)
		id := c.chat(t, key, chatBody("hi"), nil)
		purge(6 * 24 * time.Hour)
		c.read(t, id, c.key).Want(t, 200, "")
		s.Clock.Turn(25 * time.Hour)
		c.read(t, id, c.key).Want(t, 404, "not_found") // even before the purge
		purge(0)
		if n := c.stored(t); n != 0 {
			t.Errorf("%d contents are left", n)
		}
		// The content of an end user is deleted with the user.
		token := c.Do(t, mint(key, map[string]any{"scopes": []string{"chat.completions:create"}, "user": "u7"})).Want(t, 200, "")
		id = c.chat(t, token.Text("value"), chatBody("hi"), nil)
		other := c.chat(t, key, chatBody("hi"), nil)
		user := c.Do(t, harness.Request{Method: "GET", Path: "/v1/users?user=u7", Key: c.key}).Want(t, 200, "").Text("data.0.id")
		c.Do(t, harness.Request{Method: "DELETE", Path: "/v1/users/" + user, Key: c.key}).Want(t, 200, "")
		c.read(t, id, c.key).Want(t, 404, "not_found")
		c.read(t, other, c.key).Want(t, 200, "")
		if n := c.stored(t); n != 1 {
			t.Errorf("%d contents are left, want that of the other request", n)
		}
		// A request that was in progress ends later.
		if err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO request_contents SELECT 'req_late', workspace_id, environment, $1, content, expires_at FROM request_contents", user)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		purge(time.Hour)
		if n := c.stored(t); n != 1 {
			t.Errorf("%d contents are left, want that of the other request", n)
		}
		purge(25 * time.Hour)
		if n, err := db.Value[int64](s.DB.QueryRow(t.Context(), "SELECT count(*) FROM content_deletions")); n != 0 || err != nil {
			t.Errorf("%d deletions are left: %v", n, err)
		}
	})
}
