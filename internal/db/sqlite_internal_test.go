package db

import (
	"path/filepath"
	"strings"
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
		tx, err := e.begin(t.Context())
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
