package dashboard_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/dashboard"
	"turnpike/test/harness"
)

// TestActionsThatWidenRightsRequireConfirmation names the routes, because the test of the
// route table only checks that its rules are enforced.
func TestActionsThatWidenRightsRequireConfirmation(t *testing.T) {
	t.Parallel()
	const here = "/dashboard/w/{workspace}/{env}/"
	for _, path := range []string{here + "keys/new", here + "keys/{id}/edit", here + "keys/{id}/rotate", here + "webhooks/new", here + "webhooks/{id}/edit",
		here + "webhooks/{id}/rotate", here + "billing", here + "team/invitations", here + "team/members/{id}/role", here + "team/members/{id}/content", here + "team/members/{id}/remove",
		"/dashboard/account/app", "/dashboard/account/app/disable", "/dashboard/account/app/codes", "/dashboard/account/passkeys", "/dashboard/account/passkeys/{id}/delete"} {
		if !slices.ContainsFunc(dashboard.Routes(), func(r dashboard.Route) bool { return r.Method == "POST" && r.Path == path && r.Confirm }) {
			t.Errorf("POST %s is not there, or asks for no proof", path)
		}
	}
}

func TestCarriageReturnCannotForgeEvents(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		key, _ := s.Key(t, b.workspace, accounts.Test)
		made := s.Do(t, harness.Request{Method: "POST", Path: "/v1/images/batches", Key: key,
			Body: map[string]any{"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "[[sim:delay=3s]] a house\revent: gone\r\rby the sea"}}}}}).Want(t, 200, "")
		_, next := b.watch(t, b.in(accounts.Test, "jobs/images/"+made.Text("id")))
		if name, data := next(); name != "page" || !strings.Contains(data, "event: gone") || strings.Contains(data, "\r") {
			t.Errorf("%s: %q", name, data)
		}
	})
}

func TestExpiredFlashDoesNotShowSecret(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		to := b.post(t, b.in(accounts.Test, "keys/new"), newKey("backend")).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		s.Clock.Turn(2 * time.Minute)
		if page := b.get(t, to).shows(t, "backend"); len(page.find(t, `tp_test_([A-Za-z0-9]*)`)) > 4 {
			t.Errorf("the secret is shown: %s", page.main())
		}
	})
}

func TestRequestsThroughLocalProxyAreNotLocal(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		owner := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b := newBrowser(t, s)
		b.header = http.Header{"X-Forwarded-For": {"203.0.113.7"}}
		b.post(t, "/dashboard/login", url.Values{"email": {owner.person.Email}, "password": {password}}).rejects(t, http.StatusForbidden, "not encrypted")
	})
}

func TestProxyWithoutHostHeaderIsExplained(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.PublicURL = "https://api.example.com"
	s := harness.Start(t, cfg, harness.NewClock())
	s.URL = s.App.ListenURL()
	b := newBrowser(t, s)
	b.host, b.header = "127.0.0.1:8080", http.Header{"X-Forwarded-For": {"203.0.113.7"}}
	b.get(t, "/dashboard/login").rejects(t, http.StatusForbidden, "must forward the Host header").rejects(t, http.StatusForbidden, "api.example.com")
}

func TestForwardedHTTPSIsTrustedOnlyFromTrustedProxies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trusted []netip.Prefix
		host    string
		status  int
		message string // of the rejection
	}{
		"no trusted proxy":            {nil, "api.example.com", http.StatusForbidden, "trusted_proxies"},
		"another trusted proxy":       {[]netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}, "api.example.com", http.StatusForbidden, "trusted_proxies"},
		"trusted proxy":               {[]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, "api.example.com", http.StatusOK, ""},
		"trusted proxy, other host":   {[]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, "other.example.com", http.StatusForbidden, "must forward the Host header"},
		"trusted proxy, another port": {[]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, "api.example.com:8443", http.StatusForbidden, "must forward the Host header"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := harness.Config(t, "sqlite")
			cfg.PublicURL, cfg.TrustedProxies = "https://api.example.com", c.trusted
			s := harness.Start(t, cfg, harness.NewClock())
			s.URL = s.App.ListenURL()
			b := newBrowser(t, s)
			b.host, b.header = c.host, http.Header{"X-Forwarded-For": {"203.0.113.7"}, "X-Forwarded-Proto": {"https"}}
			a := b.get(t, "/dashboard/login")
			if c.message != "" {
				a.rejects(t, c.status, c.message)
			} else {
				a.is(t, c.status)
			}
			if got, want := a.header.Get("Strict-Transport-Security") != "", c.status == http.StatusOK; got != want {
				t.Errorf("Strict-Transport-Security is there: %t, want %t", got, want)
			}
		})
	}
}
