package api

import (
	"context"
	"net/http"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/tunnel"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

// openTunnel upgrades the request to a WebSocket and serves it. Errors before the
// upgrade are ordinary error responses.
func openTunnel(c *Call) error {
	want, err := c.tunnelRequest()
	if err != nil {
		return err
	}
	conn, err := c.connectTunnel(want)
	if err != nil {
		return err
	}
	c.Status, c.Started = http.StatusSwitchingProtocols, true
	c.watchCredential()
	conn.Serve(c.W, c.R)
	return nil
}

func (c *Call) tunnelRequest() (want webhooks.TunnelRequest, err error) {
	q := c.query("events", "endpoint", "resume")
	if len(q.values) > 1 {
		q.fail(fault.Invalid("events", "Use only one of events, endpoint and resume. A mirror has the events of its endpoint, and a resumed tunnel keeps its own."))
	}
	want = webhooks.TunnelRequest{Visibility: c.Principal.Visibility(),
		Events: []string{"*"}, Mirrors: q.text("endpoint"), Resume: q.text("resume")}
	if list := q.text("events"); list != "" {
		want.Events = strings.Split(list, ",")
	}
	for _, id := range []string{want.Mirrors, want.Resume} {
		if id != "" && !ids.Valid(ids.Endpoint, id) {
			q.fail(fault.NoSuch("webhook endpoint", web.Sanitize(id, 64)))
		}
	}
	if q.err != nil {
		return want, q.err
	}
	return want, tunnel.CheckUpgrade(c.R)
}

// connectTunnel connects the tunnel to this node. The same transaction settles the
// log entry, so that no byte is sent before the request is in the log.
func (c *Call) connectTunnel(want webhooks.TunnelRequest) (*tunnel.Conn, error) {
	ctx, cancel := web.WithStorageTimeout(c.Context())
	defer cancel()
	return c.s.Tunnels.Open(ctx, tunnel.Opening{By: c.Actor(), Request: want,
		Settle: func(ctx context.Context, tx *db.Tx) error {
			return c.record.SettleIn(ctx, tx, c.settlement(http.StatusSwitchingProtocols, nil))
		}})
}
