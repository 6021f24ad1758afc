// Package statements checks that the server's statements read no more rows than they return or change, times a
// constant, however large the tables are. It records the statements that tests execute, and runs each again on a
// database in which all rows of every table belong to one workspace, one endpoint, one conversation and so on, and
// everything is due. PostgreSQL counts the rows that a statement reads, and SQLite the steps of its virtual machine.
package statements

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// Recorder collects the statements of this process.
type Recorder struct {
	mu    sync.Mutex
	calls map[string]*call // by the text without the length of its lists
}

// call is a statement as it was executed once.
type call struct {
	query string
	args  []any
	from  string // the function that executed it, such as spend.TopUsers
}

// Record starts to record. Call it before the first database is opened.
func Record() *Recorder {
	r := &Recorder{calls: map[string]*call{}}
	db.Observe = r.add
	return r
}

var (
	// rejected matches statements that can fail: of the other engine, and inserts of rows that exist or refer to missing ones.
	rejected = regexp.MustCompile(`\b(pg_\w+|to_reg\w+|sqlite_master|pragma_\w+|\w+_default|clock_timestamp|\w+_\d{4}_\d{2})\b|^\s*INSERT `)
	locks    = regexp.MustCompile(` FOR (NO KEY UPDATE|KEY SHARE|UPDATE|SHARE)( OF \w+)?( SKIP LOCKED)?`)
	list     = regexp.MustCompile(`\((\$\d+, )+\$\d+\)`)
	measure  = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)
)

func (r *Recorder) add(query string, args []any) {
	key := list.ReplaceAllString(query, "(list)")
	r.mu.Lock()
	known := r.calls[key]
	r.mu.Unlock()
	if known != nil || !measure.MatchString(query) {
		return
	}
	from := caller()
	if from == "" {
		return
	}
	r.mu.Lock()
	r.calls[key] = &call{query, slices.Clone(args), from}
	r.mu.Unlock()
}

// caller returns the function of the server that executes a statement, or nothing for a test.
func caller() string {
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	for {
		f, more := frames.Next()
		switch {
		case (strings.HasPrefix(f.Function, "turnpike/internal/db.") || strings.HasPrefix(f.Function, "turnpike/internal/db/dbtest.")) && !strings.HasSuffix(f.File, "_test.go"):
		case strings.HasPrefix(f.Function, "turnpike/internal/api.(*pageBudget)."): // its caller has the statement
		case strings.HasPrefix(f.Function, "turnpike/internal/") && !strings.HasSuffix(f.File, "_test.go"):
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			if i := strings.Index(name, ".func"); i > 0 { // a closure
				name = name[:i]
			}
			return strings.NewReplacer("(*", "", ")", "").Replace(name)
		case !strings.HasPrefix(f.Function, "runtime."):
			return ""
		}
		if !more {
			return ""
		}
	}
}

// work is what a statement did.
type work struct {
	rows    int64 // returned
	changed int64
	read    int64 // by PostgreSQL
	steps   int64 // of SQLite
}

const (
	// filled is the number of rows of each table.
	filled = 10_000
	// fewRows is that of tables in small.
	fewRows = 200
	// A statement may read some rows, and a multiple of those that it returns or changes. A step is less than a row.
	someRows, rowsEach   = 1500, 12
	someSteps, stepsEach = 25_000, 150
	tooManySteps         = 3_000_000
)

// excess describes work beyond the bounds, or returns nothing.
func (w work) excess() string {
	useful := min(w.rows+w.changed, someRows) // more than that isn't bounded
	switch {
	case w.read > someRows+rowsEach*useful:
		return fmt.Sprintf("reads %d rows for %d", w.read, w.rows+w.changed)
	case w.steps > someSteps+stepsEach*useful:
		return fmt.Sprintf("takes %d steps for %d rows", w.steps, w.rows+w.changed)
	}
	return ""
}

// Check reports the recorded statements that do too much, and the exceptions that none of them needs.
func (r *Recorder) Check(t testing.TB, needed Exceptions) {
	t.Helper()
	unused := maps.Clone(needed)
	for _, engine := range dbtest.Engines {
		problems, err := r.problems(t, engine)
		if err != nil {
			t.Errorf("measure statements on %s: %v", engine, err)
		}
		for _, p := range problems {
			delete(unused, p.call.from)
			if Dashboard[p.call.from]+API[p.call.from]+Sometimes[p.call.from] == "" {
				t.Errorf("%s %s on %s, where tables have %d rows. Read by an index, in bounded batches, or from a rollup.\n%s\n%v", p.call.from, p.text, engine, filled, p.call.query, p.call.args)
			}
		}
	}
	if t.Failed() || someTests() {
		return
	}
	for from := range unused {
		t.Errorf("%s reads a bounded number of rows, so it needs no exception: remove it from allowed.go", from)
	}
}

// someTests reports whether only some tests of the package run.
func someTests() bool {
	return slices.ContainsFunc([]string{"run", "skip", "list"}, func(name string) bool { return flag.Lookup("test."+name).Value.String() != "" })
}

// problem is a statement that does too much, or fails.
type problem struct {
	call *call
	text string
}

func (r *Recorder) problems(t testing.TB, engine string) (list []problem, err error) {
	run, err := open(t, engine)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	calls := slices.SortedFunc(maps.Values(r.calls), func(a, b *call) int { return strings.Compare(a.from+a.query, b.from+b.query) })
	r.mu.Unlock()
	for _, c := range calls {
		if engine != "sqlite" && strings.Contains(c.query, "?") { // of a db.Bulk, which is another statement on PostgreSQL
			continue
		}
		w, err := run(c.onFilled(engine))
		switch excess := w.excess(); {
		case err != nil && !rejected.MatchString(c.query):
			list = append(list, problem{c, "can't be measured: " + err.Error()})
		case err == nil && excess != "":
			list = append(list, problem{c, excess})
		}
	}
	return list, nil
}

var identifier = regexp.MustCompile(`^[a-z]+_[0-9A-Za-z]{20,}`)

// onFilled returns the call with arguments that name the rows of the filled database.
func (c *call) onFilled(engine string) *call {
	out := *c
	if engine == "sqlite" {
		out.query = locks.ReplaceAllString(c.query, "")
	}
	out.args = slices.Clone(c.args)
	for i, a := range out.args {
		v := reflect.ValueOf(a)
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.String {
			if s := v.String(); identifier.MatchString(s) || s == "live" || s == "test" {
				out.args[i] = "x"
			}
		}
	}
	return &out
}

var errRollback = errors.New("roll back")

// explain runs a statement on PostgreSQL and rolls it back.
func explain(d *db.DB, c *call) (w work, err error) {
	err = d.Write(context.Background(), func(tx *db.Tx) error {
		lines, err := db.List(context.Background(), tx, db.Value[string], "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) "+c.query, c.args...)
		if err != nil {
			return err
		}
		var found []struct{ Plan plan }
		if err := json.Unmarshal([]byte(strings.Join(lines, "\n")), &found); err != nil {
			return err
		}
		w = found[0].Plan.work()
		return errRollback
	})
	if errors.Is(err, errRollback) {
		err = nil
	}
	return w, err
}

// plan is a node of PostgreSQL's plan.
type plan struct {
	Type    string  `json:"Node Type"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Recheck float64 `json:"Rows Removed by Index Recheck"`
	Table   string  `json:"Relation Name"`
	Plans   []plan
}

func (p plan) work() (w work) {
	w.read = p.rowsRead()
	w.rows = int64(p.Rows)
	if p.Type == "ModifyTable" {
		for _, from := range p.Plans {
			w.changed += int64(from.Rows)
		}
	}
	return w
}

func (p plan) rowsRead() (n int64) {
	if p.Table != "" && strings.Contains(p.Type, "Scan") {
		n = int64((p.Rows + p.Removed + p.Recheck) * max(1, p.Loops))
	}
	for _, from := range p.Plans {
		n += from.rowsRead()
	}
	return n
}

// fillings returns the statements that fill all tables.
func fillings(t testing.TB, engine string) (list []string, err error) {
	schema := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	tables, err := db.Tables(t.Context(), schema)
	if err != nil {
		return nil, err
	}
	numbers := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
	if engine == "postgres" {
		numbers = "WITH n (i) AS (SELECT * FROM generate_series(1, %d)) "
		list = append(list, "SET LOCAL session_replication_role = replica") // no foreign keys, as SQLite by default
	}
	for _, table := range append(tables, "stored_bytes") {
		columns, values, err := valuesOf(t.Context(), schema, table)
		if err != nil {
			return nil, err
		}
		list = append(list, "DELETE FROM "+table, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") "+fmt.Sprintf(numbers, rowsOf(table))+"SELECT "+strings.Join(values, ", ")+" FROM n")
	}
	if engine == "postgres" {
		list = append(list, "ANALYZE")
	}
	return list, nil
}

// open returns a function that measures statements on a filled database.
func open(t testing.TB, engine string) (func(c *call) (work, error), error) {
	list, err := fillings(t, engine)
	if err != nil {
		return nil, err
	}
	address := dbtest.Empty(t, engine)
	d := dbtest.Open(t, address)
	if engine == "sqlite" {
		d.Close()
		raw := openSQLite(t, address)
		for _, statement := range append(append([]string{"BEGIN"}, list...), "COMMIT") {
			if err := raw.exec(statement); err != nil {
				return nil, fmt.Errorf("%s: %w", statement, err)
			}
		}
		return func(c *call) (work, error) { return raw.measure(c.query, c.args) }, nil
	}
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		if err := tx.DisableTimeouts(t.Context()); err != nil {
			return err
		}
		for _, statement := range list {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	return func(c *call) (work, error) { return explain(d, c) }, err
}

// rowsOf returns how many rows a table has.
func rowsOf(table string) int {
	if slices.Contains(small, table) {
		return fewRows
	}
	return filled
}

// valuesOf returns the columns of a table, and an expression for the value of each in row i.
func valuesOf(ctx context.Context, schema db.Querier, table string) (columns, values []string, err error) {
	varying, err := varyingColumns(ctx, schema, table)
	if err != nil {
		return nil, nil, err
	}
	rows, err := schema.Query(ctx, `SELECT name, type, "notnull" OR pk > 0 FROM pragma_table_info($1) ORDER BY cid`, table)
	err = db.Each(rows, err, func(r db.Row) error {
		var name, typ string
		var needed bool
		if err := r.Scan(&name, &typ, &needed); err != nil {
			return err
		}
		columns = append(columns, name)
		values = append(values, value(name, typ, varying[name], needed))
		return nil
	})
	return columns, values, err
}

func value(name, typ string, varies, needed bool) string {
	v := "'x'"
	switch {
	case typ == "TEXT" && varies:
		return "'x' || (100000 + i)"
	case varies:
		return "i"
	case typ == "BOOLEAN" && name == "settled": // of log entries, few of which are open
		v = "i % 100 > 0"
	case typ == "BOOLEAN":
		v = "i % 2 = 0"
	case name == "start": // of usage, in the last month
		v = fmt.Sprintf("%d + i", time.Now().Unix()-2*filled)
	case strings.HasSuffix(name, "_at"): // long ago or far ahead
		v = "CASE WHEN i % 4 < 2 THEN 1600000000000000 ELSE 4000000000000000 END + i"
	case typ == "BIGINT":
		v = "1"
	}
	if !needed {
		v = "CASE WHEN i % 2 = 0 THEN " + v + " END"
	}
	return v
}

// varyingColumns returns a column of each unique index, which makes rows different.
func varyingColumns(ctx context.Context, schema db.Querier, table string) (map[string]bool, error) {
	varying := map[string]bool{}
	indexes, err := db.List(ctx, schema, db.Value[string], `SELECT name FROM pragma_index_list($1) WHERE "unique" = 1`, table)
	if err != nil {
		return nil, err
	}
	lists := [][]string{}
	for _, name := range indexes {
		columns, err := db.List(ctx, schema, db.Value[string], "SELECT coalesce(name, '') FROM pragma_index_info($1) ORDER BY seqno", name)
		if err != nil {
			return nil, err
		}
		lists = append(lists, columns)
	}
	key, err := db.List(ctx, schema, db.Value[string], "SELECT name FROM pragma_table_info($1) WHERE pk > 0 ORDER BY pk", table)
	if err != nil {
		return nil, err
	}
	for _, columns := range append(lists, key) {
		if len(columns) == 0 || slices.ContainsFunc(columns, func(c string) bool { return varying[c] }) {
			continue
		}
		last := len(columns) - 1
		for last > 0 && (columns[last] == "workspace_id" || columns[last] == "environment" || columns[last] == "start") {
			last--
		}
		varying[columns[last]] = true
	}
	return varying, nil
}
