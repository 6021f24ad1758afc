package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// fieldErrors checks that a rejected form shows exactly these errors, each below its field, in this
// order, and that the first of the fields has the focus.
func (a *response) fieldErrors(t testing.TB, messages ...[2]string) *response {
	t.Helper()
	a.is(t, http.StatusBadRequest)
	at := 0
	for i, m := range messages {
		id := "error-" + m[0]
		shown := `<small class="field-error" id="` + id + `">` + m[1] + `</small>`
		next := strings.Index(a.body, shown)
		if next < at {
			t.Errorf("%s doesn't show %s after the errors before it:\n%s", a.path, shown, a.main())
			return a
		}
		at = next
		described := `aria-describedby="` + id + `"`
		if i == 0 {
			described += " autofocus"
		}
		if !strings.Contains(a.body, described) {
			t.Errorf("%s has no field with %s", a.path, described)
		}
	}
	if n := strings.Count(a.body, `class="field-error"`); n != len(messages) {
		t.Errorf("%s shows %d errors of fields, want %d:\n%s", a.path, n, len(messages), a.main())
	}
	if n := strings.Count(a.body, "autofocus"); n != 1 {
		t.Errorf("%s has %d fields with the focus, want 1", a.path, n)
	}
	return a.hides(t, `class="problem"`)
}

func TestFormShowsAllErrorsBelowTheirFields(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)

		keys := b.in(accounts.Live, "keys/new")
		b.post(t, keys, url.Values{"name": {""}, "preset": {"calls"}, "monthly_budget": {"lots"}, "rate_limit": {"-3"}, "allowed_ips": {"not-an-ip"}}).fieldErrors(t,
			[2]string{"name", "Enter a name."},
			[2]string{"monthly_budget", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."},
			[2]string{"rate_limit", "Enter a whole number."},
			[2]string{"allowed_ips", `&#34;not-an-ip&#34; is neither an IP address nor a CIDR range such as 10.0.0.0/8.`},
		).hides(t, "/v1/")
		// The checks of the domain are complete, too, and use the words of the form.
		b.post(t, keys, url.Values{"name": {"x"}, "preset": {"choose"}, "rate_limit": {"0"}, "alert_email": {"nobody"}}).fieldErrors(t,
			[2]string{"scopes", "Select at least one permission."},
			[2]string{"rate_limit", "The limit must be from 1 to 100000000 requests per minute."},
			[2]string{"alert_email", "&#34;nobody&#34; is not an email address."}).contains(t, `<details class="fold" open>`)
		b.post(t, keys, url.Values{"name": {"x"}, "preset": {"calls"}, "limits": {"2"}, "limits[0].budget": {"?"}, "limits[1].requests_per_minute": {"?"}, "temporary_raise.budget": {"?"}}).fieldErrors(t,
			[2]string{"limits-0-budget", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."},
			[2]string{"limits-1-requests_per_minute", "Enter a whole number."},
			[2]string{"temporary_raise-budget", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."})
		b.get(t, b.in(accounts.Live, "keys")).hides(t, "/keys/key_")

		b.post(t, b.in(accounts.Test, "webhooks/new"), url.Values{"url": {"ftp://example.com"}, "requests_per_second": {"0"}}).fieldErrors(t,
			[2]string{"url", "The address must begin with https://."},
			[2]string{"events", "Select at least one event, or All events."},
			[2]string{"requests_per_second", "The rate limit must be from 1 to 1000."})
		b.post(t, b.in(accounts.Test, "webhooks/new"), url.Values{"headers": {"nonsense"}}).fieldErrors(t,
			[2]string{"url", "Enter the address, as in https://example.com/path."},
			[2]string{"events", "Select at least one event, or All events."},
			[2]string{"headers", "Enter one header in each line, as in Authorization: Bearer …."})
		b.post(t, b.in(accounts.Test, "settings"), url.Values{"default_project_budget": {"?"}, "rotation_grace": {"1000"}}).fieldErrors(t,
			[2]string{"default_project_budget", "Enter a number of credits such as 100 or 2.5, with at most six decimals and at most 1000000000000."},
			[2]string{"rotation_grace", "Enter a grace period from 0 to 168 hours."})
		b.post(t, b.in(accounts.Test, "projects"), url.Values{"id": {"a b"}, "monthly_budget": {"?"}}).is(t, http.StatusBadRequest).find(t, `id="error-id">[^<]+<(?s:.*)id="error-monthly_budget">`)
	})
}

func TestErrorOfNoFieldIsAboveTheForm(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		page := newBrowser(t, s).post(t, "/dashboard/login", credentials(b, "wrong")).is(t, http.StatusUnauthorized)
		page.find(t, `<p class="problem" role="alert">[^<]+</p>`)
		page.hides(t, "field-error")
	})
}

func TestRouteRuleAndProviderFormsShowAllErrors(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		s.GrantOperator(t, b.person.ID)

		routes := b.in(accounts.Test, "routes")
		b.post(t, routes, url.Values{"name": {"My route"}, "strategy": {"luck"}, "weights": {"two"}, "timeout_ms": {"soon"}}).fieldErrors(t,
			[2]string{"name", "The name must have 1 to 64 of a-z, 0-9 and -."},
			[2]string{"models", "Enter at least one model."},
			[2]string{"strategy", "The strategy must be order, weight, latency or price."},
			[2]string{"weights", "Enter whole numbers from 1 to 1000, one for each model."},
			[2]string{"timeout_ms", "Enter a whole number from 100 to 3600000, or nothing."},
		).find(t, `value="My route"(?s:.*)value="soon"`)

		_, key := s.Key(t, w, accounts.Test)
		rule := url.Values{"name": {""}, "issuer": {"ftp://x"}, "audience": {""}, "subject": {"*"}, "key_id": {key}, "scopes": {"models:read"}, "allowed_models": {"nonsense-*"},
			"grants": {"no arrow"}, "user_claim": {"sub"}, "budget": {"lots"}, "requests_per_minute": {"-1"}, "expires_in": {"1.5"}}
		shown := b.post(t, b.in(accounts.Test, "federation/new"), rule).is(t, http.StatusBadRequest).hides(t, `class="problem"`)
		for _, field := range []string{"name", "issuer", "audience", "subject", "allowed_models", "grants", "budget", "requests_per_minute", "expires_in"} {
			shown.find(t, `aria-describedby="error-`+field+`"`)
			shown.find(t, `<small class="field-error" id="error-`+field+`">`)
		}
		// A key that doesn't exist doesn't hide the other errors.
		rule.Set("key_id", "key_00000000000000000000000000")
		rule.Set("expires_in", "4000")
		b.post(t, b.in(accounts.Test, "federation/new"), rule).find(t, `id="error-subject"(?s:.*)id="error-key_id"(?s:.*)id="error-expires_in"`)

		const provider = "/dashboard/server/providers/new"
		b.post(t, provider, url.Values{"name": {"My provider"}, "type": {"openai"}, "base_url": {"nowhere"}, "weight": {"some"}, "catalog": {"?"}, "more": {"{"}}).fieldErrors(t,
			[2]string{"name", "The name is missing or not a name; expected 1 to 32 of a-z, 0-9 and -."},
			[2]string{"base_url", "The base URL is not an absolute http:// or https:// address; expected such as https://api.example.com/v1."},
			[2]string{"catalog", "The catalog is not a provider of the table of models; expected such as openai or mistral."},
			[2]string{"weight", "Enter a whole number from 1 to 1000."},
			[2]string{"more", "The other fields must be a JSON object, as in {&#34;models&#34;: [{&#34;id&#34;: &#34;my-model&#34;, &#34;price&#34;: {&#34;input&#34;: 0.15, &#34;output&#34;: 0.6}}]}."},
		).find(t, `value="some"`)
		b.post(t, provider, url.Values{"name": {"mine"}, "type": {"openai"}, "base_url": {"https://api.example.com/v1"}, "api_key_secret": {"not a key"}, "weight": {"1"}, "more": {`{"models": [{"id": ""}, {"id": "auto"}]}`}}).is(t, http.StatusBadRequest).
			find(t, `id="error-api_key_secret">The key has a space(?s:.*)id="error-more">models\[0\].id is missing.* models\[1\].id is a name of the router`)
		b.post(t, "/dashboard/server/routes", url.Values{"name": {"?"}, "models": {"auto"}}).is(t, http.StatusBadRequest).
			find(t, `id="error-name"(?s:.*)id="error-models"`)
		b.get(t, "/dashboard/server").shows(t, "No providers yet", "No routes yet")
	})
}

// What was typed isn't lost because of an error of the server.
func TestFormIsShownAgainAfterAServerError(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		projects := b.in(accounts.Test, "projects")
		give(t, s, []any{"ALTER TABLE admin_actions RENAME TO admin_actions_away"})
		form := url.Values{"id": {"lanterns"}, "name": {"Lamps and lanterns"}}
		b.post(t, projects, form).is(t, http.StatusInternalServerError).contains(t, "Lamps and lanterns", `role="alert"`, "Create project").hides(t, "admin_actions")
		give(t, s, []any{"ALTER TABLE admin_actions_away RENAME TO admin_actions"})
		b.post(t, projects, form).redirectsTo(t, projects+"/lanterns")
	})
}
