// Package retention deletes expired records. It calls each record's own purge in
// small batches, so that other writes don't wait.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
)

const (
	batch    = 1000
	interval = time.Minute // an idle pass is cheap: every purge has an index
	// pause between batches leaves the database to requests.
	pause = 20 * time.Millisecond
)

// Purge deletes at most limit rows and returns how many it deleted.
type Purge struct {
	Name string
	Run  func(ctx context.Context, tx *db.Tx, limit int64) (int64, error)
}

// Keeper runs the purges.
type Keeper struct {
	DB     *db.DB
	Purges []Purge
	// Before runs before the purges. It creates and drops partitions.
	Before func(ctx context.Context) error

	passes atomic.Int64
}

// Passes returns how often all purges have run.
func (k *Keeper) Passes() int64 { return k.passes.Load() }

// Run purges once a minute until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := k.RunOnce(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("failed to purge expired records; retrying", "error", err)
		}
		k.passes.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// RunOnce deletes everything that has expired. If a purge fails, the others still run.
func (k *Keeper) RunOnce(ctx context.Context) (err error) {
	if k.Before != nil {
		err = k.Before(ctx)
	}
	for _, p := range k.Purges {
		if failed := k.purge(ctx, p); failed != nil {
			err = errors.Join(err, fmt.Errorf("purge %s: %w", p.Name, failed))
		}
	}
	return err
}

func (k *Keeper) purge(ctx context.Context, p Purge) error {
	for {
		var n int64
		err := k.DB.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = p.Run(ctx, tx, batch)
			return err
		})
		if err != nil || n < batch {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
