package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
)

// sqliteWriter is the one connection that writes. Writers queue for it in Go,
// so that none of them ever meets SQLITE_BUSY from a neighbour in this
// process, and its prepared statements live as long as it does.
type sqliteWriter struct {
	db    *sql.DB
	turn  chan struct{} // holds one token: whoever has it has the connection
	conn  *sql.Conn     // nil until first used, and after it broke
	stmts stmtCache
	bulk  map[string]driver.StmtExecContext // of the driver itself: see insertAll
	args  []driver.NamedValue               // room for the arguments of a statement in bulk
}

func newSQLiteWriter(db *sql.DB) *sqliteWriter {
	w := &sqliteWriter{db: db, turn: make(chan struct{}, 1)}
	w.turn <- struct{}{}
	return w
}

// acquire waits for the connection. ctx bounds the wait, never the statements:
// the driver would start a goroutine for each to watch it, and a half-done
// write is of no use to anyone.
func (w *sqliteWriter) acquire(ctx context.Context) error {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(context.Background())
	if err != nil {
		w.turn <- struct{}{}
		return err
	}
	w.conn = conn
	return nil
}

func (w *sqliteWriter) release() { w.turn <- struct{}{} }

// discard drops a connection that is beyond repair; the next writer opens a new one.
func (w *sqliteWriter) discard() {
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = w.conn.Close()
	w.conn = nil
	w.forgetStatements()
}

func (w *sqliteWriter) forgetStatements() {
	w.stmts.clear()
	for _, st := range w.bulk {
		_ = st.(driver.Stmt).Close()
	}
	w.bulk = nil
}

// writeAll writes the rows past database/sql: what that does for each
// statement took a sixth of the time of the request log.
func (w *sqliteWriter) writeAll(b *Bulk, rows [][]any) (total int64, err error) {
	err = w.conn.Raw(func(dc any) error {
		args := w.args[:0]
		defer func() {
			clear(args[:cap(args)]) // it keeps the room, not the rows
			w.args = args
		}()
		for len(rows) > 0 {
			query, n := b.sqlite, 1
			if b.several != "" && len(rows) >= bulkRows {
				query, n = b.several, bulkRows
			}
			st, err := w.bulkStatement(dc.(driver.Conn), query)
			if err != nil {
				return err
			}
			args = args[:0]
			for _, r := range rows[:n] {
				for _, v := range r {
					args = append(args, driver.NamedValue{Ordinal: len(args) + 1, Value: v})
				}
			}
			rows = rows[n:]
			res, err := st.ExecContext(context.Background(), args)
			if err != nil {
				return err
			}
			changed, err := res.RowsAffected()
			if err != nil {
				return err
			}
			total += changed
		}
		return nil
	})
	return total, err
}

func (w *sqliteWriter) bulkStatement(conn driver.Conn, query string) (driver.StmtExecContext, error) {
	if st := w.bulk[query]; st != nil {
		return st, nil
	}
	prepared, err := conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	st := prepared.(driver.StmtExecContext)
	if w.bulk == nil {
		w.bulk = map[string]driver.StmtExecContext{}
	}
	w.bulk[query] = st
	return st, nil
}

func (w *sqliteWriter) begin(ctx context.Context) (*sqliteTx, error) {
	if err := w.acquire(ctx); err != nil {
		return nil, err
	}
	tx := &sqliteTx{w: w}
	if _, err := tx.run("BEGIN IMMEDIATE"); err != nil {
		tx.rollback()
		return nil, err
	}
	return tx, nil
}

func (w *sqliteWriter) dataVersion(ctx context.Context) (v int64, err error) {
	if err := w.acquire(ctx); err != nil {
		return 0, err
	}
	defer w.release()
	st, err := w.stmts.get("PRAGMA data_version", w.conn.PrepareContext)
	if err != nil {
		return 0, err
	}
	err = st.QueryRow().Scan(&v)
	return v, err
}

// restartLog moves everything into the database, so that the next commit
// writes from the log's beginning. It does not wait for readers: one that is
// in the way postpones it, and must not stop the writer.
func (w *sqliteWriter) restartLog(ctx context.Context) error {
	if err := w.acquire(ctx); err != nil {
		return err
	}
	defer w.release()
	_, err := w.conn.ExecContext(context.Background(), "PRAGMA busy_timeout = 0")
	if err == nil {
		_, _, err = walCheckpoint(context.Background(), w.conn, "RESTART")
	}
	_, restore := w.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout.Milliseconds()))
	return errors.Join(err, restore)
}

func (w *sqliteWriter) close() {
	<-w.turn
	w.forgetStatements()
	if w.conn != nil {
		_ = w.conn.Close()
	}
	_ = w.db.Close()
	w.turn <- struct{}{}
}

type sqliteTx struct {
	w    *sqliteWriter
	done bool
}

func (t *sqliteTx) stmt(query string) (*sql.Stmt, error) {
	return t.w.stmts.get(query, t.w.conn.PrepareContext)
}

func (t *sqliteTx) run(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := st.Exec(args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *sqliteTx) exec(_ context.Context, query string, args ...any) (int64, error) {
	return t.run(query, args...)
}

func (t *sqliteTx) Query(_ context.Context, query string, args ...any) (Rows, error) {
	st, err := t.stmt(query)
	if err != nil {
		return nil, fold(err)
	}
	return sqlRows(st.Query(args...))
}

func (t *sqliteTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	rows, err := t.Query(ctx, query, args...)
	return row{rows, err}
}

func (t *sqliteTx) script(_ context.Context, statements string) error {
	_, err := t.w.conn.ExecContext(context.Background(), statements)
	return err
}

// notify has nobody to tell: other processes find out by watch.
func (t *sqliteTx) notify(context.Context, string, string) error { return nil }

// lockMigrations has nothing to do: the transaction began IMMEDIATE, so it is
// the only writer of all processes.
func (t *sqliteTx) lockMigrations(context.Context) error { return nil }

func (t *sqliteTx) lockRows(string) string { return "" }

func (t *sqliteTx) claimRows(string) string { return "" }

func (t *sqliteTx) shareRows(string) string { return "" }
func (t *sqliteTx) keepRows(string) string  { return "" }

func (t *sqliteTx) flush(context.Context) error { return nil }

func (t *sqliteTx) patient(context.Context) error { return nil } // it always is

func (t *sqliteTx) commit(context.Context) error {
	if _, err := t.run("COMMIT"); err != nil {
		// A COMMIT that failed (disk full, busy) leaves the transaction open;
		// the deferred rollback ends it.
		return err
	}
	t.done = true
	t.w.release()
	return nil
}

func (t *sqliteTx) rollback() {
	if t.done {
		return
	}
	t.done = true
	defer t.w.release()
	if _, err := t.run("ROLLBACK"); err == nil {
		return
	}
	// SQLite rolls back by itself on some errors, and then says that there is
	// no transaction. Only a connection that cannot tell is given up.
	if _, err := t.run("SELECT 1"); err != nil || t.inTransaction() {
		t.w.discard()
	}
}

// inTransaction finds out by trying to begin one.
func (t *sqliteTx) inTransaction() bool {
	if _, err := t.run("BEGIN"); err != nil {
		return true
	}
	_, err := t.run("ROLLBACK")
	return err != nil
}

// stmtCache keeps prepared statements by their text. The texts are constants
// in the code, so the cache is bounded by the program's size.
type stmtCache struct {
	mu sync.RWMutex
	m  map[string]*sql.Stmt
}

func (c *stmtCache) get(query string, prepare func(context.Context, string) (*sql.Stmt, error)) (*sql.Stmt, error) {
	c.mu.RLock()
	st := c.m[query]
	c.mu.RUnlock()
	if st != nil {
		return st, nil
	}
	st, err := prepare(context.Background(), query)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.m[query]; ok {
		return first, errors.Join(st.Close())
	}
	if c.m == nil {
		c.m = map[string]*sql.Stmt{}
	}
	c.m[query] = st
	return st, nil
}

func (c *stmtCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.m {
		_ = st.Close()
	}
	c.m = nil
}
