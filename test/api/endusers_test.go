package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/spend"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

// userToken mints a token of an end user and returns a client with it.
func (m *gatewayClient) userToken(t *testing.T, user string, limits map[string]any) *gatewayClient {
	t.Helper()
	r := m.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}, "user": user, "user_limits": limits})
	if r.Text("user") != user {
		t.Errorf("got user %q, want %q", r.Text("user"), user)
	}
	return m.as(r.Text("value"))
}

// endUser returns the account that the workspace calls by the name.
func (m *gatewayClient) endUser(t *testing.T, name string) *harness.Response {
	t.Helper()
	list := m.get(t, "/v1/users?user="+name)
	if list.Text("data.0.id") == "" {
		t.Fatalf("got no user %s", name)
	}
	return m.get(t, "/v1/users/"+list.Text("data.0.id"))
}

// TestPrecedenceOfUserLimits: an admin's limits, then those of the last token that had the field, then the workspace's.
func TestPrecedenceOfUserLimits(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		type change struct {
			token, patch, settings map[string]any // one of them
		}
		none := map[string]any{}
		for i, tt := range []struct {
			name    string
			changes []change
			want    [3]any // budget, window and requests per minute
		}{
			{"nothing set", []change{{token: none}}, [3]any{nil, "month", nil}},
			{"the workspace's", []change{{settings: map[string]any{"budget": 7, "window": "week", "requests_per_minute": 70}}, {token: none}}, [3]any{7.0, "week", 70.0}},
			{"the token's", []change{{token: map[string]any{"budget": 5, "window": "day", "requests_per_minute": 50}}}, [3]any{5.0, "day", 50.0}},
			{"omitted fields are the workspace's", []change{{token: map[string]any{"budget": 5}}}, [3]any{5.0, "week", 70.0}},
			{"the last token's", []change{{token: map[string]any{"budget": 5, "window": "day"}}, {token: map[string]any{"budget": 6}}}, [3]any{6.0, "day", 70.0}},
			{"a token without limits keeps the previous", []change{{token: map[string]any{"budget": 5, "window": "lifetime"}}, {token: nil}}, [3]any{5.0, "lifetime", 70.0}},
			{"the admin's", []change{{token: map[string]any{"budget": 5, "window": "day"}}, {patch: map[string]any{"budget": 9}}}, [3]any{9.0, "day", 70.0}},
			{"the admin's over a later token", []change{{token: none}, {patch: map[string]any{"budget": 9, "requests_per_minute": 3}}, {token: map[string]any{"budget": 5, "window": "day"}}}, [3]any{9.0, "day", 3.0}},
			{"removed ones", []change{{token: map[string]any{"budget": 5}}, {patch: map[string]any{"budget": 9}}, {patch: map[string]any{"budget": nil}}}, [3]any{5.0, "week", 70.0}},
			{"without the workspace's", []change{{token: map[string]any{"window": "day"}}, {settings: nil}}, [3]any{nil, "day", nil}},
		} {
			user := fmt.Sprintf("user-%d", i)
			for _, c := range tt.changes {
				switch {
				case c.patch != nil:
					m.ask(t, "PATCH", "/v1/users/"+m.endUser(t, user).Text("id"), c.patch).Want(t, 200, "")
				case c.settings != nil:
					m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"default_limits": c.settings}).Want(t, 200, "")
				case tt.name == "without the workspace's" && c.token == nil:
					m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"default_limits": nil}).Want(t, 200, "")
				default:
					m.userToken(t, user, c.token)
				}
			}
			u := m.endUser(t, user)
			if got := [3]any{u.At("budget"), u.At("window"), u.At("requests_per_minute")}; got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
			}
		}
	})
}

func TestEndUsers(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(10)
		alice := m.userToken(t, "alice", map[string]any{"budget": 2.5, "window": "day"})
		chat := func(c *gatewayClient, user string) *harness.Response {
			b := oneCreditBody()
			if user != "" {
				b["user"] = user
			}
			r := c.chat(t, b)
			if r.Status == http.StatusOK {
				m.entry(t, r) // settled
			}
			return r
		}
		// The token's user wins over the body's.
		m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"from_requests": true}).Want(t, 200, "")
		chat(alice, "bob").Want(t, 200, "")
		chat(alice, "").Want(t, 200, "")
		refused := chat(alice, "bob").Want(t, 402, "budget_exceeded")
		if refused.Text("error.details.limit_source") != "user" || refused.Text("error.details.window") != "day" || refused.At("error.details.spent") != 2.0 {
			t.Errorf("got %s", refused.Body)
		}
		if list := m.get(t, "/v1/users?user=bob"); list.Text("data.0.id") != "" {
			t.Errorf("got %s, want no account", list.Body)
		}
		// A key's requests name their user.
		chat(m, "bob").Want(t, 200, "")
		bob := m.endUser(t, "bob")
		if bob.At("spent") != 1.0 {
			t.Errorf("got %s, want a credit spent", bob.Body)
		}
		id := m.endUser(t, "alice").Text("id")
		if top := m.get(t, "/v1/users?sort=spent"); top.Text("data.0.id") != id || top.Text("data.1.id") != bob.Text("id") {
			t.Errorf("got %s, want alice and bob", top.Body)
		}
		usage := m.get(t, "/v1/usage?group_by=user")
		if usage.Text("data.0.user_id") != id || usage.Text("data.0.user") != "alice" || usage.At("data.0.credits") != 2.0 || usage.At("data.1.credits") != 1.0 {
			t.Errorf("got %s", usage.Body)
		}
		// Bad input changes nothing.
		before := string(m.get(t, "/v1/users/"+id).Body)
		for param, in := range map[string]map[string]any{"budget": {"budget": 1.5, "blocked": true}, "window": {"window": "year", "blocked": true}, "requests_per_minute": {"requests_per_minute": 0, "blocked": true}} {
			if r := m.ask(t, "PATCH", "/v1/users/"+id, in).Want(t, 400, "invalid_parameter"); r.Text("error.param") != param {
				t.Errorf("got %s, want param %s", r.Body, param)
			}
		}
		if after := string(m.get(t, "/v1/users/"+id).Body); after != before {
			t.Errorf("got %s, want %s", after, before)
		}
		// An admin raises the budget, blocks and unblocks.
		m.ask(t, "PATCH", "/v1/users/"+id, map[string]any{"budget": 10}).Want(t, 200, "")
		chat(alice, "").Want(t, 200, "")
		m.ask(t, "PATCH", "/v1/users/"+id, map[string]any{"blocked": true}).Want(t, 200, "")
		chat(alice, "").Want(t, 403, "user_blocked")
		if list := m.get(t, "/v1/users?blocked=true"); list.Text("data.0.id") != id || list.Text("data.1.id") != "" {
			t.Errorf("got %s, want alice", list.Body)
		}
		m.ask(t, "PATCH", "/v1/users/"+id, map[string]any{"blocked": false, "requests_per_minute": 1}).Want(t, 200, "")
		chat(alice, "").Want(t, 200, "")
		if r := chat(alice, "").Want(t, 429, "rate_limit_exceeded"); r.Text("error.details.limit_source") != "user" {
			t.Errorf("got %s, want the user's limit", r.Body)
		}
		// The log has the user's ID, but not its name.
		byUser := m.get(t, "/v1/audit?user_id="+id)
		if byUser.Text("data.0.user_id") != id || byUser.Text("data.0.error_code") != "rate_limit_exceeded" || len(byUser.At("data").([]any)) != 7 {
			t.Errorf("got %s, want the requests of alice", byUser.Body)
		}
		if strings.Contains(string(m.get(t, "/v1/audit").Body)+string(m.get(t, "/v1/audit/actions").Body), "alice") {
			t.Error("got the name of a user in the log, want its ID")
		}
		m.ask(t, "GET", "/v1/audit?user_id=alice", nil).Want(t, 400, "invalid_parameter")
		// Usage keeps only the ID of a deleted user.
		m.ask(t, "DELETE", "/v1/users/"+id, nil).Want(t, 200, "")
		m.ask(t, "GET", "/v1/users/"+id, nil).Want(t, 404, "not_found")
		if usage := m.get(t, "/v1/usage?group_by=user"); usage.Text("data.0.user_id") != id || usage.At("data.0.user") != nil {
			t.Errorf("got %s, want no name", usage.Body)
		}
		// Tokens of the deleted user can't create it again, and don't count toward a new account with the name.
		chat(alice, "").Want(t, 403, "user_blocked")
		if list := m.get(t, "/v1/users?user=alice"); list.Text("data.0.id") != "" {
			t.Errorf("got %s, want no account", list.Body)
		}
		again := m.userToken(t, "alice", nil)
		chat(again, "").Want(t, 200, "")
		chat(alice, "").Want(t, 403, "user_blocked")
		if u := m.endUser(t, "alice"); u.Text("id") == id || u.At("spent") != 1.0 {
			t.Errorf("got %s, want another account", u.Body)
		}
	})
}

// TestBodiesNameTheirUser covers the fields that the endpoints have in OpenAI's API.
func TestBodiesNameTheirUser(t *testing.T) {
	eachGateway(t, both, func(cfg *config.Config) {
		cfg.Providers[0].Models = append(cfg.Providers[0].Models, config.ProviderModel{ID: "picture", Kind: "image", Price: &config.ModelPrice{PerImage: "0.01"}})
	}, func(t *testing.T, m *gatewayClient) {
		m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"from_requests": true}).Want(t, 200, "")
		chat, response := body("small", "Hi.", nil), map[string]any{"model": "small", "input": "Hi."}
		for i, tt := range []struct {
			path, field string
			body        map[string]any
		}{
			{"/v1/chat/completions", "user", chat},
			{"/v1/chat/completions", "safety_identifier", chat},
			{"/v1/responses", "user", response},
			{"/v1/responses", "safety_identifier", response},
			{"/v1/embeddings", "user", map[string]any{"model": "embed", "input": "Hi."}},
			{"/v1/images/generations", "user", map[string]any{"model": "picture", "prompt": "A road."}},
		} {
			name := fmt.Sprintf("user-%d", i)
			b := maps.Clone(tt.body)
			if tt.field == "safety_identifier" {
				b["user"] = "other"
			}
			b[tt.field] = name
			r := m.ask(t, "POST", tt.path, b).Want(t, 200, "")
			if got, want := m.entry(t, r).Text("user_id"), m.endUser(t, name).Text("id"); got != want {
				t.Errorf("%s: got user %q in the log, want %s by its %s", tt.path, got, want, tt.field)
			}
		}
		if list := m.get(t, "/v1/users?user=other"); list.Text("data.0.id") != "" {
			t.Errorf("got %s, want safety_identifier to win", list.Body)
		}
	})
}

// TestUserBudgetIsExactInEachWindow sends concurrent requests of end users to all nodes.
func TestUserHasAtMost128Bytes(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		m.userToken(t, strings.Repeat("u", 128), nil)
		for _, long := range []string{strings.Repeat("u", 129), strings.Repeat("ü", 65)} {
			r := m.ask(t, "POST", "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}, "user": long}).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "user" {
				t.Errorf("got %s", r.Body)
			}
		}
	})
}

// A browser has the token, so its user must not spend the budget of another one.
func TestTokenWithoutUserCannotNameOne(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		m.queueOneCredit(10)
		m.ask(t, "PATCH", "/v1/users/settings", map[string]any{"from_requests": true}).Want(t, 200, "")
		b := oneCreditBody()
		b["user"] = "bob"
		m.entry(t, m.chat(t, b).Want(t, 200, ""))
		token := m.as(m.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create", "responses:create"}}).Text("value"))
		for _, field := range []string{"user", "safety_identifier"} {
			b := oneCreditBody()
			b[field] = "bob"
			if e := m.entry(t, token.chat(t, b).Want(t, 200, "")); e.At("user_id") != nil {
				t.Errorf("%s: the log has %s, want no user", field, e.Body)
			}
		}
		// A key does the work that a token leaves behind.
		r, path := token.queue(t, inBackground("small", "x", map[string]any{"user": "bob"}))
		m.waitForResponse(t, path, "completed")
		if e := m.entry(t, r); e.At("user_id") != nil {
			t.Errorf("in the background: the log has %s, want no user", e.Body)
		}
		if spent := m.endUser(t, "bob").At("spent"); spent != 1.0 {
			t.Errorf("bob has spent %v, want the key's request only", spent)
		}
	})
}

func TestUserBudgetIsExactInEachWindow(t *testing.T) {
	eachEngine(t, both, func(t *testing.T, engine string) {
		var cfg config.Config
		m := newGateway(t, engine, func(c *config.Config) {
			withMeteredModels(t)(c)
			cfg = *c
		})
		nodes := []*gatewayClient{m}
		if engine == "postgres" {
			second := m.as(m.key)
			second.Server = harness.Start(t, cfg, m.Clock)
			nodes = append(nodes, second)
		}
		send := posts("/v1/chat/completions", body("metered", "Hi.", map[string]any{"max_tokens": 10}), true)
		budget := facesServed * credits.Credit
		for _, window := range accounts.Windows {
			for range facesServed {
				m.openai.Queue(upstreams.OpenAIReply{Usage: &upstreams.OpenAIUsage{Input: 10, Output: 10}})
			}
			user := "by-" + string(window)
			token := m.userToken(t, user, map[string]any{"budget": facesServed, "window": window}).key
			as := make([]*gatewayClient, len(nodes))
			for i, n := range nodes {
				as[i] = n.as(token)
			}
			if got := send(t, as); got[""] != facesServed || got["budget_exceeded"] != facesSent-facesServed {
				t.Errorf("%s: got %v, want %d requests served and %d rejected", window, got, facesServed, facesSent-facesServed)
			}
			account := spend.Account{Level: spend.EndUser, ID: m.endUser(t, user).Text("id")}
			m.Eventually(t, func() bool {
				b, err := spend.ReadBalance(t.Context(), m.DB, account, spend.PeriodIn(window, m.Clock.Now()))
				return err == nil && b.Spent == budget
			})
		}
	})
}
