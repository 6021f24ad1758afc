package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/visibility"
	"turnpike/test/harness"
)

// calls checks the status of a request for models with a key.
func calls(t *testing.T, s *harness.Server, value string, status int) {
	t.Helper()
	code := ""
	if status == http.StatusUnauthorized {
		code = "authentication_error"
	}
	s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: value}).Want(t, status, code)
}

// createKey creates a key by the form and returns its page and value.
func (b *browser) createKey(t *testing.T, env accounts.Environment, form url.Values) (page, value string) {
	t.Helper()
	page = b.post(t, b.in(env, "keys/new"), form).redirectsTo(t, b.in(env, "keys/key_*"))
	return page, b.get(t, page).find(t, `id="secret">(tp_`+string(env)+`_[A-Za-z0-9]+)<`)
}

func TestKeyValueIsShownOnceAndWorks(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.get(t, b.in(accounts.Test, "keys")).shows(t, "No test keys yet")
		to := b.post(t, b.in(accounts.Test, "keys/new"), url.Values{"name": {"backend"}, "scopes": {"models:read", "chat.completions:create"}}).
			redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		first := b.get(t, to).shows(t, "backend", "/v1/chat/completions")
		value := first.find(t, `(tp_test_[A-Za-z0-9]+)`)
		if n := strings.Count(first.body, value); n != 7 {
			t.Errorf("the value is there %d times, not as itself, in four examples and twice in .env", n)
		}
		b.get(t, b.in(accounts.Test, "keys")).shows(t, "tp_test_…"+value[len(value)-4:], "never").hides(t, value)
		calls(t, s, value, 200)
		b.get(t, to).shows(t, "backend").hides(t, value)
	})
}

// TestKeyIsRotatedAndRevokedByForms: the old secret works until its grace period ends, the
// key until it is revoked.
func TestKeyIsRotatedAndRevokedByForms(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page, first := b.createKey(t, accounts.Test, url.Values{"name": {"backend"}, "preset": {"read"}})
		calls(t, s, first, 200)

		b.get(t, page+"/rotate").shows(t, "24 h (default of this workspace)")
		b.post(t, page+"/rotate", url.Values{"grace": {"7200"}}).redirectsTo(t, page)
		rotated := b.get(t, page).shows(t, "rotating", "works for another 2 h", "…"+first[len(first)-4:])
		second := rotated.find(t, `id="secret">(tp_test_[A-Za-z0-9]+)<`)
		calls(t, s, first, 200)
		calls(t, s, second, 200)
		s.Clock.Turn(30 * time.Minute)
		b.get(t, page).shows(t, "works for another 1 h 30 min").hides(t, first, second)
		b.get(t, b.in(accounts.Test, "keys?state=rotating")).shows(t, "backend", "works for 1 h 30 min")
		b.get(t, b.in(accounts.Test, "keys?state=active")).shows(t, "No test key is active")

		// A third secret is rejected unless the first may stop working.
		b.signIn(t)
		b.post(t, page+"/rotate", url.Values{"grace": {"3600"}}).rejects(t, http.StatusConflict, "still works")
		calls(t, s, first, 200)
		b.post(t, page+"/rotate", url.Values{"grace": {"3600"}, "force": {"yes"}}).redirectsTo(t, page)
		third := b.get(t, page).find(t, `id="secret">(tp_test_[A-Za-z0-9]+)<`)
		calls(t, s, first, 401)
		calls(t, s, second, 200)

		b.post(t, page+"/end-grace", nil).redirectsTo(t, page)
		b.get(t, page).shows(t, "The old secret no longer works", "active")
		calls(t, s, second, 401)
		calls(t, s, third, 200)
		b.post(t, page+"/end-grace", nil).rejects(t, http.StatusConflict, "no previous secret")

		b.post(t, page+"/revoke", nil).redirectsTo(t, page)
		b.get(t, page).shows(t, "revoked").hides(t, "/rotate", "/revoke", "/edit")
		calls(t, s, third, 401)
		b.get(t, page+"/edit").rejects(t, http.StatusConflict, "revoked")
		b.get(t, b.in(accounts.Test, "keys?state=revoked")).shows(t, "backend")
	})
}

// TestKeyFormKeepsUnchangedValues: fields show the stored values, and an unchanged form
// changes nothing.
func TestKeyFormKeepsUnchangedValues(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Admin)
		ends := s.Clock.Now().Add(40 * time.Hour).Truncate(time.Second)
		value, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "old", Scopes: []string{"images:*", "models:read"}, ExpiresAt: &ends})
		page := b.in(accounts.Live, "keys/"+id)
		read := func() *access.Key {
			k, err := access.NewKeys(s.Ring, s.Clock.Now).Get(t.Context(), s.DB, visibility.Filter{Tenant: w.In(accounts.Live)}, id)
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		form := url.Values{"name": {"old"}, "preset": {"choose"}, "scopes": {"images:*", "models:read"}, "expires_at": {ends.UTC().Format(time.DateOnly)}}
		b.get(t, page+"/edit").shows(t, `value="images:*" checked`, `value="models:read" checked`, `value="`+form.Get("expires_at")+`"`)
		b.post(t, page+"/edit", form).redirectsTo(t, page)
		if k := read(); !k.ExpiresAt.Equal(ends) || len(k.Scopes) != 2 || k.MonthlyBudget != nil {
			t.Errorf("an unchanged form made %v, %v, %v of it", k.ExpiresAt, k.Scopes, k.MonthlyBudget)
		}

		form = url.Values{"name": {"new"}, "preset": {"everything"}, "monthly_budget": {"1,000.5"}, "rate_limit": {"60"}, "project": {"shop"}, "allowed_ips": {"127.0.0.1\r\n10.0.0.0/8"}, "expires_at": {""}}
		b.post(t, page+"/edit", form).redirectsTo(t, page)
		b.get(t, page).shows(t, "new", ">0 of 1,000.50<", "60", "127.0.0.1\n10.0.0.0/8", `projects/shop"`, "Full access")
		if k := read(); k.ExpiresAt != nil || *k.MonthlyBudget != 1000*credits.Credit+credits.Credit/2 || k.Project != "shop" {
			t.Errorf("stored as %v, %v, %q", k.ExpiresAt, k.MonthlyBudget, k.Project)
		}
		calls(t, s, value, 200)

		for field, wrong := range map[string]string{"name": "", "monthly_budget": "much", "rate_limit": "0", "project": "a b", "allowed_ips": "300.1.1.1", "expires_at": "2020-01-01", "preset": "choose"} {
			bad := url.Values{}
			for name, values := range form {
				bad[name] = values
			}
			bad.Set(field, wrong)
			b.post(t, page+"/edit", bad).rejects(t, http.StatusBadRequest, `class="field-error"`)
		}
	})
}

func TestRolesLimitKeyCreation(t *testing.T) {
	t.Parallel()
	// Roles are checked before storage, so one engine is enough.
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		form := url.Values{"name": {"mine"}, "preset": {"calls"}}
		_, live := s.Key(t, w, accounts.Live)
		wide, test := s.Key(t, w, accounts.Test)

		developer := member(t, s, w, accounts.Developer)
		developer.get(t, developer.in(accounts.Live, "keys")).shows(t, live).hides(t, "keys/new")
		developer.get(t, developer.in(accounts.Live, "keys/"+live)).hides(t, "/edit", "/rotate", "/revoke")
		developer.post(t, developer.in(accounts.Live, "keys/new"), form).rejects(t, http.StatusForbidden, "keys:write")
		developer.post(t, developer.in(accounts.Live, "keys/"+live+"/revoke"), nil).rejects(t, http.StatusForbidden, "keys:write")
		_, value := developer.createKey(t, accounts.Test, form)
		calls(t, s, value, 200)

		// A developer's keys have no scopes that the developer lacks.
		developer.post(t, developer.in(accounts.Test, "keys/new"), url.Values{"name": {"wide"}, "scopes": {"billing:write"}}).rejects(t, http.StatusForbidden, "billing:write")
		developer.post(t, developer.in(accounts.Test, "keys/new"), url.Values{"name": {"wide"}, "scopes": {"*"}}).rejects(t, http.StatusForbidden, "role")
		page, _ := developer.createKey(t, accounts.Test, url.Values{"name": {"all"}, "preset": {"everything"}})
		developer.get(t, page).shows(t, "keys:write").hides(t, "billing:write", "Full access")
		developer.get(t, developer.in(accounts.Test, "keys/"+test)).shows(t).hides(t, "/edit", "/rotate", "/revoke")
		for _, deed := range []string{"rotate", "revoke", "edit"} {
			developer.post(t, developer.in(accounts.Test, "keys/"+test+"/"+deed), form).is(t, http.StatusForbidden)
		}
		calls(t, s, wide, 200)

		viewer := member(t, s, w, accounts.Viewer)
		viewer.get(t, viewer.in(accounts.Test, "keys")).shows(t, test).hides(t, "keys/new")
		viewer.get(t, viewer.in(accounts.Test, "keys/"+test)).shows(t, test).hides(t, "/edit", "/rotate", "/revoke", "/end-grace")
		for _, deed := range []string{"keys/new", "keys/" + test + "/edit", "keys/" + test + "/rotate", "keys/" + test + "/end-grace", "keys/" + test + "/revoke", "projects"} {
			viewer.post(t, viewer.in(accounts.Test, deed), form).rejects(t, http.StatusForbidden, "Your role does not allow this")
		}
		calls(t, s, wide, 200)
	})
}

// TestKeysOfOtherTenantsAreNotFound: of another workspace, and of the other environment.
func TestKeysOfOtherTenantsAreNotFound(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		foreign, theirs := s.Key(t, s.Workspace(t, "other"), accounts.Test)
		own, ours := s.Key(t, w, accounts.Live)
		for _, id := range []string{theirs, ours, "key_nonsense"} {
			for _, page := range []string{"", "/edit", "/rotate", "/tokens"} {
				b.get(t, b.in(accounts.Test, "keys/"+id+page)).rejects(t, http.StatusNotFound, "no key")
			}
			for _, deed := range []string{"/edit", "/rotate", "/end-grace", "/revoke"} {
				b.post(t, b.in(accounts.Test, "keys/"+id+deed), url.Values{"name": {"x"}, "preset": {"read"}}).rejects(t, http.StatusNotFound, "no key")
			}
		}
		b.get(t, b.in(accounts.Test, "keys")).hides(t, theirs, ours)
		calls(t, s, foreign, 200)
		calls(t, s, own, 200)
	})
}

func TestScopedTokensAreListedAndRevoked(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		value, id := s.Key(t, w, accounts.Test)
		_, other := s.Key(t, w, accounts.Test)
		mint := func(user string) *harness.Response {
			return s.Do(t, harness.Request{Method: "POST", Path: "/v1/scoped_tokens", Key: value,
				Body: map[string]any{"scopes": []string{"models:read"}, "expires_in": 600, "metadata": map[string]any{"user": user}}}).Want(t, 200, "")
		}
		minted := mint("<script>alert(1)</script>")
		for range 11 {
			mint("more")
		}
		page := b.in(accounts.Test, "keys/"+id)
		b.get(t, page).shows(t, "All tokens of this key").hides(t, minted.Text("id"))
		b.get(t, page+"/tokens").shows(t, minted.Text("id"), "active").hides(t, "<script>alert")
		calls(t, s, minted.Text("value"), 200)

		b.post(t, b.in(accounts.Test, "keys/"+other+"/tokens/"+minted.Text("id")+"/revoke"), nil).rejects(t, http.StatusNotFound, "scoped token")
		viewer := member(t, s, w, accounts.Viewer)
		viewer.get(t, page+"/tokens").shows(t, minted.Text("id")).hides(t, "/revoke")
		viewer.post(t, page+"/tokens/"+minted.Text("id")+"/revoke", nil).is(t, http.StatusForbidden)
		calls(t, s, minted.Text("value"), 200)
		b.post(t, page+"/tokens/"+minted.Text("id")+"/revoke", nil).redirectsTo(t, page)
		b.get(t, page+"/tokens").shows(t, "revoked")
		calls(t, s, minted.Text("value"), 401)
	})
}

// TestKeyPageShowsItsUse: requests, their addresses and leak reports.
func TestKeyPageShowsItsUse(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		value, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: `<b onclick="x">bold</b>`, Scopes: []string{"*"}})
		another, _ := s.Key(t, w, accounts.Test)
		page := b.in(accounts.Test, "keys/"+id)
		b.get(t, page).shows(t, "No requests yet", "&lt;b onclick=").hides(t, "<b onclick")
		b.get(t, b.in(accounts.Test, "keys")).shows(t, "&lt;b onclick=").hides(t, "<b onclick")
		for _, key := range []string{value, value, another} {
			chat(t, s, key, "")
		}
		s.Eventually(t, func() bool { return strings.Contains(b.get(t, page).body, "<strong>2</strong> requests") })
		request := b.get(t, page).shows(t, "127.0.0.1", "Simulated spend by day").find(t, `requests/(req_[a-z0-9]+)"`)
		if s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + request, Key: value}).Want(t, 200, "").Text("key_id") != id {
			t.Error("a request of another key is on the page")
		}
		s.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: map[string]any{"keys": []string{value}, "url": "https://paste.example/1"}}).Want(t, 202, "")
		b.get(t, page).shows(t, "reported as leaked", "https://paste.example/1", "revoked")
	})
}

func chat(t *testing.T, s *harness.Server, key, project string) {
	t.Helper()
	header := http.Header{}
	if project != "" {
		header.Set("Service-Project", project)
	}
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Header: header,
		Body: map[string]any{"model": "gpt-4o", "messages": []map[string]string{{"role": "user", "content": "Hello!"}}}}).Want(t, 200, "")
}
