package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestLeakedKeysAreListed(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b, viewer := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Viewer)
		otherOwner := member(t, s, s.Workspace(t, "globex"), accounts.Owner)
		security := b.in(accounts.Live, "security")
		b.get(t, security).shows(t, "No live key or webhook secret of this workspace was reported as leaked", "/leaks/report", "(?:tp)_(?:live|test|scoped|admin|session|link)_[0-9A-Za-z]{38}|whsec_[",
			"useDefault = true", "detectors:", "entry: turnpike scan --offline")
		key, id := s.Key(t, w, accounts.Live)
		report := map[string]any{"keys": []string{key}, "url": `https://evil.example/"><script>alert(1)</script>?q=1#<img src=x>`}
		s.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: report}).Want(t, 202, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/leaks/report", Body: report}).Want(t, 202, "")
		page := b.get(t, security).shows(t, b.in(accounts.Live, "keys/"+id), "tp_live_…"+key[len(key)-4:], "a report", ">revoked<", ">was dead already<", "evil.example").
			hides(t, "<script>alert", "<img src=x", key, `href="https://evil.example`)
		b.get(t, page.find(t, `href="([^"]+keys/key_[^"]+)"`)).shows(t, id)
		viewer.get(t, security).shows(t, id)
		b.get(t, b.in(accounts.Test, "security")).hides(t, id)
		otherOwner.get(t, otherOwner.in(accounts.Live, "security")).hides(t, id)
		otherOwner.get(t, security).is(t, http.StatusNotFound)
	})
}

func TestOnlyManagersSetLeakPolicy(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Admin)
		security := b.in(accounts.Test, "security")
		caller, _ := s.Key(t, w, accounts.Test)
		key, id := s.Key(t, w, accounts.Test)
		say := func(key string) {
			t.Helper()
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: caller,
				Body: map[string]any{"model": "gpt-4o-mini", "messages": []any{map[string]any{"role": "user", "content": "use " + key}}}}).Want(t, 200, "")
		}
		choose := func(policy string) {
			t.Helper()
			b.post(t, security, url.Values{"leak_policy": {policy}}).redirectsTo(t, security)
			b.get(t, security).shows(t, `value="`+policy+`" checked`)
		}
		b.get(t, security).shows(t, `value="off" checked`)
		early, earlyID := s.Key(t, w, accounts.Test)
		say(early)
		choose("report")
		say(key)
		s.Eventually(t, func() bool { return strings.Contains(b.get(t, security).body, id) })
		b.get(t, security).shows(t, "noted, still works", "a request to the API").hides(t, earlyID)
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key}).Want(t, 200, "")
		choose("revoke")
		say(key)
		s.Eventually(t, func() bool {
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: key}).Status == http.StatusUnauthorized
		})
		b.get(t, security).shows(t, ">revoked<")
		choose("off")
		say(early)
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: early}).Want(t, 200, "")
		if n := actions(t, s, w, "workspace.updated"); n != 3 {
			t.Errorf("the admin log has %d entries", n)
		}

		b.post(t, security, url.Values{"leak_policy": {"burn"}}).rejects(t, http.StatusBadRequest, "must be off, report or revoke")
		for _, role := range []accounts.Role{accounts.Developer, accounts.Viewer} {
			other := member(t, s, w, role)
			other.get(t, security).shows(t, "Bodies are not scanned").hides(t, `name="leak_policy"`)
			other.post(t, security, url.Values{"leak_policy": {"revoke"}}).rejects(t, http.StatusForbidden, "only owners and admins")
		}
	})
}
