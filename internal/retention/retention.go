// Package retention lets records go when their time is over: it calls each
// record's own purge, in batches small enough that nobody waits for one.
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
	batch = 1000
	every = time.Minute // looking is cheap: every purge has an index
	// pause between batches leaves the writer to those who have customers.
	pause = 20 * time.Millisecond
)

// Purge removes at most limit rows and says how many there were.
type Purge struct {
	Name string
	Run  func(ctx context.Context, tx *db.Tx, limit int64) (int64, error)
}

// Keeper runs the purges.
type Keeper struct {
	DB     *db.DB
	Purges []Purge
	// Before runs ahead of the purges: partitions are made and dropped there.
	Before func(ctx context.Context) error

	passes atomic.Int64
}

// Passes is how often everything was looked through.
func (k *Keeper) Passes() int64 { return k.passes.Load() }

// Run purges now and then until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := k.RunOnce(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("retention failed; it is tried again later", "error", err)
		}
		k.passes.Add(1)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// RunOnce removes everything that is due. What fails keeps nothing else from
// being removed.
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
