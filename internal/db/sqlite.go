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

	_ "modernc.org/sqlite" // pure Go
)

const (
	// foreignPoll is how often the writer checks for commits of other processes. The
	// documented maximum is 250 ms; a poll takes a few microseconds.
	foreignPoll = 100 * time.Millisecond

	// A second connection runs checkpoints while the writer continues. Only a log
	// beyond walLimit makes the writer wait: with PASSIVE alone, the log reached
	// 573 MB in 15 s of load. The limits are in frames of one page.
	checkpointPoll = 250 * time.Millisecond
	walSoft        = 16 << 20 / pageSize
	walLimit       = 64 << 20 / pageSize
	pageSize       = 4096

	// busyTimeout is for the write locks of other processes, such as commands.
	busyTimeout = 5 * time.Second
	// commandPatience is how long commands retry after that. SQLite's lock has no
	// queue, so a busy server can keep them from writing for seconds.
	commandPatience = 30 * time.Second
)

type sqliteEngine struct {
	writer  *sqliteWriter
	readers *sql.DB // one per core: more were slower
	check   *sql.DB // for checkpoints
	backups *sql.DB
	reads   stmtCache
	seen    int64 // last data_version
}

func openSQLite(path string) (*sqliteEngine, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	if err := touch(path); err != nil {
		return nil, fmt.Errorf("create database file: %w", err)
	}
	open := func(conns int, extra ...string) *sql.DB {
		d, err := sql.Open("sqlite", dsn(path, extra...))
		if err != nil { // the driver isn't linked
			panic(err)
		}
		d.SetMaxOpenConns(conns)
		d.SetMaxIdleConns(conns)
		return d
	}
	e := &sqliteEngine{writer: newSQLiteWriter(open(1)), readers: open(runtime.GOMAXPROCS(0), "query_only(1)"),
		check: open(1, "cache_size(-500)"), backups: open(1, "query_only(1)", "cache_size(-500)")}
	e.backups.SetMaxIdleConns(0) // they are rare
	// The writer comes first, because a query_only reader can't create the WAL.
	err := e.ping(context.Background())
	// Programs that open a new file at the same time can find it locked while one
	// of them switches it to WAL: SQLite's busy timeout doesn't cover that.
	for range openRetries {
		if err == nil || !errors.Is(classify(err), ErrUnavailable) {
			break
		}
		time.Sleep(openPause)
		err = e.ping(context.Background())
	}
	if err == nil {
		// Before anything is cached, so that later commits of others count as changes.
		e.seen, err = e.writer.dataVersion(context.Background())
	}
	if err != nil {
		e.close()
		return nil, fmt.Errorf("open sqlite database: %w", classify(err))
	}
	e.writer.patience = commandPatience
	return e, nil
}

// openRetries and openPause limit how long Open waits for another process.
const (
	openRetries = 20
	openPause   = 50 * time.Millisecond
)

// touch creates the database file for its owner only. SQLite gives the -wal and -shm
// files the same mode.
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
		"synchronous(FULL)", // commits are on the disk before they return
		"foreign_keys(1)",
		"wal_autocheckpoint(0)",
		"temp_store(2)",     // in memory: writes must not need a file descriptor
		"cache_size(-2000)", // KiB: twice that was not faster, even with a million deliveries
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func (e *sqliteEngine) name() string { return "sqlite" }

func (e *sqliteEngine) ping(ctx context.Context) error {
	// Beginning a transaction proves that the file is writable.
	tx, err := e.begin(ctx, false)
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
	e.backups.Close()
	e.writer.close() // the last connection moves the log into the database
}

func (e *sqliteEngine) query(ctx context.Context, query string, args ...any) (Rows, error) {
	st, err := e.reads.get(query, e.readers.PrepareContext)
	if err != nil {
		return nil, classify(err)
	}
	return sqlRows(st.QueryContext(ctx, args...))
}

func (e *sqliteEngine) begin(ctx context.Context, _ bool) (engineTx, error) {
	return e.writer.begin(ctx)
}

func (e *sqliteEngine) failFast() { e.writer.patience = 0 }

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
			// On the writing connection, data_version only changes with commits of
			// other connections.
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

// checkpoint uses the number of frames, not the size of the file, which never shrinks:
// overwriting a log syncs three times as fast as growing one.
func (e *sqliteEngine) checkpoint(ctx context.Context) {
	// Errors are retried in the next round, and an unwritable file fails the next commit.
	log, moved, err := walCheckpoint(ctx, e.check, "NOOP")
	switch {
	case err != nil:
	case log > walLimit:
		_ = e.writer.restartLog(ctx)
	case log-moved > walSoft:
		_, _, _ = walCheckpoint(ctx, e.check, "PASSIVE")
	}
}

// walCheckpoint returns the frames of the log, and how many are in the database.
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
		return nil, classify(err)
	}
	return rowsOf{rows}, nil
}
