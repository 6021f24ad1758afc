package db

import (
	"context"
	"fmt"
	"strings"
)

const (
	// copyRows and copyBytes limit a batch.
	copyRows  = 1000
	copyBytes = 4 << 20
)

// Tables lists the tables of a SQLite database in the order of their creation, so
// that referenced tables come first. It omits the table of migrations, and stored_bytes, which triggers fill.
func Tables(ctx context.Context, from Querier) ([]string, error) {
	names, err := List(ctx, from, Value[string], `SELECT name FROM sqlite_master
		WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' AND name NOT IN ('schema_migrations', 'stored_bytes') ORDER BY rowid`)
	return names, Wrap(err, "list tables")
}

// Count returns the number of rows of a table.
func Count(ctx context.Context, q Querier, table string) (int64, error) {
	n, err := Value[int64](q.QueryRow(ctx, "SELECT count(*) FROM "+table))
	return n, Wrap(err, "count "+table)
}

// IsEmpty reports whether a table has no rows.
func IsEmpty(ctx context.Context, q Querier, table string) (bool, error) {
	empty, err := Value[bool](q.QueryRow(ctx, "SELECT NOT EXISTS (SELECT 1 FROM "+table+")"))
	return empty, Wrap(err, "read "+table)
}

// Copy copies a table of a SQLite database to another database with the same
// schema. It calls more with the number of rows of each batch.
func Copy(ctx context.Context, from, to *Tx, table string, more func(rows int64)) error {
	columns, err := columnsOf(ctx, from, table)
	if err != nil {
		return fmt.Errorf("copy %s: %w", table, err)
	}
	insert := NewBulk(table, "", columns...)
	err = insert.readAll(ctx, from, table, func(batch [][]any) error {
		n, err := insert.Write(ctx, to, batch)
		if err == nil {
			more(n)
		}
		return err
	})
	return Wrap(err, "copy "+table)
}

// readAll calls use with the rows of a table, in batches.
func (b *Bulk) readAll(ctx context.Context, from Querier, table string, use func(batch [][]any) error) error {
	var batch [][]any
	size := 0
	rows, err := from.Query(ctx, "SELECT "+strings.Join(b.columns, ", ")+" FROM "+table)
	err = Each(rows, err, func(r Row) error {
		if err := ctx.Err(); err != nil { // SQLite's reads ignore it
			return err
		}
		values, n, err := b.scan(r)
		if err != nil {
			return err
		}
		batch, size = append(batch, values), size+n
		if len(batch) < copyRows && size < copyBytes {
			return nil
		}
		err = use(batch)
		batch, size = batch[:0], 0
		return err
	})
	if err != nil || len(batch) == 0 {
		return err
	}
	return use(batch)
}

// columnsOf returns the columns of a table for NewBulk.
func columnsOf(ctx context.Context, from Querier, table string) ([]string, error) {
	return List(ctx, from, Value[string], "SELECT name || ' ' || lower(type) FROM pragma_table_info($1) ORDER BY cid", table)
}

// scan returns a row's values and the size of its text.
func (b *Bulk) scan(r Row) (values []any, size int, err error) {
	values = make([]any, len(b.columns))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	if err := r.Scan(into...); err != nil {
		return nil, 0, err
	}
	for i, v := range values {
		switch v := v.(type) {
		case string:
			size += len(v)
		case int64:
			if b.types[i] == "boolean" { // SQLite has none
				values[i] = v != 0
			}
		}
	}
	return values, size, nil
}
