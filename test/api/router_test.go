package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/config"
	"turnpike/test/fakes/upstreams"
)

// threeModels configures one provider with models that the router knows: cheap,
// medium and expensive.
func threeModels(cfg *config.Config) {
	cfg.Providers = cfg.Providers[:1]
	cfg.Providers[0].Catalog = "openai"
	cfg.Providers[0].Models = []config.ProviderModel{
		{ID: "gpt-4o-mini", Price: price("1", "1", ""), Capabilities: []string{}},
		{ID: "gpt-4o", Price: price("5", "5", "")},
		{ID: "gpt-4.1", Price: price("20", "20", "")},
		{ID: "stranger", Price: price("0.5", "0.5", "")}, // unknown to the router
		{ID: "text-embedding-3-small"},
	}
	cfg.Routes = []config.Route{{Name: "see", Models: []string{"gpt-4o-mini", "gpt-4o"}}}
}

func TestRouterValuesAreListedAsModels(t *testing.T) {
	eachGateway(t, sqlite, threeModels, func(t *testing.T, m *gatewayClient) {
		r := m.get(t, "/v1/models")
		var ids []string
		for i := range r.At("data").([]any) {
			ids = append(ids, r.Text("data."+string(rune('0'+i))+".id"))
		}
		want := []string{"auto", "auto:cheapest", "auto:fastest", "auto:strongest", "route/see", "gpt-4.1", "gpt-4o", "gpt-4o-mini", "stranger", "text-embedding-3-small"}
		if !slices.Equal(ids, want) {
			t.Errorf("the models are %v", ids)
		}
		for _, id := range want[:5] {
			one := m.get(t, "/v1/models/"+id)
			if one.Text("id") != id || one.At("pricing") != nil || one.At("context_window") != nil || one.At("max_output_tokens") != nil || one.Text("owned_by") != "turnpike" {
				t.Errorf("%s is %s", id, one.Body)
			}
		}
		if one := m.get(t, "/v1/models/gpt-4o"); one.At("pricing.input_per_million") != 5000.0 || one.At("context_window") != 128000.0 {
			t.Errorf("gpt-4o is %s", one.Body)
		}
		m.ask(t, "GET", "/v1/models/route/none", nil).Want(t, 404, "model_not_found")
		test := m.withTestKey(t)
		if r := test.get(t, "/v1/models/route/see"); r.Text("id") != "route/see" {
			t.Errorf("with a test key: %s", r.Body)
		}
		for _, id := range want[:5] {
			if r := test.chat(t, body(id, "hello", nil)).Want(t, 200, ""); r.Header.Get("Service-Model") == id || r.Text("model") == id {
				t.Errorf("%s was answered by %v", id, r.Header)
			}
		}
	})
}

func TestRouterChoosesByPriceAndCapability(t *testing.T) {
	eachGateway(t, sqlite, threeModels, func(t *testing.T, m *gatewayClient) {
		answered := func(b map[string]any) string {
			t.Helper()
			r := m.chat(t, b).Want(t, 200, "")
			e := m.entry(t, r)
			if e.Text("model") != r.Header.Get("Service-Model") || r.Text("model") != e.Text("model") {
				t.Errorf("the answer says %s, the log %s", r.Text("model"), e.Body)
			}
			return e.Text("model")
		}
		for value, model := range map[string]string{"auto:cheapest": "gpt-4o-mini", "auto": "gpt-4o", "auto:strongest": "gpt-4.1"} {
			if got := answered(body(value, "hi", nil)); got != model {
				t.Errorf("%s was answered by %s, want %s", value, got, model)
			}
		}
		// If a model fails, the next one is used.
		m.openai.Queue(upstreams.OpenAIReply{Status: 500})
		if got := answered(body("auto:strongest", "hi", nil)); got != "gpt-4o" {
			t.Errorf("after the strongest came %s", got)
		}
		// Only models with the required capabilities are used. The cheapest one
		// supports only text.
		picture := map[string]any{"messages": []any{map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "text", "text": "what is this"}, map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://example.com/a.png"}}}}}}
		tools := map[string]any{"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f"}}}}
		schema := map[string]any{"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "s", "schema": map[string]any{"type": "object"}}}}
		for name, more := range map[string]map[string]any{"a picture": picture, "tools": tools, "a schema": schema} {
			for _, model := range []string{"auto:cheapest", "route/see"} {
				if got := answered(body(model, "hi", more)); got != "gpt-4o" {
					t.Errorf("%s with %s was answered by %s", model, name, got)
				}
			}
			if got := answered(body("gpt-4o-mini", "hi", more)); got != "gpt-4o-mini" { // an explicit name is used as is
				t.Errorf("%s with %s was answered by %s", "gpt-4o-mini", name, got)
			}
		}
		if got := answered(body("auto:cheapest", strings.Repeat("long ", 130_000), nil)); got != "gpt-4.1" { // the others have a context of 128,000 tokens
			t.Errorf("a long text was answered by %s", got)
		}
	})
}

func TestEveryTargetOfAModelListIsTriedOnce(t *testing.T) {
	eachGateway(t, sqlite, threeModels, func(t *testing.T, m *gatewayClient) {
		for range 3 {
			m.openai.Queue(upstreams.OpenAIReply{Status: 500})
		}
		r := m.chat(t, body("gpt-4o", "hi", map[string]any{"models": []string{"gpt-4o", "auto:cheapest"}})).Want(t, 502, "upstream_error")
		var asked []string
		e := m.entry(t, r)
		for i := range outcomes(e) {
			asked = append(asked, e.Text("attempts."+string(rune('0'+i))+".model"))
		}
		if !slices.Equal(asked, []string{"gpt-4o", "gpt-4o-mini", "gpt-4.1"}) {
			t.Errorf("asked were %v", asked)
		}
	})
}

func TestEveryModelThatRespondsToTestKeysIsListed(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		test := m.withTestKey(t)
		listed := map[string]bool{}
		for _, model := range test.get(t, "/v1/models").At("data").([]any) {
			listed[model.(map[string]any)["id"].(string)] = true
		}
		for _, id := range []string{"gpt-image-1", "gpt-audio", "small", "unpriced"} { // two without a list price, two of the operator
			if r := test.get(t, "/v1/models/"+id); !listed[id] || r.Text("id") != id {
				t.Errorf("%s is not listed: %s", id, r.Body)
			}
		}
		if r := test.get(t, "/v1/models/gpt-image-1"); r.At("pricing") != nil || r.Text("kind") != "image" {
			t.Errorf("got %s", r.Body)
		}
		r := test.get(t, "/v1/models/gpt-4o-mini")
		if got := fmt.Sprint(r.At("capabilities")); r.Text("kind") != "chat" || !strings.Contains(got, "vision") || !strings.Contains(got, "tools") || r.At("pricing.per_tool_call.web_search") != 10.0 {
			t.Errorf("got %s", r.Body)
		}
		m.ask(t, "GET", "/v1/models/gpt-image-1", nil).Want(t, 404, "model_not_found")
	})
}
