package db_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

// logTable creates a table with partitions by days from a time on.
func logTable(t *testing.T, now time.Time) (*db.DB, db.Partitioned) {
	t.Helper()
	return logTableAt(t, dbtest.Address(t, "postgres"), now)
}

func logTableAt(t *testing.T, address string, now time.Time) (*db.DB, db.Partitioned) {
	t.Helper()
	d := dbtest.Open(t, address)
	write(t, d, "CREATE TABLE log (id TEXT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0) PARTITION BY RANGE (id)")
	write(t, d, "CREATE TABLE log_default PARTITION OF log DEFAULT")
	log := db.Partitioned{Table: "log", Key: "id", Prefix: "req_", Span: db.Day}
	prepare(t, d, log, now)
	return d, log
}

func prepare(t *testing.T, d *db.DB, p db.Partitioned, now time.Time) {
	t.Helper()
	if err := p.Prepare(t.Context(), d, now); err != nil {
		t.Fatal(err)
	}
}

// partitionsOf lists the partitions of a table without its name.
func partitionsOf(t *testing.T, d *db.DB, table string) string {
	t.Helper()
	names, err := db.List(t.Context(), d, db.Value[string], "SELECT substr(c.relname, $2) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1) ORDER BY 1", table, int64(len(table)+2))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func addRow(t *testing.T, d *db.DB, at time.Time) {
	t.Helper()
	write(t, d, "INSERT INTO log (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET n = log.n + 1", ids.Floor("req_", at))
}

func TestSpanOfPartitionsChanges(t *testing.T) {
	t.Parallel()
	november := time.Date(2026, 11, 28, 23, 59, 59, 0, time.UTC)
	d, byDay := logTable(t, time.Date(2026, 10, 30, 12, 0, 0, 0, time.UTC))
	byMonth := byDay
	byMonth.Span = db.Month
	for _, step := range []struct {
		name string
		p    db.Partitioned
		now  time.Time
		row  time.Time // that is there before
		want string
	}{
		{"days", byDay, time.Date(2026, 10, 30, 12, 0, 0, 0, time.UTC), november, "2026_10_30 2026_10_31 2026_11_01 2026_11_02 default"},
		{"days end with the month, and empty ones that haven't begun are replaced", byMonth, time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC), november,
			"2026_10_30 2026_10_31 2026_11 2026_12 default"},
		{"the month that has begun stays", byDay, november, november, "2026_10_30 2026_10_31 2026_11 2026_12_01 default"},
		{"a day with rows keeps its month from being created", byMonth, november, november.AddDate(0, 0, 3), "2026_10_30 2026_10_31 2026_11 2026_12_01 2027_01 default"},
		{"days follow in such a month", byMonth, november.AddDate(0, 0, 3), november, "2026_10_30 2026_10_31 2026_11 2026_12_01 2026_12_02 2026_12_03 2026_12_04 2027_01 2027_02 default"},
		{"a month with rows stays", byDay, time.Date(2026, 12, 30, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 3, 0, 0, 0, 0, time.UTC),
			"2026_10_30 2026_10_31 2026_11 2026_12_01 2026_12_02 2026_12_03 2026_12_04 2026_12_30 2026_12_31 2027_01 2027_02 default"},
	} {
		addRow(t, d, step.row)
		for range 2 {
			prepare(t, d, step.p, step.now)
			if got := partitionsOf(t, d, "log"); got != step.want {
				t.Fatalf("%s: got %s, want %s", step.name, got, step.want)
			}
		}
	}
	if n, err := db.Count(t.Context(), d, "log"); err != nil || n != 3 {
		t.Errorf("%d rows are left (%v), want 3", n, err)
	}
	if err := byMonth.Drop(t.Context(), d, time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	if got, want := partitionsOf(t, d, "log"), "2026_12_03 2026_12_04 2026_12_30 2026_12_31 2027_01 2027_02 default"; got != want {
		t.Errorf("got %s after Drop, want %s", got, want)
	}
}

// TestNodesWithDifferentSpansStart covers a rolling change of the configuration.
func TestNodesWithDifferentSpansStart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 30, 12, 0, 0, 0, time.UTC)
	d, p := logTable(t, now)
	var nodes sync.WaitGroup
	for i := range 8 {
		nodes.Go(func() {
			node := p
			node.Span = db.Span(i % 2)
			for hours := range 48 {
				if err := node.Prepare(t.Context(), d, now.Add(time.Duration(hours)*time.Hour)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	nodes.Wait()
	for hours := range 48 {
		addRow(t, d, now.Add(time.Duration(hours)*time.Hour))
	}
	if n, err := db.Count(t.Context(), d, "log_default"); err != nil || n != 0 {
		t.Errorf("%d rows are in the default partition (%v), want none", n, err)
	}
}

func TestPartitionWithRowsIsNotDroppedAsEmpty(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 12, 0, 0, 0, time.UTC)
	d, p := logTable(t, now)
	addRow(t, d, now.AddDate(0, 0, 1))
	var nodes sync.WaitGroup
	for range 4 {
		nodes.Go(func() {
			if err := p.DropEmpty(t.Context(), d, now.AddDate(0, 0, 3)); err != nil {
				t.Error(err)
			}
		})
	}
	nodes.Wait()
	if got, want := partitionsOf(t, d, "log"), "2026_10_13 2026_10_15 default"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func watch(t *testing.T, d *db.DB, p db.Partitioned, day time.Time) *db.Watched {
	t.Helper()
	o, err := p.OfDay(t.Context(), d, day)
	if err != nil || o == nil {
		t.Fatalf("got %v, %v", o, err)
	}
	w, err := o.Watch(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var nothing = func(*db.Tx) error { return nil }

func TestWatchedPartitionIsDroppedUnlessItChanged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	stored, other := ids.Floor("req_", now), ids.Floor("req_", now.AddDate(0, 0, 1))
	late := ids.Floor("req_", now.Add(24*time.Hour-time.Millisecond))
	for name, c := range map[string]struct {
		query   string
		args    []any
		changes bool
	}{
		"nothing":                     {"SELECT 1", nil, false},
		"an insert":                   {"INSERT INTO log (id) VALUES ($1)", []any{late}, true},
		"an update":                   {"UPDATE log SET n = n + 1 WHERE id = $1", []any{stored}, true},
		"an update by an insert":      {"INSERT INTO log (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET n = 1", []any{stored}, true},
		"an update that is the same":  {"UPDATE log SET n = 0 WHERE id = $1", []any{stored}, true},
		"a write of the partition":    {"INSERT INTO log_2026_10_12 (id) VALUES ($1)", []any{late}, true},
		"a deletion":                  {"DELETE FROM log WHERE id = $1", []any{stored}, false}, // the archive has it
		"an insert on another day":    {"INSERT INTO log (id) VALUES ($1)", []any{other + "1"}, false},
		"an update on another day":    {"UPDATE log SET n = n + 1 WHERE id = $1", []any{other}, false},
		"the mark is lost":            {"DELETE FROM partition_changes", nil, true},
		"another mark":                {"UPDATE partition_changes SET change = 'watch_1'", nil, true},
		"an insert with another path": {"SELECT set_config('search_path', 'pg_catalog', TRUE); INSERT INTO public.log (id) VALUES ('" + late + "')", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := logTable(t, now)
			addRow(t, d, now)
			addRow(t, d, now.AddDate(0, 0, 1))
			for range 2 { // a watch that a crash left
				watch(t, d, p, now)
				addRow(t, d, now)
			}
			write(t, d, "UPDATE log SET n = 0")
			w := watch(t, d, p, now)
			before, err := db.Count(t.Context(), d, "log")
			if err != nil {
				t.Fatal(err)
			}
			err = d.Write(t.Context(), func(tx *db.Tx) error {
				for query := range strings.SplitSeq(c.query, "; ") {
					if _, err := tx.Exec(t.Context(), query, c.args...); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			failed := errors.New("failed")
			if err := w.Drop(t.Context(), d, func(*db.Tx) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("got %v, want %v", err, failed)
			}
			err = w.Drop(t.Context(), d, func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO meta (name, value) VALUES ('dropped', '')")
				return err
			})
			noted, failed := db.Value[bool](d.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'dropped')"))
			left := strings.Contains(partitionsOf(t, d, "log"), "2026_10_12")
			if errors.Is(err, db.ErrChanged) != c.changes || (err != nil) != c.changes || noted == c.changes || left != c.changes || failed != nil {
				t.Errorf("got %v, dropped: %v, left: %v, %v", err, noted, left, failed)
			}
			if n, err := db.Count(t.Context(), d, "log"); err != nil || c.changes && n < before {
				t.Errorf("%d of %d rows are left (%v)", n, before, err)
			}
		})
	}
}

// TestOpenTransactionKeepsItsPartition has one that has read or written before Watch or Drop, and ends after it has
// given up.
func TestOpenTransactionKeepsItsPartition(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	d, p := logTable(t, now)
	const read, insert = "SELECT FROM log WHERE id = $1", "INSERT INTO log (id) VALUES ($1)"
	during := func(query string, do func() error) {
		t.Helper()
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), query, ids.Floor("req_", now)+ids.New("")); err != nil {
				return err
			}
			if err := do(); !errors.Is(err, db.ErrRace) {
				t.Errorf("got %v, want that it gives up", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	day, err := p.OfDay(t.Context(), d, now)
	if err != nil || day == nil {
		t.Fatalf("got %v, %v", day, err)
	}
	for range 2 { // the second one finds the trigger
		for _, query := range []string{read, insert} {
			during(query, func() error {
				_, err := day.Watch(t.Context(), d)
				return err
			})
		}
		watch(t, d, p, now)
	}
	w := watch(t, d, p, now)
	during(read, func() error { return w.Drop(t.Context(), d, nothing) })
	during(insert, func() error { return w.Drop(t.Context(), d, nothing) })
	if err := w.Drop(t.Context(), d, nothing); !errors.Is(err, db.ErrChanged) {
		t.Errorf("got %v, want %v", err, db.ErrChanged)
	}
	if err := watch(t, d, p, now).Drop(t.Context(), d, nothing); err != nil {
		t.Error(err)
	}
}

// TestWriteThatEndsWhileDropWaitsIsKept commits when Drop waits for the writer's lock.
func TestWriteThatEndsWhileDropWaitsIsKept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} { // a role may have another default
		for name, drop := range map[string]func(d *db.DB, p db.Partitioned, w *db.Watched) error{
			"watched": func(d *db.DB, _ db.Partitioned, w *db.Watched) error { return w.Drop(t.Context(), d, nothing) },
			"empty": func(d *db.DB, p db.Partitioned, _ *db.Watched) error {
				return p.DropEmpty(t.Context(), d, now.AddDate(0, 0, 1))
			},
		} {
			t.Run(name+", "+isolation, func(t *testing.T) {
				t.Parallel()
				d, p := logTableAt(t, dbtest.Address(t, "postgres")+"&default_transaction_isolation="+url.PathEscape(isolation), now)
				w := watch(t, d, p, now)
				dropped := make(chan error, 1)
				err := d.Write(t.Context(), func(tx *db.Tx) error {
					if _, err := tx.Exec(t.Context(), "INSERT INTO log (id) VALUES ($1)", ids.Floor("req_", now)); err != nil {
						return err
					}
					go func() { dropped <- drop(d, p, w) }()
					dbtest.AwaitBlocked(t, d, tx)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := <-dropped; errors.Is(err, db.ErrChanged) != (name == "watched") {
					t.Errorf("got %v", err)
				}
				if n, err := db.Count(t.Context(), d, "log"); err != nil || n != 1 {
					t.Errorf("%d rows are left (%v), want the one that was written", n, err)
				}
			})
		}
	}
}

// TestRowsThatCameTooEarlyStayInTheDefaultPartition: after days without new partitions, moving today's rows would
// block the table. They stay, and the days that follow get their partitions.
func TestRowsThatCameTooEarlyStayInTheDefaultPartition(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	d, p := logTable(t, now)
	today := now.AddDate(0, 0, 20)
	few, many := today.AddDate(0, 0, 1), today
	for day, rows := range map[time.Time]int{many: 10_001, few: 10_000} {
		write(t, d, "INSERT INTO log (id) SELECT $1 || n FROM generate_series(1, $2) n", ids.Floor("req_", day), rows)
	}
	if err := p.Prepare(t.Context(), d, today); err == nil || !strings.Contains(err.Error(), "log_2026_11_01: log_default has more than 10000 of its rows") {
		t.Errorf("got %v, want that the rows of today stay", err)
	}
	names := partitionsOf(t, d, "log")
	if strings.Contains(names, "2026_11_01") || !strings.Contains(names, "2026_11_02 2026_11_03 2026_11_04") {
		t.Errorf("got %s, want partitions from tomorrow on", names)
	}
	for table, want := range map[string]int64{"log_default": 10_001, "log_2026_11_02": 10_000} {
		if n, err := db.Count(t.Context(), d, table); err != nil || n != want {
			t.Errorf("%s has %d rows (%v), want %d", table, n, err, want)
		}
	}
}

// TestWritesOfOtherDaysDontWaitForADrop: while a reader keeps a partition from being dropped, others are written.
func TestWritesOfOtherDaysDontWaitForADrop(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 12, 0, 0, 0, 0, time.UTC)
	d, p := logTable(t, now)
	addRow(t, d, now)
	w := watch(t, d, p, now)
	const writers = 4
	var all sync.WaitGroup
	done, writing := make(chan struct{}), make(chan struct{}, 1000)
	longest, written := make([]time.Duration, writers), make([]int64, writers)
	for i := range writers {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				begun := time.Now()
				err := d.Write(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), "INSERT INTO log (id) VALUES ($1)", ids.Floor("req_", now.AddDate(0, 0, 1+i%2))+ids.New(""))
					return err
				})
				if err != nil {
					t.Error(err)
				}
				longest[i] = max(longest[i], time.Since(begun))
				written[i]++
				select {
				case writing <- struct{}{}:
				default:
				}
			}
		})
	}
	await := func() {
		for range 50 {
			<-writing
		}
	}
	await()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := db.Count(t.Context(), tx, "log_2026_10_12"); err != nil { // as a backup does
			return err
		}
		if err := w.Drop(t.Context(), d, nothing); !errors.Is(err, db.ErrRace) {
			t.Errorf("got %v, want that it gives up", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	await()
	if err := w.Drop(t.Context(), d, nothing); err != nil {
		t.Error(err)
	}
	await()
	close(done)
	all.Wait()
	var sum int64
	for _, n := range written {
		sum += n
	}
	if n, err := db.Count(t.Context(), d, "log"); err != nil || n != sum {
		t.Errorf("%d rows are there (%v), want the %d that were written", n, err, sum)
	}
	// The limit of 200 milliseconds, and what a busy machine adds.
	if most := slices.Max(longest); most > 2*time.Second {
		t.Errorf("a write took %v", most)
	}
}
