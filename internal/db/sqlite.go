package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	_ "modernc.org/sqlite" // the pure Go driver: no C compiler is needed
)

const (
	// foreignPoll is how often the writer asks whether another process has
	// committed. The promise is 250 ms; the poll costs a few microseconds.
	foreignPoll = 100 * time.Millisecond

	// Checkpoints are kept off the commit path: a second connection moves
	// pages back into the database while the writer goes on, and only a log
	// that outgrows walLimit makes the writer wait. PASSIVE alone let the log
	// reach 573 MB in 15 s of load. The limits are in frames, one page each.
	checkpointPoll = 250 * time.Millisecond
	walSoft        = 16 << 20 / pageSize
	walLimit       = 64 << 20 / pageSize
	pageSize       = 4096

	// busyTimeout: another process, an operator's command, may hold the write
	// lock for a moment.
	busyTimeout = 5 * time.Second
)

type sqliteEngine struct {
	writer  *sqliteWriter
	readers *sql.DB // as many as there are cores: reads got slower beyond it
	check   *sql.DB // the checkpointer's own
	reads   stmtCache
	seen    int64 // the data_version up to which other processes' commits are known
}

func openSQLite(path string) (*sqliteEngine, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	if err := touch(path); err != nil {
		return nil, fmt.Errorf("create database file: %w", err)
	}
	e := &sqliteEngine{}
	var err error
	open := func(conns int, extra ...string) *sql.DB {
		if err != nil {
			return nil
		}
		var d *sql.DB
		d, err = sql.Open("sqlite", dsn(path, extra...))
		if err != nil {
			return nil
		}
		d.SetMaxOpenConns(conns)
		d.SetMaxIdleConns(conns)
		return d
	}
	writer := open(1)
	e.readers = open(runtime.GOMAXPROCS(0), "query_only(1)")
	e.check = open(1, "cache_size(-500)")
	if err != nil {
		return nil, fmt.Errorf("open sqlite: %w", err)
	}
	e.writer = newSQLiteWriter(writer)
	// The writer must come first: it creates the file's WAL, and a query_only
	// reader cannot.
	err = e.ping(context.Background())
	// Programs that open a new file at the same time can find it locked while one
	// of them switches it to WAL: SQLite's busy timeout doesn't cover that.
	for range openRetries {
		if err == nil || !errors.Is(fold(err), ErrUnavailable) {
			break
		}
		time.Sleep(openPause)
		err = e.ping(context.Background())
	}
	if err != nil {
		e.close()
		return nil, fmt.Errorf("open sqlite database: %w", fold(err))
	}
	// Before anybody can read and remember anything: what others commit from
	// here on is a change.
	if e.seen, err = e.writer.dataVersion(context.Background()); err != nil {
		e.close()
		return nil, fmt.Errorf("open sqlite database: %w", fold(err))
	}
	return e, nil
}

// openRetries and openPause bound how long Open waits for another program.
const (
	openRetries = 20
	openPause   = 50 * time.Millisecond
)

// touch creates the database file readable by its owner alone; SQLite gives
// the -wal and -shm files the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func dsn(path string, pragmas ...string) string {
	q := url.Values{"_txlock": {"immediate"}}
	for _, p := range append([]string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(FULL)", // a commit is on the disk before it is acknowledged
		"foreign_keys(1)",
		"wal_autocheckpoint(0)",
		"temp_store(2)",     // in memory: a write must not fail for want of a file descriptor
		"cache_size(-2000)", // KiB: twice that made nothing faster, with a million deliveries waiting either
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func (e *sqliteEngine) name() string { return "sqlite" }

func (e *sqliteEngine) ping(ctx context.Context) error {
	// Reading proves that the file is there, taking the write lock that it
	// can be written.
	tx, err := e.begin(ctx)
	if err != nil {
		return err
	}
	tx.rollback()
	var one int
	return e.readers.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

func (e *sqliteEngine) close() {
	e.readers.Close()
	e.check.Close()
	e.writer.close() // the last connection to close moves the log into the database
}

func (e *sqliteEngine) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	st, err := e.reads.get(query, e.readers.PrepareContext)
	if err != nil {
		return nil, fold(err)
	}
	return sqlRows(st.QueryContext(ctx, args...))
}

func (e *sqliteEngine) QueryRow(ctx context.Context, query string, args ...any) Row {
	rows, err := e.Query(ctx, query, args...)
	return row{rows, err}
}

func (e *sqliteEngine) begin(ctx context.Context) (engineTx, error) { return e.writer.begin(ctx) }

func (e *sqliteEngine) bulkWrite(_ context.Context, etx engineTx, b *Bulk, rows [][]any) (int64, error) {
	return etx.(*sqliteTx).w.writeAll(b, rows)
}

// bulkSend has no way to spare.
func (e *sqliteEngine) bulkSend(ctx context.Context, etx engineTx, b *Bulk, rows [][]any, then func(n int64) error) error {
	n, err := e.bulkWrite(ctx, etx, b, rows)
	if err != nil || then == nil {
		return err
	}
	return then(n)
}

// watch polls for commits of other processes and keeps the log short.
func (e *sqliteEngine) watch(ctx context.Context, changed func(topic, payload string)) {
	foreign := time.NewTicker(foreignPoll)
	defer foreign.Stop()
	checkpoint := time.NewTicker(checkpointPoll)
	defer checkpoint.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-foreign.C:
			// Asked on the writing connection, data_version stays the same
			// through our own commits and changes with anybody else's.
			v, err := e.writer.dataVersion(ctx)
			if err != nil {
				continue
			}
			if v != e.seen {
				e.seen = v
				changed("", "")
			}
		case <-checkpoint.C:
			e.checkpoint(ctx)
		}
	}
}

// checkpoint goes by the frames in use and not by the size of the file, which
// never shrinks: a log that is written over syncs three times as fast as one
// that grows.
func (e *sqliteEngine) checkpoint(ctx context.Context) {
	// Errors here are not fatal: the next round tries again, and a store that
	// cannot be written shows it at the next commit.
	log, moved, err := walCheckpoint(ctx, e.check, "NOOP")
	switch {
	case err != nil:
	case log > walLimit:
		_ = e.writer.restartLog(ctx)
	case log-moved > walSoft:
		_, _, _ = walCheckpoint(ctx, e.check, "PASSIVE")
	}
}

// walCheckpoint returns how many frames the log has and how many of them are
// in the database.
func walCheckpoint(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, mode string,
) (log, moved int, err error) {
	var busy int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &moved)
	return log, moved, err
}

// rowsOf adapts database/sql's result set to Rows.
type rowsOf struct{ *sql.Rows }

func (r rowsOf) Close() { _ = r.Rows.Close() }

func sqlRows(rows *sql.Rows, err error) (Rows, error) {
	if err != nil {
		return nil, fold(err)
	}
	return rowsOf{rows}, nil
}
