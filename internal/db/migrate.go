package db

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migration is one step of the schema.
//
// Most migrations expand it: programs of older versions keep working. A contract
// migration removes what older programs use, and says so in a line
//
//	-- contract: 0025
//
// with the first schema version whose programs don't use it anymore.
type Migration struct {
	Version int
	Name    string
	// OldestProgram is the lowest schema version of a program that works after a
	// contract migration, and 0 for others.
	OldestProgram int
	sql           string
}

// contractLine marks a contract migration.
var contractLine = regexp.MustCompile(`(?m)^-- contract: (\d{4})$`)

// tolerantVersion is the first schema version whose programs start on a newer
// schema. Older ones only keep running.
const tolerantVersion = 24

// Migrations returns the migrations in order.
func Migrations() []Migration { return parseMigrations(migrationFiles) }

func parseMigrations(files fs.FS) []Migration {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	slices.Sort(names)
	var out []Migration
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			panic(err)
		}
		base := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		number, name, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(out)+1 {
			panic("db: migrations are numbered 0001, 0002, …; found " + file)
		}
		m := Migration{Version: version, Name: name, sql: string(text)}
		if mark := contractLine.FindStringSubmatch(m.sql); mark != nil {
			m.OldestProgram, _ = strconv.Atoi(mark[1]) // four digits
		}
		out = append(out, m)
	}
	return out
}

// Fingerprint identifies the schema.
func Fingerprint() string {
	h := sha256.New()
	for _, m := range Migrations() {
		_, _ = io.WriteString(h, m.sql) // never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// textColumn matches the declaration of a text column. PostgreSQL gets the "C"
// collation, as SQLite has: comparing IDs is several times faster, and the order
// of lists doesn't depend on the operator's database.
var textColumn = regexp.MustCompile(`(?m)^(\s+\w+\s*|ALTER TABLE \w+ ADD COLUMN \w+) TEXT\b`)

// forEngine drops lines that end in "--sqlite" or "--postgres" for the other engine.
func (m Migration) forEngine(name string) string {
	other := map[string]string{"sqlite": "--postgres", "postgres": "--sqlite"}[name]
	var out strings.Builder
	for line := range strings.Lines(m.sql) {
		if !strings.HasSuffix(strings.TrimRight(line, "\n "), other) {
			out.WriteString(line)
		}
	}
	if name == "postgres" {
		return textColumn.ReplaceAllString(out.String(), `$1 TEXT COLLATE "C"`)
	}
	return out.String()
}

// migrateInterval is the pause before a migration that got no lock is retried.
const migrateInterval = time.Second

// Migrate applies pending migrations, each in its own transaction under a lock
// that all nodes share, and returns those that it applied.
func (d *DB) Migrate(ctx context.Context) ([]Migration, error) {
	return d.MigrateIf(ctx, func(context.Context, *Tx, Migration) error { return nil })
}

// MigrateIf is Migrate that calls allow in the transaction of each migration.
func (d *DB) MigrateIf(ctx context.Context, allow func(ctx context.Context, tx *Tx, m Migration) error) ([]Migration, error) {
	return d.migrate(ctx, Migrations(), allow)
}

func (d *DB) migrate(ctx context.Context, known []Migration, allow func(ctx context.Context, tx *Tx, m Migration) error) ([]Migration, error) {
	var applied []Migration
	for {
		var did *Migration
		err := d.Write(ctx, func(tx *Tx) error {
			did = nil
			if err := tx.LockSchema(ctx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (
				version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)`); err != nil {
				return err
			}
			current, err := schemaVersion(ctx, tx)
			if err != nil {
				return err
			}
			if current >= len(known) {
				return checkProgram(ctx, tx, len(known))
			}
			next := known[current]
			if d.Engine() == "postgres" {
				if err := limitLockWait(ctx, tx); err != nil {
					return err
				}
			}
			if err := allow(ctx, tx, next); err != nil {
				return err
			}
			if err := tx.tx.script(ctx, next.forEngine(d.Engine())); err != nil {
				return fmt.Errorf("migration %04d_%s: %w", next.Version, next.Name, classify(err))
			}
			_, err = tx.Exec(ctx, "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)",
				int64(next.Version), next.Name, time.Now().UnixMicro())
			if err == nil && next.OldestProgram > 0 {
				_, err = tx.Exec(ctx, "UPDATE schema_migrations SET oldest_program = $1 WHERE version = $2", int64(next.OldestProgram), int64(next.Version))
			}
			did = &next
			return err
		})
		if errors.Is(err, ErrRace) {
			slog.Warn("failed to lock tables for a migration, maybe because of a backup; retrying", "error", err)
			select {
			case <-time.After(migrateInterval):
				continue
			case <-ctx.Done():
				return applied, ctx.Err()
			}
		}
		if err != nil {
			return applied, fmt.Errorf("migrate: %w", err)
		}
		if did == nil {
			return applied, d.prepare(ctx)
		}
		applied = append(applied, *did)
	}
}

// prepare creates what isn't part of the schema.
func (d *DB) prepare(ctx context.Context) error {
	e, ok := d.eng.(*postgresEngine)
	if !ok {
		return nil
	}
	_, err := e.createRowTypes(ctx)
	return Wrap(classify(err), "create row types")
}

// LockSchema keeps other transactions from migrating, and from locking the schema,
// until the transaction ends.
func (t *Tx) LockSchema(ctx context.Context) error { return classify(t.tx.lockMigrations(ctx)) }

// CheckProgram fails if a newer program has removed from the schema what this one
// uses. A schema that was only expanded works with older programs.
func CheckProgram(ctx context.Context, q Querier) error {
	return checkProgram(ctx, q, len(Migrations()))
}

func checkProgram(ctx context.Context, q Querier, want int) error {
	have, err := schemaVersion(ctx, q)
	if err != nil || have <= want {
		return err
	}
	oldest, err := Value[int](q.QueryRow(ctx, "SELECT coalesce(max(oldest_program), 0) FROM schema_migrations"))
	if err == nil && oldest > want {
		err = fmt.Errorf("the database is at schema version %d, which works with programs from schema version %d on, but this program has %d; use the newer program", have, oldest, want)
	}
	return err
}

// CanRestart reports whether programs of the schema version start on a newer schema.
func CanRestart(version int) bool { return version >= tolerantVersion }

// SchemaVersion returns the database's version and the one this program needs.
func (d *DB) SchemaVersion(ctx context.Context) (have, want int, err error) {
	want = len(Migrations())
	query := "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations')"
	if d.Engine() == "postgres" {
		query = "SELECT to_regclass('schema_migrations') IS NOT NULL"
	}
	if exists, err := Value[bool](d.QueryRow(ctx, query)); err != nil || !exists {
		return 0, want, err
	}
	have, err = schemaVersion(ctx, d)
	return have, want, err
}

func schemaVersion(ctx context.Context, q Querier) (int, error) {
	v, err := Value[int](q.QueryRow(ctx, "SELECT version FROM schema_migrations ORDER BY version DESC LIMIT 1"))
	return v, IgnoreNotFound(err)
}
