package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/lanes"
)

// tunnelLife is how long a tunnel waits for its client to come back.
const tunnelLife = 24 * time.Hour

// TunnelRequest is what a client wants to hear.
type TunnelRequest struct {
	WorkspaceID string
	Environment accounts.Environment
	Events      []string // of a tunnel of its own
	Mirrors     string   // or the endpoint whose events and secret it wants
	Resume      string   // or the tunnel that it had before
}

// ConnectTunnel makes a tunnel, or finds the one that the client had, and gives
// its lane to this node. What was held while nobody listened is delivered. The
// secret is that of a new tunnel, shown this once; a mirror has none of its own.
func (s *Service) ConnectTunnel(ctx context.Context, tx *db.Tx, by audit.Actor, in TunnelRequest) (e *Endpoint, secret string, err error) {
	switch {
	case in.Resume != "":
		e, err = s.GetLocked(ctx, tx, in.WorkspaceID, in.Environment, in.Resume)
		if err == nil && e.Kind != Tunnel {
			err = fault.Invalid("resume", "%s is no tunnel", in.Resume)
		}
	case in.Mirrors != "":
		var origin *Endpoint
		if origin, err = s.Get(ctx, tx, in.WorkspaceID, in.Environment, in.Mirrors); err != nil {
			return nil, "", err
		}
		if origin.Kind != HTTP {
			return nil, "", fault.Invalid("endpoint", "%s is a tunnel itself", in.Mirrors)
		}
		e = &Endpoint{WorkspaceID: in.WorkspaceID, Environment: in.Environment, Kind: Tunnel, Events: origin.Events, Mirrors: origin.ID}
		_, err = s.Create(ctx, tx, by, e)
	default:
		if err := events.CheckPatterns("events", in.Events); err != nil {
			return nil, "", err
		}
		e = &Endpoint{WorkspaceID: in.WorkspaceID, Environment: in.Environment, Kind: Tunnel, Events: in.Events}
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
	return e, secret, lanes.Pin(ctx, tx, Queue, e.ID, s.node, s.now())
}

// DisconnectTunnel holds a tunnel's deliveries until its client is back. It
// does nothing when the client has connected to another node meanwhile.
func (s *Service) DisconnectTunnel(ctx context.Context, id string) error {
	return s.db.Write(ctx, func(tx *db.Tx) error {
		pinned, err := lanes.PinnedTo(ctx, tx, Queue, id)
		if err != nil || pinned != s.node {
			return err
		}
		e, err := find(ctx, tx, id, tx.Lock("endpoints"))
		if errors.Is(err, db.ErrNotFound) {
			return nil
		}
		if err != nil || e.DeletedAt != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE endpoints SET disconnected_at = $2 WHERE id = $1", id, s.now().UnixMicro()); err != nil {
			return err
		}
		if e.Status == Paused {
			return nil
		}
		return s.pause(ctx, tx, system, e, pausedDisconnected)
	})
}

// removeTunnels deletes those whose clients have been away for too long.
func (s *Service) removeTunnels(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
	rows, err := tx.Query(ctx, "SELECT "+endpointColumns+" FROM endpoints WHERE disconnected_at < $1 AND disconnected_at IS NOT NULL AND deleted_at IS NULL LIMIT $2",
		s.now().Add(-tunnelLife).UnixMicro(), n)
	list, err := db.All(rows, err, scanEndpoint)
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if err := s.Delete(ctx, tx, system, e); err != nil {
			return 0, fmt.Errorf("delete tunnel %s: %w", e.ID, err)
		}
	}
	return int64(len(list)), nil
}
