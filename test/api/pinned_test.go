package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/api"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// newPinned returns a project with one object of each type, all created by a
// key that is pinned to it.
func newPinned(t *testing.T, s *harness.Server, w *accounts.Workspace, project string) tenant {
	t.Helper()
	admin, _ := s.Key(t, w, accounts.Test, "*", "content:read")
	key := s.Do(t, newKey(admin, map[string]any{"name": project, "scopes": []string{"*", "content:read"}, "project": project})).Want(t, 200, "").Text("value")
	return populate(t, s, tenant{name: project, key: key}, project)
}

func TestPinnedKeyCannotReadOtherProjects(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		alpha, beta := newPinned(t, s, w, "alpha"), newPinned(t, s, w, "beta")
		none := newTenant(t, s, w, accounts.Test) // its key isn't pinned
		alpha.checkCannotSee(t, s, beta)
		alpha.checkCannotSee(t, s, none)
		beta.checkCannotSee(t, s, alpha)
		for _, n := range []tenant{alpha, beta, none} {
			n.checkSeesOwn(t, s)
		}
		// A key that isn't pinned acts on all of them.
		for _, owner := range []tenant{alpha, beta} {
			decide := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs/" + owner.ids["/v1/agents/runs/"] + "/approvals/" + owner.approval, Key: none.key,
				Body: map[string]any{"decision": "deny"}})
			decide.Want(t, 200, "")
		}
	})
}

func TestListsOfPinnedKeysShowOnlyTheirProject(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		alpha, beta := newPinned(t, s, w, "alpha"), newPinned(t, s, w, "beta")
		none := newTenant(t, s, w, accounts.Test)
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: beta.key, Body: chatBody("hi")}).Want(t, 200, "")
		// Routes that don't return a list of the project's objects.
		refused := map[string]string{"/v1/billing": "project_not_allowed", "/v1/notifications": "project_not_allowed", "/v1/projects": "project_not_allowed",
			"/v1/users": "project_not_allowed", "/v1/users/settings": "project_not_allowed", "/v1/tunnel": "invalid_parameter", "/v1/responses": "upgrade_required"}
		ownIDs := map[string]string{"/v1/audit/actions": "/v1/keys/", "/v1/audit?format=csv": "/v1/audit/", "/v1/agents/runs?status=awaiting_approval": "/v1/agents/runs/"}
		paths := []string{"/v1/audit?format=csv", "/v1/agents/runs?status=awaiting_approval", "/v1/usage?group_by=key,project", "/v1/deliveries?endpoint=" + alpha.ids["/v1/webhooks/"],
			"/v1/webhooks?kind=all"}
		for _, rt := range api.Routes() {
			switch {
			case rt.Method != "GET" || strings.Contains(rt.Path, "{") || rt.Path == "/v1/models" || rt.Path == "/v1/webhook_event_types":
			case rt.Path == "/v1/audit": // has more than one page by now
				paths = append(paths, rt.Path+"?limit=100")
			default:
				paths = append(paths, rt.Path)
			}
		}
		for _, path := range paths {
			r := s.Do(t, harness.Request{Method: "GET", Path: path, Key: alpha.key})
			if code, found := refused[path]; found {
				if r.Code() != code {
					t.Errorf("%s: got %d %s, want %s", path, r.Status, r.Body, code)
				}
				continue
			}
			r.Want(t, 200, "")
			bare, _, _ := strings.Cut(path, "?")
			own, found := ownIDs[path]
			if !found {
				own = bare + "/"
			}
			if id := alpha.ids[own]; bare != "/v1/usage" && (id == "" || !strings.Contains(string(r.Body), id)) {
				t.Errorf("%s lacks the project's own %q: %.2000s", path, id, r.Body)
			}
			for _, other := range []tenant{beta, none} {
				for kind, id := range other.ids {
					if strings.Contains(string(r.Body), id) {
						t.Errorf("%s shows %s of %s: %.2000s", path, kind, other.name, r.Body)
					}
				}
			}
		}
		for _, path := range []string{"/v1/audit?project=beta", "/v1/audit?key=" + beta.ids["/v1/keys/"], "/v1/deliveries?endpoint=" + beta.ids["/v1/webhooks/"]} {
			if got := idsOf(s.Do(t, harness.Request{Method: "GET", Path: path, Key: alpha.key}).Want(t, 200, "")); len(got) != 0 {
				t.Errorf("%s shows %v", path, got)
			}
		}
	})
}

func TestPinnedKeyPagesThroughItsProject(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		pinned := s.Do(t, newKey(admin, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "alpha"})).Want(t, 200, "").Text("value")
		var want []string
		for i := range 6 {
			project := []string{"alpha", "beta"}[i%2]
			made := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: admin, Header: http.Header{"Service-Project": {project}},
				Body: map[string]any{"model": "gpt-4o-mini", "input": "hi"}}).Want(t, 200, "").Text("id")
			if project == "alpha" {
				want = append(want, made)
			}
		}
		var got []string
		for after := ""; ; {
			page := s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs?order=asc&limit=2" + after, Key: pinned}).Want(t, 200, "")
			got = append(got, idsOf(page)...)
			if page.At("has_more") == false {
				break
			}
			after = "&after=" + page.Text("last_id")
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// publishIn publishes an event in a project, or in none.
func (c *client) publishIn(t *testing.T, project string) *events.Event {
	t.Helper()
	var e *events.Event
	c.write(t, func(tx *db.Tx) (err error) {
		e, err = events.NewPublisher(c.Clock.Now).Publish(t.Context(), tx, events.Origin{Tenant: c.workspace.In(c.env), Project: project}, creditsLow)
		tx.Signal("events", "")
		return err
	})
	return e
}

// pinned returns the client with a key that is pinned to a project.
func (c *client) pinned(t *testing.T, project string) *client {
	t.Helper()
	other := *c
	other.key, _ = c.KeyOf(t, &access.Key{Tenant: c.workspace.In(c.env), Name: project, Scopes: []string{"*"}, Project: project})
	return &other
}

func TestEndpointOfPinnedKeyGetsOnlyEventsOfItsProject(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		alpha := c.pinned(t, "alpha")
		before := c.publishIn(t, "alpha")
		hidden := c.publishIn(t, "beta")
		c.Eventually(t, func() bool { return c.rows(t, "new_events") == 0 })
		bound, all := newReceiver(t, c.Clock, respond(200)), newReceiver(t, c.Clock, respond(200))
		boundID, _ := alpha.endpoint(t, bound.URL)
		allID, _ := c.endpoint(t, all.URL)
		if got := c.get(t, "/v1/webhooks/"+boundID).Text("project"); got != "alpha" {
			t.Errorf("the endpoint's project is %q, want alpha", got)
		}
		if got := c.get(t, "/v1/webhooks/"+allID).At("project"); got != nil {
			t.Errorf("the project of an endpoint of a key that is not pinned is %v, want null", got)
		}
		c.publishIn(t, "beta")
		c.publishIn(t, "")
		own := c.publishIn(t, "alpha")
		all.wait(t, c, 3)
		if got := eventIDs(t, bound.wait(t, c, 1)); !slices.Equal(got, []string{own.ID}) {
			t.Errorf("the endpoint got %v, want %s alone", got, own.ID)
		}
		// A replay of missed events is limited to its project for every key.
		replay := c.post(t, "/v1/webhooks/"+boundID+"/replay", map[string]any{"since": c.Clock.Now().Unix() - 60, "status": "missed"})
		got := eventIDs(t, bound.wait(t, c, 2))
		if !slices.Contains(got, before.ID) || slices.Contains(got, hidden.ID) {
			t.Errorf("after the replay of missed events the endpoint has %v, want %s and %s", got, own.ID, before.ID)
		}
		if replay.At("total") != float64(2) { // one of which was delivered before
			t.Errorf("the replay is %s", replay.Body)
		}
		// So is a sample.
		d := c.ask(t, "POST", "/v1/webhooks/"+boundID+"/test", nil).Want(t, 200, "")
		if got := alpha.get(t, "/v1/events/"+d.Text("event_id")).Text("project"); got != "alpha" {
			t.Errorf("the sample's project is %q, want alpha", got)
		}
	})
}

// eventIDs returns the IDs of the events in order of arrival.
func eventIDs(t *testing.T, list []received) (out []string) {
	t.Helper()
	for _, r := range list {
		var body struct{ ID string }
		decode(t, r.body, &body)
		out = append(out, body.ID)
	}
	return out
}

func TestTokenWithAProjectSeesOnlyThatProject(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		s.Do(t, inProject(key, "alpha")).Want(t, 200, "")
		s.Do(t, inProject(key, "beta")).Want(t, 200, "")
		token := func(project string) string {
			r := mint(key, map[string]any{"scopes": []string{"agents.runs:create"}, "metadata": map[string]any{"user": "u"}})
			r.Header = http.Header{"Service-Project": {project}}
			return s.Do(t, r).Want(t, 200, "").Text("value")
		}
		alpha, again, beta := token("alpha"), token("alpha"), token("beta")
		run := s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs", Key: alpha, Body: map[string]any{"model": "gpt-4o-mini", "input": "hi"}}).Want(t, 200, "").Text("id")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + run, Key: again}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs/" + run, Key: beta}).Want(t, 404, "not_found")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/agents/runs/" + run + "/cancel", Key: beta}).Want(t, 404, "not_found")
		if got := idsOf(s.Do(t, harness.Request{Method: "GET", Path: "/v1/agents/runs", Key: beta}).Want(t, 200, "")); len(got) != 0 {
			t.Errorf("the list shows %v", got)
		}
	})
}

func TestUsageOfPinnedKeyIsLimitedToItsProject(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, _ := s.Key(t, w, accounts.Test)
		pinned := s.Do(t, newKey(key, map[string]any{"name": "n", "scopes": []string{"*"}, "project": "alpha"})).Want(t, 200, "").Text("value")
		for _, k := range []string{pinned, key, key} {
			s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: k, Body: chatBody("hi")}).Want(t, 200, "")
		}
		usage := func(key string) any {
			return s.Do(t, harness.Request{Method: "GET", Path: "/v1/usage?bucket=month", Key: key}).Want(t, 200, "").At("data.0.requests")
		}
		s.Eventually(t, func() bool { return usage(key) == float64(3) })
		if got := usage(pinned); got != float64(1) {
			t.Errorf("got %v requests, want 1", got)
		}
	})
}

func TestPinnedKeysCannotReadBilling(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		pinned, _ := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "n", Scopes: []string{"*"}, Project: "alpha"})
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/billing", Key: pinned}).Want(t, 403, "project_not_allowed")
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/billing", Key: pinned, Body: map[string]any{"monthly_credits": 1_000_000}}).Want(t, 403, "project_not_allowed")
	})
}

func TestActionsWithoutAnEnvironmentNeedALiveKey(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, live *client) {
		test := live.withTestKey(t)
		test.endpoint(t, "https://example.com/")
		live.exec(t, `INSERT INTO admin_actions (id, workspace_id, environment, actor, action, target, detail, ip, created_at)
			VALUES ($1, $2, NULL, 'usr_1', 'person.signed_in', 'usr_1', '{}', '203.0.113.7', $3)`, ids.New(ids.AdminAction), live.workspace.ID, live.Clock.Now().UnixMicro())
		for _, c := range []struct {
			by   *client
			want bool
		}{{live, true}, {test, false}, {live.pinned(t, "alpha"), false}, {test.pinned(t, "alpha"), false}} {
			body := string(c.by.get(t, "/v1/audit/actions").Body)
			if got := strings.Contains(body, "person.signed_in") || strings.Contains(body, "203.0.113.7"); got != c.want {
				t.Errorf("a %s key sees the sign-in: %t, want %t: %s", c.by.env, got, c.want, body)
			}
		}
		if body := string(test.get(t, "/v1/audit/actions").Body); !strings.Contains(body, "webhook.created") {
			t.Errorf("a test key does not see what happened in its environment: %s", body)
		}
	})
}
