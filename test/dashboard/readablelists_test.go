package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// cells returns the text of a column of a list, by its data-label.
func (a *response) cells(label string) (list []string) {
	for _, m := range regexp.MustCompile(`(?s)<td data-label="`+label+`"[^>]*>(.*?)</td>`).FindAllStringSubmatch(a.body, -1) {
		list = append(list, strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[1], " ")), " "))
	}
	return list
}

func TestRunsAndJobsShowTheirInputAndKeyName(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		var id string
		m.key, id = s.KeyOf(t, &access.Key{Tenant: m.workspace.In(accounts.Test), Name: "Support agent", Scopes: []string{"*"}})
		run := m.create(t, "/v1/agents/runs", map[string]any{"model": "gpt-4o", "input": []any{
			map[string]any{"role": "system", "content": "Be brief."},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "Where is\n\norder 7? " + script + strings.Repeat(" Hurry.", 50) + " The end."}}},
		}}).Text("id")
		images := m.create(t, "/v1/images/batches", map[string]any{"requests": []any{
			map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "a lantern", "size": "64x64", "n": 2}},
			map[string]any{"custom_id": "b", "body": map[string]any{"prompt": "a harbor", "size": "64x64", "n": 2}}}}).Text("id")
		voice := m.create(t, "/v1/voice/renders", map[string]any{"voice": "alloy", "input": "Good evening."}).Text("id")
		m.waitFor(t, "/v1/agents/runs/"+run, "completed")
		m.waitFor(t, "/v1/images/batches/"+images, "completed")

		m.get(t, m.in(accounts.Test, "runs")).shows(t, "runs/"+run, ">Where is order 7? ", ">Support agent<").hides(t, ">"+id, "The end.", "Be brief", "<script>alert")
		// The filters offer the models in use.
		m.get(t, m.in(accounts.Test, "runs")).shows(t, `<datalist id="search-model"><option value="gpt-4o"></option></datalist>`)
		m.get(t, m.in(accounts.Test, "jobs/images")).find(t, `<datalist id="search-model"><option value="([^"]+)"></option></datalist>`)
		m.get(t, m.in(accounts.Test, "runs/"+run)).shows(t, `keys/`+id+`">Support agent</a>`)
		list := m.get(t, m.in(accounts.Test, "jobs/images")).shows(t, "jobs/images/"+images, ">a lantern<", ">Support agent<", "2 of 2").hides(t, ">"+id, "a harbor")
		if n := len(list.links()); n != 3 {
			t.Errorf("the list shows %d images, want 3:\n%s", n, list.main())
		}
		m.get(t, m.in(accounts.Test, "jobs/images/"+images)).shows(t, `keys/`+id+`">Support agent</a>`)
		m.get(t, m.in(accounts.Test, "jobs/voice")).shows(t, "jobs/voice/"+voice, ">Good evening.<", "13 characters", ">Support agent<")
	})
}

func TestKeyListNamesCreators(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.createKey(t, accounts.Test, url.Values{"name": {"by hand"}, "preset": {"read"}})
		value, bot := s.KeyOf(t, &access.Key{Tenant: b.workspace.In(accounts.Test), Name: "deploy bot", Scopes: []string{"*"}})
		made := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: value, Body: map[string]any{"name": "by a bot", "scopes": []string{"models:read"}}}).Want(t, 200, "").Text("id")

		list := b.get(t, b.in(accounts.Test, "keys")).shows(t, `<a class="quiet" href="`+b.in(accounts.Test, "keys/"+bot)+`">API key deploy bot</a>`)
		if got := list.cells("Created"); len(got) != 3 || !strings.HasSuffix(got[0], " API key deploy bot") || !strings.HasSuffix(got[1], " the operator") || !strings.HasSuffix(got[2], " The owner") {
			t.Errorf("the keys were created by %q", got)
		}
		if got := list.cells("Permissions"); len(got) != 3 || got[0] != "models:read" || got[1] != "Full access" {
			t.Errorf("the keys have %q", got)
		}
		b.get(t, b.in(accounts.Test, "keys/"+made)).shows(t, ">API key deploy bot</a>").hides(t, "by "+bot)
		b.get(t, b.in(accounts.Test, "keys/"+bot)).shows(t, "by the operator", "Full access").hides(t, "<code>*</code>")
	})
}

func TestBudgetsInTestHaveNoMeter(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		for env, want := range map[accounts.Environment]string{accounts.Live: "0% 0 of 500 $0.00 of $0.50", accounts.Test: "500 not applied in test"} {
			page, _ := b.createKey(t, env, url.Values{"name": {"limited"}, "preset": {"calls"}, "monthly_budget": {"500"}})
			list := b.get(t, b.in(env, "keys"))
			if got := list.cells("Budget"); len(got) != 1 || got[0] != want {
				t.Errorf("the list in %s shows %q, want %q", env, got, want)
			}
			for _, shown := range []*response{list, b.get(t, page)} {
				if got := strings.Contains(shown.body, "<meter"); got != (env == accounts.Live) {
					t.Errorf("%s has a meter: %v", shown.path, got)
				}
			}
		}
	})
}
