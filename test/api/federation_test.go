package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/issuer"
	"turnpike/test/harness"
)

func eachFederated(t *testing.T, engines []string, fn func(t *testing.T, c *client, i *issuer.Issuer)) {
	eachEngine(t, engines, func(t *testing.T, engine string) {
		cfg := harness.Config(t, engine)
		allow := func(cfg *config.Config) {
			cfg.Agents.AllowHTTP, cfg.Agents.AllowCIDRs = true, prefixes(t, "127.0.0.0/8")
		}
		allow(&cfg)
		fn(t, newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Test), issuer.New(t))
	})
}

// exchange requests a scoped token. Fields replace the usual ones.
func (c *client) exchange(t *testing.T, rule, token string, fields url.Values) *harness.Response {
	t.Helper()
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
		"client_id": {rule}, "subject_token": {token}}
	maps.Copy(form, fields)
	return c.Do(t, harness.Request{Method: "POST", Path: "/oauth/token", Body: form.Encode(), Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}})
}

func TestIssuerTokenIsExchangedForScopedToken(t *testing.T) {
	eachFederated(t, both, func(t *testing.T, c *client, i *issuer.Issuer) {
		value, key := c.newKey(t, access.Key{Scopes: []string{"models:read", "chat.completions:create", "embeddings:create"}})
		rule := c.post(t, "/v1/federation_rules", map[string]any{"name": "ci", "issuer": i.URL, "audience": "https://turnpike.example.com", "subject": "repo:acme/app:*", "key_id": key,
			"scopes": []string{"models:read"}, "metadata_claims": []string{"repository", "missing"}, "grants": []any{
				map[string]any{"claims": map[string]string{"ref": "refs/heads/main"}, "scopes": []string{"chat.completions:create"}},
				map[string]any{"claims": map[string]string{"ref": "refs/heads/*", "groups": "ops"}, "expires_in": 60}}}).Text("id")
		claims := func(change map[string]any) map[string]any {
			now := c.Clock.Now()
			all := map[string]any{"iss": i.URL, "aud": "https://turnpike.example.com", "sub": "repo:acme/app:ref:refs/heads/main", "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
				"ref": "refs/heads/main", "repository": "acme/app", "groups": []string{"dev"}}
			maps.Copy(all, change)
			return all
		}
		got := c.exchange(t, rule, i.Sign(t, claims(nil)), nil).Want(t, 200, "")
		if got.Text("token_type") != "Bearer" || got.Text("issued_token_type") != "urn:ietf:params:oauth:token-type:access_token" || got.At("expires_in") != 900.0 ||
			got.Text("scope") != "models:read chat.completions:create" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %s", got.Body)
		}
		token := got.Text("access_token")
		if !strings.HasPrefix(token, "tp_scoped_") {
			t.Fatalf("the token is %s", token)
		}
		request := c.Do(t, models(token)).Want(t, 200, "").Header.Get("X-Request-Id")
		c.Do(t, harness.Request{Method: "POST", Path: "/v1/embeddings", Key: token, Body: map[string]any{"model": "text-embedding-3-small", "input": "x"}}).Want(t, 403, "insufficient_scope")
		var entry *harness.Response
		c.Eventually(t, func() bool { entry = c.ask(t, "GET", "/v1/audit/"+request, nil); return entry.Status == 200 })
		if entry.Text("key_id") != key || entry.Text("token_metadata.repository") != "acme/app" || entry.Text("token_metadata.sub") != "repo:acme/app:ref:refs/heads/main" {
			t.Errorf("the log has %s", entry.Body)
		}
		if log := c.get(t, "/v1/audit/actions?limit=1"); log.Text("data.0.action") != "scoped_token.exchanged" || log.Text("data.0.actor") != rule {
			t.Errorf("the admin log has %s", log.Body)
		}
		// Other claims give less, and a request can ask for less.
		less := c.exchange(t, rule, i.Sign(t, claims(map[string]any{"ref": "refs/heads/next", "groups": []string{"dev", "ops"}})), nil).Want(t, 200, "")
		if less.Text("scope") != "models:read" || less.At("expires_in") != 60.0 {
			t.Errorf("another branch gets %s", less.Body)
		}
		if narrow := c.exchange(t, rule, i.Sign(t, claims(nil)), url.Values{"scope": {"models:read"}}).Want(t, 200, ""); narrow.Text("scope") != "models:read" {
			t.Errorf("asking for one scope gets %s", narrow.Body)
		}
		// The issuer's new key is found.
		old := i.Sign(t, claims(nil))
		i.Rotate(t)
		c.exchange(t, rule, i.Sign(t, claims(nil)), nil).Want(t, 200, "")

		other := issuer.New(t)
		now := c.Clock.Now()
		for name, x := range map[string]struct {
			token  string
			fields url.Values
			code   string
		}{
			"other issuer":        {other.Sign(t, claims(map[string]any{"iss": other.URL})), nil, "invalid_grant"},
			"other signature":     {other.Sign(t, claims(nil)), nil, "invalid_grant"},
			"retired key":         {old, nil, "invalid_grant"},
			"other audience":      {i.Sign(t, claims(map[string]any{"aud": "https://else.example.com"})), nil, "invalid_grant"},
			"other subject":       {i.Sign(t, claims(map[string]any{"sub": "repo:acme/application"})), nil, "invalid_grant"},
			"expired":             {i.Sign(t, claims(map[string]any{"exp": now.Add(-time.Minute).Unix()})), nil, "invalid_grant"},
			"not yet valid":       {i.Sign(t, claims(map[string]any{"nbf": now.Add(time.Hour).Unix()})), nil, "invalid_grant"},
			"wider scope":         {i.Sign(t, claims(nil)), url.Values{"scope": {"embeddings:create"}}, "invalid_scope"},
			"no token":            {"", nil, "invalid_request"},
			"not a token":         {"x.y", nil, "invalid_request"},
			"other grant":         {i.Sign(t, claims(nil)), url.Values{"grant_type": {"client_credentials"}}, "unsupported_grant_type"},
			"other type":          {i.Sign(t, claims(nil)), url.Values{"subject_token_type": {"urn:ietf:params:oauth:token-type:saml2"}}, "invalid_request"},
			"unknown rule":        {i.Sign(t, claims(nil)), url.Values{"client_id": {"fed_01h455vb4pex5vsknk084sn02q"}}, "invalid_grant"},
			"no rule":             {i.Sign(t, claims(nil)), url.Values{"client_id": {""}}, "invalid_request"},
			"repeated parameters": {i.Sign(t, claims(nil)), url.Values{"client_id": {rule, rule}}, "invalid_request"},
		} {
			if r := c.exchange(t, rule, x.token, x.fields); r.Status != 400 || r.Text("error") != x.code || r.Text("error_description") == "" {
				t.Errorf("%s: got %d %s", name, r.Status, r.Body)
			}
		}
		if n := other.Requests.Load(); n != 0 {
			t.Errorf("an issuer that no rule names got %d requests", n)
		}
		// The tokens end with the parent key.
		c.ask(t, "DELETE", "/v1/keys/"+key, nil).Want(t, 200, "")
		c.Do(t, models(token)).Want(t, 401, "authentication_error")
		if r := c.exchange(t, rule, i.Sign(t, claims(nil)), nil); r.Status != 400 || r.Text("error") != "invalid_grant" {
			t.Errorf("with a revoked key: %d %s", r.Status, r.Body)
		}
		if r := c.Do(t, models(value)); r.Status != 401 {
			t.Errorf("the revoked key gets %d", r.Status)
		}
		c.ask(t, "DELETE", "/v1/federation_rules/"+rule, nil).Want(t, 200, "")
		c.ask(t, "GET", "/v1/federation_rules/"+rule, nil).Want(t, 404, "not_found")

		// Failures from one address are limited.
		c.Clock.Turn(time.Minute)
		limited := false
		for range 70 {
			r := c.exchange(t, rule, "x.y.z", nil)
			limited = limited || r.Status == 429 && r.Text("error") == "slow_down" && r.Header.Get("Retry-After") != ""
		}
		if !limited {
			t.Error("70 failures were not limited")
		}
	})
}

func TestUnsatisfiableFederationRuleIsRejected(t *testing.T) {
	eachFederated(t, sqlite, func(t *testing.T, c *client, i *issuer.Issuer) {
		_, key := c.newKey(t, access.Key{Scopes: []string{"models:read"}})
		_, revoked := c.newKey(t, access.Key{Scopes: []string{"models:read"}})
		c.ask(t, "DELETE", "/v1/keys/"+revoked, nil).Want(t, 200, "")
		good := map[string]any{"name": "ci", "issuer": i.URL, "audience": "turnpike", "subject": "repo:acme/app", "key_id": key, "scopes": []string{"models:read"}}
		rule := c.post(t, "/v1/federation_rules", good)
		for _, bad := range []struct {
			field string
			value any
			want  int
			param string
		}{
			{"name", "", 400, "name"}, {"issuer", "", 400, "issuer"}, {"issuer", "https://10.0.0.1/", 400, "issuer"}, {"issuer", "ftp://example.com", 400, "issuer"},
			{"audience", "", 400, "audience"}, {"subject", "", 400, "subject"}, {"subject", "*", 400, "subject"}, {"subject", "*:main", 400, "subject"},
			{"key_id", "", 400, "key_id"}, {"key_id", "key_01h455vb4pex5vsknk084sn02q", 400, "key_id"}, {"key_id", revoked, 400, "key_id"},
			{"scopes", []string{"images:create"}, 403, "scopes"}, {"scopes", []string{"keys:write"}, 403, "scopes"}, {"scopes", []string{"what"}, 400, "scopes"}, {"scopes", []string{}, 400, "scopes"},
			{"expires_in", 901, 400, "expires_in"}, {"expires_in", 0, 400, "expires_in"},
			{"grants", []any{map[string]any{"claims": map[string]string{}, "scopes": []string{"models:read"}}}, 400, "grants"},
			{"grants", []any{map[string]any{"claims": map[string]string{"ref": "x"}}}, 400, "grants"},
			{"grants", []any{map[string]any{"claims": map[string]string{"ref": "x"}, "scopes": []string{"images:create"}}}, 403, "grants"},
			{"grants", []any{map[string]any{"claims": map[string]string{"ref": "x"}, "expires_in": 1000}}, 400, "grants"},
		} {
			body := maps.Clone(good)
			body[bad.field] = bad.value
			for _, r := range []*harness.Response{c.ask(t, "POST", "/v1/federation_rules", body), c.ask(t, "PATCH", "/v1/federation_rules/"+rule.Text("id"), map[string]any{bad.field: bad.value})} {
				if r.Status != bad.want || r.Text("error.param") != bad.param {
					t.Errorf("%s %v: got %d %s", bad.field, bad.value, r.Status, r.Body)
				}
			}
		}
		if after := c.get(t, "/v1/federation_rules/"+rule.Text("id")); fmt.Sprint(after.At("")) != fmt.Sprint(rule.At("")) || c.rows(t, "federation_rules") != 1 {
			t.Errorf("rejected changes left %s", after.Body)
		}
		// A key can't hand out the tokens of a wider one.
		narrow, _ := c.newKey(t, access.Key{Scopes: []string{"keys:write"}})
		c.Do(t, harness.Request{Method: "POST", Path: "/v1/federation_rules", Key: narrow, Body: good}).Want(t, 403, "insufficient_scope")
	})
}
