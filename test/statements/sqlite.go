package statements

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqlite is a connection that counts the steps of SQLite's virtual machine, which database/sql can't.
type sqlite struct {
	tls *libc.TLS
	// SQLite writes these, so they must be on the heap: stacks move.
	db, prepared uintptr
}

func openSQLite(t testing.TB, path string) *sqlite {
	t.Helper()
	c := &sqlite{tls: libc.NewTLS()}
	name := c.text(path)
	defer libc.Xfree(c.tls, name)
	if code := sqlite3.Xsqlite3_open_v2(c.tls, name, uintptr(unsafe.Pointer(&c.db)), sqlite3.SQLITE_OPEN_READWRITE, 0); code != sqlite3.SQLITE_OK {
		t.Fatalf("open %s: error %d", path, code)
	}
	t.Cleanup(func() {
		sqlite3.Xsqlite3_close_v2(c.tls, c.db)
		c.tls.Close()
	})
	return c
}

// text returns a copy that SQLite can read.
func (c *sqlite) text(s string) uintptr {
	p, err := libc.CString(s)
	if err != nil {
		panic(err) // out of memory
	}
	return p
}

// exec runs a statement without arguments.
func (c *sqlite) exec(statement string) error {
	p := c.text(statement)
	defer libc.Xfree(c.tls, p)
	if code := sqlite3.Xsqlite3_exec(c.tls, c.db, p, 0, 0, 0); code != sqlite3.SQLITE_OK {
		return errors.New(libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)))
	}
	return nil
}

// measure runs a statement and rolls it back.
func (c *sqlite) measure(query string, args []any) (work, error) {
	p := c.text(query)
	defer libc.Xfree(c.tls, p)
	if code := sqlite3.Xsqlite3_prepare_v2(c.tls, c.db, p, -1, uintptr(unsafe.Pointer(&c.prepared)), 0); code != sqlite3.SQLITE_OK {
		return work{}, errors.New(libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db)))
	}
	st := c.prepared
	defer sqlite3.Xsqlite3_finalize(c.tls, st)
	for i, a := range args {
		c.bind(st, int32(i+1), a)
	}
	if err := c.exec("BEGIN"); err != nil {
		return work{}, err
	}
	defer func() { _ = c.exec("ROLLBACK") }()
	before := int64(sqlite3.Xsqlite3_total_changes(c.tls, c.db))
	var w work
	for w.steps < tooManySteps {
		code := sqlite3.Xsqlite3_step(c.tls, st)
		w.steps = int64(sqlite3.Xsqlite3_stmt_status(c.tls, st, sqlite3.SQLITE_STMTSTATUS_VM_STEP, 0))
		if code != sqlite3.SQLITE_ROW {
			break
		}
		w.rows++
	}
	w.changed = int64(sqlite3.Xsqlite3_total_changes(c.tls, c.db)) - before
	return w, nil
}

func (c *sqlite) bind(st uintptr, at int32, value any) {
	v := reflect.ValueOf(value)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Bool:
		n := sqlite3.Tsqlite3_int64(0)
		if v.Bool() {
			n = 1
		}
		sqlite3.Xsqlite3_bind_int64(c.tls, st, at, n)
	case reflect.Int, reflect.Int32, reflect.Int64:
		sqlite3.Xsqlite3_bind_int64(c.tls, st, at, sqlite3.Tsqlite3_int64(v.Int()))
	case reflect.String:
		text := strings.ReplaceAll(v.String(), "\x00", "")
		p := c.text(text)
		defer libc.Xfree(c.tls, p)
		sqlite3.Xsqlite3_bind_text(c.tls, st, at, p, int32(len(text)), sqlite3.SQLITE_TRANSIENT)
	default:
		sqlite3.Xsqlite3_bind_null(c.tls, st, at)
	}
}
