package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// movedMark is the row of the table meta with the new location of a moved database.
const movedMark = "moved_to"

// Moved is the result of a move.
type Moved struct {
	To     string
	Tables int
	Rows   int64
}

// Move copies the embedded database to the configured, empty PostgreSQL
// database, in one transaction. It marks the old database as moved, so that no
// server uses it and sends the same deliveries again. progress is called with
// the number of rows.
func Move(ctx context.Context, cfg config.Config, progress func(done, total int64)) (*Moved, error) {
	unlock, err := lockData(cfg.Data)
	if err != nil {
		return nil, err
	}
	defer unlock()
	release, err := claimDirectory(cfg.Data)
	if err != nil {
		return nil, err
	}
	defer release()
	embedded := cfg
	embedded.DatabaseURL = ""
	old, err := openStore(ctx, embedded)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	fresh, err := openTarget(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	if err := old.prepare(ctx); err != nil {
		return nil, err
	}
	if err := requireOwnSchema(ctx, old.DB); err != nil {
		return nil, err
	}
	m := &mover{Moved: Moved{To: db.RedactedAddress(string(cfg.DatabaseURL))}, progress: progress}
	if err := m.move(ctx, old.DB, fresh); err != nil {
		return nil, fmt.Errorf("move to PostgreSQL: %w", err)
	}
	return &m.Moved, nil
}

// CheckUnmoved fails if PostgreSQL is empty and the data directory has an
// embedded database with data. The operator probably forgot to move it.
func CheckUnmoved(ctx context.Context, cfg config.Config, fresh *db.DB) error {
	path := filepath.Join(cfg.Data, databaseFile)
	if _, err := os.Stat(path); cfg.DatabaseURL == "" || err != nil {
		return nil
	}
	if empty, err := db.IsEmpty(ctx, fresh, "workspaces"); err != nil || !empty {
		return err
	}
	old, err := db.Open(ctx, path)
	if err != nil {
		return fmt.Errorf("check whether %s was moved: %w", path, err)
	}
	defer old.Close()
	if have, _, err := old.SchemaVersion(ctx); err != nil || have == 0 {
		return err
	}
	if _, moved, err := movedTo(ctx, old); err != nil || moved {
		return err
	}
	if empty, err := db.IsEmpty(ctx, old, "workspaces"); err != nil || empty {
		return err
	}
	return fmt.Errorf("%s has not been moved to PostgreSQL, which is empty; run turnpike move, or choose another directory with --data to start from scratch", path)
}

// openTarget opens and migrates the target of a move, which must be empty.
func openTarget(ctx context.Context, cfg config.Config) (_ *db.DB, err error) {
	d, err := OpenDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	have, _, err := d.SchemaVersion(ctx)
	if err != nil {
		return nil, err
	}
	if have > 0 { // before it is migrated
		if err := requireEmpty(ctx, d, "workspaces"); err != nil {
			return nil, err
		}
	}
	if _, err := d.Migrate(ctx); err != nil {
		return nil, err
	}
	return d, requireOwnSchema(ctx, d)
}

func requireEmpty(ctx context.Context, q db.Querier, table string) error {
	empty, err := db.IsEmpty(ctx, q, table)
	if err == nil && !empty {
		err = fmt.Errorf("the PostgreSQL database is not empty: it has %s; create a new one", table)
	}
	return err
}

type mover struct {
	Moved
	tables   []string
	counts   map[string]int64
	total    int64
	progress func(done, total int64)
}

// move marks the old database before the new one commits. After a crash between
// the two, no server uses either. In the other order, servers could use both.
func (m *mover) move(ctx context.Context, old, fresh *db.DB) error {
	err := m.copyAll(ctx, old, fresh, func(from *db.Tx) error {
		_, err := from.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", movedMark, m.To)
		return err
	})
	switch {
	case errors.Is(err, db.ErrInDoubt):
		return fmt.Errorf("%w; the commit got no response. Check with turnpike keys list whether PostgreSQL has the data. If not, turnpike move --undo makes the embedded database usable again", err)
	case err != nil:
		return errors.Join(err, unmark(context.WithoutCancel(ctx), old))
	}
	return nil
}

// copyAll copies all tables in one transaction, and calls last before the commit.
func (m *mover) copyAll(ctx context.Context, old, fresh *db.DB, last func(from *db.Tx) error) error {
	if err := createOldPartitions(ctx, old, fresh); err != nil {
		return err
	}
	err := fresh.Write(ctx, func(to *db.Tx) error {
		if err := to.DisableTimeouts(ctx); err != nil {
			return err
		}
		return old.Write(ctx, func(from *db.Tx) error {
			if err := m.copyTables(ctx, from, to); err != nil {
				return err
			}
			return last(from)
		})
	})
	if err == nil {
		m.analyze(ctx, fresh)
	}
	return err
}

func (m *mover) copyTables(ctx context.Context, from, to *db.Tx) error {
	if err := m.count(ctx, from); err != nil {
		return err
	}
	// Any command that opened the database has stored the mark of the master
	// key.
	if _, err := to.Exec(ctx, "DELETE FROM meta"); err != nil {
		return err
	}
	m.Rows = 0
	for _, t := range m.tables {
		if err := requireEmpty(ctx, to, t); err != nil {
			return err
		}
		var copied int64
		err := db.Copy(ctx, from, to, t, func(rows int64) {
			copied += rows
			m.Rows += rows
			m.progress(m.Rows, m.total)
		})
		if err != nil {
			return err
		}
		if copied != m.counts[t] {
			return fmt.Errorf("copied %[3]d of %[1]d rows of %[2]s", m.counts[t], t, copied)
		}
	}
	return nil
}

func (m *mover) count(ctx context.Context, from *db.Tx) (err error) {
	if m.tables, err = db.Tables(ctx, from); err != nil {
		return err
	}
	// Without the old nodes, requests that a crash left open are recovered
	// immediately.
	m.tables = slices.DeleteFunc(m.tables, func(t string) bool { return t == "nodes" })
	m.Tables, m.counts, m.total = len(m.tables), map[string]int64{}, 0
	for _, t := range m.tables {
		if m.counts[t], err = db.Count(ctx, from, t); err != nil {
			return err
		}
		m.total += m.counts[t]
	}
	return nil
}

// analyze updates PostgreSQL's statistics, which otherwise are those of empty
// tables until autovacuum runs.
func (m *mover) analyze(ctx context.Context, fresh *db.DB) {
	err := fresh.Write(ctx, func(tx *db.Tx) error {
		if err := tx.DisableTimeouts(ctx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "ANALYZE "+strings.Join(m.tables, ", "))
		return err
	})
	if err != nil {
		slog.Warn("moved everything but failed to update PostgreSQL's statistics; some queries are slow until autovacuum runs", "error", err)
	}
}

// createOldPartitions creates the partitions of the months of the old rows, which
// would otherwise end up in the default partition.
func createOldPartitions(ctx context.Context, old, fresh *db.DB) error {
	oldest, tables := time.Now(), partitionedTables(config.Audit{})
	for _, p := range tables {
		var first *string
		if err := old.QueryRow(ctx, "SELECT min("+p.Key+") FROM "+p.Table).Scan(&first); err != nil {
			return fmt.Errorf("find the oldest row of %s: %w", p.Table, err)
		}
		if first != nil {
			if at := ids.Time(*first); at.Before(oldest) {
				oldest = at
			}
		}
	}
	for month := oldest; !month.After(time.Now()); month = month.AddDate(0, 1, -month.Day()+1) {
		if err := preparePartitions(ctx, fresh, month, tables); err != nil {
			return err
		}
	}
	return nil
}

// MoveBack makes a moved embedded database usable again, as it was before the
// move. It returns where it was moved to.
func MoveBack(ctx context.Context, cfg config.Config) (to string, moved bool, err error) {
	cfg.DatabaseURL = ""
	d, err := OpenDatabase(ctx, cfg)
	if err != nil {
		return "", false, err
	}
	defer d.Close()
	if to, moved, err = movedTo(ctx, d); err != nil || !moved {
		return "", false, err
	}
	return to, true, unmark(ctx, d)
}

func unmark(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", movedMark)
		return err
	})
}

func movedTo(ctx context.Context, d *db.DB) (to string, moved bool, err error) {
	if have, _, err := d.SchemaVersion(ctx); err != nil || have == 0 {
		return "", false, err
	}
	err = d.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", movedMark).Scan(&to)
	if errors.Is(err, db.ErrNotFound) {
		return "", false, nil
	}
	return to, err == nil, err
}

// CheckMoved fails if the database was moved.
func CheckMoved(ctx context.Context, d *db.DB) error {
	to, moved, err := movedTo(ctx, d)
	if err != nil || !moved {
		return err
	}
	return fmt.Errorf("this database was moved to PostgreSQL at %s; set --database-url or TURNPIKE_DATABASE_URL, or run turnpike move --undo to use this one as it was before", to)
}
