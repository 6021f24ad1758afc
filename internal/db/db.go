// Package db runs the same SQL on SQLite and PostgreSQL, and hides their differences.
//
// DB and Tx read (both are a Querier), only a Tx writes, and a Group commits
// frequent writes together.
package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Querier reads, inside a transaction or from the latest committed state.
type Querier interface {
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// Rows is a result set. Each closes it.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// Row is a single result. Scan returns ErrNotFound if there is none.
type Row interface {
	Scan(dest ...any) error
}

// engine is one database system.
type engine interface {
	query(ctx context.Context, query string, args ...any) (Rows, error)
	// begin starts a transaction. As a whole, it may be sent in one round trip if it has a fence.
	begin(ctx context.Context, whole bool) (engineTx, error)
	name() string
	poolStats() poolStats
	close()
	// watch calls changed until ctx ends, when another process may have changed
	// what this one caches. An empty topic means anything.
	watch(ctx context.Context, changed func(topic, payload string))
	// backup writes the committed state of one moment to a new SQLite file.
	backup(ctx context.Context, path string) error
	failFast()
}

type engineTx interface {
	query(ctx context.Context, query string, args ...any) (Rows, error)
	exec(ctx context.Context, query string, args ...any) (int64, error)
	// bulkWrite writes rows with one statement over arrays or a few prepared ones.
	bulkWrite(ctx context.Context, b *Bulk, rows [][]any) (int64, error)
	bulkRead(ctx context.Context, b *Bulk, rows [][]any, scan func(Row) error) error
	// bulkSend is bulkWrite together with the next statement or flush.
	bulkSend(ctx context.Context, b *Bulk, rows [][]any, then func(n int64) error) error
	// send is exec together with the next statement or flush.
	send(then func(n int64) error, query string, args ...any) error
	// fence makes the transaction fail with the result of lost unless the query finds a row.
	fence(lost func() error, query string, args ...any) error
	script(ctx context.Context, statements string) error
	// notify sends a notification together with the commit.
	notify(topic, payload string) error
	lockMigrations(ctx context.Context) error
	disableTimeouts(ctx context.Context) error
	commit(ctx context.Context) error
	rollback()
}

// DB is an open database.
type DB struct {
	Querier  // reads committed data
	eng      engine
	signals  signals
	stop     context.CancelFunc
	watched  chan struct{}
	degraded atomic.Bool  // the last write failed with ErrUnavailable
	wroteAt  atomic.Int64 // when a write last succeeded, in microseconds
	fullAt   atomic.Int64 // when a write failed because the disk was full, in microseconds
	clock    *clock       // nil for SQLite
	groups   groupList    // for the metrics

	lose func(queues []string) bool // see LoseResponses; nil except in tests

	replica      *replica // nil without one
	closeReplica func()

	probing sync.Mutex
	probe   *Pending // of Ping; nil if none is in progress
}

// Open opens a postgres:// URL or a SQLite file. It doesn't migrate.
func Open(ctx context.Context, address string) (*DB, error) {
	return OpenWithClock(ctx, address, time.Now)
}

// OpenWithClock is Open with another local clock, for tests.
func OpenWithClock(ctx context.Context, address string, local func() time.Time) (*DB, error) {
	var eng engine
	var err error
	if IsPostgresURL(address) {
		eng, err = openPostgres(ctx, address)
	} else {
		eng, err = openSQLite(address)
	}
	if err != nil {
		return nil, err
	}
	watchCtx, stop := context.WithCancel(context.Background())
	d := &DB{Querier: querier{eng.query}, eng: eng, stop: stop, watched: make(chan struct{})}
	d.lose, _ = ctx.Value(loseKey{}).(func(queues []string) bool)
	var watching sync.WaitGroup
	watching.Go(func() { eng.watch(watchCtx, d.signals.dispatch) })
	if d.Engine() != "sqlite" {
		d.clock = newClock(local)
		if err := d.CompareClocks(ctx); err != nil {
			slog.Warn("failed to read the database's time; retrying", "error", err)
		}
		watching.Go(func() { d.compareClocks(watchCtx) })
	}
	go func() {
		watching.Wait()
		close(d.watched)
	}()
	return d, nil
}

// IsPostgresURL reports whether the address names a PostgreSQL server.
func IsPostgresURL(address string) bool {
	return strings.HasPrefix(address, "postgres://") || strings.HasPrefix(address, "postgresql://")
}

// Engine is "sqlite" or "postgres".
func (d *DB) Engine() string { return d.eng.name() }

// FailFast makes writes fail after seconds if another process has locked the
// database. Servers call it before they write, because their clients can retry;
// commands wait longer.
func (d *DB) FailFast() { d.eng.failFast() }

// Close releases the database. Writers must have stopped.
func (d *DB) Close() {
	d.stop()
	<-d.watched
	d.probing.Lock()
	probe := d.probe
	d.probing.Unlock()
	if probe != nil {
		<-probe.done
	}
	if d.closeReplica != nil {
		d.closeReplica()
	}
	d.eng.close()
}

// fullFor is how long the disk counts as full after a write that found it full.
// Smaller writes may still succeed.
const fullFor = 3 * time.Second

const (
	// wroteRecently is how long a successful write proves that the database accepts
	// writes, so that readiness probes can't keep the disk busy.
	wroteRecently = time.Second
	// pingTimeout is how long Ping waits for its write. Load balancers rarely wait
	// longer for a probe.
	pingTimeout = 2 * time.Second
)

// Ping checks that the database accepts writes. It writes unless a write succeeded
// in the last second.
func (d *DB) Ping(ctx context.Context) error {
	if at := d.fullAt.Load(); at != 0 && time.Since(time.UnixMicro(at)) < fullFor {
		return fmt.Errorf("the disk is full: %w", ErrUnavailable)
	}
	if !d.degraded.Load() && time.Since(time.UnixMicro(d.wroteAt.Load())) < wroteRecently {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, fmt.Errorf("no write succeeded within %v: %w", pingTimeout, ErrUnavailable))
	defer cancel()
	err := d.probeWrite().Wait(ctx)
	if err != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// probeWrite writes a row without changing it. Concurrent callers share one write,
// which may outlast them: a commit can't be canceled.
func (d *DB) probeWrite() *Pending {
	d.probing.Lock()
	defer d.probing.Unlock()
	if d.probe != nil {
		return d.probe
	}
	p := &Pending{done: make(chan struct{})}
	d.probe = p
	go func() {
		ctx := context.Background()
		err := d.Write(ctx, func(tx *Tx) error {
			// Nodes claim different rows, so that a frozen one doesn't block the others.
			n, err := tx.Exec(ctx, "UPDATE schema_migrations SET version = version WHERE version = (SELECT version FROM schema_migrations LIMIT 1"+tx.Claim("schema_migrations")+")")
			if err == nil && n == 0 {
				err = fmt.Errorf("other nodes block the write: %w", ErrUnavailable)
			}
			return err
		})
		d.probing.Lock()
		d.probe = nil
		d.probing.Unlock()
		p.finish(err)
	}()
	return p
}

// Tx is a write transaction.
type Tx struct {
	Querier  // reads inside the transaction
	tx       engineTx
	locks    bool // rows can be locked
	wrote    bool // at least one row
	onCommit []func()
	onEnd    []func(error)
	signals  []signal
	last     []lastStep
	of       []groupBatch // that the transaction writes
}

// Exec writes and returns the number of rows it changed.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	observe(query, args)
	n, err := t.tx.exec(ctx, query, args...)
	t.wrote = t.wrote || n > 0
	return n, classify(err)
}

// Send is Exec or a SELECT without waiting: see Bulk.Send. Unless it is nil, then is called with the number of rows.
func (t *Tx) Send(then func(n int64) error, query string, args ...any) error {
	observe(query, args)
	return classify(t.tx.send(then, query, args...))
}

// Fence makes the transaction fail with the result of lost unless the query, which locks a row, finds it. On PostgreSQL, a
// transaction with a fence that only sends is one round trip. It may arrive after its commit was given up as in doubt. Then
// the fence must fail, if it would do harm.
func (t *Tx) Fence(lost func() error, query string, args ...any) error {
	observe(query, args)
	return classify(t.tx.fence(lost, query, args...))
}

// Lock returns the suffix of a SELECT that locks the rows of the table (or its
// alias) until the transaction ends. It is empty for SQLite, which has one writer.
func (t *Tx) Lock(table string) string { return t.lock(" FOR NO KEY UPDATE OF " + table) } // allows foreign keys

// Share is Lock in shared mode: several transactions can hold it, and changes wait.
func (t *Tx) Share(table string) string { return t.lock(" FOR SHARE OF " + table) }

// Keep is Share that only prevents deletion.
func (t *Tx) Keep(table string) string { return t.lock(" FOR KEY SHARE OF " + table) }

// Claim is Lock that skips locked rows, so that nodes can share a queue. A limited selection of rows to change belongs
// in a WITH clause: PostgreSQL may evaluate a subquery in IN several times, each time claiming other rows.
func (t *Tx) Claim(table string) string { return t.lock(" FOR UPDATE OF " + table + " SKIP LOCKED") }

func (t *Tx) lock(clause string) string {
	if t.locks {
		return clause
	}
	return ""
}

// DisableTimeouts removes the timeouts of the transaction, for an operator's command.
func (t *Tx) DisableTimeouts(ctx context.Context) error { return classify(t.tx.disableTimeouts(ctx)) }

// OnCommit runs fn after the commit, before signals are dispatched and Write returns.
func (t *Tx) OnCommit(fn func()) { t.onCommit = append(t.onCommit, fn) }

// OnEnd runs fn when the transaction has ended, with the error of Write: after the commit, or
// after a rollback. Write may then run another transaction.
func (t *Tx) OnEnd(fn func(error)) { t.onEnd = append(t.onEnd, fn) }

// maxAttempts limits the retries of a transaction that lost a race. Each retry
// means that another transaction made progress.
const maxAttempts = 5

// Write runs fn in a transaction and commits it. After a deadlock or a
// serialization failure it runs fn again, so fn must reset its state.
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	return d.write(ctx, true, fn)
}

func (d *DB) write(ctx context.Context, whole bool, fn func(tx *Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := d.writeOnce(ctx, whole, fn)
		if errors.Is(err, errFenced) {
			attempt, whole = attempt-1, false // to find out which fence it was
			continue
		}
		if IsFull(err) {
			d.fullAt.Store(time.Now().UnixMicro())
		}
		if errors.Is(err, ErrUnavailable) {
			d.degraded.Store(true)
		}
		if attempt == maxAttempts || !errors.Is(err, ErrRace) {
			return err
		}
		select {
		case <-time.After(rand.N(time.Duration(attempt) * 10 * time.Millisecond)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *DB) writeOnce(ctx context.Context, whole bool, fn func(tx *Tx) error) (err error) {
	etx, err := d.eng.begin(ctx, whole)
	if err != nil {
		return fmt.Errorf("begin: %w", classify(err))
	}
	tx := &Tx{Querier: querier{etx.query}, tx: etx, locks: d.Engine() != "sqlite"}
	defer func() {
		for _, fn := range tx.onEnd {
			fn(err)
		}
	}()
	defer etx.rollback() // no-op after the commit; also runs if fn panics
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.runLast(ctx); err != nil {
		return err
	}
	for _, s := range tx.signals {
		if err := etx.notify(s.topic, s.payload); err != nil {
			return fmt.Errorf("notify: %w", classify(err))
		}
	}
	// A canceled caller must not leave the outcome unknown.
	err = Wrap(classify(etx.commit(context.WithoutCancel(ctx))), "commit")
	if err == nil && d.losesResponse(tx) {
		err = fmt.Errorf("commit: %w: %w", ErrInDoubt, ErrUnavailable)
	}
	if err != nil && !errors.Is(err, ErrInDoubt) {
		return err
	}
	if err == nil {
		if tx.wrote { // an empty transaction also succeeds where writes fail
			d.degraded.Store(false)
			d.wroteAt.Store(time.Now().UnixMicro())
		}
		for _, fn := range tx.onCommit {
			fn()
		}
	}
	// A commit in doubt may have happened, and this process ignores its own notifications.
	for _, s := range tx.signals {
		d.signals.dispatch(s.topic, s.payload)
	}
	return err
}

// Each calls scan for every row of a query.
func Each(rows Rows, err error, scan func(Row) error) error {
	if err != nil {
		return classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return classify(err)
		}
	}
	return classify(rows.Err())
}

// All collects the rows of a query.
func All[T any](rows Rows, err error, scan func(Row) (T, error)) ([]T, error) {
	var out []T
	err = Each(rows, err, func(r Row) error {
		v, err := scan(r)
		if err == nil {
			out = append(out, v)
		}
		return err
	})
	return out, err
}

// List collects the rows of a query.
func List[T any](ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, query, args...)
	return All(rows, err, scan)
}

// Value reads a row with one column.
func Value[T any](r Row) (v T, err error) {
	err = Scan(r, &v)
	return v, err
}

// querier is the Querier of an engine or a transaction.
type querier struct {
	query func(ctx context.Context, query string, args ...any) (Rows, error)
}

func (q querier) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	observe(query, args)
	return q.query(ctx, query, args...)
}

func (q querier) QueryRow(ctx context.Context, query string, args ...any) Row {
	observe(query, args)
	rows, err := q.query(ctx, query, args...)
	return row{rows, err}
}

type row struct {
	rows Rows
	err  error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return classify(r.err)
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return classify(err)
		}
		return ErrNotFound
	}
	if err := r.rows.Scan(dest...); err != nil {
		return classify(err)
	}
	r.rows.Close()
	return classify(r.rows.Err())
}
