package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

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
	embedded := cfg
	embedded.DatabaseURL = ""
	old, err := OpenStore(ctx, embedded)
	if err != nil {
		return nil, err
	}
	defer old.Close()
	fresh, err := OpenDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	if _, err := fresh.Migrate(ctx); err != nil {
		return nil, err
	}
	m := &Moved{To: whereabouts(string(cfg.DatabaseURL))}
	// The old one is held until the end: an operator's command that changes it
	// meanwhile waits, and finds that it was moved.
	err = old.DB.Write(ctx, func(from *db.Tx) error {
		if err := partitionsFor(ctx, from, fresh); err != nil {
			return err
		}
		if err := m.copy(ctx, from, fresh, progress); err != nil {
			return err
		}
		_, err := from.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2)", movedMark, m.To)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("move to PostgreSQL: %w", err)
	}
	return m, nil
}

// copy copies every table in one transaction.
func (m *Moved) copy(ctx context.Context, from *db.Tx, fresh *db.DB, progress func(done, total int64)) error {
	tables, err := db.Tables(ctx, from)
	if err != nil {
		return err
	}
	// Who served the old one does not serve this one: what a crash has left
	// open there is closed at once and not when a node counts as dead.
	tables = slices.DeleteFunc(tables, func(t string) bool { return t == "nodes" })
	var total int64
	for _, t := range tables {
		n, err := db.Count(ctx, from, t)
		if err != nil {
			return err
		}
		total += n
	}
	m.Tables = len(tables)
	return fresh.Write(ctx, func(to *db.Tx) error {
		m.Rows = 0
		// The mark of the master key, which any command leaves.
		if _, err := to.Exec(ctx, "DELETE FROM meta"); err != nil {
			return err
		}
		for _, t := range tables {
			n, err := db.Count(ctx, to, t)
			if err != nil {
				return err
			}
			if n > 0 {
				return fmt.Errorf("the database at %s is not empty: it has %d rows in %s; make a new one for this", m.To, n, t)
			}
			err = db.Copy(ctx, from, to, t, func(rows int) {
				m.Rows += int64(rows)
				progress(m.Rows, total)
			})
			if err != nil {
				return err
			}
		}
		if err := m.compare(ctx, from, to, tables); err != nil {
			return err
		}
		// Or the first queries go by what it knows of empty tables.
		_, err := to.Exec(ctx, "ANALYZE")
		return err
	})
}

// compare makes sure of the copy before it counts.
func (m *Moved) compare(ctx context.Context, from, to *db.Tx, tables []string) error {
	for _, t := range tables {
		want, err := db.Count(ctx, from, t)
		if err != nil {
			return err
		}
		if got, err := db.Count(ctx, to, t); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("%d rows of %s came to be %d", want, t, got))
		}
	}
	return nil
}

// partitionsFor makes those of the months that the old rows are of: in the
// default partition they would be in the way of their own.
func partitionsFor(ctx context.Context, from *db.Tx, fresh *db.DB) error {
	oldest := clock()
	for _, p := range partitioned {
		var first *string
		if err := from.QueryRow(ctx, "SELECT min("+p.Key+") FROM "+p.Table).Scan(&first); err != nil {
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
// moved. It reports where to, or "" if it had not been.
func MoveBack(ctx context.Context, cfg config.Config) (to string, err error) {
	cfg.DatabaseURL = ""
	d, err := OpenDatabase(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer d.Close()
	err = d.Write(ctx, func(tx *db.Tx) error {
		if to, err = movedTo(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", movedMark)
		return err
	})
	return to, err
}

func movedTo(ctx context.Context, q db.Querier) (to string, err error) {
	err = q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", movedMark).Scan(&to)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return to, err
}

// CheckMoved fails on a database that was moved elsewhere.
func CheckMoved(ctx context.Context, q db.Querier) error {
	to, err := movedTo(ctx, q)
	if err != nil || to == "" {
		return err
	}
	return fmt.Errorf("this database was moved to PostgreSQL at %s: use it with --database-url or TURNPIKE_DATABASE_URL; to go on with this one as it was then: turnpike move --undo", to)
}

// whereabouts is a database's address without what is secret in it.
func whereabouts(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be shown"
	}
	return u.Host + u.Path
}
