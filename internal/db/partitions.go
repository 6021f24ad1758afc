package db

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/ids"
)

// Partitioned is a big table that PostgreSQL keeps in monthly partitions by
// id. Ids sort by time, so a month is an id range and the primary key still
// holds over all of them; a month past its window is dropped at once instead
// of being deleted row by row. SQLite has no partitions: there the functions
// here do nothing and Purge deletes in batches.
type Partitioned struct {
	Table  string
	Key    string // the column of the ids
	Prefix string // of the ids
}

// monthsAhead is how far partitions are made in advance. They are checked
// daily, and the default partition takes what none of them covers.
const monthsAhead = 2

// Prepare makes the partitions from now's month on.
func (p Partitioned) Prepare(ctx context.Context, d *DB, now time.Time) error {
	if d.Engine() != "postgres" {
		return nil
	}
	month := monthOf(now)
	for range monthsAhead + 1 {
		next := month.AddDate(0, 1, 0)
		err := d.Write(ctx, func(tx *Tx) error {
			// Nodes that start at once do not make the same one.
			if err := tx.tx.lockMigrations(ctx); err != nil {
				return err
			}
			var there bool
			if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", p.name(month)).Scan(&there); err != nil || there {
				return err
			}
			if err := impatient(ctx, tx); err != nil {
				return err
			}
			return p.create(ctx, tx, p.name(month), ids.Floor(p.Prefix, month), ids.Floor(p.Prefix, next))
		})
		if err != nil {
			return fmt.Errorf("partition %s: %w", p.name(month), err)
		}
		month = next
	}
	return nil
}

// create makes a partition. Rows of its range that the default one has taken
// meanwhile, as when a clock was wrong, move over: beside them it could not be.
func (p Partitioned) create(ctx context.Context, tx *Tx, name, from, to string) error {
	// Making it takes this lock in any case. Taken first, nobody adds to the
	// default one meanwhile, or waits for a row that moves away.
	if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.Table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	spare := p.Table + "_default"
	var taken bool
	err := tx.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s WHERE %s >= $1 AND %s < $2)", spare, p.Key, p.Key), from, to).Scan(&taken)
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

// Drop removes the partitions that lie wholly before the moment.
func (p Partitioned) Drop(ctx context.Context, d *DB, before time.Time) error {
	if d.Engine() != "postgres" {
		return nil
	}
	rows, err := d.Query(ctx, `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1)`, p.Table)
	names, err := All(rows, err, func(r Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, name := range names {
		month, err := time.Parse("2006_01", strings.TrimPrefix(name, p.Table+"_"))
		if err != nil || month.AddDate(0, 1, 0).After(before) {
			continue
		}
		err = d.Write(ctx, func(tx *Tx) error {
			if err := impatient(ctx, tx); err != nil {
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

// impatient gives up on a lock quickly: whoever waits for a table behind a
// long read makes everybody else wait behind itself. It is tried again later.
func impatient(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '200ms'")
	return err
}

func (p Partitioned) name(month time.Time) string { return p.Table + month.Format("_2006_01") }

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}
