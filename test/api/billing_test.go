package api_test

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// queueOneCredit makes the next n requests of "small" cost a credit each: 100
// input tokens at 0.002 and 100 output tokens at 0.008.
func (m *gatewayClient) queueOneCredit(n int) {
	for range n {
		m.openai.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
	}
}

// oneCreditBody is a request for queueOneCredit.
func oneCreditBody() map[string]any { return body("small", "hi", map[string]any{"max_tokens": 100}) }

func nextMonth(now time.Time) float64 {
	now = now.UTC()
	return float64(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Unix())
}

func TestBillingShowsAndSetsMonthlyCredits(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		now := m.Clock.Now()
		b := m.get(t, "/v1/billing")
		if b.At("monthly_credits") != nil || b.At("remaining") != nil || b.At("used") != 0.0 || b.At("reserved") != 0.0 || b.At("alert_threshold") != "20%" ||
			b.Text("period") != now.UTC().Format("2006-01") || b.At("resets_at") != nextMonth(now) {
			t.Errorf("at first: %s", b.Body)
		}
		patch := func(body any) *harness.Response { return m.ask(t, "PATCH", "/v1/billing", body) }
		m.queueOneCredit(1)
		m.entry(t, m.chat(t, oneCreditBody()).Want(t, 200, ""))
		for _, c := range []struct {
			body                       map[string]any
			monthly, left, alert, used any
		}{
			{map[string]any{"monthly_credits": 10}, 10.0, 9.0, "20%", 1.0},
			{map[string]any{"alert_threshold": 2.5}, 10.0, 9.0, 2.5, 1.0},
			{map[string]any{"alert_threshold": "0%"}, 10.0, 9.0, "0%", 1.0},
			{map[string]any{"alert_threshold": "100%", "monthly_credits": 1}, 1.0, 0.0, "100%", 1.0},
			{map[string]any{"alert_threshold": nil}, 1.0, 0.0, "20%", 1.0},
			{map[string]any{}, 1.0, 0.0, "20%", 1.0},
			{map[string]any{"monthly_credits": nil, "alert_threshold": 0}, nil, nil, 0.0, 1.0},
			{map[string]any{"monthly_credits": 1000000000000}, 1000000000000.0, 999999999999.0, 0.0, 1.0},
		} {
			for _, r := range []*harness.Response{patch(c.body).Want(t, 200, ""), m.get(t, "/v1/billing")} {
				if r.At("monthly_credits") != c.monthly || r.At("remaining") != c.left || r.At("alert_threshold") != c.alert || r.At("used") != c.used {
					t.Errorf("after %v: %s", c.body, r.Body)
				}
			}
		}
		for text, param := range map[string]string{
			`{"monthly_credits":-1}`: "monthly_credits", `{"monthly_credits":"10"}`: "monthly_credits", `{"monthly_credits":1000000000001}`: "monthly_credits", `{"monthly_credits":0.0000001}`: "monthly_credits",
			`{"alert_threshold":"20"}`: "alert_threshold", `{"alert_threshold":"101%"}`: "alert_threshold", `{"alert_threshold":"-1%"}`: "alert_threshold", `{"alert_threshold":"+5%"}`: "alert_threshold",
			`{"alert_threshold":"2.5%"}`: "alert_threshold", `{"alert_threshold":"%"}`: "alert_threshold", `{"alert_threshold":-1}`: "alert_threshold", `{"alert_threshold":true}`: "alert_threshold",
			`{"alert_threshold":{}}`: "alert_threshold", `{"alert_threshold":[1]}`: "alert_threshold",
		} {
			if r := patch(text).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
				t.Errorf("%s: %s", text, r.Body)
			}
		}
		patch(map[string]any{"used": 0}).Want(t, 400, "unknown_parameter")
		if r := m.get(t, "/v1/billing"); r.At("monthly_credits") != 1000000000000.0 || r.At("alert_threshold") != 0.0 {
			t.Errorf("after what was refused: %s", r.Body)
		}
		if actions := string(m.get(t, "/v1/audit/actions").Body); !strings.Contains(actions, "billing.updated") {
			t.Errorf("nobody knows who changed it: %s", actions)
		}
		m.withTestKey(t).ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 1}).Want(t, 409, "invalid_state")

		// A new month starts without usage.
		m.Clock.Turn(32 * 24 * time.Hour)
		if r := m.get(t, "/v1/billing"); r.At("used") != 0.0 || r.Text("period") == b.Text("period") || r.At("resets_at") != nextMonth(m.Clock.Now()) {
			t.Errorf("in the next month: %s", r.Body)
		}
	})
}

// TestClientSeesTheSpendingOfItsOwnRequests asks for the spending as soon as a request has ended, while its settlement waits to
// share a commit.
func TestClientSeesTheSpendingOfItsOwnRequests(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		for n := 1; n <= 10; n++ {
			// The intent is written meanwhile.
			m.openai.Queue(upstreams.OpenAIReply{Delay: 50 * time.Millisecond, Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
			m.chat(t, oneCreditBody()).Want(t, 200, "")
			if used := m.get(t, "/v1/billing").At("used"); used != float64(n) {
				t.Fatalf("got %v credits used after %d requests of one credit", used, n)
			}
		}
	})
}

func TestReservedCreditsAreThoseOfCallsInProgress(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 2}).Want(t, 200, "")
		m.openai.Queue(upstreams.OpenAIReply{Delay: time.Second, Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
		done := make(chan *harness.Response)
		go func() { done <- m.chat(t, oneCreditBody()) }()
		m.openai.Wait(1)
		b := m.get(t, "/v1/billing")
		if b.At("used") != 0.0 || b.At("remaining") != 2.0 || amount(t, b, "reserved") < 1_000_000 {
			t.Errorf("while it runs: %s", b.Body)
		}
		m.entry(t, (<-done).Want(t, 200, ""))
		if b := m.get(t, "/v1/billing"); b.At("used") != 1.0 || b.At("remaining") != 1.0 || amount(t, b, "reserved") > 1_000_000 {
			t.Errorf("afterwards: %s", b.Body)
		}
	})
}

func TestBudgetsOfEveryLevelRejectCallsThatDoNotFit(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		// Each request reserves a little more than a credit and costs one, so a
		// budget of 2.5 is enough for two.
		limit := credits.Micro(2_500_000)
		resets := nextMonth(m.Clock.Now())
		refused := func(r *harness.Response, code, source string, limit, spent float64) {
			t.Helper()
			r.Want(t, 402, code)
			if r.Text("error.details.limit_source") != source || r.At("error.details.limit") != limit || r.At("error.details.spent") != spent || r.At("error.details.resets_at") != resets {
				t.Errorf("%s: %s", source, r.Body)
			}
			if e := m.entry(t, r); e.At("credits") != 0.0 || e.Text("error_code") != code || e.Text("model") != "small" || e.At("provider") != nil {
				t.Errorf("%s: got log entry %s", source, e.Body)
			}
		}
		twice := func(c *gatewayClient, more func(*harness.Request)) (third *harness.Response) {
			t.Helper()
			for i := range 3 {
				r := harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: c.key, Body: oneCreditBody()}
				if more != nil {
					more(&r)
				}
				if third = c.Do(t, r); i < 2 {
					c.entry(t, third.Want(t, 200, ""))
				}
			}
			return third
		}
		m.queueOneCredit(20)
		poor := m.withKey(t, access.Key{MonthlyBudget: &limit})
		refused(twice(poor, nil), "budget_exceeded", "key", 2.5, 2)
		id := m.get(t, "/v1/keys").Text("data.0.id") // newest first
		for _, tt := range []struct {
			budget float64
			status int
		}{{2, 402}, {100, 200}} { // changes apply immediately
			m.ask(t, "PATCH", "/v1/keys/"+id, map[string]any{"monthly_budget": tt.budget}).Want(t, 200, "")
			if r := poor.chat(t, oneCreditBody()); r.Status != tt.status {
				t.Errorf("with a budget of %v: %s", tt.budget, r.Body)
			}
		}

		m.post(t, "/v1/projects", map[string]any{"id": "shop", "monthly_budget": 2.5})
		refused(twice(m, func(r *harness.Request) { r.Header = map[string][]string{"Service-Project": {"shop"}} }), "budget_exceeded", "project", 2.5, 2)
		if list := m.get(t, "/v1/keys"); list.At("data.0.spent_this_month") != 3.0 || list.At("data.0.monthly_budget") == nil {
			t.Errorf("the keys are %s", list.Body)
		}
		if list := m.get(t, "/v1/projects"); list.At("data.0.spent_this_month") != 2.0 || list.At("data.0.monthly_budget") != 2.5 {
			t.Errorf("the projects are %s", list.Body)
		}
		if p := m.get(t, "/v1/projects/shop"); p.At("spent_this_month") != 2.0 {
			t.Errorf("got project %s", p.Body)
		}
		if p := m.withTestKey(t).ask(t, "POST", "/v1/projects", map[string]any{"id": "shop"}).Want(t, 200, ""); p.At("spent_this_month") != 0.0 {
			t.Errorf("a test project is %s", p.Body)
		}

		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 7.5}).Want(t, 200, "") // five are spent
		refused(twice(m, nil), "insufficient_credits", "workspace", 7.5, 7)

		// A budget of 0 refuses at every level. If several budgets refuse, the
		// narrowest is named.
		none := credits.Micro(0)
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": nil}).Want(t, 200, "")
		refused(m.withKey(t, access.Key{MonthlyBudget: &none}).chat(t, oneCreditBody()), "budget_exceeded", "key", 0, 0)
		m.post(t, "/v1/projects", map[string]any{"id": "none", "monthly_budget": 0})
		refused(m.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: m.key, Body: oneCreditBody(), Header: map[string][]string{"Service-Project": {"none"}}}), "budget_exceeded", "project", 0, 0)
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 0}).Want(t, 200, "")
		refused(m.withKey(t, access.Key{MonthlyBudget: &none}).chat(t, oneCreditBody()), "budget_exceeded", "key", 0, 0)
		refused(m.chat(t, oneCreditBody()), "insufficient_credits", "workspace", 0, 7)
		m.ask(t, "POST", "/v1/embeddings", map[string]any{"model": "odd-embed", "input": "hi"}).Want(t, 402, "insufficient_credits")
		// The suggested fix depends on the request.
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": nil}).Want(t, 200, "")
		empty := m.withKey(t, access.Key{MonthlyBudget: &none})
		if r := empty.chat(t, oneCreditBody()); !strings.Contains(r.Text("error.message"), "max_tokens") {
			t.Errorf("of a chat: %s", r.Body)
		}
		if r := empty.ask(t, "POST", "/v1/embeddings", map[string]any{"model": "odd-embed", "input": "hi"}).Want(t, 402, "budget_exceeded"); strings.Contains(r.Text("error.message"), "max_tokens") {
			t.Errorf("of embeddings: %s", r.Body)
		}

		// A new month allows requests again, except with a budget of 0.
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 7}).Want(t, 200, "")
		m.chat(t, oneCreditBody()).Want(t, 402, "insufficient_credits")
		m.Clock.Turn(32 * 24 * time.Hour)
		m.chat(t, oneCreditBody()).Want(t, 200, "")
		asked := len(m.openai.Requests())
		if asked != 8 {
			t.Errorf("%d calls reached the provider, want 8", asked)
		}
	})
}

func TestLoweredBudgetHoldsImmediately(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		keyed := func(budget any) (caller *gatewayClient, id string) {
			made := m.post(t, "/v1/keys", map[string]any{"name": "lowered", "scopes": []string{"*"}, "monthly_budget": budget})
			return m.as(made.Text("value")), made.Text("id")
		}
		m.post(t, "/v1/projects", map[string]any{"id": "shop", "monthly_budget": 10_000})
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 10_000}).Want(t, 200, "")
		poor, id := keyed(10_000)
		other, _ := keyed(nil)
		calls := 0
		for _, tt := range []struct {
			source, path, field, project string
			caller                       *gatewayClient
			used                         float64 // by earlier requests
		}{
			{"key", "/v1/keys/" + id, "monthly_budget", "", poor, 0},
			{"project", "/v1/projects/shop", "monthly_budget", "shop", other, 0},
			{"workspace", "/v1/billing", "monthly_credits", "", other, 8},
		} {
			call := func(most int) *harness.Response {
				r := harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: tt.caller.key, Body: body("small", "hi", map[string]any{"max_tokens": most})}
				if tt.project != "" {
					r.Header = map[string][]string{"Service-Project": {tt.project}}
				}
				return m.Do(t, r)
			}
			lower := func(to float64) { m.ask(t, "PATCH", tt.path, map[string]any{tt.field: to}).Want(t, 200, "") }
			m.openai.Queue(upstreams.OpenAIReply{Delay: 300 * time.Millisecond, Usage: &upstreams.OpenAIUsage{Input: 100, Output: 100}})
			done := make(chan *harness.Response)
			go func() { done <- call(10_000) }() // reserves 80
			calls++
			m.openai.Wait(calls)
			lower(tt.used + 4.5)
			m.entry(t, (<-done).Want(t, 200, ""))
			m.queueOneCredit(3)
			for range 3 {
				m.entry(t, call(100).Want(t, 200, ""))
				calls++
			}
			refused := func(budget float64) {
				t.Helper()
				r := call(100)
				if r.Status != 402 || r.Text("error.details.limit_source") != tt.source || r.At("error.details.limit") != budget || r.At("error.details.spent") != tt.used+4 {
					t.Errorf("%s of %v: %s", tt.source, budget, r.Body)
				}
			}
			refused(tt.used + 4.5)
			lower(tt.used + 4)
			refused(tt.used + 4)
			lower(0) // the error reports the spent credits
			refused(0)
		}
	})
}

func TestLowCreditAlertIsPublishedOncePerCrossing(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		alerts := func() []any {
			list, _ := m.get(t, "/v1/events?type=billing.credits.low&order=asc").At("data").([]any)
			return list
		}
		spend := func(want int) {
			t.Helper()
			m.queueOneCredit(1)
			m.entry(t, m.chat(t, oneCreditBody()).Want(t, 200, ""))
			m.waitUntilPosted(t)
			if got := alerts(); len(got) != want {
				t.Fatalf("%d alerts, want %d", len(got), want)
			}
		}
		spend(0) // without a limit there is no alert
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 10, "alert_threshold": "70%"}).Want(t, 200, "")
		spend(0) // leaves 8
		spend(0) // leaves 7, which is not below
		spend(1)
		event := m.get(t, "/v1/events?type=billing.credits.low")
		if event.At("data.0.data.remaining") != 6.0 || event.At("data.0.data.threshold") != 7.0 || event.At("data.0.data.monthly_credits") != 10.0 ||
			event.Text("data.0.data.period") != m.Clock.Now().UTC().Format("2006-01") || event.Text("data.0.environment") != "live" {
			t.Errorf("got event %s", event.Body)
		}
		// A higher limit that doesn't reach the threshold causes no second
		// alert.
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 12}).Want(t, 200, "")
		spend(1)
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 20}).Want(t, 200, "") // leaves 15 of 20
		spend(1)                                                                                 // leaves 14: 70%
		spend(2)
		// A lower threshold rearms the alert as well.
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"alert_threshold": 12}).Want(t, 200, "")
		spend(2) // leaves 12
		spend(3)
		m.Clock.Turn(32 * 24 * time.Hour)
		spend(3)
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"alert_threshold": "100%"}).Want(t, 200, "")
		if got := alerts(); len(got) != 4 { // no charge has to follow
			t.Fatalf("%d alerts", len(got))
		}
		spend(4)
	})
}

func TestBillingAndUsageAreIsolatedByTenant(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(1)
		m.entry(t, m.chat(t, oneCreditBody()).Want(t, 200, ""))
		test := m.withTestKey(t)
		test.entry(t, test.chat(t, chatBody("hello")).Want(t, 200, ""))
		other := newClient(t, m.Server, accounts.Live)
		other.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 0}).Want(t, 200, "")
		if b := other.get(t, "/v1/billing"); b.At("used") != 0.0 {
			t.Errorf("another workspace sees %s", b.Body)
		}
		if b := m.get(t, "/v1/billing"); b.At("used") != 1.0 || b.At("monthly_credits") != nil {
			t.Errorf("another workspace has changed %s", b.Body)
		}
		if u := other.get(t, "/v1/usage?group_by=key,model"); len(u.At("data").([]any)) != 0 {
			t.Errorf("another workspace sees %s", u.Body)
		}
		live, tested := m.get(t, "/v1/usage?group_by=provider"), test.get(t, "/v1/usage?group_by=provider")
		if live.At("data.0.requests") != 1.0 || live.At("data.1") != nil || live.At("data.0.credits") != 1.0 || live.Text("data.0.provider") != "first" ||
			tested.At("data.0.requests") != 1.0 || tested.At("data.0.credits") != 0.0 || tested.At("data.0.simulated_credits") == 0.0 || tested.Text("data.0.provider") != "simulator" {
			t.Errorf("live %s\ntest %s", live.Body, tested.Body)
		}
		m.chat(t, oneCreditBody()).Want(t, 200, "") // another workspace's budget of 0 doesn't apply
	})
}
