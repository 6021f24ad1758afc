package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/lanes"
	"turnpike/internal/notifications"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

// chatTool is an incoming webhook.
type chatTool struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []string
}

func newChatTool(t *testing.T) *chatTool {
	t.Helper()
	c := &chatTool{status: 200}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.status == 200 {
			c.got = append(c.got, string(body))
		}
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *chatTool) respondWith(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

func (c *chatTool) messages() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// eachNotified runs fn with a gateway, a mail server, members of each role and an incoming webhook.
func eachNotified(t *testing.T, fn func(t *testing.T, m *gatewayClient, mails *smtp.Server, chat *chatTool)) {
	t.Helper()
	eachEngine(t, both, func(t *testing.T, engine string) {
		mails, chat := smtp.Start(t), newChatTool(t)
		m := newGateway(t, engine, func(cfg *config.Config) {
			cfg.SMTP.URL, cfg.Mail.From = config.SecretURL(mails.URL()), "turnpike@example.com"
			cfg.Webhooks.AllowHTTP, cfg.Webhooks.AllowCIDRs = true, prefixes(t, "127.0.0.0/8")
		})
		m.withPeople(t)
		fn(t, m, mails, chat)
	})
}

// wakeNotifications moves the clock and wakes the workspace's lane.
func (c *client) wakeNotifications(t *testing.T, d time.Duration) {
	t.Helper()
	c.Clock.Turn(d)
	c.write(t, func(tx *db.Tx) error {
		return lanes.Enqueue(t.Context(), tx, notifications.Queue, map[string]time.Time{c.workspace.ID: c.Clock.Now()})
	})
}

func TestBudgetAlertsReachPeople(t *testing.T) {
	eachNotified(t, func(t *testing.T, m *gatewayClient, mails *smtp.Server, chat *chatTool) {
		m.ask(t, "PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"url": chat.URL + "/services/secret-path", "format": "slack"}}).Want(t, 200, "")
		made := m.post(t, "/v1/keys", map[string]any{"name": "shop <!channel>", "scopes": []string{"*"}, "monthly_budget": 12, "alert_thresholds": []int{40}, "alert_email": "oncall@example.com"})
		spender := *m
		spender.client = &client{Server: m.Server, workspace: m.workspace, env: m.env, key: made.Text("value")}
		m.queueOneCredit(11)
		spend := func(n int) {
			for range n {
				m.entry(t, spender.chat(t, oneCreditBody()).Want(t, 200, ""))
			}
		}
		spend(5)
		// To the owner, the admin and the key's address.
		got := mails.Wait(t, 3)
		var to []string
		for _, mail := range got {
			to = append(to, mail.To...)
			if !strings.Contains(string(mail.Data), "Spending has reached 40% of a budget") {
				t.Errorf("got email %s", mail.Data)
			}
		}
		slices.Sort(to)
		if want := []string{"admin@example.com", "oncall@example.com", "owner@example.com"}; !slices.Equal(to, want) {
			t.Errorf("got emails to %v, want %v", to, want)
		}
		m.Eventually(t, func() bool { return len(chat.messages()) == 1 })
		var slack struct{ Text string }
		if err := json.Unmarshal([]byte(chat.messages()[0]), &slack); err != nil || !strings.Contains(slack.Text, "has used 40% of its budget") || strings.Contains(slack.Text, "<!channel>") {
			t.Errorf("got message %s (%v)", chat.messages()[0], err)
		}

		// A request that could cost most of the budget is refused without an alert. Used up, two small ones are.
		m.ask(t, "PATCH", "/v1/notifications", map[string]any{"webhook": map[string]any{"format": "json"}}).Want(t, 200, "")
		m.entry(t, spender.chat(t, body("small", "hi", map[string]any{"max_tokens": 1000})).Want(t, 402, "budget_exceeded"))
		spend(6)
		for range 2 {
			m.entry(t, spender.chat(t, oneCreditBody()).Want(t, 402, "budget_exceeded"))
		}
		mails.Wait(t, 6)
		m.Eventually(t, func() bool { return len(chat.messages()) == 2 })
		var event struct {
			Object, Type, URL, Environment string
			Data                           struct {
				LimitSource string `json:"limit_source"`
				Budget      float64
				Spent       float64
			}
		}
		if err := json.Unmarshal([]byte(chat.messages()[1]), &event); err != nil || event.Object != "notification" || event.Type != "budget.exceeded" || event.Data.Budget != 12 ||
			event.Data.Spent != 11 || event.Data.LimitSource != "key" || !strings.HasSuffix(event.URL, "/live/keys/"+made.Text("id")) {
			t.Errorf("got message %s (%v)", chat.messages()[1], err)
		}
		if list := m.get(t, "/v1/events"); len(list.At("data").([]any)) != 2 {
			t.Errorf("got events %s", list.Body)
		}
		if n := m.rows(t, "mails"); n != 6 {
			t.Errorf("got %d emails, want 6", n)
		}
		// Low credits are emailed as well.
		m.ask(t, "PATCH", "/v1/billing", map[string]any{"monthly_credits": 11.1, "alert_thresholds": []int{}}).Want(t, 200, "")
		if last := mails.Wait(t, 8)[7]; !strings.Contains(string(last.Data), "Credits are running low") {
			t.Errorf("got email %s", last.Data)
		}
	})
}

// TestAlertsOfUsersSendEmailOnRequest: a workspace can have a million users, so their alerts are only events unless it asks for more.
func TestAlertsOfUsersSendEmailOnRequest(t *testing.T) {
	eachNotified(t, func(t *testing.T, m *gatewayClient, mails *smtp.Server, _ *chatTool) {
		m.queueOneCredit(4)
		spend := func(user string) {
			t.Helper()
			m.entry(t, m.userToken(t, user, map[string]any{"budget": 2, "window": "day"}).chat(t, oneCreditBody()).Want(t, 200, ""))
		}
		spend("alice")
		m.Eventually(t, func() bool {
			return m.get(t, "/v1/events").Text("data.0.type") == "budget.threshold_reached" && m.rows(t, "new_events") == 0 // fanned out
		})
		m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"alert_thresholds": []int{0}}).Want(t, 400, "invalid_parameter")
		m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"alert_thresholds": []int{40}}).Want(t, 200, "")
		spend("bob")
		for _, mail := range mails.Wait(t, 2) { // to the owner and the admin
			if text := string(mail.Data); !strings.Contains(text, `User "bob" has used 40% of its budget`) || !strings.Contains(text, "("+m.endUser(t, "bob").Text("id")+")") {
				t.Errorf("got email %s", text)
			}
		}
		if n := m.rows(t, "mails"); n != 2 {
			t.Errorf("got %d emails, want none about alice", n)
		}
	})
}

func TestIncomingWebhookIsASecretAndRetried(t *testing.T) {
	eachNotified(t, func(t *testing.T, m *gatewayClient, _ *smtp.Server, chat *chatTool) {
		patch := func(body any) *harness.Response { return m.ask(t, "PATCH", "/v1/notifications", body) }
		for text, param := range map[string]string{
			`{"webhook":{"url":"ftp://example.com/x"}}`:                  "webhook.url",
			`{"webhook":{"url":"https://user:pass@example.com/x"}}`:      "webhook.url",
			`{"webhook":{"url":"http://10.0.0.1/x"}}`:                    "webhook.url",
			`{"webhook":{"url":"https://example.com/x","format":"xml"}}`: "webhook.format",
			`{"webhook":{"format":"json"}}`:                              "webhook.url",
			`{"webhook":{"url":"https://example.com/x","color":1}}`:      "webhook.color",
			`{"omit_arguments":"yes"}`:                                   "omit_arguments",
		} {
			if r := patch(text); r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("%s: got %d %s, want 400 about %s", text, r.Status, r.Body, param)
			}
		}
		if r := m.get(t, "/v1/notifications"); r.At("webhook") != nil {
			t.Errorf("after refused changes: %s", r.Body)
		}
		m.ask(t, "POST", "/v1/notifications/test", nil).Want(t, 409, "invalid_state")
		m.withTestKey(t).ask(t, "GET", "/v1/notifications", nil).Want(t, 409, "invalid_state")

		set := patch(map[string]any{"webhook": map[string]any{"url": chat.URL + "/services/T00/secret-path"}, "omit_arguments": true}).Want(t, 200, "")
		if strings.Contains(string(set.Body), "secret-p") || !strings.HasSuffix(set.Text("webhook.url_hint"), "…path") || set.At("omit_arguments") != true {
			t.Errorf("got %s", set.Body)
		}
		if n := m.rows(t, "notification_settings WHERE sealed_url LIKE '%secret%' OR url_hint LIKE '%secret%'"); n != 0 {
			t.Error("the URL is stored in the clear")
		}
		m.post(t, "/v1/notifications/test", nil)
		if got := chat.messages(); len(got) != 1 || !strings.Contains(got[0], "Test message from Turnpike") {
			t.Errorf("got messages %q", got)
		}
		chat.respondWith(500)
		if r := m.ask(t, "POST", "/v1/notifications/test", nil).Want(t, 409, "invalid_state"); !strings.Contains(r.Text("error.message"), "500 Internal Server Error") {
			t.Errorf("got %s", r.Body)
		}
		// A message waits until the webhook works again.
		m.publish(t, creditsLow)
		m.Eventually(t, func() bool { return m.rows(t, "notifications WHERE attempts = 1") == 1 })
		if r := m.get(t, "/v1/notifications"); !strings.Contains(r.Text("webhook.last_error"), "500") {
			t.Errorf("got %s", r.Body)
		}
		chat.respondWith(200)
		m.Eventually(t, func() bool {
			m.wakeNotifications(t, 10*time.Minute)
			return len(chat.messages()) == 2
		})
		m.Eventually(t, func() bool { return m.rows(t, "notifications") == 0 })
		if r := m.get(t, "/v1/notifications"); r.At("webhook.last_error") != nil || r.At("webhook.last_sent_at") == nil {
			t.Errorf("got %s", r.Body)
		}
		if r := patch(map[string]any{"webhook": nil}).Want(t, 200, ""); r.At("webhook") != nil || r.At("omit_arguments") != true {
			t.Errorf("got %s", r.Body)
		}
	})
}
