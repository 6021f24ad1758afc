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

	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// movedMark is in an embedded database that was moved: where to.
const movedMark = "moved_to"

// Moved is what was moved, and where to.
type Moved struct {
	To     string
	Tables int
	Rows   int64
}

// Move copies everything from the embedded database of the data folder to the
// empty PostgreSQL database that the configuration names: all of it or nothing.
// The old one stays as it is, but nothing works on it any more, so that no two
// servers make the same deliveries. progress is told how many rows there are.
func Move(ctx context.Context, cfg config.Config, progress func(done, total int64)) (*Moved, error) {
	unlock, err := lockData(cfg.Data)
	if err != nil {
		return nil, err
	}
	defer unlock()
	release, err := ownFolder(cfg.Data)
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
	fresh, err := openFresh(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	if err := old.prepare(ctx); err != nil {
		return nil, err
	}
	m := &mover{Moved: Moved{To: db.Whereabouts(string(cfg.DatabaseURL))}, progress: progress}
	if err := m.move(ctx, old.DB, fresh); err != nil {
		return nil, fmt.Errorf("move to PostgreSQL: %w", err)
	}
	return &m.Moved, nil
}

// CheckForgotten refuses to begin anew in PostgreSQL beside an embedded database
// with somebody's work in it: they have forgotten to move it.
func CheckForgotten(ctx context.Context, cfg config.Config, fresh *db.DB) error {
	path := filepath.Join(cfg.Data, databaseFile)
	if _, err := os.Stat(path); cfg.DatabaseURL == "" || err != nil {
		return nil
	}
	if empty, err := db.IsEmpty(ctx, fresh, "workspaces"); err != nil || !empty {
		return err
	}
	old, err := db.Open(ctx, path)
	if err != nil {
		return fmt.Errorf("look whether %s was moved: %w", path, err)
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
	return fmt.Errorf("%s has not been moved to PostgreSQL, where there is nothing yet: move it with turnpike move, or name another folder with --data to begin anew", path)
}

// openFresh opens and prepares the database that everything goes to, unless
// somebody uses it already.
func openFresh(ctx context.Context, cfg config.Config) (_ *db.DB, err error) {
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
	if have > 0 { // before anything is changed there
		if err := needEmpty(ctx, d, "workspaces"); err != nil {
			return nil, err
		}
	}
	_, err = d.Migrate(ctx)
	return d, err
}

func needEmpty(ctx context.Context, q db.Querier, table string) error {
	empty, err := db.IsEmpty(ctx, q, table)
	if err == nil && !empty {
		err = fmt.Errorf("the PostgreSQL database is not empty: it has %s; make a new one for this", table)
	}
	return err
}

// mover is a move under way.
type mover struct {
	Moved
	tables   []string
	counts   map[string]int64
	progress func(done, total int64)
}

// move marks the old database before the new one commits. If we die between
// the two, nothing works on either; the other way round, it would on both.
func (m *mover) move(ctx context.Context, old, fresh *db.DB) error {
	if err := partitionsFor(ctx, old, fresh); err != nil {
		return err
	}
	err := fresh.Write(ctx, func(to *db.Tx) error {
		if err := to.Patient(ctx); err != nil {
			return err
		}
		return old.Write(ctx, func(from *db.Tx) error {
			if err := m.copy(ctx, from, to); err != nil {
				return err
			}
			_, err := from.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", movedMark, m.To)
			return err
		})
	})
	switch {
	case errors.Is(err, db.ErrInDoubt):
		return fmt.Errorf("%w; whether everything is there is not known. Look, with turnpike keys list: if it is not, turnpike move --undo lets the embedded database be used again", err)
	case err != nil:
		return errors.Join(err, unmark(context.WithoutCancel(ctx), old))
	}
	m.analyze(ctx, fresh)
	return nil
}

// copy copies every table.
func (m *mover) copy(ctx context.Context, from, to *db.Tx) error {
	if err := m.count(ctx, from); err != nil {
		return err
	}
	// The mark of the master key, which any command leaves.
	if _, err := to.Exec(ctx, "DELETE FROM meta"); err != nil {
		return err
	}
	var total int64
	for _, n := range m.counts {
		total += n
	}
	m.Rows = 0
	for _, t := range m.tables {
		if err := needEmpty(ctx, to, t); err != nil {
			return err
		}
		var copied int64
		err := db.Copy(ctx, from, to, t, func(rows int64) {
			copied += rows
			m.Rows += rows
			m.progress(m.Rows, total)
		})
		if err != nil {
			return err
		}
		if copied != m.counts[t] {
			return fmt.Errorf("%d rows of %s came to be %d", m.counts[t], t, copied)
		}
	}
	return nil
}

func (m *mover) count(ctx context.Context, from *db.Tx) (err error) {
	if m.tables, err = db.Tables(ctx, from); err != nil {
		return err
	}
	// Who served the old one does not serve this one: what a crash has left
	// open there is closed at once and not when a node counts as dead.
	m.tables = slices.DeleteFunc(m.tables, func(t string) bool { return t == "nodes" })
	m.Tables, m.counts = len(m.tables), map[string]int64{}
	for _, t := range m.tables {
		if m.counts[t], err = db.Count(ctx, from, t); err != nil {
			return err
		}
	}
	return nil
}

// analyze has PostgreSQL look at what came: until then it goes by what it knows
// of empty tables. It does so by itself after a while.
func (m *mover) analyze(ctx context.Context, fresh *db.DB) {
	err := fresh.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Patient(ctx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "ANALYZE "+strings.Join(m.tables, ", "))
		return err
	})
	if err != nil {
		slog.Warn("everything was moved, but PostgreSQL has not looked at it yet; until it does, some queries are slow", "error", err)
	}
}

// partitionsFor makes those of the months that the old rows are of: in the
// default partition they would be in the way of their own.
func partitionsFor(ctx context.Context, old, fresh *db.DB) error {
	oldest := clock()
	for _, p := range partitioned {
		var first *string
		if err := old.QueryRow(ctx, "SELECT min("+p.Key+") FROM "+p.Table).Scan(&first); err != nil {
			return fmt.Errorf("look for the oldest of %s: %w", p.Table, err)
		}
		if first != nil {
			if at := ids.Time(*first); at.Before(oldest) {
				oldest = at
			}
		}
	}
	for month := oldest; !month.After(clock()); month = month.AddDate(0, 1, -month.Day()+1) {
		if err := preparePartitions(ctx, fresh, month); err != nil {
			return err
		}
	}
	return nil
}

// MoveBack lets the embedded database be used again, as it was when it was
// moved. It reports where to, if it had been.
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

// CheckMoved fails on a database that was moved elsewhere.
func CheckMoved(ctx context.Context, d *db.DB) error {
	to, moved, err := movedTo(ctx, d)
	if err != nil || !moved {
		return err
	}
	return fmt.Errorf("this database was moved to PostgreSQL at %s: use it with --database-url or TURNPIKE_DATABASE_URL; to go on with this one as it was then: turnpike move --undo", to)
}
