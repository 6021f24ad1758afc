package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/ids"
)

// Partitioned is a large table with partitions by ID on PostgreSQL. IDs sort by time, so a month or a
// day is a range of IDs. The primary key spans all partitions. An expired one is dropped as a whole. On SQLite these methods do nothing.
type Partitioned struct {
	Table  string
	Key    string // column of the IDs
	Prefix string // of the IDs
	// Updated means that most rows are updated once, soon after they are inserted.
	Updated bool
	// Span is what new partitions hold. It may change: see Prepare.
	Span Span
}

// Span is the time that a partition holds, in UTC.
type Span uint8

const (
	Month Span = iota
	Day
)

// Partitions are created this far in advance. The default partition takes rows that no other covers.
const (
	monthsAhead = 2
	daysAhead   = 3
)

// movable is how many rows of the default partition a new one takes. They move under the lock of the whole table.
const movable = 10_000

// Partition is a partition other than the default one.
type Partition struct {
	table Partitioned
	start time.Time
	span  Span
}

func (p Partition) end() time.Time {
	if p.span == Day {
		return p.start.AddDate(0, 0, 1)
	}
	return p.start.AddDate(0, 1, 0)
}

func (p Partition) layout() string {
	if p.span == Day {
		return "_2006_01_02"
	}
	return "_2006_01"
}

func (p Partition) name() string { return p.table.Table + p.start.Format(p.layout()) }

// from and to are the IDs that it holds, without the last one.
func (p Partition) from() string { return ids.Floor(p.table.Prefix, p.start) }
func (p Partition) to() string   { return ids.Floor(p.table.Prefix, p.end()) }

func (p Partition) overlaps(o Partition) bool {
	return p.start.Before(o.end()) && o.start.Before(p.end())
}

func (p Partitioned) month(t time.Time) Partition {
	t = t.UTC()
	return Partition{p, time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC), Month}
}

func (p Partitioned) day(t time.Time) Partition {
	return Partition{p, t.UTC().Truncate(24 * time.Hour), Day}
}

// Prepare creates the partitions from now's month or day on. If the span has changed, it replaces
// partitions of the other span that haven't begun and are empty. Until the end of a month that has
// both, missing partitions are days.
func (p Partitioned) Prepare(ctx context.Context, d *DB, now time.Time) error {
	if d.Engine() != "postgres" {
		return nil
	}
	if p.Span == Day {
		return p.prepareDays(ctx, d, now, func(Partition) bool { return true })
	}
	month := p.month(now)
	for range monthsAhead + 1 {
		covered, err := p.prepare(ctx, d, month, now)
		if err == nil && !covered {
			err = p.prepareDays(ctx, d, now, month.overlaps)
		}
		if err != nil {
			return err
		}
		month = p.month(month.end())
	}
	return nil
}

// prepareDays tries all days: if one fails, its rows stay in the default partition, and the others must not.
func (p Partitioned) prepareDays(ctx context.Context, d *DB, now time.Time, include func(Partition) bool) (err error) {
	day := p.day(now)
	for range daysAhead + 1 {
		if include(day) {
			_, failed := p.prepare(ctx, d, day, now)
			err = errors.Join(err, failed)
		}
		day = p.day(day.end())
	}
	return err
}

// prepare creates a partition, and reports whether there is one now. There is none if others overlap
// it that have begun or have rows.
func (p Partitioned) prepare(ctx context.Context, d *DB, want Partition, now time.Time) (covered bool, err error) {
	err = d.Write(ctx, func(tx *Tx) error {
		covered = false
		// Concurrent starts must not create the same one.
		if err := tx.tx.lockMigrations(ctx); err != nil {
			return err
		}
		others, err := p.list(ctx, tx)
		if err != nil {
			return err
		}
		if err := limitLockWait(ctx, tx); err != nil {
			return err
		}
		if !slices.Contains(others, want) {
			others = slices.DeleteFunc(others, func(o Partition) bool { return !o.overlaps(want) })
			if replaced, err := p.replace(ctx, tx, others, now); err != nil || !replaced {
				return err
			}
			if err := p.create(ctx, tx, want.name(), want.from(), want.to()); err != nil {
				return err
			}
		}
		covered = true
		return p.leaveRoom(ctx, tx, want.name())
	})
	return covered, Wrap(err, "partition "+want.name())
}

// replace drops partitions, unless one has begun or has rows.
func (p Partitioned) replace(ctx context.Context, tx *Tx, list []Partition, now time.Time) (bool, error) {
	if slices.ContainsFunc(list, func(o Partition) bool { return !o.start.After(now) }) {
		return false, nil
	}
	for _, o := range list {
		if empty, err := o.dropEmpty(ctx, tx); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

// list returns the partitions.
func (p Partitioned) list(ctx context.Context, q Querier) ([]Partition, error) {
	names, err := List(ctx, q, Value[string], `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1) ORDER BY c.relname`, p.Table)
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	var out []Partition
	for _, name := range names {
		for _, span := range []Span{Month, Day} {
			o := Partition{table: p, span: span}
			if o.start, err = time.Parse(o.layout(), strings.TrimPrefix(name, p.Table)); err == nil {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// create creates a partition. Rows of its range in the default partition, from a
// wrong clock, must be moved. If it comes so late that there are many, they stay.
func (p Partitioned) create(ctx context.Context, tx *Tx, name, from, to string) error {
	// Creating it takes this lock anyway. Taken first, it stops inserts into the
	// default partition.
	if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.Table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	spare := p.Table + "_default"
	taken, err := Value[int](tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s WHERE %[2]s >= $1 AND %[2]s < $2 LIMIT %d) AS taken", spare, p.Key, movable+1), from, to))
	if err != nil {
		return err
	}
	if taken > movable {
		return fmt.Errorf("%s has more than %d of its rows, which stay there", spare, movable)
	}
	steps := []string{fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')", name, p.Table, from, to)}
	if taken > 0 {
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
	return p.dropEach(ctx, d, before, func(tx *Tx, o Partition) error { return o.drop(ctx, tx) })
}

// DropEmpty drops the partitions that end before a time and have no rows.
func (p Partitioned) DropEmpty(ctx context.Context, d *DB, before time.Time) error {
	return p.dropEach(ctx, d, before, func(tx *Tx, o Partition) error {
		_, err := o.dropEmpty(ctx, tx)
		return err
	})
}

func (p Partitioned) dropEach(ctx context.Context, d *DB, before time.Time, drop func(*Tx, Partition) error) error {
	if d.Engine() != "postgres" {
		return nil
	}
	list, err := p.list(ctx, d)
	if err != nil {
		return err
	}
	for _, o := range list {
		if o.end().After(before) {
			continue
		}
		err := d.Write(ctx, func(tx *Tx) error {
			// Other nodes drop the same ones.
			if err := tx.tx.lockMigrations(ctx); err != nil {
				return err
			}
			left, err := p.list(ctx, tx)
			if err != nil || !slices.Contains(left, o) {
				return err
			}
			if err := limitLockWait(ctx, tx); err != nil {
				return err
			}
			return drop(tx, o)
		})
		if err != nil {
			return fmt.Errorf("drop partition %s: %w", o.name(), err)
		}
	}
	return nil
}

func (p Partition) drop(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, "DROP TABLE "+p.name())
	return err
}

// dropEmpty drops a partition without rows, and reports whether it did. Only if there seem to be none,
// it waits for the lock under which none are added.
func (p Partition) dropEmpty(ctx context.Context, tx *Tx) (dropped bool, err error) {
	for _, locked := range []bool{false, true} {
		if locked {
			if err := p.lock(ctx, tx); err != nil {
				return false, err
			}
		}
		if empty, err := IsEmpty(ctx, tx, p.name()); err != nil || !empty {
			return false, err
		}
	}
	return true, p.drop(ctx, tx)
}

// lock waits for all transactions that use the table, and then keeps others from it until the
// transaction ends. It fails immediately if anyone still uses only the partition, such as autovacuum, so
// that queries of the table wait once.
func (p Partition) lock(ctx context.Context, tx *Tx) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.table.Table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.name()+" IN ACCESS EXCLUSIVE MODE NOWAIT")
	return err
}

// limitLockWait gives up on a lock quickly, because all queries of the table queue
// behind a waiting DDL statement. The caller retries later.
func limitLockWait(ctx context.Context, tx *Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '200ms'")
	return err
}

// OfDay returns the partition that holds exactly a day in UTC, or nil.
func (p Partitioned) OfDay(ctx context.Context, d *DB, start time.Time) (*Partition, error) {
	if d.Engine() != "postgres" {
		return nil, nil
	}
	day := p.day(start)
	exists, err := Value[bool](d.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1) AND c.relname = $2 AND pg_get_expr(c.relpartbound, c.oid) = $3)`,
		p.Table, day.name(), fmt.Sprintf("FOR VALUES FROM ('%s') TO ('%s')", day.from(), day.to())))
	if err != nil || !exists {
		return nil, Wrap(err, "find the partition "+day.name())
	}
	return &day, nil
}

// ErrChanged means that rows of a partition were added or updated.
var ErrChanged = errors.New("the partition has changed")

// Watched is a partition whose changes the database records.
type Watched struct {
	Partition
	mark string
}

// Watch records from now on whether rows are added to the partition or updated, by any program. All
// changes before that are visible. A trigger does it: xmin has no index, so reading it would take as long
// as the partition is large, and statistics lag. Only one partition is watched at a time.
//
// Watch needs the same lock as dropping the partition, so that a long transaction that would keep it
// from being dropped is found at the start. Writes to other partitions don't wait for it.
func (p Partition) Watch(ctx context.Context, d *DB) (*Watched, error) {
	w := &Watched{p, ids.New("watch")}
	err := d.Write(ctx, func(tx *Tx) error {
		if err := limitLockWait(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+p.name()+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		watched, err := Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = 'watch')", p.name()))
		if err != nil {
			return err
		}
		steps := []string{"DELETE FROM partition_changes", "INSERT INTO partition_changes (change) VALUES ('" + w.mark + "')"}
		if !watched {
			steps = append(steps, "CREATE TRIGGER watch AFTER INSERT OR UPDATE ON "+p.name()+" FOR EACH ROW EXECUTE FUNCTION record_partition_change()")
		}
		for _, step := range steps {
			if _, err := tx.Exec(ctx, step); err != nil {
				return err
			}
		}
		return nil
	})
	return w, Wrap(err, "watch partition "+p.name())
}

// Drop drops the partition together with a change, in one transaction. It fails with ErrChanged if the
// partition has changed since Watch.
func (w *Watched) Drop(ctx context.Context, d *DB, with func(tx *Tx) error) error {
	err := d.Write(ctx, func(tx *Tx) error {
		if err := tx.tx.lockMigrations(ctx); err != nil {
			return err
		}
		if err := with(tx); err != nil {
			return err
		}
		if err := limitLockWait(ctx, tx); err != nil {
			return err
		}
		if err := w.lock(ctx, tx); err != nil {
			return err
		}
		// Each transaction that changes the partition adds a row. After a failover that lost Watch, the
		// mark is missing.
		changes, err := List(ctx, tx, Value[string], "SELECT change FROM partition_changes LIMIT 2")
		if err != nil {
			return err
		}
		if !slices.Equal(changes, []string{w.mark}) {
			return ErrChanged
		}
		return w.drop(ctx, tx)
	})
	return Wrap(err, "drop partition "+w.name())
}
