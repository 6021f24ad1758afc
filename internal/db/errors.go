package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"turnpike/internal/fault"
)

// Classes of errors, for errors.Is.
var (
	// ErrNotFound means that the query has no row.
	ErrNotFound = errors.New("no such row")
	// ErrExists means that a unique or primary key exists.
	ErrExists = errors.New("already exists")
	// ErrRace means that the transaction lost against another and can be retried.
	ErrRace = errors.New("lost a race with another transaction")
	// ErrUnavailable means that the database is unreachable or not writable.
	ErrUnavailable = errors.New("storage unavailable")
	// ErrReadOnly is an ErrUnavailable: the database accepts only reads.
	ErrReadOnly         = fmt.Errorf("%w, because the database accepts only reads", ErrUnavailable)
	errPostgresReadOnly = fmt.Errorf("%w; if this isn't a failover, check that database_url leads to the primary, or list all hosts with target_session_attrs=read-write", ErrReadOnly)
	errSQLiteReadOnly   = fmt.Errorf("%w; check the permissions of its files, and that the disk is mounted for writing", ErrReadOnly)
	// ErrInDoubt, always with ErrUnavailable, means that the commit got no response
	// and may have happened.
	ErrInDoubt = errors.New("no response to the commit")
	// ErrData means that the database never accepts this value.
	ErrData = errors.New("the database rejects the value")
)

// classified is a driver's error with its class.
type classified struct {
	class error
	err   error
}

func (c *classified) Error() string   { return fmt.Sprintf("%v: %v", c.class, c.err) }
func (c *classified) Unwrap() []error { return []error{c.class, c.err} }

// classify adds the class to a driver's error.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var done *classified
	if errors.As(err, &done) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnavailable) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if class := classOf(err); class != nil {
		return &classified{class, err}
	}
	return err
}

// Wrap adds what failed to an error. It returns nil for nil.
func Wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// LogLevel returns the level of a failed background task. An outage ends without
// the help of the one who reads an error, and other failures may not.
func LogLevel(err error) slog.Level {
	if errors.Is(err, ErrUnavailable) {
		return slog.LevelWarn
	}
	return slog.LevelError
}

// OrNoSuch turns ErrNotFound into the API's error for a missing object.
func OrNoSuch(err error, noun, id string) error {
	if errors.Is(err, ErrNotFound) {
		return fault.NoSuch(noun, id)
	}
	return err
}

// IgnoreNotFound returns nil for ErrNotFound.
func IgnoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func classOf(err error) error {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return classOfSQLite(lite.Code())
	}
	// Before the server's codes, because a rejected login is an outage too.
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return ErrUnavailable
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return classOfPostgres(pg.Code)
	}
	// A canceled caller is not an outage.
	if errors.Is(err, context.Canceled) {
		return nil
	}
	var network net.Error
	switch {
	case errors.As(err, &network),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "closed pool"):
		return ErrUnavailable
	}
	return nil
}

// IsFull reports whether a disk of the database is full.
func IsFull(err error) bool {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return lite.Code()&0xff == sqlite3.SQLITE_FULL
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "53100"
}

// isBusy reports whether another process has locked the SQLite database.
func isBusy(err error) bool {
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
}

func classOfSQLite(code int) error {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return ErrExists
	}
	switch code & 0xff { // the primary code of an extended one
	case sqlite3.SQLITE_READONLY:
		return errSQLiteReadOnly
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM:
		return ErrUnavailable
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
		return ErrData
	}
	return nil
}

func classOfPostgres(code string) error {
	switch code {
	case "23505":
		return ErrExists
	case "40001", "40P01", "55P03":
		return ErrRace
	case "25006": // a standby, a demoted primary, or a server that ran out of disk
		return errPostgresReadOnly
	case "25P03": // idle_in_transaction_session_timeout
		return ErrUnavailable
	}
	switch code[:min(2, len(code))] {
	// connection exception, insufficient resources, operator intervention
	// (shutdown, crash, cancelled), system error (disk, I/O).
	case "08", "53", "57", "58":
		return ErrUnavailable
	// data exception, integrity constraint, program limit
	case "22", "23", "54":
		return ErrData
	}
	return nil
}
