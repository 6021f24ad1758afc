package dashboard_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/dashboard"
	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

var (
	roles        = []accounts.Role{accounts.Owner, accounts.Admin, accounts.Developer, accounts.Viewer}
	environments = []accounts.Environment{accounts.Test, accounts.Live}
)

// routeTest has two workspaces with every kind of resource, so that IDs of one can be
// requested in the other, and a member of each role.
type routeTest struct {
	own, other *sampledata.Workspace
	members    map[accounts.Role]*browser // of the first workspace
	otherOwner *browser                   // owner of the second workspace
}

func TestEveryRouteEnforcesItsRules(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, sampledata.Config(t, engine), harness.NewClock())
			x := &routeTest{own: sampledata.Fill(t, s, "acme", func(s string) string { return s + attack }), other: sampledata.Fill(t, s, "globex", func(s string) string { return s }),
				members: map[accounts.Role]*browser{}}
			for _, role := range roles {
				x.members[role] = member(t, s, x.own.Workspace, role)
			}
			x.otherOwner = member(t, s, x.other.Workspace, accounts.Owner)
			t.Run("pages of an empty workspace are valid", x.testEmptyPages)
			// testEscaping needs unchanged data, and testConfirmation advances the clock.
			t.Run("pages escape text and have no broken links", x.testEscaping)
			t.Run("routes require a session and membership", x.testAuthentication)
			t.Run("forms from other sites are rejected", x.testCrossSiteForms)
			t.Run("responses have security headers", x.testResponseHeaders)
			t.Run("a required second factor protects every page", x.testSecondFactor)
			t.Run("roles are enforced", x.testRoles)
			t.Run("routes with secrets require confirmation", x.testConfirmation)
		})
	}
}

// path returns the path of a route in the first workspace.
func (x *routeTest) path(t *testing.T, rt dashboard.Route) string {
	t.Helper()
	path, _ := x.own.Path(t, rt, x.own.Workspace, accounts.Test)
	return path
}

// send requests a route, with an empty form.
func (b *browser) send(t *testing.T, rt dashboard.Route, path string) *response {
	t.Helper()
	if rt.Method == http.MethodPost {
		return b.post(t, path, url.Values{})
	}
	return b.do(t, rt.Method, path, nil)
}

// isAllowed reports whether the table allows a role.
func isAllowed(rt dashboard.Route, role accounts.Role, env accounts.Environment) bool {
	return (rt.Scope == "" || access.RoleGrant(role, env).Allows(rt.Scope)) && (!rt.Manages || access.ManagesMembers(role))
}

func (x *routeTest) testRoles(t *testing.T) {
	refused := 0
	for _, rt := range dashboard.Routes() {
		if !rt.Workspace || strings.HasSuffix(rt.Path, "/team/leave") { // a person who leaves loses access
			continue
		}
		for _, role := range roles {
			for _, env := range environments {
				if !isAllowed(rt, role, env) {
					path, _ := x.own.Path(t, rt, x.own.Workspace, env)
					if a := x.members[role].send(t, rt, path); a.status != http.StatusForbidden {
						t.Errorf("the %s may not, and gets %d from %s", role, a.status, a.path)
					}
					refused++
					continue
				}
				// The ID belongs to another workspace: not found, and nothing changes.
				path, named := x.other.Path(t, rt, x.own.Workspace, env)
				a := x.members[role].send(t, rt, path)
				hidden := a.status == http.StatusNotFound || rt.Method == http.MethodPost && a.status == http.StatusBadRequest // an empty form
				if a.status == http.StatusForbidden || a.status >= 500 || named && !hidden {
					t.Errorf("the %s may, and gets %d from %s:\n%s", role, a.status, a.path, a.main())
				}
			}
		}
	}
	if refused == 0 {
		t.Error("the table refuses nobody")
	}
}

func (x *routeTest) testAuthentication(t *testing.T) {
	nobody := newBrowser(t, x.own.Server)
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if !rt.SignedIn {
			continue
		}
		nobody.send(t, rt, x.path(t, rt)).redirectsTo(t, "/dashboard/login*")
		if rt.Workspace {
			x.otherOwner.send(t, rt, x.path(t, rt)).is(t, http.StatusNotFound)
		}
	}
	sameRows(t, before, x.rows(t))
}

func (x *routeTest) testCrossSiteForms(t *testing.T) {
	b := *x.members[accounts.Owner]
	b.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if rt.Method == http.MethodPost {
			b.send(t, rt, x.path(t, rt)).is(t, http.StatusForbidden)
		}
	}
	sameRows(t, before, x.rows(t))
}

func (x *routeTest) testConfirmation(t *testing.T) {
	b := x.members[accounts.Owner]
	x.own.Clock.Turn(31 * time.Minute)
	asked := 0
	for _, rt := range dashboard.Routes() {
		if rt.Operator {
			b.send(t, rt, x.path(t, rt)).is(t, http.StatusNotFound) // even for owners
		} else if rt.Confirm {
			b.send(t, rt, x.path(t, rt)).redirectsTo(t, "/dashboard/confirm*")
			asked++
		}
	}
	if asked == 0 {
		t.Error("nothing in the table asks for a proof")
	}
}

func (x *routeTest) testSecondFactor(t *testing.T) {
	x.own.RequireSecondFactor(t, x.own.Workspace, true)
	defer x.own.RequireSecondFactor(t, x.own.Workspace, false)
	b := x.members[accounts.Owner]
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if rt.Workspace {
			b.send(t, rt, x.path(t, rt)).redirectsTo(t, "/dashboard/second-factor*")
			x.otherOwner.send(t, rt, x.path(t, rt)).is(t, http.StatusNotFound) // other workspaces get no hint
		}
	}
	sameRows(t, before, x.rows(t))
	x.otherOwner.get(t, x.otherOwner.in(accounts.Test, "")).is(t, http.StatusOK)
}

func (x *routeTest) testResponseHeaders(t *testing.T) {
	b := x.members[accounts.Owner]
	for _, rt := range dashboard.Routes() {
		if rt.Method != http.MethodGet {
			continue
		}
		path := x.path(t, rt)
		a := b.send(t, rt, path)
		if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s has the policy %q", a.path, csp)
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s may be sniffed", a.path)
		}
		if cache := a.header.Get("Cache-Control"); cache != "no-store" && !strings.HasPrefix(path, "/dashboard/static/") {
			t.Errorf("%s may be kept: %q", a.path, cache)
		}
		for _, c := range (&http.Response{Header: a.header}).Cookies() {
			if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
				t.Errorf("%s sets the cookie %s without its marks", a.path, c.Name)
			}
		}
	}
}

// formTables are the tables that forms change. Background work changes others, such as
// leases and heartbeats.
var formTables = []string{"workspaces", "users", "members", "invitations", "sessions", "totp", "recovery_codes", "passkeys", "one_time_links", "ceremonies", "half_logins",
	"keys", "key_secrets", "scoped_tokens", "projects", "endpoints", "events", "deliveries", "replays", "media_jobs", "batches", "agent_runs", "agent_calls", "admin_actions", "mails"}

// rows dumps formTables without the times of last use, which are written later.
func (x *routeTest) rows(t *testing.T) []byte {
	t.Helper()
	return x.own.DumpTables(t, formTables, "last_used_at", "last_used_ip", "seen_at")
}

// quiet returns the rows once background work such as replays and emails has
// finished. Retries wait for the test clock.
func (x *routeTest) quiet(t *testing.T) (now []byte) {
	t.Helper()
	x.own.Within(t, time.Minute, func() bool {
		last := now
		now = x.rows(t)
		return bytes.Equal(last, now)
	})
	return now
}

func sameRows(t *testing.T, before, after []byte) {
	t.Helper()
	if bytes.Equal(before, after) {
		return
	}
	was := map[string]int{}
	for line := range strings.Lines(string(before)) {
		was[line]++
	}
	for line := range strings.Lines(string(after)) {
		if was[line]--; was[line] < 0 {
			t.Errorf("this is new in the database: %s", line)
		}
	}
	for line, n := range was {
		if n > 0 {
			t.Errorf("this is gone from the database: %s", line)
		}
	}
}
