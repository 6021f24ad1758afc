package db_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// fill makes SQLite believe that the disk is full, and lift that it is not any more.
func fill(t *testing.T, d *db.DB, full bool) {
	t.Helper()
	pages := "1" // SQLite raises it to what the file has
	if !full {
		pages = "1000000000"
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		var n int64
		return tx.QueryRow(t.Context(), "PRAGMA max_page_count = "+pages).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFullDiskIsAnOutageThatEndsByItself(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	scratch(t, d)
	big := strings.Repeat("x", 100_000)
	insert := func(id string) error {
		return d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", id+big)
			return err
		})
	}
	fill(t, d, true)
	if err := insert("a"); !errors.Is(err, db.ErrUnavailable) {
		t.Fatalf("a full disk gave %v", err)
	}
	small := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "UPDATE schema_migrations SET version = version")
		return err
	})
	if err := d.Ping(t.Context()); small != nil || !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("it is ready, as a small write found room (%v): %v", small, err)
	}
	fill(t, d, false)
	if err := insert("b"); err != nil {
		t.Fatalf("after there was room again: %v", err)
	}
	if n := count(t, d); n != 1 {
		t.Errorf("%d rows, expected the one that was acknowledged", n)
	}
}

func TestAQueueKnowsThatItsWritesFail(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	g := db.NewGroup(d)
	defer g.Stop()
	q := db.NewQueue(g, false, func(_ context.Context, _ *db.Tx, items []error) error { return items[0] })
	for _, c := range []struct {
		err    error
		ailing bool
	}{{nil, false}, {db.ErrUnavailable, true}, {db.ErrData, true}, {nil, false}} {
		if err := q.Add(c.err).Wait(t.Context()); !errors.Is(err, c.err) || q.Degraded() != c.ailing {
			t.Errorf("after %v: %v, ailing %t", c.err, err, q.Degraded())
		}
	}
}

func TestKeepingQueueOffersItsWritesUntilTheOutageEnds(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	scratch(t, d)
	g := db.NewGroup(d)
	defer g.Stop()
	big := strings.Repeat("x", 100_000)
	save := func(ctx context.Context, tx *db.Tx, items []string) error {
		for _, id := range items {
			if _, err := tx.Exec(ctx, "INSERT INTO scratch (id) VALUES ($1)", id+big); err != nil {
				return err
			}
		}
		return nil
	}
	failing, keeping := db.NewQueue(g, false, save), db.NewQueue(g, true, save)
	fill(t, d, true)
	kept := make([]*db.Pending, 5)
	for i := range kept {
		kept[i] = keeping.Add(fmt.Sprint("kept", i))
	}
	if err := failing.Add("failing").Wait(t.Context()); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("who waits for an answer was told %v", err)
	}
	fill(t, d, false)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, p := range kept {
		if err := p.Wait(ctx); err != nil {
			t.Errorf("a kept write ended with %v", err)
		}
	}
	if n := count(t, d); n != 5 {
		t.Errorf("%d rows, expected the 5 kept ones", n)
	}
}

func TestUnreachablePostgresIsAnOutage(t *testing.T) {
	t.Parallel()
	_, err := db.Open(t.Context(), "postgres://nobody:hunter2@127.0.0.1:1/none?connect_timeout=2")
	if !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Error("the error shows the password")
	}
}

func TestReadOnlyPostgresIsAnOutageAndLosesNothing(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	scratch(t, dbtest.Open(t, address))
	d, err := db.Open(t.Context(), address+"&default_transaction_read_only=on")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ('a')")
		return err
	})
	if !errors.Is(err, db.ErrReadOnly) || !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, db.ErrReadOnly)
	}
}

func TestSQLiteAcknowledgesOnlyWhatIsOnTheDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		var synchronous int64
		var mode string
		err := tx.QueryRow(t.Context(), "PRAGMA synchronous").Scan(&synchronous)
		if err == nil {
			err = tx.QueryRow(t.Context(), "PRAGMA journal_mode").Scan(&mode)
		}
		if synchronous != 2 || mode != "wal" {
			t.Errorf("synchronous is %d and the journal %s, expected 2 (FULL) and wal", synchronous, mode)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPingNoticesThatNothingCanBeWritten covers a database that accepts
// connections and reads, such as a demoted primary.
func TestPingNoticesThatNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.Address(t, "postgres")+"&default_transaction_read_only=on")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 2 {
		if err := d.Ping(t.Context()); !errors.Is(err, db.ErrUnavailable) {
			t.Errorf("ping: got %v, want %v", err, db.ErrUnavailable)
		}
		if err := d.Write(t.Context(), func(*db.Tx) error { return nil }); err != nil { // proves nothing
			t.Error(err)
		}
	}
}

// TestPingDoesNotWaitForACommitForever covers a primary whose synchronous standby
// doesn't respond.
func TestPingDoesNotWaitForACommitForever(t *testing.T) {
	t.Parallel()
	pooler, address := startPooler(t, dbtest.Address(t, "postgres"))
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	pooler.hang.Store(true)
	for err == nil { // until the last write is too long ago
		err = d.Ping(t.Context())
	}
	if !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("ping: got %v, want %v", err, db.ErrUnavailable)
	}
	pooler.hang.Store(false)
	for err = d.Ping(t.Context()); err != nil; err = d.Ping(t.Context()) {
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestOutageIsNotLoggedAsAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want slog.Level
	}{{fmt.Errorf("evict nodes: %w", db.ErrUnavailable), slog.LevelWarn}, {db.ErrData, slog.LevelError}} {
		if got := db.LogLevel(c.err); got != c.want {
			t.Errorf("%v: got level %v, want %v", c.err, got, c.want)
		}
	}
}
