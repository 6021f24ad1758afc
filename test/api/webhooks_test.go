package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

func TestEndpointSecretIsShownOnceAndStoredSealed(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		create := harness.Request{Method: "POST", Path: "/v1/webhooks", Key: c.key, Header: http.Header{"Idempotency-Key": {"once"}},
			Body: map[string]any{"url": "https://example.com/hooks", "events": []string{"agent.run.*", "key.auto_revoked"}, "description": "orders"}}
		made := s.Do(t, create).Want(t, 200, "")
		id, secret := made.Text("id"), made.Text("secret")
		if made.Text("object") != "webhook_endpoint" || made.Text("kind") != "http" || made.Text("url") != "https://example.com/hooks" || made.Text("description") != "orders" ||
			made.Text("status") != "active" || made.At("paused_reason") != nil || made.At("paused_at") != nil || made.Text("environment") != "live" ||
			made.At("created_at") != float64(s.Clock.Now().Unix()) || made.Text("events.0") != "agent.run.*" || made.Text("events.1") != "key.auto_revoked" {
			t.Errorf("got endpoint %s", made.Body)
		}
		if hint := made.Text("secret_hint"); hint != "whsec_…"+secret[len(secret)-5:len(secret)-1] {
			t.Errorf("the hint of %s is %s", secret, hint)
		}
		if again := s.Do(t, create).Want(t, 200, ""); !bytes.Equal(again.Body, made.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("the same request again answers %s", again.Body)
		}
		other := c.post(t, "/v1/webhooks", map[string]any{"url": "https://example.com/hooks", "events": []string{"*"}}).Text("secret")
		if other == secret {
			t.Error("two endpoints have one secret")
		}
		rotated := c.post(t, "/v1/webhooks/"+id+"/rotate_secret", nil).Text("secret")
		for _, path := range []string{"/v1/webhooks/" + id, "/v1/webhooks", "/v1/audit/actions"} {
			body := string(c.get(t, path).Body)
			for _, one := range []string{secret, other, rotated, `"secret":`} {
				if strings.Contains(body, one) {
					t.Errorf("%s shows %s", path, one)
				}
			}
		}
		dump := s.DumpDatabase(t)
		if s.DB.Engine() == "sqlite" {
			files, err := filepath.Glob(filepath.Join(s.Data, "*.db*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("there are %d files (%v)", len(files), err)
			}
			for _, name := range files {
				content, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				dump = append(dump, content...)
			}
		}
		if !bytes.Contains(dump, []byte(id)) {
			t.Fatal("the dump lacks the endpoint")
		}
		for _, one := range []string{secret, other, rotated} {
			bare := strings.TrimPrefix(one, "whsec_")
			raw, err := base64.StdEncoding.DecodeString(bare)
			if err != nil || len(raw) != 32 || len(bare) == len(one) {
				t.Fatalf("%s is not whsec_ and 32 bytes", one)
			}
			if bytes.Contains(dump, []byte(bare)) || bytes.Contains(dump, raw) || bytes.Contains(dump, []byte(hex.EncodeToString(raw))) {
				t.Error("a secret can be read in the database")
			}
		}
	})
}

func TestInvalidEndpointIsRejectedAndNotStored(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Test)
		type mistake struct{ body, code, param string }
		mistakes := []mistake{
			{`{}`, "missing_parameter", "url"},
			{`{"url":"","events":["*"]}`, "missing_parameter", "url"},
			{`{"url":7,"events":["*"]}`, "invalid_parameter", "url"},
			{`{"url":"https://example.com/"}`, "missing_parameter", "events"},
			{`{"url":"https://example.com/","events":[]}`, "missing_parameter", "events"},
			{`{"url":"https://example.com/","events":null}`, "missing_parameter", "events"},
			{`{"url":"https://example.com/","events":"*"}`, "invalid_parameter", "events"},
			{`{"url":"https://example.com/","events":[7]}`, "invalid_parameter", "events[0]"},
			{`{"url":"https://example.com/","events":["*"],"secret":"whsec_mine"}`, "unknown_parameter", "secret"},
			{`{"url":"https://example.com/","events":["*"],"kind":"tunnel"}`, "unknown_parameter", "kind"},
			{`{"url":"https://example.com/","events":["*"],"description":"a\u0000b"}`, "invalid_parameter", "description"},
			{fmt.Sprintf(`{"url":"https://example.com/","events":["*"],"description":%q}`, strings.Repeat("x", 501)), "invalid_parameter", "description"},
			{fmt.Sprintf(`{"url":"https://example.com/","events":["*"],"description":"got %s"}`, c.key), "invalid_parameter", "description"},
			{fmt.Sprintf(`{"url":"https://example.com/?key=%s","events":["*"]}`, c.key), "invalid_parameter", "url"},
			{`{"url":"https://example.com/","events":["*"` + strings.Repeat(`,"*"`, 50) + `]}`, "invalid_parameter", "events"},
			{`{"url":"https://example.com/","events":["*"]} x`, "invalid_json", ""},
		}
		for _, url := range []string{"http://example.com/", "ftp://example.com/", "example.com/hooks", "/hooks", "https://", "https://user:pass@example.com/", "https://user@example.com/",
			"https://example.com/#a", "https://example.com/" + strings.Repeat("x", 2029), "https://example.com:0/", "https://exa mple.com/", "https://localhost/",
			"https://127.0.0.1/", "https://10.1.2.3/", "https://192.168.0.1:8443/", "https://169.254.169.254/latest/meta-data", "https://168.63.129.16/", "https://100.64.0.1/",
			"https://0.0.0.0/", "https://[::1]/", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::a00:1]/", "https://[fd00::1]/", "https://2130706433/", "https://0x7f.1/"} {
			mistakes = append(mistakes, mistake{fmt.Sprintf(`{"url":%q,"events":["*"]}`, url), "invalid_parameter", "url"})
		}
		for _, name := range []string{"agent.run", "agent.*", "image.batch.failed", "", "**", "Key.*"} {
			mistakes = append(mistakes, mistake{fmt.Sprintf(`{"url":"https://example.com/","events":["*",%q]}`, name), "invalid_parameter", "events"})
		}
		for _, m := range mistakes {
			r := c.ask(t, "POST", "/v1/webhooks", m.body)
			if r.Status != 400 || r.Code() != m.code || r.Text("error.param") != m.param || r.Text("error.message") == "" {
				t.Errorf("%.200s: got %d %s", m.body, r.Status, r.Body)
			}
		}
		if said := c.ask(t, "POST", "/v1/webhooks", `{"url":"https://example.com/","events":["x"]}`).Text("error.message"); !strings.Contains(said, "agent.run.awaiting_approval") || !strings.Contains(said, "billing.credits.*") {
			t.Errorf("an unknown event is refused with %q, which does not say what exists", said)
		}
		if n := c.rows(t, "endpoints"); n != 0 {
			t.Fatalf("%d refused endpoints were stored", n)
		}
		// These are within the limits.
		long := "https://example.com/" + strings.Repeat("x", 2028)
		id, _ := c.endpoint(t, long, slices.Repeat([]string{"key.*"}, 50)...)
		c.endpoint(t, "https://93.184.216.34:8443/hooks?a=b")
		c.post(t, "/v1/webhooks", map[string]any{"url": "https://example.com/", "events": []string{"*"}, "description": strings.Repeat("x", 500)})

		// Changes follow the same rules, and a rejected one changes nothing.
		before := c.get(t, "/v1/webhooks/"+id)
		for body, param := range map[string]string{`{"url":"http://example.com/"}`: "url", `{"url":"https://example.com/` + c.key + `"}`: "url", `{"url":null}`: "url", `{"events":["x"]}`: "events", `{"events":null}`: "events",
			`{"description":"` + strings.Repeat("x", 501) + `"}`: "description", `{"url":"https://example.com/new","status":"paused"}`: "status"} {
			if r := c.ask(t, "PATCH", "/v1/webhooks/"+id, body); r.Status != 400 || r.Text("error.param") != param {
				t.Errorf("PATCH %.100s: %d %s", body, r.Status, r.Body)
			}
		}
		for path, body := range map[string]string{"/resume": `{"held":"drop"}`, "/rotate_secret": `{"grace_period_seconds":604801}`, "/test": `{"type":"agent.run.*"}`,
			"/replay": `{"since":1e30}`, "/pause": `{"for":1}`, "/end_grace": `{"x":1}`} {
			if r := c.ask(t, "POST", "/v1/webhooks/"+id+path, body); r.Status != 400 {
				t.Errorf("%s %s: %d %s", path, body, r.Status, r.Body)
			}
		}
		if r := c.ask(t, "POST", "/v1/webhooks/"+id+"/rotate_secret", `{"grace_period_seconds":-1}`); r.Status != 400 || r.Text("error.param") != "grace_period_seconds" {
			t.Errorf("a grace of less than nothing: %d %s", r.Status, r.Body)
		}
		if after := c.get(t, "/v1/webhooks/"+id); !bytes.Equal(before.Body, after.Body) {
			t.Errorf("a refused change made\n%s of\n%s", after.Body, before.Body)
		}
	})
}

func TestEndpointsAreLimitedPerWorkspaceAndEnvironment(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		bulk := db.NewBulk("endpoints", "", "id text", "workspace_id text", "environment text", "kind text", "url text", "events text", "description text", "status text",
			"secret text", "secret_hint text", "created_at bigint")
		rows := make([][]any, 999)
		for i := range rows {
			rows[i] = []any{ids.New(ids.Endpoint), c.workspace.ID, "live", "http", "https://example.com/", `["*"]`, "", "active", "sealed", "whsec_…", s.Clock.Now().UnixMicro()}
		}
		c.write(t, func(tx *db.Tx) error {
			_, err := bulk.Write(t.Context(), tx, rows)
			return err
		})
		last, _ := c.endpoint(t, "https://example.com/")
		body := map[string]any{"url": "https://example.com/", "events": []string{"*"}}
		c.ask(t, "POST", "/v1/webhooks", body).Want(t, 409, "limit_reached")
		newClient(t, s, accounts.Live).endpoint(t, "https://example.com/") // another workspace
		c.withTestKey(t).endpoint(t, "https://example.com/")
		c.ask(t, "DELETE", "/v1/webhooks/"+last, nil).Want(t, 200, "")
		c.endpoint(t, "https://example.com/")
	})
}

func TestEndpointsAreListedByPage(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Test)
		var want []string
		for range 5 {
			id, _ := c.endpoint(t, "https://example.com/")
			want = append(want, id)
		}
		if got := paged(t, c, "/v1/webhooks?limit=2&order=asc"); !slices.Equal(got, want) {
			t.Errorf("oldest first they are %v, want %v", got, want)
		}
		slices.Reverse(want)
		if got := paged(t, c, "/v1/webhooks?limit=2"); !slices.Equal(got, want) {
			t.Errorf("newest first they are %v, want %v", got, want)
		}
		for _, q := range []string{"kind=tunnel", "limit=0", "after=dlv_01h455vb4pex5vsknk084sn02q", "status=active"} {
			if r := c.ask(t, "GET", "/v1/webhooks?"+q, nil); r.Status != 400 {
				t.Errorf("%s: %d %s", q, r.Status, r.Body)
			}
		}
	})
}

// paged reads a list to its end.
func paged(t *testing.T, c *client, path string) (found []string) {
	t.Helper()
	after := ""
	for {
		r := c.get(t, path+after)
		found = append(found, idsOf(r)...)
		if r.At("has_more") != true {
			return found
		}
		after = "&after=" + r.Text("last_id")
	}
}

func TestEventIsDeliveredOnceToSubscribers(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		live, test := newReceiver(t, c.Clock, respond(200)), newReceiver(t, c.Clock, respond(200))
		_, secret := c.endpoint(t, live.URL+"/all", "*", "billing.credits.*", "billing.credits.low", "*")
		c.endpoint(t, live.URL+"/other", "key.*", "agent.run.*")
		inTest := c.withTestKey(t)
		inTest.endpoint(t, test.URL, "*")

		e := c.publish(t, creditsLow)[0]
		got := live.wait(t, c, 1)[0]
		sandbox := inTest.publish(t, creditsLow)[0]
		test.wait(t, c, 1)
		var body struct {
			ID, Object, Type, Environment, Workspace, Project string
			CreatedAt                                         int64 `json:"created_at"`
		}
		decode(t, got.body, &body)
		if body.ID != e.ID || body.Object != "event" || body.Type != "billing.credits.low" || body.Environment != "live" || body.Workspace != c.workspace.ID ||
			body.Project != "shop" || body.CreatedAt != e.CreatedAt.Unix() {
			t.Errorf("the body is %s", got.body)
		}
		if shown := c.get(t, "/v1/events/"+e.ID); !bytes.Equal(shown.Body, got.body) || !bytes.Equal(e.Body, got.body) {
			t.Errorf("delivered was\n%s, shown is\n%s", got.body, shown.Body)
		}
		if !got.signedBy(secret) || got.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(got.header.Get("User-Agent"), "Turnpike/") {
			t.Errorf("the headers are %v", got.header)
		}
		if id := got.header.Get("Service-Event-Id"); !ids.Valid(ids.Delivery, id) || got.header.Get("webhook-id") != id {
			t.Errorf("the delivery's id is %q", id)
		}

		// Neither environment sees the other's events, in its receiver or in
		// its lists.
		decode(t, test.all()[0].body, &body)
		if body.ID != sandbox.ID || body.Environment != "test" || live.count() != 1 {
			t.Errorf("the test endpoint got %s, and the live one %d", test.all()[0].body, live.count())
		}
		for _, own := range []*client{c, inTest} {
			for _, path := range []string{"/v1/events", "/v1/deliveries"} {
				if list := own.get(t, path); len(idsOf(list)) != 1 || list.Text("data.0.environment") != string(own.env) {
					t.Errorf("%s has %s", path, list.Body)
				}
			}
		}
	})
}

func TestChangedEndpointIsUsedByTheNextAttempt(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		old, fresh := newReceiver(t, c.Clock, respond(500)), newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, old.URL, "billing.credits.low")
		c.publish(t, creditsLow)
		delivery := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, delivery, "retrying", 1)

		changed := c.ask(t, "PATCH", "/v1/webhooks/"+id, map[string]any{"url": fresh.URL + "/new", "events": []string{"key.*"}, "description": "moved"}).Want(t, 200, "")
		if changed.Text("url") != fresh.URL+"/new" || changed.Text("events.0") != "key.*" || changed.Text("description") != "moved" || changed.At("secret") != nil {
			t.Errorf("changed it is %s", changed.Body)
		}
		secret := c.post(t, "/v1/webhooks/"+id+"/rotate_secret", map[string]any{"grace_period_seconds": 0}).Text("secret")
		c.advanceEndpoint(t, 2*time.Minute, id)
		done := c.waitForDelivery(t, delivery, "succeeded", 2)
		got := fresh.wait(t, c, 1)[0]
		if got.id != delivery || !got.signedBy(secret) || old.count() != 1 {
			t.Errorf("the second attempt has the id %s, signed by the new secret: %t; the old address got %d", got.id, got.signedBy(secret), old.count())
		}
		if done.Text("attempts.0.url") != old.URL || done.Text("attempts.1.url") != fresh.URL+"/new" {
			t.Errorf("the attempts are %s", done.Body)
		}
		// The new subscription applies to later events.
		c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		c.deliveries(t, id, 2)
		if again := fresh.wait(t, c, 2)[1]; !bytes.Contains(again.body, []byte(`"key.auto_revoked"`)) {
			t.Errorf("after the change came %s", again.body)
		}
		// Omitted fields stay unchanged.
		if same := c.ask(t, "PATCH", "/v1/webhooks/"+id, nil).Want(t, 200, ""); same.Text("url") != fresh.URL+"/new" || same.Text("description") != "moved" {
			t.Errorf("an empty change made %s", same.Body)
		}
	})
}

func TestDeletedEndpointGetsNoDeliveriesAndKeepsItsHistory(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL, "billing.credits.low")
		c.publish(t, creditsLow)
		delivered := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, delivered, "succeeded", 1)
		r.respondWith(respond(500))
		c.publish(t, creditsLow)
		retrying := c.deliveries(t, id, 2)[1]
		c.waitForDelivery(t, retrying, "retrying", 1)
		other, _ := c.endpoint(t, r.URL, "key.*")
		c.post(t, "/v1/webhooks/"+other+"/pause", nil)
		c.publish(t, events.KeyRevoked{KeyID: "key_1"})
		held := c.deliveries(t, other, 1)[0]

		for _, endpoint := range []string{id, other} {
			gone := c.ask(t, "DELETE", "/v1/webhooks/"+endpoint, nil).Want(t, 200, "")
			if gone.Text("id") != endpoint || gone.At("deleted") != true {
				t.Errorf("deleted: %s", gone.Body)
			}
			for _, r := range []harness.Request{{Method: "GET"}, {Method: "DELETE"}, {Method: "PATCH"}, {Method: "POST", Path: "/pause"}, {Method: "POST", Path: "/resume"},
				{Method: "POST", Path: "/rotate_secret"}, {Method: "POST", Path: "/end_grace"}, {Method: "POST", Path: "/test"}} {
				c.ask(t, r.Method, "/v1/webhooks/"+endpoint+r.Path, nil).Want(t, 404, "not_found")
			}
		}
		if list := c.get(t, "/v1/webhooks"); len(idsOf(list)) != 0 {
			t.Errorf("it is still listed: %s", list.Body)
		}
		now := float64(c.Clock.Now().Unix())
		for _, one := range []string{retrying, held} {
			d := c.get(t, "/v1/deliveries/"+one)
			if d.Text("status") != "discarded" || d.Text("reason") != "endpoint_deleted" || d.At("next_attempt_at") != nil || d.At("finished_at") != now {
				t.Errorf("what was unfinished is %s", d.Body)
			}
		}
		if d := c.get(t, "/v1/deliveries/"+delivered); d.Text("status") != "succeeded" || d.At("reason") != nil || len(d.At("attempts").([]any)) != 1 {
			t.Errorf("what was delivered is %s", d.Body)
		}
		// A new event is delivered only to other endpoints.
		seen := r.count()
		r.respondWith(respond(200))
		third, _ := c.endpoint(t, r.URL)
		c.Clock.Turn(24 * time.Hour)
		c.publish(t, creditsLow)
		c.waitForDelivery(t, c.deliveries(t, third, 1)[0], "succeeded", 1)
		c.wakeEndpoint(t, id)
		c.deliveries(t, id, 2)
		c.deliveries(t, other, 1)
		if r.count() != seen+1 {
			t.Errorf("%d requests came after the endpoints were deleted, want 1", r.count()-seen)
		}
	})
}

func TestPausedEndpointHoldsEventsUntilResumed(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(500))
		id, _ := c.endpoint(t, r.URL)
		c.publish(t, creditsLow)
		first := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, first, "retrying", 1)

		paused := c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		if paused.Text("status") != "paused" || paused.Text("paused_reason") != "manual" || paused.At("paused_at") != float64(c.Clock.Now().Unix()) || paused.At("stats.held") != float64(1) {
			t.Errorf("paused it is %s", paused.Body)
		}
		c.Clock.Turn(time.Hour)
		if again := c.post(t, "/v1/webhooks/"+id+"/pause", map[string]any{}); again.At("paused_at") != paused.At("paused_at") {
			t.Errorf("paused a second time it is %s", again.Body)
		}
		c.publish(t, creditsLow, creditsLow)
		all := c.deliveries(t, id, 3)
		for _, one := range all {
			d := c.waitForDelivery(t, one, "held", map[bool]int{true: 1, false: 0}[one == first])
			if d.At("next_attempt_at") != nil || d.At("finished_at") != nil || d.At("reason") != nil {
				t.Errorf("held: %s", d.Body)
			}
		}
		if e := c.get(t, "/v1/webhooks/"+id); e.At("stats.held") != float64(3) {
			t.Errorf("holding three it is %s", e.Body)
		}

		// A delivery to another endpoint shows that the others had their
		// chance.
		r.respondWith(respond(200))
		witness := newReceiver(t, c.Clock, respond(200))
		c.endpoint(t, witness.URL, "key.*")
		c.wakeEndpoint(t, id)
		c.publish(t, events.KeyRevoked{KeyID: "key_1"})
		witness.wait(t, c, 1)
		c.deliveries(t, id, 4)
		if r.count() != 1 {
			t.Errorf("a paused endpoint got %d requests", r.count()-1)
		}

		resumed := c.post(t, "/v1/webhooks/"+id+"/resume", nil)
		if resumed.Text("status") != "active" || resumed.At("paused_reason") != nil || resumed.At("paused_at") != nil || resumed.At("stats.held") != float64(0) {
			t.Errorf("resumed it is %s", resumed.Body)
		}
		for i, one := range c.deliveries(t, id, 4) {
			c.waitForDelivery(t, one, "succeeded", map[bool]int{true: 2, false: 1}[i == 0])
		}
		r.wait(t, c, 5)
		if again := c.post(t, "/v1/webhooks/"+id+"/resume", map[string]any{"held": "discard"}); again.Text("status") != "active" {
			t.Errorf("resumed a second time it is %s", again.Body)
		}
		for _, one := range c.deliveries(t, id, 4) {
			c.waitForDelivery(t, one, "succeeded", map[bool]int{true: 2, false: 1}[one == first])
		}
	})
}

func TestResumeCanDiscardHeldEvents(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		c.publish(t, creditsLow, creditsLow)
		held := c.deliveries(t, id, 2)
		c.post(t, "/v1/webhooks/"+id+"/resume", map[string]any{"held": "discard"})
		for _, one := range held {
			if d := c.get(t, "/v1/deliveries/"+one); d.Text("status") != "discarded" || d.Text("reason") != "discarded_on_resume" || d.At("finished_at") == nil {
				t.Errorf("discarded: %s", d.Body)
			}
		}
		c.Clock.Turn(time.Millisecond) // events of the time of a discard are due right after it
		c.publish(t, creditsLow)
		c.waitForDelivery(t, c.deliveries(t, id, 3)[2], "succeeded", 1)
		r.wait(t, c, 1)
	})
}

func TestAttemptInFlightAlwaysFinishes(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		for _, turn := range []struct {
			name, method, path string
			status             int
			want, reason       string
		}{
			{"paused, and it succeeds", "POST", "/pause", 200, "succeeded", ""},
			{"paused, and it fails", "POST", "/pause", 500, "held", ""},
			{"deleted, and it succeeds", "DELETE", "", 200, "succeeded", ""},
			{"deleted, and it fails", "DELETE", "", 500, "discarded", "endpoint_deleted"},
		} {
			r := newReceiver(t, c.Clock, respond(200))
			gate := make(chan struct{})
			r.respondWith(r.respondAfter(gate, turn.status))
			id, _ := c.endpoint(t, r.URL, "key.*")
			c.publish(t, events.KeyRevoked{KeyID: "key_1"})
			r.wait(t, c, 1)
			delivery := c.deliveries(t, id, 1)[0]
			c.ask(t, turn.method, "/v1/webhooks/"+id+turn.path, nil).Want(t, 200, "")
			if d := c.get(t, "/v1/deliveries/"+delivery); d.At("attempt_count") != float64(0) {
				t.Errorf("%s: before it has an answer it is %s", turn.name, d.Body)
			}
			close(gate)
			d := c.waitForDelivery(t, delivery, turn.want, 1)
			if d.Text("reason") != turn.reason || d.At("attempts.0.response_status") != float64(turn.status) || d.At("next_attempt_at") != nil {
				t.Errorf("%s: %s", turn.name, d.Body)
			}
			if turn.method == "POST" {
				c.ask(t, "DELETE", "/v1/webhooks/"+id, nil).Want(t, 200, "")
			}
		}
	})
}

func TestNoAttemptStartsOncePausedOrDeleted(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		for _, turn := range []struct{ method, path string }{{"DELETE", ""}, {"POST", "/pause"}} {
			r := newReceiver(t, c.Clock, respond(200))
			gate := make(chan struct{})
			r.respondWith(r.respondAfter(gate, 200))
			id, _ := c.endpoint(t, r.URL, "key.*")
			c.publish(t, slices.Repeat([]events.Payload{events.KeyRevoked{KeyID: "key_1"}}, 8)...)
			c.Eventually(t, func() bool { return r.count() >= 4 })
			c.ask(t, turn.method, "/v1/webhooks/"+id+turn.path, nil).Want(t, 200, "")
			begun := r.count()
			close(gate)
			c.Eventually(t, func() bool {
				return c.rows(t, "deliveries WHERE endpoint_id = '"+id+"' AND status = 'succeeded'") == begun
			})
			witness, _ := c.endpoint(t, r.URL, "billing.credits.*")
			c.publish(t, creditsLow)
			c.waitForDelivery(t, c.deliveries(t, witness, 1)[0], "succeeded", 1)
			if n := r.count() - 1; n != begun || begun == 8 {
				t.Errorf("after %s%s, with %d under way, %d more attempts were begun", turn.method, turn.path, begun, n-begun)
			}
			c.ask(t, "DELETE", "/v1/webhooks/"+witness, nil).Want(t, 200, "")
			if turn.method != "DELETE" {
				c.ask(t, "DELETE", "/v1/webhooks/"+id, nil).Want(t, 200, "")
			}
		}
	})
}

func TestRotatedSecretSignsAlongsideTheOldOneDuringGrace(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, first := c.endpoint(t, r.URL, "key.*")
		standard := func(got received, secret string) bool {
			wh, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			return wh.VerifyIgnoringTimestamp(got.body, got.header) == nil
		}
		sent := 0
		signedWith := func(when string, service, other string, both bool) {
			t.Helper()
			c.publish(t, events.KeyRevoked{KeyID: "key_1"})
			sent++
			got := r.wait(t, c, sent)[sent-1]
			if !got.signedBy(service) || got.signedBy(other) || !standard(got, service) || standard(got, other) != both {
				t.Errorf("%s: Service-Signature by the one %t, by the other %t; webhook-signature by the one %t, by the other %t",
					when, got.signedBy(service), got.signedBy(other), standard(got, service), standard(got, other))
			}
		}
		rotate := func(body any) (*harness.Response, string) {
			r := c.post(t, "/v1/webhooks/"+id+"/rotate_secret", body)
			return r, r.Text("secret")
		}
		rotated, second := rotate(nil)
		if ends := float64(c.Clock.Now().Add(24 * time.Hour).Unix()); rotated.At("old_secret_expires_at") != ends || second == first || rotated.Text("secret_hint") == "" {
			t.Errorf("rotated it is %s", rotated.Body)
		}
		signedWith("in the grace", first, second, true)
		c.ask(t, "POST", "/v1/webhooks/"+id+"/rotate_secret", nil).Want(t, 409, "invalid_state")
		c.Clock.Turn(24*time.Hour - time.Second)
		signedWith("a second before its end", first, second, true)
		c.Clock.Turn(time.Second)
		signedWith("after it", second, first, false)
		if e := c.get(t, "/v1/webhooks/"+id); e.At("old_secret_expires_at") != nil {
			t.Errorf("after the grace it is %s", e.Body)
		}

		_, third := rotate(map[string]any{"grace_period_seconds": 604800})
		signedWith("in a long grace", second, third, true)
		if ended := c.post(t, "/v1/webhooks/"+id+"/end_grace", nil); ended.At("old_secret_expires_at") != nil {
			t.Errorf("the grace ended, and it is %s", ended.Body)
		}
		signedWith("after its end", third, second, false)
		c.post(t, "/v1/webhooks/"+id+"/end_grace", nil) // without a grace period it isn't an error
		// The admin log entry has no detail, which the OpenAPI document must
		// allow.
		if actions := c.get(t, "/v1/audit/actions"); !strings.Contains(string(actions.Body), `"action":"webhook.grace_ended","target":"`+id+`","detail":null`) {
			t.Errorf("the admin log is %s", actions.Body)
		}

		_, fourth := rotate(map[string]any{"grace_period_seconds": 0})
		signedWith("without a grace", fourth, third, false)
		rotate(map[string]any{"grace_period_seconds": 60})
	})
}

func TestSampleGoesToOneEndpointAndNeverPausesIt(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		other := newReceiver(t, c.Clock, respond(200))
		c.endpoint(t, other.URL)
		r := newReceiver(t, c.Clock, respond(200))
		id, secret := c.endpoint(t, r.URL, "agent.run.failed", "key.*")
		samples := func() []received {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.got)
		}
		send := func(body any, header http.Header) *harness.Response {
			return c.Do(t, harness.Request{Method: "POST", Path: "/v1/webhooks/" + id + "/test", Key: c.key, Body: body, Header: header}).Want(t, 200, "")
		}
		d := send(nil, http.Header{"Service-Project": {"support"}})
		if d.Text("type") != "agent.run.failed" || d.Text("status") != "pending" || d.Text("endpoint_id") != id {
			t.Errorf("the delivery is %s", d.Body)
		}
		c.waitForDelivery(t, d.Text("id"), "succeeded", 1)
		got := samples()[0]
		if !got.signedBy(secret) || !got.sample() || !bytes.Contains(got.body, []byte(`"project":"support"`)) {
			t.Errorf("it came as %s", got.body)
		}
		if e := c.get(t, "/v1/events/"+d.Text("event_id")); e.At("sample") != true || !bytes.Equal(e.Body, got.body) {
			t.Errorf("got event %s", e.Body)
		}
		// Every type, subscribed to or not.
		for _, typ := range events.Types {
			d := send(map[string]any{"type": typ}, nil)
			c.waitForDelivery(t, d.Text("id"), "succeeded", 1)
			if e := c.get(t, "/v1/events/"+d.Text("event_id")); e.Text("type") != string(typ) {
				t.Errorf("a sample of %s is %s", typ, e.Body)
			}
		}

		r.respondWith(respond(500))
		last := send(nil, nil).Text("id")
		for attempts := 1; attempts < 6; attempts++ {
			c.waitForDelivery(t, last, "retrying", attempts)
			c.advanceEndpoint(t, 13*time.Hour, id)
		}
		c.waitForDelivery(t, last, "failed", 6)
		if e := c.get(t, "/v1/webhooks/"+id); e.Text("status") != "active" || e.At("stats.failed") != float64(1) || e.At("stats.failed_attempts") != float64(6) {
			t.Errorf("after six failures of a sample the endpoint is %s", e.Body)
		}
		if c.rows(t, "mails") != 0 {
			t.Error("a failed sample was mailed about")
		}
		other.mu.Lock()
		defer other.mu.Unlock()
		if len(other.got) != 0 {
			t.Errorf("the other endpoint got %s", other.got[0].body)
		}
	})
}

func TestSampleForAPausedEndpointIsHeld(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		d := c.post(t, "/v1/webhooks/"+id+"/test", nil)
		if d.Text("status") != "held" || d.At("next_attempt_at") != nil {
			t.Errorf("got %s", d.Body)
		}
		c.post(t, "/v1/webhooks/"+id+"/resume", nil)
		c.waitForDelivery(t, d.Text("id"), "succeeded", 1)
	})
}
