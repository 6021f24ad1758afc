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

// family is a key that a person created, and its descendants, a generation each.
type family struct {
	*market
	values, ids []string
}

// newFamily creates so many generations of keys with all scopes. The first has
// the given bounds.
func newFamily(t *testing.T, m *market, first access.Key, generations int) *family {
	t.Helper()
	first.WorkspaceID, first.Environment, first.Name, first.Scopes = m.workspace.ID, m.env, "first", []string{"*"}
	value, id := m.KeyOf(t, &first)
	f := &family{market: m, values: []string{value}, ids: []string{id}}
	for range generations - 1 {
		f.addChild(t, len(f.ids)-1)
	}
	return f
}

// addChild creates a key with the one at an index, with the bounds of that.
func (f *family) addChild(t *testing.T, parent int) (index int) {
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

func (f *family) as(t *testing.T, index int, method, path string, body any) *harness.Response {
	t.Helper()
	return f.Do(t, harness.Request{Method: method, Path: path, Key: f.values[index], Body: body})
}

// chatAs makes a call that costs a credit.
func (f *family) chatAs(t *testing.T, index int) *harness.Response {
	t.Helper()
	f.costsOne(1)
	r := f.as(t, index, "POST", "/v1/chat/completions", hundred())
	if r.Status == http.StatusOK {
		f.entry(t, r)
	}
	return r
}

// spent waits until all settlements are booked, and returns what a key has
// spent this month.
func (f *family) spent(t *testing.T, index int) any {
	t.Helper()
	return f.get(t, "/v1/keys/"+f.ids[index]).At("spent_this_month")
}

func TestChildSpendingCountsTowardEveryAncestor(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		budget := 4 * credits.Credit // a call reserves a little more than one
		f := newFamily(t, m, access.Key{MonthlyBudget: &budget}, 3)
		sibling := f.addChild(t, 0)
		f.chatAs(t, 2).Want(t, 200, "")
		f.chatAs(t, 2).Want(t, 200, "")
		f.chatAs(t, sibling).Want(t, 200, "")
		for index, want := range []float64{3, 2, 2, 1} {
			if got := f.spent(t, index); got != want {
				t.Errorf("key %d: got %v spent, want %v", index, got, want)
			}
		}
		// The sibling has most of its own budget left, and its parent too little.
		r := f.chatAs(t, sibling).Want(t, 402, "budget_exceeded")
		details, _ := r.At("error.details").(map[string]any)
		if r.Text("error.details.limit_source") != "ancestor_key" || len(details) != 2 || details["resets_at"] != nextMonth(m.Clock.Now()) {
			t.Errorf("got details %v, want limit_source and resets_at alone", details)
		}
		if f.as(t, 0, "POST", "/v1/chat/completions", hundred()).Want(t, 402, "budget_exceeded").Text("error.details.limit_source") != "key" {
			t.Error("the parent's own refusal doesn't name its key")
		}
		if calls := len(m.openai.Requests()); calls != 3 {
			t.Errorf("got %d upstream calls, want 3", calls)
		}
		// A revoked ancestor's budget keeps counting.
		m.ask(t, "DELETE", "/v1/keys/"+f.ids[0], nil).Want(t, 200, "")
		f.chatAs(t, sibling).Want(t, 402, "budget_exceeded")
		// So does one that a person raises afterwards: it can't be changed.
		m.ask(t, "PATCH", "/v1/keys/"+f.ids[0], map[string]any{"monthly_budget": 10}).Want(t, 409, "invalid_state")
	})
}

func TestJobOfChildKeyIsChargedToAncestors(t *testing.T) {
	t.Parallel()
	eachShop(t, nil, func(t *testing.T, s *shop) {
		budget := 10 * credit
		parent, parentID := s.keyed(t, access.Key{MonthlyBudget: &budget})
		created := parent.post(t, "/v1/keys", map[string]any{"name": "child", "scopes": []string{"*"}, "monthly_budget": 10})
		job := s.Do(t, harness.Request{Method: "POST", Path: batches, Key: created.Text("value"), Body: batch("p", "p")}).Want(t, 200, "")
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
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		limit := int64(4)
		f := newFamily(t, m, access.Key{RateLimit: &limit}, 2)
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

func TestChildRightsAreWithinThoseOfAncestorsNow(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 3)
		token := f.as(t, 2, "POST", "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}}).Want(t, 200, "").Text("value")
		patch := func(index int, body map[string]any) {
			t.Helper()
			m.ask(t, "PATCH", "/v1/keys/"+f.ids[index], body).Want(t, 200, "")
		}
		f.chatAs(t, 2).Want(t, 200, "")

		patch(0, map[string]any{"scopes": []string{"models:read", "keys:write"}})
		f.chatAs(t, 2).Want(t, 403, "insufficient_scope")
		f.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token, Body: hundred()}).Want(t, 403, "insufficient_scope")
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
		f.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token, Body: hundred()}).Want(t, 401, "authentication_error")
	})
}

func TestAtMostFourGenerationsOfKeys(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 4)
		r := f.as(t, 3, "POST", "/v1/keys", map[string]any{"name": "fifth", "scopes": []string{"*"}}).Want(t, 409, "limit_reached")
		if !strings.Contains(r.Text("error.message"), "4 generations") {
			t.Errorf("got message %q", r.Text("error.message"))
		}
		f.chatAs(t, 3).Want(t, 200, "")
	})
}

func TestRevokingDescendants(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 4)
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
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 3)
		bystander := newFamily(t, m, access.Key{}, 2)
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

// TestKeysCreatedDuringLeakRevocationAreRevoked creates keys while their parent
// is reported: none of them may outlive it.
func TestKeysCreatedDuringLeakRevocationAreRevoked(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 2)
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

// TestLogStoresChargedAccounts: settlement after a crash must not depend on what
// a key has become.
func TestLogStoresChargedAccounts(t *testing.T) {
	t.Parallel()
	eachMarket(t, nil, func(t *testing.T, m *market) {
		f := newFamily(t, m, access.Key{}, 2)
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
	t.Parallel()
	eachLimited(t, func(l *config.Limits) { l.ReadsPerMinute = 4 }, func(t *testing.T, s *harness.Server) {
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
