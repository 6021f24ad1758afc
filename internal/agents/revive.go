package agents

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"turnpike/internal/db"
)

const (
	reviveEvery = time.Minute
	// mostAhead is further ahead than any run is due that nobody is waited for:
	// what failed is tried again within minutes.
	mostAhead = time.Hour
)

// ahead are runs that wait for nobody, and are due after $1.
const ahead = `FROM agent_runs WHERE id IN (SELECT id FROM agent_runs WHERE due_at > $1) AND status IN ('queued', 'in_progress', 'verifying', 'cancelling')`

// reviveNowAndThen revives runs until ctx ends: when the server starts, and in
// case the clock is set back while it runs.
func (s *Service) reviveNowAndThen(ctx context.Context) {
	tick := time.NewTicker(reviveEvery)
	defer tick.Stop()
	for {
		if err := s.revive(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("cannot look for runs of a wrong time; it is tried again", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// revive has runs go on that are due in a future that can only come from a clock
// that was ahead. Who works one of them at the moment is not disturbed.
func (s *Service) revive(ctx context.Context) error {
	now := s.now()
	limit := now.Add(mostAhead).UnixMicro()
	var any bool
	if err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 "+ahead+")", limit).Scan(&any); err != nil || !any {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, "UPDATE agent_runs SET due_at = $2 WHERE id IN (SELECT id "+ahead+" ORDER BY id"+tx.Lock("agent_runs")+") RETURNING lane",
			limit, now.UnixMicro())
		lanes, err := db.All(rows, err, func(r db.Row) (lane string, err error) {
			err = r.Scan(&lane)
			return lane, err
		})
		if err != nil {
			return fmt.Errorf("revive runs: %w", err)
		}
		for _, lane := range lanes {
			if err := wake(ctx, tx, lane, now); err != nil {
				return err
			}
		}
		return nil
	})
}
