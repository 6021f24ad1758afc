package db

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"turnpike/internal/ids"
)

const (
	// A dead LISTEN connection delays revocations until the cache expires, so it is
	// probed more often than that.
	listenProbe = 3 * time.Second
	listenRetry = 250 * time.Millisecond

	// connectTimeout and statementTimeout limit how long a request waits for a
	// server that doesn't respond. Only migrations may take longer.
	connectTimeout   = 3 * time.Second
	statementTimeout = 5 * time.Second

	// idleTransaction is how long PostgreSQL lets a transaction be idle. A node that
	// was frozen in a transaction must not commit after others took over from it
	// (see nodes). It is shorter than statementTimeout, so a commit that timed out
	// before it arrived never happens later.
	idleTransaction = 4 * time.Second
)

// defaults are settings that the address can override. They are set after
// connecting, because PgBouncer rejects them as startup parameters. The planner is tuned
// for few rows by index in tables that change faster than their statistics. With
// PostgreSQL's defaults, updating a few rows by ID joins the whole table: a prepared
// statement keeps the plan that it got when the table had five rows. Compiling a plan
// takes longer than running it.
var defaults = map[string]string{
	"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "off", "jit": "off", "random_page_cost": "1.1",
	"idle_in_transaction_session_timeout": strconv.FormatInt(idleTransaction.Milliseconds(), 10),
}

type postgresEngine struct {
	pool    *pgxpool.Pool
	channel string                 // of the schema, because databases may be shared
	self    atomic.Pointer[string] // identifies our own notifications
}

// newPool creates a pool of connections. It doesn't connect yet.
func newPool(ctx context.Context, address string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		// pgx masks the password in its message.
		return nil, fmt.Errorf("read database url: %w", err)
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	settings := maps.Clone(defaults)
	maps.DeleteFunc(settings, func(name, _ string) bool {
		_, given := cfg.ConnConfig.RuntimeParams[name]
		return given
	})
	// Checks under a lock must see what was committed before it was granted.
	settings["default_transaction_isolation"] = "read committed"
	switch cfg.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol: // don't ask the server for the types of parameters
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	cfg.BeforeConnect, cfg.BeforeClose = forbidCancellation, closeLost
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		endAbandonedStatements(ctx, conn)
		if err := applySettings(ctx, conn, settings); err != nil {
			return err
		}
		known, err := findRowTypes(ctx, conn)
		registerRowTypes(conn, known)
		return err
	}
	if !strings.Contains(address, "pool_max_conns") {
		cfg.MaxConns = max(cfg.MaxConns, 16)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", classify(err))
	}
	return pool, nil
}

func openPostgres(ctx context.Context, address string) (*postgresEngine, error) {
	pool, err := newPool(ctx, address)
	if err != nil {
		return nil, err
	}
	e := &postgresEngine{pool: pool}
	e.rename()
	var schema string
	err = classify(pool.QueryRow(ctx, "SELECT coalesce(current_schema(), '')").Scan(&schema))
	if err == nil && schema == "" {
		err = errors.New("the search_path has no existing schema")
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to postgres: %w%s", err, connectAdvice(err, pool.Config().ConnConfig.Database))
	}
	sum := sha256.Sum256([]byte(schema))
	e.channel = "turnpike_" + hex.EncodeToString(sum[:8])
	return e, nil
}

// connectAdvice returns what to do about a rejected connection.
func connectAdvice(err error, database string) string {
	rejected, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case rejected != nil && rejected.Code == "3D000": // invalid_catalog_name
		return "; create it with: createdb " + database
	case rejected != nil && strings.HasPrefix(rejected.Code, "28"): // invalid authorization
		return "; check the user, the password and pg_hba.conf"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return "; turn on TLS in PostgreSQL, or use sslmode=disable if no one else can read the connection"
	}
	return ""
}

// applySettings changes settings of the session in one round trip.
func applySettings(ctx context.Context, conn *pgx.Conn, settings map[string]string) error {
	var statements strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&statements, "SET %s = '%s';", name, value)
	}
	if _, err := conn.PgConn().Exec(ctx, statements.String()).ReadAll(); err != nil {
		return fmt.Errorf("change settings of the session: %w", err)
	}
	return nil
}

// CheckSessions finds connections that don't keep the timeout for idle
// transactions, usually because of a connection pooler.
func (d *DB) CheckSessions(ctx context.Context) error {
	e, ok := d.eng.(*postgresEngine)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	servers := map[uint32]bool{}
	// Both connections stay open, so a pooler in session mode needs two servers for them.
	for range 2 {
		conn, err := e.pool.Acquire(ctx)
		if err != nil {
			return classify(err)
		}
		defer conn.Release()
		var server uint32
		var timeout int64
		err = conn.QueryRow(ctx, "SELECT pg_backend_pid()::bigint, setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'").Scan(&server, &timeout)
		if err != nil {
			return classify(err)
		}
		switch {
		case servers[server]:
			return errors.New("two connections share one server process, so a pooler runs in transaction or statement mode; set pool_mode = session")
		case timeout <= 0 || timeout >= statementTimeout.Milliseconds():
			return fmt.Errorf("idle_in_transaction_session_timeout is %d ms, but must be between 1 and %d ms, or a frozen node can commit after others took over its work; "+
				"remove it from database_url and from the settings of a pooler", timeout, statementTimeout.Milliseconds()-1)
		}
		servers[server] = true
	}
	return nil
}

// RedactedAddress returns the host, port and name of a PostgreSQL database, without credentials.
func RedactedAddress(address string) string {
	cfg, err := pgconn.ParseConfig(address)
	if err != nil {
		return "(invalid address)"
	}
	return net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))) + "/" + cmp.Or(cfg.Database, cfg.User)
}

func (e *postgresEngine) name() string { return "postgres" }

func (e *postgresEngine) close() { e.pool.Close() }

// failFast does nothing: writers wait for rows, and no process locks the whole
// database.
func (e *postgresEngine) failFast() {}

func (e *postgresEngine) query(ctx context.Context, query string, args ...any) (Rows, error) {
	return timedQuery(ctx, statementTimeout, e.pool.Query, query, args)
}

// timedQuery runs a query with a limit for reading all rows.
func timedQuery(ctx context.Context, limit time.Duration, run func(context.Context, string, ...any) (pgx.Rows, error), query string, args []any) (Rows, error) {
	ctx, cancel := within(ctx, limit)
	rows, err := run(ctx, query, args...)
	if err != nil {
		cancel()
		return nil, classify(err)
	}
	return timedRows{rows, cancel}, nil
}

// within limits a context; 0 is no limit.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

type timedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r timedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

func (e *postgresEngine) begin(ctx context.Context, whole bool) (engineTx, error) {
	t, err := e.beginAs(ctx, "begin")
	if err != nil {
		return nil, err
	}
	t.whole = whole
	return t, nil
}

// beginAs begins a transaction with its first statement.
func (e *postgresEngine) beginAs(ctx context.Context, command string) (*postgresTx, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &postgresTx{eng: e, conn: conn, limit: statementTimeout}
	return t, t.send(nil, command)
}

// watch keeps one connection listening. Notifications may be lost while it is down,
// so then everything counts as changed.
func (e *postgresEngine) watch(ctx context.Context, changed func(topic, payload string)) {
	for ctx.Err() == nil {
		_ = e.listen(ctx, changed) // retried
		changed("", "")
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
}

// rename makes this process handle its own earlier notifications: a commit in doubt
// may still happen, after what was read since.
func (e *postgresEngine) rename() {
	name := ids.New(ids.Node)
	e.self.Store(&name)
}

func (e *postgresEngine) listen(ctx context.Context, changed func(topic, payload string)) error {
	conn, err := pgx.ConnectConfig(ctx, e.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+e.channel); err != nil {
		return err
	}
	changed("", "")
	for {
		wait, cancel := context.WithTimeout(ctx, listenProbe)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			sender, rest, _ := strings.Cut(n.Payload, " ")
			topic, payload, _ := strings.Cut(rest, " ")
			if sender != *e.self.Load() {
				changed(topic, payload)
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			probe, cancel := context.WithTimeout(ctx, listenProbe)
			err := conn.Ping(probe)
			cancel()
			if err != nil {
				return err
			}
		default:
			return err
		}
	}
}
