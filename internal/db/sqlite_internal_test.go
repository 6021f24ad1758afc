package db

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRestartingTheLogDoesNotWaitForReaders(t *testing.T) {
	t.Parallel()
	e, err := openSQLite(filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	write := func(statement string) {
		t.Helper()
		tx, err := e.begin(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.script(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write("CREATE TABLE big (x TEXT); INSERT INTO big VALUES ('a'), ('b')")
	reader, err := e.query(t.Context(), "SELECT x FROM big")
	if err != nil || !reader.Next() {
		t.Fatal("no reader", err)
	}
	write("INSERT INTO big VALUES ('" + strings.Repeat("x", 1<<20) + "')")
	begun := time.Now()
	_ = e.writer.restartLog(t.Context()) // the reader is in the way, which is no fault
	if took := time.Since(begun); took > busyTimeout/2 {
		t.Errorf("the writer stood still for %v", took)
	}
	reader.Close()
	if err := e.writer.restartLog(t.Context()); err != nil {
		t.Fatal(err)
	}
	write("INSERT INTO big VALUES ('c')")
	if log, _, err := walCheckpoint(t.Context(), e.check, "NOOP"); err != nil || log > 10 {
		t.Errorf("the log goes on at frame %d instead of from its beginning (%v)", log, err)
	}
}

// holdLock opens a database that another process has locked, until the returned
// function runs. SQLite itself waits only a moment for the lock.
func holdLock(t *testing.T) (e *sqliteEngine, release func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	other, err := openSQLite(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	if e, err = openSQLite(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.close)
	if _, err := e.writer.conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	tx, err := other.begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(tx.rollback)
	t.Cleanup(release)
	return e, release
}

func TestCommandsRetryWhileTheDatabaseIsLocked(t *testing.T) {
	t.Parallel()
	e, release := holdLock(t)
	begun := make(chan error)
	go func() {
		tx, err := e.begin(t.Context(), false)
		if err == nil {
			tx.rollback()
		}
		begun <- err
	}()
	time.Sleep(50 * time.Millisecond) // many attempts
	release()
	if err := <-begun; err != nil {
		t.Errorf("got %v, want that the command waits", err)
	}
}

func TestInterruptedCommandsDoNotWaitForALock(t *testing.T) {
	t.Parallel()
	e, _ := holdLock(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan error)
	go func() {
		_, err := e.begin(ctx, false)
		begun <- err
	}()
	cancel()
	if err := <-begun; err == nil {
		t.Error("an interrupted command got a locked database")
	}
}

func TestServersFailFastIfTheDatabaseIsLocked(t *testing.T) {
	t.Parallel()
	e, _ := holdLock(t)
	e.failFast()
	if _, err := e.begin(t.Context(), false); !errors.Is(classify(err), ErrUnavailable) {
		t.Errorf("got %v, want %v", err, ErrUnavailable)
	}
}
