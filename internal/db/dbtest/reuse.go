package dbtest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Creating a database takes up to half a second, so tests that have ended leave
// theirs, emptied, to the tests of all packages. A database whose schema a test has
// changed is dropped.

// version identifies the schema and its mark in the names of databases.
func version() string {
	return fmt.Sprintf("%s_%08x", db.Fingerprint(), crc32.ChecksumIEEE([]byte(schemaMark)))
}

// sparePrefix starts the names of databases that no test uses. Names have at most 63 bytes.
func sparePrefix() string { return "spare_" + version() + "_" }

// schemaMark identifies the schema of a copy of the template: copies have its
// object IDs. The first number is the largest one. Composite types don't count: programs add them.
const schemaMark = `SELECT concat_ws(' ', (SELECT max(oid) FROM pg_class WHERE relkind <> 'c'),
	(SELECT count(*) || ':' || sum(hashtext(concat_ws(' ', attrelid, attname, atttypid, attnotnull, attisdropped))) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE attrelid >= 16384 AND c.relkind <> 'c'),
	(SELECT count(*) || ':' || sum(hashtext(concat_ws(' ', indexrelid, indisvalid, indisunique))) FROM pg_index WHERE indexrelid >= 16384),
	(SELECT count(*) FROM pg_constraint WHERE oid >= 16384), (SELECT count(*) FROM pg_trigger WHERE oid >= 16384),
	(SELECT count(*) FROM pg_proc WHERE oid >= 16384), (SELECT count(*) FROM pg_attrdef),
	(SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()),
	(SELECT md5(string_agg(m::text, ' ' ORDER BY version)) FROM schema_migrations m))`

// emptyTables drops the tables and partitions that are newer than the template, and
// empties the others, without their foreign keys and with DELETE: TRUNCATE takes as
// long as a new database. It fails for tables that would stay large.
const emptyTables = `DO $$
DECLARE
	name regclass;
	bytes bigint;
BEGIN
	SET LOCAL session_replication_role = replica;
	FOR name IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND oid > %d LOOP
		EXECUTE 'DROP TABLE IF EXISTS ' || name || ' CASCADE';
	END LOOP;
	FOR name, bytes IN SELECT oid::regclass, pg_relation_size(oid) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'schema_migrations' LOOP
		IF bytes > 1000000 THEN
			RAISE EXCEPTION '%% is too large', name;
		ELSIF bytes > 0 THEN
			EXECUTE 'DELETE FROM ' || name;
		END IF;
	END LOOP;
END $$`

// markSchema stores the mark of the template's schema.
func markSchema(ctx context.Context, address, name string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var mark string
	if err := conn.QueryRow(ctx, schemaMark).Scan(&mark); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "COMMENT ON DATABASE "+name+" IS '"+mark+"'")
	return err
}

// borrow returns the name of an empty database until the test ends.
func borrow(t testing.TB, server, template string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to the test server: %v", err)
	}
	defer conn.Close(ctx) // releases the lock
	name := "t_" + ids.New("")
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", spareLock); err != nil {
		t.Fatal(err)
	}
	var spare string
	err = conn.QueryRow(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1) LIMIT 1", sparePrefix()).Scan(&spare)
	switch {
	case err == nil:
		_, err = conn.Exec(ctx, "ALTER DATABASE "+spare+" RENAME TO "+name)
	case errors.Is(err, pgx.ErrNoRows):
		if _, err = conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", spareLock); err == nil {
			_, err = conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := giveBack(server, template, name); err != nil {
			onServer(t, server, "DROP DATABASE "+name+" WITH (FORCE)")
		}
	})
	return name
}

// giveBack empties a database for the next test. It fails if the database can't be
// used again.
func giveBack(server, template, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL(server, name))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	others := "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) "+others); err != nil {
		return err
	}
	for left := 1; left > 0; {
		if err := conn.QueryRow(ctx, "SELECT count(*) "+others).Scan(&left); err != nil {
			return err
		}
	}
	var want, got string
	if err := conn.QueryRow(ctx, "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1", template).Scan(&want); err != nil {
		return err
	}
	var newest uint32
	if _, err := fmt.Sscan(want, &newest); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(emptyTables, newest)); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, schemaMark).Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the schema has changed from %s to %s", want, got)
	}
	if err := conn.Close(ctx); err != nil {
		return err
	}
	if conn, err = pgx.Connect(ctx, server); err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "ALTER DATABASE "+name+" RENAME TO "+sparePrefix()+ids.New(""))
	return err
}
