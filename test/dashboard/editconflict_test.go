package dashboard_test

import (
	"maps"
	"net/http"
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// TestStaleFormIsNotSaved: a form must not undo what someone else changed after it was
// opened.
func TestStaleFormIsNotSaved(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		key, _ := b.createKey(t, accounts.Live, url.Values{"name": {"backend"}, "preset": {"read"}})
		endpoint, _ := b.endpoint(t, "https://example.com/one")
		project := b.post(t, b.in(accounts.Live, "projects"), url.Values{"id": {"shop"}}).redirectsTo(t, b.in(accounts.Live, "projects/shop"))
		for page, c := range map[string]struct {
			begun  url.Values // the values when both open the page
			theirs url.Values
			ours   url.Values
			shown  string // the values the other person set
		}{
			b.in(accounts.Live, "billing"): {url.Values{"monthly_credits": {""}, "alert_threshold": {"20%"}},
				url.Values{"monthly_credits": {"77.5"}}, url.Values{"alert_threshold": {"30%"}}, `value="77.5"`},
			b.in(accounts.Live, "settings"): {url.Values{"rotation_grace": {"24"}},
				url.Values{"strict_projects": {"yes"}}, url.Values{"rotation_grace": {"48"}}, `value="yes" checked`},
			project: {url.Values{"name": {"shop"}},
				url.Values{"monthly_budget": {"77.5"}}, url.Values{"name": {"The shop"}}, `value="77.5"`},
			key + "/edit": {url.Values{"name": {"backend"}, "preset": {"choose"}, "scopes": {"models:read"}},
				url.Values{"scopes": {"usage:read"}}, url.Values{"rate_limit": {"7"}}, `value="usage:read" checked`},
			endpoint + "/edit": {url.Values{"url": {"https://example.com/one"}, "events": {"*"}},
				url.Values{"url": {"https://example.com/two"}}, url.Values{"description": {"orders"}}, `value="https://example.com/two"`},
		} {
			b.post(t, page, c.begun).is(t, http.StatusSeeOther)
			send := func(seen string, fields url.Values) *response {
				form := maps.Clone(c.begun)
				maps.Copy(form, fields)
				form.Set("seen", seen)
				return b.post(t, page, form)
			}
			mark := `name="seen" value="([0-9a-f]+)"`
			seen := b.get(t, page).find(t, mark)
			send(seen, c.theirs).is(t, http.StatusSeeOther)
			send(seen, c.theirs).is(t, http.StatusSeeOther) // a second click
			refused := send(seen, c.ours)
			refused.rejects(t, http.StatusConflict, "Someone changed this after you opened the page")
			refused.contains(t, c.shown)
			b.get(t, page).shows(t, c.shown)
			// The form shows the current values.
			send(refused.find(t, mark), c.ours).is(t, http.StatusSeeOther)
			// A rejected form keeps its fingerprint.
			if wrong := send(seen, url.Values{"name": {" "}, "rotation_grace": {"x"}, "alert_threshold": {"x"}, "url": {"x"}}); wrong.status == http.StatusBadRequest {
				if again := wrong.find(t, mark); again != seen {
					t.Errorf("%s: a form that was opened at %s counts as of %s", page, seen, again)
				}
			}
		}
	})
}
