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
	// aliveFor is how long a node's places count after it last said that it is
	// there, which it does every second.
	aliveFor = 5 * time.Second

	// wantedFor is how long a call for places is heard, and maxWanted how many
	// ids are looked after at once.
	wantedFor = 3 * time.Second
	maxWanted = 1000

	// quiet is after what time the row of an id goes.
	quiet = time.Hour
)

// store is where nodes share their limits.
type store struct {
	db     *db.DB
	node   string
	group  *db.Group
	orders *db.Queue[*order]
}

// newStore makes a group of its own: a lease must not wait for the log's fsync,
// and with several ids in one transaction it holds one connection.
func newStore(d *db.DB, node string) *store {
	s := &store{db: d, node: node, group: db.NewGroup(d)}
	s.orders = db.NewQueue(s.group, false, s.carryOut)
	return s
}

// carryOut answers orders. Everybody locks ids in their order.
func (s *store) carryOut(ctx context.Context, tx *db.Tx, orders []*order) error {
	sorted := slices.Clone(orders)
	slices.SortStableFunc(sorted, func(a, b *order) int { return strings.Compare(a.id, b.id) })
	for _, o := range sorted {
		if err := s.answer(ctx, tx, o); err != nil {
			return fmt.Errorf("lease limits: %w", err)
		}
	}
	return nil
}

// answer reads the id's row and holds it, decides, and writes it. It may run
// again for the same order.
func (s *store) answer(ctx context.Context, tx *db.Tx, o *order) error {
	o.granted, o.requests, o.tokens, o.refused = amounts{}, bucket{}, bucket{}, false
	minute := time.Unix(0, o.at).Truncate(time.Minute).UnixMicro()
	var used int64
	err := tx.QueryRow(ctx, `INSERT INTO limit_rates (id, requests_full, tokens_full, tokens_given, used_at) VALUES ($1, 0, 0, 0, $2)
		ON CONFLICT (id) DO UPDATE SET used_at = limit_rates.used_at RETURNING requests_full, tokens_full, tokens_given, used_at`, o.id, minute).
		Scan(&o.requests.full, &o.tokens.full, &o.tokens.given, &used)
	if err != nil {
		return err
	}
	o.setBack(used*1000 - o.at)
	o.bound()
	others := int64(0)
	if o.need.places > 0 {
		err := tx.QueryRow(ctx, `SELECT coalesce(sum(p.places), 0) FROM limit_places p JOIN limit_nodes n ON n.node_id = p.node_id
			WHERE p.id = $1 AND p.node_id <> $2 AND n.alive_until > $3`, o.id, s.node, o.at/1000).Scan(&others)
		if err != nil {
			return err
		}
	}
	o.decide(others)
	set, args := ", used_at = $5", []any{o.id, o.requests.full, o.tokens.full, o.tokens.given, minute}
	if o.need.places > 0 && o.granted.places == 0 && o.room < o.need.places {
		set, args = set+", wanted_at = $6", append(args, o.at/1000)
	}
	if _, err := tx.Exec(ctx, "UPDATE limit_rates SET requests_full = $2, tokens_full = $3, tokens_given = $4"+set+" WHERE id = $1", args...); err != nil {
		return err
	}
	if o.moved || o.granted.places > 0 {
		return s.setPlaces(ctx, tx, o)
	}
	return nil
}

// setBack follows the database's clock when it was set back since the row was
// written, by so much or up to a minute more: what is owed stays owed, and does
// not have to wait for a time that has been before.
func (o *order) setBack(by int64) {
	if by > int64(db.ClocksDiffer) {
		o.requests.full, o.tokens.full = max(0, o.requests.full-by), max(0, o.tokens.full-by)
	}
}

// bound brings a row back that is further ahead than calls can have brought it:
// it would close the id for as long. Requests are let in one by one, and only
// when they fit; a minute more is for clocks that differ. Tokens can be a debt.
func (o *order) bound() {
	o.requests.full = min(o.requests.full, o.at+2*window)
	o.tokens.full = min(o.tokens.full, o.at+longest)
}

// decide settles what the node owes and grants all of what it needs or nothing.
func (o *order) decide(others int64) {
	if limit := o.limits.RequestsPerMinute; limit > 0 && o.back.requests > 0 {
		o.requests.giveBack(min(span(limit, o.back.requests), max(0, o.requests.full-o.at)))
	}
	if limit := o.limits.TokensPerMinute; limit > 0 && o.back.tokens > 0 {
		o.tokens.giveBack(min(span(limit, o.back.tokens), max(0, o.tokens.full-o.at)))
	} else if limit > 0 && o.back.tokens < 0 {
		o.tokens.charge(limit, -o.back.tokens, o.at)
	}
	o.room = max(0, o.limits.InFlight-others-o.places)
	if o.need == (amounts{}) {
		return
	}
	if o.requests.wait(o.limits.RequestsPerMinute, o.need.requests, o.at) > 0 ||
		o.tokens.wait(o.limits.TokensPerMinute, o.need.tokens, o.at) > 0 || o.room < o.need.places {
		o.refused = true
		return
	}
	o.granted.requests = lease(&o.requests, o.limits.RequestsPerMinute, o.need.requests, o.want.requests, o.at)
	o.granted.tokens = lease(&o.tokens, o.limits.TokensPerMinute, o.need.tokens, o.want.tokens, o.at)
	o.granted.places = min(o.want.places, o.room)
	o.room -= o.granted.places
}

// lease takes what there is of what is wanted, and what is needed in any case:
// it fits, or is more than ever fits.
func lease(b *bucket, limit, need, want, at int64) int64 {
	if need == 0 {
		return 0
	}
	n := max(need, min(want, b.room(limit, at)))
	b.charge(limit, n, at)
	return n
}

// setPlaces writes how many places the node has when the order is done.
func (s *store) setPlaces(ctx context.Context, tx *db.Tx, o *order) error {
	n := o.places + o.granted.places
	if n == 0 {
		_, err := tx.Exec(ctx, "DELETE FROM limit_places WHERE id = $1 AND node_id = $2", o.id, s.node)
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO limit_places (id, node_id, places) VALUES ($1, $2, $3)
		ON CONFLICT (id, node_id) DO UPDATE SET places = excluded.places`, o.id, s.node, n)
	return err
}

// beat says that this node is there, and returns how many are and of which ids
// somebody wants places.
func (s *store) beat(ctx context.Context, now time.Time) (nodes int64, wanted []string, err error) {
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
		wanted, err = db.All(rows, err, func(r db.Row) (id string, err error) {
			err = r.Scan(&id)
			return id, err
		})
		return err
	})
	return nodes, wanted, err
}

// leave gives back what the node has.
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

// Purge removes at most limit rows of ids that were quiet for an hour and of
// nodes that died that long ago.
func Purge(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	before := now.Add(-quiet).UnixMicro()
	total := int64(0)
	for _, query := range []string{
		"DELETE FROM limit_rates WHERE id IN (SELECT id FROM limit_rates WHERE used_at < $1 ORDER BY used_at LIMIT $2" + tx.Claim("limit_rates") + ")",
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
