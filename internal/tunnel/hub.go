package tunnel

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/webhooks"
)

const (
	// sendWait is how long a delivery waits for its client to reconnect before it is
	// returned to its lane.
	sendWait = time.Second
	// reconnectGrace is how long a disconnected client can reconnect before its
	// deliveries are held. Holding and resuming costs a write for each.
	reconnectGrace = 2 * time.Second
	// storeTimeout limits how long storing a disconnect takes; after disconnectRetry
	// it is retried.
	storeTimeout    = 4 * time.Second
	disconnectRetry = time.Second
)

// Hub holds the connections of this node's tunnels.
type Hub struct {
	db    *db.DB
	hooks *webhooks.Service

	// locks serialize connecting and disconnecting a tunnel, so that a late disconnect
	// can't undo a reconnect. Tunnels share them by hash.
	locks [64]sync.Mutex
	seed  maphash.Seed

	mu      sync.Mutex
	conns   map[string]*Conn // by endpoint; an ended one stays until its disconnect is stored
	arrived chan struct{}    // closed and replaced when a client connects
	stopped bool

	stop chan struct{}
	open sync.WaitGroup
}

// NewHub returns a hub. Run ends its connections.
func NewHub(d *db.DB, hooks *webhooks.Service) *Hub {
	return &Hub{db: d, hooks: hooks, seed: maphash.MakeSeed(), conns: map[string]*Conn{}, arrived: make(chan struct{}), stop: make(chan struct{})}
}

// Run waits until ctx ends. Then it disconnects all clients, which reconnect to a
// running server, and returns when the disconnects are stored.
func (h *Hub) Run(ctx context.Context) {
	<-ctx.Done()
	h.mu.Lock()
	if !h.stopped {
		h.stopped = true
		close(h.stop)
	}
	for _, c := range h.conns {
		c.end(websocket.StatusServiceRestart, "the server is stopping")
	}
	h.mu.Unlock()
	h.open.Wait()
}

// Opening is a request to open a tunnel.
type Opening struct {
	By      audit.Actor
	Request webhooks.TunnelRequest
	// Settle completes the request's log entry in the transaction that connects the
	// tunnel: every response is in the log.
	Settle func(ctx context.Context, tx *db.Tx) error
}

// Open connects a tunnel to this node. The caller must call Serve on the connection.
func (h *Hub) Open(ctx context.Context, o Opening) (c *Conn, err error) {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil, fault.New(fault.Overloaded, "The server is stopping. Retry in a moment.")
	}
	h.open.Add(1)
	h.mu.Unlock()
	defer func() {
		if err != nil {
			h.open.Done()
		}
	}()
	if o.Request.Resume != "" {
		lock := h.lockOf(o.Request.Resume)
		lock.Lock()
		defer lock.Unlock()
	}
	var hello Hello
	err = h.db.Write(ctx, func(tx *db.Tx) error {
		e, secret, err := h.hooks.ConnectTunnel(ctx, tx, o.By, o.Request)
		if err != nil {
			return err
		}
		hello = Hello{Endpoint: e.ID, Events: e.Events, Secret: secret, Mirrors: e.Mirrors}
		return o.Settle(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	c = newConn(h, hello)
	h.put(c)
	return c, nil
}

// put registers a connection, and ends the one that it replaces.
func (h *Hub) put(c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.conns[c.hello.Endpoint]; old != nil {
		old.end(closeReplaced, "another client has connected")
	}
	h.conns[c.hello.Endpoint] = c
	close(h.arrived)
	h.arrived = make(chan struct{})
	if h.stopped {
		c.end(websocket.StatusServiceRestart, "the server is stopping")
	}
}

func (h *Hub) lockOf(endpointID string) *sync.Mutex {
	return &h.locks[maphash.String(h.seed, endpointID)%uint64(len(h.locks))]
}

// disconnect stores that a client is disconnected, unless it has reconnected. It
// retries until the server stops; then other nodes store it once this node is gone.
func (h *Hub) disconnect(c *Conn) {
	if !c.byClient && c.code != closeReplaced {
		select {
		case <-time.After(reconnectGrace):
		case <-h.stop:
		}
	}
	for {
		h.mu.Lock()
		last := h.stopped
		h.mu.Unlock()
		err := h.tryDisconnect(c)
		if err == nil {
			return
		}
		slog.Warn("failed to store the disconnect of a tunnel", "endpoint", c.hello.Endpoint, "error", err, "retrying", !last)
		if last {
			return
		}
		select {
		case <-time.After(disconnectRetry):
		case <-h.stop:
		}
	}
}

func (h *Hub) tryDisconnect(c *Conn) error {
	id := c.hello.Endpoint
	lock := h.lockOf(id)
	lock.Lock()
	defer lock.Unlock()
	h.mu.Lock()
	replaced := h.conns[id] != c
	h.mu.Unlock()
	if replaced {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := h.hooks.DisconnectTunnel(ctx, id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, id)
	return nil
}

// Send sends a delivery to the tunnel's client and waits for its result. If no client
// is connected, or it disconnects before it reports one, the outcome is NotConnected.
func (h *Hub) Send(ctx context.Context, e *webhooks.Endpoint, m *webhooks.Message) webhooks.Outcome {
	timeout := time.NewTimer(sendWait)
	defer timeout.Stop()
	for {
		h.mu.Lock()
		c, arrived := h.conns[e.ID], h.arrived
		h.mu.Unlock()
		if c != nil && !c.hasEnded() {
			return c.send(ctx, m)
		}
		select {
		case <-arrived:
		case <-timeout.C:
			return webhooks.Outcome{NotConnected: true}
		case <-h.stop:
			return webhooks.Outcome{NotConnected: true}
		case <-ctx.Done():
			return webhooks.Outcome{NotConnected: true}
		}
	}
}
