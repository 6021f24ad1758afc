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
	"turnpike/test/world"
)

var (
	roles        = []accounts.Role{accounts.Owner, accounts.Admin, accounts.Developer, accounts.Viewer}
	environments = []accounts.Environment{accounts.Test, accounts.Live}
)

// town is two workspaces with something of everything, so that one's ids can be
// tried in the other, and somebody of each role.
type town struct {
	own, other *world.World
	folk       map[accounts.Role]*browser // of own
	neighbour  *browser                   // the owner of other
}

func TestTheWholeTable(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, world.Config(t, engine), harness.NewClock())
			x := &town{own: world.Fill(t, s, "acme", func(s string) string { return s + attack }), other: world.Fill(t, s, "globex", func(s string) string { return s }),
				folk: map[accounts.Role]*browser{}}
			for _, role := range roles {
				x.folk[role] = member(t, s, x.own.Workspace, role)
			}
			x.neighbour = member(t, s, x.other.Workspace, accounts.Owner)
			t.Run("pages of an empty workspace are whole", x.emptyPagesAreWhole)
			// The next one sees everything as it was made, and the last one lets time pass.
			t.Run("pages show what customers write as text, and lead to pages that are there", x.pagesShowText)
			t.Run("strangers are led to the sign-in and others learn nothing", x.strangersStayOut)
			t.Run("forms from other sites do nothing", x.otherSitesDoNothing)
			t.Run("every answer forbids what a browser must not do", x.answersAreStrict)
			t.Run("a required second factor guards every page", x.secondFactorGuardsEveryPage)
			t.Run("roles may do what the table says and nothing else", x.rolesAreKept)
			t.Run("secrets ask for a proof that is fresh", x.secretsAskForAProof)
		})
	}
}

// path is the route's in the first workspace.
func (x *town) path(t *testing.T, rt dashboard.Route) string {
	t.Helper()
	path, _ := x.own.Path(t, rt, x.own.Workspace, accounts.Test)
	return path
}

// send visits a route: a form is empty.
func (b *browser) send(t *testing.T, rt dashboard.Route, path string) *answer {
	t.Helper()
	if rt.Method == http.MethodPost {
		return b.post(t, path, url.Values{})
	}
	return b.do(t, rt.Method, path, nil)
}

// mayCome is what the table says of a role.
func mayCome(rt dashboard.Route, role accounts.Role, env accounts.Environment) bool {
	return (rt.Scope == "" || access.RoleGrant(role, env).Allows(rt.Scope)) && (!rt.Manages || access.ManagesMembers(role))
}

func (x *town) rolesAreKept(t *testing.T) {
	refused := 0
	for _, rt := range dashboard.Routes() {
		if !rt.Workspace || strings.HasSuffix(rt.Path, "/team/leave") { // whoever leaves is gone
			continue
		}
		for _, role := range roles {
			for _, env := range environments {
				if !mayCome(rt, role, env) {
					path, _ := x.own.Path(t, rt, x.own.Workspace, env)
					if a := x.folk[role].send(t, rt, path); a.status != http.StatusForbidden {
						t.Errorf("the %s may not, and gets %d from %s", role, a.status, a.path)
					}
					refused++
					continue
				}
				// What is asked for is another workspace's: nothing is done, and nothing is told.
				path, named := x.other.Path(t, rt, x.own.Workspace, env)
				a := x.folk[role].send(t, rt, path)
				hidden := a.status == http.StatusNotFound || rt.Method == http.MethodPost && a.status == http.StatusBadRequest // the form is empty
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

func (x *town) strangersStayOut(t *testing.T) {
	nobody := newBrowser(t, x.own.Server)
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if !rt.SignedIn {
			continue
		}
		nobody.send(t, rt, x.path(t, rt)).leadsTo(t, "/dashboard/login*")
		if rt.Workspace {
			x.neighbour.send(t, rt, x.path(t, rt)).is(t, http.StatusNotFound)
		}
	}
	sameRows(t, before, x.rows(t))
}

func (x *town) otherSitesDoNothing(t *testing.T) {
	b := *x.folk[accounts.Owner]
	b.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if rt.Method == http.MethodPost {
			b.send(t, rt, x.path(t, rt)).is(t, http.StatusForbidden)
		}
	}
	sameRows(t, before, x.rows(t))
}

func (x *town) secretsAskForAProof(t *testing.T) {
	b := x.folk[accounts.Owner]
	x.own.Clock.Turn(11 * time.Minute)
	asked := 0
	for _, rt := range dashboard.Routes() {
		if rt.Confirm {
			b.send(t, rt, x.path(t, rt)).leadsTo(t, "/dashboard/confirm*")
			asked++
		}
	}
	if asked == 0 {
		t.Error("nothing in the table asks for a proof")
	}
}

func (x *town) secondFactorGuardsEveryPage(t *testing.T) {
	x.own.RequireSecondFactor(t, x.own.Workspace, true)
	defer x.own.RequireSecondFactor(t, x.own.Workspace, false)
	b := x.folk[accounts.Owner]
	before := x.quiet(t)
	for _, rt := range dashboard.Routes() {
		if rt.Workspace {
			b.send(t, rt, x.path(t, rt)).leadsTo(t, "/dashboard/second-factor*")
			x.neighbour.send(t, rt, x.path(t, rt)).is(t, http.StatusNotFound) // and tells nobody else
		}
	}
	sameRows(t, before, x.rows(t))
	x.neighbour.get(t, x.neighbour.in(accounts.Test, "")).is(t, http.StatusOK)
}

func (x *town) answersAreStrict(t *testing.T) {
	b := x.folk[accounts.Owner]
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

// deedTables are what forms change. Others, such as leases and heartbeats, change
// by themselves.
var deedTables = []string{"workspaces", "users", "members", "invitations", "sessions", "totp", "recovery_codes", "passkeys", "one_time_links", "ceremonies", "half_logins",
	"keys", "key_secrets", "scoped_tokens", "projects", "endpoints", "events", "deliveries", "replays", "media_jobs", "agent_runs", "agent_calls", "admin_actions", "mails"}

// rows is every text of what forms change, but for when something was used last,
// which is written some time after the use.
func (x *town) rows(t *testing.T) []byte {
	t.Helper()
	return x.own.DumpTables(t, deedTables, "last_used_at", "last_used_ip", "seen_at")
}

// quiet is the rows once what the server still does by itself is done: replays,
// mails. Retries rest while the clock stands still.
func (x *town) quiet(t *testing.T) (now []byte) {
	t.Helper()
	x.own.Within(t, time.Minute, func() bool {
		last := now
		now = x.rows(t)
		return bytes.Equal(last, now)
	})
	return now
}

// sameRows compares two dumps.
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
