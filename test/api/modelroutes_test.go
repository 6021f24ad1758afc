package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestWorkspaceHasItsOwnRoutes(t *testing.T) {
	eachGateway(t, both, threeModels, func(t *testing.T, m *gatewayClient) {
		route := map[string]any{"name": "mine", "models": []string{"gpt-4.1", "gpt-4o"}, "strategy": "price", "timeout_ms": 30_000}
		made := m.ask(t, "POST", "/v1/routes", route).Want(t, 200, "")
		answered := func(by *gatewayClient, b map[string]any) string {
			t.Helper()
			return by.chat(t, b).Want(t, 200, "").Header.Get("Service-Model")
		}
		if got := answered(m, body("route/mine", "hi", nil)); got != "gpt-4o" {
			t.Errorf("the cheaper model is %s, want gpt-4o", got)
		}
		m.openai.Queue(upstreams.OpenAIReply{Status: 500})
		if got := answered(m, body("route/mine", "hi", nil)); got != "gpt-4.1" {
			t.Errorf("after a failure came %s, want gpt-4.1", got)
		}
		// A change applies to the next request, on every node.
		m.ask(t, "PATCH", "/v1/routes/"+made.Text("id"), map[string]any{"models": []string{"gpt-4o-mini"}}).Want(t, 200, "")
		if got := answered(m, body("route/mine", "hi", nil)); got != "gpt-4o-mini" {
			t.Errorf("after the change came %s, want gpt-4o-mini", got)
		}
		for _, header := range []http.Header{nil, {"Anthropic-Version": {"2023-06-01"}}} { // in both formats
			r := m.Server.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: m.key, Header: header}).Want(t, 200, "")
			if !strings.Contains(string(r.Body), `"route/mine"`) {
				t.Errorf("the route isn't listed: %s", r.Body)
			}
		}
		m.get(t, "/v1/models/route/mine")

		// The usage shows how much of the input the provider had in its cache.
		m.openai.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100, Output: 1, Cached: 80}})
		m.entry(t, m.chat(t, body("gpt-4o", "hi", nil)).Want(t, 200, ""))
		usage := m.get(t, "/v1/usage?group_by=provider")
		if usage.At("data.0.cached_tokens") != 80.0 || usage.Text("data.0.provider") != "first" {
			t.Errorf("the usage is %s, want 80 cached tokens", usage.Body)
		}

		// It belongs to the workspace and its environment.
		other, _ := m.Server.Key(t, m.Server.Workspace(t, "other"), "live")
		m.as(other).chat(t, body("route/mine", "hi", nil)).Want(t, 404, "model_not_found")
		m.withTestKey(t).chat(t, body("route/mine", "hi", nil)).Want(t, 404, "model_not_found")

		// A project's route is for the project alone, and comes before the workspace's.
		m.ask(t, "POST", "/v1/projects", map[string]any{"id": "red"}).Want(t, 200, "")
		m.ask(t, "POST", "/v1/routes", map[string]any{"name": "mine", "models": []string{"gpt-4.1"}, "project": "red"}).Want(t, 200, "")
		red := m.withKey(t, access.Key{Name: "red", Scopes: []string{"*"}, Project: "red"})
		if got := answered(red, body("route/mine", "hi", nil)); got != "gpt-4.1" {
			t.Errorf("the project gets %s, want gpt-4.1", got)
		}
		if got := answered(m, body("route/mine", "hi", nil)); got != "gpt-4o-mini" {
			t.Errorf("outside of the project came %s, want gpt-4o-mini", got)
		}
		red.ask(t, "GET", "/v1/routes/"+made.Text("id"), nil).Want(t, 404, "not_found")
		red.ask(t, "POST", "/v1/routes", map[string]any{"name": "blue", "models": []string{"gpt-4.1"}, "project": "blue"}).Want(t, 400, "invalid_parameter")

		m.ask(t, "DELETE", "/v1/routes/"+made.Text("id"), nil).Want(t, 200, "")
		m.chat(t, body("route/mine", "hi", nil)).Want(t, 404, "model_not_found")
	})
}

func TestBadRoutesAreRejected(t *testing.T) {
	eachGateway(t, sqlite, threeModels, func(t *testing.T, m *gatewayClient) {
		made := m.ask(t, "POST", "/v1/routes", map[string]any{"name": "good", "models": []string{"gpt-4o", "gpt-4.1"}}).Want(t, 200, "")
		for name, c := range map[string]struct {
			change map[string]any
			status int
			param  string
		}{
			"the operator's name": {map[string]any{"name": "see"}, 409, "name"},
			"bad name":            {map[string]any{"name": "A b"}, 400, "name"},
			"no models":           {map[string]any{"models": []string{}}, 400, "models"},
			"unknown model":       {map[string]any{"models": []string{"gpt-4o", "nothing"}}, 404, "models"},
			"route in a route":    {map[string]any{"models": []string{"route/see"}}, 400, "models"},
			"auto":                {map[string]any{"models": []string{"auto:cheapest"}}, 400, "models"},
			"twice":               {map[string]any{"models": []string{"gpt-4o", "gpt-4o"}}, 400, "models"},
			"too many":            {map[string]any{"models": slices.Repeat([]string{"gpt-4o"}, 17)}, 400, "models"},
			"strategy":            {map[string]any{"strategy": "best"}, 400, "strategy"},
			"weights in order":    {map[string]any{"weights": []int{1, 2}}, 400, "weights"},
			"too few weights":     {map[string]any{"strategy": "weight", "weights": []int{1}}, 400, "weights"},
			"weight of 0":         {map[string]any{"strategy": "weight", "weights": []int{0, 1}}, 400, "weights"},
			"timeout":             {map[string]any{"timeout_ms": 5}, 400, "timeout_ms"},
			"huge timeout":        {map[string]any{"timeout_ms": 1 << 60}, 400, "timeout_ms"},
			"unknown field":       {map[string]any{"modles": nil}, 400, "modles"},
		} {
			in := map[string]any{"name": "other", "models": []string{"gpt-4o", "gpt-4.1"}}
			for field, value := range c.change {
				in[field] = value
			}
			for _, r := range []*harness.Response{m.ask(t, "POST", "/v1/routes", in), m.ask(t, "PATCH", "/v1/routes/"+made.Text("id"), c.change)} {
				if r.Status != c.status || r.Text("error.param") != c.param {
					t.Errorf("%s: %d %s, want %d for %s", name, r.Status, r.Body, c.status, c.param)
				}
			}
		}
		m.ask(t, "POST", "/v1/routes", map[string]any{"name": "good", "models": []string{"gpt-4o"}}).Want(t, 409, "invalid_state")
		m.ask(t, "POST", "/v1/routes", map[string]any{"name": "p", "models": []string{"gpt-4o"}, "project": "none"}).Want(t, 400, "invalid_parameter")
		list := m.get(t, "/v1/routes")
		if n := len(list.At("data").([]any)); n != 1 || !slices.Equal(list.At("data.0.models").([]any), []any{"gpt-4o", "gpt-4.1"}) {
			t.Errorf("%d routes after rejected changes: %s", n, list.Body)
		}
		for i := range 99 {
			m.ask(t, "POST", "/v1/routes", map[string]any{"name": fmt.Sprintf("r-%d", i), "models": []string{"gpt-4o"}}).Want(t, 200, "")
		}
		m.ask(t, "POST", "/v1/routes", map[string]any{"name": "one-more", "models": []string{"gpt-4o"}}).Want(t, 409, "limit_reached")
	})
}
