package api_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/events"
	"turnpike/test/harness"
)

func TestEndpointHeadersAreSentAndNeverShown(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		const secret, second = "Bearer receiver-secret-1", "receiver-secret-2"
		// This receiver returns what it got, which must not be stored either.
		r := newReceiver(t, c.Clock, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("X-Echo", req.Header.Get("Authorization"))
			fmt.Fprint(w, "got ", req.Header.Get("Authorization"), req.Header.Get("X-Tenant"))
		})
		made := c.post(t, "/v1/webhooks", map[string]any{"url": r.URL, "events": []string{"*"},
			"headers": map[string]string{"authorization": secret, "X-Tenant": second, "x-old": "1"}})
		id := made.Text("id")
		if got := fmt.Sprint(made.At("header_names")); got != "[Authorization X-Old X-Tenant]" {
			t.Errorf("got header names %s", got)
		}
		changed := c.ask(t, "PATCH", "/v1/webhooks/"+id, map[string]any{"headers": map[string]any{"X-OLD": nil}}).Want(t, 200, "")
		if got := fmt.Sprint(changed.At("header_names")); got != "[Authorization X-Tenant]" {
			t.Errorf("after the change, got header names %s", got)
		}
		c.publish(t, creditsLow)
		c.waitForDelivery(t, c.deliveries(t, id, 1)[0], "succeeded", 1)
		got := r.all()[0]
		if got.header.Get("Authorization") != secret || got.header.Get("X-Tenant") != second || got.header.Get("X-Old") != "" || !got.signedBy(made.Text("secret")) {
			t.Errorf("the receiver got %v", got.header)
		}
		delivery := c.get(t, "/v1/deliveries/"+c.deliveries(t, id, 1)[0])
		if headers := fmt.Sprint(delivery.At("attempts.0.request_headers")); !strings.Contains(headers, "Authorization:[hidden]") {
			t.Errorf("the attempt shows %s", headers)
		}
		dump := c.DumpDatabase(t)
		for _, body := range [][]byte{dump, delivery.Body, c.get(t, "/v1/webhooks/"+id).Body, c.get(t, "/v1/audit/actions").Body, made.Body} {
			if bytes.Contains(body, []byte("receiver-secret")) {
				t.Errorf("a value can be read: %.300s", body)
			}
		}
		removed := c.ask(t, "PATCH", "/v1/webhooks/"+id, `{"headers":null}`).Want(t, 200, "")
		if names := removed.At("header_names").([]any); len(names) != 0 {
			t.Errorf("after removing all, got header names %v", names)
		}
	})
}

// Someone who may change an endpoint must not read its headers by moving it to a server of theirs.
func TestEndpointHeadersAreNotSentToAnotherHost(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		home, other := newReceiver(t, c.Clock, respond(200)), newReceiver(t, c.Clock, respond(200))
		made := c.post(t, "/v1/webhooks", map[string]any{"url": home.URL, "events": []string{"*"}, "headers": map[string]string{"Authorization": "Bearer 1", "X-Tenant": "acme"}})
		path, openAI := "/v1/webhooks/"+made.Text("id"), "/v1/webhook_endpoints/"+made.Text("id")
		for _, body := range []map[string]any{{"url": other.URL}, {"url": other.URL, "headers": map[string]any{"x-tenant": "a"}}, {"url": other.URL, "headers": map[string]any{"X-New": "a"}}} {
			if r := c.ask(t, "PATCH", path, body).Want(t, 400, "missing_parameter"); r.Text("error.param") != "headers" || !strings.Contains(r.Text("error.message"), "Authorization") {
				t.Errorf("%v: got %s", body, r.Body)
			}
		}
		c.ask(t, "POST", openAI, map[string]any{"url": other.URL}).Want(t, 400, "missing_parameter")
		c.ask(t, "PATCH", path, map[string]any{"url": home.URL + "/v2"}).Want(t, 200, "")
		c.publish(t, creditsLow)
		if got := home.wait(t, c, 1)[0].header; got.Get("Authorization") != "Bearer 1" || len(other.all()) != 0 {
			t.Errorf("got headers %v at home and %d deliveries at the other host", got, len(other.all()))
		}
		c.ask(t, "PATCH", path, map[string]any{"url": other.URL, "headers": map[string]any{"authorization": "Bearer 2", "x-tenant": nil}}).Want(t, 200, "")
		c.publish(t, creditsLow)
		if got := other.wait(t, c, 1)[0].header; got.Get("Authorization") != "Bearer 2" || got.Get("X-Tenant") != "" {
			t.Errorf("the other host got headers %v", got)
		}
		c.ask(t, "PATCH", path, map[string]any{"url": home.URL, "headers": nil}).Want(t, 200, "")
	})
}

func TestInvalidEndpointOptionsAreRejectedAsAWhole(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		c.post(t, "/v1/projects", map[string]any{"id": "shop"})
		id := c.post(t, "/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"*"},
			"headers": map[string]string{"X-Kept": "1"}, "projects": []string{"shop"}, "requests_per_second": 5}).Text("id")
		before := c.get(t, "/v1/webhooks/"+id)
		many := make([]string, 21)
		for i := range many {
			many[i] = fmt.Sprintf(`"X-%d":"v"`, i)
		}
		mistakes := map[string]string{
			`{"headers":{` + strings.Join(many, ",") + `}}`:           "headers",
			`{"headers":{"X-A":"1","x-a":"2"}}`:                       "headers",
			`{"headers":{"":"1"}}`:                                    "headers",
			`{"headers":{"X A":"1"}}`:                                 "headers",
			`{"headers":{"X-A":"a\nb"}}`:                              "headers",
			`{"headers":{"X-A":" a"}}`:                                "headers",
			`{"headers":{"X-A":"` + strings.Repeat("x", 4097) + `"}}`: "headers",
			`{"headers":["X-A"]}`:                                     "headers",
			`{"headers":{"X-A":7}}`:                                   "headers.X-A",
			`{"projects":["shop","shop"]}`:                            "projects",
			`{"projects":["nowhere"]}`:                                "projects",
			`{"projects":["no such name"]}`:                           "projects",
			`{"requests_per_second":0}`:                               "requests_per_second",
			`{"requests_per_second":1001}`:                            "requests_per_second",
			`{"requests_per_second":1.5}`:                             "requests_per_second",
			`{"description":"new","requests_per_second":-1}`:          "requests_per_second",
			`{"description":"new","headers":{"Host":"evil"}}`:         "headers",
		}
		for _, name := range []string{"service-signature", "Service-Event-Id", "webhook-id", "Webhook-Signature", "content-type", "User-Agent", "Content-Length", "Transfer-Encoding", "Proxy-Authorization"} {
			mistakes[fmt.Sprintf(`{"headers":{%q:"mine"}}`, name)] = "headers"
		}
		for body, param := range mistakes {
			if r := c.ask(t, "PATCH", "/v1/webhooks/"+id, body); r.Status != 400 || r.Text("error.param") != param || r.Text("error.message") == "" {
				t.Errorf("%.100s: got %d %s", body, r.Status, r.Body)
			}
			create := `{"url":"https://example.com/","events":["*"],` + strings.TrimPrefix(body, "{")
			if r := c.ask(t, "POST", "/v1/webhooks", create); r.Status != 400 {
				t.Errorf("%.100s: got %d %s", create, r.Status, r.Body)
			}
		}
		if after := c.get(t, "/v1/webhooks/"+id); !bytes.Equal(after.Body, before.Body) || c.rows(t, "endpoints") != 1 {
			t.Errorf("rejected changes left %s, want %s", after.Body, before.Body)
		}
	})
}

func TestEndpointGetsEventsOfItsProjectsOnly(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		for _, project := range []string{"shop", "blog"} {
			c.post(t, "/v1/projects", map[string]any{"id": project})
		}
		create := func(projects ...string) string {
			return c.post(t, "/v1/webhooks", map[string]any{"url": r.URL, "events": []string{"*"}, "projects": projects}).Text("id")
		}
		shop, blog, both, all := create("shop"), create("blog"), create("blog", "shop"), create()
		since := c.Clock.Now().Unix()
		c.publish(t, creditsLow) // of the project shop
		for _, id := range []string{shop, both, all} {
			c.deliveries(t, id, 1)
		}
		c.deliveries(t, blog, 0)

		// A replay of missed events follows the filter too.
		c.ask(t, "PATCH", "/v1/webhooks/"+blog, map[string]any{"projects": []string{"blog"}}).Want(t, 200, "")
		if n := number(t, c.replay(t, blog, map[string]any{"since": since, "status": "missed"}), "total"); n != 0 {
			t.Errorf("the replay found %d events of other projects", n)
		}
		c.ask(t, "PATCH", "/v1/webhooks/"+blog, `{"projects":null}`).Want(t, 200, "")
		if n := number(t, c.replay(t, blog, map[string]any{"since": since, "status": "missed"}), "total"); n != 1 {
			t.Errorf("without the filter the replay found %d events, want 1", n)
		}
		c.deliveries(t, blog, 1)
	})
}

// TestFailuresAreReportedToOtherEndpoints also checks that no event about an endpoint or a
// delivery causes another one: both endpoints fail.
func TestFailuresAreReportedToOtherEndpoints(t *testing.T) {
	schedule := func(_ *testing.T, cfg *config.Config) {
		cfg.Webhooks.RetrySchedule = []time.Duration{time.Minute, time.Minute, time.Minute}
	}
	eachWebhooks(t, both, schedule, func(t *testing.T, c *client) {
		failing, watching := newReceiver(t, c.Clock, respond(503)), newReceiver(t, c.Clock, respond(200))
		broken, _ := c.endpoint(t, failing.URL)
		watcher, _ := c.endpoint(t, watching.URL, "endpoint.*", "delivery.*")
		c.publish(t, creditsLow)
		delivery := c.deliveries(t, broken, 1)[0]
		for attempts := 1; attempts <= 4; attempts++ {
			c.waitForDelivery(t, delivery, map[bool]string{true: "failed", false: "retrying"}[attempts == 4], attempts)
			c.advanceEndpoint(t, 2*time.Minute, broken)
		}
		types := func(r *receiver) (list []string) {
			for _, one := range r.all() {
				var e struct {
					Type string
					Data map[string]any
				}
				decode(t, one.body, &e)
				if e.Data["endpoint_id"] != broken {
					t.Errorf("it is about %v: %s", e.Data["endpoint_id"], one.body)
				}
				list = append(list, e.Type)
			}
			slices.Sort(list)
			return list
		}
		watching.wait(t, c, 3)
		if got := types(watching); !slices.Equal(got, []string{"delivery.failed", "endpoint.failing", "endpoint.paused"}) {
			t.Errorf("the other endpoint got %v", got)
		}
		// The endpoint itself subscribes to everything, and got nothing about itself.
		c.deliveries(t, broken, 1)

		// Now the other endpoint fails too, on an event about the first one.
		watching.respondWith(respond(500))
		c.post(t, "/v1/webhooks/"+broken+"/resume", nil)
		failing.respondWith(respond(200))
		c.post(t, "/v1/webhooks/"+broken+"/pause", nil) // by hand, which is an event
		last := c.deliveries(t, watcher, 4)[3]
		c.post(t, "/v1/webhooks/"+broken+"/resume", nil)
		for attempts := 1; attempts <= 4; attempts++ {
			c.waitForDelivery(t, last, map[bool]string{true: "failed", false: "retrying"}[attempts == 4], attempts)
			c.advanceEndpoint(t, 2*time.Minute, watcher)
		}
		if e := c.get(t, "/v1/webhooks/"+watcher); e.Text("status") != "paused" {
			t.Errorf("the other endpoint is %s", e.Body)
		}
		if n := c.rows(t, "events WHERE type LIKE 'endpoint.%' OR type LIKE 'delivery.%'"); n != 4 {
			t.Errorf("there are %d events about endpoints and deliveries, want 4", n)
		}
		c.deliveries(t, broken, 1)
	})
}

func TestFailedReplayLeavesSucceededDelivery(t *testing.T) {
	oneRetry := func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.RetrySchedule = []time.Duration{time.Minute} }
	eachWebhooks(t, both, oneRetry, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		watcher, _ := c.endpoint(t, r.URL, "delivery.failed")
		c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		list := c.deliveries(t, id, 2)
		done := c.waitForDelivery(t, list[0], "succeeded", 1).At("finished_at")
		c.waitForDelivery(t, list[1], "succeeded", 1)
		same := func(d *harness.Response) {
			t.Helper()
			if d.Text("status") != "succeeded" || d.At("finished_at") != done {
				t.Errorf("the delivery is %s", d.Body)
			}
		}
		r.respondWith(respond(500))
		c.Clock.Turn(time.Hour)
		same(c.post(t, "/v1/deliveries/"+list[0]+"/replay", nil))
		same(c.waitForDelivery(t, list[0], "succeeded", 2)) // and will be retried

		// Pausing ends the replay, and holds nothing that was delivered.
		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		if d := c.get(t, "/v1/deliveries/"+list[0]); d.At("next_attempt_at") != nil {
			t.Errorf("after the pause the delivery is %s", d.Body)
		} else {
			same(d)
		}
		c.post(t, "/v1/webhooks/"+id+"/resume", nil)

		// The last retry of a replay pauses the endpoint like any other.
		since := c.Clock.Now().Add(-2 * time.Hour).Unix()
		c.replay(t, id, map[string]any{"since": since, "status": "all"})
		for _, one := range list {
			c.waitForDelivery(t, one, "succeeded", map[bool]int{true: 3, false: 2}[one == list[0]])
		}
		c.advanceEndpoint(t, 2*time.Minute, id)
		c.Eventually(t, func() bool { return c.get(t, "/v1/webhooks/"+id).Text("paused_reason") == "delivery_failed" })
		same(c.get(t, "/v1/deliveries/"+list[0]))
		for _, one := range list {
			if d := c.get(t, "/v1/deliveries/"+one); d.Text("status") != "succeeded" || d.At("next_attempt_at") != nil {
				t.Errorf("in the end the delivery is %s", d.Body)
			}
		}
		if stats := c.get(t, "/v1/webhooks/"+id); number(t, stats, "stats.failed") != 0 {
			t.Errorf("the endpoint counts failed deliveries: %s", stats.Body)
		}
		c.deliveries(t, watcher, 0)
	})
}
