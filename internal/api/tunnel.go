package api

import (
	"context"
	"net/http"
	"strings"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/tunnel"
	"turnpike/internal/webhooks"
)

// openTunnel upgrades the request to a WebSocket and stays with it. What is
// wrong before that is an ordinary error.
func openTunnel(c *Call) error {
	want, err := c.tunnelRequest()
	if err != nil {
		return err
	}
	conn, err := c.connectTunnel(want)
	if err != nil {
		return err
	}
	c.status, c.wrote = http.StatusSwitchingProtocols, true
	conn.Serve(c, c.r)
	return nil
}

func (c *Call) tunnelRequest() (want webhooks.TunnelRequest, err error) {
	q := c.query("events", "endpoint", "resume")
	if len(q.values) > 1 {
		q.fail(fault.Invalid("events", "events, endpoint and resume exclude each other: a mirror has the events of its endpoint, and a tunnel keeps its own"))
	}
	want = webhooks.TunnelRequest{Visibility: c.Principal.Visibility(),
		Events: []string{"*"}, Mirrors: q.text("endpoint"), Resume: q.text("resume")}
	if list := q.text("events"); list != "" {
		want.Events = strings.Split(list, ",")
	}
	for _, id := range []string{want.Mirrors, want.Resume} {
		if id != "" && !ids.Valid(ids.Endpoint, id) {
			q.fail(fault.NoSuch("webhook endpoint", masked(id, 64)))
		}
	}
	if q.err != nil {
		return want, q.err
	}
	return want, tunnel.CheckUpgrade(c.r)
}

// connectTunnel makes the tunnel this node's. That and the log entry are one
// transaction: no byte leaves before the request is in the log.
func (c *Call) connectTunnel(want webhooks.TunnelRequest) (*tunnel.Conn, error) {
	defer c.impatient()()
	bearer, _ := bearerOf(c.r)
	ip, scope, project := c.ip, c.scope, c.Principal.Project
	return c.s.Tunnels.Open(c.Context(), tunnel.Opening{By: c.Actor(), Want: want,
		Settle: func(ctx context.Context, tx *db.Tx) error {
			return c.record.SettleIn(ctx, tx, c.ending(http.StatusSwitchingProtocols, ""))
		},
		Still: func(ctx context.Context) error {
			p, err := c.s.Auth.Authenticate(ctx, bearer, ip.String())
			if err != nil {
				return err
			}
			if !p.AllowsIP(ip) {
				return fault.New(fault.IPNotAllowed, "this key may not be used from the address %s", ip)
			}
			if p.Project != "" && p.Project != project {
				return fault.New(fault.ProjectNotAllowed, "This key has been pinned to project %q. Open the tunnel again.", p.Project)
			}
			return p.Require(scope)
		}})
}
