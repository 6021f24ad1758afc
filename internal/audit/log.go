package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
)

// Requests is the partitioned table of the request log.
var Requests = db.Partitioned{Table: "requests", Key: "id", Prefix: ids.Request}

// Settlement is an entry that a transaction settles. Its charge is part of the
// same commit.
type Settlement struct {
	Entry *Entry
	// Previous is the entry's earlier settlement, or nil. It is set if the
	// first commit was in doubt; then only the difference is charged.
	Previous *Entry
}

// SettleFunc charges entries in the transaction that settles them.
type SettleFunc func(ctx context.Context, tx *db.Tx, list []Settlement) error

// Log writes entries by group commit.
type Log struct {
	node        *nodes.Node
	settle      SettleFunc
	feed        *feed
	intents     *db.Queue[*Record]
	settlements *db.Queue[*Record]
	calls       atomic.Int64 // to providers, started and without a response
}

const (
	// An intent that no request waits for lingers to share a commit: a quarter
	// of the expected response time, at least this long. A request that ends by
	// then is written once.
	leastIntentLinger = 2 * time.Millisecond
	// A settlement, which only readers wait for, lingers for a tenth of the time
	// that the request took, at least this long. Its reservation is held for that time.
	leastSettleLinger = 10 * time.Millisecond
	mostLinger        = 100 * time.Millisecond
)

func intentLinger(expected time.Duration) time.Duration {
	return min(max(leastIntentLinger, expected/4), mostLinger)
}

func settleLinger(took time.Duration) time.Duration {
	return min(max(leastSettleLinger, took/10), mostLinger)
}

// NewLog returns a log whose writes share the group's commits. Intents come
// first, so that no settlement is written before its intent.
func NewLog(g *db.Group, node *nodes.Node, settle SettleFunc) *Log {
	l := &Log{node: node, settle: settle, feed: newFeed()}
	l.intents = db.NewQueue(g, false, l.write).Linger(leastIntentLinger)
	l.settlements = db.NewQueue(g, true, l.writeOnce).Identify("request_settlements", func(r *Record) string { return r.Entry().RequestID }).Repeatable().Linger(leastSettleLinger)
	return l
}

// flushTimeout limits how long a reader waits for entries that are being written.
const flushTimeout = time.Second

// Flush writes the settled entries that wait to share a commit. Call it before you read
// what clients expect to find there: their own requests.
func (l *Log) Flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	l.intents.Flush(ctx) // a request that ended early is settled by its intent
	l.settlements.Flush(ctx)
}

// writeOnce removes duplicate records: a request can be settled and then
// refused during an outage. PostgreSQL rejects a statement that writes the same
// row twice.
func (l *Log) writeOnce(ctx context.Context, tx *db.Tx, records []*Record) error {
	seen := make(map[*Record]bool, len(records))
	return l.write(ctx, tx, slices.DeleteFunc(records, func(r *Record) bool {
		again := seen[r]
		seen[r] = true
		return again
	}))
}

// write stores the records in the transaction and settles their charges. It
// fails with nodes.ErrEvicted if other nodes recover this node's entries.
func (l *Log) write(ctx context.Context, tx *db.Tx, records []*Record) error {
	if err := l.node.AssertAlive(tx); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	floor := l.feed.begin(tx)
	var added, changed [][]any
	width := len(requestTypes)
	values := make([]any, 0, len(records)*width)
	var settled []Settlement
	var late []string
	for i, r := range records {
		if id := r.lateFor(floor); id != "" {
			late = append(late, id)
		}
		var e *Entry
		var isNew bool
		var by earlier
		values, isNew, e, by = r.read(values, l.node.ID)
		if row := values[i*width : (i+1)*width]; isNew {
			added = append(added, row)
		} else {
			changed = append(changed, row)
		}
		if e == nil {
			continue
		}
		b := Settlement{Entry: e}
		if by != earlierNone {
			var jobEnded bool
			var err error
			if b.Previous, jobEnded, err = l.settledBefore(ctx, tx, e, by); err != nil {
				return fmt.Errorf("request log: %w", err)
			}
			if jobEnded { // its charge stays
				changed = changed[:len(changed)-1]
				continue
			}
		}
		settled = append(settled, b)
	}
	if err := newRequests.Send(ctx, tx, added, nil); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if err := insertRequests.Send(ctx, tx, changed, nil); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if err := markPending(ctx, tx, late...); err != nil {
		return err
	}
	if len(settled) == 0 {
		return nil
	}
	return l.settle(ctx, tx, settled)
}

// settledBefore returns the stored entry, or nil if it is open, missing or not charged yet, and whether
// it has the charge of a job that has ended. It inserts a missing one: a write in doubt may still be in
// progress, and only an insert waits for it.
func (l *Log) settledBefore(ctx context.Context, tx *db.Tx, e *Entry, by earlier) (old *Entry, jobEnded bool, err error) {
	open := *e
	open.Settled = false
	inserted, err := openRequests.Write(ctx, tx, [][]any{open.appendRow(nil, l.node.ID)})
	if err != nil || inserted > 0 {
		return nil, false, err
	}
	old, err = scanEntry(tx.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1"+tx.Lock("requests"), e.RequestID))
	if err != nil || !old.Settled {
		return nil, false, err
	}
	if refused := string(fault.StorageUnavailable); e.ErrorCode != refused || old.ErrorCode == refused {
		*old = *e // insertRequests doesn't change the settled entry
	} else if by == earlierSettleIn {
		return nil, old.UsageSource != "", nil
	}
	return old, false, nil
}

// Recover settles the entries that evicted nodes left open and returns their
// number. It charges the reserved amount, because the responses were sent or
// about to be. An error for one node doesn't affect the others.
func (l *Log) Recover(ctx context.Context, d *db.DB) (int64, error) {
	evicted, err := db.List(ctx, d, db.Value[string], "SELECT DISTINCT node_id FROM requests WHERE NOT settled AND node_id NOT IN (SELECT id FROM nodes)")
	if err != nil {
		return 0, fmt.Errorf("recover request log: %w", err)
	}
	var total int64
	var failed error
	for _, node := range evicted {
		n, err := l.recoverNode(ctx, d, node)
		total += n
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("recover request log of %s: %w", node, err))
		}
	}
	if total > 0 {
		slog.Info("recovered the open log entries of evicted nodes", "entries", total)
	}
	return total, failed
}

// recoverBatch limits how long a recovery holds the writer.
const recoverBatch = 1000

func (l *Log) recoverNode(ctx context.Context, d *db.DB, node string) (total int64, err error) {
	for {
		n := 0
		err := d.Write(ctx, func(tx *db.Tx) (err error) {
			n, err = l.recoverBatch(ctx, tx, node)
			return err
		})
		if err != nil {
			return total, err
		}
		if total += int64(n); n < recoverBatch {
			return total, nil
		}
	}
}

func (l *Log) recoverBatch(ctx context.Context, tx *db.Tx, node string) (int, error) {
	open, err := db.List(ctx, tx, scanEntry, "SELECT "+entryColumns+" FROM requests WHERE node_id = $1 AND NOT settled ORDER BY id LIMIT $2"+tx.Lock("requests"),
		node, int64(recoverBatch))
	if err != nil || len(open) == 0 {
		return 0, err
	}
	list, values := make([]Settlement, len(open)), make([][]any, len(open))
	for i, e := range open {
		e.Settled, e.UsageSource, e.Credits = true, UsageRecovered, e.Reserved
		list[i], values[i] = Settlement{Entry: e}, e.appendRow(nil, node)
	}
	if _, err := insertRequests.Write(ctx, tx, values); err != nil || l.settle == nil {
		return len(open), err
	}
	return len(open), l.settle(ctx, tx, list)
}

// HasOpen reports whether a node has left entries open.
func HasOpen(ctx context.Context, q db.Querier, node string) (bool, error) {
	return db.Value[bool](q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM requests WHERE node_id = $1 AND NOT settled)", node))
}

// Purge deletes a batch of entries past their retention. PostgreSQL drops whole
// partitions first, so that few entries are left to delete.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.Request, before), limit)
}

// PurgeActions deletes a batch of admin log entries past their retention.
func PurgeActions(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM admin_actions WHERE id IN (SELECT id FROM admin_actions WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.AdminAction, before), limit)
}
