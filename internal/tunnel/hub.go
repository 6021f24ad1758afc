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
	// reconnectPatience is how long a delivery waits for its tunnel's client
	// to come back, before the lane is asked again what there is to do.
	reconnectPatience = time.Second
	// comeBack is how long a client that was cut off has for coming back as if
	// nothing had happened. Holding its deliveries, and letting them go again,
	// costs a write for each.
	comeBack = 2 * time.Second
	// storePatience is for storing that a client has left; leaveAgain is how
	// long after a failure it is tried again.
	storePatience = 4 * time.Second
	leaveAgain    = time.Second
)

// Hub has the connections of this node's tunnels.
type Hub struct {
	db    *db.DB
	hooks *webhooks.Service

	// turns are taken by whoever connects or disconnects a tunnel, so that a
	// client's leaving cannot undo its return. Tunnels share them by hash.
	turns [64]sync.Mutex
	seed  maphash.Seed

	mu      sync.Mutex
	conns   map[string]*Conn // by endpoint; one that ended stays until that is stored
	arrived chan struct{}    // closed and made anew when a client comes
	stopped bool

	stop chan struct{}
	open sync.WaitGroup
}

// NewHub makes a hub. Run ends its connections.
func NewHub(d *db.DB, hooks *webhooks.Service) *Hub {
	return &Hub{db: d, hooks: hooks, seed: maphash.MakeSeed(), conns: map[string]*Conn{}, arrived: make(chan struct{}), stop: make(chan struct{})}
}

// Run waits until ctx ends. Then it sends every client away, to come back when
// there is a server again, and returns when that they left is stored.
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

// Opening is a client that wants a tunnel.
type Opening struct {
	By   audit.Actor
	Want webhooks.TunnelRequest
	// Settle completes the request's log entry, in the transaction that
	// connects the tunnel: nothing is answered that is not in the log.
	Settle func(ctx context.Context, tx *db.Tx) error
	// Still returns an error when the caller may not listen any more.
	Still func(ctx context.Context) error
}

// Open connects a tunnel to this node. Whoever calls it calls Serve on the
// connection next.
func (h *Hub) Open(ctx context.Context, o Opening) (c *Conn, err error) {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil, fault.New(fault.Overloaded, "the server is stopping; try again in a moment")
	}
	h.open.Add(1)
	h.mu.Unlock()
	defer func() {
		if err != nil {
			h.open.Done()
		}
	}()
	if o.Want.Resume != "" {
		turn := h.turn(o.Want.Resume)
		turn.Lock()
		defer turn.Unlock()
	}
	var hello Hello
	err = h.db.Write(ctx, func(tx *db.Tx) error {
		e, secret, err := h.hooks.ConnectTunnel(ctx, tx, o.By, o.Want)
		if err != nil {
			return err
		}
		hello = Hello{Endpoint: e.ID, Events: e.Events, Secret: secret, Mirrors: e.Mirrors}
		return o.Settle(ctx, tx)
	})
	if err != nil {
		return nil, err
	}
	c = newConn(h, hello, o.Still)
	h.put(c)
	return c, nil
}

// put makes a connection its tunnel's, in place of the one it had.
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

func (h *Hub) turn(endpointID string) *sync.Mutex {
	return &h.turns[maphash.String(h.seed, endpointID)%uint64(len(h.turns))]
}

// leave stores that a client has left, unless it has come back by then. It
// returns when that is done, or when the server stops and it cannot be: then
// it is done when this node is known to be gone.
func (h *Hub) leave(c *Conn) {
	if !c.goodbye && c.code != closeReplaced {
		select {
		case <-time.After(comeBack):
		case <-h.stop:
		}
	}
	for {
		h.mu.Lock()
		last := h.stopped
		h.mu.Unlock()
		err := h.tryLeave(c)
		if err == nil {
			return
		}
		slog.Warn("cannot store that a tunnel's client has left", "endpoint", c.hello.Endpoint, "error", err, "again", !last)
		if last {
			return
		}
		select {
		case <-time.After(leaveAgain):
		case <-h.stop:
		}
	}
}

func (h *Hub) tryLeave(c *Conn) error {
	id := c.hello.Endpoint
	turn := h.turn(id)
	turn.Lock()
	defer turn.Unlock()
	if h.connection(id) != c {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	if err := h.hooks.DisconnectTunnel(ctx, id); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, id)
	return nil
}

func (h *Hub) connection(endpointID string) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[endpointID]
}

// Send takes a delivery to the tunnel's client and waits for what it reports.
// Without a client, or when it is lost before it reports, nothing was sent.
func (h *Hub) Send(ctx context.Context, e *webhooks.Endpoint, m *webhooks.Message) webhooks.Outcome {
	patience := time.NewTimer(reconnectPatience)
	defer patience.Stop()
	for {
		h.mu.Lock()
		c, arrived := h.conns[e.ID], h.arrived
		h.mu.Unlock()
		if c != nil && !c.over() {
			return c.send(ctx, m)
		}
		select {
		case <-arrived:
		case <-patience.C:
			return webhooks.Outcome{Unsent: true}
		case <-h.stop:
			return webhooks.Outcome{Unsent: true}
		case <-ctx.Done():
			return webhooks.Outcome{Unsent: true}
		}
	}
}
