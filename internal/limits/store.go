package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
)

const (
	// aliveFor is how long a node's slots count after its last heartbeat.
	// Heartbeats are sent every second.
	aliveFor = 5 * time.Second

	// wantedFor is how long nodes react to a refused slot, and maxWanted limits
	// the IDs per heartbeat.
	wantedFor = 3 * time.Second
	maxWanted = 1000

	// purgeAfter is when the row of an unused ID is deleted.
	purgeAfter = time.Hour
)

// store shares limits between nodes through the database.
type store struct {
	db     *db.DB
	node   string
	group  *db.Group
	leases *db.Queue[*leaseRequest]
}

// newStore creates a store with a separate commit group: a lease must not wait
// for the log's fsync. One transaction handles several IDs, and so uses one
// connection.
func newStore(d *db.DB, node string) *store {
	s := &store{db: d, node: node, group: db.NewGroup(d).Named("limits")}
	s.leases = db.NewQueue(s.group, false, s.processLeases)
	return s
}

// processLeases handles lease requests, sorted by ID so that nodes can't
// deadlock.
func (s *store) processLeases(ctx context.Context, tx *db.Tx, requests []*leaseRequest) error {
	sorted := slices.Clone(requests)
	slices.SortStableFunc(sorted, func(a, b *leaseRequest) int { return strings.Compare(a.id, b.id) })
	for _, o := range sorted {
		if err := s.processLease(ctx, tx, o); err != nil {
			return fmt.Errorf("lease limits: %w", err)
		}
	}
	return nil
}

// processLease locks the ID's row, decides and writes the result. It may run
// again for the same request.
func (s *store) processLease(ctx context.Context, tx *db.Tx, o *leaseRequest) error {
	o.granted, o.requests, o.tokens, o.refused = amounts{}, bucket{}, bucket{}, false
	minute := time.Unix(0, o.at).Truncate(time.Minute).UnixMicro()
	var used int64
	err := tx.QueryRow(ctx, `INSERT INTO limit_rates (id, requests_full, tokens_full, tokens_given, used_at) VALUES ($1, 0, 0, 0, $2)
		ON CONFLICT (id) DO UPDATE SET used_at = limit_rates.used_at RETURNING requests_full, tokens_full, tokens_given, used_at`, o.id, minute).
		Scan(&o.requests.full, &o.tokens.full, &o.tokens.returned, &used)
	if err != nil {
		return err
	}
	o.followClock(used*1000 - o.at)
	o.bound()
	others := int64(0)
	if o.need.slots > 0 {
		err := tx.QueryRow(ctx, `SELECT coalesce(sum(p.places), 0) FROM limit_places p JOIN limit_nodes n ON n.node_id = p.node_id
			WHERE p.id = $1 AND p.node_id <> $2 AND n.alive_until > $3`, o.id, s.node, o.at/1000).Scan(&others)
		if err != nil {
			return err
		}
	}
	o.decide(others)
	set, args := ", used_at = $5", []any{o.id, o.requests.full, o.tokens.full, o.tokens.returned, minute}
	if o.need.slots > 0 && o.granted.slots == 0 && o.freeSlots < o.need.slots {
		set, args = set+", wanted_at = $6", append(args, o.at/1000)
	}
	if _, err := tx.Exec(ctx, "UPDATE limit_rates SET requests_full = $2, tokens_full = $3, tokens_given = $4"+set+" WHERE id = $1", args...); err != nil {
		return err
	}
	if o.slotsReduced || o.granted.slots > 0 {
		return s.setSlots(ctx, tx, o)
	}
	return nil
}

// followClock moves the buckets back if the database's clock was set back by
// more than the tolerated skew. The debt stays the same, and no key waits for
// the old time.
func (o *leaseRequest) followClock(by int64) {
	if by > int64(db.MaxClockSkew) {
		o.requests.full, o.tokens.full = max(0, o.requests.full-by), max(0, o.tokens.full-by)
	}
}

// bound limits how far a row is ahead, since a corrupt one would block the ID.
// Requests only charge if they fit; the second minute is for clock skew. Tokens
// can be a debt.
func (o *leaseRequest) bound() {
	o.requests.full = min(o.requests.full, o.at+2*window)
	o.tokens.full = min(o.tokens.full, o.at+maxCharge)
}

// decide settles the reported units, and grants the need as a whole or not at
// all.
func (o *leaseRequest) decide(others int64) {
	if limit := o.limits.RequestsPerMinute; limit > 0 && o.back.requests > 0 {
		o.requests.refund(min(span(limit, o.back.requests), max(0, o.requests.full-o.at)))
	}
	if limit := o.limits.TokensPerMinute; limit > 0 && o.back.tokens > 0 {
		o.tokens.refund(min(span(limit, o.back.tokens), max(0, o.tokens.full-o.at)))
	} else if limit > 0 && o.back.tokens < 0 {
		o.tokens.charge(limit, -o.back.tokens, o.at)
	}
	o.freeSlots = max(0, o.limits.InFlight-others-o.heldSlots)
	if o.need == (amounts{}) {
		return
	}
	if o.requests.wait(o.limits.RequestsPerMinute, o.need.requests, o.at) > 0 ||
		o.tokens.wait(o.limits.TokensPerMinute, o.need.tokens, o.at) > 0 || o.freeSlots < o.need.slots {
		o.refused = true
		return
	}
	o.granted.requests = lease(&o.requests, o.limits.RequestsPerMinute, o.need.requests, o.want.requests, o.at)
	o.granted.tokens = lease(&o.tokens, o.limits.TokensPerMinute, o.need.tokens, o.want.tokens, o.at)
	o.granted.slots = min(o.want.slots, o.freeSlots)
	o.freeSlots -= o.granted.slots
}

// lease takes the available part of want, and always takes need: it fits, or
// exceeds the whole limit.
func lease(b *bucket, limit, need, want, at int64) int64 {
	if need == 0 {
		return 0
	}
	n := max(need, min(want, b.available(limit, at)))
	b.charge(limit, n, at)
	return n
}

// setSlots records how many slots the node holds after the request.
func (s *store) setSlots(ctx context.Context, tx *db.Tx, o *leaseRequest) error {
	n := o.heldSlots + o.granted.slots
	if n == 0 {
		_, err := tx.Exec(ctx, "DELETE FROM limit_places WHERE id = $1 AND node_id = $2", o.id, s.node)
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO limit_places (id, node_id, places) VALUES ($1, $2, $3)
		ON CONFLICT (id, node_id) DO UPDATE SET places = excluded.places`, o.id, s.node, n)
	return err
}

// heartbeat marks this node as alive. It returns the number of live nodes and
// the IDs that lack slots.
func (s *store) heartbeat(ctx context.Context, now time.Time) (nodes int64, wanted []string, err error) {
	now = s.db.At(now)
	err = s.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO limit_nodes (node_id, alive_until) VALUES ($1, $2)
			ON CONFLICT (node_id) DO UPDATE SET alive_until = excluded.alive_until`, s.node, now.Add(aliveFor).UnixMicro()); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM limit_nodes WHERE alive_until > $1", now.UnixMicro()).Scan(&nodes); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT id FROM limit_rates WHERE wanted_at > $1 LIMIT $2", now.Add(-wantedFor).UnixMicro(), int64(maxWanted))
		wanted, err = db.Strings(rows, err)
		return err
	})
	return nodes, wanted, err
}

func (s *store) leave(ctx context.Context) error {
	s.group.Stop()
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM limit_places WHERE node_id = $1", s.node); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM limit_nodes WHERE node_id = $1", s.node)
		return err
	})
}

// Purge deletes at most limit rows of IDs and nodes that have been inactive for
// an hour.
func Purge(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	before := now.Add(-purgeAfter).UnixMicro()
	total := int64(0)
	for _, query := range []string{
		"WITH unused AS (SELECT id FROM limit_rates WHERE used_at < $1 ORDER BY used_at LIMIT $2" + tx.Claim("limit_rates") + ") DELETE FROM limit_rates WHERE id IN (SELECT id FROM unused)",
		`DELETE FROM limit_places WHERE (id, node_id) IN (SELECT p.id, p.node_id FROM limit_places p
			WHERE NOT EXISTS (SELECT 1 FROM limit_nodes n WHERE n.node_id = p.node_id AND n.alive_until >= $1) LIMIT $2)`,
		"DELETE FROM limit_nodes WHERE node_id IN (SELECT node_id FROM limit_nodes WHERE alive_until < $1 LIMIT $2)",
	} {
		n, err := tx.Exec(ctx, query, before, limit-total)
		if err != nil {
			return 0, err
		}
		if total += n; total >= limit {
			break
		}
	}
	return total, nil
}
