package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"turnpike/internal/db"
)

// holdRow is the row of the table meta that holds a restored server.
const holdRow = "restore_hold"

// Hold is the state of a restored server until an operator resumes it. Meanwhile
// it rejects API requests and starts no deliveries, jobs or runs: keys that were
// revoked since the backup work again, and work may have been done already.
type Hold struct {
	Backup     string    `json:"backup"`
	BackupAt   time.Time `json:"backup_at"` // later changes are lost
	RestoredAt time.Time `json:"restored_at"`
}

// Gap returns the time whose changes are lost.
func (h *Hold) Gap() time.Duration { return h.RestoredAt.Sub(h.BackupAt).Round(time.Second) }

// SetHold holds a restored database. It ends all sessions and sign-ins, deletes
// scoped tokens and links, which may have been used or revoked since, and the
// nodes and leases of the old servers.
func SetHold(ctx context.Context, d *db.DB, h Hold) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		for _, statement := range []string{
			"DELETE FROM sessions", "DELETE FROM half_logins", "DELETE FROM ceremonies",
			"DELETE FROM one_time_links",
			"DELETE FROM scoped_tokens",
			// The first server charges the open requests of these nodes, and then
			// returns the credits that they leased.
			"DELETE FROM nodes",
			"DELETE FROM limit_rates", "DELETE FROM limit_places", "DELETE FROM limit_nodes",
			"UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = 0 WHERE owner IS NOT NULL",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", claimRow); err != nil {
			return err
		}
		return setMeta(ctx, tx, holdRow, string(text))
	})
	return db.Wrap(err, "hold the restored database")
}

// ReadHold returns the hold of a database, or nil.
func ReadHold(ctx context.Context, q db.Querier) (*Hold, error) {
	var h Hold
	found, err := readMeta(ctx, q, holdRow, &h)
	if err != nil || !found {
		return nil, err
	}
	return &h, nil
}

// Resume releases a held database. It returns the hold, or nil if there was none.
func Resume(ctx context.Context, d *db.DB) (*Hold, error) {
	var h *Hold
	err := d.Write(ctx, func(tx *db.Tx) (err error) {
		if h, err = ReadHold(ctx, tx); err != nil || h == nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", holdRow)
		return err
	})
	return h, db.Wrap(err, "resume")
}

func setMeta(ctx context.Context, tx *db.Tx, name, value string) error {
	_, err := tx.Exec(ctx, "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	return err
}

// readMeta decodes a JSON value of the table meta.
func readMeta(ctx context.Context, q db.Querier, name string, into any) (found bool, err error) {
	text, err := db.Value[string](q.QueryRow(ctx, "SELECT value FROM meta WHERE name = $1", name))
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return false, fmt.Errorf("read %s from the database: %w", name, err)
	}
	return true, nil
}
