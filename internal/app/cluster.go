package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// recoverInterval is how often a node checks for nodes to evict.
const recoverInterval = 30 * time.Second

// runNode stores heartbeats until the instance ends.
func (i *instance) runNode(ctx context.Context) {
	if err := i.node.Run(ctx); errors.Is(err, nodes.ErrEvicted) {
		close(i.evicted)
	}
}

// recoverEvictedNodes evicts dead nodes, and recovers their requests and
// leases.
func (i *instance) recoverEvictedNodes(ctx context.Context) {
	tick := time.NewTicker(recoverInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := errors.Join(i.recoverOnce(ctx), i.disconnectEvicted(ctx)); err != nil && ctx.Err() == nil {
				slog.Log(ctx, db.LogLevel(err), "failed to recover from evicted nodes; retrying", "retry_in", recoverInterval, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// recoverOnce charges the open requests of evicted nodes before it releases the
// leases that pay for them. A node whose requests can't be charged keeps its
// leases and doesn't affect others.
func (i *instance) recoverOnce(ctx context.Context) error {
	_, evictErr := i.node.EvictStale(ctx)
	_, recoverErr := i.log.Recover(ctx, i.store.DB)
	return errors.Join(evictErr, recoverErr, i.settler.CloseEvicted(ctx))
}

// disconnectEvicted marks the tunnels of evicted nodes as disconnected.
func (i *instance) disconnectEvicted(ctx context.Context) error {
	members, err := nodes.Members(ctx, i.store.DB)
	if err != nil {
		return err
	}
	return i.hooks.DisconnectDead(ctx, members)
}
