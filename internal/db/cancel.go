package db

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var errNotCanceled = errors.New("statements of failed connections are not canceled")

// forbidCancellation prevents the requests with which pgx cancels the statement of a
// failed connection. If a commit that waits for a synchronous standby is canceled, it
// becomes visible without being replicated. Others rely on it, and a failover loses it.
// In an outage, the requests also keep connections in the pool for up to 15 seconds, and
// PgBouncer 1.18 can crash on them.
func forbidCancellation(_ context.Context, cfg *pgx.ConnConfig) error {
	var connected atomic.Bool
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNotCanceled
		}
		return dial(ctx, network, address)
	}
	cfg.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		return nil
	}
	return nil
}

// endAbandonedStatements makes the server end the statement of a client that has
// disconnected. Servers before PostgreSQL 14 and on some systems can't.
func endAbandonedStatements(ctx context.Context, conn *pgx.Conn) {
	_, _ = conn.PgConn().Exec(ctx, "SET client_connection_check_interval = '1s'").ReadAll()
}

// closeLost closes a failed connection without waiting for the server, which may be out
// of reach.
func closeLost(conn *pgx.Conn) {
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}
