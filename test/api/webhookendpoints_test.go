package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/test/harness"
)

func TestEndpointsInOpenAIsFormat(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		const path = "/v1/webhook_endpoints"
		in := newReceiver(t, c.Clock, respond(http.StatusOK))
		create := harness.Request{Method: "POST", Path: path, Key: c.key, Header: http.Header{"Idempotency-Key": {"once"}},
			Body: map[string]any{"url": in.URL, "name": "orders", "event_types": []string{"response.completed", "batch.failed"}}}
		made := c.Do(t, create).Want(t, 200, "")
		id, secret := made.Text("id"), made.Text("signing_secret")
		if made.Text("object") != "webhook_endpoint" || made.Text("name") != "orders" || made.Text("event_types.1") != "batch.failed" || made.Text("url") != in.URL ||
			!strings.HasPrefix(secret, "whsec_") || made.Text("signing_secret_hint") == "" {
			t.Errorf("got %s", made.Body)
		}
		if again := c.Do(t, create).Want(t, 200, ""); again.Text("id") != id || again.Text("signing_secret") != secret {
			t.Errorf("the same request again got %s", again.Body)
		}
		// It is the same endpoint in both formats.
		if own := c.get(t, "/v1/webhooks/"+id); own.Text("description") != "orders" || own.Text("events.0") != "response.completed" {
			t.Errorf("got %s", own.Body)
		}
		updated := c.ask(t, "POST", path+"/"+id, map[string]any{"name": "shop", "event_types": []string{"*"}}).Want(t, 200, "")
		if updated.Text("name") != "shop" || updated.Text("event_types.0") != "*" || updated.Text("url") != in.URL || updated.At("signing_secret") != nil {
			t.Errorf("got %s", updated.Body)
		}
		if got := c.get(t, path+"/"+id); string(got.Body) != string(updated.Body) {
			t.Errorf("got %s", got.Body)
		}
		if list := c.get(t, path+"?limit=1"); list.Text("data.0.id") != id || list.Text("last_id") != id || list.At("has_more") != false {
			t.Errorf("got %s", list.Body)
		}
		types := c.get(t, "/v1/webhook_event_types")
		if names := types.At("data").([]any); !slices.Contains(names, any("batch.expired")) || types.Text("object") != "list" {
			t.Errorf("got %s", types.Body)
		}

		tested := c.ask(t, "POST", path+"/"+id+"/test", map[string]any{"event_type": "response.failed"}).Want(t, 200, "")
		if tested.At("success") != true || tested.At("status_code") != 200.0 || tested.Text("object") != "webhook_endpoint.test" || tested.Text("webhook_endpoint_id") != id || tested.Text("event_type") != "response.failed" {
			t.Errorf("got %s", tested.Body)
		}
		if d := c.get(t, "/v1/deliveries/"+tested.Text("delivery_id")); d.Text("type") != "response.failed" || d.Text("status") != "succeeded" {
			t.Errorf("got %s", d.Body)
		}
		closed := newReceiver(t, c.Clock, respond(http.StatusOK))
		c.ask(t, "POST", path+"/"+id, map[string]any{"url": closed.URL}).Want(t, 200, "")
		closed.Close()
		if r := c.ask(t, "POST", path+"/"+id+"/test", map[string]any{"event_type": "response.failed"}).Want(t, 200, ""); r.At("success") != false || r.At("status_code") != nil {
			t.Errorf("got %s", r.Body)
		}
		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		c.ask(t, "POST", path+"/"+id+"/test", map[string]any{"event_type": "response.failed"}).Want(t, 409, "invalid_state")

		kept := c.ask(t, "POST", path+"/"+id+"/rotate_secret", map[string]any{"keep_old_secret_active_for_24_hours": true}).Want(t, 200, "")
		if own := c.get(t, "/v1/webhooks/"+id); kept.Text("signing_secret") == secret || own.At("old_secret_expires_at") != float64(c.Clock.Now().Unix()+86_400) {
			t.Errorf("got %s, then %s", kept.Body, own.Body)
		}
		c.post(t, "/v1/webhooks/"+id+"/end_grace", nil)
		c.ask(t, "POST", path+"/"+id+"/rotate_secret", nil).Want(t, 200, "")
		if own := c.get(t, "/v1/webhooks/"+id); own.At("old_secret_expires_at") != nil {
			t.Errorf("got %s", own.Body)
		}

		for param, body := range map[string]map[string]any{
			"event_types": {"url": in.URL, "name": "x", "event_types": []string{"video.completed"}},
			"url":         {"name": "x", "event_types": []string{"*"}},
			"name":        {"url": in.URL, "name": strings.Repeat("x", 501), "event_types": []string{"*"}},
			"events":      {"url": in.URL, "events": []string{"*"}, "event_types": []string{"*"}},
		} {
			if r := c.ask(t, "POST", path, body); r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("%s: got %d %s", param, r.Status, r.Body)
			}
		}
		if r := c.ask(t, "POST", path+"/"+id+"/test", map[string]any{}).Want(t, 400, "missing_parameter"); r.Text("error.param") != "event_type" {
			t.Errorf("got %s", r.Body)
		}
		reader, _ := c.newKey(t, access.Key{Scopes: []string{"webhooks:read"}})
		c.Do(t, harness.Request{Method: "POST", Path: path, Key: reader, Body: create.Body}).Want(t, 403, "insufficient_scope")
		if r := c.ask(t, "DELETE", path+"/"+id, nil).Want(t, 200, ""); r.Text("object") != "webhook_endpoint.deleted" || r.At("deleted") != true {
			t.Errorf("got %s", r.Body)
		}
		c.ask(t, "GET", path+"/"+id, nil).Want(t, 404, "not_found")
	})
}
