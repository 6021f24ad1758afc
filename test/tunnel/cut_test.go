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

// TestTwentyCutsLoseAndRepeatNothing: the connection is cut at random moments
// while a thousand events come.
func TestTwentyCutsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	const total, cuts, portion = 1000, 20, 50
	each(t, func(t *testing.T, c *customer) {
		local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			// So that calls are under way at any moment.
			<-time.After(rand.N(8 * time.Millisecond))
			w.WriteHeader(http.StatusNoContent)
		})
		line := newWire(t, c.URL)
		l, ready := c.listen(t, local.URL, line.over)
		for i := range cuts {
			c.publish(t, events.AgentRunCompleted, portion)
			at := (i+1)*portion - rand.IntN(portion-1)
			waitFor(t, time.Millisecond, func() bool { return local.count() >= at })
			line.cut()
			if !l.connected(t).Again {
				t.Error("the client does not know that it was connected before")
			}
		}
		c.await(t, ready.Endpoint, "succeeded", total)
		local.wantOnce(t, total)
		// A node that is too busy to renew its lease may record one twice.
		if n := attempts(t, c, ready.Endpoint); n > total+total/100 {
			t.Errorf("%d attempts are recorded for %d deliveries", n, total)
		}
	})
}

func attempts(t *testing.T, c *customer, endpointID string) (n int) {
	t.Helper()
	err := c.DB.QueryRow(t.Context(), "SELECT count(*) FROM attempts a JOIN deliveries d ON d.id = a.delivery_id WHERE d.endpoint_id = $1", endpointID).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// cutBetweenTheAnswerAndItsReportRepeatsNothing: the local service is not
// called again, and its answer is still recorded.
func cutBetweenTheAnswerAndItsReportRepeatsNothing(t *testing.T, c *customer) {
	line := newWire(t, c.URL)
	local := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		line.cut() // before the answer, so that it cannot be reported
		w.Header().Set("X-Answer", "42")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("taken"))
	})
	l, ready := c.listen(t, local.URL, line.over)
	c.publish(t, events.AgentRunCompleted, 1)
	if !l.connected(t).Again {
		t.Error("the client was not cut off")
	}
	d := c.theDelivery(t, ready.Endpoint, "succeeded", 1)
	local.wantOnce(t, 1)
	if d.At("attempts.0.response_status") != float64(202) || d.Text("attempts.0.response_body") != "taken" || d.Text("attempts.0.response_headers.X-Answer") != "42" {
		t.Errorf("the attempt is %s", d.Body)
	}
}

// awayClientFindsWhatWasHeld: what comes while nobody listens is held, and
// delivered to whoever comes back, under the same ids.
func awayClientFindsWhatWasHeld(t *testing.T, c *customer) {
	local := newReceiver(t, answering(200))
	l, first := c.listen(t, local.URL, nil)
	c.publish(t, events.AgentRunCompleted, 1)
	local.wait(t, 1)
	c.await(t, first.Endpoint, "succeeded", 1)
	l.leave(t)
	c.away(t, first.Endpoint)

	c.publish(t, events.AgentRunFailed, 3)
	eventually(t, func() bool { return c.deliveries(t, first.Endpoint)["held"] == 3 })
	if shown := c.get(t, "/v1/webhooks/"+first.Endpoint); shown.Text("status") != "active" || shown.At("stats.held") != float64(3) {
		t.Errorf("the tunnel is %s", shown.Body)
	}

	_, second := c.listen(t, local.URL, func(o *tunnel.Options) { o.Resume = first.Endpoint })
	if second.Endpoint != first.Endpoint || second.Secret != "" {
		t.Errorf("it came back to %+v", second)
	}
	local.wait(t, 4)
	c.await(t, first.Endpoint, "succeeded", 4)
	local.wantOnce(t, 4)
}

// leavingFinishesWhatIsUnderWay: Ctrl-C waits for the local answer and
// reports it.
func leavingFinishesWhatIsUnderWay(t *testing.T, c *customer) {
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
	l.leave(t)
	c.theDelivery(t, ready.Endpoint, "succeeded", 1)
}

// TestComingAndGoingRepeatsNothing: a client that leaves has reported what it
// forwarded, so the next one, which remembers nothing, gets none of it again.
func TestComingAndGoingRepeatsNothing(t *testing.T) {
	t.Parallel()
	const rounds, portion = 10, 30
	each(t, func(t *testing.T, c *customer) {
		local := newReceiver(t, answering(204))
		l, ready := c.listen(t, local.URL, nil)
		for i := range rounds {
			c.publish(t, events.AgentRunCompleted, portion)
			waitFor(t, time.Millisecond, func() bool { return local.count() >= (i+1)*portion-rand.IntN(portion-1) })
			l.leave(t)
			l, _ = c.listen(t, local.URL, func(o *tunnel.Options) { o.Resume = ready.Endpoint })
		}
		c.await(t, ready.Endpoint, "succeeded", rounds*portion)
		local.wantOnce(t, rounds*portion)
	})
}

// TestRestartedServerFindsItsClients: they are told, come back by themselves
// and miss nothing.
func TestRestartedServerFindsItsClients(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg, clock := configured(t, engine), harness.NewClock()
			c := newCustomer(t, harness.Start(t, cfg, clock))
			line := newWire(t, c.URL)
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
			if err := c.App.Close(); err != nil { // with both under way
				t.Fatal(err)
			}
			if err := <-l.lost; err == nil || err.Error() != "the server is stopping" {
				t.Errorf("the client heard %v", err)
			}
			close(answer)
			c.publish(t, events.AgentRunFailed, 2)
			line.lead(t, harness.Start(t, cfg, clock).URL)
			if again := l.connected(t); again.Endpoint != ready.Endpoint || again.Replaced {
				t.Errorf("it came back to %+v", again)
			}
			c.await(t, ready.Endpoint, "succeeded", 4)
			local.wantOnce(t, 4)
		})
	}
}
