package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/db"
)

const (
	renewClaim    = 30 * time.Second
	claimDuration = 4 * renewClaim
)

// ErrClaimLost means that another node has taken over the work, because this one
// could not reach the database for too long.
var ErrClaimLost = errors.New("another node has taken over the work, because this one could not reach the database")

// Claim gives work to one node at a time: a row of the table meta that says until
// when which node has it. Its value has microseconds with leading zeros, which
// sort as text, a space and the node.
type Claim struct {
	DB   *db.DB
	Row  string
	Node string
	Now  func() time.Time

	value string
}

func (c *Claim) until(after time.Duration) string {
	return fmt.Sprintf("%020d %s", c.DB.At(c.Now()).Add(after).UnixMicro(), c.Node)
}

// Take reports whether this node has the work now, until End. Hold renews it. A node
// that has left or was evicted has no claim.
func (c *Claim) Take(ctx context.Context) (taken bool, err error) {
	err = c.DB.Write(ctx, func(tx *db.Tx) error {
		c.value = c.until(claimDuration)
		n, err := tx.Exec(ctx, `INSERT INTO meta (name, value) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.value < $3 OR substr(meta.value, 22) NOT IN (SELECT id FROM nodes)`, c.Row, c.value, c.until(0))
		taken = n > 0
		return err
	})
	return taken, db.Wrap(err, "claim "+c.Row)
}

// Hold renews the claim while do runs. It cancels the context of do with
// ErrClaimLost if another node has taken over.
func (c *Claim) Hold(ctx context.Context, do func(ctx context.Context) error) error {
	working, cancel := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		c.keep(working, cancel)
	}()
	err := do(working)
	if cause := context.Cause(working); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	<-renewed
	return err
}

// keep renews the claim until ctx ends, or cancels it.
func (c *Claim) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(renewClaim)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := c.End(ctx, claimDuration); errors.Is(err, ErrClaimLost) {
			cancel(err)
			return
		}
	}
}

// End sets when the claim ends: now for 0, or later, so that no node repeats a
// failure immediately.
func (c *Claim) End(ctx context.Context, after time.Duration) error {
	next := c.until(after)
	err := c.DB.Write(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "UPDATE meta SET value = $3 WHERE name = $1 AND value = $2", c.Row, c.value, next)
		if err == nil && n == 0 {
			err = ErrClaimLost
		}
		return err
	})
	if err == nil {
		c.value = next
	}
	return err
}

// Check fails with ErrClaimLost unless this node still has the work when the
// transaction commits.
func (c *Claim) Check(ctx context.Context, tx *db.Tx) error {
	value, err := db.Value[string](tx.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1"+tx.Lock("meta"), c.Row))
	if err == nil && !strings.HasSuffix(value, " "+c.Node) {
		err = ErrClaimLost
	}
	return err
}
