package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"
)

// sqliteWriter is the only connection that writes. Writers queue for it in Go, so
// they never get SQLITE_BUSY from this process.
type sqliteWriter struct {
	db    *sql.DB
	token chan struct{} // holds one token, for the owner of the connection
	conn  *sql.Conn     // nil until first used, and after a failure
	stmts stmtCache
	bulk  map[string]driver.StmtExecContext // see writeAll
	args  []driver.NamedValue               // reused by writeAll
	// patience is how long begin retries while another process has the lock.
	patience time.Duration
}

func newSQLiteWriter(db *sql.DB) *sqliteWriter {
	w := &sqliteWriter{db: db, token: make(chan struct{}, 1)}
	w.token <- struct{}{}
	return w
}

// acquire waits for the connection. ctx only limits the wait: for statements, the
// driver would start a goroutine each.
func (w *sqliteWriter) acquire(ctx context.Context) error {
	select {
	case <-w.token:
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.conn != nil {
		return nil
	}
	conn, err := w.db.Conn(context.Background())
	if err != nil {
		w.token <- struct{}{}
		return err
	}
	w.conn = conn
	return nil
}

func (w *sqliteWriter) release() { w.token <- struct{}{} }

// discard drops a broken connection. The next writer opens a new one.
func (w *sqliteWriter) discard() {
	_ = w.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = w.conn.Close()
	w.conn = nil
	w.forgetStatements()
}

func (w *sqliteWriter) forgetStatements() {
	w.stmts.closeAll()
	for _, st := range w.bulk {
		_ = st.(driver.Stmt).Close()
	}
	w.bulk = nil
}

// writeAll bypasses database/sql, which took a sixth of the request log's time.
func (w *sqliteWriter) writeAll(b *Bulk, rows [][]any) (total int64, err error) {
	err = w.conn.Raw(func(dc any) error {
		args := w.args[:0]
		defer func() {
			clear(args[:cap(args)]) // keep the memory, not the rows
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
	for until := time.Now().Add(w.patience); ; {
		_, err := tx.run("BEGIN IMMEDIATE")
		if err == nil {
			return tx, nil
		}
		if !isBusy(err) || ctx.Err() != nil || !time.Now().Before(until) {
			tx.rollback()
			return nil, err
		}
	}
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

// restartLog moves the log into the database, so that the next commit overwrites it
// from its start. It doesn't wait for readers.
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
	<-w.token
	w.forgetStatements()
	if w.conn != nil {
		_ = w.conn.Close()
	}
	_ = w.db.Close()
	w.token <- struct{}{}
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

func (t *sqliteTx) query(_ context.Context, query string, args ...any) (Rows, error) {
	st, err := t.stmt(query)
	if err != nil {
		return nil, classify(err)
	}
	return sqlRows(st.Query(args...))
}

func (t *sqliteTx) bulkWrite(_ context.Context, b *Bulk, rows [][]any) (int64, error) {
	return t.w.writeAll(b, rows)
}

func (t *sqliteTx) send(then func(n int64) error, query string, args ...any) error {
	n, err := t.run(query, args...)
	if err != nil || then == nil {
		return err
	}
	return then(n)
}

func (t *sqliteTx) fence(lost func() error, query string, args ...any) error {
	rows, err := t.query(context.Background(), query, args...)
	found := false
	err = Each(rows, err, func(Row) error {
		found = true
		return nil
	})
	if err == nil && !found {
		return lost()
	}
	return err
}

func (t *sqliteTx) bulkRead(ctx context.Context, b *Bulk, rows [][]any, scan func(Row) error) error {
	for _, r := range rows {
		found, err := t.query(ctx, b.sqlite, r...)
		if err := Each(found, err, scan); err != nil {
			return err
		}
	}
	return nil
}

// bulkSend writes immediately: there is no round trip to save.
func (t *sqliteTx) bulkSend(ctx context.Context, b *Bulk, rows [][]any, then func(n int64) error) error {
	n, err := t.bulkWrite(ctx, b, rows)
	if err != nil || then == nil {
		return err
	}
	return then(n)
}

func (t *sqliteTx) script(_ context.Context, statements string) error {
	_, err := t.w.conn.ExecContext(context.Background(), statements)
	return err
}

// notify does nothing: other processes poll in watch.
func (t *sqliteTx) notify(string, string) error { return nil }

// lockMigrations does nothing: BEGIN IMMEDIATE makes this the only writer.
func (t *sqliteTx) lockMigrations(context.Context) error { return nil }

func (t *sqliteTx) disableTimeouts(context.Context) error { return nil }

func (t *sqliteTx) commit(context.Context) error {
	if _, err := t.run("COMMIT"); err != nil {
		// After a failed COMMIT the transaction is open, until the deferred rollback.
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
	// SQLite rolls back by itself after some errors. Discard the connection only if
	// it is broken or still in a transaction.
	if _, err := t.run("SELECT 1"); err != nil || t.inTransaction() {
		t.w.discard()
	}
}

// inTransaction tries to begin a transaction.
func (t *sqliteTx) inTransaction() bool {
	if _, err := t.run("BEGIN"); err != nil {
		return true
	}
	_, err := t.run("ROLLBACK")
	return err != nil
}

// stmtCache caches prepared statements. Their texts are constants in the code, so it
// is bounded.
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

func (c *stmtCache) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range c.m {
		_ = st.Close()
	}
	c.m = nil
}
