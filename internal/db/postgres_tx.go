package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

type postgresTx struct {
	eng   *postgresEngine
	conn  *pgxpool.Conn // nil after the end
	limit time.Duration // of a statement; 0 for none

	unsent pgx.Batch // sent with the next statement, in one round trip
	then   []func(n int64) error
	begun  bool // something was sent

	whole  bool // see engine.begin
	fenced bool
}

// errFenced means that a transaction didn't pass a fence.
var errFenced = errors.New("a fence failed")

// failure is classify for an error that may come from a fence.
func (t *postgresTx) failure(err error) error {
	const divisionByZero = "22012"
	var response *pgconn.PgError
	if t.fenced && errors.As(err, &response) && response.Code == divisionByZero {
		return errFenced
	}
	const undefinedObject = "42704"
	if errors.As(err, &response) && response.Code == undefinedObject { // the next connection finds or creates the row types
		_ = t.conn.Conn().Close(context.Background())
	}
	return classify(err)
}

func (t *postgresTx) fence(lost func() error, query string, args ...any) error {
	if t.begun || !t.whole {
		return t.send(func(found int64) error {
			if found == 0 {
				return lost()
			}
			return nil
		}, query, args...)
	}
	t.fenced = true
	return t.send(nil, "SELECT 1 / coalesce(("+query+"), 0)", args...)
}

func (t *postgresTx) bulkWrite(ctx context.Context, b *Bulk, rows [][]any) (int64, error) {
	array, err := t.encode(ctx, b, rows)
	if err != nil {
		return 0, err
	}
	return t.exec(ctx, b.postgres, array)
}

func (t *postgresTx) bulkRead(ctx context.Context, b *Bulk, rows [][]any, scan func(Row) error) error {
	array, err := t.encode(ctx, b, rows)
	if err != nil {
		return err
	}
	found, err := t.query(ctx, b.postgres, array)
	return Each(found, err, scan)
}

func (t *postgresTx) bulkSend(ctx context.Context, b *Bulk, rows [][]any, then func(n int64) error) error {
	array, err := t.encode(ctx, b, rows)
	if err != nil {
		return err
	}
	return t.send(then, b.postgres, array)
}

// encode returns the argument of a Bulk's statement.
func (t *postgresTx) encode(ctx context.Context, b *Bulk, rows [][]any) (rowArray, error) {
	typ, err := t.eng.rowType(ctx, t.conn.Conn(), b.rowType)
	if err != nil {
		return rowArray{}, err
	}
	array, err := typ.encode(b, rows)
	return rowArray{array}, err
}

// send queues a statement for the next round trip.
func (t *postgresTx) send(then func(n int64) error, query string, args ...any) error {
	t.unsent.Queue(query, args...)
	t.then = append(t.then, then)
	return nil
}

// flush sends pending statements and calls their callbacks.
func (t *postgresTx) flush(ctx context.Context) error {
	for t.unsent.Len() > 0 {
		then, n := t.then, t.unsent.Len()
		results, done := t.sendBatch(ctx)
		changed, err := readAll(results, n)
		err = closeAfter(results, err)
		if done(); err != nil {
			return t.failure(err)
		}
		for i, follow := range then {
			if follow == nil {
				continue
			}
			if err := follow(changed[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendBatch sends pending statements. Call done after the results are closed.
func (t *postgresTx) sendBatch(ctx context.Context) (results pgx.BatchResults, done context.CancelFunc) {
	ctx, done = within(ctx, t.limit)
	batch := t.unsent
	t.unsent, t.then, t.begun = pgx.Batch{}, nil, true
	return t.conn.SendBatch(ctx, &batch), done
}

// closeAfter closes results after an error, and returns the first one.
func closeAfter(results pgx.BatchResults, err error) error {
	if closed := results.Close(); err == nil {
		err = closed
	}
	return err
}

// readAll returns how many rows each of n statements changed.
func readAll(results pgx.BatchResults, n int) (changed []int64, err error) {
	for range n {
		tag, err := results.Exec()
		if err != nil {
			return nil, err
		}
		changed = append(changed, tag.RowsAffected())
	}
	return changed, nil
}

func (t *postgresTx) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	if err := t.flushCallbacks(ctx); err != nil {
		return 0, err
	}
	err = t.send(func(n int64) error { changed = n; return nil }, query, args...)
	if err == nil {
		err = t.flush(ctx)
	}
	return changed, err
}

// query sends the query together with pending statements.
func (t *postgresTx) query(ctx context.Context, query string, args ...any) (Rows, error) {
	if err := t.flushCallbacks(ctx); err != nil {
		return nil, err
	}
	n := t.unsent.Len()
	if n == 0 {
		return timedQuery(ctx, t.limit, t.conn.Query, query, args)
	}
	t.unsent.Queue(query, args...)
	results, done := t.sendBatch(ctx)
	_, err := readAll(results, n)
	var rows pgx.Rows
	if err == nil {
		rows, err = results.Query()
	}
	if err != nil {
		_ = results.Close() // the error is known
		done()
		return nil, t.failure(err)
	}
	return batchRows{rows, results, done}, nil
}

// batchRows are the rows of a batch's last statement.
type batchRows struct {
	pgx.Rows
	results pgx.BatchResults
	done    context.CancelFunc
}

func (r batchRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // Err has the error of the rows
	r.done()
}

// flushCallbacks is flush if a pending statement has a callback, which may send more.
func (t *postgresTx) flushCallbacks(ctx context.Context) error {
	for _, then := range t.then {
		if then != nil {
			return t.flush(ctx)
		}
	}
	return nil
}

func (t *postgresTx) script(ctx context.Context, statements string) error {
	if err := t.flush(ctx); err != nil {
		return err
	}
	_, err := t.conn.Conn().PgConn().Exec(ctx, statements).ReadAll()
	return err
}

func (t *postgresTx) notify(topic, payload string) error {
	return t.send(nil, "SELECT pg_notify($1, $2)", t.eng.channel, *t.eng.self.Load()+" "+topic+" "+payload)
}

func (t *postgresTx) lockMigrations(ctx context.Context) error {
	_, err := t.exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", t.eng.channel)
	return err
}

func (t *postgresTx) disableTimeouts(ctx context.Context) error {
	t.limit = 0
	_, err := t.exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0")
	return err
}

// commit sends what is pending and commits, in one round trip if a commit that arrives late fails: either the server has
// ended the idle transaction, or a fence fails.
func (t *postgresTx) commit(ctx context.Context) error {
	if err := t.flushCallbacks(ctx); err != nil {
		return err
	}
	if !t.begun && t.unsent.Len() == 1 { // only "begin"
		t.release()
		return nil
	}
	if !t.fenced {
		if err := t.flush(ctx); err != nil {
			return err
		}
	}
	err := t.sendCommit(ctx)
	if err == nil {
		t.release()
		return nil
	}
	err = t.failure(err)
	var response *pgconn.PgError
	switch {
	case errors.As(err, &response):
		if !outcomeUnknown(response) {
			return err
		}
	case !errors.Is(err, ErrUnavailable):
		return err
	}
	t.eng.rename()
	return fmt.Errorf("%w: %w", ErrInDoubt, &classified{ErrUnavailable, err})
}

// sendCommit sends what is pending and commits. Statements that are sent together are a transaction. So if nothing was
// sent before, they need neither "begin" nor "commit", which would take PostgreSQL a tenth of the time.
func (t *postgresTx) sendCommit(ctx context.Context) (err error) {
	const commit = "commit"
	tag := pgconn.NewCommandTag("COMMIT")
	switch n := t.unsent.Len(); {
	case !t.begun:
		t.unsent.QueuedQueries = t.unsent.QueuedQueries[1:]
		results, done := t.sendBatch(ctx)
		defer done()
		_, err = readAll(results, n-1)
		err = closeAfter(results, err)
	case n > 0:
		t.unsent.Queue(commit)
		results, done := t.sendBatch(ctx)
		defer done()
		if _, err = readAll(results, n); err == nil {
			tag, err = results.Exec()
		}
		err = closeAfter(results, err)
	default:
		ctx, cancel := within(ctx, t.limit)
		defer cancel()
		tag, err = t.conn.Exec(ctx, commit)
	}
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// outcomeUnknown reports whether a commit may have happened despite the server's
// error. A session can end between the commit and its response, and PgBouncer
// reports a server that it lost as an error of the server.
func outcomeUnknown(response *pgconn.PgError) bool {
	switch {
	case response.Code == "25P03": // ended while idle, before the commit arrived
		return false
	case response.Code == "40003", // statement completion unknown
		strings.HasPrefix(response.Code, "08"), strings.HasPrefix(response.Code, "57P"):
		return true
	}
	return response.SeverityUnlocalized == "FATAL" || response.SeverityUnlocalized == "PANIC"
}

// release returns the connection. The pool closes it if it is broken or in a transaction.
func (t *postgresTx) release() {
	t.conn.Release()
	t.conn = nil
}

func (t *postgresTx) rollback() {
	if t.conn == nil {
		return
	}
	defer t.release()
	if t.begun {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_, _ = t.conn.Exec(ctx, "rollback")
	}
}
