package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/background"
	"turnpike/internal/config"
	"turnpike/internal/conversations"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

const responsesAt = "/v1/responses/"

// inBackground returns a request for a background response.
func inBackground(model, input string, more map[string]any) map[string]any {
	b := map[string]any{"model": model, "input": input, "background": true}
	for name, value := range more {
		b[name] = value
	}
	return b
}

// queue creates a background response and returns the response and its path.
func (c *client) queue(t *testing.T, b map[string]any) (*harness.Response, string) {
	t.Helper()
	r := c.respond(t, b).Want(t, 200, "")
	if r.Text("status") != "queued" || r.At("background") != true || r.Text("id") != "resp"+strings.TrimPrefix(r.Header.Get("X-Request-Id"), "req") {
		t.Errorf("got new response %s", r.Body)
	}
	return r, responsesAt + r.Text("id")
}

func (c *client) waitForResponse(t *testing.T, path, status string) *harness.Response {
	t.Helper()
	r := c.waitForStatus(t, path, "completed", "failed", "cancelled", "incomplete")
	if r.Text("status") != status {
		t.Fatalf("want status %s, got %s", status, r.Body)
	}
	return r
}

func TestBackgroundResponseIsReservedChargedAndLoggedOnce(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.credits(t, 100)
		m.openai.Queue(upstreams.OpenAIReply{Text: "one two three", Delay: time.Second})
		r, path := m.queue(t, inBackground("small", "Hi.", map[string]any{"metadata": map[string]any{"a": "b"}, "max_output_tokens": 50}))
		if b := m.get(t, "/v1/billing"); b.At("reserved") == 0.0 || b.At("used") != 0.0 {
			t.Errorf("while it is created: %s", b.Body)
		}
		m.openai.Wait(1)
		if got := m.get(t, path); got.Text("status") != "in_progress" || got.At("completed_at") != nil || len(got.At("output").([]any)) != 0 {
			t.Errorf("in progress: %s", got.Body)
		}
		m.ask(t, "DELETE", path, nil).Want(t, 409, "invalid_state")
		m.respond(t, map[string]any{"model": "small", "input": "x", "previous_response_id": r.Text("id")}).Want(t, 400, "invalid_parameter")
		const cost = 10*smallIn + 3*smallOut
		got := m.waitForResponse(t, path, "completed")
		if got.Text("output.0.content.0.text") != "one two three" || got.At("background") != true || got.Text("metadata.a") != "b" || got.At("created_at") != r.At("created_at") ||
			got.At("completed_at") == nil || amount(t, got, "usage.credits") != cost || got.Text("id") != r.Text("id") {
			t.Errorf("got %s", got.Body)
		}
		if e := m.entry(t, r); amount(t, e, "credits") != cost || count(e, "input_tokens") != 10 || count(e, "output_tokens") != 3 || e.Text("usage_source") != "provider" ||
			e.Text("model") != "small" || e.Text("provider") != "first" || e.Text("path") != "/v1/responses" {
			t.Errorf("got log entry %s", e.Body)
		}
		m.checkLedger(t, cost)
		found := m.eventsOf(t, r.Text("id"))
		if len(found) != 1 || found[0]["type"] != "response.completed" || found[0]["object"] != "event" || len(found[0]["data"].(map[string]any)) != 1 {
			t.Errorf("got events %v", found)
		}
		if n := m.rows(t, "background_responses"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		// It is stored like any other response, and can be continued and deleted.
		m.respond(t, map[string]any{"model": "small", "input": "x", "previous_response_id": r.Text("id"), "store": false}).Want(t, 200, "")
		if again := m.post(t, path+"/cancel", nil); again.Text("status") != "completed" {
			t.Errorf("canceling changed %s", again.Body)
		}
		m.ask(t, "DELETE", path, nil).Want(t, 200, "")
	})
}

// reservedFor creates a background response and returns what is reserved for it.
func (m *gatewayClient) reservedFor(t *testing.T, b map[string]any) credits.Micro {
	t.Helper()
	m.openai.Queue(upstreams.OpenAIReply{Text: "one"})
	r, path := m.queue(t, b)
	m.waitForResponse(t, path, "completed")
	return credits.Micro(m.number(t, "SELECT reserved FROM requests WHERE id = $1", r.Header.Get("X-Request-Id")))
}

func TestBackgroundResponsesRespectEveryBudget(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		one := inBackground("small", "Hi.", map[string]any{"max_output_tokens": 50})
		most := m.reservedFor(t, one)
		budget := 2 * most
		poor := m.withKey(t, access.Key{MonthlyBudget: &budget})
		for range 2 {
			m.openai.Queue(upstreams.OpenAIReply{Text: "one", Stall: -1})
		}
		_, first := poor.queue(t, one)
		_, second := poor.queue(t, one)
		refused := poor.respond(t, one).Want(t, 402, "budget_exceeded")
		if refused.Text("error.details.limit_source") != "key" || amount(t, refused, "error.details.reserved") != budget {
			t.Errorf("got %s", refused.Body)
		}
		m.openai.Wait(3)
		for _, path := range []string{first, second} {
			if r := poor.post(t, path+"/cancel", nil); r.Text("status") != "cancelled" {
				t.Errorf("got %s", r.Body)
			}
		}
		// A canceled call costs its input, as if a client had left. The rest of the budget is free again.
		spent := poor.number(t, "SELECT CAST(SUM(credits) AS BIGINT) FROM requests WHERE usage_source = 'partial'")
		if spent <= 0 || spent >= int64(most) {
			t.Errorf("got %d charged", spent)
		}
		m.checkLedger(t, credits.Micro(spent)+10*smallIn+smallOut)
		_, third := poor.queue(t, one) // though most of the budget was reserved
		poor.waitForResponse(t, third, "completed")
		m.waitUntilSettled(t)
	})
}

func TestCanceledBackgroundResponseStops(t *testing.T) {
	eachGateway(t, both, func(cfg *config.Config) { cfg.Responses.PerWorkspace = 1 }, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Stall: -1})
		r, path := m.queue(t, inBackground("small", "Hi.", nil))
		sent := m.openai.Wait(1)
		gone := m.post(t, path+"/cancel", nil)
		if gone.Text("status") != "cancelled" || gone.Text("id") != r.Text("id") {
			t.Errorf("got %s", gone.Body)
		}
		select {
		case <-sent.Gone: // the call to the provider ends
		case <-time.After(20 * time.Second):
			t.Error("the provider still works")
		}
		if got := m.get(t, path); got.Text("status") != "cancelled" {
			t.Errorf("got %s", got.Body)
		}
		e := m.entry(t, r)
		if e.Text("usage_source") != "partial" || amount(t, e, "credits") == 0 || count(e, "output_tokens") != 0 {
			t.Errorf("got log entry %s", e.Body)
		}
		m.checkLedger(t, amount(t, e, "credits"))
		if found := m.eventsOf(t, r.Text("id")); len(found) != 1 || found[0]["type"] != "response.cancelled" {
			t.Errorf("got events %v", found)
		}
		if again := m.post(t, path+"/cancel", nil); again.Text("status") != "cancelled" {
			t.Errorf("again: %s", again.Body)
		}
		other := m.respond(t, map[string]any{"model": "small", "input": "x"}).Want(t, 200, "")
		m.ask(t, "POST", responsesAt+other.Text("id")+"/cancel", nil).Want(t, 409, "invalid_state")
		m.ask(t, "POST", responsesAt+"resp_01jzzzzzzzzzzzzzzzzzzzzzzz/cancel", nil).Want(t, 404, "not_found")
	})
}

func TestFailedBackgroundResponseIsFree(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Status: 400, Message: "No."})
		r, path := m.queue(t, inBackground("small", "Hi.", nil))
		got := m.waitForResponse(t, path, "failed")
		if got.Text("error.code") != "invalid_prompt" && got.Text("error.code") != "server_error" || got.Text("error.message") == "" {
			t.Errorf("got %s", got.Body)
		}
		if e := m.entry(t, r); amount(t, e, "credits") != 0 || e.Text("error_code") == "" {
			t.Errorf("got log entry %s", e.Body)
		}
		if found := m.eventsOf(t, r.Text("id")); len(found) != 1 || found[0]["type"] != "response.failed" {
			t.Errorf("got events %v", found)
		}
		m.openai.Queue(upstreams.OpenAIReply{Text: "one two", Finish: "length"})
		r, path = m.queue(t, inBackground("small", "Hi.", nil))
		if got := m.waitForResponse(t, path, "incomplete"); got.Text("incomplete_details.reason") != "max_output_tokens" {
			t.Errorf("got %s", got.Body)
		}
		if found := m.eventsOf(t, r.Text("id")); len(found) != 1 || found[0]["type"] != "response.incomplete" {
			t.Errorf("got events %v", found)
		}
		m.checkLedger(t, 10*smallIn+2*smallOut)
	})
}

// overtake makes the database look as if another node had worked the only background response, which is
// in progress here with the nth request to the provider. Then this node finds it again.
func (m *gatewayClient) overtake(t *testing.T, nth int, attempts int64) {
	t.Helper()
	sent := m.openai.Wait(nth)
	m.exec(t, "UPDATE background_responses SET attempts = $1", attempts)
	<-sent.Gone
	m.wakeQueue(t, background.Queue)
}

func TestInterruptedBackgroundResponseIsRepeatedAndChargedOnce(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.credits(t, 100)
		lost := upstreams.OpenAIReply{Text: "lost", Delay: time.Second}
		m.openai.Queue(lost, upstreams.OpenAIReply{Text: "kept"})
		_, path := m.queue(t, inBackground("small", "Hi.", nil))
		m.overtake(t, 1, 2)
		if r := m.waitForResponse(t, path, "completed"); r.Text("output.0.content.0.text") != "kept" {
			t.Errorf("got %s", r.Body)
		}
		// After three attempts it is given up, free of charge.
		m.openai.Queue(lost)
		_, path = m.queue(t, inBackground("small", "Hi.", nil))
		m.overtake(t, 3, 3)
		if r := m.waitForResponse(t, path, "failed"); r.Text("error.code") != "server_error" {
			t.Errorf("got %s", r.Body)
		}
		m.checkLedger(t, 10*smallIn+smallOut)
		if n := len(m.openai.Requests()); n != 3 {
			t.Errorf("the provider was called %d times, want 3", n)
		}
	})
}

func TestBackgroundResponseEndsWithItsKeyAndDeadline(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		key, id := m.newKey(t, access.Key{})
		m.openai.Queue(upstreams.OpenAIReply{Delay: time.Second}, upstreams.OpenAIReply{Delay: time.Second})
		_, path := m.as(key).queue(t, inBackground("small", "Hi.", nil))
		m.openai.Wait(1)
		m.RevokeAsOperator(t, id)
		m.overtake(t, 1, 0)
		if r := m.waitForResponse(t, path, "failed"); !strings.Contains(r.Text("error.message"), "revoked") {
			t.Errorf("got %s", r.Body)
		}
		_, path = m.queue(t, inBackground("small", "Hi.", nil))
		m.openai.Wait(2)
		m.Clock.Turn(25 * time.Hour)
		m.overtake(t, 2, 0)
		if r := m.waitForResponse(t, path, "failed"); !strings.Contains(r.Text("error.message"), "time limit") {
			t.Errorf("got %s", r.Body)
		}
		m.checkLedger(t, 0)
	})
}

func TestBackgroundResponseIsStreamedAndResumed(t *testing.T) {
	native := func(cfg *config.Config) { cfg.Providers[1].ResponsesAPI = new(true) }
	eachGateway(t, both, native, func(t *testing.T, m *gatewayClient) {
		event := func(kind, rest string) string {
			return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + rest + "}\n\n"
		}
		m.spare.Queue(upstreams.OpenAIReply{Body: event("response.created", `"sequence_number":0,"response":{"id":"resp_up2","object":"response","status":"in_progress","output":[],"store":false}`) +
			event("response.output_text.delta", `"sequence_number":1,"item_id":"msg_up2","output_index":0,"content_index":0,"delta":"Hi."`) +
			event("response.completed", `"sequence_number":2,"response":`+strings.ReplaceAll(nativeResponse("resp_up2", nativeMessage), "\n", ""))})
		for model, want := range map[string]credits.Micro{"small": 10*smallIn + 7*smallOut, "spare-small": 20*spareIn + 5*spareOut} {
			r := m.respond(t, inBackground(model, "Hi.", map[string]any{"stream": true})).Want(t, 200, "")
			list := chunks(r)
			last := list[len(list)-1]
			id := "resp" + strings.TrimPrefix(r.Header.Get("X-Request-Id"), "req")
			if list[0].Text("type") != "response.created" || list[0].Text("response.status") != "queued" || list[1].Text("type") != "response.queued" ||
				last.Text("type") != "response.completed" || last.At("response.background") != true || last.Text("response.id") != id || amount(t, last, "response.usage.credits") != want {
				t.Errorf("%s: got %s", model, r.Body)
			}
			for i, e := range list {
				if count(e, "sequence_number") != int64(i) {
					t.Errorf("%s: event %d is %s", model, i, e.Body)
				}
			}
			if e := m.entry(t, r); amount(t, e, "credits") != want || e.Text("usage_source") != "provider" {
				t.Errorf("%s: got log entry %s", model, e.Body)
			}
			all := m.get(t, responsesAt+id+"?stream=true")
			rest := m.get(t, responsesAt+id+"?stream=true&starting_after=2")
			if string(all.Body) != string(r.Body) || !strings.HasSuffix(string(r.Body), string(rest.Body)) || len(chunks(rest)) != len(list)-3 {
				t.Errorf("%s: got %s and %s", model, all.Body, rest.Body)
			}
			if got := m.get(t, responsesAt+id); got.Text("status") != "completed" || got.Text("output.0.content.0.text") == "" {
				t.Errorf("%s: got %s", model, got.Body)
			}
			m.ask(t, "DELETE", responsesAt+id, nil).Want(t, 200, "")
			if n := m.rows(t, "response_events"); n != 0 {
				t.Errorf("%d rows of events are left", n)
			}
		}
		// A plain one has no events.
		_, path := m.queue(t, inBackground("small", "Hi.", nil))
		if r := m.ask(t, "GET", path+"?stream=true", nil).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "stream" {
			t.Errorf("got %s", r.Body)
		}
	})
}

// TestStreamedBackgroundResponseOutlivesItsClient cancels a stream in the middle. The client that follows it
// gets the last event, and the output so far is charged.
func TestStreamedBackgroundResponseOutlivesItsClient(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Text: "one two three four five six", Stall: 1200})
		first := m.Open(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: m.key, Body: inBackground("small", "Hi.", map[string]any{"stream": true})})
		id := "resp" + strings.TrimPrefix(first.Header.Get("X-Request-Id"), "req")
		_ = first.Body.Close()
		m.Eventually(t, func() bool { return m.rows(t, "background_responses WHERE output_tokens > 0") == 1 })
		done := make(chan *harness.Response)
		go func() { done <- m.get(t, responsesAt+id+"?stream=true&starting_after=1") }()
		if r := m.post(t, responsesAt+id+"/cancel", nil); r.Text("status") != "cancelled" {
			t.Errorf("got %s", r.Body)
		}
		list := chunks(<-done)
		if last := list[len(list)-1]; list[0].Text("type") != "response.in_progress" || last.Text("type") != "response.cancelled" || last.Text("response.status") != "cancelled" {
			t.Errorf("got %v", list)
		}
		e := settled(t, m.Server, m.key, "req"+strings.TrimPrefix(id, "resp"))
		if e.Text("usage_source") != "partial" || count(e, "output_tokens") == 0 || amount(t, e, "credits") <= credits.Micro(count(e, "output_tokens")*smallOut) {
			t.Errorf("got log entry %s", e.Body)
		}
		m.checkLedger(t, amount(t, e, "credits"))
	})
}

func TestBackgroundResponseIsEncryptedAndExpires(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.openai.Queue(upstreams.OpenAIReply{Text: "a secret answer and more", Stall: 1200})
		first := m.Open(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: m.key, Body: inBackground("small", "A secret question.", map[string]any{"stream": true})})
		_ = first.Body.Close()
		path := responsesAt + "resp" + strings.TrimPrefix(first.Header.Get("X-Request-Id"), "req")
		m.Eventually(t, func() bool { return m.rows(t, "background_responses WHERE output_tokens > 0") == 1 })
		if dump := string(m.DumpTables(t, []string{"responses", "background_responses", "response_events"})); strings.Contains(dump, "secret") || !strings.Contains(dump, "small") {
			t.Errorf("the database has the text: %s", dump)
		}
		m.post(t, path+"/cancel", nil)
		m.exec(t, "UPDATE responses SET expires_at = 1")
		m.ask(t, "GET", path+"?stream=true", nil).Want(t, 404, "not_found")
		m.write(t, func(tx *db.Tx) error {
			_, err := conversations.New(m.DB, db.NewGroup(m.DB), m.Ring, m.Clock.Now).Purge(t.Context(), tx, 10)
			return err
		})
		if n := m.rows(t, "response_events") + m.rows(t, "responses"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

func TestBackgroundNeedsAStoredResponse(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		if r := c.respond(t, say("x", map[string]any{"background": true, "store": false})).Want(t, 400, "invalid_parameter"); r.Text("error.param") != "store" {
			t.Errorf("got %s", r.Body)
		}
	})
}

func TestBackgroundResponseOfATestKeyIsSimulated(t *testing.T) {
	eachStored(t, func(t *testing.T, c *client) {
		before := c.respond(t, say("One.", nil)).Want(t, 200, "")
		r, path := c.queue(t, say("Blue.", map[string]any{"background": true, "previous_response_id": before.Text("id")}))
		got := c.waitForResponse(t, path, "completed")
		if got.Text("output.0.content.0.text") != "Blue." || got.Text("previous_response_id") != before.Text("id") {
			t.Errorf("got %s", got.Body)
		}
		if e := c.entry(t, r); amount(t, e, "credits") != 0 || amount(t, e, "simulated_credits") == 0 || e.At("output_tokens") == nil {
			t.Errorf("got log entry %s", e.Body)
		}
		items := c.get(t, path+"/input_items?order=asc")
		if items.Text("data.1.content.0.text") != "One." || items.Text("data.2.content.0.text") != "[[sim:text=Blue.]]" {
			t.Errorf("got items %s", items.Body)
		}
		conversation := c.post(t, "/v1/conversations", map[string]any{})
		_, path = c.queue(t, say("Hi.", map[string]any{"background": true, "conversation": conversation.Text("id")}))
		c.waitForResponse(t, path, "completed")
		if items := c.get(t, "/v1/conversations/"+conversation.Text("id")+"/items?order=asc"); items.Text("data.1.content.0.text") != "Hi." {
			t.Errorf("got items %s", items.Body)
		}
		// The same Idempotency-Key is the same response.
		send := func() *harness.Response {
			return c.Do(t, harness.Request{Method: "POST", Path: "/v1/responses", Key: c.key, Body: say("Once.", map[string]any{"background": true}), Header: http.Header{"Idempotency-Key": {"k" + conversation.Text("id")}}}).Want(t, 200, "")
		}
		if first, second := send(), send(); first.Text("id") != second.Text("id") || second.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %s and %s", first.Body, second.Body)
		}
	})
}
