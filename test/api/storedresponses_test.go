package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// eachStored runs fn with a test key, whose simulated model is asked for exact texts.
func eachStored(t *testing.T, fn func(t *testing.T, c *client)) {
	t.Helper()
	eachShared(t, both, func(t *testing.T, s *harness.Server) { fn(t, newClient(t, s, accounts.Test)) })
}

func say(text string, more map[string]any) map[string]any {
	b := map[string]any{"model": "gpt-4o-mini", "input": "[[sim:text=" + text + "]]"}
	for name, value := range more {
		b[name] = value
	}
	return b
}

func TestStoredResponseIsReadAndDeleted(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		for _, stream := range []bool{false, true} {
			r := c.respond(t, say("Blue.", map[string]any{"stream": stream, "metadata": map[string]any{"a": "b"}})).Want(t, 200, "")
			id := "resp_" + strings.TrimPrefix(r.Header.Get("X-Request-Id"), "req_")
			got := c.get(t, "/v1/responses/"+id)
			if got.Text("id") != id || got.Text("output.0.content.0.text") != "Blue." || got.At("store") != true || got.Text("metadata.a") != "b" || got.At("completed_at") == nil {
				t.Errorf("stream %t: got %s", stream, got.Body)
			}
			items := c.get(t, "/v1/responses/"+id+"/input_items")
			if items.Text("data.0.content.0.text") != "[[sim:text=Blue.]]" || items.Text("data.0.role") != "user" || items.Text("first_id") != items.Text("data.0.id") || items.At("has_more") != false {
				t.Errorf("stream %t: got items %s", stream, items.Body)
			}
			if gone := c.ask(t, "DELETE", "/v1/responses/"+id, nil).Want(t, 200, ""); gone.At("deleted") != true || gone.Text("id") != id {
				t.Errorf("got %s", gone.Body)
			}
			c.ask(t, "GET", "/v1/responses/"+id, nil).Want(t, 404, "not_found")
			c.ask(t, "DELETE", "/v1/responses/"+id, nil).Want(t, 404, "not_found")
		}
	})
}

func TestResponseContinuesAnEarlierOne(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		first := c.respond(t, say("One.", map[string]any{"instructions": "Be brief."})).Want(t, 200, "")
		second := c.respond(t, say("Two.", map[string]any{"previous_response_id": first.Text("id"), "stream": true})).Want(t, 200, "")
		id := "resp_" + strings.TrimPrefix(second.Header.Get("X-Request-Id"), "req_")
		third := c.respond(t, say("Three.", map[string]any{"previous_response_id": id, "store": false})).Want(t, 200, "")
		// Each continuation has the tokens of all before it, but not their instructions.
		if third.Text("previous_response_id") != id || third.At("store") != false || count(third, "usage.input_tokens") <= count(first, "usage.input_tokens") {
			t.Errorf("got %s", third.Body)
		}
		items := c.get(t, "/v1/responses/"+id+"/input_items?order=asc")
		if items.Text("data.1.content.0.text") != "One." || items.Text("data.2.content.0.text") != "[[sim:text=Two.]]" || items.At("data.3") != nil {
			t.Errorf("got items %s", items.Body)
		}
		page := c.get(t, "/v1/responses/"+id+"/input_items?order=asc&limit=1&after="+items.Text("data.0.id"))
		if page.Text("data.0.id") != items.Text("data.1.id") || page.At("has_more") != true {
			t.Errorf("got page %s", page.Body)
		}
		c.ask(t, "GET", "/v1/responses/"+third.Text("id"), nil).Want(t, 404, "not_found")
		for _, missing := range []string{third.Text("id"), "resp_1"} {
			if r := c.respond(t, say("x", map[string]any{"previous_response_id": missing})).Want(t, 404, "not_found"); r.Text("error.param") != "previous_response_id" {
				t.Errorf("got %s", r.Body)
			}
		}
		// Without a link, the rest of the chain isn't used.
		c.ask(t, "DELETE", "/v1/responses/"+first.Text("id"), nil).Want(t, 200, "")
		c.respond(t, say("x", map[string]any{"previous_response_id": id})).Want(t, 404, "not_found")
	})
}

func TestItemReferenceIsReplacedByTheStoredItem(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		tools := []any{map[string]any{"type": "function", "name": "look", "parameters": map[string]any{"type": "object"}}}
		first := c.respond(t, map[string]any{"model": "gpt-4o-mini", "input": "[[sim:tool=look]]", "tools": tools}).Want(t, 200, "")
		second := func(id string) map[string]any {
			return map[string]any{"model": "gpt-4o-mini", "tools": tools, "input": []any{
				map[string]any{"role": "user", "content": "Look."}, map[string]any{"type": "item_reference", "id": id},
				map[string]any{"type": "function_call_output", "call_id": first.Text("output.0.call_id"), "output": "a cat"}}}
		}
		r := c.respond(t, second(first.Text("output.0.id"))).Want(t, 200, "")
		if !strings.Contains(r.Text("output.0.content.0.text"), "a cat") {
			t.Errorf("got %s", r.Body)
		}
		if r := c.respond(t, second("fc_1")).Want(t, 404, "not_found"); r.Text("error.param") != "input[1]" {
			t.Errorf("got %s", r.Body)
		}
	})
}

func TestConversationCollectsItems(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		conversation := c.post(t, "/v1/conversations", map[string]any{"metadata": map[string]any{"topic": "demo"}, "items": []any{
			map[string]any{"type": "message", "role": "user", "content": "My name is Ann."}}})
		at := "/v1/conversations/" + conversation.Text("id")
		if conversation.Text("object") != "conversation" || conversation.Text("metadata.topic") != "demo" {
			t.Errorf("got %s", conversation.Body)
		}
		r := c.respond(t, say("Hi Ann.", map[string]any{"conversation": conversation.Text("id")})).Want(t, 200, "")
		if r.Text("conversation.id") != conversation.Text("id") {
			t.Errorf("got %s", r.Body)
		}
		c.respond(t, say("Bye.", map[string]any{"conversation": map[string]any{"id": conversation.Text("id")}, "stream": true})).Want(t, 200, "")
		items := c.get(t, at+"/items?order=asc")
		if items.Text("data.0.content") != "My name is Ann." || items.Text("data.2.content.0.text") != "Hi Ann." || items.Text("data.4.content.0.text") != "Bye." || items.At("data.5") != nil {
			t.Errorf("got items %s", items.Body)
		}
		if newest := c.get(t, at+"/items?limit=1"); newest.Text("data.0.content.0.text") != "Bye." || newest.At("has_more") != true {
			t.Errorf("got %s", newest.Body)
		}
		item := at + "/items/" + items.Text("data.0.id")
		if got := c.get(t, item); got.Text("content") != "My name is Ann." {
			t.Errorf("got %s", got.Body)
		}
		c.ask(t, "DELETE", item, nil).Want(t, 200, "")
		c.ask(t, "GET", item, nil).Want(t, 404, "not_found")
		added := c.post(t, at+"/items", map[string]any{"items": []any{map[string]any{"role": "user", "content": "More."}}})
		if added.Text("data.0.content") != "More." || added.Text("data.0.id") == "" {
			t.Errorf("got %s", added.Body)
		}
		if changed := c.post(t, at, map[string]any{"metadata": map[string]any{"topic": "new"}}); changed.Text("metadata.topic") != "new" {
			t.Errorf("got %s", changed.Body)
		}
		for _, bad := range []map[string]any{{"store": false, "conversation": conversation.Text("id")}, {"conversation": conversation.Text("id"), "previous_response_id": r.Text("id")}} {
			if r := c.respond(t, say("x", bad)).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "conversation" {
				t.Errorf("got %s", r.Body)
			}
		}
		c.respond(t, say("x", map[string]any{"previous_response_id": r.Text("id")})).Want(t, 400, "invalid_parameter")
		c.ask(t, "DELETE", at, nil).Want(t, 200, "")
		c.ask(t, "GET", at, nil).Want(t, 404, "not_found")
		if r := c.respond(t, say("x", map[string]any{"conversation": conversation.Text("id")})).Want(t, 404, "not_found"); r.Text("error.param") != "conversation" {
			t.Errorf("got %s", r.Body)
		}
	})
}

func (c *client) setRetention(t *testing.T, kept time.Duration) {
	t.Helper()
	c.ChangeWorkspace(t, c.workspace.ID, func(w *accounts.Workspace) { w.ResponseRetention = kept })
}

func TestResponsesAreEncryptedAndExpire(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		s := harness.Start(t, harness.Config(t, engine), harness.NewClock())
		c := newClient(t, s, accounts.Test)
		r := c.respond(t, say("Verysecretword.", nil)).Want(t, 200, "")
		conversation := c.post(t, "/v1/conversations", map[string]any{"metadata": map[string]any{"topic": "Verysecretword"}, "items": []any{map[string]any{"role": "user", "content": "Verysecretword"}}})
		if strings.Contains(string(s.DumpDatabase(t)), "Verysecretword") {
			t.Error("the database has the content in plain text")
		}
		s.Clock.Turn(7*24*time.Hour - time.Minute)
		c.get(t, "/v1/responses/"+r.Text("id"))
		s.Clock.Turn(2 * time.Minute)
		c.ask(t, "GET", "/v1/responses/"+r.Text("id"), nil).Want(t, 404, "not_found")
		c.ask(t, "GET", "/v1/conversations/"+conversation.Text("id"), nil).Want(t, 404, "not_found")
	})
}

func TestWorkspaceTurnsStoringOff(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		r := c.respond(t, say("x", nil)).Want(t, 200, "")
		c.setRetention(t, 0)
		c.Eventually(t, func() bool {
			off := c.respond(t, say("x", nil)).Want(t, 200, "")
			return off.At("store") == false && strings.Contains(off.Header.Get("Service-Warning"), "turned off")
		})
		c.ask(t, "GET", "/v1/responses/"+r.Text("id"), nil).Want(t, 404, "not_found")
		c.ask(t, "POST", "/v1/conversations", map[string]any{}).Want(t, 409, "invalid_state")
		if err := c.App.RunRetention(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestUnstoredResponseLeavesNothing(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		r := c.respond(t, say("x", map[string]any{"store": false})).Want(t, 200, "")
		if r.At("store") != false || r.Header.Get("Service-Warning") != "" {
			t.Errorf("got %v %s", r.Header, r.Body)
		}
		c.ask(t, "GET", "/v1/responses/"+r.Text("id"), nil).Want(t, 404, "not_found")
	})
}

// nativeResponse is a response of a provider with the Responses API.
func nativeResponse(id, output string) string {
	return fmt.Sprintf(`{"id":%q,"object":"response","created_at":1750000000,"status":"completed","error":null,"model":"small-2025","output":[%s],"new_field":{"x":[1, 2]},"store":false,
		"background":false,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"max_tool_calls":null,"parallel_tool_calls":true,"previous_response_id":null,"prompt_cache_key":null,"reasoning":{},
		"safety_identifier":null,"service_tier":"default","temperature":1,"text":{},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,"truncation":"disabled","user":null,"metadata":{},
		"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":25}}`, id, output)
}

const (
	nativeReasoning = `{"id":"rs_up","type":"reasoning","summary":[],"encrypted_content":"gAAA=="}`
	nativeMessage   = `{"id":"msg_up","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi.","annotations":[]}]}`
)

func TestProviderWithResponsesAPIGetsTheRequestItself(t *testing.T) {
	native := func(cfg *config.Config) {
		cfg.Providers[0].ResponsesAPI, cfg.Providers[0].ToolPrices, cfg.Providers[0].Private = new(true), &config.ToolPrices{FileSearch: "0"}, true
	}
	eachGateway(t, both, native, func(t *testing.T, m *gatewayClient) {
		const cost = 16*smallIn + 4*smallCached + 5*smallOut
		m.openai.Queue(upstreams.OpenAIReply{Body: nativeResponse("resp_up", nativeReasoning+","+nativeMessage)})
		r := m.respond(t, map[string]any{"model": "small", "input": "one", "tools": []any{map[string]any{"type": "file_search", "vector_store_ids": []string{"vs_1"}}}, "odd": map[string]any{"a": 1}}).Want(t, 200, "")
		sent := m.openai.Requests()
		got := sent[len(sent)-1]
		if got.Path != "/responses" || !strings.Contains(string(got.Body), `"odd":{"a":1}`) || !strings.Contains(string(got.Body), `"file_search"`) || !strings.Contains(string(got.Body), `"store":false`) ||
			!strings.Contains(string(got.Body), `"model":"small-2025"`) || !strings.Contains(string(got.Body), `"max_output_tokens":`) {
			t.Errorf("got provider request %s %s", got.Path, got.Body)
		}
		if r.Text("id") != "resp"+strings.TrimPrefix(r.Header.Get("X-Request-Id"), "req") || r.At("store") != true || r.Text("output.0.encrypted_content") != "gAAA==" || !strings.Contains(string(r.Body), `"new_field":{"x":[1, 2]}`) || charged(t, r) != cost {
			t.Errorf("got %s credits, %s", charged(t, r), r.Body)
		}
		// The next turn has the items of the first, with the encrypted reasoning.
		event := func(kind, rest string) string {
			return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + rest + "}\n\n"
		}
		m.openai.Queue(upstreams.OpenAIReply{Body: event("response.created", `"sequence_number":0,"response":{"id":"resp_up2","object":"response","status":"in_progress","output":[]}`) +
			event("response.output_text.delta", `"sequence_number":1,"item_id":"msg_up2","output_index":0,"content_index":0,"delta":"Hi."`) +
			event("response.completed", `"sequence_number":2,"response":`+strings.ReplaceAll(nativeResponse("resp_up2", strings.ReplaceAll(nativeMessage, "msg_up", "msg_up2")), "\n", ""))})
		second := m.respond(t, map[string]any{"model": "small", "input": []any{map[string]any{"role": "user", "content": "two"}}, "previous_response_id": r.Text("id"), "stream": true}).Want(t, 200, "")
		list := chunks(second)
		last := list[len(list)-1]
		id := "resp" + strings.TrimPrefix(second.Header.Get("X-Request-Id"), "req")
		if last.Text("type") != "response.completed" || last.Text("response.id") != id || list[0].Text("response.id") != id || amount(t, last, "response.usage.credits") != cost || last.Text("response.previous_response_id") != r.Text("id") {
			t.Errorf("got %s", second.Body)
		}
		sent = m.openai.Requests()
		if got := string(sent[len(sent)-1].Body); !strings.Contains(got, nativeReasoning) || !strings.Contains(got, nativeMessage) || strings.Contains(got, "previous_response_id") {
			t.Errorf("got provider request %s", got)
		}
		if e := m.entry(t, second); amount(t, e, "credits") != cost || e.Text("usage_source") != "provider" {
			t.Errorf("got log entry %s", e.Body)
		}
		// Items with the provider's IDs can be referred to, also by a model of another provider.
		third := m.respond(t, map[string]any{"model": "spare-small", "input": []any{map[string]any{"type": "item_reference", "id": "msg_up2"}, map[string]any{"role": "user", "content": "three"}}}).Want(t, 200, "")
		sent = m.spare.Requests()
		if got := string(sent[len(sent)-1].Body); !strings.Contains(got, `"content":"Hi."`) || third.Text("output.0.type") != "message" {
			t.Errorf("got provider request %s", got)
		}
	})
}

func TestBrokenStreamOfResponsesAPIFails(t *testing.T) {
	native := func(cfg *config.Config) { cfg.Providers[0].ResponsesAPI = new(true) }
	eachGateway(t, sqlite, native, func(t *testing.T, m *gatewayClient) {
		created := "data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":" + strings.ReplaceAll(nativeResponse("resp_up", ""), "\n", "") + "}\n\n"
		for name, rest := range map[string]string{
			"ends":   "",
			"error":  "data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"org-secret\",\"sequence_number\":1}\n\n",
			"failed": "data: {\"type\":\"response.failed\",\"sequence_number\":1,\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"org-secret\"}}}\n\n",
		} {
			m.openai.Queue(upstreams.OpenAIReply{Body: created + rest})
			r := m.respond(t, map[string]any{"model": "small", "input": "x", "stream": true}).Want(t, 200, "")
			list := chunks(r)
			last := list[len(list)-1]
			if last.Text("type") != "response.failed" || last.Text("response.status") != "failed" || last.Text("response.error.code") != "server_error" || strings.Contains(string(r.Body), "org-secret") {
				t.Errorf("%s: got %s", name, r.Body)
			}
		}
	})
}

func TestInputTokensAreCountedWithoutACall(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		first := c.respond(t, say("One.", nil)).Want(t, 200, "")
		count := func(b map[string]any) float64 {
			delete(b, "stream")
			r := c.ask(t, "POST", "/v1/responses/input_tokens", b).Want(t, 200, "")
			return r.At("input_tokens").(float64)
		}
		if got := count(say("One.", nil)); got != first.At("usage.input_tokens") {
			t.Errorf("got %v tokens, want %v", got, first.At("usage.input_tokens"))
		}
		if got := count(say("One.", map[string]any{"previous_response_id": first.Text("id")})); got <= first.At("usage.input_tokens").(float64) {
			t.Errorf("got %v tokens", got)
		}
		c.ask(t, "POST", "/v1/responses/input_tokens", map[string]any{"model": "gpt-4o-mini"}).Want(t, 400, "missing_parameter")
		c.ask(t, "POST", "/v1/responses/input_tokens", say("x", map[string]any{"previous_response_id": "resp_1"})).Want(t, 404, "not_found")
	})
}

// B5: a lock that another node holds delays the responses of its conversation, and no one else's.
func TestLockedConversationDelaysNoOtherRequest(t *testing.T) {
	t.Parallel()
	c := newClient(t, harness.Start(t, harness.Config(t, "postgres"), harness.NewClock()), accounts.Test)
	conversation := c.post(t, "/v1/conversations", nil)
	answered := make(chan struct{})
	err := c.DB.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "UPDATE conversations SET expires_at = expires_at WHERE id = $1", conversation.Text("id")); err != nil {
			return err
		}
		go func() {
			defer close(answered)
			c.respond(t, say("Hi.", map[string]any{"conversation": conversation.Text("id")})).Want(t, 200, "")
		}()
		c.Eventually(t, func() bool {
			waiting, err := db.Value[int64](c.DB.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"))
			return err == nil && waiting == 1
		})
		r := c.ask(t, "POST", "/v1/chat/completions", map[string]any{"model": "gpt-4o-mini", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "Hello"}}})
		r.Want(t, 200, "")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	<-answered
}
