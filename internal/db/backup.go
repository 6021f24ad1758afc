package db

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
)

// backupStep is how many pages are copied before the context is checked.
const backupStep = 16 << 20 / pageSize

// Backup writes the committed state of one moment to a new SQLite file, for both
// engines. Writers don't wait for it.
func (d *DB) Backup(ctx context.Context, path string) error {
	if err := touch(path); err != nil {
		return fmt.Errorf("back up the database: %w", err)
	}
	if err := classify(d.eng.backup(ctx, path)); err != nil {
		return fmt.Errorf("back up the database: %w", err)
	}
	return nil
}

// backup copies pages with SQLite's online backup, inside one read transaction.
// Without the transaction, the copy would restart after every commit and never
// end on a busy server. VACUUM INTO would end, too, but it rebuilds every index
// while the log can't be overwritten.
func (e *sqliteEngine) backup(ctx context.Context, path string) error {
	conn, err := e.backups.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") }()
	var tables int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil { // starts to read
		return err
	}
	return conn.Raw(func(driver any) error {
		b, err := driver.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup((&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String())
		if err != nil {
			return err
		}
		for more := true; more; {
			if err = ctx.Err(); err != nil {
				break
			}
			if more, err = b.Step(backupStep); err != nil {
				break
			}
		}
		if finishErr := b.Finish(); err == nil {
			err = finishErr
		}
		return err
	})
}

// backup copies every table into a SQLite file with the same schema, in one
// repeatable-read transaction.
func (e *postgresEngine) backup(ctx context.Context, path string) error {
	to, err := Open(ctx, path)
	if err != nil {
		return err
	}
	defer to.Close()
	if _, err := to.Migrate(ctx); err != nil {
		return err
	}
	tables, err := Tables(ctx, to)
	if err != nil {
		return err
	}
	from, err := e.beginAs(ctx, "begin isolation level repeatable read read only")
	if err != nil {
		return err
	}
	defer from.rollback()
	if err := from.disableTimeouts(ctx); err != nil {
		return err
	}
	if _, err := from.exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil { // the address may set one
		return err
	}
	// Another version's node may have migrated since this program started.
	reader, want := querier{from.query}, len(Migrations())
	if have, err := schemaVersion(ctx, reader); err != nil || have != want {
		return schemaMismatch(have, want, err)
	}
	for _, t := range tables {
		if err := exportTable(ctx, reader, to, t); err != nil {
			return err
		}
	}
	return nil
}

func schemaMismatch(have, want int, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("the database is at schema version %d but this program backs up version %d; use the program that runs the servers", have, want)
}

// exportTable copies a table to SQLite. Each batch is one commit, so that the log
// stays short.
func exportTable(ctx context.Context, from Querier, to *DB, table string) error {
	columns, err := columnsOf(ctx, to, table)
	if err != nil {
		return fmt.Errorf("copy %s: %w", table, err)
	}
	insert := NewBulk(table, "", columns...)
	err = insert.readAll(ctx, from, table, func(batch [][]any) error {
		return to.Write(ctx, func(tx *Tx) error {
			_, err := insert.Write(ctx, tx, batch)
			return err
		})
	})
	return Wrap(err, "copy "+table)
}

// File is a SQLite file that no one writes, such as a backup. Reading it creates
// no other files.
type File struct {
	Querier
	db *sql.DB
}

// OpenFile opens a SQLite file for reading.
func OpenFile(path string) (*File, error) {
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}).String())
	if err != nil {
		return nil, err
	}
	return &File{Querier: querier{func(ctx context.Context, query string, args ...any) (Rows, error) {
		return sqlRows(d.QueryContext(ctx, query, args...))
	}}, db: d}, nil
}

// Check reads the whole file, and fails if it is corrupt. It returns the version
// of the schema.
func (f *File) Check(ctx context.Context) (schema int, err error) {
	var result string
	if err := f.QueryRow(ctx, "PRAGMA quick_check(1)").Scan(&result); err != nil {
		return 0, err
	}
	if result != "ok" {
		return 0, fmt.Errorf("the database is corrupt: %s", result)
	}
	return schemaVersion(ctx, f)
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }
