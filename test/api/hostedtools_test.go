package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/catalog"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/fakes/upstreams"
)

const (
	searchCost     = 10_000_000 // 0.01 dollars
	nativeSearch   = `{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}`
	nativeOpenPage = `{"id":"ws_2","type":"web_search_call","status":"completed","action":{"type":"open_page","url":"https://example.com"}}`
)

func withToolPrices(cfg *config.Config) {
	first := &cfg.Providers[0]
	first.Private = true
	first.ResponsesAPI, first.ToolPrices = new(true), &config.ToolPrices{WebSearch: "0.01", FileSearch: "0.0025"}
	first.Models = append(first.Models, config.ProviderModel{ID: "gpt-4o-search-preview", Price: price("2", "8", "")}, config.ProviderModel{ID: "gpt-5-search-api", Price: price("2", "8", "")})
}

func bodySize(t *testing.T, b any) int64 {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(text))
}

func TestHostedToolsAreReservedAndCharged(t *testing.T) {
	eachGateway(t, both, withToolPrices, func(t *testing.T, m *gatewayClient) {
		const tokens = 16*smallIn + 4*smallCached + 5*smallOut
		ask := map[string]any{"model": "small", "input": "one", "max_output_tokens": 16, "max_tool_calls": 2, "tools": []any{map[string]any{"type": "web_search_2025_08_26"}, map[string]any{"type": "file_search", "vector_store_ids": []string{"vs_1"}}}}
		// What a search finds fills the context window, which is unknown here: 16 tokens of output, and two calls of the
		// more expensive tool.
		const window = 2_097_152
		budget := credits.Micro(window)*smallIn + 16*smallOut + 2*searchCost - 1
		m.withKey(t, access.Key{MonthlyBudget: &budget}).respond(t, ask).Want(t, 402, "budget_exceeded")
		if n := len(m.openai.Requests()); n != 0 {
			t.Errorf("the provider got %d requests over the budget", n)
		}
		budget++
		key := m.withKey(t, access.Key{MonthlyBudget: &budget})
		m.openai.Queue(upstreams.OpenAIReply{Body: nativeResponse("resp_up", nativeSearch+","+nativeOpenPage+","+nativeMessage)})
		r := key.respond(t, ask).Want(t, 200, "")
		if charged(t, r) != tokens+searchCost {
			t.Errorf("charged %s for a search", charged(t, r))
		}
		if e := m.entry(t, r); amount(t, e, "credits") != tokens+searchCost || amount(t, e, "unbilled_credits") != 0 {
			t.Errorf("got log entry %s", e.Body)
		}

		// A provider that ignores the limit is charged no more than was reserved.
		const searches = 430
		m.openai.Queue(upstreams.OpenAIReply{Body: nativeResponse("resp_up", strings.Repeat(nativeSearch+",", searches)+nativeMessage)})
		r = m.withKey(t, access.Key{MonthlyBudget: &budget}).respond(t, ask).Want(t, 200, "")
		if charged(t, r) != budget || amount(t, m.entry(t, r), "unbilled_credits") != tokens+searches*searchCost-budget {
			t.Errorf("charged %s for %d searches, of a budget of %s", charged(t, r), searches, budget)
		}

		// Without the client's limit, the provider gets ours. The stream is charged as well.
		event := func(kind, rest string) string {
			return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + rest + "}\n\n"
		}
		m.openai.Queue(upstreams.OpenAIReply{Body: event("response.created", `"sequence_number":0,"response":{"id":"resp_up2","object":"response","status":"in_progress","output":[]}`) +
			event("response.output_item.done", `"sequence_number":1,"output_index":0,"item":`+nativeSearch) +
			event("response.completed", `"sequence_number":2,"response":`+strings.ReplaceAll(nativeResponse("resp_up2", nativeSearch+","+nativeMessage), "\n", ""))})
		delete(ask, "max_tool_calls")
		ask["stream"], ask["tools"] = true, []any{map[string]any{"type": "image_generation"}, map[string]any{"type": "web_search"}}
		r = m.respond(t, ask).Want(t, 200, "")
		list := chunks(r)
		if last := list[len(list)-1]; amount(t, last, "response.usage.credits") != tokens+searchCost {
			t.Errorf("got %s", r.Body)
		}
		sent := m.openai.Requests()
		if got := string(sent[len(sent)-1].Body); !strings.Contains(got, `"max_tool_calls":32`) || strings.Contains(got, "image_generation") || !strings.Contains(got, `"tools":[{"type":"web_search"}]`) {
			t.Errorf("got provider request %s", got)
		}
		if got := r.Header.Get("Service-Warning"); !strings.Contains(got, "image_generation") {
			t.Errorf("got warning %q", got)
		}
		// Tools that no price is known for are rejected, wherever they are.
		before := len(m.openai.Requests())
		for param, more := range map[string]map[string]any{
			"tools[0].type":          {"input": "x", "tools": []any{map[string]any{"type": "code_interpreter", "container": map[string]any{"type": "auto"}}}},
			"input[0].tools[0].type": {"input": []any{map[string]any{"type": "additional_tools", "tools": []any{map[string]any{"type": "image_generation"}}}, map[string]any{"role": "user", "content": "x"}}},
		} {
			more["model"] = "small"
			if r := m.respond(t, more).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
				t.Errorf("got %s, want an error in %s", r.Body, param)
			}
		}
		if n := len(m.openai.Requests()) - before; n != 0 {
			t.Errorf("the provider got %d requests for unpriced tools", n)
		}
	})
}

func TestLimitedKeyReachesNoOtherImageModelByTool(t *testing.T) {
	eachGateway(t, both, func(cfg *config.Config) {
		withToolPrices(cfg)
		cfg.Providers[0].ToolPrices.ImageGeneration = "1"
	}, func(t *testing.T, m *gatewayClient) {
		ask := func(model any, more ...any) map[string]any {
			tool := map[string]any{"type": "image_generation"}
			if model != nil {
				tool["model"] = model
			}
			return map[string]any{"model": "small", "input": "x", "max_output_tokens": 16, "tools": append([]any{tool}, more...)}
		}
		inItem := map[string]any{"model": "small", "input": []any{map[string]any{"type": "additional_tools", "tools": []any{map[string]any{"type": "image_generation"}}}, map[string]any{"role": "user", "content": "x"}}}
		small := m.withKey(t, access.Key{Allowed: catalog.Allowed{Models: catalog.Patterns{"small"}}})
		mini := m.withKey(t, access.Key{Allowed: catalog.Allowed{Models: catalog.Patterns{"small", "gpt-image-1-mini"}}})
		m.post(t, "/v1/projects", map[string]any{"id": "texts", "allowed_models": []string{"small"}})
		project := m.withKey(t, access.Key{Project: "texts"})
		for _, tt := range []struct {
			by    *gatewayClient
			body  any
			param string
		}{{small, ask("gpt-image-1"), "tools[0].model"}, {mini, ask("gpt-image-1"), "tools[0].model"}, {mini, ask([]string{"gpt-image-1"}), "tools[0].model"}, {project, ask("gpt-image-1"), "tools[0].model"},
			{mini, inItem, "input[0].tools[0].model"}} {
			if r := tt.by.respond(t, tt.body).Want(t, 403, "model_not_allowed"); r.Text("error.param") != tt.param {
				t.Errorf("%v: got %s", tt.body, r.Body)
			}
		}
		if n := len(m.openai.Requests()); n != 0 {
			t.Errorf("the provider got %d requests", n)
		}
		// Coding agents offer the tool with every request.
		reply := upstreams.OpenAIReply{Body: nativeResponse("resp_up", nativeMessage)}
		m.openai.Queue(reply, reply, reply)
		budget := credits.Micro(600 * searchCost) // less than images would cost, and enough for the results of searches
		r := m.withKey(t, access.Key{Allowed: catalog.Allowed{Models: catalog.Patterns{"small"}}, MonthlyBudget: &budget}).respond(t, ask(nil, map[string]any{"type": "web_search"})).Want(t, 200, "")
		if got := string(m.openai.Requests()[0].Body); strings.Contains(got, "image_generation") || !strings.Contains(got, "web_search") || !strings.Contains(r.Header.Get("Service-Warning"), "image_generation") {
			t.Errorf("the provider got %s, with the warning %q", got, r.Header.Get("Service-Warning"))
		}
		mini.respond(t, ask("gpt-image-1-mini")).Want(t, 200, "")
		m.respond(t, ask(nil)).Want(t, 200, "")
		for _, sent := range m.openai.Requests()[1:] {
			if !strings.Contains(string(sent.Body), "image_generation") {
				t.Errorf("the provider got %s, want the tool", sent.Body)
			}
		}
	})
}

func TestWebSearchesOfChatsAreReservedAndCharged(t *testing.T) {
	eachGateway(t, both, withToolPrices, func(t *testing.T, m *gatewayClient) {
		const tokens = 10*smallIn + 2*smallOut
		for _, model := range []string{"small", "gpt-5-search-api"} {
			ask := body(model, "news", map[string]any{"max_tokens": 16})
			if model == "small" {
				ask["web_search_options"] = map[string]any{}
			}
			budget := credits.Micro(bodySize(t, ask)+64)*smallIn + 16*smallOut + searchCost - 1
			m.withKey(t, access.Key{MonthlyBudget: &budget}).chat(t, ask).Want(t, 402, "budget_exceeded")
			budget++
			m.openai.Queue(upstreams.OpenAIReply{Text: "two words"}, upstreams.OpenAIReply{Text: "two words"})
			if r := m.withKey(t, access.Key{MonthlyBudget: &budget}).chat(t, ask).Want(t, 200, ""); charged(t, r) != tokens+searchCost {
				t.Errorf("%s: charged %s", model, charged(t, r))
			}
			ask["stream"], ask["stream_options"] = true, map[string]any{"include_usage": true}
			r := m.chat(t, ask).Want(t, 200, "")
			if e := m.entry(t, r); amount(t, e, "credits") != tokens+searchCost {
				t.Errorf("%s: got log entry %s", model, e.Body)
			}
		}
		if r := m.chat(t, body("gpt-4o-search-preview", "news", nil)).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "model" {
			t.Errorf("without a price: %s", r.Body)
		}
		if r := m.chat(t, body("spare-small", "news", map[string]any{"web_search_options": map[string]any{}})).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "web_search_options" {
			t.Errorf("without a price: %s", r.Body)
		}
	})
}
