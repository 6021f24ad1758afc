package tunnel_test

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/tunnel"
	"turnpike/test/harness"
)

// Its held deliveries are discarded with a reason.
func TestTunnelIsDeletedADayAfterItsDisconnect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *tenant) {
		l, ready := c.listen(t, newReceiver(t, respond(200)).URL, nil)
		c.Clock.Turn(48 * time.Hour)
		c.retain(t)
		c.get(t, "/v1/webhooks/"+ready.Endpoint) // connected tunnels are kept
		l.stopAndWait(t)
		c.awaitDisconnect(t, ready.Endpoint)
		c.publish(t, events.AgentRunCompleted, 1)
		c.await(t, ready.Endpoint, "held", 1)
		c.Clock.Turn(24*time.Hour - time.Minute)
		c.retain(t)
		c.get(t, "/v1/webhooks/"+ready.Endpoint)
		c.Clock.Turn(2 * time.Minute)
		c.retain(t)
		c.Do(t, harness.Request{Method: "GET", Path: "/v1/webhooks/" + ready.Endpoint, Key: c.key}).Want(t, 404, "not_found")
		if d := c.onlyDelivery(t, ready.Endpoint, "discarded", 0); d.Text("reason") != "endpoint_deleted" {
			t.Errorf("got delivery %s", d.Body)
		}
		// --resume with the ID of a deleted tunnel is an error.
		again := c.start(t, "http://localhost:1", func(o *tunnel.Options) { o.Resume = ready.Endpoint })
		if err := again.end(t); err == nil {
			t.Error("a deleted tunnel was resumed")
		}
	})
}

func (c *tenant) retain(t *testing.T) {
	t.Helper()
	if err := c.App.RunRetention(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestClientOpensANewTunnelIfItsOwnWasDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *tenant) {
		local := newReceiver(t, respond(200))
		line := newProxy(t, c.URL)
		l, first := c.listen(t, local.URL, func(o *tunnel.Options) {
			o.Events = []string{"agent.run.*"}
			line.over(o)
		})
		line.block()
		c.awaitDisconnect(t, first.Endpoint)
		c.Clock.Turn(25 * time.Hour)
		c.retain(t)
		line.unblock()
		second := l.connected(t)
		if !second.Replaced || second.Endpoint == first.Endpoint || second.Secret == "" || second.Secret == first.Secret || second.Events[0] != "agent.run.*" {
			t.Errorf("got %+v after reconnecting", second)
		}
		c.publish(t, events.AgentRunCompleted, 1)
		local.wait(t, 1)
	})
}

// The client then opens another one.
func deletingATunnelDisconnectsItsClient(t *testing.T, c *tenant) {
	l, first := c.listen(t, newReceiver(t, respond(200)).URL, nil)
	c.Do(t, harness.Request{Method: "DELETE", Path: "/v1/webhooks/" + first.Endpoint, Key: c.key}).Want(t, 200, "")
	if second := l.connected(t); !second.Replaced || second.Endpoint == first.Endpoint {
		t.Errorf("got %+v after reconnecting", second)
	}
}

// The next start stores the disconnects of a node that was killed.
func TestTunnelsOfADeadNodeAreDisconnected(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg, clock := configured(t, engine), harness.NewClock()
			c := newTenant(t, harness.Start(t, cfg, clock))
			l, ready := c.listen(t, newReceiver(t, respond(200)).URL, nil)
			l.stopAndWait(t)
			c.awaitDisconnect(t, ready.Endpoint)
			if err := c.App.Close(); err != nil {
				t.Fatal(err)
			}
			// The state after a node was killed while a client was connected.
			c.write(t, func(tx *db.Tx) error {
				if _, err := tx.Exec(t.Context(), "UPDATE lanes SET pinned_to = 'node_dead' WHERE id = $1", ready.Endpoint); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "UPDATE endpoints SET disconnected_at = NULL, status = 'active', paused_at = NULL, paused_reason = NULL WHERE id = $1", ready.Endpoint)
				return err
			})
			next := &tenant{Server: harness.Start(t, cfg, clock), workspace: c.workspace, key: c.key}
			next.awaitDisconnect(t, ready.Endpoint)
			next.publish(t, events.AgentRunCompleted, 1)
			next.await(t, ready.Endpoint, "held", 1)
			local := newReceiver(t, respond(200))
			next.listen(t, local.URL, func(o *tunnel.Options) { o.Resume = ready.Endpoint })
			next.await(t, ready.Endpoint, "succeeded", 1)
			local.wantOnce(t, 1)
		})
	}
}

func TestClientThatSwitchesNodesMissesNothing(t *testing.T) {
	t.Parallel()
	const moves, portion = 5, 25
	cfg, clock := configured(t, "postgres"), harness.NewClock()
	a := newTenant(t, harness.Start(t, cfg, clock))
	b := harness.Start(t, cfg, clock)
	local := newReceiver(t, respond(204))
	line := newProxy(t, a.URL)
	l, ready := a.listen(t, local.URL, line.over)
	for i := range moves {
		a.publish(t, events.AgentRunCompleted, portion)
		eventually(t, func() bool { return local.count() >= i*portion+portion/3 })
		if i == moves-1 {
			// The last time its node shuts down. The client is connected to a.
			line.routeTo(t, b.URL)
			if err := a.App.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			line.routeTo(t, []string{b.URL, a.URL}[i%2])
			line.cut()
		}
		if again := l.connected(t); again.Endpoint != ready.Endpoint || again.Replaced {
			t.Fatalf("got %+v after reconnecting", again)
		}
	}
	on := &tenant{Server: b, workspace: a.workspace, key: a.key}
	on.await(t, ready.Endpoint, "succeeded", moves*portion)
	local.wantOnce(t, moves*portion)
	select {
	case err := <-l.ended:
		t.Errorf("the client ended: %v", err)
	default:
	}
}
