package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

// scratch makes a table for tests of the store itself.
func scratch(t *testing.T, d *db.DB) {
	t.Helper()
	write(t, d, `CREATE TABLE scratch (id TEXT PRIMARY KEY, n BIGINT, flag BOOLEAN)`)
}

func write(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, q db.Querier) (n int64) {
	t.Helper()
	if err := q.QueryRow(t.Context(), "SELECT count(*) FROM scratch").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWriteIsAllOrNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		committed := false
		boom := errors.New("boom")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			tx.OnCommit(func() { committed = true })
			if _, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", "a"); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) || committed || count(t, d) != 0 {
			t.Errorf("a failed write left traces: err %v, on-commit ran %v, rows %d", err, committed, count(t, d))
		}
		func() {
			defer func() { _ = recover() }()
			_ = d.Write(t.Context(), func(tx *db.Tx) error {
				_, _ = tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", "a")
				panic("boom")
			})
		}()
		if count(t, d) != 0 {
			t.Error("a write that panicked left a row")
		}
		write(t, d, "INSERT INTO scratch (id) VALUES ($1)", "a") // the writer is still usable
	})
}

func TestOnEndRunsAfterCommitRollbackAndPanic(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		var ends []error
		boom := errors.New("boom")
		for _, fails := range []func() error{func() error { return nil }, func() error { return boom }, func() error { panic("boom") }} {
			func() {
				defer func() { _ = recover() }()
				_ = d.Write(t.Context(), func(tx *db.Tx) error {
					tx.OnEnd(func(err error) {
						ends = append(ends, err)
						if n := count(t, d); n != 1 {
							t.Errorf("got %d rows at the end, want 1", n)
						}
					})
					if _, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", fmt.Sprint(len(ends))); err != nil {
						return err
					}
					return fails()
				})
			}()
		}
		if len(ends) != 3 || ends[0] != nil || !errors.Is(ends[1], boom) {
			t.Errorf("got %v, want the end of each transaction", ends)
		}
	})
}

func TestErrorsHaveAClass(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		write(t, d, "INSERT INTO scratch (id) VALUES ($1)", "a")
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", "a")
			return err
		})
		if !errors.Is(err, db.ErrExists) {
			t.Errorf("a taken key gave %v", err)
		}
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT n FROM scratch WHERE id = $1", "none").Scan(&n); !errors.Is(err, db.ErrNotFound) {
			t.Errorf("a missing row gave %v", err)
		}
	})
}

func TestBulkInsertWritesEveryTypeAndCountsChanges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		bulk := db.NewBulk("scratch", "ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE scratch.flag", "id text", "n bigint", "flag boolean")
		insert := func(rows ...[]any) (changed int64) {
			err := d.Write(t.Context(), func(tx *db.Tx) (err error) {
				changed, err = bulk.Write(t.Context(), tx, rows)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return changed
		}
		if n := insert([]any{"a", int64(1), true}, []any{"b", nil, false}, []any{"c", int64(-1 << 62), nil}); n != 3 {
			t.Errorf("3 rows were counted as %d", n)
		}
		if n := insert([]any{"a", int64(2), true}, []any{"b", int64(2), true}); n != 1 {
			t.Errorf("one row passed the condition, %d were counted", n)
		}
		var a, c int64
		var b *int64
		err := d.QueryRow(t.Context(), `SELECT (SELECT n FROM scratch WHERE id = 'a'), (SELECT n FROM scratch WHERE id = 'b'),
			(SELECT n FROM scratch WHERE id = 'c')`).Scan(&a, &b, &c)
		if err != nil || a != 2 || b != nil || c != -1<<62 {
			t.Errorf("read %d %v %d, %v", a, b, c, err)
		}
	})
}

// TestBulkUpdatesUseTheIndexOfATableThatWasSmall guards the plans of prepared statements: they outlive the
// statistics, and scanning the table for each row is quadratic.
func TestBulkUpdatesUseTheIndexOfATableThatWasSmall(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	scratch(t, d)
	write(t, d, "INSERT INTO scratch SELECT 'row ' || i, i FROM generate_series(1, 5) AS i")
	write(t, d, "ANALYZE scratch")
	lines, err := db.List(t.Context(), d, db.Value[string], `EXPLAIN (ANALYZE, SUMMARY OFF) SELECT s.n FROM scratch s
		JOIN unnest(ARRAY['row 1', 'row 2'], ARRAY[1, 2]) AS v(id, n) ON s.id = v.id`)
	plan := strings.Join(lines, "\n")
	if err != nil || !strings.Contains(plan, "Index Scan") || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "JIT") {
		t.Errorf("the plan is\n%s (%v)", plan, err)
	}
	lines, err = db.List(t.Context(), d, db.Value[string], "EXPLAIN (ANALYZE) SELECT count(*) FROM scratch WHERE n > 1")
	if err != nil || strings.Contains(strings.Join(lines, "\n"), "JIT") {
		t.Errorf("the plan is compiled: %v (%v)", lines, err)
	}
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		write(t, d, "INSERT INTO scratch (id, n) VALUES ('sum', 0)")
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 25 {
					err := d.Write(t.Context(), func(tx *db.Tx) error {
						_, err := tx.Exec(t.Context(), "UPDATE scratch SET n = n + 1 WHERE id = 'sum'")
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT n FROM scratch").Scan(&n); err != nil || n != 16*25 {
			t.Errorf("%d of %d increments are there (%v)", n, 16*25, err)
		}
	})
}

// eachEmpty runs fn with the address of a database without tables.
func eachEmpty(t *testing.T, fn func(t *testing.T, address string)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fn(t, dbtest.Empty(t, engine))
		})
	}
}

func TestMigrationsRunOnceUnderTheirLock(t *testing.T) {
	t.Parallel()
	eachEmpty(t, func(t *testing.T, address string) {
		var applied atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				d, err := db.Open(t.Context(), address)
				if err != nil {
					t.Error(err)
					return
				}
				defer d.Close()
				list, err := d.Migrate(t.Context())
				if err != nil {
					t.Error(err)
				}
				applied.Add(int64(len(list)))
			})
		}
		wg.Wait()
		if int(applied.Load()) != len(db.Migrations()) {
			t.Errorf("%d migrations were applied, there are %d", applied.Load(), len(db.Migrations()))
		}
		d := dbtest.Open(t, address)
		have, want, err := d.SchemaVersion(t.Context())
		if err != nil || have != want {
			t.Errorf("at version %d of %d, %v", have, want, err)
		}
	})
}

// TestTextIsOrderedByBytes on both engines, whatever language the operator's
// database has.
func TestTextIsOrderedByBytes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return // its default
		}
		rows, err := d.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
			WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'schema_migrations'`)
		others, err := db.All(rows, err, func(r db.Row) (name string, err error) {
			err = r.Scan(&name)
			return name, err
		})
		if err != nil || len(others) > 0 {
			t.Errorf("not in the order of bytes: %v, %v", others, err)
		}
	})
}

func TestThenIsCalledOnceForAWriteThatWaitsAndForOneThatIsOver(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := db.NewGroup(d)
		defer g.Stop()
		hold := make(chan struct{})
		q := db.NewQueue(g, false, func(context.Context, *db.Tx, []string) error {
			<-hold
			return nil
		})
		var calls atomic.Int64
		p := q.Add("x")
		p.Then(func() { calls.Add(1) })
		if n := calls.Load(); n != 0 {
			t.Errorf("called %d times before the write", n)
		}
		close(hold)
		if err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		p.Then(func() { calls.Add(10) })
		db.Written.Then(func() { calls.Add(100) })
		for end := time.Now().Add(10 * time.Second); calls.Load() < 111 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if n := calls.Load(); n != 111 {
			t.Errorf("the calls sum to %d, want 111", n)
		}
	})
}

func TestGroupIsolatesTheRowThatSpoilsABatch(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		defer g.Stop()
		bulk := db.NewBulk("scratch", "", "id text")
		hold := make(chan struct{})
		q := db.NewQueue(g, false, func(ctx context.Context, tx *db.Tx, items []string) error {
			<-hold
			rows := make([][]any, len(items))
			for i, id := range items {
				rows[i] = []any{id}
			}
			_, err := bulk.Write(ctx, tx, rows)
			return err
		})
		var pending []*db.Pending
		for i := range 50 {
			pending = append(pending, q.Add(fmt.Sprint(i%49))) // the last repeats the first
		}
		close(hold)
		failed := 0
		for _, p := range pending {
			if err := p.Wait(t.Context()); err != nil {
				failed++
				if !errors.Is(err, db.ErrExists) {
					t.Errorf("failed with %v", err)
				}
			}
		}
		if failed != 1 || count(t, d) != 49 {
			t.Errorf("%d writes failed and %d rows are there; one bad row must fail alone", failed, count(t, d))
		}
	})
}

func TestStoppingAGroupWritesWhatWaits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		scratch(t, d)
		g := db.NewGroup(d)
		bulk := db.NewBulk("scratch", "", "id text")
		q := db.NewQueue(g, false, func(ctx context.Context, tx *db.Tx, items []string) error {
			for _, id := range items {
				if _, err := bulk.Write(ctx, tx, [][]any{{id}}); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range 3000 {
			q.Add(fmt.Sprint(i))
		}
		g.Stop()
		g.Stop()
		if n := count(t, d); n != 3000 {
			t.Errorf("%d of 3000 writes are there after Stop", n)
		}
	})
}

func TestSignalsReachOtherNodes(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		a, b := dbtest.Open(t, address), dbtest.Open(t, address)
		scratch(t, a)
		heard := make(chan string, 100)
		b.OnSignal("topic", func(payload string) { heard <- payload })
		var own atomic.Bool
		a.OnSignal("topic", func(payload string) {
			if payload == "x" { // it is also told when its own listener begins
				own.Store(true)
			}
		})
		// The listener of b starts beside the test, so say it until it is heard.
		deadline := time.After(10 * time.Second)
		for i := 0; ; i++ {
			err := a.Write(t.Context(), func(tx *db.Tx) error {
				tx.Signal("topic", "x")
				_, err := tx.Exec(t.Context(), "INSERT INTO scratch (id) VALUES ($1)", fmt.Sprint(i))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !own.Swap(false) {
				t.Fatal("the node that did it was not told before Write returned")
			}
			select {
			case got := <-heard:
				// PostgreSQL says what changed, SQLite that something did.
				if got != "x" && got != "" {
					t.Errorf("heard %q", got)
				}
				return
			case <-time.After(300 * time.Millisecond):
			case <-deadline:
				t.Fatal("the other node heard nothing")
			}
		}
	})
}

func TestPartitionsHoldTheirMonthAndGoAtOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	write(t, d, "CREATE TABLE parts (id TEXT PRIMARY KEY) PARTITION BY RANGE (id)")
	write(t, d, "CREATE TABLE parts_default PARTITION OF parts DEFAULT")
	parts := db.Partitioned{Table: "parts", Key: "id", Prefix: "req_"}
	january := time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC)
	for range 2 { // making them again is fine, and so are nodes that start at once
		var nodes sync.WaitGroup
		for range 8 {
			nodes.Go(func() {
				if err := parts.Prepare(t.Context(), d, january); err != nil {
					t.Error(err)
				}
			})
		}
		nodes.Wait()
	}
	for _, at := range []time.Time{january, january.Add(time.Second), january.AddDate(-1, 0, 0)} {
		write(t, d, "INSERT INTO parts (id) VALUES ($1)", ids.Floor("req_", at))
	}
	for _, name := range []string{"parts_2026_01", "parts_2026_02", "parts_default"} {
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+name).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s has %d rows (%v), expected 1", name, n, err)
		}
	}
	if err := parts.Drop(t.Context(), d, time.Date(2026, 2, 15, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	var n int64
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM parts").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows are left (%v), expected February's and the default's", n, err)
	}
}

// The parent of existing partitions may be declared as updated later.
func TestIndexesOfUpdatedPartitionsLeaveRoom(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	write(t, d, "CREATE TABLE twice (id TEXT PRIMARY KEY, due BIGINT) PARTITION BY RANGE (id)")
	write(t, d, "CREATE TABLE twice_default PARTITION OF twice DEFAULT")
	write(t, d, "CREATE INDEX twice_due ON twice (due) WHERE due IS NOT NULL")
	twice := db.Partitioned{Table: "twice", Key: "id", Prefix: "req_"}
	march := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	for _, updated := range []bool{false, true, true} {
		twice.Updated = updated
		if err := twice.Prepare(t.Context(), d, march); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"twice_2026_03_pkey": "{fillfactor=50}", "twice_2026_05_pkey": "{fillfactor=50}", "twice_2026_03_due_idx": ""} {
			if !updated {
				want = ""
			}
			options, err := db.Value[string](d.QueryRow(t.Context(), "SELECT COALESCE(reloptions::text, '') FROM pg_class WHERE relname = $1", name))
			if err != nil || options != want {
				t.Errorf("updated: %v: %s has the options %q (%v), expected %q", updated, name, options, err, want)
			}
		}
	}
}

// A clock that was wrong for a while leaves rows where no month was yet.
func TestPartitionsTakeTheirRowsFromTheDefault(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	write(t, d, "CREATE TABLE late (id TEXT PRIMARY KEY, note TEXT NOT NULL) PARTITION BY RANGE (id)")
	write(t, d, "CREATE TABLE late_default PARTITION OF late DEFAULT")
	write(t, d, "CREATE INDEX late_by_note ON late (note, id)")
	late := db.Partitioned{Table: "late", Key: "id", Prefix: "req_"}
	march := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{march, march.AddDate(-1, 0, 0)} {
		write(t, d, "INSERT INTO late (id, note) VALUES ($1, 'x')", ids.Floor("req_", at))
	}
	for range 2 {
		if err := late.Prepare(t.Context(), d, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int64{"late_2026_02": 0, "late_2026_03": 1, "late_2026_04": 0, "late_default": 1, "late": 2} {
		var n int64
		if err := d.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" WHERE note = 'x'").Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d rows (%v), expected %d", name, n, err, want)
		}
	}
	if err := late.Drop(t.Context(), d, march.AddDate(0, 2, 0)); err != nil {
		t.Fatal(err)
	}
}

// TestWritesGoOnWhileTheirPartitionIsMade, and neither fails for the other: rows
// that are written at that moment, again and anew, move with the others.
func TestWritesGoOnWhileTheirPartitionIsMade(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	write(t, d, "CREATE TABLE busy (id TEXT PRIMARY KEY, n BIGINT NOT NULL) PARTITION BY RANGE (id)")
	write(t, d, "CREATE TABLE busy_default PARTITION OF busy DEFAULT")
	busy := db.Partitioned{Table: "busy", Key: "id", Prefix: "req_"}
	march := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	var done atomic.Bool
	var written atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := 0; !done.Load(); i++ {
				id := ids.Floor("req_", march.Add(time.Duration(i%200)*time.Second))
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), "INSERT INTO busy (id, n) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET n = busy.n + 1", id)
					return err
				})
				if err != nil {
					t.Error(err)
				}
				written.Add(1)
			}
		})
	}
	await := func(n int64) {
		for n += written.Load(); written.Load() < n; {
			runtime.Gosched()
		}
	}
	await(100)
	if err := busy.Prepare(t.Context(), d, march); err != nil {
		t.Error(err)
	}
	await(100)
	done.Store(true)
	all.Wait()
	var sum, left int64
	if err := d.QueryRow(t.Context(), "SELECT CAST(sum(n) AS BIGINT), (SELECT count(*) FROM busy_default) FROM busy").Scan(&sum, &left); err != nil || sum != written.Load() || left != 0 {
		t.Errorf("%d of %d writes are there, %d rows in the default (%v)", sum, written.Load(), left, err)
	}
}

var (
	createsTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)
	createsIndex = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?INDEX (\w+)`)
	addsColumn   = regexp.MustCompile(`(?m)^ALTER TABLE (\w+) ADD COLUMN (\w+)`)
)

// undoMigrations removes what the migrations from a version on have added.
func undoMigrations(t *testing.T, d *db.DB, from int) {
	t.Helper()
	for _, m := range slices.Backward(db.Migrations()[from-1:]) {
		text, err := os.ReadFile(fmt.Sprintf("migrations/%04d_%s.sql", m.Version, m.Name))
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range createsTable.FindAllSubmatch(text, -1) {
			write(t, d, "DROP TABLE "+string(table[1]))
		}
		for _, index := range createsIndex.FindAllSubmatch(text, -1) {
			write(t, d, "DROP INDEX IF EXISTS "+string(index[1]))
		}
		for _, column := range addsColumn.FindAllSubmatch(text, -1) {
			write(t, d, "ALTER TABLE "+string(column[1])+" DROP COLUMN "+string(column[2]))
		}
	}
	write(t, d, fmt.Sprintf("DELETE FROM schema_migrations WHERE version >= %d", from))
}

// TestAMigrationHoldsUpNobody: a backup reads a table that a migration changes.
// Nodes that serve meanwhile do not queue behind the one that migrates.
func TestAMigrationHoldsUpNobody(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	undoMigrations(t, d, 22) // this one changes the table of workspaces
	migrated := make(chan error, 1)
	var n int64
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM workspaces").Scan(&n); err != nil {
			return err
		}
		go func() {
			_, err := d.Migrate(t.Context())
			migrated <- err
		}()
		for range 2 { // it gives up, and tries again
			dbtest.AwaitBlocked(t, d, tx)
			if err := d.QueryRow(t.Context(), "SELECT count(*) FROM workspaces").Scan(&n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	if have, want, err := d.SchemaVersion(t.Context()); have != want || err != nil {
		t.Errorf("the schema is at %d of %d (%v)", have, want, err)
	}
}
