package api_test

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/test/harness"
)

// replay starts a bulk replay and waits for its end.
func (c *client) replay(t *testing.T, endpointID string, body map[string]any) *harness.Response {
	t.Helper()
	return c.waitForReplay(t, c.post(t, "/v1/webhooks/"+endpointID+"/replay", body).Text("id"), "completed")
}

func (c *client) waitForReplay(t *testing.T, id, status string) (r *harness.Response) {
	t.Helper()
	for r = c.get(t, "/v1/replays/"+id); r.Text("status") != status; {
		before := number(t, r, "done")
		c.Eventually(t, func() bool {
			r = c.get(t, "/v1/replays/"+id)
			return r.Text("status") == status || number(t, r, "done") > before
		})
	}
	return r
}

// missEvents publishes n events and then creates an endpoint for them at the
// address.
func (c *client) missEvents(t *testing.T, n int, address string) (endpointID string, since int64) {
	t.Helper()
	since = c.Clock.Now().Unix()
	c.publish(t, slices.Repeat([]events.Payload{creditsLow}, n)...)
	c.Clock.Turn(time.Second)
	c.Eventually(t, func() bool { return c.rows(t, "new_events") == 0 })
	endpointID, _ = c.endpoint(t, address)
	return endpointID, since
}

func TestReplayedDeliveryKeepsItsIDUnlessRequestedOtherwise(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, secret := c.endpoint(t, r.URL)
		event := c.publish(t, creditsLow)[0]
		delivery := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, delivery, "succeeded", 1)
		c.Clock.Turn(time.Hour)

		again := c.post(t, "/v1/deliveries/"+delivery+"/replay", nil)
		if again.Text("id") != delivery || again.Text("status") != "succeeded" || again.At("finished_at") == nil || again.At("next_attempt_at") != float64(c.Clock.Now().Unix()) {
			t.Errorf("replayed it is %s", again.Body)
		}
		c.waitForDelivery(t, delivery, "succeeded", 2)
		other := c.post(t, "/v1/deliveries/"+delivery+"/replay", map[string]any{"new_id": true})
		if other.Text("id") == delivery || other.Text("event_id") != event.ID || other.Text("endpoint_id") != id || other.At("attempt_count") != float64(0) ||
			other.At("event_created_at") != float64(event.CreatedAt.Unix()) {
			t.Errorf("replayed under a new id it is %s", other.Body)
		}
		c.waitForDelivery(t, other.Text("id"), "succeeded", 1)
		c.waitForDelivery(t, delivery, "succeeded", 2)
		got := r.wait(t, c, 3)
		for i, want := range []string{delivery, delivery, other.Text("id")} {
			if got[i].id != want || !bytes.Equal(got[i].body, event.Body) || !got[i].signedBy(secret) {
				t.Errorf("request %d came as %v %s", i+1, got[i].header, got[i].body)
			}
		}
		c.deliveries(t, id, 2)
		c.ask(t, "POST", "/v1/deliveries/dlv_01h455vb4pex5vsknk084sn02q/replay", nil).Want(t, 404, "not_found")
		c.ask(t, "POST", "/v1/deliveries/"+delivery+"/replay", `{"newid":true}`).Want(t, 400, "unknown_parameter")
	})
}

func TestReplayRestartsTheRetrySchedule(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(500))
		id, _ := c.endpoint(t, r.URL)
		c.publish(t, creditsLow)
		delivery := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, delivery, "retrying", 1)
		c.advanceEndpoint(t, 2*time.Minute, id)
		c.waitForDelivery(t, delivery, "retrying", 2) // and again in five minutes
		for attempts, status := range []string{"retrying", "failed", "discarded"} {
			c.exec(t, "UPDATE deliveries SET status = $2, due_at = NULL, reason = 'expired', finished_at = 1 WHERE id = $1", delivery, status)
			c.post(t, "/v1/deliveries/"+delivery+"/replay", nil)
			d := c.waitForDelivery(t, delivery, "retrying", attempts+3)
			last := d.At("attempts").([]any)[attempts+2].(map[string]any)
			if plan := last["next_retry_at"].(float64) - last["started_at"].(float64); plan < 60 || plan > 61 || d.At("reason") != nil || d.At("finished_at") != nil {
				t.Errorf("replayed when it was %s, it is %s", status, d.Body)
			}
		}
		// The sixth failure of the replay pauses the endpoint like any other.
		for attempts := 6; attempts <= 10; attempts++ {
			c.advanceEndpoint(t, 13*time.Hour, id)
			c.waitForDelivery(t, delivery, map[bool]string{true: "failed", false: "retrying"}[attempts == 10], attempts)
		}
		if e := c.get(t, "/v1/webhooks/"+id); e.Text("paused_reason") != "delivery_failed" {
			t.Errorf("got endpoint %s", e.Body)
		}
	})
}

func TestReplayDuringAnAttemptIsKept(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, c *client, endpoint, delivery string){
		"replayed": func(t *testing.T, c *client, _, delivery string) {
			c.post(t, "/v1/deliveries/"+delivery+"/replay", nil)
		},
		"paused and resumed": func(t *testing.T, c *client, endpoint, _ string) {
			c.post(t, "/v1/webhooks/"+endpoint+"/pause", nil)
			c.post(t, "/v1/webhooks/"+endpoint+"/resume", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			oneRetry := func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.RetrySchedule = []time.Duration{time.Hour} }
			eachWebhooks(t, both, oneRetry, func(t *testing.T, c *client) {
				r := newReceiver(t, c.Clock, respond(500))
				id, _ := c.endpoint(t, r.URL)
				c.publish(t, creditsLow)
				delivery := c.deliveries(t, id, 1)[0]
				c.waitForDelivery(t, delivery, "retrying", 1)

				gate := make(chan struct{})
				r.respondWith(r.respondAfter(gate, 500))
				c.advanceEndpoint(t, 2*time.Hour, id)
				r.wait(t, c, 2) // the last attempt
				again(t, c, id, delivery)
				r.respondWith(respond(500))
				close(gate)
				c.waitForDelivery(t, delivery, "retrying", 3)
				if e := c.get(t, "/v1/webhooks/"+id); e.Text("status") != "active" {
					t.Errorf("got endpoint %s", e.Body)
				}
				r.respondWith(respond(200))
				c.advanceEndpoint(t, 2*time.Hour, id)
				c.waitForDelivery(t, delivery, "succeeded", 4)
			})
		})
	}
}

func TestInvalidReplayIsRejected(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		c.publish(t, creditsLow)
		delivery := c.deliveries(t, id, 1)[0]
		c.waitForDelivery(t, delivery, "succeeded", 1)
		began := c.Clock.Now().Unix()
		both := func(status int, code string) {
			t.Helper()
			c.ask(t, "POST", "/v1/deliveries/"+delivery+"/replay", nil).Want(t, status, code)
			c.ask(t, "POST", "/v1/deliveries/"+delivery+"/replay", `{"new_id":true}`).Want(t, status, code)
			c.ask(t, "POST", "/v1/webhooks/"+id+"/replay", map[string]any{"since": began, "status": "all"}).Want(t, status, code)
		}
		for body, want := range map[string]string{
			`{}`: "missing_parameter since", `{"since":null}`: "missing_parameter since", `{"since":"x"}`: "invalid_parameter since", `{"since":-1}`: "invalid_parameter since",
			`{"since":1}`: "outside_replay_window since", `{"since":99999999999}`: "invalid_parameter since", `{"since":SINCE,"until":SINCE}`: "invalid_parameter until",
			`{"since":SINCE,"until":-5}`: "invalid_parameter until", `{"since":SINCE,"status":"lost"}`: "invalid_parameter status",
			`{"since":SINCE,"types":["agent.run.*"]}`: "invalid_parameter types", `{"since":SINCE,"new":true}`: "unknown_parameter new",
		} {
			body = strings.ReplaceAll(body, "SINCE", itoa(began))
			if r := c.ask(t, "POST", "/v1/webhooks/"+id+"/replay", body); r.Status != 400 || r.Code()+" "+r.Text("error.param") != want {
				t.Errorf("%s: %d %s", body, r.Status, r.Body)
			}
		}
		c.ask(t, "POST", "/v1/webhooks/wh_01h455vb4pex5vsknk084sn02q/replay", map[string]any{"since": began}).Want(t, 404, "not_found")
		c.ask(t, "GET", "/v1/replays/rpl_01h455vb4pex5vsknk084sn02q", nil).Want(t, 404, "not_found")

		c.post(t, "/v1/webhooks/"+id+"/pause", nil)
		both(409, "invalid_state")
		// No one can resume a tunnel here.
		c.exec(t, "UPDATE endpoints SET kind = 'tunnel' WHERE id = $1", id)
		if r := c.ask(t, "POST", "/v1/deliveries/"+delivery+"/replay", nil).Want(t, 409, "invalid_state"); !strings.Contains(r.Text("error.message"), "is not connected. Connect it with turnpike listen --resume "+id) {
			t.Errorf("a tunnel that is away: %s", r.Body)
		}
		c.exec(t, "UPDATE endpoints SET kind = 'http' WHERE id = $1", id)
		c.post(t, "/v1/webhooks/"+id+"/resume", nil)

		// The exact time of the event counts. The bulk replay uses whole
		// seconds.
		c.Clock.Turn(30*24*time.Hour - time.Second)
		c.post(t, "/v1/deliveries/"+delivery+"/replay", nil)
		c.waitForDelivery(t, delivery, "succeeded", 2)
		c.Clock.Turn(2 * time.Second)
		both(400, "outside_replay_window")

		c.ask(t, "DELETE", "/v1/webhooks/"+id, nil).Want(t, 200, "")
		began = c.Clock.Now().Unix()
		c.exec(t, "UPDATE deliveries SET event_at = $2 WHERE id = $1", delivery, c.Clock.Now().UnixMicro())
		both(409, "invalid_state")
		if r.count() != 2 || c.rows(t, "replays") != 0 {
			t.Errorf("%d requests came, and %d replays are stored", r.count(), c.rows(t, "replays"))
		}
	})
}

func TestBulkReplaySendsExactlyTheSelection(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		morning := c.Clock.Now().Unix()
		c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"})
		c.deliveries(t, id, 2)
		c.Clock.Turn(time.Hour)
		noon := c.Clock.Now().Unix()
		c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_2"})
		all := c.deliveries(t, id, 4)
		sent := map[string]int{}
		for _, one := range all {
			c.waitForDelivery(t, one, "succeeded", 1)
			sent[one] = 1
		}
		// replays runs a replay and checks how often each delivery arrived.
		replays := func(body map[string]any, want ...string) {
			t.Helper()
			done := c.replay(t, id, body)
			if number(t, done, "total") != int64(len(want)) || number(t, done, "done") != int64(len(want)) || done.At("finished_at") == nil || done.Text("endpoint_id") != id ||
				number(t, done, "since") != body["since"] {
				t.Errorf("%v: %s", body, done.Body)
			}
			for _, one := range want {
				sent[one]++
				c.waitForDelivery(t, one, "succeeded", sent[one])
			}
			got := map[string]int{}
			for _, one := range r.all() {
				got[one.id]++
			}
			for one, n := range sent {
				if got[one] != n {
					t.Errorf("%v: %s came %d times in all, want %d", body, one, got[one], n)
				}
			}
		}
		replays(map[string]any{"since": morning})
		for _, one := range all[:3] {
			c.exec(t, "UPDATE deliveries SET status = 'failed' WHERE id = $1", one)
		}
		replays(map[string]any{"since": morning, "types": []string{"key.auto_revoked"}}, all[1])
		replays(map[string]any{"since": noon, "status": "failed"}, all[2])
		replays(map[string]any{"since": morning, "until": noon}, all[0])
		replays(map[string]any{"since": morning})
		c.exec(t, "UPDATE deliveries SET status = 'discarded', reason = 'expired' WHERE id = $1", all[0])
		replays(map[string]any{"since": morning, "status": "all", "until": noon}, all[:2]...)
		replays(map[string]any{"since": noon, "status": "all", "types": []string{"billing.credits.low", "agent.run.failed"}}, all[2])
		replays(map[string]any{"since": morning, "status": "all"}, all...)
		c.replay(t, id, map[string]any{"since": morning, "status": "missed"})
		replays(map[string]any{"since": noon}) // nothing else has arrived
		c.deliveries(t, id, 4)
	})
}

func TestMissedEventsHaveNoDelivery(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		began := c.Clock.Now().Unix()
		early := c.publish(t, creditsLow, events.KeyRevoked{KeyID: "key_1"}, events.AgentRun{ID: "run_1", Status: "failed"}, events.KeyRevoked{KeyID: "key_2"})
		c.withTestKey(t).publish(t, events.KeyRevoked{KeyID: "key_3"})
		c.Eventually(t, func() bool { return c.rows(t, "new_events") == 0 })
		c.Clock.Turn(time.Minute)
		id, _ := c.endpoint(t, r.URL, "key.*", "billing.credits.*")
		c.publish(t, events.KeyRevoked{KeyID: "key_4"})
		c.waitForDelivery(t, c.deliveries(t, id, 1)[0], "succeeded", 1)
		c.waitForDelivery(t, c.post(t, "/v1/webhooks/"+id+"/test", nil).Text("id"), "succeeded", 1)
		other, _ := c.endpoint(t, r.URL, "agent.run.*")
		c.waitForDelivery(t, c.post(t, "/v1/webhooks/"+other+"/test", nil).Text("id"), "succeeded", 1) // the first endpoint doesn't count this sample as missed

		// The total includes the sample and the event that was not missed.
		for _, turn := range []struct {
			body map[string]any
			want int
		}{
			{map[string]any{"types": []string{"key.auto_revoked", "agent.run.failed"}, "until": began + 60}, 4},
			{map[string]any{}, 5},
			{map[string]any{"new_id": true}, 5},
		} {
			turn.body["since"], turn.body["status"] = began, "missed"
			done := c.replay(t, id, turn.body)
			if number(t, done, "done") != number(t, done, "total") || done.Text("selection") != "missed" {
				t.Errorf("got %s", done.Body)
			}
			for _, one := range c.deliveries(t, id, turn.want) {
				c.waitForDelivery(t, one, "succeeded", 1)
			}
		}
		got := r.wait(t, c, 4)
		for i, e := range []*events.Event{nil, early[1], early[3], early[0]} {
			if e != nil && !slices.ContainsFunc(got, func(g received) bool { return bytes.Equal(g.body, e.Body) }) {
				t.Errorf("event %d has not come", i)
			}
		}
	})
}

func TestReplayDuringFanOutDeliversOnce(t *testing.T) {
	t.Parallel()
	c := newClient(t, harness.Start(t, webhookConfig(t, "postgres"), harness.NewClock()), accounts.Live)
	r := newReceiver(t, c.Clock, respond(200))
	id, _ := c.endpoint(t, r.URL)
	began := c.Clock.Now().Unix()
	locked, release := make(chan int), make(chan struct{})
	events := 0
	for n := 0; n == 0; n = <-locked {
		c.publish(t, creditsLow)
		events++
		go func() {
			_ = c.DB.Write(t.Context(), func(tx *db.Tx) error {
				rows, err := tx.Query(t.Context(), "SELECT event_id FROM new_events FOR UPDATE SKIP LOCKED")
				list, err := db.All(rows, err, func(r db.Row) (id string, err error) {
					err = r.Scan(&id)
					return id, err
				})
				locked <- len(list) // 0 if the fan-out was faster
				if len(list) > 0 {
					<-release
				}
				return err
			})
		}()
	}
	c.replay(t, id, map[string]any{"since": began, "status": "missed"})
	close(release)
	c.Eventually(t, func() bool { return c.rows(t, "new_events") == 0 })
	for _, one := range c.deliveries(t, id, events) {
		c.waitForDelivery(t, one, "succeeded", 1)
	}
	r.wait(t, c, events)
}

func TestReplayWithNewIDsEnds(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.PerEndpoint = 2 }, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		const total = 50 // many times the size of one step
		began := c.Clock.Now().Unix()
		c.publish(t, slices.Repeat([]events.Payload{creditsLow}, total)...)
		succeeded := func(n int) {
			t.Helper()
			c.waitForCount(t, n, func() int { return c.rows(t, "deliveries WHERE status = 'succeeded' AND attempts = 1") })
		}
		succeeded(total)
		if done := c.replay(t, id, map[string]any{"since": began, "status": "all", "new_id": true}); number(t, done, "total") != total || number(t, done, "done") != total || done.At("new_id") != true {
			t.Errorf("got %s", done.Body)
		}
		succeeded(2 * total)
		came := map[string]int{}
		for _, got := range r.wait(t, c, 2*total) {
			came[got.id]++
		}
		if len(came) != 2*total || len(c.deliveries(t, id, 2*total)) != 2*total {
			t.Errorf("there came %d ids, want %d", len(came), 2*total)
		}
	})
}

func TestReplayNeverExceedsItsTotal(t *testing.T) {
	eachWebhooks(t, sqlite, func(_ *testing.T, cfg *config.Config) { cfg.Webhooks.PerEndpoint = 1 }, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		id, _ := c.endpoint(t, r.URL)
		began := c.Clock.Now().Unix()
		c.publish(t, creditsLow, creditsLow)
		for _, one := range c.deliveries(t, id, 2) {
			c.waitForDelivery(t, one, "succeeded", 1)
		}
		gate := make(chan struct{})
		r.respondWith(r.respondAfter(gate, 200))
		c.publish(t, creditsLow, creditsLow)
		c.Eventually(t, func() bool { return r.count() == 3 })
		started := c.post(t, "/v1/webhooks/"+id+"/replay", map[string]any{"since": began, "status": "all"})
		if number(t, started, "total") != 2 {
			t.Errorf("got new replay %s", started.Body)
		}
		close(gate)
		if done := c.waitForReplay(t, started.Text("id"), "completed"); number(t, done, "done") > number(t, done, "total") {
			t.Errorf("it ended as %s", done.Body)
		}
	})
}

func TestReplayStopsWithItsEndpoint(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		r := newReceiver(t, c.Clock, respond(200))
		for _, turn := range []struct{ method, path string }{{"POST", "/pause"}, {"DELETE", ""}} {
			gate := make(chan struct{})
			r.respondWith(r.respondAfter(gate, 200))
			before := r.count()
			id, since := c.missEvents(t, 100, r.URL)
			started := c.post(t, "/v1/webhooks/"+id+"/replay", map[string]any{"since": since, "status": "missed"})
			if started.Text("status") != "running" || number(t, started, "total") != 100 || number(t, started, "done") != 0 || started.At("finished_at") != nil {
				t.Errorf("got new replay %s", started.Body)
			}
			c.Eventually(t, func() bool { return r.count() >= before+4 })
			if running := c.get(t, "/v1/replays/"+started.Text("id")); running.Text("status") != "running" || number(t, running, "done") == 0 {
				t.Errorf("under way it is %s", running.Body)
			}
			c.ask(t, turn.method, "/v1/webhooks/"+id+turn.path, nil).Want(t, 200, "")
			r.respondWith(respond(200))
			close(gate)
			stopped := c.waitForReplay(t, started.Text("id"), "stopped")
			done := number(t, stopped, "done")
			if done == 0 || done > 50 || stopped.At("finished_at") == nil {
				t.Errorf("stopped it is %s", stopped.Body)
			}
			if turn.method == "DELETE" {
				continue
			}
			// After a resume, only the deliveries that were already created are
			// sent.
			c.post(t, "/v1/webhooks/"+id+"/resume", nil)
			for _, one := range c.deliveries(t, id, int(done)) {
				c.waitForDelivery(t, one, "succeeded", 1)
			}
			witness := c.post(t, "/v1/webhooks/"+id+"/test", nil).Text("id")
			c.waitForDelivery(t, witness, "succeeded", 1)
			c.deliveries(t, id, int(done)+1)
			if again := c.get(t, "/v1/replays/"+started.Text("id")); again.Text("status") != "stopped" {
				t.Errorf("after a resume it is %s", again.Body)
			}
			c.ask(t, "DELETE", "/v1/webhooks/"+id, nil).Want(t, 200, "")
			c.Clock.Turn(time.Second) // separates the events from the next iteration's
		}
	})
}

func TestReplaySurvivesARestart(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			const total = 300
			cfg := webhookConfig(t, engine)
			c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Live)
			r := newReceiver(t, c.Clock, nil)
			r.respondWith(func(w http.ResponseWriter, _ *http.Request) {
				if r.count() > 20 { // slow enough that the server stops in the middle
					select {
					case <-time.After(100 * time.Millisecond):
					case <-r.ended:
					}
				}
			})
			id, since := c.missEvents(t, total, r.URL)
			started := c.post(t, "/v1/webhooks/"+id+"/replay", map[string]any{"since": since, "status": "missed"}).Text("id")
			c.Eventually(t, func() bool { return r.count() > 20 })
			if err := c.App.Close(); err != nil {
				t.Fatal(err)
			}
			before := r.count()
			if before >= total {
				t.Fatal("it was over before the server stopped")
			}
			r.respondWith(respond(200))
			c.Server = harness.Start(t, cfg, c.Clock)
			if done := c.waitForReplay(t, started, "completed"); number(t, done, "done") != total {
				t.Errorf("after the restart it is %s", done.Body)
			}
			came := map[string]int{}
			for _, got := range r.wait(t, c, total) {
				came[got.id]++
			}
			if len(came) != total {
				t.Errorf("%d of %d deliveries came, %d before the restart", len(came), total, before)
			}
		})
	}
}

func TestLiveEventOvertakesAReplay(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, c *client) {
		const total = 300
		r := newReceiver(t, c.Clock, nil)
		gate := make(chan struct{})
		r.respondWith(r.respondAfter(gate, 200))
		id, since := c.missEvents(t, total, r.URL)
		replay := c.post(t, "/v1/webhooks/"+id+"/replay", map[string]any{"since": since, "status": "missed"}).Text("id")
		c.Eventually(t, func() bool { return r.count() >= 4 })
		c.publish(t, events.KeyRevoked{KeyID: "key_1"})
		c.Eventually(t, func() bool { return c.rows(t, "deliveries WHERE type = 'key.auto_revoked'") == 1 })
		r.respondWith(respond(200))
		close(gate)
		got := r.wait(t, c, total+1)
		place := slices.IndexFunc(got, func(g received) bool { return bytes.Contains(g.body, []byte("key.auto_revoked")) })
		if place < 0 || place > 50 {
			t.Errorf("the live event came as number %d of %d", place+1, len(got))
		}
		c.waitForReplay(t, replay, "completed")
	})
}

func TestEndpointHasOneReplayAtATime(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, c *client) {
		const total = 300
		r := newReceiver(t, c.Clock, nil)
		gate := make(chan struct{})
		r.respondWith(r.respondAfter(gate, 200))
		id, since := c.missEvents(t, total, r.URL)
		body := map[string]any{"since": since, "status": "missed"}
		path := "/v1/webhooks/" + id + "/replay"
		var mu sync.Mutex
		started, refused := "", 0
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				got := c.ask(t, "POST", path, body)
				mu.Lock()
				defer mu.Unlock()
				if got.Status == 200 {
					started = got.Text("id")
				} else if got.Code() == "conflict" {
					refused++
				}
			})
		}
		all.Wait()
		if started == "" || refused != 3 {
			t.Fatalf("got the replay %q and %d refusals, want one replay and 3 refusals", started, refused)
		}
		again := c.ask(t, "POST", path, body).Want(t, 409, "conflict")
		if got := again.Text("error.message"); !strings.Contains(got, started) {
			t.Errorf("got %q, want it to name %s", got, started)
		}
		other, _ := c.endpoint(t, newReceiver(t, c.Clock, respond(200)).URL)
		c.replay(t, other, body)
		r.respondWith(respond(200))
		close(gate)
		c.waitForReplay(t, started, "completed")
		c.replay(t, id, body)
	})
}
