package db

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// cancelTimeout limits a request to cancel a statement. The connection keeps its place
// in the pool until then.
const cancelTimeout = time.Second

// cancellation controls the requests with which pgx cancels the statement of a failed
// connection.
type cancellation struct {
	connected atomic.Bool
	forbidden atomic.Bool
}

// cancellationKey is where a connection keeps its cancellation.
const cancellationKey = "cancellation"

var errNotCanceled = errors.New("a commit must not be canceled")

// controlCancellation prepares a new connection.
func controlCancellation(_ context.Context, cfg *pgx.ConnConfig) error {
	c, dial := &cancellation{}, cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !c.connected.Load() {
			return dial(ctx, network, address)
		}
		// From now on, pgx dials only to cancel.
		if c.forbidden.Load() {
			return nil, errNotCanceled
		}
		ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(cancelTimeout))
		}
		return conn, err
	}
	cfg.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		c.connected.Store(true)
		conn.CustomData()[cancellationKey] = c
		return nil
	}
	return nil
}

// forbidCancellation applies until the connection returns to the pool. A commit that
// takes too long must not be canceled: if it waits for a synchronous standby, it would
// become visible without being replicated. Others would rely on it, and a failover would
// lose it.
func forbidCancellation(conn *pgx.Conn) { setForbidden(conn, true) }

// allowCancellation prepares a connection of the pool for its next use.
func allowCancellation(_ context.Context, conn *pgx.Conn) (valid bool, err error) {
	setForbidden(conn, false)
	return true, nil
}

func setForbidden(conn *pgx.Conn, forbidden bool) {
	if c, ok := conn.PgConn().CustomData()[cancellationKey].(*cancellation); ok {
		c.forbidden.Store(forbidden)
	}
}

// closeLost closes a failed connection without waiting for the server, which may be out
// of reach.
func closeLost(conn *pgx.Conn) {
	if conn.IsClosed() {
		_ = conn.PgConn().Conn().Close()
	}
}
