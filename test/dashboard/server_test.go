package dashboard_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

const providerKey = "sk-dashboard-4f1c4b1ff3b84c2a9d07e6a1"

func TestProviderAddedInTheDashboardServesOnAnotherNode(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			up := upstreams.NewOpenAI(t, providerKey)
			up.Models = []string{"brand-new", "mine"}
			cfg, clock := harness.Config(t, engine), harness.NewClock()
			s := harness.Start(t, cfg, clock)
			other := s // with SQLite there is one node
			if engine == "postgres" {
				other = harness.Start(t, cfg, clock)
			}
			w := s.Workspace(t, "acme")
			key, _ := s.Key(t, w, accounts.Live)
			call := func() int {
				return other.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key,
					Body: map[string]any{"model": "mine", "messages": []any{map[string]any{"role": "user", "content": "Hi."}}}}).Status
			}
			b := member(t, s, w, accounts.Owner)
			b.get(t, "/dashboard/server").is(t, http.StatusNotFound) // owners aren't operators
			b.get(t, "/dashboard/account").hides(t, `href="/dashboard/server"`)
			s.GrantOperator(t, b.person.ID)
			b.get(t, "/dashboard/account").shows(t, `href="/dashboard/server"`)
			b.get(t, "/dashboard/server").shows(t, "No providers yet", "No routes yet")

			form := url.Values{"name": {"mine-" + engine}, "type": {"openai"}, "base_url": {up.BaseURL()}, "api_key_secret": {"sk-wrong-4f1c4b1ff3b84c2a9d07e6a1"}, "weight": {"1"},
				"more": {`{"models": [{"id": "mine", "price": {"input": 0.15, "output": 0.6}}]}`}}
			b.post(t, "/dashboard/server/providers/new", form).rejects(t, 400, "rejects this key (401)").hides(t, "sk-wrong")
			b.get(t, "/dashboard/server").shows(t, "No providers yet")
			if got := call(); got != http.StatusServiceUnavailable {
				t.Errorf("before: got %d, want 503", got)
			}
			form.Set("api_key_secret", providerKey)
			page := b.follow(t, b.post(t, "/dashboard/server/providers/new", form)).shows(t, "Provider added.", "…e6a1").hides(t, providerKey)
			// Nodes read the definitions only after a signal and never poll them, so this waits for the signal.
			s.Eventually(t, func() bool { return call() == http.StatusOK })

			path := "/dashboard/server/providers/mine-" + engine
			b.follow(t, b.post(t, path+"/test", url.Values{})).shows(t, "The test succeeded: mine responded")
			b.post(t, path+"/test", url.Values{"model": {"nothing"}}).rejects(t, 400, "does not offer")
			up.Queue(upstreams.OpenAIReply{Status: 401, Code: "invalid_api_key", Message: "Incorrect API key provided: " + providerKey})
			b.post(t, path+"/test", url.Values{}).rejects(t, 409, "rejects the key (401)").hides(t, providerKey)

			edit := b.get(t, path+"/edit").shows(t, "0.15").hides(t, providerKey)
			form.Del("api_key_secret")
			form.Set("weight", "7")
			form.Set("more", `{"models": [{"id": "mine", "price": {"input": 0.3, "output": 0.6}}, {"id": "mine-too", "price": {"input": 1, "output": 1}}]}`)
			b.follow(t, b.post(t, path+"/edit", form)).shows(t, "Provider saved.", "mine-too")
			s.Eventually(t, func() bool { return call() == http.StatusOK }) // it kept its key
			form.Set("seen", edit.find(t, `name="seen" value="([0-9a-f]+)"`))
			form.Set("weight", "8")
			b.post(t, path+"/edit", form).rejects(t, http.StatusConflict, "Someone changed this after you opened the page")

			b.get(t, path).shows(t, path+"/models")
			b.get(t, path+"/models").shows(t, "brand-new", ">new<").hides(t, providerKey)
			b.get(t, "/dashboard/server").shows(t, "Markup</dt><dd>0%")
			b.follow(t, b.post(t, "/dashboard/server/pricing", url.Values{"markup_percent": {"12.5"}})).shows(t, "Markup saved.", "Markup</dt><dd>12.5%", "pricing.created")
			b.post(t, "/dashboard/server/pricing", url.Values{"markup_percent": {"2000"}}).rejects(t, 400, "out of range")
			b.follow(t, b.post(t, "/dashboard/server/routes", url.Values{"name": {"fast"}, "models": {"mine\nmine-too"}})).shows(t, "Route added.", "route/fast", "provider.created", "The owner")
			b.follow(t, b.post(t, "/dashboard/server/routes/fast/delete", url.Values{})).shows(t, "Route deleted.")
			b.follow(t, b.post(t, path+"/delete", url.Values{})).shows(t, "Provider deleted.")
			s.Eventually(t, func() bool { return call() == http.StatusServiceUnavailable })
			if strings.Contains(page.body+edit.body, providerKey) || bytes.Contains(s.DumpDatabase(t), []byte(providerKey)) {
				t.Error("the key of the provider is in a page or the database")
			}
		})
	}
}
