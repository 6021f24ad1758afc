package tunnel_test

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/tunnel"
	"turnpike/test/harness"
)

// The connection is cut at random moments while a thousand events are sent.
func TestLostConnectionsNeitherLoseNorRepeatDeliveries(t *testing.T) {
	t.Parallel()
	const total, cuts, portion = 1000, 20, 50
	each(t, func(t *testing.T, c *tenant) {
		local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			// So that deliveries are always in progress.
			<-time.After(rand.N(8 * time.Millisecond))
			w.WriteHeader(http.StatusNoContent)
		})
		line := newProxy(t, c.URL)
		l, ready := c.listen(t, local.URL, line.over)
		for i := range cuts {
			c.publish(t, events.AgentRunCompleted, portion)
			at := (i+1)*portion - rand.IntN(portion-1)
			waitFor(t, time.Millisecond, func() bool { return local.count() >= at })
			line.cut()
			if !l.connected(t).Reconnected {
				t.Error("Ready.Reconnected is false after a reconnect")
			}
		}
		c.await(t, ready.Endpoint, "succeeded", total)
		local.wantOnce(t, total)
		// A busy node that loses its lease may record one twice.
		if n := attempts(t, c, ready.Endpoint); n > total+total/100 {
			t.Errorf("got %d attempts for %d deliveries", n, total)
		}
	})
}

func attempts(t *testing.T, c *tenant, endpointID string) (n int) {
	t.Helper()
	err := c.DB.QueryRow(t.Context(), "SELECT count(*) FROM attempts a JOIN deliveries d ON d.id = a.delivery_id WHERE d.endpoint_id = $1", endpointID).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The local service gets one request, and its response is recorded.
func lostReportDoesNotRepeatTheRequest(t *testing.T, c *tenant) {
	line := newProxy(t, c.URL)
	local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		line.cut() // before the response, so that it cannot be reported
		w.Header().Set("X-Answer", "42")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("taken"))
	})
	l, ready := c.listen(t, local.URL, line.over)
	c.publish(t, events.AgentRunCompleted, 1)
	if !l.connected(t).Reconnected {
		t.Error("the client was not disconnected")
	}
	d := c.onlyDelivery(t, ready.Endpoint, "succeeded", 1)
	local.wantOnce(t, 1)
	if d.At("attempts.0.response_status") != float64(202) || d.Text("attempts.0.response_body") != "taken" || d.Text("attempts.0.response_headers.X-Answer") != "42" {
		t.Errorf("got attempt %s", d.Body)
	}
}

// Held deliveries keep their IDs.
func reconnectedClientGetsHeldDeliveries(t *testing.T, c *tenant) {
	local := newReceiver(t, respond(200))
	l, first := c.listen(t, local.URL, nil)
	c.publish(t, events.AgentRunCompleted, 1)
	local.wait(t, 1)
	c.await(t, first.Endpoint, "succeeded", 1)
	l.stopAndWait(t)
	c.awaitDisconnect(t, first.Endpoint)

	c.publish(t, events.AgentRunFailed, 3)
	eventually(t, func() bool { return c.deliveries(t, first.Endpoint)["held"] == 3 })
	if shown := c.get(t, "/v1/webhooks/"+first.Endpoint); shown.Text("status") != "active" || shown.At("stats.held") != float64(3) {
		t.Errorf("got tunnel %s", shown.Body)
	}

	_, second := c.listen(t, local.URL, func(o *tunnel.Options) { o.Resume = first.Endpoint })
	if second.Endpoint != first.Endpoint || second.Secret != "" {
		t.Errorf("got %+v after reconnecting", second)
	}
	local.wait(t, 4)
	c.await(t, first.Endpoint, "succeeded", 4)
	local.wantOnce(t, 4)
}

func stoppingClientFinishesDeliveriesInProgress(t *testing.T, c *tenant) {
	inside, answer := make(chan struct{}), make(chan struct{})
	local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		close(inside)
		<-answer
		w.WriteHeader(200)
	})
	l, ready := c.listen(t, local.URL, nil)
	c.publish(t, events.AgentRunCompleted, 1)
	<-inside
	l.stop()
	close(answer)
	l.stopAndWait(t)
	c.onlyDelivery(t, ready.Endpoint, "succeeded", 1)
}

// A stopped client has reported everything that it forwarded, so the next one, which
// remembers nothing, gets none of it again.
func TestNewClientRepeatsNothing(t *testing.T) {
	t.Parallel()
	const rounds, portion = 10, 30
	each(t, func(t *testing.T, c *tenant) {
		local := newReceiver(t, respond(204))
		l, ready := c.listen(t, local.URL, nil)
		for i := range rounds {
			c.publish(t, events.AgentRunCompleted, portion)
			waitFor(t, time.Millisecond, func() bool { return local.count() >= (i+1)*portion-rand.IntN(portion-1) })
			l.stopAndWait(t)
			l, _ = c.listen(t, local.URL, func(o *tunnel.Options) { o.Resume = ready.Endpoint })
		}
		c.await(t, ready.Endpoint, "succeeded", rounds*portion)
		local.wantOnce(t, rounds*portion)
	})
}

func TestClientsReconnectAfterAServerRestart(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg, clock := configured(t, engine), harness.NewClock()
			c := newTenant(t, harness.Start(t, cfg, clock))
			line := newProxy(t, c.URL)
			inside, answer := make(chan struct{}, 10), make(chan struct{})
			local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				inside <- struct{}{}
				<-answer
				w.WriteHeader(200)
			})
			l, ready := c.listen(t, local.URL, line.over)
			c.publish(t, events.AgentRunCompleted, 2)
			<-inside
			<-inside
			if err := c.App.Close(); err != nil { // with both in progress
				t.Fatal(err)
			}
			if err := <-l.lost; err == nil || err.Error() != "the server is stopping" {
				t.Errorf("OnLost: got %v", err)
			}
			close(answer)
			c.publish(t, events.AgentRunFailed, 2)
			line.routeTo(t, harness.Start(t, cfg, clock).URL)
			if again := l.connected(t); again.Endpoint != ready.Endpoint || again.Replaced {
				t.Errorf("got %+v after reconnecting", again)
			}
			c.await(t, ready.Endpoint, "succeeded", 4)
			local.wantOnce(t, 4)
		})
	}
}
