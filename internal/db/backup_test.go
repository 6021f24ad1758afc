package db_test

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestBackupHasEverythingCommittedBefore backs up while writers commit without a
// pause. Without a read transaction, SQLite's backup would never end.
func TestBackupHasEverythingCommittedBefore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, stop := context.WithCancel(t.Context())
		insert := func(ctx context.Context, n int) error {
			return d.Write(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $1)", "row"+strconv.Itoa(n))
				return err
			})
		}
		var writing sync.WaitGroup
		committed := make(chan int)
		writing.Go(func() {
			defer close(committed)
			for n := range 1_000_000 {
				if err := insert(ctx, n); err != nil {
					return
				}
				select {
				case committed <- n:
				case <-ctx.Done():
					return
				}
			}
		})
		last := 0
		for n := range committed {
			if last = n; n == 500 {
				break
			}
		}
		go func() {
			for range committed { // keep the writer busy
			}
		}()
		path := filepath.Join(t.TempDir(), "copy.db")
		if err := d.Backup(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		stop()
		writing.Wait()
		f, err := db.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if schema, err := f.Check(t.Context()); err != nil || schema != len(db.Migrations()) {
			t.Errorf("got schema %d and error %v, want %d", schema, err, len(db.Migrations()))
		}
		// Rows are committed in order, so a consistent copy has a prefix of them.
		n, err := db.Value[int](f.QueryRow(t.Context(), "SELECT count(*) FROM meta WHERE name LIKE 'row%'"))
		if err != nil || n <= last {
			t.Fatalf("got %d rows (%v), want at least %d", n, err, last+1)
		}
		if _, err := db.Value[string](f.QueryRow(t.Context(), "SELECT value FROM meta WHERE name = $1", "row"+strconv.Itoa(n-1))); err != nil {
			t.Errorf("the copy has %d rows but not the one of that number: %v", n, err)
		}
	})
}
