package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/harness"
)

// keyChain is a key that a person created, with one descendant per generation.
type keyChain struct {
	*gatewayClient
	values, ids []string
}

// newKeyChain creates generations of keys with all scopes. The first has the
// given bounds.
func newKeyChain(t *testing.T, m *gatewayClient, first access.Key, generations int) *keyChain {
	t.Helper()
	first.Tenant, first.Name, first.Scopes = m.workspace.In(m.env), "first", []string{"*"}
	value, id := m.KeyOf(t, &first)
	f := &keyChain{gatewayClient: m, values: []string{value}, ids: []string{id}}
	for range generations - 1 {
		f.addChild(t, len(f.ids)-1)
	}
	return f
}

// addChild creates a key with the key at an index, with the same bounds.
func (f *keyChain) addChild(t *testing.T, parent int) (index int) {
	t.Helper()
	self := f.as(t, parent, "GET", "/v1/keys/"+f.ids[parent], nil).Want(t, 200, "")
	body := map[string]any{"name": "child", "scopes": []string{"*"}}
	for _, bound := range []string{"monthly_budget", "rate_limit", "allowed_ips", "expires_at", "project"} {
		body[bound] = self.At(bound)
	}
	r := f.as(t, parent, "POST", "/v1/keys", body).Want(t, 200, "")
	if r.Text("parent_key_id") != f.ids[parent] {
		t.Fatalf("got parent %q, want %q", r.Text("parent_key_id"), f.ids[parent])
	}
	f.values, f.ids = append(f.values, r.Text("value")), append(f.ids, r.Text("id"))
	return len(f.ids) - 1
}

func (f *keyChain) as(t *testing.T, index int, method, path string, body any) *harness.Response {
	t.Helper()
	return f.Do(t, harness.Request{Method: method, Path: path, Key: f.values[index], Body: body})
}

// chatAs sends a request that costs a credit.
func (f *keyChain) chatAs(t *testing.T, index int) *harness.Response {
	t.Helper()
	f.queueOneCredit(1)
	r := f.as(t, index, "POST", "/v1/chat/completions", oneCreditBody())
	if r.Status == http.StatusOK {
		f.entry(t, r)
	}
	return r
}

// spent waits until everything is settled, and returns a key's spending this
// month.
func (f *keyChain) spent(t *testing.T, index int) any {
	t.Helper()
	return f.get(t, "/v1/keys/"+f.ids[index]).At("spent_this_month")
}

func TestChildSpendingCountsTowardEveryAncestor(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		budget := 4 * credits.Credit // a request reserves a little more than one
		f := newKeyChain(t, m, access.Key{MonthlyBudget: &budget}, 3)
		sibling := f.addChild(t, 0)
		f.chatAs(t, 2).Want(t, 200, "")
		f.chatAs(t, 2).Want(t, 200, "")
		f.chatAs(t, sibling).Want(t, 200, "")
		for index, want := range []float64{3, 2, 2, 1} {
			if got := f.spent(t, index); got != want {
				t.Errorf("key %d: got %v spent, want %v", index, got, want)
			}
		}
		// The sibling has most of its budget left, but its parent has too
		// little.
		r := f.chatAs(t, sibling).Want(t, 402, "budget_exceeded")
		details, _ := r.At("error.details").(map[string]any)
		if r.Text("error.details.limit_source") != "ancestor_key" || len(details) != 2 || details["resets_at"] != nextMonth(m.Clock.Now()) {
			t.Errorf("got details %v, want limit_source and resets_at alone", details)
		}
		if f.as(t, 0, "POST", "/v1/chat/completions", oneCreditBody()).Want(t, 402, "budget_exceeded").Text("error.details.limit_source") != "key" {
			t.Error("the parent's own refusal doesn't name its key")
		}
		if calls := len(m.openai.Requests()); calls != 3 {
			t.Errorf("got %d upstream calls, want 3", calls)
		}
		// A revoked ancestor's budget still counts.
		m.ask(t, "DELETE", "/v1/keys/"+f.ids[0], nil).Want(t, 200, "")
		f.chatAs(t, sibling).Want(t, 402, "budget_exceeded")
		// A person can't raise it afterwards, because a revoked key can't be
		// changed.
		m.ask(t, "PATCH", "/v1/keys/"+f.ids[0], map[string]any{"monthly_budget": 10}).Want(t, 409, "invalid_state")
	})
}

func TestJobOfChildKeyIsChargedToAncestors(t *testing.T) {
	eachMedia(t, both, nil, func(t *testing.T, s *mediaClient) {
		budget := 10 * credit
		parent, parentID := s.withKey(t, access.Key{MonthlyBudget: &budget})
		created := parent.post(t, "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}, "monthly_budget": 10})
		job := s.Do(t, harness.Request{Method: "POST", Path: batches, Key: created.Text("value"), Body: batchBody("p", "p")}).Want(t, 200, "")
		s.Eventually(t, func() bool { return s.get(t, batches+"/"+job.Text("id")).Text("status") == "completed" })
		cost := s.get(t, batches+"/"+job.Text("id")).At("cost")
		for _, id := range []string{parentID, created.Text("id")} {
			if got := s.get(t, "/v1/keys/"+id).At("spent_this_month"); got != cost || got == 0.0 {
				t.Errorf("key %s: got %v spent, want %v", id, got, cost)
			}
		}
	})
}

func TestChildRatesCountTowardAncestors(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		limit := int64(4)
		f := newKeyChain(t, m, access.Key{RateLimit: &limit}, 2)
		sibling := f.addChild(t, 0)
		for range 2 {
			f.chatAs(t, 1).Want(t, 200, "")
			f.chatAs(t, sibling).Want(t, 200, "")
		}
		r := f.chatAs(t, sibling).Want(t, 429, "rate_limit_exceeded")
		if r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After header")
		}
	})
}

func TestChildRightsAreLimitedByCurrentAncestorRights(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 3)
		token := f.as(t, 2, "POST", "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}}).Want(t, 200, "").Text("value")
		patch := func(index int, body map[string]any) {
			t.Helper()
			m.ask(t, "PATCH", "/v1/keys/"+f.ids[index], body).Want(t, 200, "")
		}
		f.chatAs(t, 2).Want(t, 200, "")

		patch(0, map[string]any{"scopes": []string{"models:read", "keys:write"}})
		f.chatAs(t, 2).Want(t, 403, "insufficient_scope")
		f.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token, Body: oneCreditBody()}).Want(t, 403, "insufficient_scope")
		f.as(t, 2, "GET", "/v1/models", nil).Want(t, 200, "")
		patch(0, map[string]any{"scopes": []string{"*"}})

		patch(1, map[string]any{"allowed_ips": []string{"203.0.113.9"}})
		f.chatAs(t, 2).Want(t, 403, "ip_not_allowed")
		patch(1, map[string]any{"allowed_ips": []string{}})

		patch(0, map[string]any{"project": "alpha"})
		f.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: f.values[2], Header: http.Header{"Service-Project": {"beta"}}}).Want(t, 403, "project_not_allowed")
		r := f.chatAs(t, 2).Want(t, 200, "")
		if got := f.entry(t, r).Text("project"); got != "alpha" {
			t.Errorf("got project %q, want alpha", got)
		}
		patch(1, map[string]any{"project": "beta"})
		f.chatAs(t, 2).Want(t, 403, "project_not_allowed")
		patch(1, map[string]any{"project": nil})
		patch(0, map[string]any{"project": nil})

		patch(0, map[string]any{"expires_at": m.Clock.Now().Add(time.Minute).Unix()})
		f.chatAs(t, 2).Want(t, 200, "")
		m.Clock.Turn(time.Minute)
		f.chatAs(t, 2).Want(t, 401, "authentication_error")
		f.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token, Body: oneCreditBody()}).Want(t, 401, "authentication_error")
	})
}

func TestKeysHaveAtMostFourGenerations(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 4)
		r := f.as(t, 3, "POST", "/v1/keys", map[string]any{"name": "fifth", "scopes": []string{"*"}}).Want(t, 409, "limit_reached")
		if !strings.Contains(r.Text("error.message"), "4 generations") {
			t.Errorf("got message %q", r.Text("error.message"))
		}
		f.chatAs(t, 3).Want(t, 200, "")
	})
}

func TestRevokingAKeyCanRevokeItsDescendants(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 4)
		models := func(index int) *harness.Response { return f.as(t, index, "GET", "/v1/models", nil) }
		m.ask(t, "DELETE", "/v1/keys/"+f.ids[1]+"?descendants=maybe", nil).Want(t, 400, "invalid_parameter")
		m.ask(t, "DELETE", "/v1/keys/"+f.ids[1], nil).Want(t, 200, "")
		models(1).Want(t, 401, "authentication_error")
		models(2).Want(t, 200, "")
		m.ask(t, "DELETE", "/v1/keys/"+f.ids[1]+"?descendants=true", nil).Want(t, 200, "")
		models(0).Want(t, 200, "")
		for _, index := range []int{1, 2, 3} {
			models(index).Want(t, 401, "authentication_error")
			if got := m.get(t, "/v1/keys/"+f.ids[index]).Text("status"); got != "revoked" {
				t.Errorf("key %d: got status %s, want revoked", index, got)
			}
		}
	})
}

func TestLeakRevokesDescendants(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 3)
		bystander := newKeyChain(t, m, access.Key{}, 2)
		wantAccepted(t, m.Do(t, leakOf(f.values[0])))
		for index := range f.ids {
			f.as(t, index, "GET", "/v1/models", nil).Want(t, 401, "authentication_error")
		}
		bystander.as(t, 1, "GET", "/v1/models", nil).Want(t, 200, "")
		event := m.get(t, "/v1/events?type=key.auto_revoked")
		var got []string
		for i := range 2 {
			got = append(got, event.Text(fmt.Sprintf("data.0.data.descendants.%d.key_id", i)))
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(f.ids[1:]))
		if !slices.Equal(got, want) || event.Text("data.0.data.key_id") != f.ids[0] || event.At("data.0.data.descendants_truncated") != false {
			t.Errorf("got descendants %v, want %v: %s", got, want, event.Body)
		}
	})
}

func TestKeysCreatedDuringLeakRevocationAreRevoked(t *testing.T) {
	eachGateway(t, both, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 2)
		var all sync.WaitGroup
		var mu sync.Mutex
		var created []string
		for i := range 20 {
			all.Go(func() {
				r := f.as(t, i%2, "POST", "/v1/keys", map[string]any{"name": "late", "scopes": []string{"*"}})
				if r.Status == http.StatusOK {
					mu.Lock()
					created = append(created, r.Text("value"))
					mu.Unlock()
				}
			})
			if i == 10 {
				all.Go(func() { wantAccepted(t, m.Do(t, leakOf(f.values[0]))) })
			}
		}
		all.Wait()
		for _, value := range created {
			m.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: value}).Want(t, 401, "authentication_error")
		}
	})
}

func TestLogStoresChargedAccounts(t *testing.T) {
	eachGateway(t, sqlite, nil, func(t *testing.T, m *gatewayClient) {
		f := newKeyChain(t, m, access.Key{}, 2)
		r := f.chatAs(t, 1).Want(t, 200, "")
		var stored string
		if err := m.DB.QueryRow(t.Context(), "SELECT accounts FROM requests WHERE id = $1", r.Header.Get("X-Request-Id")).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		period := m.Clock.Now().UTC().Format("2006-01")
		want := `[["key","` + f.ids[0] + `","` + period + `"],["key","` + f.ids[1] + `","` + period + `"],["workspace","` + m.workspace.ID + `","` + period + `"]]`
		if stored != want {
			t.Errorf("got accounts %s, want %s", stored, want)
		}
	})
}

func TestChildReadsAndWritesCountTowardAncestors(t *testing.T) {
	eachLimited(t, sqlite, func(l *config.Limits) { l.ReadsPerMinute = 4 }, func(t *testing.T, s *harness.Server) {
		parent, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		var children []string
		for range 2 {
			r := s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: parent, Body: map[string]any{"name": "child", "scopes": []string{"*"}}}).Want(t, 200, "")
			children = append(children, r.Text("value"))
		}
		for range 2 {
			s.Do(t, models(children[0])).Want(t, 200, "")
			s.Do(t, models(children[1])).Want(t, 200, "")
		}
		r := s.Do(t, models(children[0])).Want(t, 429, "rate_limit_exceeded")
		if got, want := r.Text("error.message"), "A key that created this key has reached its limit of 4 read requests per minute. Retry in 15s."; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
