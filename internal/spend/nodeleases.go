package spend

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

// nodeLeases changes the leases of one node. It fails for an evicted node.
type nodeLeases struct {
	db    *db.DB
	node  *nodes.Node
	queue *db.Batcher[*pendingAcquisition] // what concurrent requests acquire
}

type pendingAcquisition struct {
	list    []acquisition
	granted []grant
	err     error
}

// maxAcquirers is how many requests share a transaction.
const maxAcquirers = 1000

func newNodeLeases(d *db.DB, node *nodes.Node) nodeLeases {
	n := nodeLeases{db: d, node: node}
	n.queue = db.NewBatcher(maxAcquirers, n.acquireWaiting)
	return n
}

func (n nodeLeases) acquire(ctx context.Context, key accountPeriod, o acquireOptions) (got credits.Micro, before balance, err error) {
	granted, err := n.acquireAll(ctx, []acquisition{{key, o}})
	if err != nil {
		return 0, balance{}, err
	}
	return granted[0].got, granted[0].before, nil
}

func (n nodeLeases) acquireAll(ctx context.Context, list []acquisition) ([]grant, error) {
	p := &pendingAcquisition{list: list}
	if err := n.queue.Do(ctx, p); err != nil {
		return nil, fmt.Errorf("lease credits: %w", err)
	}
	return p.granted, p.err
}

func (n nodeLeases) acquireWaiting(some []*pendingAcquisition) {
	var list []acquisition // no account is twice in it, because requests hold the lock of their leases
	for _, p := range some {
		list = append(list, p.list...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), refillTimeout)
	defer cancel()
	granted, err := n.acquireNow(ctx, list)
	for _, p := range some {
		if p.err = err; err == nil {
			p.granted, granted = granted[:len(p.list)], granted[len(p.list):]
		}
	}
}

var addLeases = db.NewBulk("spend_leases", "ON CONFLICT (node_id, level, account_id, period) DO UPDATE SET granted = spend_leases.granted + excluded.granted",
	"node_id text", "level text", "account_id text", "period text", "granted bigint")

func (n nodeLeases) acquireNow(ctx context.Context, list []acquisition) (granted []grant, err error) {
	keys := make([]accountPeriod, len(list))
	for i, a := range list {
		keys[i] = a.key
	}
	err = n.db.Write(ctx, func(tx *db.Tx) error {
		balances, err := n.lockBalances(ctx, tx, keys)
		if err != nil {
			return err
		}
		granted = make([]grant, len(list))
		posted := newPostings()
		var leases [][]any
		for i, a := range list {
			before := balances[a.key]
			granted[i].before = before
			room := a.limit - before.Settled - before.Leased
			if room < a.need || room <= 0 {
				continue
			}
			got := min(max(a.need, min(a.want, room/chunkShare)), room)
			granted[i].got = got
			posted.at(a.key).Leased = got
			leases = append(leases, []any{n.node.ID, string(a.key.Level), a.key.ID, string(a.key.Period), int64(got)})
		}
		if len(leases) == 0 {
			return nil
		}
		if err := posted.writeBalances(ctx, tx); err != nil {
			return err
		}
		return addLeases.Send(ctx, tx, leases, nil)
	})
	return granted, db.Wrap(err, "lease credits")
}

var insertBalances = db.NewBulk("spend", "ON CONFLICT (level, account_id, period) DO NOTHING",
	"level text", "account_id text", "period text", "settled bigint", "leased bigint")

// lockBalances returns the balances and locks their rows until the transaction
// ends. It inserts missing ones, so it also waits for a commit in doubt that does.
func (n nodeLeases) lockBalances(ctx context.Context, tx *db.Tx, keys []accountPeriod) (map[accountPeriod]balance, error) {
	if err := n.node.AssertAlive(tx); err != nil {
		return nil, err
	}
	keys = slices.SortedFunc(slices.Values(keys), compare)
	balances, err := readBalances(ctx, tx, keys, tx.Lock("spend"))
	if err != nil || len(balances) == len(keys) {
		return balances, err
	}
	missing := make([][]any, 0, len(keys)-len(balances))
	for _, key := range keys {
		if _, found := balances[key]; !found {
			missing = append(missing, []any{string(key.Level), key.ID, string(key.Period), int64(0), int64(0)})
		}
	}
	inserted, err := insertBalances.Write(ctx, tx, missing)
	if err != nil || inserted == int64(len(missing)) {
		return balances, err
	}
	return nil, db.ErrRace // other nodes have inserted some: lock all in order
}

func (n nodeLeases) shrinkAll(ctx context.Context, list []shrinkage) error {
	keys := make([]accountPeriod, len(list))
	for i, s := range list {
		keys[i] = s.key
	}
	err := n.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := n.lockBalances(ctx, tx, keys); err != nil {
			return err
		}
		leases, err := n.grantedOf(ctx, tx, keys)
		if err != nil {
			return err
		}
		posted := newPostings()
		var ended []accountPeriod
		for _, s := range list {
			granted, found := leases[s.key]
			switch {
			case !found || granted <= s.keep && s.keep > 0:
				continue
			case s.keep == 0:
				ended = append(ended, s.key)
				posted.at(s.key).Leased = -granted
			default:
				posted.at(s.key).lower(n.node.ID, granted-s.keep)
			}
		}
		if err := posted.write(ctx, tx); err != nil {
			return err
		}
		if len(ended) == 0 {
			return nil
		}
		places, args := placesOf([]any{n.node.ID}, ended)
		_, err = tx.Exec(ctx, "DELETE FROM spend_leases WHERE node_id = $1 AND (level, account_id, period) IN "+places, args...)
		return err
	})
	return db.Wrap(err, "release credits")
}

// grantedOf returns the node's leases of accounts.
func (n nodeLeases) grantedOf(ctx context.Context, tx *db.Tx, keys []accountPeriod) (map[accountPeriod]credits.Micro, error) {
	out := make(map[accountPeriod]credits.Micro, len(keys))
	places, args := placesOf([]any{n.node.ID}, keys)
	found, err := tx.Query(ctx, "SELECT level, account_id, period, granted FROM spend_leases WHERE node_id = $1 AND (level, account_id, period) IN "+places, args...)
	err = db.Each(found, err, func(r db.Row) error {
		var k accountPeriod
		var granted credits.Micro
		err := db.Scan(r, &k.Level, &k.ID, &k.Period, &granted)
		out[k] = granted
		return err
	})
	return out, err
}

// placesOf returns a list of accounts for a statement, and its arguments after the first ones. It repeats the
// last account up to a power of two, so that there are few statements to prepare.
func placesOf(args []any, keys []accountPeriod) (string, []any) {
	var rows []string
	for i := range 1 << bits.Len(uint(len(keys)-1)) {
		k, n := keys[min(i, len(keys)-1)], len(args)
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d)", n+1, n+2, n+3))
		args = append(args, string(k.Level), k.ID, string(k.Period))
	}
	return "(VALUES " + strings.Join(rows, ", ") + ")", args
}

func (n nodeLeases) reclaim(ctx context.Context, key accountPeriod) error {
	return n.db.Write(ctx, func(tx *db.Tx) error {
		tx.Signal(SignalReclaim, key.String())
		return nil
	})
}

func grantedTo(ctx context.Context, tx *db.Tx, owner string, key accountPeriod) (credits.Micro, error) {
	return db.Value[credits.Micro](tx.QueryRow(ctx, "SELECT granted FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4",
		owner, string(key.Level), key.ID, string(key.Period)))
}

func deleteLease(ctx context.Context, tx *db.Tx, owner string, key accountPeriod) error {
	_, err := tx.Exec(ctx, "DELETE FROM spend_leases WHERE node_id = $1 AND level = $2 AND account_id = $3 AND period = $4", owner, string(key.Level), key.ID, string(key.Period))
	return err
}
