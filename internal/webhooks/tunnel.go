package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
	"turnpike/internal/visibility"
)

// tunnelLife is how long a disconnected tunnel is kept.
const tunnelLife = 24 * time.Hour

// TunnelRequest is a request of a client to open a tunnel.
type TunnelRequest struct {
	Visibility visibility.Filter // of the key that connects
	Events     []string          // for a new tunnel
	Mirrors    string            // or the endpoint whose events and secret it uses
	Resume     string            // or the tunnel to resume
}

// ConnectTunnel creates or resumes a tunnel, and pins its lane to this node. Deliveries
// that were held while it was disconnected become due. The secret is that of a new
// tunnel, shown only once; it is empty for a mirror.
func (s *Service) ConnectTunnel(ctx context.Context, tx *db.Tx, by audit.Actor, in TunnelRequest) (e *Endpoint, secret string, err error) {
	switch {
	case in.Resume != "":
		e, err = s.GetLocked(ctx, tx, in.Visibility, in.Resume)
		switch {
		case err != nil:
		case e.Kind != Tunnel:
			err = fault.Invalid("resume", "%s is not a tunnel.", in.Resume)
		case e.CreatedBy != by.Name:
			err = fault.Param(fault.NotFound, "resume", "This key has no tunnel %s. Only the key that opened a tunnel can resume it.", in.Resume)
		}
	case in.Mirrors != "":
		var origin *Endpoint
		// Locked: a concurrent deletion wouldn't delete the new mirror.
		if origin, err = s.GetLocked(ctx, tx, in.Visibility, in.Mirrors); err != nil {
			return nil, "", err
		}
		if origin.Kind != HTTP {
			return nil, "", fault.Invalid("endpoint", "%s is a tunnel and cannot be mirrored.", in.Mirrors)
		}
		e = &Endpoint{Tenant: origin.Tenant, Project: origin.Project, Kind: Tunnel, Events: origin.Events, Mirrors: origin.ID}
		_, err = s.Create(ctx, tx, by, e)
	default:
		if err := events.CheckPatterns("events", in.Events); err != nil {
			return nil, "", err
		}
		vis := in.Visibility
		e = &Endpoint{Tenant: vis.Tenant, Project: vis.Project, Kind: Tunnel, Events: in.Events}
		secret, err = s.Create(ctx, tx, by, e)
	}
	if err != nil {
		return nil, "", err
	}
	if _, err := tx.Exec(ctx, "UPDATE endpoints SET disconnected_at = NULL WHERE id = $1", e.ID); err != nil {
		return nil, "", err
	}
	if err := s.resume(ctx, tx, e, choreDeliver); err != nil {
		return nil, "", err
	}
	return e, secret, lanes.Pin(ctx, tx, lanes.Pinning{Queue: Queue, Lane: e.ID, Node: s.Node, Now: s.Now()})
}

// DisconnectTunnel holds a tunnel's deliveries until its client connects again. It does
// nothing if the client has connected to another node.
func (s *Service) DisconnectTunnel(ctx context.Context, id string) error {
	return s.disconnect(ctx, id, func(node string) bool { return node == s.Node })
}

// DisconnectDead disconnects the tunnels of nodes that aren't alive.
func (s *Service) DisconnectDead(ctx context.Context, alive []string) error {
	connected, err := db.List(ctx, s.DB, db.Value[string], "SELECT id FROM endpoints WHERE kind = 'tunnel' AND disconnected_at IS NULL AND deleted_at IS NULL ORDER BY id")
	if err != nil {
		return fmt.Errorf("read tunnels: %w", err)
	}
	dead := func(node string) bool { return !slices.Contains(alive, node) }
	for _, id := range connected {
		node, err := lanes.PinnedNode(ctx, s.DB, Queue, id)
		if err == nil && dead(node) {
			err = s.disconnect(ctx, id, dead)
		}
		if err != nil {
			return fmt.Errorf("disconnect tunnel %s: %w", id, err)
		}
	}
	return nil
}

func (s *Service) disconnect(ctx context.Context, id string, from func(node string) bool) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		e, err := find(ctx, tx, id, tx.Lock("endpoints"))
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		if err != nil || e.DeletedAt != nil {
			return err
		}
		pinned, err := lanes.LockPinnedNode(ctx, tx, Queue, id)
		if err != nil || !from(pinned) {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE endpoints SET disconnected_at = $2 WHERE id = $1", id, s.Now().UnixMicro()); err != nil {
			return err
		}
		if e.Status == Paused {
			return nil
		}
		return s.pause(ctx, tx, system, e, pausedDisconnected)
	})
}

// ListTunnels returns a page of the visible tunnels.
func (s *Service) ListTunnels(ctx context.Context, q db.Querier, vis visibility.Filter, page db.Page) (*db.Found[*Endpoint], error) {
	search := db.Search{Table: "endpoints", Columns: endpointColumns, Where: vis.Rows()}
	search.Where.Require("deleted_at IS NULL")
	search.Where.Add("kind =", string(Tunnel))
	return db.Find(ctx, q, search, page, endpointRecord)
}

// deleteMirrors deletes the tunnels that mirror a deleted endpoint.
func (s *Service) deleteMirrors(ctx context.Context, tx *db.Tx, by audit.Actor, origin *Endpoint) error {
	list, err := db.List(ctx, tx, scanEndpoint, "SELECT "+endpointColumns+" FROM endpoints WHERE workspace_id = $1 AND environment = $2 AND mirrors = $3 AND deleted_at IS NULL ORDER BY id"+tx.Lock("endpoints"),
		origin.WorkspaceID, origin.Environment, origin.ID)
	if err != nil {
		return fmt.Errorf("read mirrors of %s: %w", origin.ID, err)
	}
	for _, e := range list {
		if err := s.delete(ctx, tx, by, e); err != nil {
			return fmt.Errorf("delete tunnel %s: %w", e.ID, err)
		}
	}
	return nil
}

// TunnelState is the state of a tunnel whose client is connected to this node.
type TunnelState string

// The states.
const (
	TunnelHere    TunnelState = "here"         // still connected to this node
	TunnelMoved   TunnelState = "moved"        // its client has connected to another node
	TunnelHeld    TunnelState = "disconnected" // another node took this one for dead
	TunnelDeleted TunnelState = "deleted"
)

// TunnelState reports whether the tunnel is still connected to this node.
func (s *Service) TunnelState(ctx context.Context, id string) (TunnelState, error) {
	e, err := find(ctx, s.DB, id, "")
	switch {
	case errors.Is(err, db.ErrNotFound) || err == nil && e.DeletedAt != nil:
		return TunnelDeleted, nil
	case err != nil:
		return "", err
	}
	node, err := lanes.PinnedNode(ctx, s.DB, Queue, id)
	switch {
	case err != nil:
		return "", err
	case node != s.Node:
		return TunnelMoved, nil
	case e.Status != Active:
		return TunnelHeld, nil
	}
	return TunnelHere, nil
}

// removeTunnels deletes tunnels that were disconnected for tunnelLife.
func (s *Service) removeTunnels(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
	list, err := db.List(ctx, tx, scanEndpoint, "SELECT "+endpointColumns+" FROM endpoints WHERE disconnected_at < $1 AND disconnected_at IS NOT NULL AND deleted_at IS NULL ORDER BY id LIMIT $2"+tx.Lock("endpoints"),
		s.Now().Add(-tunnelLife).UnixMicro(), n)
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if err := s.delete(ctx, tx, system, e); err != nil {
			return 0, fmt.Errorf("delete tunnel %s: %w", e.ID, err)
		}
	}
	return int64(len(list)), nil
}
