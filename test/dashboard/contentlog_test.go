package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/test/harness"
)

func TestOnlyOwnersGrantContentAccess(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		owner, admin, developer := member(t, s, w, accounts.Owner), member(t, s, w, accounts.Admin), member(t, s, w, accounts.Developer)
		key, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "logged", Scopes: []string{"*"}, ContentDays: new(int64(7))})
		request := func(key string) string {
			r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key,
				Body: map[string]any{"model": "gpt-4o-mini", "messages": []map[string]string{{"role": "user", "content": "a confidential question"}}}}).Want(t, 200, "")
			return requestID(r)
		}
		id, team := request(key), owner.in(accounts.Test, "team")
		page := owner.in(accounts.Test, "requests/"+id)
		grant := func(by, to *browser, allowed string) *response {
			return by.post(t, team+"/members/"+to.person.ID+"/content", url.Values{"content_access": {allowed}})
		}
		reads := func() int64 {
			n, err := db.Value[int64](s.DB.QueryRow(t.Context(), "SELECT count(*) FROM admin_actions WHERE action = 'content.read' AND target = $1", id))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		// No role has access, not even an owner's.
		for _, b := range []*browser{owner, admin, developer} {
			b.get(t, page).shows(t, "Repeat with curl", "With an example as body.").hides(t, ">Content<", "a confidential question")
			b.get(t, page+"/content").is(t, http.StatusForbidden)
			b.get(t, b.in(accounts.Test, "playground?request="+id)).hides(t, "a confidential question")
		}
		grant(admin, admin, "true").rejects(t, http.StatusForbidden, "Only owners can let members read the content of requests.")
		grant(developer, developer, "true").is(t, http.StatusForbidden)
		if n := reads(); n != 0 {
			t.Errorf("%d reads are recorded, want none", n)
		}
		grant(owner, developer, "true").redirectsTo(t, team)
		owner.get(t, team).shows(t, "Content access granted.", "checked")
		// Looking at the request isn't a read of its content.
		developer.get(t, page).shows(t, ">Content<", "Show content", "Kept until", "With an example as body.").hides(t, "a confidential question")
		if n := reads(); n != 0 {
			t.Errorf("%d reads are recorded, want none", n)
		}
		shownContent := developer.get(t, page+"/content").shows(t, "a confidential question", "Request body", "Response body", "chat.completion", "With the stored body.")
		if curl := html.UnescapeString(shownContent.find(t, `<code id="request-curl">([^<]*)<`)); !strings.Contains(curl, `-d '{`) || !strings.Contains(curl, `"content":"a confidential question"`) {
			t.Errorf("the command doesn't have the stored body:\n%s", curl)
		}
		shown := developer.get(t, developer.in(accounts.Test, "playground?request="+id)).is(t, http.StatusOK)
		if !strings.Contains(html.UnescapeString(shown.body), `"content":"a confidential question"`) {
			t.Error("the playground isn't filled with the messages")
		}
		if n := reads(); n != 2 {
			t.Errorf("%d reads are recorded, want 2", n)
		}
		plain, _ := s.Key(t, w, accounts.Test)
		other := request(plain)
		developer.get(t, developer.in(accounts.Test, "requests/"+other)).shows(t, "The content of this request isn't stored.").hides(t, "Show content")
		developer.get(t, developer.in(accounts.Test, "requests/"+other+"/content")).is(t, http.StatusNotFound)
		owner.get(t, owner.in(accounts.Live, "log")).shows(t, "member.content_access_changed")
		owner.get(t, owner.in(accounts.Test, "log")).shows(t, "content.read")

		// Owners grant it to themselves, and can revoke a key that they may not manage.
		reader, readerID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "reader", Scopes: []string{"content:read"}})
		owner.get(t, owner.in(accounts.Test, "keys/"+readerID+"/edit")).is(t, http.StatusForbidden)
		owner.get(t, owner.in(accounts.Test, "keys/"+readerID)).shows(t, "Revoke key")
		grant(owner, owner, "true").redirectsTo(t, team)
		owner.get(t, owner.in(accounts.Test, "keys/"+readerID+"/edit")).shows(t, `value="content:read"`)
		grant(owner, owner, "").redirectsTo(t, team)
		owner.post(t, owner.in(accounts.Test, "keys/"+readerID+"/revoke"), url.Values{}).is(t, http.StatusSeeOther)
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id + "/content", Key: reader}).Want(t, 401, "authentication_error")

		// Taking it back, and another role, end the access.
		grant(owner, developer, "").redirectsTo(t, team)
		developer.get(t, page+"/content").is(t, http.StatusForbidden)
		grant(owner, developer, "true").redirectsTo(t, team)
		owner.post(t, team+"/members/"+developer.person.ID+"/role", url.Values{"new_role": {"admin"}}).redirectsTo(t, team)
		developer.signIn(t)
		developer.get(t, page+"/content").is(t, http.StatusForbidden)
	})
}

func TestContentLogIsASettingOfKeysAndProjects(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		form := url.Values{"name": {"logged"}, "preset": {"calls"}, "content_log_days": {"91"}}
		b.post(t, b.in(accounts.Test, "keys/new"), form).rejects(t, http.StatusBadRequest, "Keep content must be from 1 to 90, 0 to turn the content log off.")
		form.Set("content_log_days", "14")
		key := b.post(t, b.in(accounts.Test, "keys/new"), form).redirectsTo(t, b.in(accounts.Test, "keys/*"))
		b.get(t, key).shows(t, "Content log", "kept for 14 days")
		project := url.Values{"id": {"shop"}, "content_log_days": {"30"}}
		b.post(t, b.in(accounts.Test, "projects"), project).redirectsTo(t, b.in(accounts.Test, "projects/shop"))
		page := b.get(t, b.in(accounts.Test, "projects/shop")).shows(t, "kept for 30 days")
		b.post(t, b.in(accounts.Test, "projects/shop"), url.Values{"name": {"Shop"}, "seen": {page.find(t, `name="seen" value="([^"]*)"`)}}).redirectsTo(t, b.in(accounts.Test, "projects/shop"))
		b.get(t, b.in(accounts.Test, "projects/shop")).shows(t, "off").hides(t, "kept for 30 days")
	})
}
