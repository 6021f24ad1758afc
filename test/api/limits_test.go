package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// limitOf returns a limit that pays for two requests, which reserve a little more than a credit each.
func limitOf(window accounts.Window, more map[string]any) map[string]any {
	limit := map[string]any{"models": []string{"sma*"}, "budget": 2.5, "window": window}
	for name, value := range more {
		limit[name] = value
	}
	return limit
}

// TestLimitsOfKeysAndProjects covers limits from their creation to their refusals.
func TestLimitsOfKeysAndProjects(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(40)
		poor := m.withKey(t, access.Key{})
		key := "/v1/keys/" + m.get(t, "/v1/keys").Text("data.0.id") // newest first
		m.post(t, "/v1/projects", map[string]any{"id": "shop"})
		for _, tt := range []struct {
			path, level string
			header      http.Header
		}{
			{key, "key", nil}, // first: requests of the project count for the key as well
			{"/v1/projects/shop", "project", http.Header{"Service-Project": {"shop"}}},
		} {
			path := tt.path
			chat := func() *harness.Response {
				r := poor.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: poor.key, Body: oneCreditBody(), Header: tt.header})
				if r.Status == http.StatusOK {
					m.entry(t, r) // settled
				}
				return r
			}
			change := func(body map[string]any) *harness.Response {
				t.Helper()
				return m.ask(t, "PATCH", path, body)
			}
			other := map[string]any{"models": []string{"gpt-4o-mini"}, "requests_per_minute": 1}
			stored := change(map[string]any{"limits": []any{other, limitOf("day", nil)}}).Want(t, 200, "")
			id := stored.Text("limits.1.id")
			chat().Want(t, 200, "")
			// Editing another limit resets nothing, and neither does sending back what was read.
			if r := change(map[string]any{"limits": []any{limitOf("day", nil)}}).Want(t, 200, ""); r.Text("limits.0.id") != id || r.At("limits.0.spent") != 1.0 {
				t.Errorf("%s: got %s, want %s with a credit spent", path, r.Body, id)
			}
			read := m.get(t, path)
			if r := change(map[string]any{"limits": read.At("limits")}).Want(t, 200, ""); r.Text("limits.0.id") != id || r.At("limits.0.spent") != 1.0 {
				t.Errorf("%s: got %s, want no change", path, r.Body)
			}
			chat().Want(t, 200, "")
			refused := chat().Want(t, 402, "budget_exceeded")
			midnight := float64(m.Clock.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Unix())
			for field, want := range map[string]any{"param": "limits[0].budget", "details.limit_source": "model", "details.level": tt.level, "details.limit_id": id,
				"details.window": "day", "details.limit": 2.5, "details.spent": 2.0, "details.resets_at": midnight} {
				if got := refused.At("error." + field); got != want {
					t.Errorf("%s: got %s %v, want %v", path, field, got, want)
				}
			}
			// A budget below what is spent is refused as a whole.
			for param, body := range map[string]map[string]any{
				"limits[1].budget":       {"name": "changed", "limits": []any{other, limitOf("day", map[string]any{"budget": 1.9})}},
				"limits[0].models":       {"name": "changed", "limits": []any{limitOf("day", map[string]any{"models": []string{"unheard-of-*"}})}},
				"limits[0].window":       {"name": "changed", "limits": []any{map[string]any{"budget": 1}}},
				"temporary_raise.budget": {"name": "changed", "monthly_budget": 1, "temporary_raise": map[string]any{"budget": 1.5, "until": m.Clock.Now().Add(time.Hour).Unix()}},
				"temporary_raise.until":  {"name": "changed", "monthly_budget": 1, "temporary_raise": map[string]any{"budget": 9, "until": m.Clock.Now().Unix()}},
			} {
				if r := change(body).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
					t.Errorf("%s: got param %s, want %s: %s", path, r.Text("error.param"), param, r.Body)
				}
			}
			if r := m.get(t, path); r.Text("name") == "changed" || r.At("limits.0.budget") != 2.5 || r.At("monthly_budget") != nil || r.At("temporary_raise") != nil {
				t.Errorf("%s: a refused change was stored: %s", path, r.Body)
			}
			change(map[string]any{"limits": []any{limitOf("day", map[string]any{"budget": 3.5})}}).Want(t, 200, "")
			chat().Want(t, 200, "")
			chat().Want(t, 402, "budget_exceeded")
			change(map[string]any{"limits": nil}).Want(t, 200, "")
			// A raise ends without a change.
			until := m.Clock.Now().Add(time.Hour).Unix()
			raised := change(map[string]any{"monthly_budget": 3, "temporary_raise": map[string]any{"budget": 4.5, "until": until}}).Want(t, 200, "")
			if raised.At("temporary_raise.budget") != 4.5 || raised.At("temporary_raise.until") != float64(until) {
				t.Errorf("%s: got %s", path, raised.Body)
			}
			chat().Want(t, 200, "")
			if r := chat().Want(t, 402, "budget_exceeded"); r.At("error.details.limit") != 4.5 {
				t.Errorf("%s: got %s, want the raised budget", path, r.Body)
			}
			change(map[string]any{"monthly_budget": nil, "temporary_raise": nil}).Want(t, 200, "")
		}
	})
}

// TestKeyCannotResetItsOwnLimits sends a key's limits back in other forms.
func TestKeyCannotResetItsOwnLimits(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(9)
		poor := m.withKey(t, access.Key{})
		path := "/v1/keys/" + m.get(t, "/v1/keys").Text("data.0.id") // newest first
		with := func(more map[string]any) map[string]any {
			limit := limitOf("lifetime", map[string]any{"requests_per_minute": 2})
			for name, value := range more {
				limit[name] = value
			}
			return limit
		}
		id := m.ask(t, "PATCH", path, map[string]any{"limits": []any{with(nil)}}).Want(t, 200, "").Text("limits.0.id")
		for range 2 {
			poor.entry(t, poor.chat(t, oneCreditBody()).Want(t, 200, "")) // settled
		}
		poor.chat(t, oneCreditBody()).Want(t, 429, "rate_limit_exceeded")
		for name, list := range map[string][]any{
			"a repeated model": {with(map[string]any{"models": []string{"sma*", "sma*"}})},
			"more models":      {with(map[string]any{"models": []string{"tiny", "sma*"}})},
			"all models":       {with(map[string]any{"models": nil})},
			"a copy":           {with(map[string]any{"models": []string{"sma*", "tiny"}}), with(nil)},
		} {
			if r := poor.ask(t, "PATCH", path, map[string]any{"limits": list}).Want(t, 200, ""); !strings.Contains(string(r.Body), id) || r.At("limits.0.spent") != 2.0 && r.At("limits.1.spent") != 2.0 {
				t.Errorf("%s: got %s, want %s with 2 credits spent", name, r.Body, id)
			}
			poor.chat(t, oneCreditBody()).Want(t, 429, "rate_limit_exceeded")
			m.ask(t, "PATCH", path, map[string]any{"limits": []any{with(map[string]any{"id": id})}}).Want(t, 200, "")
		}
		spare := map[string]any{"id": id, "models": []string{"tiny"}, "requests_per_minute": 2}
		if r := poor.ask(t, "PATCH", path, map[string]any{"limits": []any{spare, with(nil)}}).Want(t, 403, "insufficient_scope"); r.Text("error.param") != "limits" {
			t.Errorf("got %s, want the limits refused", r.Body)
		}
		m.Clock.Turn(time.Minute)
		poor.chat(t, oneCreditBody()).Want(t, 402, "budget_exceeded")
	})
}

// TestBudgetBelowSpendingIsRefused covers the budgets of a month. A budget of 0 blocks on purpose.
func TestBudgetBelowSpendingIsRefused(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(40)
		key, keyID := m.newKey(t, access.Key{})
		m.post(t, "/v1/projects", map[string]any{"id": "shop"})
		header := http.Header{"Service-Project": {"shop"}}
		chat := func() *harness.Response {
			r := m.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: oneCreditBody(), Header: header})
			if r.Status == http.StatusOK {
				m.entry(t, r) // settled
			}
			return r
		}
		chat().Want(t, 200, "")
		chat().Want(t, 200, "")
		for _, tt := range []struct {
			path, field, code, other string
			values                   [2]any // of the other field, which a refused change keeps
		}{
			{"/v1/keys/" + keyID, "monthly_budget", "budget_exceeded", "name", [2]any{"one", "two"}},
			{"/v1/projects/shop", "monthly_budget", "budget_exceeded", "name", [2]any{"one", "two"}},
			{"/v1/billing", "monthly_credits", "insufficient_credits", "alert_threshold", [2]any{"10%", "30%"}},
		} {
			change := func(budget, other any) *harness.Response {
				t.Helper()
				return m.ask(t, "PATCH", tt.path, map[string]any{tt.field: budget, tt.other: other})
			}
			first, second := tt.values[0], tt.values[1]
			change(nil, first).Want(t, 200, "")
			r := change(1.999999, second).Want(t, 400, "invalid_parameter")
			if want := tt.field + " cannot be 1.999999, because 2 credits are already spent. Set at least 2."; r.Text("error.param") != tt.field || r.Text("error.message") != want {
				t.Errorf("%s: got %s, want %q", tt.path, r.Body, want)
			}
			if r := m.get(t, tt.path); r.At(tt.field) != nil || r.At(tt.other) != first {
				t.Errorf("%s: a refused change was stored: %s", tt.path, r.Body)
			}
			change(2, first).Want(t, 200, "")
			chat().Want(t, 402, tt.code)
			change(2, second).Want(t, 200, "") // used up, and the same
			change(1, first).Want(t, 400, "invalid_parameter")
			change(0, first).Want(t, 200, "")
			chat().Want(t, 402, tt.code)
			change(1, second).Want(t, 400, "invalid_parameter")
			change(nil, first).Want(t, 200, "")
		}
		// After a raise, more may be spent than the budget. Other fields can still be changed.
		until := m.Clock.Now().Add(time.Hour).Unix()
		paths := []string{"/v1/keys/" + keyID, "/v1/projects/shop"}
		for _, path := range paths {
			m.ask(t, "PATCH", path, map[string]any{"monthly_budget": 2, "temporary_raise": map[string]any{"budget": 3.5, "until": until}, "limits": []any{limitOf("day", nil)}}).Want(t, 200, "")
		}
		chat().Want(t, 200, "")
		for _, path := range paths {
			m.ask(t, "PATCH", path, map[string]any{"name": "three", "monthly_budget": 2, "temporary_raise": nil}).Want(t, 200, "")
			m.ask(t, "PATCH", path, map[string]any{"monthly_budget": 2.5}).Want(t, 400, "invalid_parameter")
			if r := m.get(t, path); r.Text("name") != "three" || r.At("monthly_budget") != 2.0 || r.At("spent_this_month") != 3.0 {
				t.Errorf("got %s", r.Body)
			}
		}
	})
}

// TestLimitUsedUpByRunningRequestsKeepsTheKeyEditable: a running request may cost more than a limit that was lowered meanwhile.
func TestLimitUsedUpByRunningRequestsKeepsTheKeyEditable(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		key, id := m.newKey(t, access.Key{})
		change := func(body map[string]any) *harness.Response {
			t.Helper()
			return m.ask(t, "PATCH", "/v1/keys/"+id, body)
		}
		change(map[string]any{"limits": []any{limitOf("day", nil)}}).Want(t, 200, "")
		reply := make(chan struct{})
		m.openai.Queue(upstreams.OpenAIReply{Gate: reply, Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
		done := make(chan *harness.Response)
		go func() { done <- m.as(key).chat(t, oneCreditBody()) }()
		m.openai.Wait(1)
		change(map[string]any{"limits": []any{limitOf("day", map[string]any{"budget": 0.5})}}).Want(t, 200, "")
		close(reply)
		m.entry(t, (<-done).Want(t, 200, ""))
		r := change(map[string]any{"name": "renamed"}).Want(t, 200, "")
		if r.Text("name") != "renamed" || r.At("limits.0.spent") != 1.0 || r.At("limits.0.budget") != 0.5 {
			t.Errorf("got %s", r.Body)
		}
		r = change(map[string]any{"limits": []any{limitOf("day", map[string]any{"budget": 0.6})}}).Want(t, 400, "invalid_parameter")
		if r.Text("error.param") != "limits[0].budget" {
			t.Errorf("got %s", r.Body)
		}
	})
}

// TestKeyKeepsTheLimitsOfItsManager is why a key can't raise its own limits.
func TestKeyKeepsTheLimitsOfItsManager(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		r := m.post(t, "/v1/keys", map[string]any{"name": "parent", "scopes": []string{"*"}, "monthly_budget": 5, "limits": []any{limitOf("day", nil)}})
		parent, self := r.Text("value"), "/v1/keys/"+r.Text("id")
		as := func(method, path string, body map[string]any) *harness.Response {
			return m.Do(t, harness.Request{Method: method, Path: path, Key: parent, Body: body})
		}
		until := m.Clock.Now().Add(time.Hour).Unix()
		for param, body := range map[string]map[string]any{
			"limits":          {"limits": []any{limitOf("day", map[string]any{"budget": 3})}},
			"temporary_raise": {"temporary_raise": map[string]any{"budget": 6, "until": until}},
		} {
			if r := as("PATCH", self, body).Want(t, 403, "insufficient_scope"); r.Text("error.param") != param {
				t.Errorf("got %s, want param %s", r.Body, param)
			}
		}
		child := map[string]any{"name": "child", "scopes": []string{"chat.completions:create"}, "monthly_budget": 5}
		as("POST", "/v1/keys", child).Want(t, 403, "insufficient_scope")
		child["limits"] = []any{limitOf("day", map[string]any{"budget": 1, "models": nil})}
		as("POST", "/v1/keys", child).Want(t, 200, "")
	})
}
