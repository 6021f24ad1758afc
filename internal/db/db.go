// Package db is the ground under every record: one SQL text on two engines,
// the embedded SQLite and PostgreSQL. What differs between them stays here.
//
// Reads go through DB or Tx (both are a Querier), writes only through a Tx,
// and hot writes through a Group, which commits whatever waits at once.
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

// Querier reads. Functions that only read take it, so that the caller chooses
// between a transaction's view and the latest committed state.
type Querier interface {
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// Rows is a result set. Close is idempotent and called by Each.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// Row is a single result. Scan returns ErrNotFound when there is none.
type Row interface {
	Scan(dest ...any) error
}

// engine is one database system.
type engine interface {
	Querier
	begin(ctx context.Context) (engineTx, error)
	name() string
	ping(ctx context.Context) error
	close()
	// watch runs until ctx ends and calls changed when another process may
	// have changed what this one has cached. An empty topic means anything.
	watch(ctx context.Context, changed func(topic, payload string))
	// bulkWrite writes rows with one statement over arrays or a few prepared ones.
	bulkWrite(ctx context.Context, tx engineTx, b *Bulk, rows [][]any) (int64, error)
	// bulkSend is bulkWrite with the next statement, or flush.
	bulkSend(ctx context.Context, tx engineTx, b *Bulk, rows [][]any, then func(n int64) error) error
}

type engineTx interface {
	Querier
	exec(ctx context.Context, query string, args ...any) (int64, error)
	script(ctx context.Context, statements string) error
	notify(ctx context.Context, topic, payload string) error
	lockMigrations(ctx context.Context) error
	lockRows(table string) string
	claimRows(table string) string
	shareRows(table string) string
	keepRows(table string) string
	flush(ctx context.Context) error
	patient(ctx context.Context) error
	commit(ctx context.Context) error
	rollback()
}

// DB is an open database.
type DB struct {
	eng     engine
	signals signals
	stop    context.CancelFunc
	watched chan struct{}
	ailing  atomic.Bool  // the last write found the store away or full
	noRoom  atomic.Int64 // when a write found none, in microseconds
	clock   *clock       // nil where there is one server
}

// Open opens the database that the address names: a postgres:// URL, or the
// path of a SQLite file. It does not migrate.
func Open(ctx context.Context, address string) (*DB, error) { return OpenOn(ctx, address, time.Now) }

// OpenOn is Open on a machine with a clock of its own, as tests have several.
func OpenOn(ctx context.Context, address string, local func() time.Time) (*DB, error) {
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
	d := &DB{eng: eng, stop: stop, watched: make(chan struct{})}
	var watching sync.WaitGroup
	watching.Go(func() { eng.watch(watchCtx, d.signals.dispatch) })
	if d.Engine() != "sqlite" {
		d.clock = newClock(local)
		if err := d.CompareClocks(ctx); err != nil {
			slog.Warn("cannot ask the database for its time; it is tried again", "error", err)
		}
		watching.Go(func() { d.keepTime(watchCtx) })
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

// Close releases the database. Writers must have stopped.
func (d *DB) Close() {
	d.stop()
	<-d.watched
	d.eng.close()
}

// fullFor is how long after a write for which there was no room a store counts as
// full: small ones still find some.
const fullFor = 3 * time.Second

// Ping tells whether the store can be reached and takes writes. It writes only
// after a write has failed: a full disk shows in no other way, and whoever may
// ask for readiness must not be able to keep the disk busy.
func (d *DB) Ping(ctx context.Context) error {
	if at := d.noRoom.Load(); at != 0 && time.Since(time.UnixMicro(at)) < fullFor {
		return fmt.Errorf("the disk is full: %w", ErrUnavailable)
	}
	if !d.ailing.Load() {
		return fold(d.eng.ping(ctx))
	}
	return d.Write(ctx, func(tx *Tx) error {
		_, err := tx.Exec(ctx, "UPDATE schema_migrations SET version = version")
		return err
	})
}

// Query reads committed data.
func (d *DB) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return d.eng.Query(ctx, query, args...)
}

// QueryRow reads one committed row.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) Row {
	return d.eng.QueryRow(ctx, query, args...)
}

// Tx is a write transaction.
type Tx struct {
	eng      engine
	tx       engineTx
	onCommit []func()
	signals  []signal
	last     []lastStep
}

// Query reads inside the transaction.
func (t *Tx) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return t.tx.Query(ctx, query, args...)
}

// QueryRow reads one row inside the transaction.
func (t *Tx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return t.tx.QueryRow(ctx, query, args...)
}

// Exec writes and returns the number of rows it changed.
func (t *Tx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	n, err := t.tx.exec(ctx, query, args...)
	return n, fold(err)
}

// Lock is the suffix of a SELECT that holds the rows of the table (or its
// alias) until the transaction ends, so that what was read is still true when
// it is written. SQLite needs none: a transaction is its only writer.
func (t *Tx) Lock(table string) string { return t.tx.lockRows(table) }

// Share is Lock among readers: several may hold the rows at once, and whoever
// wants to change them waits for all.
func (t *Tx) Share(table string) string { return t.tx.shareRows(table) }

// Keep is Share against removal alone: others may change the rows.
func (t *Tx) Keep(table string) string { return t.tx.keepRows(table) }

// Claim is Lock that leaves out what others hold, so that several nodes take
// from one queue without waiting for each other.
func (t *Tx) Claim(table string) string { return t.tx.claimRows(table) }

// Patient lets the transaction take as long as it does: it is an operator's, who
// watches it, and not a request's.
func (t *Tx) Patient(ctx context.Context) error { return fold(t.tx.patient(ctx)) }

// OnCommit runs fn after the transaction is durable, before its signals are
// heard and before Write returns.
func (t *Tx) OnCommit(fn func()) { t.onCommit = append(t.onCommit, fn) }

// maxAttempts bounds how often a transaction that lost a race with another is
// run again. Each retry means that some other transaction made progress.
const maxAttempts = 5

// Write runs fn in a transaction and commits it. When the engine reports that
// it lost a race (deadlock, serialization), fn runs again from the start, so
// fn must not keep state from a failed attempt.
func (d *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := d.writeOnce(ctx, fn)
		if isFull(err) {
			d.noRoom.Store(time.Now().UnixMicro())
		}
		if unavailable := errors.Is(err, ErrUnavailable); unavailable != d.ailing.Load() && (unavailable || err == nil) {
			d.ailing.Store(unavailable)
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

func (d *DB) writeOnce(ctx context.Context, fn func(tx *Tx) error) error {
	etx, err := d.eng.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", fold(err))
	}
	tx := &Tx{eng: d.eng, tx: etx}
	defer etx.rollback() // a no-op after commit; it also runs when fn panics
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.runLast(ctx); err != nil {
		return err
	}
	if err := etx.flush(ctx); err != nil {
		return err
	}
	for _, s := range tx.signals {
		if err := etx.notify(ctx, s.topic, s.payload); err != nil {
			return fmt.Errorf("notify: %w", fold(err))
		}
	}
	// From here on the caller going away must not leave the outcome open.
	err = etx.commit(context.WithoutCancel(ctx))
	switch {
	case err == nil:
		for _, fn := range tx.onCommit {
			fn()
		}
	case errors.Is(err, ErrInDoubt):
		// It may have been done, and what others tell this process of it is left
		// out as its own.
		err = fmt.Errorf("commit: %w", fold(err))
	default:
		return fmt.Errorf("commit: %w", fold(err))
	}
	for _, s := range tx.signals {
		d.signals.dispatch(s.topic, s.payload)
	}
	return err
}

// Each scans every row of a query with scan, in order.
func Each(rows Rows, err error, scan func(Row) error) error {
	if err != nil {
		return fold(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fold(err)
		}
	}
	return fold(rows.Err())
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

// row turns a result set into its first row.
type row struct {
	rows Rows
	err  error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return fold(r.err)
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return fold(err)
		}
		return ErrNotFound
	}
	if err := r.rows.Scan(dest...); err != nil {
		return fold(err)
	}
	r.rows.Close()
	return fold(r.rows.Err())
}
