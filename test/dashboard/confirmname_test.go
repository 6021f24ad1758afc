package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestLiveKeyIsRevokedAndEndedOnlyByItsName(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page, value := b.createKey(t, accounts.Live, url.Values{"name": {"Shop  server"}, "preset": {"read"}})
		b.get(t, page).shows(t, `popovertarget="ask-revoke"`, `<dialog class="ask" id="ask-revoke" popover`, `<strong class="ask-name">Shop  server</strong>`)

		// Without a grace period the old secret ends immediately, which needs the name, too.
		b.post(t, page+"/rotate", url.Values{"grace": {"0"}, "confirm_name": {"shop"}}).fieldErrors(t, [2]string{"confirm_name", "Type &#34;Shop  server&#34; to confirm."}).
			find(t, `value="shop"`)
		calls(t, s, value, 200)
		b.post(t, page+"/rotate", url.Values{"grace": {"3600"}}).redirectsTo(t, page)
		calls(t, s, value, 200) // in its grace period
		// Both questions are on the page, and only that which was answered has the error.
		for _, asked := range []string{"end-grace", "revoke"} {
			rejected := b.post(t, page+"/"+asked, url.Values{"confirm_name": {"shop"}, "ask": {"ask-" + asked}}).fieldErrors(t, [2]string{"confirm_name", "Type &#34;Shop  server&#34; to confirm."})
			if open := rejected.find(t, `id="(ask-[a-z-]+)" popover aria-label="[^"]*" open>`); open != "ask-"+asked || strings.Count(rejected.body, `" open>`) != 1 {
				t.Errorf("%s is open after %s was rejected", open, asked)
			}
			calls(t, s, value, 200)
		}
		b.post(t, page+"/end-grace", url.Values{"confirm_name": {"Shop server"}}).redirectsTo(t, page)
		calls(t, s, value, 401)
		b.post(t, page+"/rotate", url.Values{"grace": {"3600"}}).redirectsTo(t, page)
		b.post(t, page+"/rotate", url.Values{"grace": {"0"}, "force": {"yes"}, "confirm_name": {"Shop server"}}).redirectsTo(t, page)
		calls(t, s, value, 401)
		value = b.get(t, page).find(t, `id="secret">(tp_live_[A-Za-z0-9]+)<`)

		for _, typed := range []string{"", "shop server"} {
			rejected := b.post(t, page+"/revoke", url.Values{"confirm_name": {typed}}).fieldErrors(t, [2]string{"confirm_name", "Type &#34;Shop  server&#34; to confirm."})
			rejected.find(t, `id="ask-revoke" popover aria-label="[^"]*" open>`) // or the error would be hidden without JavaScript
			calls(t, s, value, 200)
		}
		b.post(t, page+"/revoke", url.Values{"confirm_name": {"Shop server"}}).redirectsTo(t, page)
		calls(t, s, value, 401)

		page, value = b.createKey(t, accounts.Test, url.Values{"name": {"backend"}, "preset": {"read"}})
		b.get(t, page).shows(t, `popovertarget="ask-revoke"`).hides(t, "confirm_name")
		b.get(t, page+"/rotate").hides(t, "confirm_name")
		b.post(t, page+"/revoke", nil).redirectsTo(t, page)
		calls(t, s, value, 401)
	})
}

func TestLiveEndpointIsDeletedOnlyByItsHost(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		list := b.in(accounts.Live, "webhooks")
		page := b.post(t, list+"/new", url.Values{"url": {"https://hooks.example.com/turnpike"}, "events": {"*"}}).redirectsTo(t, list+"/*")
		b.get(t, page).shows(t, `<strong class="ask-name">hooks.example.com</strong>`)
		b.post(t, page+"/delete", url.Values{"confirm_name": {"example.com"}}).fieldErrors(t, [2]string{"confirm_name", "Type &#34;hooks.example.com&#34; to confirm."})
		b.get(t, page).is(t, http.StatusOK)
		b.post(t, page+"/delete", url.Values{"confirm_name": {"hooks.example.com"}}).redirectsTo(t, list)
	})
}

func TestScopesAreGrantedByGroup(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		b.get(t, b.in(accounts.Test, "keys/new")).shows(t, `name="scopes" value="images:*"`, "Create images and image batches.", `list="known-models"`, `<option value="gpt-4o-mini">`).
			hides(t, `value="models:*"`) // it would be a group of one
		page, _ := b.createKey(t, accounts.Test, url.Values{"name": {"pictures"}, "preset": {"choose"}, "scopes": {"images:*"}})
		b.get(t, page).shows(t, "<code>images:*</code>")
		b.get(t, page+"/edit").find(t, `name="scopes" value="images:\*" checked`)
		// A wildcard includes future scopes, so that only people with all scopes can grant it.
		member(t, s, w, accounts.Developer).get(t, b.in(accounts.Test, "keys/new")).shows(t, `value="images:create"`).hides(t, `value="images:*"`)
	})
}
