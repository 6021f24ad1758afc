package dashboard_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

func act(t *testing.T, s *harness.Server, by string, a audit.Action, detail any) {
	t.Helper()
	err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
		return audit.Actor{Name: by, IP: "192.0.2.7"}.Log(t.Context(), tx, a, detail, s.Clock.Now())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdminLogShowsActorActionAndTarget(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		owner := member(t, s, w, accounts.Owner)
		viewer := member(t, s, w, accounts.Viewer)
		const evil = `<script>alert(1)</script>`
		to := owner.post(t, owner.in(accounts.Test, "keys/new"), url.Values{"name": {evil}, "scopes": {"*"}}).redirectsTo(t, owner.in(accounts.Test, "keys/key_*"))
		manager, managerID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "deploy bot", Scopes: []string{"*"}})
		made := s.Do(t, harness.Request{Method: "POST", Path: "/v1/projects", Key: manager, Body: map[string]any{"id": "shop", "name": evil}}).Want(t, 200, "")
		hook := s.Do(t, harness.Request{Method: "POST", Path: "/v1/webhooks", Key: manager, Body: map[string]any{"url": "https://example.com/hooks", "events": []string{"*"}}}).Want(t, 200, "")
		run := ids.New(ids.Run)
		act(t, s, owner.person.ID, audit.Action{Tenant: w.In(accounts.Test), Action: "agent.run.approved", Target: run}, map[string]any{evil: "\u202e"})
		act(t, s, owner.person.ID, audit.Action{Tenant: w.In(accounts.Live), Action: "only.live", Target: "x"}, nil)

		a := viewer.get(t, viewer.in(accounts.Test, "log")).shows(t, "The owner", "the operator", "API key deploy bot", "key.created", "project.created", "both environments",
			`<a href="`+to+`">&lt;script&gt;alert(1)&lt;/script&gt;</a>`, `<a href="`+viewer.in(accounts.Test, "projects/shop")+`">shop</a>`,
			`<a href="`+viewer.in(accounts.Test, "runs/"+run)+`">`, `<a href="`+viewer.in(accounts.Test, "webhooks/"+hook.Text("id"))+`">`,
			`<a href="`+viewer.in(accounts.Test, "requests/"+made.Header.Get("X-Request-Id"))+`">`, `\u202e`, "&#34;scopes&#34;")
		a.hides(t, evil, "only.live", "\u202e")
		viewer.get(t, viewer.in(accounts.Live, "log")).shows(t, "only.live", "member.added").hides(t, "agent.run.approved", managerID)

		// Filters can be combined, and links in rows add to them.
		viewer.get(t, viewer.in(accounts.Test, "log"+query("action:project.*"))).shows(t, "API key deploy bot", `value="action:project.*"`).hides(t, "agent.run.approved", "The owner</a>")
		viewer.get(t, viewer.in(accounts.Test, "log"+query(`actor:"Deploy bot"`))).shows(t, "webhook.created").hides(t, "agent.run.approved")
		both := viewer.get(t, viewer.in(accounts.Test, "log"+query(`actor:"the owner"`))).shows(t, "agent.run.approved").hides(t, "webhook.created").link(t, "key.created")
		if !strings.Contains(both, "actor%3A%22the+owner%22") {
			t.Errorf("the action leads to %s", both)
		}
		viewer.get(t, both).shows(t, to).hides(t, "agent.run.approved")
		viewer.get(t, viewer.in(accounts.Test, "log"+query("target:"+run))).shows(t, "agent.run.approved").hides(t, "webhook.created")
		viewer.get(t, viewer.in(accounts.Test, "log"+query(`target:"\"><script>"`))).shows(t, "No entries match").hides(t, `"><script>`)

		viewer.get(t, viewer.in(accounts.Test, "log"+query("actor:nobody"))).shows(t, "No member or test key is named nobody.").hides(t, "webhook.created")
		viewer.get(t, viewer.in(accounts.Test, "log"+query("webhook.created last:1h"))).shows(t, "webhook.created").hides(t, "agent.run.approved")
		viewer.get(t, viewer.in(accounts.Test, "log"+query("webhook.created until:2020-01-01"))).shows(t, "No entries match")

		// Other workspaces see none of it.
		stranger := member(t, s, s.Workspace(t, "other"), accounts.Owner)
		stranger.get(t, viewer.in(accounts.Test, "log")).is(t, 404)
		stranger.get(t, stranger.in(accounts.Test, "log"+query("actor:"+owner.person.ID))).shows(t, "No entries match").hides(t, "The owner of acme", run)
	})
}

func TestAdminLogShowsNamesVerbatim(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		const name = `R&D <east> \u0026`
		b.post(t, b.in(accounts.Test, "keys/new"), url.Values{"name": {name}, "scopes": {"models:read"}, "rate_limit": {"100000000"}}).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		b.get(t, b.in(accounts.Test, "log"+query("action:key.created"))).shows(t, `R&amp;D &lt;east&gt; \\u0026`, "&#34;rate_limit&#34;: 100000000").hides(t, `R\u0026D`, `\u003c`)
	})
}

func TestAdminLogIsPaged(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			for i := range 120 {
				a := audit.Action{Tenant: w.In(accounts.Test), Action: []string{"even", "odd"}[i%2], Target: fmt.Sprintf("target-%03d", i)}
				if err := audit.Operator.Log(t.Context(), tx, a, nil, s.Clock.Now()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		seen, pages := map[string]int{}, 0
		for next := b.in(accounts.Test, "log"+query("action:odd")); ; pages++ {
			a := b.get(t, next).is(t, 200).hides(t, ">even</a>")
			for i := range 120 {
				if strings.Contains(a.body, fmt.Sprintf(">target-%03d</td>", i)) {
					seen[fmt.Sprint(i%2)]++
				}
			}
			if !strings.Contains(a.body, ">Older</a>") {
				break
			}
			if next = a.link(t, "Older"); !strings.Contains(next, "action%3Aodd") {
				t.Fatalf("the next page is %s", next)
			}
		}
		if seen["1"] != 60 || seen["0"] != 0 || pages != 1 {
			t.Errorf("%d pages after the first, with %v", pages, seen)
		}
	})
}
