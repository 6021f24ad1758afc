package api_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/leaks"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

func leak(body any) harness.Request {
	return harness.Request{Method: "POST", Path: "/leaks/report", Body: body}
}

func leakOf(keys ...string) harness.Request { return leak(map[string]any{"keys": keys}) }

// strangersKey has a key's format and checksum, but was never created. It is
// split, so that a scan of this repository finds nothing.
const strangersKey = "tp_live_" + "NobodyHasEverBeenGivenThisSecret2XK4HZ"

// wantAccepted checks the response to a report, which is always the same.
func wantAccepted(t *testing.T, r *harness.Response) {
	t.Helper()
	if r.Status != 202 || string(r.Body) != `{"object":"leak_report","status":"accepted"}` {
		t.Fatalf("a report was answered with %d %s", r.Status, r.Body)
	}
}

// spare creates another key.
func (c *client) spare(t *testing.T) (value, id string) {
	t.Helper()
	return c.Key(t, c.workspace, c.env)
}

func (c *client) leakNotes(t *testing.T) []*leaks.Note {
	t.Helper()
	list, _, err := leaks.List(t.Context(), c.DB, c.workspace.In(c.env), db.Page{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func outcomesOf(list []*leaks.Note) (out []leaks.Outcome) {
	for _, n := range slices.Backward(list) {
		out = append(out, n.Outcome)
	}
	return out
}

// plainMail returns an email without its transport encoding.
func plainMail(m smtp.Message) string {
	return strings.NewReplacer("=\n", "", "=3D", "=").Replace(string(m.Data))
}

func TestLeakedKeyIsRevokedAndItsOwnersAreNotified(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		r := newReceiver(t, c.Clock, respond(200))
		_, secret := c.endpoint(t, r.URL, "key.*")
		key, id := c.spare(t)
		c.Do(t, models(key)).Want(t, 200, "")
		child := c.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		wantAccepted(t, c.Do(t, leak(map[string]any{"keys": []string{key}, "url": "https://user:pw@git.example.com/app/.env?x=1#L3"})))
		c.Do(t, models(key)).Want(t, 401, "authentication_error")
		got := r.wait(t, c, 1)[0]
		c.Do(t, models(child)).Want(t, 401, "authentication_error")
		c.Do(t, models(c.key)).Want(t, 200, "")

		hint := "tp_live_…" + key[len(key)-4:]
		var event struct {
			Type        string
			Environment string
			Workspace   string
			Data        map[string]any
		}
		decode(t, got.body, &event)
		if !got.signedBy(secret) || event.Type != "key.auto_revoked" || event.Environment != "live" || event.Workspace != c.workspace.ID ||
			event.Data["key_id"] != id || event.Data["key_hint"] != hint || event.Data["source"] != "report" ||
			event.Data["url"] != "https://git.example.com/app/.env#L3" || event.Data["detected_at"] != float64(c.Clock.Now().Unix()) {
			t.Errorf("got event %s", got.body)
		}
		var to []string
		for _, m := range mails.Wait(t, 2) {
			to = append(to, m.To...)
			text := plainMail(m)
			for _, want := range []string{"revoked", id, "https://git.example.com/app/.env#L3", "someone who reported it", "/v1/audit?key=" + id} {
				if !strings.Contains(text, want) {
					t.Errorf("the mail lacks %q:\n%s", want, text)
				}
			}
		}
		if slices.Sort(to); !slices.Equal(to, []string{"admin@example.com", "owner@example.com"}) {
			t.Errorf("the mails went to %v", to)
		}

		// A second report only adds a note.
		wantAccepted(t, c.Do(t, leakOf(key)))
		if n := c.rows(t, "events"); n != 1 {
			t.Errorf("got %d events", n)
		}
		if n := c.rows(t, "mails"); n != 2 {
			t.Errorf("got %d emails", n)
		}
		if n := c.rows(t, "admin_actions WHERE action = 'key.revoked' AND actor = 'leak scanner' AND target = '"+id+"'"); n != 1 {
			t.Errorf("the admin log has it %d times", n)
		}
		notes := c.leakNotes(t)
		if !slices.Equal(outcomesOf(notes), []leaks.Outcome{leaks.Revoked, leaks.Already}) {
			t.Fatalf("got leak notes %v", outcomesOf(notes))
		}
		if n := notes[1]; n.KeyID != id || n.Hint != hint || n.Source != leaks.Public || n.URL != "https://git.example.com/app/.env#L3" || !n.ReportedAt.Equal(c.Clock.Now().Truncate(time.Microsecond)) {
			t.Errorf("the note is %+v", n)
		}
		if dump := c.DumpDatabase(t); !bytes.Contains(dump, []byte(id)) || bytes.Contains(dump, []byte(key[8:])) || bytes.Contains(dump, []byte(child[10:])) {
			t.Error("a secret is in the database")
		}
	})
}

func TestLeakReportsGetTheSameResponseAndBoundedNotes(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Leaks.ReportPerMinute = 0 }, func(t *testing.T, c *client) {
		key, id := c.spare(t)
		wantAccepted(t, c.Do(t, leakOf(strangersKey, "hunter2", "")))
		if n := c.rows(t, "leak_reports"); n != 0 {
			t.Errorf("%d notes of what is not ours", n)
		}
		// Any text is accepted.
		plain := leak("KEY=" + key + "\nOTHER=" + strangersKey)
		plain.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		wantAccepted(t, c.Do(t, plain))
		c.Do(t, models(key)).Want(t, 401, "authentication_error")
		wantAccepted(t, c.Do(t, leakOf(slices.Repeat([]string{" " + key + "\n"}, 100)...)))
		wantAccepted(t, c.Do(t, leakOf(slices.Repeat([]string{key}, 100)...)))
		if n := c.rows(t, "leak_reports WHERE key_id = '"+id+"'"); n != 100 {
			t.Errorf("there are %d notes, want as many as the bound", n)
		}

		other, _ := c.spare(t)
		c.Do(t, leakOf(append(slices.Repeat([]string{strangersKey}, 100), other)...)).Want(t, 400, "invalid_parameter")
		c.Do(t, leak(map[string]any{"keys": []string{other}, "source": "github"})).Want(t, 400, "invalid_parameter")
		c.Do(t, leak(map[string]any{"keys": []string{other}, "extra": 1})).Want(t, 400, "unknown_parameter")
		c.Do(t, leak(map[string]any{})).Want(t, 400, "missing_parameter")
		c.Do(t, leak("[]")).Want(t, 400, "invalid_json")
		c.Do(t, leakOf(other, strings.Repeat("x", 64<<10))).Want(t, 413, "request_too_large")
		c.Do(t, harness.Request{Method: "GET", Path: "/leaks/report"}).Want(t, 405, "method_not_allowed")
		c.Do(t, models(other)).Want(t, 200, "")
	})
}

func TestLeakReportsAreLimitedByAddress(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Leaks.ReportPerMinute = 2 }, func(t *testing.T, c *client) {
		key, _ := c.spare(t)
		for range 2 {
			wantAccepted(t, c.Do(t, leakOf(strangersKey)))
		}
		r := c.Do(t, leakOf(key)).Want(t, 429, "rate_limit_exceeded")
		if r.Header.Get("Retry-After") == "" {
			t.Error("it does not say when to come again")
		}
		c.Do(t, models(key)).Want(t, 200, "")
		c.Clock.Turn(time.Minute)
		wantAccepted(t, c.Do(t, leakOf(key)))
		c.Do(t, models(key)).Want(t, 401, "authentication_error")
	})
}

func TestLeakReportAffectsOnlyItsTenantAndEnvironment(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		test := c.withTestKey(t)
		neighbor := newClient(t, c.Server, accounts.Test)
		all := map[string]*receiver{}
		for name, who := range map[string]*client{"live": c, "test": test, "neighbor": neighbor} {
			all[name] = newReceiver(t, c.Clock, respond(200))
			who.endpoint(t, all[name].URL)
		}
		key, _ := test.spare(t)
		wantAccepted(t, c.Do(t, leakOf(key)))
		all["test"].wait(t, c, 1)
		// The next event shows that no other came before it.
		c.publish(t, creditsLow)
		neighbor.publish(t, creditsLow)
		for _, name := range []string{"live", "neighbor"} {
			if got := all[name].wait(t, c, 1)[0]; bytes.Contains(got.body, []byte("auto_revoked")) {
				t.Errorf("%s was told: %s", name, got.body)
			}
		}
		if len(test.leakNotes(t)) != 1 || len(c.leakNotes(t)) != 0 || len(neighbor.leakNotes(t)) != 0 {
			t.Error("a note is in the wrong place")
		}
	})
}

func TestConcurrentLeakReportsNotifyOnce(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		key, _ := c.spare(t)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() { wantAccepted(t, c.Do(t, leakOf(key))) })
		}
		group.Wait()
		if n := c.rows(t, "events"); n != 1 {
			t.Errorf("got %d events", n)
		}
		if n := c.rows(t, "mails"); n != 2 {
			t.Errorf("got %d emails", n)
		}
		notes := outcomesOf(c.leakNotes(t))
		slices.Sort(notes)
		if want := append(slices.Repeat([]leaks.Outcome{leaks.Already}, 7), leaks.Revoked); !slices.Equal(notes, want) {
			t.Errorf("got leak notes %v", notes)
		}
	})
}

func TestLeakedOldSecretEndsOnlyItsGracePeriod(t *testing.T) {
	eachMailed(t, sqlite, func(t *testing.T, c *client, mails *smtp.Server) {
		old, id := c.spare(t)
		now := c.post(t, "/v1/keys/"+id+"/rotate", nil).Text("value")
		c.Do(t, models(old)).Want(t, 200, "")
		wantAccepted(t, c.Do(t, leakOf(old)))
		c.Do(t, models(old)).Want(t, 401, "authentication_error")
		c.Do(t, models(now)).Want(t, 200, "")
		if status := c.get(t, "/v1/keys/"+id).Text("status"); status != "active" {
			t.Errorf("the key is %s", status)
		}
		if text := plainMail(mails.Wait(t, 2)[0]); !strings.Contains(text, "rotation's grace period") || !strings.Contains(text, "new secret still works") {
			t.Errorf("got email\n%s", text)
		}
		wantAccepted(t, c.Do(t, leakOf(now)))
		c.Do(t, models(now)).Want(t, 401, "authentication_error")
		// The old secret is purged by now.
		if got := outcomesOf(c.leakNotes(t)); !slices.Equal(got, []leaks.Outcome{leaks.GraceEnded, leaks.Revoked}) {
			t.Errorf("got leak notes %v", got)
		}
		if n := c.rows(t, "events"); n != 2 {
			t.Errorf("got %d events", n)
		}
	})
}

func TestLeakOfAnInactiveKeyIsOnlyNoted(t *testing.T) {
	each(t, sqlite, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		old, id := c.spare(t)
		now := c.post(t, "/v1/keys/"+id+"/rotate", map[string]any{"grace_period_seconds": 60}).Text("value")
		c.Clock.Turn(time.Minute)
		wantAccepted(t, c.Do(t, leakOf(old)))
		c.Do(t, models(now)).Want(t, 200, "")
		if got := outcomesOf(c.leakNotes(t)); !slices.Equal(got, []leaks.Outcome{leaks.Already}) {
			t.Errorf("got leak notes %v", got)
		}
		if n := c.rows(t, "events"); n != 0 {
			t.Errorf("got %d events", n)
		}
		// An expired key could be given a new expiry, so it is revoked.
		ends := c.Clock.Now().Add(time.Minute)
		expired, id := c.KeyOf(t, &access.Key{Tenant: c.workspace.In(c.env), Name: "short", Scopes: []string{"*"}, ExpiresAt: &ends})
		c.Clock.Turn(2 * time.Minute)
		wantAccepted(t, c.Do(t, leakOf(expired)))
		if status := c.get(t, "/v1/keys/"+id).Text("status"); status != "revoked" {
			t.Errorf("the expired key is %s", status)
		}
	})
}

func TestLeakedScopedTokenIsRevokedAlone(t *testing.T) {
	each(t, sqlite, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Test)
		body := map[string]any{"scopes": []string{"models:read"}}
		first, second := c.Do(t, mint(c.key, body)).Text("value"), c.Do(t, mint(c.key, body)).Text("value")
		wantAccepted(t, c.Do(t, leakOf(first)))
		c.Do(t, models(first)).Want(t, 401, "authentication_error")
		c.Do(t, models(second)).Want(t, 200, "")
		c.Do(t, models(c.key)).Want(t, 200, "")
		notes := c.leakNotes(t)
		if !slices.Equal(outcomesOf(notes), []leaks.Outcome{leaks.TokenRevoked}) || notes[0].TokenID == "" || notes[0].Hint != "tp_scoped_…"+first[len(first)-4:] {
			t.Errorf("got leak notes %v", notes)
		}
		if n := c.rows(t, "events"); n != 0 {
			t.Errorf("got %d events", n)
		}
	})
}

func TestKeyInAURLIsRejectedAndRevoked(t *testing.T) {
	eachShared(t, sqlite, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		for name, path := range map[string]func(key string) string{
			"query":         func(key string) string { return "/v1/models?api_key=" + key },
			"escaped query": func(key string) string { return "/v1/models?api_key=" + strings.ReplaceAll(key, "_", "%5F") },
			"path":          func(key string) string { return "/v1/models/" + key },
			"escaped path":  func(key string) string { return "/v1/models/" + strings.ReplaceAll(key, "_", "%5F") },
			"no such path":  func(key string) string { return "/v1/nothing/" + key },
		} {
			key, id := c.spare(t)
			r := c.Do(t, harness.Request{Method: "GET", Path: path(key)}).Want(t, 401, "authentication_error")
			if !strings.Contains(r.Text("error.message"), "URL") {
				t.Errorf("%s: it says %s", name, r.Body)
			}
			if status := c.get(t, "/v1/keys/"+id).Text("status"); status != "revoked" {
				t.Errorf("%s: the key is %s", name, status)
			}
			notes := c.leakNotes(t)
			if len(notes) == 0 || notes[0].KeyID != id || notes[0].Source != leaks.Traffic || notes[0].Outcome != leaks.Revoked || notes[0].URL != "" {
				t.Errorf("%s: the last of %d notes is not about it", name, len(notes))
			}
		}
		// With a valid key in the header, only the request is wrong.
		key, _ := c.spare(t)
		c.ask(t, "GET", "/v1/models?key="+url.QueryEscape(key), nil).Want(t, 400, "invalid_parameter")
		c.Do(t, models(key)).Want(t, 401, "authentication_error")
		// The same key in both places is revoked before it is authenticated.
		key, _ = c.spare(t)
		c.Do(t, harness.Request{Method: "GET", Path: "/v1/models?key=" + key, Key: key}).Want(t, 401, "authentication_error")
		// A string that only resembles a key is ignored.
		c.get(t, "/v1/models?key=tp_live_abc")
		if dump := c.DumpDatabase(t); bytes.Contains(dump, []byte(key[8:])) {
			t.Error("the database contains the key")
		}
	})
}

// gitHub signs like GitHub.
type gitHub struct {
	key *ecdsa.PrivateKey
	url string
}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"public_keys": []map[string]any{{"key_identifier": "k1",
		"key": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "is_current": true}}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(list) }))
	t.Cleanup(server.Close)
	return &gitHub{key, server.URL}
}

func (g *gitHub) report(t *testing.T, matches ...map[string]string) harness.Request {
	t.Helper()
	body, err := json.Marshal(matches)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(body)
	signature, err := ecdsa.SignASN1(rand.Reader, g.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return harness.Request{Method: "POST", Path: "/leaks/github", Body: string(body), Header: http.Header{
		"Github-Public-Key-Identifier": {"k1"}, "Github-Public-Key-Signature": {base64.StdEncoding.EncodeToString(signature)}}}
}

func TestGitHubReportNeedsAValidSignature(t *testing.T) {
	g := newGitHub(t)
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Leaks.GitHubKeysURL = g.url }, func(t *testing.T, c *client) {
		key, id := c.spare(t)
		match := map[string]string{"token": key, "type": "turnpike_api_key", "url": "https://github.com/a/b/blob/c/.env", "source": "content"}
		good := g.report(t, match, map[string]string{"token": strangersKey, "type": "turnpike_api_key", "url": "", "source": "commit"})
		for name, change := range map[string]func(r *harness.Request){
			"another body":  func(r *harness.Request) { r.Body = r.Body.(string) + " " },
			"another key":   func(r *harness.Request) { r.Header.Set("Github-Public-Key-Identifier", "k2") },
			"no signature":  func(r *harness.Request) { r.Header.Del("Github-Public-Key-Signature") },
			"no headers":    func(r *harness.Request) { r.Header = nil },
			"another's":     func(r *harness.Request) { r.Header = newGitHub(t).report(t, match).Header },
			"no JSON":       func(r *harness.Request) { r.Body = strings.Repeat("[", 1000) },
			"not in base64": func(r *harness.Request) { r.Header.Set("Github-Public-Key-Signature", "!") },
		} {
			bad := good
			bad.Header = good.Header.Clone()
			change(&bad)
			if r := c.Do(t, bad); r.Status != 403 || r.Code() != "invalid_signature" {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
		c.Do(t, models(key)).Want(t, 200, "")

		for range 2 { // the second is a replay
			var verdicts []map[string]string
			r := c.Do(t, good).Want(t, 200, "")
			decode(t, r.Body, &verdicts)
			sum := sha256.Sum256([]byte(key))
			if len(verdicts) != 2 || len(verdicts[0]) != 3 || verdicts[0]["token_hash"] != hex.EncodeToString(sum[:]) || verdicts[0]["token_type"] != "turnpike_api_key" ||
				verdicts[0]["label"] != "true_positive" || verdicts[1]["label"] != "false_positive" {
				t.Errorf("the answer is %s", r.Body)
			}
			c.Do(t, models(key)).Want(t, 401, "authentication_error")
		}
		if n := c.rows(t, "events"); n != 1 {
			t.Errorf("got %d events", n)
		}
		notes := c.leakNotes(t)
		if !slices.Equal(outcomesOf(notes), []leaks.Outcome{leaks.Revoked, leaks.Already}) || notes[1].Source != leaks.GitHub || notes[1].KeyID != id || notes[1].URL != match["url"] {
			t.Errorf("got leak notes %v", notes)
		}
	})
}

func TestUnverifiedGitHubReportsAreRateLimited(t *testing.T) {
	g := newGitHub(t)
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Leaks.GitHubKeysURL, cfg.Leaks.ReportPerMinute = g.url, 5 }, func(t *testing.T, c *client) {
		good := g.report(t, map[string]string{"token": strangersKey, "type": "turnpike_api_key", "url": "", "source": "commit"})
		forged := good
		forged.Header = http.Header{"Github-Public-Key-Identifier": {"x"}, "Github-Public-Key-Signature": {"AAAA"}}
		for range 10 { // more than the limit
			c.Do(t, good).Want(t, 200, "")
		}
		for range 5 {
			c.Do(t, forged).Want(t, 403, "invalid_signature")
		}
		c.Do(t, forged).Want(t, 429, "rate_limit_exceeded")
		c.Do(t, leakOf(strangersKey)).Want(t, 429, "rate_limit_exceeded")
	})
}

func TestUnreachableGitHubKeepsTheRateLimit(t *testing.T) {
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) {
		cfg.Leaks.GitHubKeysURL, cfg.Leaks.ReportPerMinute = broken.URL, 5
	}, func(t *testing.T, c *client) {
		forged := harness.Request{Method: "POST", Path: "/leaks/github", Body: "[]", Header: http.Header{
			"Github-Public-Key-Identifier": {"x"}, "Github-Public-Key-Signature": {"AAAA"}}}
		for range 5 {
			c.Do(t, forged).Want(t, 502, "upstream_error")
		}
		c.Do(t, forged).Want(t, 429, "rate_limit_exceeded")
	})
}

func TestGitLabReportNeedsItsToken(t *testing.T) {
	const token = "gitlab-shares-this-with-us"
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Leaks.GitLabToken, cfg.Leaks.ReportPerMinute = token, 6 }, func(t *testing.T, c *client) {
		key, _ := c.spare(t)
		send := func(method, authorization string) *harness.Response {
			t.Helper()
			r := harness.Request{Method: method, Path: "/leaks/gitlab", Header: http.Header{"Authorization": {authorization}}}
			if method == "POST" {
				r.Body = []map[string]string{{"type": leaks.GitLabTypes[0], "token": key, "location": "https://gitlab.example.com/a/-/blob/b/c"}}
			}
			return c.Do(t, r)
		}
		for _, bad := range []string{"", token + "x", token[1:], "Bearer", "Bearer " + c.key, "Basic " + token} {
			send("POST", bad).Want(t, 401, "authentication_error")
		}
		send("GET", "guess").Want(t, 429, "rate_limit_exceeded")
		c.Do(t, models(key)).Want(t, 200, "")
		if r := send("GET", token).Want(t, 200, ""); r.Text("types.0") != leaks.GitLabTypes[0] {
			t.Errorf("the types are %s", r.Body)
		}
		for _, good := range []string{token, "Bearer " + token} {
			if r := send("POST", good); r.Status != 204 || len(r.Body) > 0 {
				t.Fatalf("a report was answered with %d %s", r.Status, r.Body)
			}
			c.Do(t, models(key)).Want(t, 401, "authentication_error")
		}
		notes := c.leakNotes(t)
		if !slices.Equal(outcomesOf(notes), []leaks.Outcome{leaks.Revoked, leaks.Already}) || notes[1].Source != leaks.GitLab || notes[1].URL != "https://gitlab.example.com/a/-/blob/b/c" {
			t.Errorf("got leak notes %v", notes)
		}
		for _, authorization := range []string{"", "Bearer "} { // a server without a token doesn't have this route
			harness.Shared("sqlite").Do(t, harness.Request{Method: "POST", Path: "/leaks/gitlab", Body: []any{}, Header: http.Header{"Authorization": {authorization}}}).Want(t, 404, "not_found")
		}
	})
}
