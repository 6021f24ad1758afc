package db

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/ids"
)

// Partitioned is a large table with monthly partitions by ID on PostgreSQL. IDs sort
// by time, so a month is a range of IDs, the primary key spans all partitions, and
// an expired month is dropped as a whole. On SQLite these methods do nothing.
type Partitioned struct {
	Table  string
	Key    string // column of the IDs
	Prefix string // of the IDs
	// Updated means that most rows are updated once, soon after they are inserted.
	Updated bool
}

// monthsAhead is how many partitions are created in advance. The default partition
// takes rows that no other covers.
const monthsAhead = 2

// Prepare creates the partitions from now's month on.
func (p Partitioned) Prepare(ctx context.Context, d *DB, now time.Time) error {
	if d.Engine() != "postgres" {
		return nil
	}
	month := monthOf(now)
	for range monthsAhead + 1 {
		next := month.AddDate(0, 1, 0)
		err := d.Write(ctx, func(tx *Tx) error {
			// Concurrent starts must not create the same one.
			if err := tx.tx.lockMigrations(ctx); err != nil {
				return err
			}
			there, err := Value[bool](tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", p.name(month)))
			if err != nil {
				return err
			}
			if err := limitLockWait(ctx, tx); err != nil {
				return err
			}
			if !there {
				if err := p.create(ctx, tx, p.name(month), ids.Floor(p.Prefix, month), ids.Floor(p.Prefix, next)); err != nil {
					return err
				}
			}
			return p.leaveRoom(ctx, tx, p.name(month))
		})
		if err != nil {
			return fmt.Errorf("partition %s: %w", p.name(month), err)
		}
		month = next
	}
	return nil
}

// create creates a partition. Rows of its range in the default partition, from a
// wrong clock, must be moved.
func (p Partitioned) create(ctx context.Context, tx *Tx, name, from, to string) error {
	// Creating it takes this lock anyway. Taken first, it stops inserts into the
	// default partition.
	if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.Table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	spare := p.Table + "_default"
	taken, err := Value[bool](tx.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s WHERE %[2]s >= $1 AND %[2]s < $2)", spare, p.Key), from, to))
	if err != nil {
		return err
	}
	steps := []string{fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')", name, p.Table, from, to)}
	if taken {
		steps = []string{
			fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL)", name, p.Table),
			fmt.Sprintf("WITH moved AS (DELETE FROM %s WHERE %s >= '%s' AND %s < '%s' RETURNING *) INSERT INTO %s SELECT * FROM moved", spare, p.Key, from, p.Key, to, name),
			fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')", p.Table, name, from, to),
		}
	}
	for _, step := range steps {
		if _, err := tx.Exec(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// leaveRoom fills the pages of indexes by half if rows are updated: the update adds a second entry
// for each row. On full pages it splits them, after it has looked for entries to delete, and takes
// twice the CPU. Partial indexes are left out, because few entries of theirs are added again.
func (p Partitioned) leaveRoom(ctx context.Context, tx *Tx, partition string) error {
	if !p.Updated {
		return nil
	}
	names, err := List(ctx, tx, Value[string], `SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = to_regclass($1) AND i.indpred IS NULL AND c.reloptions IS NULL`, partition)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := tx.Exec(ctx, "ALTER INDEX "+name+" SET (fillfactor = 50)"); err != nil {
			return err
		}
	}
	return nil
}

// Drop drops the partitions that end before a time.
func (p Partitioned) Drop(ctx context.Context, d *DB, before time.Time) error {
	if d.Engine() != "postgres" {
		return nil
	}
	names, err := List(ctx, d, Value[string], `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1)`, p.Table)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, name := range names {
		month, err := time.Parse("2006_01", strings.TrimPrefix(name, p.Table+"_"))
		if err != nil || month.AddDate(0, 1, 0).After(before) {
			continue
		}
		err = d.Write(ctx, func(tx *Tx) error {
			if err := limitLockWait(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+name)
			return err
		})
		if err != nil {
			return fmt.Errorf("drop partition %s: %w", name, err)
		}
	}
	return nil
}

// limitLockWait gives up on a lock quickly, because all queries of the table queue
// behind a waiting DDL statement. The caller retries later.
func limitLockWait(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '200ms'")
	return err
}

func (p Partitioned) name(month time.Time) string { return p.Table + month.Format("_2006_01") }

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}
