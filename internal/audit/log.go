package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
)

// Requests is the table, for partitions and retention.
var Requests = db.Partitioned{Table: "requests", Key: "id", Prefix: ids.Request}

// Settlement is an entry that is settled in a transaction, for whoever keeps
// accounts of calls: both are one commit.
type Settlement struct {
	Entry *Entry
	// Previous is how the entry was settled before, or nil: a recovered one that is
	// corrected, or one whose first commit was not answered. What counts is the
	// difference.
	Previous *Entry
}

// SettleFunc is called in the transaction that settles entries.
type SettleFunc func(ctx context.Context, tx *db.Tx, list []Settlement) error

// Log writes entries by group commit.
type Log struct {
	node        *nodes.Node
	settle      SettleFunc
	intents     *db.Queue[*Record]
	settlements *db.Queue[*Record]
}

const (
	// An intent waits for others to be written with while nobody waits for it:
	// the call that it is of goes on the wire first, and one that is over by
	// then is written once. That takes a quarter of the time in which the
	// answer is expected, within these bounds.
	leastLinger = 2 * time.Millisecond
	mostLinger  = 20 * time.Millisecond
	// settleLinger is how long a settlement waits for an intent to be written
	// with. Nobody waits for it, and what was set aside is held as long.
	settleLinger = 10 * time.Millisecond
)

// NewLog makes a log whose writes share the group's commits. Intents come
// first, so that a settlement never overtakes its own.
func NewLog(g *db.Group, node *nodes.Node, settle SettleFunc) *Log {
	l := &Log{node: node, settle: settle}
	l.intents = db.NewQueue(g, false, l.write).Lingers(leastLinger)
	l.settlements = db.NewQueue(g, true, l.writeOnce).Lingers(settleLinger)
	return l
}

// writeOnce writes a record that waits twice, settled and then refused in an
// outage, as it is now. PostgreSQL takes no row twice in one statement.
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
	if err := l.node.AssertAlive(ctx, tx); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	rows := make([][]any, len(records))
	values := make([]any, 0, len(records)*requestColumns)
	var settled []Settlement
	for i, r := range records {
		var e *Entry
		var again bool
		values, e, again = r.take(values, l.node.ID)
		rows[i] = values[i*requestColumns : (i+1)*requestColumns]
		if e == nil {
			continue
		}
		b := Settlement{Entry: e}
		if again {
			var err error
			if b.Previous, err = l.settledBefore(ctx, tx, e); err != nil {
				return fmt.Errorf("request log: %w", err)
			}
		}
		settled = append(settled, b)
	}
	if err := insertRequests.Send(ctx, tx, rows, nil); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if len(settled) == 0 {
		return nil
	}
	return l.settle(ctx, tx, settled)
}

// settledBefore returns the entry as it is stored, or nil if it is open or
// missing. It inserts a missing one: a write in doubt may still be in progress,
// and only an insert waits for it.
func (l *Log) settledBefore(ctx context.Context, tx *db.Tx, e *Entry) (old *Entry, err error) {
	open := *e
	open.Settled = false
	inserted, err := openRequests.Write(ctx, tx, [][]any{open.appendRow(nil, l.node.ID)})
	if err != nil || inserted > 0 {
		return nil, err
	}
	old, err = scanEntry(tx.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1"+tx.Lock("requests"), e.RequestID))
	if err != nil || !old.Settled {
		return nil, err
	}
	if e.ErrorCode != string(fault.StorageUnavailable) {
		*old = *e // insertRequests leaves a settled entry alone
	}
	return old, nil
}

// Record is one request's way into the log:
//
//	open → (Start) → waiting → written → (Settle) → settled
//
// A request that is settled while its intent still waits, or before it was
// started, becomes one row in one write.
type Record struct {
	log *Log

	mu      sync.Mutex
	entry   Entry
	taken   bool        // the writer has read the intent
	final   bool        // the writer has read it settled
	queued  bool        // it was handed over a second time, and will be written
	pending *db.Pending // of the intent; nil before Start
	ended   *db.Pending // of the settled entry, if that is a write of its own
}

// Open begins a record. Nothing is written until Start, Durable or Settle.
func (l *Log) Open(e Entry) *Record { return &Record{log: l, entry: e} }

// take is called by the writer. Only a second write of the same record may
// follow it, so the values are read under the lock. A settled entry that is to
// be booked is returned, and whether it was before.
func (r *Record) take(values []any, nodeID string) (_ []any, settled *Entry, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = true
	if r.entry.Settled && (r.entry.Model != "" || r.entry.Hold != nil) && r.log.settle != nil {
		e := r.entry
		settled, again = &e, r.final
		r.final = true
	}
	return r.entry.appendRow(values, nodeID), settled, again
}

// Degraded reports whether the log may not be able to take the record: it could
// not take the last ones.
func (r *Record) Degraded() bool { return r.log.intents.Ailing() }

// CreatedAt is when the request came.
func (r *Record) CreatedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entry.CreatedAt
}

// Start hands the intent over, with what is known by now, and returns at once.
// Model calls do this at the moment the upstream call starts, so that the
// disk works while the provider does. expected is when the answer will be there,
// as far as anybody knows.
func (r *Record) Start(expected time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = r.log.intents.AddFor(r, min(max(leastLinger, expected/4), mostLinger))
	}
}

// Durable returns when the entry is on the disk, or with an error after the
// limit. No byte of an answer may leave before that. It does not stop with the
// request's context: that ends with the first failed read too, and then there
// is still an answer to send.
func (r *Record) Durable(limit time.Duration) error {
	r.Start(0)
	r.mu.Lock()
	p := r.pending
	r.mu.Unlock()
	return p.WaitFor(limit)
}

// Settled returns when the entry is on the disk as it was settled, or with an
// error after the limit. Who keeps accounts of their own waits for it: until
// then a crash has the call cost what was reserved for it.
func (r *Record) Settled(limit time.Duration) error {
	r.mu.Lock()
	p := r.pending
	if r.ended != nil {
		p = r.ended
	}
	r.mu.Unlock()
	return p.WaitFor(limit)
}

// Writing reports whether a settled entry is still on its way to the disk.
func (r *Record) Writing() bool {
	r.mu.Lock()
	p := r.pending
	if r.ended != nil {
		p = r.ended
	}
	r.mu.Unlock()
	return !p.Ended()
}

// Settle completes the entry. It does not wait.
func (r *Record) Settle(change func(*Entry)) {
	if r.settle(change) {
		r.pending.Then(r.written)
	}
}

// settle reports whether the end is written with the intent, which may fail.
func (r *Record) settle(change func(*Entry)) (waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entry.Settled {
		return false
	}
	change(&r.entry)
	r.entry.Settled = true
	switch {
	case r.pending == nil:
		r.pending = r.log.intents.Add(r)
		return r.entry.Hold != nil
	case r.pending.Failed():
		r.giveUp()
	case r.taken:
		r.again()
	default:
		return r.entry.Hold != nil
	}
	return false
}

// Refuse corrects an entry that was not durable in time, so that the caller
// was told so: should it be written after all, it must not say that the call
// succeeded or cost anything.
func (r *Record) Refuse(change func(*Entry)) {
	if r.refuse(change) {
		r.pending.Then(r.written)
	}
}

func (r *Record) refuse(change func(*Entry)) (waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.entry)
	r.entry.Settled = true
	r.entry.free()
	switch failed := r.pending.Failed(); {
	case r.queued, r.taken && !failed:
		r.again()
	case failed:
		r.giveUp()
	default:
		return r.entry.Hold != nil
	}
	return false
}

// written is called when the intent was written, settled, or was not.
func (r *Record) written() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending.Failed() {
		r.giveUp()
	}
}

// again hands the record over to be written as it is now.
func (r *Record) again() {
	r.queued = true
	r.ended = r.log.settlements.Add(r)
}

// giveUp ends a record that could not be written. The caller is told 503:
// nothing was acknowledged, and an outage must not fill the memory. Only where
// the commit was not answered, and something was set aside for the call, it is
// written again: left open or charged, it would use what others are given.
func (r *Record) giveUp() {
	switch {
	case r.entry.Hold == nil || r.queued:
	case errors.Is(r.pending.Wait(context.Background()), db.ErrInDoubt):
		r.again()
	default:
		r.entry.Hold.Release()
	}
}

// Note keeps what was learned on the way for when the entry is settled.
func (r *Record) Note(change func(*Entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.entry.Settled {
		change(&r.entry)
	}
}

// SettleIn completes the entry inside the transaction of the act itself, so
// that the act and its entry are one commit. If the transaction fails, Settle
// can still be called.
func (r *Record) SettleIn(ctx context.Context, tx *db.Tx, change func(*Entry)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := r.entry
	change(&settled)
	settled.Settled = true
	if err := r.log.node.AssertAlive(ctx, tx); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if _, err := insertRequests.Write(ctx, tx, [][]any{settled.appendRow(nil, r.log.node.ID)}); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	tx.OnCommit(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.entry = settled
		r.pending = db.Written
	})
	return nil
}

// Recover settles the entries that evicted nodes left open and returns how many
// there were. Their requests were answered, or about to be, so they are charged
// as reserved. An error for one node doesn't affect the others.
func (l *Log) Recover(ctx context.Context, d *db.DB) (int64, error) {
	rows, err := d.Query(ctx, "SELECT DISTINCT node_id FROM requests WHERE NOT settled AND node_id NOT IN (SELECT id FROM nodes)")
	evicted, err := db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
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
	rows, err := tx.Query(ctx, "SELECT "+entryColumns+" FROM requests WHERE node_id = $1 AND NOT settled ORDER BY id LIMIT $2"+tx.Lock("requests"),
		node, int64(recoverBatch))
	open, err := db.All(rows, err, scanEntry)
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
	var n int64
	err := q.QueryRow(ctx, "SELECT count(*) FROM requests WHERE node_id = $1 AND NOT settled", node).Scan(&n)
	return n > 0, err
}

// Purge deletes entries past their window, a batch at a time. PostgreSQL drops
// whole months first, so that little is left to delete.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.Request, before), limit)
}

// PurgeActions deletes administrative acts past their window.
func PurgeActions(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM admin_actions WHERE id IN (SELECT id FROM admin_actions WHERE id < $1 ORDER BY id LIMIT $2)",
		ids.Floor(ids.AdminAction, before), limit)
}
