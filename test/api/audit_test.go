package api_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/ids"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestEveryAuthenticatedRequestIsLoggedOnce(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, keyID := s.Key(t, w, accounts.Test)
		token := s.Do(t, mint(key, map[string]any{"scopes": []string{"chat.completions:create"}, "metadata": map[string]any{"user": "u7"}})).Want(t, 200, "")
		want := map[string]int{}
		did := func(r *harness.Response) *harness.Response {
			want[r.Header.Get("X-Request-Id")] = r.Status
			return r
		}
		did(s.Do(t, models(key)))
		did(s.Do(t, harness.Request{Method: "GET", Path: "/v1/nothing", Key: key}))
		did(s.Do(t, harness.Request{Method: "PUT", Path: "/v1/keys", Key: key}))
		did(s.Do(t, newKey(key, map[string]any{"name": "n"})))
		made := did(s.Do(t, newKey(key, map[string]any{"name": "n", "scopes": []string{"models:read"}})))
		did(s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("[[sim:error=500]]")}))
		chat := did(s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token.Text("value"), Body: chatBody("hello")}))
		stream := chatBody("hello")
		stream["stream"] = true
		did(s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: stream}))
		s.Do(t, models("tp_test_wrong")).Want(t, 401, "authentication_error") // isn't logged

		for id, status := range want {
			r := settled(t, s, key, id)
			if r.At("status") != float64(status) || r.Text("key_id") != keyID || r.Text("ip") != "127.0.0.1" {
				t.Errorf("the entry of a %d: %s", status, r.Body)
			}
		}
		entry := settled(t, s, key, chat.Header.Get("X-Request-Id"))
		if entry.Text("model") != "gpt-4o-mini" || entry.Text("provider") != "simulator" || entry.Text("scoped_token_id") != token.Text("id") ||
			entry.Text("token_metadata.user") != "u7" || entry.At("input_tokens") != chat.At("usage.prompt_tokens") ||
			entry.At("credits") != 0.0 || entry.At("simulated_credits") == 0.0 || entry.Text("usage_source") != "provider" {
			t.Errorf("the chat's entry: %s", entry.Body)
		}
		actions := string(s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions", Key: key}).Want(t, 200, "").Body)
		if !strings.Contains(actions, `"key.created"`) || !strings.Contains(actions, made.Text("id")) || !strings.Contains(actions, made.Header.Get("X-Request-Id")) {
			t.Errorf("the admin log does not say who made the key: %s", actions)
		}
	})
}

// settled returns a request's entry. It is logged immediately, and complete
// shortly after the response ends.
func settled(t *testing.T, s *harness.Server, key, id string) (entry *harness.Response) {
	t.Helper()
	s.Eventually(t, func() bool {
		entry = s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id, Key: key}).Want(t, 200, "")
		return entry.At("status") != nil
	})
	return entry
}

func TestAuditIsFilteredAndExportedAsCSV(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		other, otherID := s.Key(t, w, accounts.Test)
		for range 3 {
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: other, Body: chatBody("hello")}).Want(t, 200, "")
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/nothing", Key: other, Header: http.Header{"User-Agent": {"=cmd()"}}}).Want(t, 404, "not_found")
		count := func(filter string) int {
			r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=100&" + filter, Key: key}).Want(t, 200, "")
			return len(r.At("data").([]any))
		}
		now := s.Clock.Now().Unix()
		s.Eventually(t, func() bool { return count("status=200&model=gpt-4o-mini") == 3 })
		for filter, n := range map[string]int{
			"key=" + otherID:                   4,
			"model=gpt-4o-mini":                3,
			"status=404":                       1,
			"status=404&key=" + otherID:        1,
			"model=gpt-4o-mini&status=404":     0,
			"ip=127.0.0.1&key=" + otherID:      4,
			"ip=10.0.0.1":                      0,
			"project=none":                     0,
			fmt.Sprintf("start=%d", now+86400): 0,
			fmt.Sprintf("end=%d", now-86400):   0,
			fmt.Sprintf("start=%d&end=%d&key=%s", now-3600, now+3600, otherID): 4,
		} {
			if got := count(filter); got != n {
				t.Errorf("%s: %d entries, want %d", filter, got, n)
			}
		}
		for _, bad := range []string{"start=x", "end=-1", "key=tp_live_x", "status=9", "format=xml", "who=me"} {
			if r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?" + bad, Key: key}); r.Status != 400 {
				t.Errorf("%s: %d", bad, r.Status)
			}
		}
		r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?key=" + otherID, Key: key, Header: http.Header{"Accept": {"text/csv"}}}).Want(t, 200, "")
		rows, err := csv.NewReader(bytes.NewReader(r.Body)).ReadAll()
		if err != nil || len(rows) != 5 || rows[0][0] != "request_id" {
			t.Errorf("the CSV has %d rows: %v\n%s", len(rows), err, r.Body)
		}
		if strings.Contains(string(r.Body), ",=cmd()") {
			t.Error("a stranger's header is a formula in the CSV")
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit", Key: key, Header: http.Header{"Accept": {"image/png"}}}).Want(t, 406, "not_acceptable")
	})
}

func TestUnindexedFilterScansABoundedPart(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, keyID := s.Key(t, w, accounts.Test)
		// The oldest of 25,000 entries has a different model.
		s.FillRequests(t, w, keyID, 25_000)
		path := "/v1/audit?model=rare&limit=5"
		pages, found := 0, 0
		for after := ""; ; pages++ {
			r := s.Do(t, harness.Request{Method: "GET", Path: path + after, Key: key}).Want(t, 200, "")
			found += len(r.At("data").([]any))
			if r.At("has_more") != true {
				break
			}
			after = "&after=" + r.Text("last_id")
			if pages > 10 {
				t.Fatal("the cursor does not get to the end")
			}
		}
		if found != 1 || pages < 2 {
			t.Errorf("found %d of 1 in %d partial pages", found, pages)
		}
		r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?format=csv&model=common", Key: key}).Want(t, 200, "")
		if n := bytes.Count(r.Body, []byte("\n")); n != 25_000 {
			t.Errorf("the CSV has %d lines, want 24,999 and the header", n)
		}
	})
}

func TestIssuedSecretsAreStoredNowhere(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		made := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: admin, Body: map[string]any{"name": "n", "scopes": []string{"*"}},
			Header: http.Header{"Idempotency-Key": {"once"}}}).Want(t, 200, "")
		rotated := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + made.Text("id") + "/rotate", Key: admin}).Want(t, 200, "")
		token := s.Do(t, mint(admin, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
		secrets := []string{admin, made.Text("value"), rotated.Text("value"), token.Text("value")}
		leaked := admin
		admin, _ = s.Key(t, w, accounts.Test)
		for _, secret := range secrets {
			// People put keys into the path, the query and the user agent by
			// mistake. The server revokes such a key.
			s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + secret + "?key=" + secret, Key: admin, Header: http.Header{"User-Agent": {"curl " + secret}}}).Want(t, 400, "invalid_parameter")
			s.Do(t, inProject(admin, secret)).Want(t, 400, "invalid_parameter")
			s.Do(t, newKey(admin, map[string]any{"name": "key " + secret, "scopes": []string{"*"}})).Want(t, 400, "invalid_parameter")
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: admin, Body: map[string]any{"name": "n", "scopes": []string{"*"}},
				Header: http.Header{"Idempotency-Key": {secret}}}).Want(t, 400, "invalid_parameter")
		}
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: leaked}).Want(t, 401, "authentication_error")
		audit := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=100", Key: admin}).Want(t, 200, "").Body
		csv := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?format=csv", Key: admin}).Want(t, 200, "").Body
		actions := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions", Key: admin}).Want(t, 200, "").Body
		places := map[string][]byte{"audit": audit, "csv": csv, "actions": actions, "database": s.DumpDatabase(t)}
		if s.DB.Engine() == "sqlite" {
			files, err := filepath.Glob(filepath.Join(s.Data, "turnpike.db*"))
			if err != nil || len(files) == 0 {
				t.Fatal("no database files to search", err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				places[filepath.Base(f)] = b
			}
		}
		for place, content := range places {
			if len(content) < 100 {
				t.Errorf("%s has only %d bytes: nothing was searched", place, len(content))
			}
			for i, secret := range secrets {
				if bytes.Contains(content, []byte(secret)) || bytes.Contains(content, []byte(secret[10:])) {
					t.Errorf("secret %d is in the %s", i, place)
				}
			}
		}
	})
}

func TestKeysInErrorsAndAdminLogAreMasked(t *testing.T) {
	eachShared(t, sqlite, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		secret, _ := s.Key(t, w, accounts.Test)
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/webhooks", Key: admin, Body: map[string]any{"url": "https://example.com/hook?key=" + secret, "events": []string{"*"}}})
		refused := s.Do(t, newKey(admin, map[string]any{"name": "n", "scopes": []string{secret}})).Want(t, 400, "invalid_parameter").Body
		actions := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/actions", Key: admin}).Want(t, 200, "").Body
		field := s.Do(t, newKey(admin, map[string]any{secret: "n"})).Want(t, 400, "unknown_parameter").Body
		model := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: admin, Body: map[string]any{"model": secret, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}}).Want(t, 404, "model_not_found").Body
		for place, content := range map[string][]byte{"error": refused, "error about a field": field, "error about a model": model, "admin log": actions} {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("the %s shows a key: %s", place, content)
			}
		}
	})
}

func TestRejectedCallIsNotLoggedAsServed(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	s.Do(t, models(key)).Want(t, 200, "")
	release := s.HoldTheWriter(t)
	r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: chatBody("hi")}).Want(t, 503, "storage_unavailable")
	if wait := r.Header.Get("Retry-After"); wait != "5" {
		t.Errorf("Retry-After: got %q, want 5", wait)
	}
	release()
	s.Eventually(t, func() bool {
		return s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + r.Header.Get("X-Request-Id"), Key: key}).Status == 200
	})
	entry := settled(t, s, key, r.Header.Get("X-Request-Id"))
	if entry.At("status") != 503.0 || entry.Text("error_code") != "storage_unavailable" || entry.At("output_tokens") != nil {
		t.Errorf("logged as %s", entry.Body)
	}
}

// The log becomes writable after the stream has given up waiting for it, and before the client has the error.
func TestRejectedStreamIsNotCharged(t *testing.T) {
	t.Parallel()
	m := newGateway(t, "sqlite", nil)
	m.chat(t, body("small", "hi", nil)).Want(t, 200, "") // leases credits
	m.openai.Queue(upstreams.OpenAIReply{Text: "one two three four five six seven", Stall: 1000})
	release := m.HoldTheWriter(t)
	defer release()
	go func() {
		<-m.openai.Wait(2).Gone
		release()
	}()
	r := m.chat(t, body("small", "hi", map[string]any{"stream": true})).Want(t, 503, "storage_unavailable")
	m.Eventually(t, func() bool { return m.ask(t, "GET", "/v1/audit/"+r.Header.Get("X-Request-Id"), nil).Status == 200 })
	if e := m.entry(t, r); e.At("status") != 503.0 || amount(t, e, "credits") != 0 {
		t.Errorf("logged as %s", e.Body)
	}
}

func TestRejectedMediaStreamIsNotCharged(t *testing.T) {
	for path, ask := range map[string]map[string]any{
		"/v1/images/generations": {"model": "pic", "prompt": "a lighthouse", "stream": true},
		"/v1/audio/speech":       {"model": "talk", "voice": "alloy", "input": "The ferry leaves at seven.", "stream_format": "sse"},
	} {
		t.Run(path, func(t *testing.T) {
			eachMedia(t, sqlite, nil, func(t *testing.T, m *mediaClient) {
				first := m.ask(t, "POST", path, ask).Want(t, 200, "") // leases credits
				if e := m.entry(t, first); amount(t, e, "credits") == 0 {
					t.Fatalf("the stream is free: %s", e.Body)
				}
				release := m.HoldTheWriter(t)
				defer release()
				r := m.ask(t, "POST", path, ask).Want(t, 503, "storage_unavailable")
				release()
				m.Eventually(t, func() bool { return m.ask(t, "GET", "/v1/audit/"+r.Header.Get("X-Request-Id"), nil).Status == 200 })
				if e := m.entry(t, r); e.At("status") != 503.0 || amount(t, e, "credits") != 0 {
					t.Errorf("logged as %s", e.Body)
				}
				if b := m.get(t, "/v1/billing"); b.At("reserved") != 0.0 {
					t.Errorf("billing is %s, want nothing reserved", b.Body)
				}
			})
		})
	}
}

func TestRequestIDsOrderTheLog(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		first := s.Do(t, models(key)).Header.Get("X-Request-Id")
		second := s.Do(t, models(key)).Header.Get("X-Request-Id")
		if !ids.Valid(ids.Request, first) || first >= second {
			t.Errorf("%s, then %s", first, second)
		}
		r := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?order=asc&after=" + first, Key: key}).Want(t, 200, "")
		if r.Text("data.0.id") != second {
			t.Errorf("after the first comes %s", r.Text("data.0.id"))
		}
	})
}

// TestLogExplainsFailures checks that the log has all that the client was told about a failure.
func TestLogExplainsFailures(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(1)
		zero := credits.Micro(0)
		perMinute := int64(1)
		poor, slow := m.withKey(t, access.Key{MonthlyBudget: &zero}), m.withKey(t, access.Key{RateLimit: &perMinute})
		m.post(t, "/v1/projects", map[string]any{"id": "shop", "limits": []any{map[string]any{"budget": 0, "window": "day"}}})
		limit := m.get(t, "/v1/projects/shop").Text("limits.0.id")
		slow.chat(t, oneCreditBody()).Want(t, 200, "")
		for name, tt := range map[string]struct {
			response *harness.Response
			asked    any
			by       map[string]any
		}{
			"unknown model": {m.chat(t, body("gpt-nonexistent", "hi", nil)).Want(t, 404, "model_not_found"), "gpt-nonexistent", nil},
			"invalid field": {m.chat(t, body("small", "hi", map[string]any{"max_tokens": "many"})).Want(t, 400, "invalid_parameter"), "small", nil},
			"other path":    {m.ask(t, "GET", "/v1/nothing", nil).Want(t, 404, "not_found"), nil, nil},
			"key":           {poor.chat(t, oneCreditBody()).Want(t, 402, "budget_exceeded"), "small", map[string]any{"kind": "budget", "level": "key", "limit_id": nil}},
			"rate":          {slow.chat(t, oneCreditBody()).Want(t, 429, "rate_limit_exceeded"), "small", map[string]any{"kind": "requests_per_minute", "level": "key", "limit_id": nil}},
			"project": {m.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: m.key, Body: oneCreditBody(), Header: http.Header{"Service-Project": {"shop"}}}).
				Want(t, 402, "budget_exceeded"), "small", map[string]any{"kind": "budget", "level": "project", "id": "shop", "limit_id": limit}},
		} {
			entry := m.entry(t, tt.response)
			if entry.At("error_message") != tt.response.At("error.message") || entry.At("error_param") != tt.response.At("error.param") || entry.At("error_message") == nil {
				t.Errorf("%s: logged %v of %v, want what the client got: %s", name, entry.At("error_message"), entry.At("error_param"), tt.response.Body)
			}
			if got := entry.At("requested_model"); got != tt.asked {
				t.Errorf("%s: logged a request for %v, want %v", name, got, tt.asked)
			}
			if tt.by == nil && entry.At("refused_by") != nil {
				t.Errorf("%s: refused by %v, want null", name, entry.At("refused_by"))
			}
			for field, want := range tt.by {
				if got := entry.At("refused_by." + field); got != want {
					t.Errorf("%s: refused by %s %v, want %v", name, field, got, want)
				}
			}
			if level := entry.At("refused_by.level"); level == "key" && entry.At("refused_by.id") != entry.At("key_id") {
				t.Errorf("%s: refused by %s, want the key: %s", name, entry.At("refused_by.id"), entry.Body)
			}
		}
		csv := m.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?format=csv&status=404", Key: m.key}).Want(t, 200, "")
		if !strings.Contains(string(csv.Body), "requested_model,error_message,error_param,refused_by,queue_ms,first_token_ms\n") || !strings.Contains(string(csv.Body), `,gpt-nonexistent,"Unknown model ""gpt-nonexistent""`) {
			t.Errorf("exported %s", csv.Body)
		}
	})
}
