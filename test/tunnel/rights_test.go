package tunnel_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/tunnel"
	"turnpike/test/harness"
)

func invalidRequestsGetAPIErrors(t *testing.T, c *tenant) {
	local := newReceiver(t, respond(200))
	_, ready := c.listen(t, local.URL, nil)
	reader, _ := c.Key(t, c.workspace, accounts.Test, "webhooks:read")
	live, _ := c.Key(t, c.workspace, accounts.Live)
	stranger, _ := c.Key(t, c.Workspace(t, "strangers of "+t.Name()), accounts.Test)
	token := c.post(t, "/v1/scoped_tokens", map[string]any{"scopes": []string{"chat.completions:create"}, "expires_in": 60}).Text("value")
	for _, wrong := range []struct {
		key, query string
		status     int
		code, says string
	}{
		{"", "", 401, "authentication_error", ""},
		{"tp_test_nonsense", "", 401, "authentication_error", ""},
		{reader, "", 403, "insufficient_scope", "webhooks:write"},
		{token, "", 403, "scoped_token_not_allowed", ""},
		{c.key, "", 400, "invalid_parameter", "turnpike listen"}, // no upgrade
		{c.key, "events=agent.run.*,image.batch.exploded", 400, "invalid_parameter", `"image.batch.exploded"`},
		{c.key, "events=,", 400, "invalid_parameter", ""},
		{c.key, "event=agent.run.*", 400, "unknown_parameter", ""},
		{c.key, "events=*&resume=" + ready.Endpoint, 400, "invalid_parameter", "Use only one of events, endpoint and resume"},
		{c.key, "endpoint=wh_nonsense", 404, "not_found", ""},
		{c.key, "endpoint=wh_01m7ew1ndjemb9htnpcswfzf8f", 404, "not_found", ""},
		{c.key, "endpoint=" + ready.Endpoint, 400, "invalid_parameter", "is a tunnel and cannot be mirrored"},
		{stranger, "resume=" + ready.Endpoint, 404, "not_found", ""},
		{live, "resume=" + ready.Endpoint, 404, "not_found", ""},
	} {
		h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		if wrong.says == "turnpike listen" {
			h = nil
		}
		r := c.Do(t, harness.Request{Method: "GET", Path: "/v1/tunnel?" + wrong.query, Key: wrong.key, Header: h}).Want(t, wrong.status, wrong.code)
		if !strings.Contains(r.Text("error.message"), wrong.says) {
			t.Errorf("%s: %s", wrong.query, r.Body)
		}
	}
	// The client returns the server's message and stops.
	l := c.start(t, local.URL, func(o *tunnel.Options) { o.Key = reader })
	var refused *tunnel.Refusal
	if err := l.end(t); !errors.As(err, &refused) || refused.Status != 403 || !strings.Contains(refused.Message, "webhooks:write") {
		t.Errorf("the client ended with %v", err)
	}
	// Other connections are not affected.
	c.publish(t, events.AgentRunCompleted, 1)
	local.wait(t, 1)
}

// Within seconds, not at the next connection.
func revokedKeyIsDisconnected(t *testing.T, c *tenant) {
	local := newReceiver(t, respond(200))
	l, _ := c.listen(t, local.URL, nil)
	c.RevokeAsOperator(t, c.keyID)
	if err := l.end(t); err == nil || !strings.Contains(err.Error(), "the key is no longer allowed to listen") {
		t.Errorf("the client ended with %v", err)
	}
}

func tunnelIsLoggedBeforeItConnects(t *testing.T, c *tenant) {
	_, ready := c.listen(t, newReceiver(t, respond(200)).URL, nil)
	entry := c.get(t, "/v1/audit?limit=1")
	if entry.Text("data.0.path") != "/v1/tunnel" || entry.At("data.0.status") != float64(101) || entry.Text("data.0.key_id") != c.keyID {
		t.Errorf("got log entry %s", entry.Body)
	}
	var sealed string
	if err := c.DB.QueryRow(t.Context(), "SELECT secret FROM endpoints WHERE id = $1", ready.Endpoint).Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(sealed, strings.TrimPrefix(ready.Secret, "whsec_")) {
		t.Error("the database contains the plaintext secret")
	}
}

func tunnelIsHiddenFromListsByDefault(t *testing.T, c *tenant) {
	_, ready := c.listen(t, newReceiver(t, respond(200)).URL, nil)
	if list := c.get(t, "/v1/webhooks"); len(list.At("data").([]any)) != 0 {
		t.Errorf("got list %s", list.Body)
	}
	list := c.get(t, "/v1/webhooks?kind=all")
	if list.Text("data.0.id") != ready.Endpoint || list.Text("data.0.kind") != "tunnel" || list.At("data.0.url") != nil || list.Text("data.0.status") != "active" {
		t.Errorf("got list %s", list.Body)
	}
}

func newClientReplacesTheOldOne(t *testing.T, c *tenant) {
	first, second := newReceiver(t, respond(200)), newReceiver(t, respond(200))
	l, ready := c.listen(t, first.URL, nil)
	c.publish(t, events.AgentRunCompleted, 1)
	first.wait(t, 1)
	taker, _ := c.listen(t, second.URL, func(o *tunnel.Options) { o.Resume = ready.Endpoint })
	if err := l.end(t); err == nil || !strings.Contains(err.Error(), "another client has connected") {
		t.Errorf("the first client ended with %v", err)
	}
	c.publish(t, events.AgentRunCompleted, 1)
	second.wait(t, 1)
	c.await(t, ready.Endpoint, "succeeded", 2)
	if first.count() != 1 {
		t.Errorf("the first client forwarded %d deliveries", first.count())
	}
	if len(taker.lost) > 0 {
		t.Errorf("the end of the first client disconnected the second: %v", <-taker.lost)
	}
}

// Another key of the same tenant can't. A rotated key can.
func onlyTheOpeningKeyResumesATunnel(t *testing.T, c *tenant) {
	first, second := newReceiver(t, respond(200)), newReceiver(t, respond(200))
	l, ready := c.listen(t, first.URL, nil)
	other, _ := c.Key(t, c.workspace, accounts.Test)
	stranger := c.start(t, second.URL, func(o *tunnel.Options) { o.Key, o.Resume = other, ready.Endpoint })
	var refused *tunnel.Refusal
	if err := stranger.end(t); !errors.As(err, &refused) || refused.Status != 404 || !strings.Contains(refused.Message, "Only the key that opened a tunnel can resume it") {
		t.Errorf("the other key's client ended with %v", err)
	}
	c.publish(t, events.AgentRunCompleted, 1)
	first.wait(t, 1)
	l.stopAndWait(t)
	rotated := c.post(t, "/v1/keys/"+c.keyID+"/rotate", map[string]any{}).Text("value")
	c.listen(t, second.URL, func(o *tunnel.Options) { o.Key, o.Resume = rotated, ready.Endpoint })
	c.publish(t, events.AgentRunCompleted, 1)
	second.wait(t, 1)
}

// A mirror, too, sees only the endpoints of the project.
func tunnelOfPinnedKeyGetsOnlyItsProject(t *testing.T, c *tenant) {
	pinned := c.post(t, "/v1/keys", map[string]any{"name": "n", "scopes": []string{"*"}, "project": "alpha"}).Text("value")
	everything, own := newReceiver(t, respond(200)), newReceiver(t, respond(200))
	_, all := c.listen(t, everything.URL, nil)
	_, ready := c.listen(t, own.URL, func(o *tunnel.Options) { o.Key = pinned })
	endpoint := c.post(t, "/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"billing.credits.low"}}).Text("id")
	for _, query := range []string{"resume=" + all.Endpoint, "endpoint=" + endpoint} {
		h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-WebSocket-Version": {"13"}, "Sec-WebSocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		c.Do(t, harness.Request{Method: "GET", Path: "/v1/tunnel?" + query, Key: pinned, Header: h}).Want(t, 404, "not_found")
	}
	for _, project := range []string{"", "beta", "alpha"} {
		c.write(t, func(tx *db.Tx) error {
			from := events.Origin{Tenant: c.workspace.In(accounts.Test), Project: project}
			_, err := events.NewPublisher(c.Clock.Now).Publish(t.Context(), tx, from, events.Sample(events.AgentRunCompleted, c.Clock.Now()))
			tx.Signal("events", "")
			return err
		})
	}
	everything.wait(t, 3)
	c.await(t, ready.Endpoint, "succeeded", 1)
	if body := string(own.wait(t, 1)[0].body); !strings.Contains(body, `"project":"alpha"`) {
		t.Errorf("the tunnel of the pinned key got %s", body)
	}
}

// The tunnel gets the events of all projects.
func pinningTheKeyEndsTheTunnel(t *testing.T, c *tenant) {
	made := c.post(t, "/v1/keys", map[string]any{"name": "n", "scopes": []string{"*"}})
	l, _ := c.listen(t, newReceiver(t, respond(200)).URL, func(o *tunnel.Options) { o.Key = made.Text("value") })
	c.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + made.Text("id"), Key: c.key, Body: map[string]any{"project": "alpha"}}).Want(t, 200, "")
	if err := l.end(t); err == nil {
		t.Error("the client ended without an error")
	}
}
